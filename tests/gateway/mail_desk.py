"""A mail channel at an IMAP server and aiosmtpd on loopback, with its fixtures."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from email.message import EmailMessage
from typing import Any

import pytest

from tests.gateway.fake_mail import (
    PASSWORD,
    USER,
    FakeImap,
    FakeSmtp,
    fake_imap,
    fake_smtp,
)
from wick_graph.config.gateway import ChannelConfig
from wick_graph.gateway.channels.email import EmailChannel
from wick_graph.gateway.messages import InboundMessage, OutboundMessage

LONG = 60.0
"""Seconds that a slow machine may need; no test waits for them."""

ANN = "ann@example.com"

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 40

NO_TLS = ssl.create_default_context()
"""For servers without TLS: to read all the system's certificates takes time."""


def short(value: object) -> str:
    """Name a case of a test."""
    return repr(value)[:30]


class Sleeps:
    """Time that passes only if the test says so."""

    def __init__(self) -> None:
        self.began: asyncio.Queue[tuple[float, asyncio.Event]] = asyncio.Queue()

    async def __call__(self, seconds: float) -> None:
        over = asyncio.Event()
        self.began.put_nowait((seconds, over))
        await over.wait()

    async def end(self) -> float:
        """Wait until something sleeps, and end it."""
        seconds, over = await asyncio.wait_for(self.began.get(), LONG)
        over.set()
        return seconds

    async def look(self) -> float:
        """Wait until something sleeps, and let it."""
        seconds, over = await asyncio.wait_for(self.began.get(), LONG)
        self.began.put_nowait((seconds, over))
        return seconds


class Desk:
    """A channel, and what is around it."""

    def __init__(self, imap: FakeImap, smtp: FakeSmtp) -> None:
        self.imap, self.smtp, self.sleeps = imap, smtp, Sleeps()
        self.channel = channel_at(imap, smtp, self.sleeps)
        self.got: list[InboundMessage] = []
        self.failures: list[Exception] = []
        self.before: Callable[[InboundMessage], Awaitable[None]] | None = None

    async def receive(self, message: InboundMessage) -> None:
        if self.before is not None:
            await self.before(message)
        if self.failures:
            raise self.failures.pop(0)
        self.got.append(message)

    async def looked(self) -> float:
        """Wait for the end of the look that goes on, and begin the next one."""
        return await self.sleeps.end()

    async def read(self, mail: EmailMessage | bytes, **more: Any) -> InboundMessage:
        """Let a mail come; return what becomes of it."""
        await self.looked()
        self.imap.put(mail, **more)
        await self.sleeps.look()
        return self.got[-1]

    async def send(self, content: str = "hi", chat: str = ANN, **more: Any) -> str:
        message = OutboundMessage(channel="email", chat_id=chat, content=content, **more)
        return await self.channel.send(message, "key")


def given(imap: FakeImap | None = None, smtp: FakeSmtp | None = None, **more: Any) -> ChannelConfig:
    options = {
        "imap": f"imap://127.0.0.1:{imap.port if imap else 1}",
        "smtp": f"smtp://127.0.0.1:{smtp.port if smtp else 1}",
        "user": USER,
        **more.pop("options", {}),
    }
    whole = {"secret": PASSWORD, "allow_from": [ANN], "options": options, **more}
    return ChannelConfig.model_validate(whole, strict=False)


def channel_at(imap: FakeImap, smtp: FakeSmtp, sleep: Any = asyncio.sleep) -> EmailChannel:
    return EmailChannel("email", given(imap, smtp), sleep=sleep, certificates=NO_TLS)


def mail_of(text: str | None = "hello", sender: str = f"Ann Lee <{ANN}>", **more: str) -> Any:
    """A mail; fields have `_` for `-`."""
    made = EmailMessage()
    fields = {"To": USER, "Subject": "Question", "Message-ID": "<1@example.com>"}
    fields |= {"Date": "Tue, 14 Nov 2023 22:13:20 +0000", "From": sender}
    fields |= {name.replace("_", "-"): value for name, value in more.items()}
    for name, value in fields.items():
        made[name] = value
    if text is not None:
        made.set_content(text)
    return made


def raw_of(head: str, body: str = "hello") -> bytes:
    return f"{head}\r\n\r\n{body}\r\n".encode("utf-8", "surrogateescape")


@asynccontextmanager
async def desk_of(imap: FakeImap, smtp: FakeSmtp) -> AsyncIterator[Desk]:
    desk = Desk(imap, smtp)
    await desk.channel.start(desk.receive)
    try:
        yield desk
    finally:
        await desk.channel.stop()


@pytest.fixture
async def imap() -> AsyncIterator[FakeImap]:
    async with fake_imap() as made:
        yield made


@pytest.fixture
async def smtp() -> AsyncIterator[FakeSmtp]:
    async with fake_smtp() as made:
        yield made


@pytest.fixture
async def desk(imap: FakeImap, smtp: FakeSmtp) -> AsyncIterator[Desk]:
    async with desk_of(imap, smtp) as made:
        yield made
