"""`Messages`: a list of messages to build, filter, check and print."""

from __future__ import annotations

import builtins
import math
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any, Final, SupportsIndex, overload

from langchain_core.messages import AIMessage, BaseMessage, ChatMessage, ToolMessage

from wick_graph.messages import build, tokens, validation
from wick_graph.messages.base import (
    ROLE_ASSISTANT,
    ROLE_SYSTEM,
    ROLE_TOOL,
    ROLE_USER,
    copy_message,
    is_partial,
    role_of,
)
from wick_graph.messages.build import AnyCall
from wick_graph.messages.content import Content, text_of

# --- Chains as people read them, with arguments in Go's `%v` form.


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
    """Return a role's label in a header: the role itself if it has none."""
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
    if is_partial(message):
        lines.append("  (cut off here: the run was cancelled)")
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


# --- The chain: a list of messages to build, filter, check and show.


class Messages(list[BaseMessage]):
    """A list of messages with methods.

    `system`, `human`, `ai`, `tool`, `add` and `concat` return a fresh chain and leave this one
    as it is, so two chains made from one base never share; so do the filters and slices.
    The messages themselves are shared: `copies` returns a chain to change.
    """

    def system(self, content: Content) -> Messages:
        """Return this chain and a system message."""
        return self.add(build.system(content))

    def human(self, content: Content) -> Messages:
        """Return this chain and a user message."""
        return self.add(build.human(content))

    def ai(self, content: Content = "", *tool_calls: AnyCall) -> Messages:
        """Return this chain and an assistant message with its tool calls."""
        return self.add(build.ai(content, *tool_calls))

    def tool(self, tool_call_id: str, name: str, output: Content) -> Messages:
        """Return this chain and the answer to a tool call."""
        return self.add(build.tool_msg(tool_call_id, name, output))

    def add(self, *messages: BaseMessage) -> Messages:
        """Return this chain and these messages."""
        return self.concat(messages)

    def concat(self, other: Iterable[BaseMessage]) -> Messages:
        """Return this chain and another."""
        return Messages([*self, *other])

    def len(self) -> int:
        """Return the number of messages."""
        return list.__len__(self)

    def last(self) -> BaseMessage:
        """Return the last message; of an empty chain, one with an empty role and no content."""
        return self[-1] if self else ChatMessage(role="", content="")

    def last_content(self) -> str:
        """Return the text of the last message; of an empty chain, nothing."""
        return text_of(self.last())

    def slice(self) -> list[BaseMessage]:
        """Return the messages as a plain list."""
        return list(self)

    def copies(self) -> Messages:
        """Return a chain of copies, which may be changed."""
        return Messages(map(copy_message, self))

    def by_role(self, role: str) -> Messages:
        """Return the messages of a role, in order."""
        return Messages(message for message in self if role_of(message) == role)

    def user_messages(self) -> Messages:
        """Return the user's messages, in order."""
        return self.by_role(ROLE_USER)

    def assistant_messages(self) -> Messages:
        """Return the assistant's messages, in order."""
        return self.by_role(ROLE_ASSISTANT)

    def tool_messages(self) -> Messages:
        """Return the tools' messages, in order."""
        return self.by_role(ROLE_TOOL)

    def system_messages(self) -> Messages:
        """Return the system messages, in order."""
        return self.by_role(ROLE_SYSTEM)

    def validate(self) -> None:
        """Check the chain before it is sent to a model.

        Raises:
            MessageError: what is wrong with the first message that breaks a rule.
        """
        validation.validate(self)

    def validate_user_input(self, allow_system: bool = True) -> None:
        """Check the chain as a caller's input.

        Raises:
            MessageError: what is wrong with the first message that breaks a rule.
        """
        validation.validate_user_input(self, allow_system)

    def estimate_tokens(self) -> int:
        """Estimate the tokens: a quarter of the characters."""
        return tokens.estimate_tokens(self)

    def pretty_print(self) -> str:
        """Return the chain as text; nothing is printed."""
        return pretty_print(self)

    def __str__(self) -> str:
        return self.pretty_print()

    @overload
    def __getitem__(self, index: SupportsIndex) -> BaseMessage: ...
    @overload
    def __getitem__(self, index: builtins.slice) -> Messages: ...
    def __getitem__(self, index: SupportsIndex | builtins.slice) -> BaseMessage | Messages:
        if isinstance(index, slice):
            return Messages(list.__getitem__(self, index))
        return list.__getitem__(self, index)


def new_messages(*messages: BaseMessage) -> Messages:
    """Make a chain, empty or of these messages."""
    return Messages(messages)
