"""Ids, closed sets of words, lists of messages, a future, a base class; imports nothing of ours."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence
from itertools import count
from operator import attrgetter
from typing import Any, Final, Literal, NewType, TypeVar

ThreadId = NewType("ThreadId", str)
"""A conversation: `th_` and 16 hex digits if the engine makes the id, else the caller's own."""

RunId = NewType("RunId", str)
"""One input and everything that it sets in motion, a UUID."""

CallKey = NewType("CallKey", str)
"""A tool call in the ledger: the model step's task id and the call's index."""

StoppedBecause = Literal[
    "done", "limit", "empty", "guardrail", "interrupted", "cancelled", "failed"
]
"""Why a run came to its end; the one vocabulary for results, events and listings."""

GUARDRAIL: Final = "guardrail"
"""The reason of a run that a guardrail ended; no node works after it."""


class PlainInStore:
    """Base class of our objects that the store keeps as plain data, in any graph."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the plain data, which readers take in place of the object."""
        raise NotImplementedError


Replay = Literal["safe", "never", "key"]
"""Whether a tool call that was in flight at a crash may run again."""

OnBusy = Literal["reject", "queue", "cancel_running"]
"""Concurrency policy of a thread: reject or queue the new run, or cancel the running one."""

Phase = Literal[
    "before_agent", "modify_request", "wrap_model_call", "after_model", "wrap_tool_call"
]
"""The phases of a hook, in the order in which a turn reaches them."""

AGENT_ID_PATTERN: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
"""The ids of agents (matched in full)."""

THREAD_ID_PATTERN: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
"""What a caller may choose as a thread id (matched in full)."""


_id_of: Final = attrgetter("id")


class MessageList(list[Any]):
    """A list of messages with an index of their ids.

    Lists that grew from one another share one index. Each trusts it only if the message at the
    indexed position has that id, so an entry of another branch does no harm.
    """

    __slots__ = ("places",)

    places: dict[str, int]
    """Position of each id, in this list or on another branch."""

    def __init__(self, messages: Iterable[Any] = (), places: dict[str, int] | None = None):
        super().__init__(messages)
        self.places = {} if places is None else places
        if places is None:
            self.reindex()

    def reindex(self) -> None:
        """Give this list an index of its own."""
        self.places = dict(zip(map(_id_of, self), count(), strict=False))

    def find(self, message_id: str) -> int | None:
        """Return the position of a message, or None."""
        at = self.places.get(message_id)
        if at is not None and at < len(self) and self[at].id == message_id:
            return at
        return None

    def push(self, message: Any) -> None:
        """Append a message that is not in the list."""
        at, message_id = len(self), message.id
        if self.places.setdefault(message_id, at) != at:
            self.reindex()  # another branch has this id at another position: use an own index
            self.places[message_id] = at
        self.append(message)

    def push_all(self, messages: Sequence[Any]) -> None:
        """Append messages that are not in the list."""
        own = dict(zip(map(_id_of, messages), count(len(self)), strict=False))
        if len(own) == len(messages) and self.places.keys().isdisjoint(own):
            self.places.update(own)
            self.extend(messages)
        else:
            for message in messages:
                self.push(message)

    def __reduce__(self) -> tuple[type, tuple[list[Any]]]:
        return list, (list(self),)


T = TypeVar("T")


class Firm(asyncio.Future[T]):
    """A future that cannot be cancelled: a task that awaits it is cancelled when it is done.

    A task and a shield around the work do the same, with three more turns of the event loop.
    """

    def cancel(self, msg: Any | None = None) -> bool:
        """Refuse."""
        return False
