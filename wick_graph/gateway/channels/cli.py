"""The terminal as a channel: messages come by a call, answers go to a function."""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final
from uuid import uuid4

from wick_graph.errors import ConfigError
from wick_graph.gateway.channels.protocol import Receive
from wick_graph.gateway.messages import FALLBACK, InboundMessage, OutboundMessage, thread_of


class CliChannel:
    """A channel inside the process, for `wick chat --session` and the demonstration.

    Args:
        show: Gets each message that is sent; it may be a coroutine function.
        session: The key of the session; by default `cli:local`. Each is a chat of its own.
    """

    name = "cli"
    limit = 1_000_000
    caption = 0
    idempotent = False

    def __init__(
        self, show: Callable[[OutboundMessage], Awaitable[None] | None], *, session: str = ""
    ) -> None:
        self._show, self._session = show, session
        self.chat: Final = "local" if session in ("", FALLBACK) else thread_of(session)
        self._receive: Receive | None = None

    async def start(self, receive: Receive) -> None:
        """Begin to receive."""
        self._receive = receive

    async def stop(self) -> None:
        """Stop to receive."""
        self._receive = None

    async def ask(self, text: str, **metadata: Any) -> InboundMessage:
        """Receive a message, and return it once it is stored.

        Raises:
            ConfigError: The channel is not started.
            StorageError: The message cannot be stored.
        """
        if self._receive is None:
            raise ConfigError("the channel cli is not started; start the gateway before you ask")
        message = InboundMessage(
            channel=self.name,
            sender_id=self.name,
            chat_id=self.chat,
            content=text,
            session_key=self._session,
            metadata={"native_id": uuid4().hex, "sent": time.time(), "group": False, **metadata},
        )
        await self._receive(message)
        return message

    async def send(self, message: OutboundMessage, key: str) -> str:
        """Show a message."""
        shown = self._show(message)
        if inspect.isawaitable(shown):
            await shown
        return ""

    def healthy(self) -> str:
        """Return what is wrong: nothing, or that it is not started."""
        return "" if self._receive else "the channel cli is not started"

    async def catch_up(self) -> None:
        """Fetch nothing: a terminal keeps no messages."""
