"""Slack: the library's client against its Web API, Socket Mode and files on loopback."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.channel_parts import LONG, Inbox, Sleeps, everything
from tests.gateway.fake_slack import (
    ANN,
    APP_TOKEN,
    DIRECT,
    ME,
    ROOM,
    TICKET,
    TOKEN,
    FakeSlack,
    fake_slack,
    refused,
)
from tests.gateway.mailing import receiver, taken
from wick_graph.config.gateway import ChannelConfig
from wick_graph.errors import ConfigError, DeliveryError, RefusedError, StorageError, ToolError
from wick_graph.gateway.channels import slack as module
from wick_graph.gateway.channels.connected import CHATS
from wick_graph.gateway.channels.protocol import FetchingChannel
from wick_graph.gateway.channels.slack import CONFLICT, HEARTBEAT, SlackChannel, as_text, incoming
from wick_graph.gateway.messages import InboundMessage, OutboundMessage
from wick_graph.store import SqlSaver


class Desk:
    """A channel that receives, and what is around it."""

    def __init__(self, fake: FakeSlack, **options: Any) -> None:
        self.fake, self.inbox, self.sleeps = fake, Inbox(), Sleeps()
        self.channel = channel_at(fake.url, self.sleeps, **options)

    async def sick(self, wanted: str = "") -> str:
        async with asyncio.timeout(LONG):
            while not (said := self.channel.healthy()) or wanted not in said:
                await asyncio.sleep(0)
        return said

    async def well(self) -> None:
        async with asyncio.timeout(LONG):
            while self.channel.healthy():
                await asyncio.sleep(0)

    async def texts(self, count: int) -> list[str]:
        return [(await self.inbox.next()).content for _ in range(count)]

    async def send(self, content: str = "hi", chat: str = DIRECT, **more: Any) -> str:
        message = OutboundMessage(channel="slack", chat_id=chat, content=content, **more)
        return await self.channel.send(message, "key")

    async def call(self, method: str) -> dict[str, Any]:
        while True:
            name, data = await asyncio.wait_for(self.fake.sent.get(), LONG)
            if name == method:
                return data

    async def confirmed(self, number: str) -> None:
        while number not in self.fake.confirmed:
            await asyncio.wait_for(self.fake.confirmations.get(), LONG)


def channel_at(
    url: str,
    sleep: Any = asyncio.sleep,
    token: str = TOKEN,
    secret: str = APP_TOKEN,
    **options: Any,
) -> SlackChannel:
    given = {"base_url": f"{url}/api/", **options}
    made = {"token": token, "secret": secret, "owner": [ANN], "options": given}
    return SlackChannel("slack", ChannelConfig.model_validate(made, strict=False), sleep=sleep)


@asynccontextmanager
async def desk_of(fake: FakeSlack, **options: Any) -> AsyncIterator[Desk]:
    desk = Desk(fake, **options)
    await desk.channel.start(desk.inbox)
    await asyncio.wait_for(fake.hellos.get(), LONG)
    try:
        yield desk
    finally:
        await desk.channel.stop()


@pytest.fixture
async def fake() -> AsyncIterator[FakeSlack]:
    async with fake_slack() as made:
        yield made


@pytest.fixture
async def desk(fake: FakeSlack) -> AsyncIterator[Desk]:
    async with desk_of(fake) as made:
        yield made


def test_it_is_a_channel_that_fetches() -> None:
    assert isinstance(channel_at("http://127.0.0.1:1"), FetchingChannel)


# --- Receive.


async def test_a_message_comes_and_is_confirmed_only_after_it_is_stored(desk: Desk) -> None:
    async def hold() -> None:
        assert desk.fake.confirmed == []

    desk.inbox.before = hold
    made = desk.fake.message("hello")
    number = await desk.fake.event(made)
    got = await desk.inbox.next()
    assert (got.channel, got.sender_id, got.chat_id, got.content) == ("slack", ANN, DIRECT, "hello")
    assert (got.key, got.native_id) == (f"slack:{DIRECT}", f"{DIRECT}:{made['ts']}")
    assert got.metadata["group"] is False
    assert got.metadata["sent"] == float(made["ts"])
    await desk.confirmed(number)
    assert desk.channel.healthy() == ""


async def test_a_message_that_cannot_be_stored_is_not_confirmed_and_tried_again(desk: Desk) -> None:
    desk.inbox.failures = [StorageError("the disk is full")] * 2
    first = await desk.fake.event(desk.fake.message("one"))
    second = await desk.fake.event(desk.fake.message("two"))
    assert "the disk is full" in await desk.sick()
    assert await desk.sleeps.end(lambda s: s > 1) == 2
    assert desk.fake.confirmed == []
    assert await desk.sleeps.end(lambda s: s > 1) == 4
    assert await desk.texts(2) == ["one", "two"]
    await desk.confirmed(second)
    assert desk.fake.confirmed == [first, second]
    await desk.well()


async def test_each_connection_begins_with_the_last_day_of_the_bots_conversations(
    fake: FakeSlack,
) -> None:
    fake.keep(fake.message("too old", ago=25 * 3600))
    fake.keep(fake.message("first", ago=200))
    parent = fake.keep(fake.message("second", ago=100, reply_count=1))
    reply = fake.message("third", ago=50, thread_ts=parent["ts"])
    fake.replies[parent["ts"]] = [parent, reply]
    fake.keep(fake.message("before the bot came", room=ROOM, ago=99))
    fake.keep(fake.message("", room=ROOM, user=ME, subtype="channel_join", ago=98))
    fake.keep(fake.message("for all", room=ROOM, ago=97))
    fake.keep(fake.message(f"<@{ME}> for me", room=ROOM, ago=96))
    wanted = ["first", "second", "third", "for me"]
    async with desk_of(fake) as desk:
        await fake.say("live")
        assert await desk.texts(5) == [*wanted, "live"]
        await fake.drop()
        assert await desk.sleeps.end(lambda s: True) == 2
        assert await desk.texts(4) == wanted
        asked = [data for name, data in fake.calls if name == "conversations.history"]
        assert {data["limit"] for data in asked} == {"100"}
    async with desk_of(fake, channels=[ROOM]) as named:
        assert await named.texts(5) == [*wanted[:3], "for all", "for me"]


async def test_a_conversation_that_cannot_be_read_does_not_hide_the_others(
    fake: FakeSlack, caplog: pytest.LogCaptureFixture
) -> None:
    fake.answers["users.conversations"] = [refused("ratelimited", 429, Retry_After="7")]
    scope: Any = (200, {"ok": False, "error": "missing_scope", "needed": "im:history"}, {})
    fake.answers["conversations.history"] = [scope]
    fake.keep(fake.message("hidden"))
    fake.keep(fake.message(f"<@{ME}> seen", room=ROOM))
    async with desk_of(fake) as desk:
        assert await desk.sleeps.end(lambda s: True) == 7
        assert await desk.texts(1) == ["seen"]
        assert "lacks the scope im:history" in caplog.text
        fake.answers["users.conversations"] = [refused("missing_scope")]
        await fake.drop()
        await desk.sleeps.end(lambda s: True)
        await asyncio.wait_for(fake.hellos.get(), LONG)
        await fake.say("on")
        assert await desk.texts(1) == ["on"]


async def test_what_was_stored_before_a_kill_comes_again_and_is_known(
    fake: FakeSlack, tmp_path: Path
) -> None:
    saver = SqlSaver.from_url(f"sqlite:///{tmp_path / 'threads.db'}")
    made = fake.keep(fake.message("once"))
    desk, killed = Desk(fake), asyncio.Event()

    async def store_and_hang(message: InboundMessage) -> None:
        await receiver(saver)(message)
        killed.set()
        await asyncio.Event().wait()

    await desk.channel.start(store_and_hang)
    await asyncio.wait_for(killed.wait(), LONG)
    await desk.channel.stop()
    again = Desk(fake)
    await again.channel.start(receiver(saver))
    await asyncio.wait_for(fake.hellos.get(), LONG)
    await asyncio.wait_for(fake.hellos.get(), LONG)
    number = await fake.event({**made, "channel": DIRECT})
    await again.confirmed(number)
    assert [one.content for one in taken(saver)] == ["once"]
    await again.channel.stop()
    saver.close()


async def test_the_chats_that_are_read_first_are_direct_and_few(fake: FakeSlack) -> None:
    fake.history = {**{f"C0{n}": [] for n in range(60)}, "D0LAST": []}
    async with desk_of(fake) as desk:
        async with asyncio.timeout(LONG):
            while len(fake.calls) < 3 + CHATS:
                await asyncio.sleep(0)
        await fake.say("live")
        assert await desk.texts(1) == ["live"]
    read = [data["channel"] for name, data in fake.calls if name == "conversations.history"]
    assert (len(read), read[0]) == (CHATS, "D0LAST")


async def test_slacks_wish_to_connect_again_is_followed_at_once(desk: Desk) -> None:
    await desk.fake.frame({"type": "disconnect", "reason": "refresh_requested"})
    await asyncio.wait_for(desk.fake.hellos.get(), LONG)
    await desk.fake.say("after")
    assert await desk.texts(1) == ["after"]
    assert desk.sleeps.asked == []


async def test_a_connection_that_does_not_answer_is_noticed(
    fake: FakeSlack, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert HEARTBEAT * 1.5 <= 90
    monkeypatch.setattr(module, "HEARTBEAT", 0.05)
    async with desk_of(fake) as desk:
        fake.deaf = True
        assert "lost Slack" in await desk.sick()


async def test_another_process_with_the_token_is_said_and_waited_for(fake: FakeSlack) -> None:
    fake.others = 1
    async with desk_of(fake) as desk:
        said = await desk.sick()
        assert "another connection with the app token of channels.slack" in said
        assert "stop one of the two" in said
        assert await desk.sleeps.end(lambda s: True) == 5
        await asyncio.wait_for(fake.hellos.get(), LONG)
        fake.others = 0
        assert CONFLICT <= await desk.sleeps.end(lambda s: True) <= 2 * CONFLICT
        await desk.well()


async def test_an_envelope_that_cannot_be_read_is_confirmed_and_does_not_stop_the_others(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    bad = [
        await desk.fake.event({"type": "message", "text": "private words"}),
        await desk.fake.envelope("events_api", {}),
        await desk.fake.envelope("slash_commands", {"command": "/x"}),
        await desk.fake.envelope("interactive", {"type": "view_submission"}),
    ]
    await desk.fake.frame({"type": "new kind"})
    await desk.fake.say("good")
    assert await desk.texts(1) == ["good"]
    await desk.confirmed(bad[-1])
    assert desk.fake.confirmed[:4] == bad
    assert "unreadable: KeyError" in caplog.text
    assert "private words" not in caplog.text


async def test_it_starts_without_a_network_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async with fake_slack() as gone:
        url = gone.url
    channel = channel_at(url, Sleeps())
    await channel.start(Inbox())
    assert "cannot be reached" in channel.healthy()
    await channel.stop()
    assert "that-is-secret" not in caplog.text


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({"token": "xoxb-wrong-but-well-formed"}, "token"),
        ({"secret": "xapp-wrong-but-well-formed"}, "secret"),
    ],
)
async def test_a_wrong_token_is_refused_at_the_start(
    fake: FakeSlack, given: dict[str, str], key: str
) -> None:
    channel = channel_at(fake.url, **given)
    with pytest.raises(ConfigError, match=rf"channels\.slack\.{key}") as caught:
        await channel.start(Inbox())
    assert "wrong-but" not in everything(caught.value)


@pytest.mark.parametrize(
    "given",
    [{"token": ""}, {"token": APP_TOKEN}, {"token": "xoxb-a b"}, {"secret": ""}, {"secret": TOKEN}],
)
def test_a_token_of_another_kind_is_refused_and_not_shown(given: dict[str, str]) -> None:
    key = next(iter(given))
    with pytest.raises(ConfigError, match=rf"channels\.slack\.{key}") as caught:
        channel_at("http://127.0.0.1:1", **given)
    assert "that-is-secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://example.org", "ftp://x", "https://x/?y", "x"])
def test_the_token_goes_to_no_unsafe_address(url: str) -> None:
    with pytest.raises(ConfigError, match="base_url"):
        channel_at("", base_url=url)


async def test_it_stops_at_once_while_the_connection_hangs(fake: FakeSlack) -> None:
    fake.deaf = True
    async with desk_of(fake) as desk:
        await asyncio.wait_for(desk.channel.stop(), LONG)
    assert "not started" in desk.channel.healthy()


# --- What a message says about itself.


def read(**event: Any) -> Any:
    made = {"type": "message", "channel": DIRECT, "user": ANN, "text": "x", "ts": "5.000001"}
    return incoming({**made, **event}, "slack", ME)


def test_bots_notices_and_own_messages() -> None:
    assert read(bot_id="B1").metadata["bot"] is True
    assert read(bot_id="B1", user=None, subtype="bot_message").sender_id == "B1"
    assert read(user="USLACKBOT").metadata["bot"] is True
    assert "bot" not in read().metadata
    assert read(user=ME) is None
    assert read(subtype="channel_join") is None
    assert read(subtype="message_deleted") is None
    assert read(text="") is None
    assert read(type="reaction_added") is None


def test_in_channels_only_mentions_count_unless_the_channel_is_named() -> None:
    assert read(channel=ROOM) is None
    got = read(channel=ROOM, text=f"<@{ME}>: /new please")
    assert (got.content, got.metadata["group"]) == ("/new please", True)
    assert read(channel="G0MPIM", text=f"hi <@{ME}>").metadata["group"] is True
    made = {"type": "message", "channel": ROOM, "user": ANN, "text": "x", "ts": "5.0"}
    assert incoming(made, "slack", ME, {ROOM}) is not None


def test_an_answer_in_a_thread_is_a_topic_but_its_first_message_is_none() -> None:
    assert read(thread_ts="4.0").key == f"slack:{DIRECT}:4.0"
    assert read(thread_ts="5.000001").key == f"slack:{DIRECT}"


def test_an_edit_has_an_id_of_its_own_and_a_preview_is_none() -> None:
    before = {"type": "message", "user": ANN, "text": "x", "ts": "5.0"}
    after = {**before, "text": "y", "edited": {"user": ANN, "ts": "6.0"}}
    got = read(subtype="message_changed", message=after, previous_message=before)
    assert (got.metadata["edited"], got.content, got.sender_id) == (True, "y", ANN)
    assert (got.native_id, got.metadata["sent"]) == (f"{DIRECT}:5.0:6.0", 6.0)
    same = {**after, "text": "x"}
    assert read(subtype="message_changed", message=same, previous_message=before) is None
    assert read(subtype="message_changed", message=before, previous_message=before) is None


def test_shared_messages_count_as_forwarded() -> None:
    got = read(text="look", attachments=[{"is_share": True, "text": "of others &amp; more"}])
    assert got.metadata["forwarded"] is True
    assert got.content == "look\nof others & more"
    assert "forwarded" not in read(attachments=[{"text": "preview"}]).metadata


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("a &lt;b&gt; &amp;amp;", "a <b> &amp;"),
        ("<https://x.org>", "https://x.org"),
        ("<https://evil.org|https://good.org>", "https://good.org (https://evil.org)"),
        (f"<@{ME}> hi <@U1>", "hi <@U1>"),
        (f"hi <@{ME}>", f"hi <@{ME}>"),
        (" /new", "/new"),
    ],
)
def test_marks_of_slack_become_plain_text(text: str, seen: str) -> None:
    assert as_text(text, ME) == seen


# --- Buttons.


async def test_a_press_comes_from_who_pressed_it_and_is_confirmed_after(desk: Desk) -> None:
    number = await desk.fake.press("ok:1", user="U0EVIL", room=ROOM, thread_ts="4.4")
    got = await desk.inbox.next()
    assert (got.sender_id, got.content, got.metadata["button"]) == ("U0EVIL", "ok:1", "ok:1")
    assert (got.key, got.native_id) == (f"slack:{ROOM}:4.4", f"{ROOM}:5.5:9.9")
    assert got.metadata["group"] is True
    await desk.confirmed(number)
    await desk.fake.press("ok:2")
    assert (await desk.inbox.next()).metadata["group"] is False


# --- Send.


async def test_a_text_is_sent_into_its_thread_with_buttons(desk: Desk) -> None:
    native = await desk.send("May I & you?", f"{ROOM}:4.4", buttons=(("Yes", "y:1"), ("", "n:1")))
    data = await desk.call("chat.postMessage")
    assert native.startswith(f"{ROOM}:1000.")
    assert (data["channel"], data["thread_ts"]) == (ROOM, "4.4")
    section, actions = data["blocks"]
    assert section["text"]["text"] == data["text"] == "May I &amp; you?"
    assert section["text"]["verbatim"] is True
    assert [(one["text"]["text"], one["value"]) for one in actions["elements"]] == [
        ("Yes", "y:1"), ("n:1", "n:1"),
    ]  # fmt: skip
    assert (data["unfurl_links"], data["unfurl_media"]) == (False, False)


@pytest.mark.parametrize(
    "text",
    ["<!here>", "<!channel> @channel", "<@U1>", "<!subteam^S1>", "&lt;!here&gt;", "**<!here>**",
     "```\n<!everyone>\n```", "<https://evil.org|https://good.org>", "<!date^1^x|y>", "&<!here>"],
)  # fmt: skip
async def test_no_mention_and_no_label_of_a_link_goes_out(
    desk: Desk, text: str, tmp_path: Path
) -> None:
    await desk.send(text * 300, buttons=(("<!here>", "<!here>"),))
    data = await desk.call("chat.postMessage")
    shown = [data["text"], *(one["text"]["text"] for one in data["blocks"][:-1])]
    for one in shown:
        assert "<" not in one
        assert ">" not in one
        assert not re.search(r"&(?!amp;|lt;|gt;)", one)  # no section cuts an entity
    assert all(len(one) <= 3000 for one in shown[1:])
    assert "".join(shown[1:]) == shown[0]
    assert (data["parse"], data["link_names"]) == ("none", False)
    assert data["blocks"][-1]["elements"][0]["text"]["type"] == "plain_text"
    file = tmp_path / "a.txt"
    file.write_text("x")
    await desk.send(text, media=(str(file),))
    assert "<" not in (await desk.call("files.completeUploadExternal"))["initial_comment"]


async def test_simple_markdown_takes_slacks_form(desk: Desk) -> None:
    await desk.send("**bold** `**x**` a*b\n```py\nx < **1**\n```")
    text = (await desk.call("chat.postMessage"))["text"]
    assert text == "*bold* `**x**` a*b\n```\nx &lt; **1**\n```"


async def test_files_are_sent_by_their_safe_names_with_a_text(desk: Desk, tmp_path: Path) -> None:
    odd = tmp_path / 'a"\r\nX-Evil: 1.pdf'
    odd.write_bytes(b"%PDF")
    assert await desk.send("see", f"{ROOM}:4.4", media=(str(odd),)) == ""
    assert (await desk.call("files.getUploadURLExternal"))["filename"] == "a_X-Evil_ 1.pdf"
    done = await desk.call("files.completeUploadExternal")
    assert (done["channel_id"], done["thread_ts"]) == (ROOM, "4.4")
    assert done["initial_comment"] == "see"
    assert desk.fake.uploads == [b"%PDF"]
    with pytest.raises(DeliveryError, match=r"gone\.pdf is missing"):
        await desk.send("", media=(str(tmp_path / "gone.pdf"),))
    with pytest.raises(DeliveryError, match="blank"):
        await desk.send(" \n")


async def test_it_sends_after_the_stop(fake: FakeSlack) -> None:
    async with desk_of(fake) as desk:
        pass
    assert await desk.send("the last answer")


@pytest.mark.parametrize(("given", "seconds"), [("17", 17), ("soon", 60)])
async def test_slacks_wish_to_wait_is_handed_on(desk: Desk, given: str, seconds: float) -> None:
    desk.fake.answers["chat.postMessage"] = [refused("ratelimited", 429, Retry_After=given)]
    with pytest.raises(DeliveryError) as caught:
        await desk.send()
    assert (caught.value.retry_after, caught.value.permanent) == (seconds, False)


@pytest.mark.parametrize(
    ("answer", "permanent", "said"),
    [
        (refused("channel_not_found"), True, "channel_not_found"),
        (refused("not_in_channel"), True, "not_in_channel"),
        (refused("internal_error"), False, "internal_error"),
        (refused("x", 503), False, "Slack refuses"),
        (refused("token_revoked"), False, r"channels\.slack\.token"),
        (refused(f"<b> {TOKEN}\n"), True, "Slack refuses"),
    ],
)
async def test_refusals_say_whether_a_later_try_can_succeed(
    desk: Desk, answer: Any, permanent: bool, said: str
) -> None:
    desk.fake.answers["chat.postMessage"] = [answer]
    with pytest.raises(DeliveryError, match=said) as caught:
        await desk.send()
    assert caught.value.permanent is permanent
    assert "\n" not in str(caught.value)
    assert TOKEN not in everything(caught.value)


@pytest.mark.parametrize("chat", ["#general", "", "U0ANN", "C0ROOM:x", "c0room", "C0ROOM:1.1:2"])
async def test_only_ids_are_chats(desk: Desk, chat: str) -> None:
    with pytest.raises(DeliveryError, match="is no chat") as caught:
        await desk.send(chat=chat)
    assert caught.value.permanent


@pytest.mark.parametrize("buttons", [[("a", "x" * 2001)], [("a", "")], [("a", "x")] * 26])
async def test_buttons_that_slack_would_refuse_are_refused(desk: Desk, buttons: Any) -> None:
    with pytest.raises(DeliveryError, match="25 buttons"):
        await desk.send(buttons=tuple(buttons))


# --- Fetch.


PNG = b"\x89PNG\r\n\x1a\n"


async def attached(desk: Desk, url: str = "", **more: Any) -> dict[str, Any]:
    file = {"id": "F1", "name": "../x.png", "mimetype": "image/png", "size": 8, **more}
    desk.fake.info = {**file, "url_private": url}
    await desk.fake.say("", subtype="file_share", files=[file, {"id": "F2", "mode": "tombstone"}])
    (found,) = (await desk.inbox.next()).metadata["attachments"]
    return dict(found)


async def test_a_file_is_named_safely_and_fetched_with_the_token(
    desk: Desk, tmp_path: Path
) -> None:
    desk.fake.files["a"] = (PNG, "image/png")
    given = await attached(desk, f"{desk.fake.url}/files/a")
    assert (given["name"], given["type"]) == ("x.png", "image/png")
    path = await desk.channel.fetch(given, tmp_path / "inbox", 100)
    assert path.read_bytes() == PNG
    assert desk.fake.file_headers[0]["Authorization"] == f"Bearer {TOKEN}"


@pytest.mark.parametrize(
    "url",
    ["https://evil.example/x", "http://files.slack.com/x", "https://files.slack.com.evil.org/x",
     "https://files.slack.com@evil.org/", "http://169.254.169.254/x", "http://127.0.0.1:1/x", ""],
)  # fmt: skip
async def test_the_token_goes_to_no_other_host(desk: Desk, tmp_path: Path, url: str) -> None:
    given = await attached(desk, url)
    with pytest.raises(RefusedError, match=r"x\.png is on no host"):
        await desk.channel.fetch(given, tmp_path / "inbox", 100)


async def test_files_that_lie_or_are_gone_are_refused(desk: Desk, tmp_path: Path) -> None:
    inbox, here = tmp_path / "inbox", f"{desk.fake.url}/files/"
    desk.fake.files |= {
        "a": (b"<html>", "image/png"), "login": (b"<html>", "text/html"),
        "big": (PNG + b"x" * 9999, "image/png"),
    }  # fmt: skip
    cases = {"a": "image/png", "big": "more than 100 bytes", "moved": "HTTP 302",
             "gone": "HTTP 404", "login": "is a page"}  # fmt: skip
    for name, said in cases.items():
        with pytest.raises(ToolError, match=said) as caught:
            await desk.channel.fetch(await attached(desk, here + name), inbox, 100)
        assert TOKEN not in everything(caught.value)
    with pytest.raises(RefusedError, match="more than 100 bytes"):
        await desk.channel.fetch(await attached(desk, here + "a", size=101), inbox, 100)
    desk.fake.answers["files.info"] = [refused("file_not_found")]
    with pytest.raises(ToolError, match="file_not_found"):
        await desk.channel.fetch(await attached(desk, here + "a"), inbox, 100)
    assert [*inbox.glob("*")] == []


# --- The tokens.


async def test_tokens_are_in_no_error_log_or_repr(
    fake: FakeSlack, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    asyncio.get_running_loop().set_debug(True)
    async with desk_of(fake) as desk:
        fails = [refused("x"), refused("y", 500), refused("invalid_auth")]
        fake.answers["chat.postMessage"] = fails
        errors = []
        for _ in range(3):
            with pytest.raises(DeliveryError) as caught:
                await desk.send()
            errors.append(caught.value)
        fake.answers["apps.connections.open"] = [refused("z"), refused("internal_error")]
        await fake.drop()
        await desk.sleeps.end(lambda s: True)
        told = await desk.sick("refuses") + repr(desk.channel) + repr(desk.channel._web)
    fake.url = "http://127.0.0.1:1"  # the link leads nowhere
    async with fake_slack() as other:
        other.url, url = "http://127.0.0.1:1", other.url
        channel = channel_at(url, Sleeps())
        await channel.start(Inbox())
        async with asyncio.timeout(LONG):
            while not channel.healthy():
                await asyncio.sleep(0)
        told += channel.healthy()
        await channel.stop()
    for text in (caplog.text, told, *map(everything, errors)):
        assert not [one for one in (TOKEN, APP_TOKEN, TICKET) if one in text]
