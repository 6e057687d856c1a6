"""Edits that a fork makes: of the state it begins with, and of one answer on its way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from langchain_core.messages import BaseMessage, RemoveMessage

from wick_graph.debug.edits import messages_of, reply_of, result_of
from wick_graph.debug.policy import Edit, once_more
from wick_graph.debug.shown import at_path
from wick_graph.errors import DebugError
from wick_graph.journal.entry import Entry
from wick_graph.messages import from_wick
from wick_graph.moments import Directive, Moment, Replace, Skip
from wick_graph.reducers import REMOVE_ALL
from wick_graph.request import ModelRequest, Section


class Nth:
    """Fits the n-th moment of its kind."""

    def __init__(self, n: int, kind: str, phase: str) -> None:
        self._left, self._what = n, (kind, phase)

    def __call__(self, moment: Moment) -> bool:
        """Count the moment, and say whether it is the one."""
        if (moment.kind, moment.phase) == self._what:
            self._left -= 1
            return self._left == 0
        return False


def tool_edits(entry: Entry, args: Mapping[str, Any] | None, result: Any) -> Iterator[Edit]:
    """Give the call of a moment other arguments or a result.

    Raises:
        DebugError: There is no call, or both were given.
    """
    if args is None and result is None:
        return
    if args is not None and result is not None:
        raise DebugError("a call with a given result is not made; give the arguments or the result")
    if entry.call_id is None:
        raise DebugError("no tool call stands at this moment; choose one at tool:NAME")
    given = {"result": result} if args is None else {"args": dict(args)}
    yield edit_of({"call": entry.call_id, **given})


def edit_of(told: Mapping[str, Any], origin: str | None = None) -> Edit:
    """Make an edit of its data: `call` with `args` or `result`, `nth` with `request` or `response`.

    Raises:
        DebugError: The reply is none.
    """
    if "call" in told:
        return _call_edit(told, origin)
    asks = Nth(told["nth"], "model", "request")
    if "response" in told:
        reply = reply_of(told["response"])
        return Edit(asks, lambda moment: Skip(reply), told=told)
    request = told["request"]
    return Edit(asks, lambda moment: Replace(changed(moment.data["request"], request)), told=told)


def _call_edit(told: Mapping[str, Any], origin: str | None) -> Edit:
    call_id = told["call"]

    def fits(moment: Moment) -> bool:
        return (moment.kind, moment.phase, moment.call_id) == ("tool", "call", call_id)

    def make(moment: Moment) -> Directive:
        if "args" not in told:
            return Skip(result_of(moment, told["result"]))
        return Replace(once_more(moment.data["call"], origin).replace(args=dict(told["args"])))

    return Edit(fits, make, told=told)


def changed(request: ModelRequest, wanted: Mapping[str, Any]) -> ModelRequest:
    """Return a request with another system prompt, other messages or settings.

    Raises:
        DebugError: It has no such part.
    """
    unknown = sorted(set(wanted) - {"system", "messages", "settings"})
    if unknown:
        raise DebugError(f"a request has no {unknown[0]}; change system, messages or settings")
    if "system" in wanted:
        request = request.replace_system(Section(str(wanted["system"]), "debugger"))
    if "messages" in wanted:
        request = request.with_messages(messages_of(request, wanted["messages"]))
    if "settings" in wanted:
        request = request.with_settings(**wanted["settings"])
    return request


def put(value: Any, path: tuple[str | int, ...], new: Any, text: str) -> Any:
    """Return a copy of JSON-like data with something else at a path.

    Raises:
        DebugError: There is no such path.
    """
    if not path:
        return new
    head, rest = path[0], path[1:]
    try:
        inner = at_path(value, (head,)) if rest else None
    except LookupError:
        raise DebugError(f"there is nothing at {text}") from None
    made = put(inner, rest, new, text)
    if isinstance(value, Mapping):
        return {**value, str(head): made}
    if isinstance(value, list) and isinstance(head, int) and -len(value) <= head < len(value):
        copied = list(value)
        copied[head] = made
        return copied
    raise DebugError(f"there is nothing at {text}")


def written(state: Mapping[str, Any]) -> dict[str, Any]:
    """Turn channels of JSON-like data into writes that put them there."""
    made = dict(state)
    if "messages" in made:
        kept = [_message(message) for message in made["messages"]]
        made["messages"] = [RemoveMessage(REMOVE_ALL), *kept]
    return made


def _message(wick: Mapping[str, Any]) -> BaseMessage:
    message = from_wick({key: value for key, value in wick.items() if key != "id"})
    return message.model_copy(update={"id": wick["id"]}) if wick.get("id") else message
