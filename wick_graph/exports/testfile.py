"""`pytest`: a recorded run as a test that replays and compares it."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from pprint import pformat
from typing import Any, Final

from wick_graph.engine.result import answer_in
from wick_graph.errors import ReplayError
from wick_graph.exports.plain import Hider
from wick_graph.exports.wickrun import open_wickrun, write_wickrun
from wick_graph.foreign.listener import is_agent
from wick_graph.foreign.replay import played
from wick_graph.journal import Entry, Journal
from wick_graph.journal.entry import RunRecord
from wick_graph.journal.replay import chain_of, replay
from wick_graph.store.saver import SqlSaver

# --- Replay a recorded run, with a result that tests can compare.


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerun:
    """The outcome of a run, from its recording or its replay."""

    path: list[str]
    """The visited nodes, in order."""
    calls: list[tuple[str, Any]]
    """The tools that ran with their arguments, in call order."""
    text: str
    """The answer: an output as JSON, else the text of the last message."""
    stopped_because: str
    values: Mapping[str, Any] = field(repr=False, default_factory=dict)
    """The state at the end."""


def replay_file(path: str | Path, agent: Any, run: int | str | None = None) -> Rerun:
    """Replay a run from a `.wickrun` file: no model and no tool is called.

    Args:
        path: The file.
        agent: An `Agent`, or any graph; hooks and routing run as they are now.
        run: Its number or id; by default the thread's latest.

    Raises:
        ReplayError: The replay differs from the recording.
        StorageError: It is not such a file, or it is damaged.
    """
    with open_wickrun(path) as recording:
        how = {} if is_agent(getattr(agent, "graph", agent)) else {"play": played}
        replayed = replay(agent, recording.journal, run, **how)
        return rerun_of(replayed.journal, values=replayed.values)


def rerun_of(
    journal: Journal, run: int | str | None = None, values: Mapping[str, Any] | None = None
) -> Rerun:
    """Return the outcome of a recorded run; by default the thread's latest.

    Raises:
        StorageError: There is no such run, or the state at its end is gone.
    """
    record = journal.runs()[-1] if run is None else journal.run(run)
    chain = chain_of(journal, record) if values is None else journal.runs()  # a replay's own ones
    entries = [entry for one in chain for entry in journal.moments(one.number)]
    if values is None:
        values = journal.state_at(entries[-1].seq).values
    calls = [e for e in entries if e.is_call]
    return Rerun(
        path=[e.name for e in entries if e.what == "node.enter"],
        calls=[
            (call.name, journal.details(call).get("args")) for call in sorted(calls, key=_order)
        ],
        text=answer_in(values),
        stopped_because=record.stopped_because or record.status,
        values=values,
    )


def _order(call: Entry) -> tuple[int, int, str]:
    index = call.fields.get("k")
    return call.superstep or 0, index if isinstance(index, int) else 0, call.call_id or ""


# --- `pytest`: a recorded run as a test, with the recording beside it as its cassette.


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
            f"thread {journal.thread_id!r} holds secrets, which a file must hide, and a run with "
            f"hidden texts cannot be replayed; `wick export -t {shlex.quote(journal.thread_id)} "
            "--to jsonl` writes each as ••• with its field; record a run without them"
        )
    path.write_text(_source(journal, record, path, cassette, agent), encoding="utf-8")
    return cassette


def _replayable(journal: Journal, run: int | str | None) -> RunRecord:
    runs = journal.runs()
    if not runs:
        raise ReplayError(f"thread {journal.thread_id!r} has no journal; nothing can be replayed")
    record = runs[-1] if run is None else journal.run(run)
    chain_of(journal, record)
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
    title = _plain(f"Run {record.number} of {journal.thread_id}, recorded on {day}")
    return _TEST.format(
        title=title,
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
    return imports, 'made if hasattr(made, "invoke") else made()'


def _shown(value: Any) -> str:
    """Write a value as code, in brackets if it takes several lines."""
    text = pformat(value, width=_WIDTH - 8, sort_dicts=False, compact=True)
    if "\n" not in text:
        return text
    return "(\n        " + text.replace("\n", "\n        ") + "\n    )"


def _plain(text: str) -> str:
    """Make a text harmless in a docstring."""
    return text.encode("unicode_escape").decode("ascii").replace('"', "'").replace("\\", "/")


_TEST: Final = '''\
"""{title}: replayed without a model, a tool or a network.

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
