"""The names that an expression finds at a moment; each is looked up only when it is used."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from wick_graph.debug.shown import EMPTY
from wick_graph.debug.view import View
from wick_graph.errors import DebugError, ExpressionError, StorageError
from wick_graph.messages import to_wick


class Names(Mapping[str, Any]):
    """The names at one moment: facts of the moment, and the channels of its state."""

    def __init__(self, view: View) -> None:
        self._view = view

    def __getitem__(self, name: str) -> Any:
        found = _FACTS.get(name)
        try:
            if found is not None:
                return found(self._view)
            return self._view.state[name]
        except (StorageError, DebugError) as error:
            raise ExpressionError(f"{name} is not known here: {error}") from None

    def __contains__(self, name: object) -> bool:
        if name in _FACTS or name in EMPTY:
            return True
        try:
            return name in self._view.state
        except (StorageError, DebugError):
            return False

    def __iter__(self) -> Iterator[str]:
        yield from _FACTS
        yield from (name for name in EMPTY if name not in _FACTS)

    def __len__(self) -> int:
        return len(list(iter(self)))


def _request(view: View) -> Any:
    found = view.request
    if found is None:
        return None
    return {
        "system": found.system_text,
        "messages": [view.desk.shower.message(message) for message in found.messages],
        "tools": [tool["function"]["name"] for tool in found.tools],
        "settings": view.desk.shower.plain(found.settings),
        "model": found.model,
        "purpose": found.purpose,
    }


def _response(view: View) -> Any:
    return None if view.reply is None else view.desk.shower.plain(to_wick(view.reply))


def _usage(view: View) -> Any:
    """Tell the tokens of a reply at its moment; elsewhere those of the thread."""
    return view.state["usage"] if view.usage is None else view.usage


def _phase(view: View) -> str:
    return view.entry.hook_phase or view.entry.phase


_FACTS: Final[Mapping[str, Callable[[View], Any]]] = {
    "node": lambda view: view.entry.node,
    "hook": lambda view: view.entry.name if view.entry.kind == "hook" else None,
    "phase": _phase,
    "kind": lambda view: view.entry.kind,
    "name": lambda view: view.entry.name,
    "tool": lambda view: view.entry.tool or None,
    "call_id": lambda view: view.entry.call_id,
    "args": lambda view: view.args,
    "result": lambda view: view.result,
    "output": lambda view: view.output,
    "request": _request,
    "response": _response,
    "usage": _usage,
    "step": lambda view: view.entry.step,
    "visit": lambda view: view.entry.visit,
    "depth": lambda view: view.entry.depth,
    "branch": lambda view: view.entry.branch,
    "seq": lambda view: view.entry.seq,
    "error": lambda view: view.error,
    "prev": lambda view: view.before,
}
FACTS: Final = tuple(_FACTS)
"""The names that are not channels."""
