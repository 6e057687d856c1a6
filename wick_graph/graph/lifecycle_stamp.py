"""Which agent and which engine a thread stopped under: said when it goes on under others."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from wick_graph import keys
from wick_graph.drive import Leaves
from wick_graph.journal.identity import about
from wick_graph.messages import text_of
from wick_graph.runtime import AgentSpec

if TYPE_CHECKING:
    from wick_graph.graph.lifecycle import Opened

STAMP: Final = "wick_version"
"""The metadata of a checkpoint that tells the engine's version, the agent's make, and its code."""
TITLE_CHARS: Final = 80
_log: Final = logging.getLogger("wick_graph")


def stamp_of(spec: AgentSpec) -> str:
    """Write down under which engine and which agent a checkpoint is made."""
    known = about(spec)
    engine = known["versions"].get("wick-graph") or "unknown"
    return f"{engine} {known['graph']} {known['code']}"


def title_of(input: Any) -> str | None:
    """Make a thread's title of the first line that a person says in it."""
    messages = input.get("messages") if isinstance(input, dict) else None
    for message in messages if isinstance(messages, list) else ():
        text = text_of(message) if getattr(message, "type", "") == "human" else ""
        line = next((line.strip() for line in text.splitlines() if line.strip()), "")
        if line:
            return line if len(line) <= TITLE_CHARS else f"{line[: TITLE_CHARS - 1]}…"
    return None


async def compare(opened: Opened, io: Leaves) -> None:
    """Warn where a run goes on that another make of the agent, or another engine, began.

    A new message is no such case: agents are changed between two messages all the time.
    """
    saver, config = opened.saver, opened.config
    if saver is None or opened.is_new_input or opened.before is None:
        return
    saved: Any = await io.either(lambda: saver.get_tuple(config), lambda: saver.aget_tuple(config))
    was = str((saved.metadata if saved is not None else {}).get(STAMP) or "").split(" ")
    now = stamp_of(opened.graph.spec).split(" ")
    if len(was) != len(now) or was == now:
        return
    what = ("the engine", "its prompt, tools, hooks or limits", "the code of its tools or hooks")
    other = ", ".join(name for name, old, new in zip(what, was, now, strict=True) if old != new)
    engines = f" (wick-graph {was[0]}, now {now[0]})" if was[0] != now[0] else ""
    _log.warning(
        "thread %s goes on under another version of the agent %s than it stopped with: "
        "changed: %s%s",
        keys.thread_of(config),
        opened.graph.spec.name,
        other,
        engines,
    )
