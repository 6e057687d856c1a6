"""`pytest`: a recorded run as a test, with the recording beside it as its cassette."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from pprint import pformat
from typing import Any, Final

from wick_graph.errors import ReplayError
from wick_graph.exports.masked import Hider
from wick_graph.exports.rerun import rerun_of
from wick_graph.exports.wickrun import write_wickrun
from wick_graph.journal import Journal
from wick_graph.journal.entry import RunRecord
from wick_graph.store.saver import SqlSaver

_WIDTH: Final = 96
_NAME: Final = re.compile(r"\W+")


@dataclass(frozen=True, slots=True)
class FromFile:
    """An agent of an agents.yaml."""

    config: Path
    agent: str


@dataclass(frozen=True, slots=True)
class FromCode:
    """An agent, or a function that makes one, in a module."""

    module: str
    name: str


def write_test(
    journal: Journal,
    saver: SqlSaver,
    path: Path,
    agent: FromFile | FromCode,
    hider: Hider,
    run: int | str | None = None,
) -> Path:
    """Write a test and its cassette, and return where the cassette is.

    Raises:
        ReplayError: The run cannot be replayed, with the reason.
        OSError: A file cannot be written.
    """
    record = _replayable(journal, run)
    cassette = path.with_suffix(".wickrun")
    if write_wickrun(journal, saver, cassette, hider):
        cassette.unlink()
        raise ReplayError(
            f"thread {journal.thread_id!r} holds secrets, which a file must hide, and a run whose "
            "texts are hidden cannot be replayed; record one without them"
        )
    path.write_text(_source(journal, record, path, cassette, agent), encoding="utf-8")
    return cassette


def _replayable(journal: Journal, run: int | str | None) -> RunRecord:
    runs = journal.runs()
    if not runs:
        raise ReplayError(f"thread {journal.thread_id!r} has no journal; nothing can be replayed")
    record = runs[-1] if run is None else journal.run(run)
    if record.mode != "input":
        raise ReplayError(
            f"run {record.number} goes on where another one stopped; choose that one with --run"
        )
    if record.status != "ended":
        raise ReplayError(
            f"run {record.number} is {record.status} and has no end that a test could compare; "
            "choose another one with --run"
        )
    return record


def _source(
    journal: Journal, record: RunRecord, path: Path, cassette: Path, agent: FromFile | FromCode
) -> str:
    did = rerun_of(journal, record.number)
    name = _NAME.sub("_", f"{journal.thread_id}_run_{record.number}").strip("_").lower()
    imports, made = _agent(agent, path)
    day = record.started.strftime("%Y-%m-%d")
    told = _plain(f"Run {record.number} of {journal.thread_id}, recorded on {day}")
    return _TEST.format(
        told=told,
        imports=imports,
        cassette=json.dumps(cassette.name),
        name=name,
        agent=made,
        run=record.number,
        path=_shown(did.path),
        calls=_shown(did.calls),
        why=did.stopped_because,
        text=_shown(did.text),
    )


def _agent(agent: FromFile | FromCode, path: Path) -> tuple[str, str]:
    if isinstance(agent, FromFile):
        config = os.path.relpath(agent.config.absolute(), path.absolute().parent)
        imports = (
            "from wick_graph.config import load_config\n"
            "from wick_graph.loading import outline\n"
            "from wick_graph.testing import replay_file\n"
        )
        config = json.dumps(Path(config).as_posix())
        return imports, f"outline({agent.agent!r}, load_config(HERE / {config}))"
    imports = (
        f"from {agent.module} import {agent.name} as made\n"
        "from wick_graph.testing import replay_file\n"
    )
    return imports, "made() if callable(made) else made"


def _shown(value: Any) -> str:
    """Write a value as code; what takes several lines stands in brackets of its own."""
    text = pformat(value, width=_WIDTH - 8, sort_dicts=False, compact=True)
    if "\n" not in text:
        return text
    return "(\n        " + text.replace("\n", "\n        ") + "\n    )"


def _plain(text: str) -> str:
    """Make a text harmless in a docstring."""
    return text.encode("unicode_escape").decode("ascii").replace('"', "'").replace("\\", "/")


_TEST: Final = '''\
"""{told}: replayed without a model, a tool or a network.

Hooks and routing run as they are now. Where they ask a model or a tool for something that was not
recorded, the test fails and shows the difference. Delete the assertions that you do not mean.
"""

from pathlib import Path

{imports}
HERE = Path(__file__).parent
CASSETTE = HERE / {cassette}


def test_{name}():
    agent = {agent}
    run = replay_file(CASSETTE, agent, run={run})
    assert run.path == {path}
    assert run.calls == {calls}
    assert run.stopped_because == {why!r}
    assert run.text == {text}
'''
