"""A whole gateway behind Discord and Slack on loopback."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.gateway import fake_discord as discord
from tests.gateway import fake_slack as slack
from tests.gateway.office import PATIENCE, Office, Post, write
from wick_graph.config import load_config
from wick_graph.errors import StorageError
from wick_graph.gateway.channels.registry import make_channel
from wick_graph.gateway.gateway import Gateway

DM = 5000 + discord.ANN


def gateway_of(folder: Path, **channels: Any) -> Gateway:
    file = load_config(write(folder, channels=channels))
    made = {name: make_channel(name, file.channels[name]) for name in channels}
    return Gateway(file, channels=made)


def by_discord(folder: Path) -> Gateway:
    return gateway_of(folder, discord={"token": discord.TOKEN, "owner": [str(discord.ANN)]})


async def sent(fake: Any, method: str) -> dict[str, Any]:
    while True:
        name, data = await asyncio.wait_for(fake.sent.get(), PATIENCE)
        if name == method:
            return dict(data)


async def test_what_came_while_it_was_down_is_answered_once(tmp_path: Path) -> None:
    async with discord.fake_discord() as fake:
        asked = fake.keep(fake.message("what is 21*2?", ago=60))
        for _ in range(2):  # the second time, it is known
            gateway = by_discord(tmp_path)
            async with gateway.running():
                await sent(fake, f"GET /channels/{DM}/messages")
                await fake.event("MESSAGE_CREATE", fake.message("what is 1+1?"))
                answers = []
                while "1+1 = 2." not in answers:
                    data = await sent(fake, f"POST /channels/{DM}/messages")
                    answers.append(data["content"])
                await Office(gateway, Post()).settled()
        made = [one["content"] for one in fake.known.values()]
        assert made == ["21*2 = 42.", "1+1 = 2.", "1+1 = 2."]
        first = next(data for name, data in fake.calls if "nonce" in data)
        assert first["message_reference"]["message_id"] == int(asked["id"])


async def test_an_answer_that_discord_took_before_a_crash_is_not_sent_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with discord.fake_discord() as fake:
        gateway = by_discord(tmp_path)
        taken = asyncio.Event()

        def lost(*args: Any, **more: Any) -> Any:
            taken.set()
            raise StorageError("the process dies here")

        gateway.mailbox.sent = lost  # type: ignore[method-assign]  # the commit after acceptance
        async with gateway.running():
            await sent(fake, f"GET /channels/{DM}/messages")
            await fake.say("what is 21*2?")
            await asyncio.wait_for(taken.wait(), PATIENCE)
        gateway = by_discord(tmp_path)
        async with gateway.running():
            await Office(gateway, Post()).settled()
        posts = [data for name, data in fake.calls if name == f"POST /channels/{DM}/messages"]
        assert len(posts) >= 2
        assert len(fake.known) == 1


async def test_slack_is_answered_in_its_thread_and_strangers_get_a_code(tmp_path: Path) -> None:
    async with slack.fake_slack() as fake:
        gateway = gateway_of(
            tmp_path,
            slack={
                "token": slack.TOKEN, "secret": slack.APP_TOKEN, "owner": [slack.ANN],
                "options": {"base_url": f"{fake.url}/api/"},
            },
        )  # fmt: skip
        async with gateway.running():
            await asyncio.wait_for(fake.hellos.get(), PATIENCE)
            text = f"<@{slack.ME}> what is 21*2?"
            await fake.say(text, room=slack.ROOM, thread_ts="4.400000")
            data = await sent(fake, "chat.postMessage")
            assert (data["channel"], data["thread_ts"]) == (slack.ROOM, "4.400000")
            assert data["text"] == "21*2 = 42."
            await fake.say("let me in", user="U0MALLORY", room="D0MALLORY")
            data = await sent(fake, "chat.postMessage")
            assert data["channel"] == "D0MALLORY"
            assert "this code" in data["text"]
            await fake.say("I am a bot", bot_id="B1")
            await fake.say("what is 1+1?")
            assert (await sent(fake, "chat.postMessage"))["text"] == "1+1 = 2."
            await Office(gateway, Post()).settled()
            assert gateway.mailbox.counts()["inbox"] == {"done": 2}
