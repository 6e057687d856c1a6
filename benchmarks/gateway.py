"""Chats through a gateway beside the same turns of the same agent by `ainvoke`.

    python benchmarks/gateway.py [--chats 200] [--messages 10] [--rounds 3]

`bare` is the agent of the file alone; `agent` has the gateway's hooks and tools too; `gateway` has
inbox and outbox besides. At most eight chats are answered at once, in all three.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import yaml

from wick_graph.config import load_config
from wick_graph.gateway.channels.protocol import Receive
from wick_graph.gateway.gateway import Gateway
from wick_graph.gateway.messages import InboundMessage, OutboundMessage
from wick_graph.loading import load

PARALLEL = 8


class Post:
    """A platform in this process."""

    name, limit, caption, idempotent = "post", 4_096, 0, True

    def __init__(self) -> None:
        self.sent = asyncio.Semaphore(0)
        self.receive: Receive

    async def start(self, receive: Receive) -> None:
        self.receive = receive

    async def stop(self) -> None: ...

    def healthy(self) -> str:
        return ""

    async def catch_up(self) -> None: ...

    async def send(self, message: OutboundMessage, key: str) -> str:
        self.sent.release()
        return key


def written(folder: Path, chats: list[str]) -> Path:
    """Write the configuration."""
    path = folder / "agents.yaml"
    file: dict[str, Any] = {
        "store": "sqlite:///gateway.db",
        "gateway": {"parallel": PARALLEL, "limits": {"messages_per_minute": 1_000_000}},
        "channels": {"post": {"type": "post", "owner": chats}},
        "agents": {"default": {"model": "scripted:demo", "tools": ["calculate"]}},
    }
    path.write_text(yaml.safe_dump(file), encoding="utf-8")
    return path


async def talks(chats: list[str], ask: Callable[[str, int], Awaitable[Any]], count: int) -> None:
    """Ask in each chat, one message after the other, in some chats at once."""
    places = asyncio.Semaphore(PARALLEL)

    async def talk(chat: str) -> None:
        async with places:
            for number in range(count):
                await ask(chat, number)

    await asyncio.gather(*map(talk, chats))


def origin_of(chat: str) -> dict[str, Any]:
    """Return where a turn of an owner is held."""
    place = {"channel": "post", "chat_id": chat, "sender_id": chat, "session": f"post:{chat}"}
    return {**place, "role": "owner", "owner": True, "group": False}


async def bare(path: Path, chats: list[str], count: int) -> tuple[float, float]:
    """The agent alone."""
    with load(path) as agents:
        agent = agents["default"]
        await agent.ainvoke("what is 1+1?")
        began = time.perf_counter(), time.process_time()

        async def ask(chat: str, number: int) -> None:
            await agent.ainvoke(f"what is {number}+1?", thread_id=f"post:{chat}")

        await talks(chats, ask, count)
        return since(began)


async def agent(path: Path, chats: list[str], count: int) -> tuple[float, float]:
    """The gateway's agent, without inbox and outbox."""
    gateway = Gateway(load_config(path), channels={"post": Post()})
    async with gateway.running():
        made = await gateway.agents.get("default", origin_of("1"))
        began = time.perf_counter(), time.process_time()

        async def ask(chat: str, number: int) -> None:
            given = {"messages": [("human", f"what is {number}+1?")], "origin": origin_of(chat)}
            await made.ainvoke(given, thread_id=f"post:{chat}", idempotency_key=f"{chat}-{number}")

        await talks(chats, ask, count)
        return since(began)


async def gateway(path: Path, chats: list[str], count: int) -> tuple[float, float]:
    """All messages come at once, as far as the backlog lets them."""
    post = Post()
    async with Gateway(load_config(path), channels={"post": post}).running():
        began = time.perf_counter(), time.process_time()

        async def say(chat: str) -> None:
            for number in range(count):
                about = {"native_id": f"{chat}-{number}", "group": False}
                text = f"what is {number}+1?"
                message = InboundMessage(
                    channel="post", sender_id=chat, chat_id=chat, content=text, metadata=about
                )
                await post.receive(message)

        await asyncio.gather(*map(say, chats))
        for _ in range(len(chats) * count):
            await post.sent.acquire()
        return since(began)


def since(began: tuple[float, float]) -> tuple[float, float]:
    """Return wall and CPU seconds."""
    return time.perf_counter() - began[0], time.process_time() - began[1]


def main() -> None:
    """Print the seconds of each round, and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chats", type=int, default=200)
    parser.add_argument("--messages", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    chats = [str(number) for number in range(1, asked.chats + 1)]
    for _ in range(asked.rounds):
        made = []
        for work in (bare, agent, gateway):
            with tempfile.TemporaryDirectory() as folder:
                path = written(Path(folder), chats)
                made.append(asyncio.run(work(path, chats, asked.messages)))
        (_, alone), (inside, agents), (wall, cpu) = made
        told = " ".join(f"{wall:.2f}/{cpu:.2f}" for wall, cpu in made)
        print(
            f"wall/CPU seconds of bare, agent, gateway: {told}; CPU of gateway ÷ agent "
            f"{cpu / agents:.2f}, agent ÷ bare {agents / alone:.2f}; throughput of gateway ÷ agent "
            f"{inside / wall:.2f}; load {os.getloadavg()[0]:.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
