"""A gateway on a real file behind a channel of the test's own, with a model that tests script."""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from zlib import crc32

import yaml

from wick_graph.config import load_config
from wick_graph.errors import DeliveryError
from wick_graph.gateway.channels.files import store
from wick_graph.gateway.channels.protocol import Receive
from wick_graph.gateway.gateway import Gateway
from wick_graph.gateway.messages import InboundMessage, OutboundMessage
from wick_graph.store.mailbox import Mailbox

PATIENCE = 240.0
"""Seconds after which a test gives up; no verdict depends on it."""

OWNER = "1"

FRIEND = "2"


class Post:
    """A channel of another package: tests bring its messages and read what it sends.

    It stands for a platform, as an entry point would; the built-in ones have tests of their own.
    """

    limit = 4096
    caption = 0
    idempotent = False
    ids = itertools.count(1)
    """Of all messages of the platform."""

    def __init__(self, name: str = "post") -> None:
        self.name = name
        self.sent: asyncio.Queue[OutboundMessage] = asyncio.Queue()
        self.keys: list[str] = []
        self.faults: list[Exception] = []
        """Raised by the next tries to send."""
        self.hung: set[str] = set()
        """Chats to which sending never ends."""
        self.files: dict[str, bytes | Exception] = {}
        self.fetched: list[str] = []
        self._receive: Receive | None = None

    async def start(self, receive: Receive) -> None:
        self._receive = receive

    async def stop(self) -> None:
        self._receive = None

    def healthy(self) -> str:
        return ""

    async def catch_up(self) -> None:
        return None

    async def say(self, text: str, sender: str = OWNER, chat: str = "", **about: Any) -> str:
        """Let a message come; return its id when it is taken."""
        native = str(about.pop("native_id", next(self.ids)))
        message = InboundMessage(
            channel=self.name,
            sender_id=sender,
            chat_id=chat or sender,
            content=text,
            metadata={"native_id": native, "group": False, **about},
        )
        assert self._receive is not None
        await self._receive(message)
        return native

    async def send(self, message: OutboundMessage, key: str) -> str:
        if message.chat_id in self.hung:
            await asyncio.Event().wait()
        if self.faults:
            raise self.faults.pop(0)
        self.keys.append(key)
        self.sent.put_nowait(message)
        return f"sent-{len(self.keys)}"

    async def got(self) -> OutboundMessage:
        """Wait for the next message that is sent."""
        return await asyncio.wait_for(self.sent.get(), PATIENCE)

    async def text(self) -> str:
        return (await self.got()).content

    async def fetch(self, attachment: Mapping[str, Any], folder: Path, most: int) -> Path:
        self.fetched.append(str(attachment["id"]))
        found = self.files[str(attachment["id"])]
        if isinstance(found, Exception):
            raise found
        return store(found, attachment, folder)


NAP = """
import asyncio
from pathlib import Path

from wick_graph import tool

HERE = Path(__file__).parent


@tool(replay="safe")
async def nap() -> str:
    \"\"\"Sleep until the file `awake` is there.\"\"\"
    (HERE / "napping").touch()
    while not (HERE / "awake").exists():
        await asyncio.sleep(0.01)
    return "awake"
"""


def write(folder: Path, *, script: list[Any] | None = None, nap: bool = False, **more: Any) -> Path:
    """Write agents.yaml; without a script the demo model answers.

    With `nap` the agent has a tool that runs until the test says.
    """
    model: Any = "scripted:demo"
    if nap:
        name = f"naps_{crc32(str(folder).encode())}"  # a process knows one module of a name
        (folder / f"{name}.py").write_text(NAP, encoding="utf-8")
        more = {"agent": {"tools": ["calculate", f"{name}:nap"]}, **more}
    if script is not None:
        summary = {"name": "s", "when": {"purpose": "summarize"}, "steps": ["They talked."]}
        steps = {"cursor": "fifo", "steps": script, "lanes": [summary]}
        (folder / "script.yaml").write_text(yaml.safe_dump(steps), encoding="utf-8")
        model = "scripted:script.yaml"
    made: dict[str, Any] = {
        "store": "sqlite:///gateway.db",
        "gateway": {"drain": "1s"},
        "channels": {"post": {"type": "post", "owner": [OWNER], "allow_from": [FRIEND]}},
        "agents": {"default": {"model": model, "tools": ["calculate"]}},
    }
    for key, value in more.items():
        if key == "agent":
            made["agents"]["default"].update(value)
        elif isinstance(made.get(key), dict) and isinstance(value, dict):
            made[key] = {**made[key], **value}
        else:
            made[key] = value
    if "post" in (more.get("channels") or {}):
        made["channels"]["post"] = {
            **{"type": "post", "owner": [OWNER], "allow_from": [FRIEND]},
            **more["channels"]["post"],
        }
    path = folder / "agents.yaml"
    path.write_text(yaml.safe_dump(made), encoding="utf-8")
    return path


class Office:
    """A gateway that runs."""

    def __init__(self, gateway: Gateway, post: Post) -> None:
        self.gateway, self.post = gateway, post
        self.box = gateway.mailbox

    async def ask(self, text: str, sender: str = OWNER, **about: Any) -> str:
        """Let a message come, and wait for the next one that is sent."""
        await self.post.say(text, sender, **about)
        return await self.post.text()

    async def napping(self) -> None:
        """Wait until the tool `nap` runs."""
        file = self.gateway.workspace.parent / "napping"
        async with asyncio.timeout(PATIENCE):
            while not await asyncio.to_thread(file.exists):
                await asyncio.sleep(0.01)

    def hold(self) -> asyncio.Event:
        """Let turns end only when the returned event is set."""
        held, real = asyncio.Event(), self.box.settle

        async def run(work: Any, *args: Any, **more: Any) -> Any:
            if work == real:
                await asyncio.wait_for(held.wait(), PATIENCE)
            return await Mailbox.run(self.box, work, *args, **more)

        self.box.run = run  # type: ignore[method-assign]  # turns end when the test says
        return held

    async def settled(self) -> None:
        """Wait until nothing is open."""
        async with asyncio.timeout(PATIENCE):
            while any(states.get("open") for states in self.box.counts().values()):
                await asyncio.sleep(0.01)


@asynccontextmanager
async def office(
    folder: Path, post: Post | None = None, *, path: Path | None = None, **more: Any
) -> AsyncIterator[Office]:
    """Run a gateway on the folder's agents.yaml."""
    known = {"channels", "model", "alone", "clock", "wait"}
    options = {key: value for key, value in more.items() if key in known and key != "channels"}
    config = {key: value for key, value in more.items() if key not in options}
    file = load_config(path or write(folder, **config))
    post = post or Post()
    gateway = Gateway(file, channels={"post": post}, **options)
    async with gateway.running():
        yield Office(gateway, post)


def by_chat(rows: list[Any]) -> dict[str, list[str]]:
    """The texts of an outbox by chat, in order."""
    made: dict[str, list[str]] = defaultdict(list)
    for row in reversed(rows):
        made[row.chat].append(row.message["content"])
    return made


__all__ = ["DeliveryError"]
