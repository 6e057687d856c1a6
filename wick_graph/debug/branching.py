"""Where a fork runs: a thread of its own, at its checkpoint, with its edits of the state."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from langchain_core.messages import RemoveMessage
from langgraph.errors import InvalidUpdateError
from langgraph.types import Command, Overwrite, StateUpdate

from wick_graph import langgraph_config
from wick_graph.debug.policy import written
from wick_graph.debug.view import ViewCache
from wick_graph.errors import DebugError
from wick_graph.foreign.listener import is_agent
from wick_graph.journal.entry import Entry
from wick_graph.journal.journal import Journal
from wick_graph.journal.value_store import CUT
from wick_graph.store.saver import SqlSaver

_BEFORE: Final = {
    "before_agent": "__start__",
    "modify_request": "before_agent",
    "model": "modify_request",
    "tools": "model",
}
"""The predecessor of each of an agent's nodes: a state edited there continues with the node."""

_LAST_WRITE: Final = ("LastValue", "EphemeralValue", "AnyValue", "UntrackedValue", "Topic")
"""Kinds of channels whose writes replace what was there."""

_FORK: Final = re.compile(r"-fork\d+$")

_LONGEST: Final = 128
"""Characters of a thread id."""


def graph_for(graph: Any, journal: Journal | None, thread_id: str) -> Any:
    """Return a graph over the store that has a thread: its own, else that of its recording."""
    if is_agent(graph) or journal is None or isinstance(graph.checkpointer, SqlSaver):
        return graph
    config: Any = langgraph_config.with_configurable(
        None, **{langgraph_config.THREAD_ID: thread_id}
    )
    with suppress(NotImplementedError, RuntimeError):  # a saver for one event loop alone
        if graph.checkpointer and graph.checkpointer.get_tuple(config) is not None:
            return graph
    return graph.copy({"checkpointer": journal.saver})


def own_thread(graph: Any, journal: Journal, checkpoint: str) -> tuple[Any, str]:
    """Copy a thread for a fork; return a graph over its store, and the copy's id.

    Raises:
        DebugError: A value at the checkpoint is recorded as text alone.
    """
    store = graph.checkpointer if is_agent(graph) else journal.saver
    if not isinstance(store, SqlSaver):
        raise DebugError("this agent's store keeps no copies; fork with in_place")
    if store is not graph.checkpointer:
        _check_whole(journal, checkpoint)
        graph = graph.copy({"checkpointer": store})
    base, number = _FORK.sub("", journal.thread_id), 1
    while store.threads.look(name := f"{base[: _LONGEST - 8]}-fork{number}") is not None:
        number += 1
    store.threads.fork(journal.thread_id, name)
    return graph, name


def _check_whole(journal: Journal, checkpoint: str) -> None:
    saved = journal.saved(checkpoint)
    values = {} if saved is None else saved.checkpoint["channel_values"]
    for name, value in values.items():
        items = value if isinstance(value, list) else [value]
        if any(isinstance(item, Mapping) and CUT in item for item in items):
            raise DebugError(
                f"the recording has {name} as text alone, since its class is no data; fork with "
                "in_place, or give the graph an SqlSaver"
            )


def edit_state(
    graph: Any, address: Mapping[str, Any], state: Mapping[str, Any], before: list[str]
) -> str:
    """Write channels at a checkpoint, so that the same nodes follow; return the new checkpoint.

    `before` are the nodes that led to these.

    Raises:
        DebugError: The graph refuses the values.
    """
    config = langgraph_config.with_configurable(None, **address)
    values = written(state)
    if not is_agent(graph):
        values = {name: _whole(graph.channels.get(name), value) for name, value in values.items()}
    wanted = set(graph.get_state(config).next)
    made: Any = config
    try:
        for goto in ((), sorted(wanted)):
            given: Any = values
            if goto:  # a `Command` led there, not an edge
                given = Command(update=values, goto=goto)
            updates = [StateUpdate(given, before[0])]
            updates += [StateUpdate(None, node) for node in before[1:]]
            made = graph.bulk_update_state(config, [updates])
            if graph.get_state(made).next or not wanted:
                break
    except (InvalidUpdateError, ValueError, TypeError) as error:
        raise DebugError(f"the graph refuses this state: {error}") from error
    return str(langgraph_config.configurable(made)[langgraph_config.CHECKPOINT_ID])


def _whole(channel: Any, value: Any) -> Any:
    """Return the write that makes a value the channel's whole one."""
    if type(channel).__name__ in _LAST_WRITE:
        return value
    if isinstance(value, list) and value and isinstance(value[0], RemoveMessage):
        value = value[1:]  # `Overwrite` removes the old ones
    return Overwrite(value)


def nodes_before(views: ViewCache, place: int) -> list[str]:
    """Return the nodes that led to those of the superstep at a place, where it begins."""
    timeline, journal = views.timeline, views.journal
    first = timeline.entries[place]
    if views.shape is None or journal is None:
        return [_BEFORE.get(first.node or "", "__start__")]
    begins = {run.first for run in journal.runs() if run.mode == "input"}
    ended: list[Entry] = []
    for entry in reversed(timeline.entries[:place]):
        if entry.seq in begins or (ended and entry.checkpoint not in (None, ended[0].checkpoint)):
            break
        if entry.what == "node.exit" and not entry.level:
            ended.append(entry)
    step = timeline.entries[place:]
    entered = {e.node for e in step if (e.what, e.checkpoint) == ("node.enter", first.checkpoint)}
    told = [(entry, journal.details(entry)) for entry in reversed(ended)]
    led = [e for e, said in told if entered & {*said.get("goto", ()), *said.get("sends", ())}]
    found = led or ended[:1]  # the last one of those that an edge waited for
    return list(dict.fromkeys(entry.name for entry in found)) or ["__start__"]
