"""The chain: a list of messages that can be built, filtered, checked and shown."""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from typing import SupportsIndex, overload

from langchain_core.messages import BaseMessage, ChatMessage

from wick_graph.messages import build, check, estimate, show
from wick_graph.messages.build import AnyCall
from wick_graph.messages.content import Content, text_of
from wick_graph.messages.copies import copy_message
from wick_graph.messages.roles import (
    ROLE_ASSISTANT,
    ROLE_SYSTEM,
    ROLE_TOOL,
    ROLE_USER,
    role_of,
)


class Messages(list[BaseMessage]):
    """A list of messages with methods.

    `system`, `human`, `ai`, `tool`, `add` and `concat` return a fresh chain and leave this one
    as it is, so that two chains made from one base never share; so do the filters and slices.
    The messages themselves are shared: `copies` gives a chain to change.
    """

    def system(self, content: Content) -> Messages:
        """Return this chain and a system message."""
        return self.add(build.system(content))

    def human(self, content: Content) -> Messages:
        """Return this chain and a user message."""
        return self.add(build.human(content))

    def ai(self, content: Content = "", *tool_calls: AnyCall) -> Messages:
        """Return this chain and an assistant message with the calls that it asks for."""
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
        check.validate(self)

    def validate_user_input(self, allow_system: bool = True) -> None:
        """Check the chain as something that a caller sent.

        Raises:
            MessageError: what is wrong with the first message that breaks a rule.
        """
        check.validate_user_input(self, allow_system)

    def estimate_tokens(self) -> int:
        """Estimate the tokens: a quarter of the characters."""
        return estimate.estimate_tokens(self)

    def pretty_print(self) -> str:
        """Return the chain as text; nothing is printed."""
        return show.pretty_print(self)

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
