"""Edits of a held moment: a request, arguments, a result, a reply, writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage

from wick_graph.core.moments import Directive, Moment, Replace, Skip
from wick_graph.core.request import ModelRequest, Section, shown
from wick_graph.debug.gate import HeldCall
from wick_graph.debug.values import read_path
from wick_graph.errors import DebugError
from wick_graph.messages import ToolCall, ToolResult, from_wick, to_wick

DEBUGGER: Final = "debugger"
"""The source of a prompt section from an edit."""

Edited = tuple[Directive, str]


def edited(held: HeldCall, target: str, value: Any) -> Edited:
    """Return the directive for an edit of a held moment, and a sentence on its effect.

    Raises:
        DebugError: The moment has no such part, or the value does not fit.
        MessageError: A message is invalid.
    """
    part, _, rest = target.partition(".")
    make = _EDITS.get(part)
    if make is None:
        raise DebugError(f"{target[:40]!r} cannot be changed; change one of {', '.join(TARGETS)}")
    return make(held, rest, value)


def skipped(held: HeldCall, value: Any) -> Edited:
    """Return the directive that skips a held call, and a sentence on its effect.

    Raises:
        DebugError: The moment is not a call.
    """
    what = held.entry.what
    if held.moment.is_call:
        return Skip(result_of(held.moment, value)), f"{held.entry.name} is not run"
    if what == "model.request":
        return Skip(reply_of(value)), "the model is not asked"
    raise DebugError(f"{what} is no call that could be left out; stop at a tool or a model:request")


def _request(held: HeldCall, part: str, value: Any) -> Edited:
    given = held.directive.value if isinstance(held.directive, Replace) else None
    request = given or held.moment.data.get("request") or held.moment.data.get("value")
    if not isinstance(request, ModelRequest):
        raise _not_here(held, "request")
    if part == "system":
        made = request.replace_system(Section(text_of(value), DEBUGGER))
    elif part == "messages":
        made = request.with_messages(messages_of(request, value))
    elif part == "settings":
        made = replace(request, settings=dict(object_of(value, "settings")))
    else:
        raise DebugError("of a request, change request.system, .messages or .settings")
    return Replace(made), f"the model will be sent another {part}"


def _args(held: HeldCall, part: str, value: Any) -> Edited:
    args = dict(object_of(value, "arguments"))
    if held.moment.is_call:
        return Replace(args), f"{held.entry.name} will be run with these arguments"
    call = held.moment.data.get("value")
    if held.entry.what == "hook.enter" and isinstance(call, ToolCall):
        return Replace(call.replace(args=args)), f"hook {held.entry.name} will see these arguments"
    raise _not_here(held, "arguments")


def _result(held: HeldCall, part: str, value: Any) -> Edited:
    if held.moment.is_call:
        return skipped(held, value)
    if held.entry.what == "tool.exit":
        return Replace(result_of(held.moment, value)), "the model will read this result"
    raise _not_here(held, "result")


def _response(held: HeldCall, part: str, value: Any) -> Edited:
    if held.entry.what == "model.request":
        return skipped(held, value)
    if held.entry.what == "model.response":
        return Replace(reply_of(value)), "the run goes on with this reply"
    raise _not_here(held, "reply")


def _writes(held: HeldCall, channel: str, value: Any) -> Edited:
    if held.entry.what != "node.exit" or not channel:
        raise DebugError("writes.CHANNEL can be changed at the end of a node; go to model:exit")
    if channel.startswith("state["):  # quoted
        channel = str(read_path(channel)[0])
    if channel == "messages":
        value = [from_wick(message) for message in listed_messages(value)]
    given = held.directive.value if isinstance(held.directive, Replace) else None
    writes = given if given is not None else held.moment.data["writes"]
    made = [(name, old) for name, old in writes if name != channel] + [(channel, value)]
    return Replace(made), f"node {held.entry.name} will write this to {channel}"


_EDITS: Final[Mapping[str, Callable[[HeldCall, str, Any], Edited]]] = {
    "args": _args,
    "result": _result,
    "response": _response,
    "request": _request,
    "writes": _writes,
}

TARGETS: Final = (
    *("args", "result", "response"),
    *("request.system", "request.messages", "request.settings", "writes.CHANNEL"),
)
"""Editors, by the name of the editable part."""


def result_of(moment: Moment, value: Any) -> ToolResult:
    """Make a tool's result from a text, or from an object with `output` or `error`."""
    call_id, name = moment.call_id or "", moment.name
    if isinstance(value, ToolResult):
        return value.replace(tool_call_id=call_id, name=name)
    if isinstance(value, Mapping) and set(value) <= {"output", "error"}:
        error = value.get("error")
        output = "" if value.get("output") is None else str(value["output"])
        return ToolResult(call_id, name, output, error=None if error is None else str(error))
    return ToolResult(call_id, name, text_of(value))


def reply_of(value: Any) -> AIMessage:
    """Make a model's reply from a text, or from a message in wick's form.

    Raises:
        DebugError: It is not a reply.
        MessageError: The message is invalid.
    """
    if isinstance(value, AIMessage):
        return value
    if isinstance(value, Mapping):
        made = from_wick({"role": "assistant", "content": "", **value})
        if isinstance(made, AIMessage):
            return made
    if isinstance(value, str):
        return AIMessage(value)
    raise DebugError("a reply is a text, or an object with content and tool_calls")


def messages_of(request: ModelRequest, value: Any) -> list[BaseMessage]:
    """Return messages for a request; unchanged ones stay the thread's own objects."""
    known = {_key(to_wick(message)): message for message in shown(request)}
    made: list[BaseMessage] = []
    for item in listed_messages(value):
        plain = {key: part for key, part in item.items() if key != "id"}
        made.append(known.get(_key(plain)) or from_wick(plain))
    return made


def _key(wick: Mapping[str, Any]) -> str:
    return repr(sorted(wick.items()))


def listed_messages(value: Any) -> Sequence[Mapping[str, Any]]:
    """Return messages in wick's form.

    Raises:
        DebugError: It is no list of objects.
    """
    if not isinstance(value, list | tuple) or not all(isinstance(m, Mapping) for m in value):
        raise DebugError("messages are a list of objects with role and content")
    return value


def object_of(value: Any, what: str) -> Mapping[str, Any]:
    """Return an object.

    Raises:
        DebugError: It is something else.
    """
    if not isinstance(value, Mapping):
        raise DebugError(f"{what} are an object, not {value!r:.60}")
    return value


def text_of(value: Any) -> str:
    """Return a value as a text; null as an empty one."""
    return value if isinstance(value, str) else "" if value is None else repr(value)


def _not_here(held: HeldCall, what: str) -> DebugError:
    return DebugError(f"{held.entry.what} has no {what} to change; stop at another moment")
