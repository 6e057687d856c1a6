"""The protocol of a channel."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from wick_graph.gateway.messages import InboundMessage, OutboundMessage

Receive = Callable[[InboundMessage], Awaitable[str | None]]
"""Takes a message. When it returns, the message is stored, or was known, or was refused, for the
reason that it returns. Only then may the channel confirm it to its platform. Raises `StorageError`
if it cannot be stored."""


@runtime_checkable
class Channel(Protocol):
    """A way to a platform. The gateway starts it, stops it, and sends through it.

    A channel uses the platform library's client, never its polling loop: that would confirm
    messages that are not stored. It does not remember what it has received or sent.
    """

    name: str
    """The key under `channels:`; the first part of session keys."""
    limit: int
    """Characters of one message; a longer text is split before `send`."""
    caption: int
    """Characters of the text that goes with one file; 0 if texts and files go apart."""
    idempotent: bool
    """Whether the platform recognises the `key` of a message that is sent again."""

    async def start(self, receive: Receive) -> None:
        """Begin to receive; return once messages can be received and sent.

        Raises:
            ConfigError: A setting is refused by the platform: a token, a port.
        """
        ...

    async def stop(self) -> None:
        """Stop to receive, within a second; what is stored stays."""
        ...

    async def send(self, message: OutboundMessage, key: str) -> str:
        """Send a message, and return the platform's id of it; empty if it has none.

        Args:
            message: The message; its text has at most `limit` characters.
            key: Its idempotency key: the same when it is sent again after a crash.

        Raises:
            DeliveryError: It was not sent, or it is unknown whether it was.
        """
        ...

    def healthy(self) -> str:
        """Return what is wrong, as a sentence; empty if nothing is."""
        ...

    async def catch_up(self) -> None:
        """Fetch what came while the channel did not listen, if the platform keeps it."""
        ...


Past = Callable[[str, int], Awaitable[Sequence[tuple[int, OutboundMessage]]]]
"""Returns what was sent to a chat after a number, oldest first, each with its number."""


@runtime_checkable
class PublishingChannel(Channel, Protocol):
    """A channel with readers that fetch what was sent to them."""

    past: Past | None
    """The gateway sets it before the start."""

    def publish(self, chat_id: str) -> None:
        """Let the readers of a chat look for what is new; called when a message was sent."""
        ...


@runtime_checkable
class FetchingChannel(Channel, Protocol):
    """A channel with messages that may carry files.

    It names them in the metadata `attachments`: a list of `{id, kind, name, size, type}`, where
    all but `id` are claims of the sender. The gateway fetches them after it has admitted a message.
    """

    async def fetch(self, attachment: Mapping[str, Any], folder: Path, most: int) -> Path:
        """Download a file into a folder, under a safe name.

        Args:
            attachment: An entry of `attachments`.
            folder: The folder; it is made if it is missing. Its parent is trusted.
            most: Most bytes, whatever size was announced.

        Raises:
            RefusedError: It is too large, or of another type than it says.
            ToolError: It cannot be downloaded or stored.
        """
        ...
