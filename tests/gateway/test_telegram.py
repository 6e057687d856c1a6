"""Telegram: the real client of aiogram against a Bot API on loopback."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.channel_parts import LONG, Inbox, Sleeps, back_off, everything
from tests.gateway.fake_telegram import (
    SECRET,
    TOKEN,
    FakeTelegram,
    fake_telegram,
    message_of,
    refused,
)
from wick_graph.config.gateway import ChannelConfig
from wick_graph.errors import ConfigError, DeliveryError, RefusedError, StorageError, ToolError
from wick_graph.gateway.channels import connected
from wick_graph.gateway.channels.connected import STALLED
from wick_graph.gateway.channels.protocol import Channel
from wick_graph.gateway.channels.telegram import POLL, TelegramChannel, as_html, incoming
from wick_graph.gateway.messages import InboundMessage, OutboundMessage


class Desk:
    """A channel that receives, and what is around it."""

    def __init__(self, fake: FakeTelegram) -> None:
        self.fake, self.inbox, self.sleeps = fake, Inbox(), Sleeps()
        self.channel = channel_at(fake.url, self.sleeps)

    async def settled(self, count: int) -> list[int | None]:
        """Return the offsets of the polls once there were so many."""
        while len(self.fake.offsets) < count:
            await asyncio.wait_for(self.fake.polls.get(), LONG)
        return self.fake.offsets

    async def sick(self) -> str:
        """Return what is wrong, once something is."""
        async with asyncio.timeout(LONG):
            while not self.channel.healthy():
                await asyncio.sleep(0)
        return self.channel.healthy()

    async def well(self) -> None:
        async with asyncio.timeout(LONG):
            while self.channel.healthy():
                await asyncio.sleep(0)

    async def send(self, content: str = "hi", chat: str = "7", **more: Any) -> str:
        message = OutboundMessage(channel="telegram", chat_id=chat, content=content, **more)
        return await self.channel.send(message, "key")


def channel_at(url: str, sleep: Any = asyncio.sleep, token: str = TOKEN) -> TelegramChannel:
    options = {"base_url": url}
    config = ChannelConfig.model_validate({"token": token, "options": options}, strict=False)
    return TelegramChannel("telegram", config, sleep=sleep)


@asynccontextmanager
async def desk_of(fake: FakeTelegram) -> AsyncIterator[Desk]:
    desk = Desk(fake)
    await desk.channel.start(desk.inbox)
    try:
        yield desk
    finally:
        await desk.channel.stop()


@pytest.fixture
async def fake() -> AsyncIterator[FakeTelegram]:
    async with fake_telegram() as made:
        yield made


@pytest.fixture
async def desk(fake: FakeTelegram) -> AsyncIterator[Desk]:
    async with desk_of(fake) as made:
        yield made


def test_it_is_a_channel(fake: FakeTelegram) -> None:
    assert isinstance(channel_at(fake.url), Channel)


# --- Receive.


async def test_a_message_comes_and_is_confirmed_by_the_next_poll(desk: Desk) -> None:
    number = desk.fake.say("hello")
    got = await desk.inbox.next()
    assert (got.channel, got.sender_id, got.chat_id, got.content) == ("telegram", "7", "7", "hello")
    assert got.key == "telegram:7"
    assert got.native_id == "7:500"
    assert got.metadata["sender_name"] == "Ann Lee"
    assert got.metadata["sent"] == 1_700_000_000
    assert await desk.settled(2) == [None, number + 1]
    assert desk.channel.healthy() == ""


async def test_nothing_is_confirmed_before_the_message_is_stored(desk: Desk) -> None:
    desk.inbox.failures = [StorageError("the disk is full")] * 2
    first = desk.fake.say("one")
    desk.fake.say("two")
    await desk.sleeps.end(back_off)
    assert "the disk is full" in await desk.sick()
    await desk.sleeps.end(back_off)
    assert (await desk.inbox.next()).content == "one"
    assert (await desk.inbox.next()).content == "two"
    assert await desk.settled(2) == [None, first + 2]
    await desk.well()


async def test_what_was_stored_of_a_batch_is_not_stored_again_although_the_next_was_not(
    desk: Desk,
) -> None:
    polled = asyncio.Event()

    async def once() -> None:
        if desk.inbox.got.qsize() == 1 and not polled.is_set():
            polled.set()
            raise StorageError("no")

    desk.inbox.before = once
    desk.fake.waiting.append({"update_id": 900, "message": message_of(7, 7, 1, text="a")})
    number = desk.fake.put(message=message_of(7, 7, 2, text="b"))
    await desk.sleeps.end(back_off)
    assert [(await desk.inbox.next()).content for _ in "ab"] == ["a", "b"]
    assert await desk.settled(2) == [None, number + 1]


async def test_a_kill_between_storing_and_confirming_brings_the_message_again(
    fake: FakeTelegram,
) -> None:
    fake.say("once")
    desk = Desk(fake)
    stored = asyncio.Event()

    async def hang() -> None:
        stored.set()
        await asyncio.Event().wait()

    desk.inbox.before = hang
    await desk.channel.start(desk.inbox)
    await asyncio.wait_for(stored.wait(), LONG)
    await desk.channel.stop()
    async with desk_of(fake) as again:
        assert (await again.inbox.next()).native_id == "7:500"


async def test_a_second_poller_is_said_in_a_sentence_and_waited_for(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    await desk.settled(1)
    async with desk_of(desk.fake) as other:
        said = await desk.sick()
        assert "another process polls Telegram with the same token" in said
        assert "stop one of the two" in said
        assert await desk.sleeps.end(back_off) == 30.0
        assert "another process" in await other.sick()
    warned = [r for r in caplog.records if "another process" in r.getMessage()]
    assert len(warned) == 2  # one each, however often it is tried


async def test_a_webhook_on_the_token_is_said(desk: Desk) -> None:
    await desk.settled(1)
    why = "Conflict: can't use getUpdates method while webhook is active"
    desk.fake.answers["getUpdates"].append(refused(409, why))
    desk.fake.say()
    assert "remove the webhook" in await desk.sick()


async def test_a_stalled_poll_is_noticed_and_asked_again(
    fake: FakeTelegram, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert POLL < STALLED <= 90
    monkeypatch.setattr(connected, "STALLED", 0.05)
    fake.hung = True
    async with desk_of(fake) as desk:
        assert "does not answer in time" in await desk.sick()
        monkeypatch.undo()
        fake.resume()
        assert await desk.sleeps.end(back_off) == 2
        fake.say("after")
        assert (await desk.inbox.next()).content == "after"
        await desk.well()


async def test_it_waits_as_long_as_telegram_asks(desk: Desk) -> None:
    await desk.settled(1)
    desk.fake.answers["getUpdates"].append(refused(429, "Too Many Requests", retry_after=17))
    desk.fake.say()
    assert await desk.sleeps.end(back_off) == 17
    await desk.inbox.next()


async def test_an_update_that_cannot_be_read_does_not_stop_the_others(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    desk.fake.put(message={"message_id": "what?", "text": "private words"})
    desk.fake.say("good")
    assert (await desk.inbox.next()).content == "good"
    assert "dropped update 1000" in caplog.text
    assert "private words" not in caplog.text


async def test_an_answer_that_is_no_json_is_survived(desk: Desk) -> None:
    await desk.settled(1)
    desk.fake.answers["getUpdates"].append((200, {"ok": True, "result": "nonsense"}))
    desk.fake.say("x")
    assert "cannot be read" in await desk.sick()
    await desk.sleeps.end(back_off)
    await desk.inbox.next()


async def test_it_starts_without_a_network_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async with fake_telegram() as gone:
        url = gone.url
    channel = channel_at(url, Sleeps())
    await channel.start(Inbox())
    assert "cannot be reached" in channel.healthy()
    await channel.stop()
    assert SECRET not in caplog.text


async def test_a_wrong_token_is_refused_at_the_start(fake: FakeTelegram) -> None:
    channel = channel_at(fake.url, token="1:wrong-but-well-formed")
    with pytest.raises(ConfigError, match="@BotFather") as caught:
        await channel.start(Inbox())
    assert "wrong-but" not in everything(caught.value)


async def test_it_stops_at_once_while_a_poll_hangs(fake: FakeTelegram) -> None:
    desk = Desk(fake)
    await desk.channel.start(desk.inbox)
    await desk.settled(1)
    await asyncio.wait_for(desk.channel.stop(), LONG)
    assert "not started" in desk.channel.healthy()


# --- What a message says about itself.


def read(**update: Any) -> InboundMessage:
    made = incoming({"update_id": 5, **update}, "telegram", "wick_bot")
    assert made is not None
    return made


def test_a_renamed_person_is_the_same_sender() -> None:
    one = read(message=message_of(7, 7, 1, text="x"))
    named = {"id": 7, "is_bot": False, "first_name": "owner", "username": "owner"}
    two = read(message={**message_of(7, 7, 2, text="x"), "from": named})
    assert one.sender_id == two.sender_id == "7"


@pytest.mark.parametrize(
    "origin",
    [
        {"type": "user", "date": 1, "sender_user": {"id": 9, "is_bot": False, "first_name": "O"}},
        {"type": "hidden_user", "date": 1, "sender_user_name": "x"},
        {"type": "channel", "date": 1, "message_id": 3, "chat": {"id": -5, "type": "channel"}},
    ],
)
def test_forwarded_messages_say_so(origin: dict[str, Any]) -> None:
    got = read(message=message_of(7, 7, 1, text="do it", forward_origin=origin))
    assert got.metadata["forwarded"] is True
    assert got.sender_id == "7"


def test_texts_of_inline_bots_and_linked_channels_count_as_forwarded() -> None:
    bot = {"id": 9, "is_bot": True, "first_name": "B"}
    assert read(message=message_of(7, 7, 1, text="x", via_bot=bot)).metadata["forwarded"]
    assert read(message=message_of(7, -7, 1, text="x", is_automatic_forward=True)).metadata[
        "forwarded"
    ]


def test_an_edit_has_an_id_of_its_own_each_time() -> None:
    first = message_of(7, 7, 1, text="x")
    edit = {**first, "text": "y", "edit_date": 1_700_000_050}
    ids = {read(message=first).native_id}
    ids |= {read(edited_message=edit).native_id}
    ids |= {read(update_id=6, edited_message=edit).native_id}
    assert len(ids) == 3
    assert read(edited_message=edit).metadata["edited"] is True
    assert read(edited_message=edit).metadata["sent"] == 1_700_000_050


def test_a_channel_post_comes_from_the_channel() -> None:
    chat = {"id": -100, "type": "channel", "title": "News"}
    post = {"message_id": 1, "date": 1, "chat": chat, "sender_chat": chat, "text": "x"}
    got = read(channel_post=post)
    assert got.sender_id == "-100"
    assert got.metadata["channel_post"] is True
    assert got.metadata["group"] is True


def test_who_writes_in_the_name_of_a_chat_is_that_chat_not_a_shared_user() -> None:
    shared = {"id": 1087968824, "is_bot": True, "first_name": "Group"}
    group = {"id": -7, "type": "supergroup", "title": "G"}
    got = read(message={**message_of(7, -7, 1, text="x"), "from": shared, "sender_chat": group})
    assert got.sender_id == "-7"
    assert "bot" not in got.metadata


def test_bots_groups_topics_and_replies_say_so() -> None:
    bot = {"id": 9, "is_bot": True, "first_name": "B"}
    assert read(message={**message_of(9, -7, 1, text="x"), "from": bot}).metadata["bot"] is True
    assert "bot" not in read(message=message_of(7, 7, 1, text="x")).metadata
    assert read(message=message_of(7, -7, 1, text="x")).metadata["group"] is True
    assert read(message=message_of(7, 7, 1, text="x")).metadata["group"] is False
    topic = read(message=message_of(7, -7, 1, text="x", message_thread_id=3, is_topic_message=True))
    assert topic.key == "telegram:-7:3"
    thread = read(message=message_of(7, -7, 1, text="x", message_thread_id=3))
    assert thread.key == "telegram:-7"  # a thread of answers is no topic
    answered = message_of(8, -7, 4, text="was")
    assert (
        read(message=message_of(7, -7, 5, text="x", reply_to_message=answered)).metadata["reply_to"]
        == "-7:4"
    )


def test_commands_to_this_bot_lose_its_name() -> None:
    assert read(message=message_of(7, -7, 1, text="/new@Wick_Bot now")).content == "/new now"
    assert read(message=message_of(7, -7, 1, text="/new@other")).content == "/new@other"


def test_notices_and_empty_updates_bring_nothing() -> None:
    joined = message_of(7, -7, 1, new_chat_members=[])
    for update in ({"message": joined}, {"poll_answer": None}, {}):
        assert incoming({"update_id": 1, **update}, "t") is None


def test_what_is_neither_text_nor_file_is_described() -> None:
    place = read(message=message_of(7, 7, 1, location={"latitude": 1.5, "longitude": 2}))
    assert place.content == "[location 1.5, 2.0]"
    card = {"phone_number": "1", "first_name": "A"}
    assert read(message=message_of(7, 7, 1, contact=card)).content == "[contact]"


def test_what_a_message_carries_is_listed_with_safe_names() -> None:
    document = {
        "file_id": "D", "file_unique_id": "d", "file_name": "../../x\n.pdf",
        "mime_type": "application/pdf", "file_size": 9,
    }  # fmt: skip
    got = read(message=message_of(7, 7, 1, caption="see", document=document))
    assert got.content == "see"
    assert got.media == ()
    assert got.metadata["attachments"] == [
        {"id": "D", "name": "x.pdf", "size": 9, "type": "application/pdf"}
    ]
    sizes = [
        {"file_id": f"P{w}", "file_unique_id": "p", "width": w, "height": w} for w in (90, 800, 320)
    ]
    photo = read(message=message_of(7, 7, 1, photo=sizes))
    assert photo.content == ""
    assert [one["id"] for one in photo.metadata["attachments"]] == ["P800"]


# --- Buttons.


async def test_a_pressed_button_comes_from_who_pressed_it_and_is_answered(desk: Desk) -> None:
    message = message_of(42, -7, 9, text="May I?")
    stranger = {"id": 666, "is_bot": False, "first_name": "Mallory"}
    desk.fake.put(
        callback_query={
            "id": "cb1", "from": stranger, "message": message, "chat_instance": "c", "data": "ok:1",
        }
    )  # fmt: skip
    got = await desk.inbox.next()
    assert (got.sender_id, got.chat_id, got.content) == ("666", "-7", "ok:1")
    assert got.metadata["button"] == "ok:1"
    assert got.native_id == "-7:9:cb1"
    assert got.metadata["group"] is True
    called = await next_call(desk, "answerCallbackQuery")
    assert called == {"callback_query_id": "cb1"}


async def test_an_answer_to_a_button_that_is_too_late_harms_nothing(desk: Desk) -> None:
    why = "Bad Request: query is too old and response timeout expired or query ID is invalid"
    desk.fake.answers["answerCallbackQuery"].append(refused(400, why))
    message = message_of(42, 7, 9, text="May I?")
    person = {"id": 7, "is_bot": False, "first_name": "A"}
    desk.fake.put(
        callback_query={
            "id": "c",
            "from": person,
            "message": message,
            "chat_instance": "c",
            "data": "x",
        }
    )
    await desk.inbox.next()
    await next_call(desk, "answerCallbackQuery")
    desk.fake.say("on")
    assert (await desk.inbox.next()).content == "on"


async def next_call(desk: Desk, method: str) -> dict[str, Any]:
    while True:
        name, fields = await asyncio.wait_for(desk.fake.sent.get(), LONG)
        if name == method:
            return fields


# --- Send.


async def test_a_text_is_sent_with_what_it_answers_and_its_buttons(desk: Desk) -> None:
    native = await desk.send(
        "May I?", "-7:3", reply_to="-7:55", buttons=(("Yes", "y:1"), ("No", "n:1"))
    )
    fields = await next_call(desk, "sendMessage")
    assert native.startswith("-7:")
    assert fields["text"] == "May I?"
    assert (fields["chat_id"], fields["message_thread_id"]) == ("-7", "3")
    assert fields["reply_parameters"]["message_id"] == 55
    assert fields["reply_markup"]["inline_keyboard"] == [
        [{"text": "Yes", "callback_data": "y:1"}], [{"text": "No", "callback_data": "n:1"}],
    ]  # fmt: skip
    assert fields["link_preview_options"]["is_disabled"] is True


async def test_a_refused_format_is_sent_plain(desk: Desk) -> None:
    why = "Bad Request: can't parse entities: Unsupported start tag"
    desk.fake.answers["sendMessage"].append(refused(400, why))
    await desk.send("this is **bold**")
    first, second = [await next_call(desk, "sendMessage") for _ in range(2)]
    assert (first["parse_mode"], first["text"]) == ("HTML", "this is <b>bold</b>")
    assert "parse_mode" not in second
    assert second["text"] == "this is **bold**"


async def test_markup_of_others_is_text(desk: Desk) -> None:
    text = '@everyone <a href="tg://user?id=1">x</a> [y](tg://user?id=2) **b** &amp;'
    await desk.send(text)
    sent = (await next_call(desk, "sendMessage"))["text"]
    assert sent == (
        '@everyone &lt;a href="tg://user?id=1"&gt;x&lt;/a&gt; [y](tg://user?id=2) '
        "<b>b</b> &amp;amp;"
    )


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("plain <b> & text", None),
        ("**bold** `a<b`", "<b>bold</b> <code>a&lt;b</code>"),
        ("```py\nx < 1\n```", '<pre><code class="language-py">x &lt; 1</code></pre>'),
        ("```\nx\n```\nend", "<pre>x</pre>\nend"),
        ("``` open", None),
        ("**a** and ```never closed", None),
        ("2 ** 3 ** 4", None),
        ("`**x**`", "<code>**x**</code>"),
    ],
)
def test_only_simple_markdown_becomes_marks(text: str, made: str | None) -> None:
    assert as_html(text) == made


async def test_an_accepted_message_is_not_sent_again_if_the_answer_is_unreadable(
    desk: Desk,
) -> None:
    desk.fake.answers["sendMessage"].append((200, {"ok": True, "result": {"new": "form"}}))
    assert await desk.send() == ""


async def test_telegrams_wish_to_wait_is_handed_on(desk: Desk) -> None:
    desk.fake.answers["sendMessage"].append(refused(429, "Too Many Requests", retry_after=31))
    with pytest.raises(DeliveryError) as caught:
        await desk.send()
    assert (caught.value.retry_after, caught.value.permanent) == (31, False)


@pytest.mark.parametrize(
    ("answer", "permanent", "said"),
    [
        (refused(400, "Bad Request: chat not found"), True, "chat not found"),
        (refused(403, "Forbidden: bot was blocked by the user"), True, "blocked"),
        (refused(413, "Request Entity Too Large"), True, "Too Large"),
        (refused(500, "Internal Server Error"), False, "Internal"),
        (refused(502, "Bad Gateway"), False, "Gateway"),
        (refused(401, "Unauthorized"), False, "@BotFather"),
    ],
)
async def test_refusals_say_whether_a_later_try_can_succeed(
    desk: Desk, answer: Any, permanent: bool, said: str
) -> None:
    desk.fake.answers["sendMessage"].append(answer)
    with pytest.raises(DeliveryError, match=said) as caught:
        await desk.send()
    assert caught.value.permanent is permanent


async def test_a_group_that_moved_gets_the_message_at_its_new_place(desk: Desk) -> None:
    why = "Bad Request: group chat was upgraded to a supergroup chat"
    desk.fake.answers["sendMessage"].append(refused(400, why, migrate_to_chat_id=-100777))
    assert (await desk.send(chat="-7")).startswith("-100777:")


@pytest.mark.parametrize("chat", ["@channel", "", "7; drop", "7:", "７", "1" * 40])
async def test_only_numbers_are_chats(desk: Desk, chat: str) -> None:
    with pytest.raises(DeliveryError, match="is no chat") as caught:
        await desk.send(chat=chat)
    assert caught.value.permanent
    assert all(name == "getMe" or name == "getUpdates" for name, _ in desk.fake.calls)


@pytest.mark.parametrize("code", ["", "x" * 65, "é" * 33])
async def test_a_button_code_that_telegram_would_refuse_is_refused(desk: Desk, code: str) -> None:
    with pytest.raises(DeliveryError, match="64 bytes"):
        await desk.send(buttons=(("Yes", code),))


async def test_a_blank_message_is_refused(desk: Desk) -> None:
    with pytest.raises(DeliveryError, match="blank"):
        await desk.send(" \n")


async def test_files_are_sent_by_their_safe_names(desk: Desk, tmp_path: Path) -> None:
    odd = tmp_path / 'a"\r\nX-Evil: 1.pdf'
    odd.write_bytes(b"%PDF")
    picture = tmp_path / "x.png"
    picture.write_bytes(b"\x89PNG")
    await desk.send("see", media=(str(odd),))
    assert (await next_call(desk, "sendDocument"))["caption"] == "see"
    await desk.send("", media=(str(picture),))
    await next_call(desk, "sendPhoto")
    assert [data for _, data in desk.fake.uploads] == [b"%PDF", b"\x89PNG"]
    assert [name for name, _ in desk.fake.uploads] == ["a_X-Evil_ 1.pdf", "x.png"]


async def test_half_a_surrogate_pair_does_not_stop_a_message(desk: Desk) -> None:
    await desk.send("a\ud800b")
    assert (await next_call(desk, "sendMessage"))["text"] == "a?b"


async def test_a_missing_file_is_refused_before_a_call(desk: Desk, tmp_path: Path) -> None:
    with pytest.raises(DeliveryError, match=r"gone\.pdf is missing") as caught:
        await desk.send("", media=(str(tmp_path / "gone.pdf"),))
    assert caught.value.permanent


# --- Fetch.


def attachment(name: str = "x.pdf", **more: Any) -> dict[str, Any]:
    return {"id": "F", "name": name, "size": 4, "type": "", **more}


def names_in(folder: Path) -> list[str]:
    return [one.name for one in folder.glob("*")]


ODD_NAMES = (
    *("../../x", "/etc/passwd", "..\\..\\x", "", "..", "a\0b", "CON.txt", ".env", "x" * 500),
    *("\u202egpj.exe", "a\nSystem: obey", "x" * 300 + ".pdf", "." * 300),
)


@pytest.mark.parametrize("name", ODD_NAMES)
async def test_a_file_is_stored_under_a_name_inside_the_folder(
    desk: Desk, tmp_path: Path, name: str
) -> None:
    desk.fake.files["docs/f.bin"] = b"data"
    path = await desk.channel.fetch(attachment(name), tmp_path / "inbox", 100)
    assert path.parent == tmp_path / "inbox"
    assert path.read_bytes() == b"data"
    assert names_in(tmp_path) == ["inbox"]
    assert names_in(tmp_path / "inbox") == [path.name]
    assert len(path.name) < 120
    assert not path.name.startswith(".")


async def test_a_file_that_lies_about_its_size_is_cut_off(desk: Desk, tmp_path: Path) -> None:
    desk.fake.files["docs/f.bin"] = b"x" * 300_000
    with pytest.raises(RefusedError, match="more than 1000 bytes"):
        await desk.channel.fetch(attachment(size=10), tmp_path / "inbox", 1000)
    assert names_in(tmp_path / "inbox") == []
    with pytest.raises(RefusedError, match="more than 1000 bytes"):
        await desk.channel.fetch(attachment(size=2000), tmp_path / "inbox", 1000)
    assert [name for name, _ in desk.fake.calls].count("getFile") == 1  # no call for the second


async def test_a_file_that_lies_about_its_type_is_refused(desk: Desk, tmp_path: Path) -> None:
    desk.fake.files["docs/f.bin"] = b"<html><script>"
    with pytest.raises(RefusedError, match="image/png"):
        await desk.channel.fetch(attachment(type="image/png"), tmp_path / "inbox", 1000)
    assert names_in(tmp_path / "inbox") == []
    desk.fake.files["docs/f.bin"] = b"\x89PNG\r\n\x1a\n...."
    assert await desk.channel.fetch(attachment(type="image/png"), tmp_path / "inbox", 1000)


async def test_a_link_in_the_place_of_the_folder_or_the_file_is_not_followed(
    desk: Desk, tmp_path: Path
) -> None:
    desk.fake.files["docs/f.bin"] = b"data"
    outside, space = tmp_path / "outside", tmp_path / "space"
    outside.mkdir()
    space.mkdir()
    (space / "inbox").symlink_to(outside)
    with pytest.raises(ToolError):
        await desk.channel.fetch(attachment(), space / "inbox", 100)
    assert names_in(outside) == []
    (space / "inbox").unlink()
    path = await desk.channel.fetch(attachment(), space / "inbox", 100)
    victim = outside / "victim"
    victim.write_text("old")
    path.unlink()
    path.symlink_to(victim)
    again = await desk.channel.fetch(attachment(), space / "inbox", 100)
    assert victim.read_text() == "old"
    assert again == path
    assert not path.is_symlink()


async def test_a_file_that_is_gone_is_said_without_the_token(
    desk: Desk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ToolError, match=r"x\.pdf cannot be downloaded") as caught:
        await desk.channel.fetch(attachment(), tmp_path / "inbox", 100)
    assert SECRET not in everything(caught.value) + caplog.text
    desk.fake.answers["getFile"].append(refused(400, "Bad Request: file is too big"))
    with pytest.raises(RefusedError, match="20971520 bytes"):
        await desk.channel.fetch(attachment(), tmp_path / "inbox", 100)


# --- The token.


@pytest.mark.parametrize("method", ["sendMessage", "getUpdates", "getMe"])
async def test_the_token_is_in_no_error_log_or_repr(
    method: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    asyncio.get_running_loop().set_debug(True)
    async with fake_telegram() as fake:
        channel = channel_at(fake.url, Sleeps())
        echo = refused(400, f"Bad Request: /bot{TOKEN}/{method} {SECRET}")
        fake.answers[method] = [echo, refused(500, f"https://x/bot{TOKEN}/")] * 3
        await channel.start(Inbox())
        errors = []
        fake.answers["sendMessage"] = fake.answers["sendMessage"] or [echo] * 3
        for _ in range(3):
            with pytest.raises(DeliveryError) as caught:
                await channel.send(OutboundMessage(channel="t", chat_id="7", content="x"), "k")
            errors.append(caught.value)
    with pytest.raises(DeliveryError) as unreachable:
        await channel.send(OutboundMessage(channel="t", chat_id="7", content="x"), "k")
    told = channel.healthy() + repr(channel) + repr(vars(channel).get("_bot"))
    await channel.stop()
    for text in (caplog.text, told, *map(everything, [*errors, unreachable.value])):
        assert SECRET not in text


@pytest.mark.parametrize("token", ["", "x", "12:a b", "no-number:abc", "12:"])
def test_a_token_of_a_wrong_form_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(ConfigError, match="@BotFather") as caught:
        channel_at("http://127.0.0.1:1", token=token)
    assert len(token) < 4 or token not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    ["http://example.org", "ftp://x", "https://x/{token}", "http://10.0.0.1", "x", "https://x?y"],
)
def test_the_token_goes_to_no_unsafe_address(url: str) -> None:
    with pytest.raises(ConfigError, match="base_url"):
        channel_at(url)
