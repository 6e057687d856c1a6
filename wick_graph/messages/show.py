"""Chains and arguments as people read them, in Go's `%v` form where arguments are shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from wick_graph.messages.content import text_of
from wick_graph.messages.roles import (
    ROLE_ASSISTANT,
    ROLE_SYSTEM,
    ROLE_TOOL,
    ROLE_USER,
    role_of,
)

_LABELS: Final = {
    ROLE_SYSTEM: "System",
    ROLE_USER: "Human",
    ROLE_ASSISTANT: "AI",
    ROLE_TOOL: "Tool",
}


def pretty_print(messages: Sequence[BaseMessage]) -> str:
    """Return a chain as text: a header in brackets, the text, the calls, an empty line."""
    return "".join(map(_shown, messages))


def role_label(role: str) -> str:
    """Return what a header calls a role; a role without a label is its own."""
    return _LABELS.get(role, role)


def go_value(value: Any) -> str:
    """Return a value as Go prints it with `%v`: `map[a:1 b:[x y]]`, keys sorted, `<nil>`."""
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _go_float(value)
    if isinstance(value, dict):
        pairs = sorted((str(key), item) for key, item in value.items())
        return "map[" + " ".join(f"{key}:{go_value(item)}" for key, item in pairs) + "]"
    if isinstance(value, (list, tuple)):
        return "[" + " ".join(map(go_value, value)) + "]"
    return str(value)


def _shown(message: BaseMessage) -> str:
    lines = [_header(message)]
    text = text_of(message)
    if text:
        lines.append(text)
    if isinstance(message, AIMessage):
        lines += [
            f"  → tool_call: {call['name']}(id={call['id']}, args={go_value(call['args'])})"
            for call in message.tool_calls
        ]
        lines += [
            f"  → invalid_tool_call: {bad['name']}(id={bad['id']}, args={bad['args']})"
            for bad in message.invalid_tool_calls
        ]
    return "\n".join(lines) + "\n\n"


def _header(message: BaseMessage) -> str:
    if isinstance(message, ToolMessage):
        return f"[Tool: {message.name or ''} (call_id={message.tool_call_id})]"
    return f"[{role_label(role_of(message))}]"


def _go_float(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if value == 0:
        return "-0" if math.copysign(1, value) < 0 else "0"
    number = Decimal(repr(value)).normalize()
    exponent = number.adjusted()
    # Go writes the shortest digits that read back as the same number, and an exponent below
    # 0.0001 and from a million on
    if -4 <= exponent < 6:
        return format(number, "f")
    digits = "".join(map(str, number.as_tuple().digits))
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    sign = "-" if number.is_signed() else ""
    return f"{sign}{digits[0]}{fraction}e{exponent:+03d}"
