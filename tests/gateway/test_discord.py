"""Discord: the real client of discord.py against its calls, gateway and files on loopback."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import discord
import pytest

from tests.gateway.channel_parts import LONG, Inbox, Sleeps, everything
from tests.gateway.fake_discord import (
    ANN,
    BOT,
    ME,
    ROOM,
    THREAD,
    TOKEN,
    FakeDiscord,
    fake_discord,
    limited,
    person,
    pointed_at,
    refused,
    snowflake,
)
from wick_graph.config.gateway import ChannelConfig
from wick_graph.errors import ConfigError, DeliveryError, RefusedError, StorageError, ToolError
from wick_graph.gateway.channels import connected
from wick_graph.gateway.channels import discord as module
from wick_graph.gateway.channels.discord import SILENT, DiscordChannel
from wick_graph.gateway.channels.protocol import FetchingChannel
from wick_graph.gateway.messages import InboundMessage, OutboundMessage

DM = 5000 + ANN


class Desk:
    """A channel that receives, and what is around it."""

    def __init__(self, fake: FakeDiscord, **given: Any) -> None:
        self.fake, self.inbox, self.sleeps = fake, Inbox(), Sleeps()
        self.channel = channel_with(self.sleeps, **given)

    async def sick(self, wanted: str = "") -> str:
        async with asyncio.timeout(LONG):
            while not (said := self.channel.healthy()) or wanted not in said:
                await asyncio.sleep(0)
        return said

    async def well(self) -> None:
        async with asyncio.timeout(LONG):
            while self.channel.healthy() or not self.fake.sockets:
                await asyncio.sleep(0)

    async def texts(self, count: int) -> list[str]:
        return [(await self.inbox.next()).content for _ in range(count)]

    async def send(
        self, content: str = "hi", chat: str = str(DM), key: str = "k", **more: Any
    ) -> str:
        message = OutboundMessage(channel="discord", chat_id=chat, content=content, **more)
        return await self.channel.send(message, key)

    async def call(self, method: str) -> dict[str, Any]:
        while True:
            name, data = await asyncio.wait_for(self.fake.sent.get(), LONG)
            if name == method:
                return data


def channel_with(sleep: Any = asyncio.sleep, **given: Any) -> DiscordChannel:
    made = {"token": TOKEN, "owner": [str(ANN)], **given}
    return DiscordChannel("discord", ChannelConfig.model_validate(made, strict=False), sleep=sleep)


@asynccontextmanager
async def desk_of(fake: FakeDiscord, **given: Any) -> AsyncIterator[Desk]:
    desk = Desk(fake, **given)
    await desk.channel.start(desk.inbox)
    await desk.well()
    await desk.call(f"GET /channels/{DM}/messages")  # the history is read
    try:
        yield desk
    finally:
        await desk.channel.stop()


@pytest.fixture
async def fake() -> AsyncIterator[FakeDiscord]:
    async with fake_discord() as made:
        yield made


@pytest.fixture
async def desk(fake: FakeDiscord) -> AsyncIterator[Desk]:
    async with desk_of(fake) as made:
        yield made


def test_it_is_a_channel_that_fetches() -> None:
    assert isinstance(channel_with(), FetchingChannel)


# --- Receive.


async def test_a_direct_message_comes(desk: Desk) -> None:
    made = await desk.fake.say("hello")
    got = await desk.inbox.next()
    assert (got.channel, got.sender_id, got.chat_id) == ("discord", "7", str(DM))
    assert (got.content, got.key, got.native_id) == ("hello", f"discord:{DM}", f"{DM}:{made['id']}")
    assert got.metadata["sender_name"] == "Ann"
    assert got.metadata["group"] is False
    assert desk.channel.healthy() == ""


async def test_each_connection_begins_with_the_last_day_of_the_known_chats(
    fake: FakeDiscord,
) -> None:
    fake.keep(fake.message("too old", ago=25 * 3600))
    fake.keep(fake.message("first", ago=200))
    fake.keep(fake.message("second", ago=100))
    fake.keep(fake.message("of allowed", sender=8, ago=90))
    fake.keep(fake.message("of strangers", sender=9, ago=80))
    fake.keep(fake.message("in the room", room=ROOM, ago=70))
    fake.keep(fake.message("mine", author=BOT, ago=60))
    given = {"allow_from": ["8"], "options": {"channels": [ROOM]}}
    async with desk_of(fake, **given) as desk:
        await fake.event("MESSAGE_CREATE", fake.message("live"))
        wanted = ["first", "second", "of allowed", "in the room", "live"]
        assert await desk.texts(5) == wanted  # what comes meanwhile comes after it
    async with desk_of(fake, **given) as desk:
        assert await desk.texts(4) == wanted[:4]


async def test_a_new_session_reads_the_direct_chats_that_were_seen(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def at_once(*args: Any, **more: Any) -> None:
        """The library would wait 5 s before it begins a session anew."""

    monkeypatch.setattr(discord.Client, "before_identify_hook", at_once)
    await desk.fake.say("one", sender=9)
    assert await desk.texts(1) == ["one"]
    desk.fake.keep(desk.fake.message("missed", sender=9))
    for socket in desk.fake.sockets:
        await socket.send_json({"op": 9, "d": False})  # the session cannot be resumed
    assert await desk.texts(2) == ["one", "missed"]


async def test_a_chat_that_cannot_be_read_does_not_hide_the_others(
    fake: FakeDiscord, caplog: pytest.LogCaptureFixture
) -> None:
    fake.answers[f"GET /channels/{ROOM}"] = [refused(403, "Missing Access")]
    fake.answers["POST /users/@me/channels"] = [limited(5)]
    fake.keep(fake.message("missed", ago=5))
    desk = Desk(fake, options={"channels": [ROOM]})
    await desk.channel.start(desk.inbox)
    assert await desk.sleeps.end(lambda s: True) == 5
    assert await desk.texts(1) == ["missed"]
    await fake.say("on")
    assert await desk.texts(1) == ["on"]
    assert "cannot look back: Discord refuses the call: Missing Access" in caplog.text
    await desk.channel.stop()


async def test_in_a_server_only_mentions_count_unless_the_channel_is_named(
    desk: Desk, fake: FakeDiscord
) -> None:
    await fake.say("not for me", room=ROOM)
    await fake.say(f"<@{ME}> /new please", room=ROOM, mentions=[BOT])
    got = await desk.inbox.next()
    assert (got.content, got.chat_id) == ("/new please", str(ROOM))
    assert got.metadata["group"] is True
    await fake.say("hey", room=THREAD, mentions=[BOT])
    got = await desk.inbox.next()
    assert got.key == f"discord:{ROOM}:{THREAD}"
    asked = (await desk.fake.identified.get())["d"]["intents"]
    assert not asked & 1 << 15
    async with desk_of(fake, options={"channels": [str(ROOM)]}) as named:
        await named.fake.say("all", room=THREAD)
        assert (await named.texts(3))[-1] == "all"
        assert (await named.fake.identified.get())["d"]["intents"] & 1 << 15


async def test_a_message_that_cannot_be_stored_is_tried_again_before_the_next(desk: Desk) -> None:
    desk.inbox.failures = [StorageError("the disk is full")] * 2
    await desk.fake.say("one")
    await desk.fake.say("two")
    assert "the disk is full" in await desk.sick()
    assert await desk.sleeps.end(lambda s: True) == 2
    assert await desk.sleeps.end(lambda s: True) == 4
    assert await desk.texts(2) == ["one", "two"]
    await desk.well()


async def test_an_event_that_cannot_be_read_does_not_stop_the_others(
    desk: Desk, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any) -> Any:
        monkeypatch.undo()
        raise KeyError("private words")

    monkeypatch.setattr(module, "_attachments", broken)
    await desk.fake.say("private words")
    await desk.fake.say("good")
    assert await desk.texts(1) == ["good"]
    assert "unreadable: KeyError" in caplog.text
    assert "private words" not in caplog.text


async def test_a_lost_connection_is_said_and_resumed_without_loss(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    await desk.fake.say("one")
    old = desk.fake.sockets[:]
    desk.fake.sockets.clear()
    await desk.fake.say("while away")
    for socket in old:
        await socket.close(code=1001)
    assert await desk.texts(2) == ["one", "while away"]
    await desk.well()
    assert "lost Discord, and connects again" in caplog.text


async def test_a_silent_connection_is_noticed(
    fake: FakeDiscord, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert SILENT <= 90
    monkeypatch.setattr(module, "SILENT", 0.05)
    async with desk_of(fake) as desk:
        fake.hung = True
        assert "lost Discord" in await desk.sick()


async def test_who_does_not_get_through_for_long_begins_anew(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asyncio.wait_for(desk.fake.identified.get(), LONG)
    desk.fake.hung = True
    monkeypatch.setattr(connected, "STALLED", 0.05)
    await desk.fake.drop(1001)
    await desk.sick("does not answer in time")
    monkeypatch.undo()
    desk.fake.hung = False
    assert await desk.sleeps.end(lambda s: True) == 2
    while (await asyncio.wait_for(desk.fake.identified.get(), LONG))["op"] != 2:
        continue  # it had tried to resume
    await desk.well()


@pytest.mark.parametrize(
    ("code", "said"), [(4014, "Message Content Intent"), (4004, "channels.discord.token")]
)
async def test_what_the_gateway_refuses_is_said(desk: Desk, code: int, said: str) -> None:
    await desk.fake.drop(code)
    await desk.sick(said)
    assert await desk.sleeps.end(lambda s: True) == 60


async def test_it_starts_without_a_network_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async with fake_discord() as fake:
        await fake.drop()
        fake.answers["GET /users/@me"] = [refused(503), refused(503)]
        desk = Desk(fake)
        await desk.channel.start(desk.inbox)
        assert "HTTP 503" in desk.channel.healthy()
        await desk.sleeps.end(lambda s: s == 2)
        await desk.well()
        await desk.channel.stop()
        url = fake.url
    with pointed_at(url):
        channel = channel_with(Sleeps())
        await channel.start(Inbox())
        assert "cannot be reached" in channel.healthy()
        await channel.stop()
    assert TOKEN not in caplog.text


async def test_a_wrong_token_is_refused_at_the_start(fake: FakeDiscord) -> None:
    channel = channel_with(token="another-token-that-is-well-formed")
    with pytest.raises(ConfigError, match=r"channels\.discord\.token") as caught:
        await channel.start(Inbox())
    assert "another-token" not in everything(caught.value)
    assert "not started" in channel.healthy()


@pytest.mark.parametrize("token", ["", "short", "has a space in the middle of it", "xy" * 150])
def test_a_token_of_a_wrong_form_is_refused(token: str) -> None:
    with pytest.raises(ConfigError, match=r"channels\.discord\.token"):
        channel_with(token=token)


@pytest.mark.parametrize("channels", [["general"], [0], [-5], ["1:2"]])
def test_only_numbers_are_channels(channels: list[Any]) -> None:
    with pytest.raises(ConfigError, match=r"options\.channels"):
        channel_with(options={"channels": channels})


async def test_it_stops_at_once_while_the_gateway_hangs(fake: FakeDiscord) -> None:
    fake.hung = True
    channel = channel_with(Sleeps())
    await channel.start(Inbox())
    await asyncio.wait_for(fake.identified.get(), LONG)
    await asyncio.wait_for(channel.stop(), LONG)
    assert "not started" in channel.healthy()


# --- What a message says about itself.


async def got_of(desk: Desk, text: str = "x", **more: Any) -> InboundMessage:
    await desk.fake.say(text, **more)
    return await desk.inbox.next()


async def test_messages_say_who_and_what_they_are(desk: Desk) -> None:
    renamed = await got_of(desk, author=person(ANN, global_name="owner", username="owner"))
    assert (renamed.sender_id, renamed.metadata["sender_name"]) == ("7", "owner")
    assert "bot" not in renamed.metadata
    assert (await got_of(desk, author=person(9, bot=True))).metadata["bot"] is True
    assert (await got_of(desk, webhook_id="5")).metadata["bot"] is True
    reference = {"channel_id": str(DM), "message_id": "12", "type": 0}
    answer = await got_of(desk, type=19, message_reference=reference)
    assert answer.metadata["reply_to"] == f"{DM}:12"
    inner = {"message": {**desk.fake.message("of others"), "attachments": [file_of("http://x/y")]}}
    shared = await got_of(desk, "", message_snapshots=[inner], message_reference={
        **reference, "type": 1})  # fmt: skip
    assert shared.metadata["forwarded"] is True
    assert shared.content == "of others"
    assert len(shared.metadata["attachments"]) == 1


async def test_an_edit_has_an_id_of_its_own_and_a_preview_is_none(desk: Desk) -> None:
    made = await desk.fake.say("before")
    native = (await desk.inbox.next()).native_id
    await desk.fake.event("MESSAGE_UPDATE", {**made, "embeds": []})  # only a preview
    edit = {**made, "content": "after", "edited_timestamp": "2026-01-02T00:00:00+00:00"}
    await desk.fake.event("MESSAGE_UPDATE", edit)
    got = await desk.inbox.next()
    assert got.metadata["edited"] is True
    assert got.content == "after"
    assert got.native_id != native
    assert got.native_id.startswith(native)


async def test_notices_empty_messages_and_own_ones_bring_nothing(desk: Desk) -> None:
    await desk.fake.say("pinned", type=6)
    await desk.fake.say("")
    await desk.fake.say("mine", author=BOT)
    await desk.fake.say("good")
    assert await desk.texts(1) == ["good"]


async def test_another_process_that_sends_is_said(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    await desk.send("ours", key="a")
    ours = (await desk.call(f"POST /channels/{DM}/messages"))["nonce"]
    await desk.fake.say("ours", author=BOT, nonce=ours)
    await desk.fake.say("on")
    await desk.inbox.next()
    assert "another process" not in caplog.text
    await desk.fake.say("theirs", author=BOT, nonce="wick-0123")
    await desk.fake.say("on")
    await desk.inbox.next()
    assert "another process sends through the bot of the channel discord; stop one" in caplog.text


# --- Buttons.


async def test_a_press_is_confirmed_only_after_it_is_stored(desk: Desk) -> None:
    stored = asyncio.Event()

    async def hold() -> None:
        assert not [name for name, _ in desk.fake.calls if "callback" in name]
        stored.set()

    desk.inbox.before = hold
    await desk.fake.press("ok:1", sender=666, room=ROOM)
    got = await desk.inbox.next()
    assert stored.is_set()
    assert (got.sender_id, got.chat_id, got.metadata["button"]) == ("666", str(ROOM), "ok:1")
    assert got.metadata["group"] is True
    assert got.native_id.endswith(":77")
    assert await desk.call("POST /interactions/77/press-token/callback") == {"type": 6}
    desk.inbox.before = None
    await desk.fake.press("ok:2")
    assert (await desk.inbox.next()).metadata["group"] is False


async def test_a_confirmation_that_is_too_late_and_other_interactions_harm_nothing(
    desk: Desk,
) -> None:
    late = refused(404, "Unknown interaction")
    desk.fake.answers["POST /interactions/77/press-token/callback"] = [late]
    await desk.fake.press("ok:1")
    await desk.inbox.next()
    await desk.fake.press("x", data={"custom_id": "x", "component_type": 3, "values": []})
    await desk.fake.say("on")
    assert await desk.texts(1) == ["on"]


# --- Send.


async def test_a_text_is_sent_once_per_key_without_mentions_or_previews(desk: Desk) -> None:
    text = "@everyone <@&5> <@7> https://x.org"
    buttons = (("Yes", "y:1"), ("", "n:1"))
    first = await desk.send(text, reply_to=f"{DM}:55", buttons=buttons, key="a")
    data = await desk.call(f"POST /channels/{DM}/messages")
    assert data["content"] == text
    assert data["allowed_mentions"]["parse"] == []
    assert data["flags"] == 4
    assert data["enforce_nonce"] is True
    assert data["message_reference"]["message_id"] == 55
    assert data["message_reference"]["fail_if_not_exists"] is False
    row = data["components"][0]["components"]
    assert [(one["label"], one["custom_id"]) for one in row] == [("Yes", "y:1"), ("n:1", "n:1")]
    assert await desk.send(text, key="a") == first  # a crash came between
    assert await desk.send(text, key="b") != first
    assert len(desk.fake.known) == 2
    assert desk.channel.idempotent


async def test_a_thread_is_written_to_and_answers_of_another_chat_are_not_referred_to(
    desk: Desk,
) -> None:
    native = await desk.send(chat=f"{ROOM}:{THREAD}", reply_to=f"{ROOM}:55")
    assert native.startswith(f"{THREAD}:")
    assert "message_reference" not in await desk.call(f"POST /channels/{THREAD}/messages")


async def test_it_sends_after_the_stop(fake: FakeDiscord) -> None:
    async with desk_of(fake) as desk:
        pass
    assert await desk.send("the last answer")


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [
        (limited(31.5), 31.5),
        (limited(4), 4),
        (refused(429, "no", **{"Retry-After": "17"}), 17),
        (refused(429, "no", **{"Retry-After": "soon"}), 60),
    ],
)
async def test_the_wish_to_wait_is_handed_on(desk: Desk, answer: Any, seconds: float) -> None:
    desk.fake.answers[f"POST /channels/{DM}/messages"] = [answer]
    with pytest.raises(DeliveryError) as caught:
        await desk.send()
    assert (caught.value.retry_after, caught.value.permanent) == (seconds, False)


@pytest.mark.parametrize(
    ("status", "permanent"), [(400, True), (403, True), (404, True), (503, False), (401, False)]
)
async def test_refusals_say_whether_a_later_try_can_succeed(
    desk: Desk, status: int, permanent: bool
) -> None:
    desk.fake.answers[f"POST /channels/{DM}/messages"] = [refused(status, f"why\n{TOKEN}")]
    with pytest.raises(DeliveryError) as caught:
        await desk.send()
    assert caught.value.permanent is permanent
    assert "\n" not in str(caught.value)
    assert TOKEN not in everything(caught.value)


@pytest.mark.parametrize("chat", ["@ann", "", "7; x", "7:", "７", "1" * 40, "0"])
async def test_only_numbers_are_chats(desk: Desk, chat: str) -> None:
    with pytest.raises(DeliveryError, match="is no chat") as caught:
        await desk.send(chat=chat)
    assert caught.value.permanent


@pytest.mark.parametrize("buttons", [[("a", "x" * 101)], [("a", "")], [("a", "x")] * 26])
async def test_buttons_that_discord_would_refuse_are_refused(desk: Desk, buttons: Any) -> None:
    with pytest.raises(DeliveryError, match="25 buttons") as caught:
        await desk.send(buttons=tuple(buttons))
    assert caught.value.permanent


async def test_files_are_sent_by_their_safe_names_with_a_text(desk: Desk, tmp_path: Path) -> None:
    odd = tmp_path / 'a"\r\nX-Evil: 1.pdf'
    odd.write_bytes(b"%PDF")
    await desk.send("see", media=(str(odd),))
    assert (await desk.call(f"POST /channels/{DM}/messages"))["content"] == "see"
    assert desk.fake.uploads == [("a_X-Evil_ 1.pdf", b"%PDF")]
    with pytest.raises(DeliveryError, match=r"gone\.pdf is missing"):
        await desk.send("", media=(str(tmp_path / "gone.pdf"),))
    with pytest.raises(DeliveryError, match="blank"):
        await desk.send(" \n")


# --- Fetch.


def file_of(url: str, **more: Any) -> dict[str, Any]:
    return {"id": "33", "filename": "../x.png", "size": 8, "url": url, "proxy_url": url,
            "content_type": "image/png", **more}  # fmt: skip


PNG = b"\x89PNG\r\n\x1a\n"


async def attached(desk: Desk, url: str, **more: Any) -> dict[str, Any]:
    await desk.fake.say("see", attachments=[file_of(url, **more)])
    found: dict[str, Any] = (await desk.inbox.next()).metadata["attachments"][0]
    return found


async def test_a_file_is_named_safely_and_fetched_at_its_current_address(
    desk: Desk, tmp_path: Path
) -> None:
    desk.fake.files["a"] = PNG
    given = await attached(desk, "https://cdn.discordapp.com/ended")
    assert (given["name"], given["type"]) == ("x.png", "image/png")
    desk.fake.messages[DM][-1]["attachments"] = [file_of(f"{desk.fake.url}/files/a")]
    path = await desk.channel.fetch(given, tmp_path / "inbox", 100)
    assert path.read_bytes() == PNG
    sent = next(data for name, data in desk.fake.calls if name == "file")
    assert "Authorization" not in sent


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example/x", "http://cdn.discordapp.com/x", "file:///etc/passwd",
        "https://cdn.discordapp.com.evil.example/x", "https://cdn.discordapp.com@evil.example/",
        "http://169.254.169.254/x", "http://127.0.0.1:1/x", "",
    ],
)  # fmt: skip
async def test_a_file_elsewhere_is_refused(desk: Desk, tmp_path: Path, url: str) -> None:
    given = await attached(desk, url)
    with pytest.raises(RefusedError, match=r"x\.png is on no host"):
        await desk.channel.fetch(given, tmp_path / "inbox", 100)


async def test_files_that_lie_or_are_gone_are_refused(desk: Desk, tmp_path: Path) -> None:
    inbox, here = tmp_path / "inbox", f"{desk.fake.url}/files/"
    desk.fake.files |= {"a": b"<html>", "big": PNG + b"x" * 9999, "other": PNG}
    with pytest.raises(RefusedError, match="image/png"):
        await desk.channel.fetch(await attached(desk, here + "a"), inbox, 100)
    with pytest.raises(RefusedError, match="more than 100 bytes"):
        await desk.channel.fetch(await attached(desk, here + "big"), inbox, 100)
    with pytest.raises(RefusedError, match="more than 100 bytes"):
        await desk.channel.fetch(await attached(desk, here + "a", size=101), inbox, 100)
    with pytest.raises(ToolError, match="HTTP 302"):
        await desk.channel.fetch(await attached(desk, here + "moved"), inbox, 100)
    with pytest.raises(ToolError, match="HTTP 404"):
        await desk.channel.fetch(await attached(desk, here + "gone"), inbox, 100)
    given = await attached(desk, here + "other")
    desk.fake.messages[DM][-1]["attachments"] = []
    with pytest.raises(ToolError, match="was removed"):
        await desk.channel.fetch(given, inbox, 100)
    desk.fake.answers[f"GET /channels/{DM}/messages/{given['id'].split(':')[1]}"] = [refused(404)]
    with pytest.raises(ToolError, match="cannot be downloaded"):
        await desk.channel.fetch(given, inbox, 100)
    with pytest.raises(ToolError, match="no file"):
        await desk.channel.fetch({**given, "id": "../x"}, inbox, 100)
    assert not inbox.exists() or [*inbox.iterdir()] == []


# --- The token.


async def test_the_token_is_in_no_error_log_or_repr(
    fake: FakeDiscord, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    asyncio.get_running_loop().set_debug(True)
    method = f"POST /channels/{DM}/messages"
    async with desk_of(fake) as desk:
        fake.answers[method] = [refused(400, TOKEN), refused(503, TOKEN), refused(401, TOKEN)]
        errors = []
        for _ in range(3):
            with pytest.raises(DeliveryError) as caught:
                await desk.send()
            errors.append(caught.value)
        await fake.drop(4004)
        told = await desk.sick("token") + repr(desk.channel) + repr(desk.channel._client)
    for text in (caplog.text, told, *map(everything, errors)):
        assert TOKEN not in text


def test_ids_of_the_fake_are_recent() -> None:
    assert snowflake(100) < snowflake()
