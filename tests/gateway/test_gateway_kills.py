"""SIGKILL at random instants: no message is lost, no tool runs twice, chats keep their order.

`WICK_GATEWAY_KILLS` sets the number of kills (6 here). Real clients of the channels `telegram` and
`http` talk to platforms on loopback, three chats each. By night the store is PostgreSQL, too, and
two processes share it: `WICK_GATEWAY_CHATS` sets the number of chats (200 here).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import sys
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from aiohttp import web
from standardwebhooks import Webhook

from tests.gateway.fake_telegram import TOKEN, FakeTelegram, fake_telegram
from tests.gateway.test_http import SECRET
from tests.source import ROOT

KILLS = int(os.environ.get("WICK_GATEWAY_KILLS", "6"))

CHATS = int(os.environ.get("WICK_GATEWAY_CHATS", "200"))

SEED = 20_261_123

PATIENCE = 300.0

COUNTING = '''
import os
from datetime import UTC, datetime
from pathlib import Path

from wick_graph import tool

LOG = Path(__file__).with_name("calls.log")


@tool
def count(text: str) -> str:
    """Write a line that stays."""
    with LOG.open("a") as file:
        file.write(text + "\\n")
        file.flush()
        os.fsync(file.fileno())
    return text
'''


class Callback:
    """The other end of the channel `http`: takes answers, and knows each by its webhook-id."""

    def __init__(self) -> None:
        self.url = ""
        self.taken: list[tuple[str, dict[str, Any]]] = []
        self.came = asyncio.Event()

    async def handle(self, request: web.Request) -> web.Response:
        self.taken.append((request.headers["webhook-id"], await request.json()))
        self.came.set()
        return web.Response(status=204)


@contextlib.asynccontextmanager
async def callback() -> AsyncIterator[Callback]:
    made, app = Callback(), web.Application()
    app.router.add_post("/answers", made.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.01)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield made
    finally:
        await runner.cleanup()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def web_channel(people: list[str], port: int, hook: Callback) -> dict[str, Any]:
    return {
        **{"type": "http", "owner": [*people], "untrusted": False, "secret": SECRET},
        "options": {"port": port, "callback": f"{hook.url}/answers", "allow": [hook.url]},
    }


def configuration(store: str, **channels: Any) -> dict[str, Any]:
    agent = {"model": "scripted:demo", "tools": ["counting:count"]}
    return {"store": store, "channels": channels, "agents": {"default": agent}}


class World:
    """Platforms, what they were told, and a gateway that is killed."""

    def __init__(self, folder: Path, store: str, telegram: FakeTelegram, hook: Callback) -> None:
        self.folder, self.telegram, self.hook = folder, telegram, hook
        self.port = free_port()
        self.said: dict[str, list[str]] = defaultdict(list)
        """By chat: the native ids of its messages, in order."""
        self.unposted: dict[str, list[tuple[str, bytes]]] = defaultdict(list)
        self.client = httpx.AsyncClient(timeout=5)
        self._write(store)

    def _write(self, store: str) -> None:
        (self.folder / "counting.py").write_text(COUNTING, encoding="utf-8")
        people = ["7", "8", "9"]
        telegram = {
            **{"owner": people, "token": TOKEN},
            "options": {"base_url": self.telegram.url},
        }
        hook = web_channel(people, self.port, self.hook)
        file = configuration(store, telegram=telegram, hook=hook)
        (self.folder / "agents.yaml").write_text(yaml.safe_dump(file), encoding="utf-8")

    def say(self) -> None:
        """Let a message come in each of the six chats."""
        for chat in (7, 8, 9):
            number = len(self.said[f"telegram:{chat}"])
            update = self.telegram.say(f'count(text="t{chat}-{number}")', sender=chat, chat=chat)
            (posted,) = [one for one in self.telegram.waiting if one["update_id"] == update]
            self.said[f"telegram:{chat}"].append(str(posted["message"]["message_id"]))
            number = len(self.said[f"hook:{chat}"])
            text = f'count(text="h{chat}-{number}")'
            body = {"chat_id": str(chat), "sender_id": str(chat), "content": text, "group": False}
            native = f"h{chat}-{number}"
            self.unposted[f"hook:{chat}"].append((native, json.dumps(body).encode()))
            self.said[f"hook:{chat}"].append(native)

    async def post(self) -> None:
        """Post what is not confirmed, in order, until it is: as a sender does."""
        url = f"http://127.0.0.1:{self.port}/messages"
        while True:
            for waiting in self.unposted.values():
                with contextlib.suppress(httpx.HTTPError, IndexError):
                    native, body = waiting[0]
                    headers = signed(native, body)
                    answer = await self.client.post(url, content=body, headers=headers)
                    if answer.status_code == 202:
                        waiting.pop(0)
            await asyncio.sleep(0.005)

    def events(self) -> int:
        """How much has happened, as far as it can be seen from outside."""
        log = self.folder / "calls.log"
        calls = log.stat().st_size if log.exists() else 0
        open_posts = sum(map(len, self.unposted.values()))
        return len(self.telegram.calls) + len(self.hook.taken) + calls - open_posts

    def replies(self) -> dict[str, list[tuple[str, str]]]:
        """By chat: the native id that each reply answers, and the key of the reply."""
        made: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for number, (method, fields) in enumerate(self.telegram.calls):
            if method == "sendMessage":
                to = fields["reply_parameters"]
                to = to if isinstance(to, dict) else json.loads(to)
                made[f"telegram:{fields['chat_id']}"].append((str(to["message_id"]), str(number)))
        for key, body in self.hook.taken:
            made[f"hook:{body['chat_id']}"].append((body["reply_to"], key))
        return made

    def waiting(self) -> int:
        """How many messages have no reply."""
        replies = self.replies().values()
        known = {to for found in replies for to, _ in found}
        return sum(native not in known for natives in self.said.values() for native in natives)

    def is_answered(self) -> bool:
        replies = self.replies()
        return all(
            {to for to, _ in replies[chat]} == set(natives) for chat, natives in self.said.items()
        )


@contextlib.asynccontextmanager
async def forks(file: Path) -> AsyncIterator[Any]:
    command = [sys.executable, "-m", "tests.gateway.zygote", str(file)]
    pipe = asyncio.subprocess.PIPE
    with file.with_suffix(".log").open("wb") as log:
        made = await asyncio.create_subprocess_exec(
            *command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=log
        )

        async def start() -> int:
            assert made.stdin is not None
            assert made.stdout is not None
            made.stdin.write(b"go\n")
            return int(await made.stdout.readline())

        async def end(pid: int, number: signal.Signals) -> None:
            assert made.stdout is not None
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
            assert await asyncio.wait_for(made.stdout.readline(), PATIENCE) == b"\n"

        try:
            yield start, end
        finally:
            made.kill()
            await made.wait()


def signed(native: str, body: bytes) -> dict[str, str]:
    """Sign as the specification's library does."""
    now = datetime.now(UTC)
    return {
        "webhook-id": native,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": Webhook(SECRET).sign(native, now, body.decode()),
    }


def first_of(ids: list[str]) -> list[str]:
    return list(dict.fromkeys(ids))


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> str:
    if request.param == "sqlite":
        return "sqlite:///gateway.db"
    return str(request.getfixturevalue("postgres_url"))


async def test_killed_at_any_time_it_loses_nothing_and_runs_nothing_twice(
    tmp_path: Path, store: str
) -> None:
    chance, file = random.Random(SEED), tmp_path / "agents.yaml"
    async with fake_telegram() as telegram, callback() as hook, forks(file) as (start, end):
        world = World(tmp_path, store, telegram, hook)
        posting = asyncio.create_task(world.post())
        for _ in range(KILLS):
            if world.waiting() < 60:  # a hundred of one chat would be refused
                world.say()
            pid, before = await start(), world.events()
            wanted = chance.randrange(60)
            async with asyncio.timeout(PATIENCE):
                while world.events() - before < wanted and not world.is_answered():
                    await asyncio.sleep(0.001)
            await asyncio.sleep(chance.random() * 0.02)
            await end(pid, signal.SIGKILL)
        pid = await start()
        async with asyncio.timeout(PATIENCE):
            while not world.is_answered():
                await asyncio.sleep(0.02)
        await end(pid, signal.SIGTERM)
        posting.cancel()
        await world.client.aclose()
    calls = Counter((tmp_path / "calls.log").read_text().split())
    replies = world.replies()
    twice = {text: times for text, times in calls.items() if times > 1}
    assert twice == {}
    for chat, natives in world.said.items():
        assert first_of([to for to, _ in replies[chat]]) == natives, chat
    again = 0
    for chat, found in replies.items():
        keys = defaultdict(set)
        for to, key in found:
            keys[to].add(key)
        if chat.startswith("hook"):
            assert all(len(one) == 1 for one in keys.values()), "a receiver knows the repetition"
        else:
            again += sum(len(one) - 1 for one in keys.values())
    said = sum(map(len, world.said.values()))
    made = [str(fields.get("text")) for _, fields in telegram.calls]
    made += [body["content"] for _, body in hook.taken]
    failed = sum(text.startswith("Error processing") for text in made)
    print(f"{KILLS} kills, {said} messages, {sum(calls.values())} calls, {again} sent twice")
    print(f"{failed} answered with an error: their turn was killed three times at one step")
    assert said - calls.total() <= KILLS, "only a call that a kill hit is not made again"
    assert again <= KILLS, "only where the kill fell between the platform's answer and our commit"


async def test_two_processes_that_are_killed_answer_each_message_once(
    tmp_path: Path, postgres_url: str
) -> None:
    """Each sender posts to either one, and jobs are due in both."""
    chance, hook_of = random.Random(SEED), callback()
    chats = [str(number) for number in range(1, CHATS + 1)]
    async with hook_of as hook, contextlib.AsyncExitStack() as stack:
        (tmp_path / "counting.py").write_text(COUNTING, encoding="utf-8")
        ports, gateways = [free_port(), free_port()], []
        due = [datetime.now(UTC) + timedelta(seconds=5 * n) for n in range(1, 5)]
        for number, port in enumerate(ports):
            file = tmp_path / f"gateway-{number}.yaml"
            made = configuration(postgres_url, hook=web_channel(chats, port, hook))
            made["cron"] = {
                f"job-{n}": {"at": at.isoformat(), "text": f'count(text="job-{n}")', "to": "hook:1"}
                for n, at in enumerate(due)
            }
            file.write_text(yaml.safe_dump(made), encoding="utf-8")
            start, end = await stack.enter_async_context(forks(file))
            gateways.append([start, end, await start()])
        client = await stack.enter_async_context(httpx.AsyncClient(timeout=5))
        talks = asyncio.gather(*(talk(client, ports, chat, 3) for chat in chats))
        kills = 0
        async with asyncio.timeout(10 * PATIENCE):
            while len({key for key, _ in hook.taken}) < 3 * CHATS + len(due):
                await asyncio.sleep(chance.uniform(0.2, 3))
                if kills < KILLS:
                    one = chance.choice(gateways)
                    await one[1](one[2], signal.SIGKILL)
                    one[2], kills = await one[0](), kills + 1
        await talks
        for _, end, pid in gateways:
            await end(pid, signal.SIGTERM)
    calls = Counter((tmp_path / "calls.log").read_text().split())
    print(f"{kills} kills of two processes, {CHATS} chats, {calls.total()} calls")
    wanted = {f"h{chat}-{number}" for chat in chats for number in range(3)}
    wanted |= {f"job-{n}" for n in range(len(due))}
    assert set(calls.values()) == {1}
    assert calls.keys() <= wanted
    # a call that a kill hit between its intent and its first line is not made again
    assert len(wanted - calls.keys()) <= kills
    replies = dict(hook.taken)
    jobs = [body for body in replies.values() if not body.get("reply_to")]
    assert len(jobs) == len(due)
    for chat in chats:
        taken = [body.get("reply_to") for body in replies.values() if body["chat_id"] == chat]
        assert [one for one in taken if one] == [f"h{chat}-{number}" for number in range(3)]


async def talk(client: httpx.AsyncClient, ports: list[int], chat: str, count: int) -> None:
    """Post messages in order to either gateway, each until one confirms it."""
    chance = random.Random(chat)
    for number in range(count):
        native, text = f"h{chat}-{number}", f'count(text="h{chat}-{number}")'
        body = {"chat_id": chat, "sender_id": chat, "content": text, "group": False}
        data, taken = json.dumps(body).encode(), False
        while not taken:
            url = f"http://127.0.0.1:{chance.choice(ports)}/messages"
            with contextlib.suppress(httpx.HTTPError):
                answer = await client.post(url, content=data, headers=signed(native, data))
                taken = answer.status_code == 202
            await asyncio.sleep(0 if taken else 0.1)
