"""Run a recorded run again and say what came of it, in a form that tests compare."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wick_graph.exports.wickrun import open_wickrun
from wick_graph.journal import Entry, Journal
from wick_graph.journal.replay import replay


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerun:
    """What a run did: by its recording, or by its replay."""

    path: list[str]
    """The nodes that were visited, in their order."""
    calls: list[tuple[str, Any]]
    """Tools that ran, with the arguments that reached them, in call order."""
    text: str
    """The last message's text."""
    stopped_because: str
    values: Mapping[str, Any] = field(repr=False, default_factory=dict)
    """The state at the end."""


def replay_file(path: str | Path, agent: Any, run: int | str | None = None) -> Rerun:
    """Replay a run from a `.wickrun` file: no model and no tool is called.

    Args:
        path: The file.
        agent: An `Agent`, or its graph; hooks and routing run as they are now.
        run: Its number or id; by default the thread's latest.

    Raises:
        ReplayError: What happens now is not what was recorded.
        StorageError: The file is none, or is damaged.
    """
    with open_wickrun(path) as recording:
        replayed = replay(agent, recording.journal, run)
        return rerun_of(replayed.journal, values=replayed.values)


def rerun_of(
    journal: Journal, run: int | str | None = None, values: Mapping[str, Any] | None = None
) -> Rerun:
    """Say what a recorded run did; by default the thread's latest.

    Raises:
        StorageError: There is no such run, or the state at its end is gone.
    """
    record = journal.runs()[-1] if run is None else journal.run(run)
    entries = list(journal.moments(record.number))
    if values is None:
        values = journal.state_at(entries[-1].seq).values
    messages = values.get("messages") or []
    calls = [e for e in entries if e.kind == "tool" and e.phase == "call"]
    return Rerun(
        path=[e.name for e in entries if e.what == "node.enter"],
        calls=[
            (call.name, journal.details(call).get("args")) for call in sorted(calls, key=_order)
        ],
        text=messages[-1].text if messages else "",
        stopped_because=record.stopped_because or record.status,
        values=values,
    )


def _order(call: Entry) -> tuple[int, int, str]:
    index = call.fields.get("k")
    return call.superstep or 0, index if isinstance(index, int) else 0, call.call_id or ""
