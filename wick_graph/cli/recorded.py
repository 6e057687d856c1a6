"""LangGraph graphs of any state at the commands that record and draw them."""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from wick_graph import langgraph_config
from wick_graph.cli.select import from_code
from wick_graph.cli.select import target as code_named

if TYPE_CHECKING:
    from wick_graph.picture import Picture


def graph_named(agent_id: str | None) -> Any:
    """Return the LangGraph graph, of any state, that the command names; None for an agent.

    Raises:
        ConfigError: The target cannot be imported.
    """
    from wick_graph.targets import graph_of

    named = code_named()
    return None if named is None else graph_of(named, agent_id)


def needs_graph() -> None:
    """Refuse a command that gives an input as JSON to something else.

    Raises:
        ConfigError: Always; of a graph that is not compiled, it says so.
    """
    from wick_graph.errors import ConfigError

    if code_named() is not None:
        from_code(with_file=True)
    raise ConfigError("--input is for a LangGraph graph; give an agent its message instead")


def json_of(text: str, remedy: str) -> Any:
    """Read a graph's input.

    Raises:
        ConfigError: It is no JSON.
    """
    from wick_graph.errors import ConfigError

    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{remedy} is no JSON ({error}); quote it, as in '{{}}'") from None


def run_to_end(graph: Any, given: Any, thread_id: str) -> Any:
    """Run a graph, in the door that all of its parts have."""
    from wick_graph.foreign.seams import needs_loop

    config = langgraph_config.with_configurable(None, thread_id=thread_id)
    if needs_loop(graph):
        return asyncio.run(graph.ainvoke(given, config))
    return graph.invoke(given, config)


def saver_with(thread: str, own: Any, stack: ExitStack) -> Any:
    """Return the store with the recording of a graph's thread: its own, wick's, or of copies.

    Raises:
        ThreadNotFoundError: None has it.
    """
    from wick_graph.config.fields import DEFAULT_STORE
    from wick_graph.errors import ThreadNotFoundError
    from wick_graph.foreign.copies import RECORDED
    from wick_graph.store import SqlSaver
    from wick_graph.store.saver import dialect_of

    urls = [url for url in (DEFAULT_STORE, f"sqlite:///{RECORDED}") if dialect_of(url).exists()]
    savers = [own] if isinstance(own, SqlSaver) else []
    for saver in [*savers, *(stack.enter_context(SqlSaver.from_url(url)) for url in urls)]:
        if saver.threads.look(thread) is not None:
            return saver
    raise ThreadNotFoundError(f"there is no thread {thread}; record it with `wick run --record`")


def picture_alone(graph: Any, agent_id: str | None) -> Picture:
    """Draw a graph; one without a name has that of the target."""
    from wick_graph.picture import picture_of

    own = graph.get_name()
    named = agent_id or str(code_named()).rpartition(":")[2]
    return picture_of(graph, title=named if own == "LangGraph" else own)


def picture_with(graph: Any, agent_id: str | None, thread: str) -> Picture:
    """Draw a graph with a thread laid over it: its recorded runs, else its checkpoints.

    Raises:
        ThreadNotFoundError: No store has it.
    """
    from wick_graph.journal import Journal
    from wick_graph.picture import overlay_of, recorded_overlay

    with ExitStack() as stack:
        saver = saver_with(thread, graph.checkpointer, stack)
        journal = Journal(saver, thread)
        if journal.runs():
            overlay = recorded_overlay(graph, journal)
        else:
            overlay = overlay_of(graph.copy({"checkpointer": saver}), thread)
        return picture_alone(graph, agent_id).with_run(overlay)
