"""The names that the engine gives to replies: they stand in the thread, and no model reads them.

A provider may refuse a name that has a space in it, and a prompt must not depend on what an agent
is called.
"""

from __future__ import annotations

from langchain_core.messages import BaseMessage

from wick_graph.messages.copies import changed_copy
from wick_graph.messages.prefix import changed
from wick_graph.messages.stamps import is_named_by_engine


class Unnamed:
    """Take those names out of a growing chain, looking only at what is new each time."""

    def __init__(self) -> None:
        self._seen: list[BaseMessage] = []
        self._out: list[BaseMessage] = []
        self._same = True

    def read(self, messages: list[BaseMessage]) -> list[BaseMessage]:
        """Return the chain without those names: the very list if there are none."""
        del self._seen[len(messages) :], self._out[len(messages) :]
        for index in changed(self._seen, messages):
            message = messages[index]
            bare = without_own_name(message)
            self._same = self._same and bare is message
            self._seen[index : index + 1] = [message]
            self._out[index : index + 1] = [bare]
        return messages if self._same else list(self._out)


def without_own_name(message: BaseMessage) -> BaseMessage:
    """Return a message as a model reads it: a reply without the name of its agent."""
    return changed_copy(message, name=None) if is_named_by_engine(message) else message
