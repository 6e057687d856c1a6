"""The HTTP channel: a real client, signatures by the specification's own library."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from standardwebhooks import Webhook

from tests.source import ROOT
from tests.support.loopback import Loopback, http, loopback
from wick_graph.config.gateway import ChannelConfig
from wick_graph.errors import ConfigError, DeliveryError, StorageError
from wick_graph.gateway.channels.http import MAX_BODY, HttpChannel, Signer
from wick_graph.gateway.channels.protocol import Channel
from wick_graph.gateway.messages import InboundMessage, OutboundMessage

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYqrTwjU"
TOKEN = "a-reader-token-of-the-tests"
NOW = 1_700_000_000.0
MOMENT = datetime.fromtimestamp(NOW, tz=UTC)
LONG = 60.0

BODY = {"chat_id": "c1", "sender_id": "s1", "content": "hello"}


class Desk:
    """A channel that listens, its inbox, and a client."""

    def __init__(self, **options: Any) -> None:
        given = {"port": 0, **options}
        config = {"secret": SECRET, "token": TOKEN, "options": given}
        made = ChannelConfig.model_validate(config, strict=False)
        self.now = NOW
        self.channel = HttpChannel("hook", made, clock=lambda: self.now)
        self.got: list[InboundMessage] = []
        self.failures: list[Exception] = []
        self.outbox: list[tuple[int, OutboundMessage]] = []
        self.client = httpx.AsyncClient(timeout=LONG)

    async def receive(self, message: InboundMessage) -> None:
        if self.failures:
            raise self.failures.pop(0)
        self.got.append(message)

    async def past(self, chat: str, after: int) -> Sequence[tuple[int, OutboundMessage]]:
        found = [(at, one) for at, one in self.outbox if one.chat_id == chat and at > after]
        return found[:100]  # as the outbox gives them

    async def post(self, body: Any = BODY, **headers: str) -> httpx.Response:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.client.post(
            self.channel.url, content=data, headers={**signed(data), **headers}
        )

    def answer(self, at: int, text: str, chat: str = "c1") -> None:
        self.outbox.append((at, OutboundMessage(channel="hook", chat_id=chat, content=text)))
        self.channel.publish(chat)

    @asynccontextmanager
    async def reading(self, chat: str = "c1", **headers: str) -> AsyncIterator[Reader]:
        own = {"Authorization": f"Bearer {TOKEN}", **headers}
        url = f"{self.channel.url}?chat_id={chat}"
        async with self.client.stream("GET", url, headers=own) as response:
            assert response.status_code == 200
            yield Reader(response)


class Reader:
    """A reader of server-sent events."""

    def __init__(self, response: httpx.Response) -> None:
        self._lines = response.aiter_lines()

    async def event(self) -> tuple[int, str]:
        """Return the next event's number and text."""
        number = 0
        while True:
            line = await asyncio.wait_for(anext(self._lines), LONG)
            if line.startswith("id: "):
                number = int(line[4:])
            if line.startswith("data: "):
                return number, json.loads(line[6:])["content"]


def signed(data: bytes, number: str = "msg_1") -> dict[str, str]:
    """Sign as the specification's library does."""
    signature = Webhook(SECRET).sign(number, MOMENT, data.decode())
    stamp = str(int(NOW))
    return {"webhook-id": number, "webhook-timestamp": stamp, "webhook-signature": signature}


@asynccontextmanager
async def listening(**options: Any) -> AsyncIterator[Desk]:
    desk = Desk(**options)
    await desk.channel.start(desk.receive)
    desk.channel.past = desk.past
    try:
        yield desk
    finally:
        await desk.client.aclose()
        await desk.channel.stop()


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    async with listening() as made:
        yield made


# --- Receive.


async def test_a_signed_message_comes_and_is_accepted_once_it_is_stored(desk: Desk) -> None:
    assert isinstance(desk.channel, Channel)
    body = {**BODY, "sender_name": "Ann", "topic": "t", "group": True, "forwarded": True}
    answer = await desk.post(body)
    assert (answer.status_code, answer.json()) == (202, {"id": "msg_1"})
    (got,) = desk.got
    assert (got.channel, got.sender_id, got.chat_id, got.content) == ("hook", "s1", "c1", "hello")
    assert got.key == "hook:c1:t"
    assert dict(got.metadata) == {
        "native_id": "msg_1", "sent": NOW, "sender_name": "Ann", "topic": "t",
        "group": True, "forwarded": True,
    }  # fmt: skip


async def test_what_the_page_shows_works(desk: Desk) -> None:
    page = (ROOT / "docs/how-to/gateway-channels.md").read_text(encoding="utf-8")
    code = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    desk.now = time.time()
    shown: dict[str, Any] = {}
    exec(code, shown)
    url = desk.channel.url.removesuffix("/messages")
    answer = await asyncio.to_thread(shown["ask"], url, SECRET, "Where is my parcel?")
    assert answer.status_code == 202
    assert [one.content for one in desk.got] == ["Where is my parcel?"]


async def test_what_could_not_be_stored_is_not_accepted(desk: Desk) -> None:
    desk.failures = [StorageError("the disk of /secret/place is full")]
    answer = await desk.post()
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "5"
    assert "/secret/place" not in answer.text
    assert (await desk.post()).status_code == 202


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({"webhook-signature": ""}, "missing"),
        ({"webhook-id": ""}, "missing"),
        ({"webhook-timestamp": "soon"}, "missing"),
        ({"webhook-timestamp": "-1"}, "missing"),
        ({"webhook-timestamp": "nan"}, "missing"),
        ({"webhook-signature": "v1,AAAA"}, "does not fit"),
        ({"webhook-signature": "v1"}, "does not fit"),
        ({"webhook-signature": "v1,é"}, "does not fit"),
        ({"webhook-id": "msg_2"}, "does not fit"),
        ({"webhook-timestamp": str(int(NOW) + 1)}, "does not fit"),
        ({"webhook-id": "a b"}, "missing"),
    ],
)
async def test_a_wrong_signature_is_refused(desk: Desk, headers: dict[str, str], said: str) -> None:
    raw = {key: value.encode("latin-1") for key, value in headers.items()}
    answer = await desk.post(**raw)  # type: ignore[arg-type]
    assert (answer.status_code, desk.got) == (401, [])
    assert said in answer.json()["error"]


async def test_an_unsigned_message_is_refused(desk: Desk) -> None:
    answer = await desk.client.post(desk.channel.url, json=BODY)
    assert (answer.status_code, desk.got) == (401, [])


@pytest.mark.parametrize("passed", [301, -301])
async def test_a_replay_after_five_minutes_is_refused(desk: Desk, passed: int) -> None:
    desk.now = NOW + passed
    answer = await desk.post()
    assert (answer.status_code, desk.got) == (401, [])
    assert "300 s" in answer.json()["error"]


async def test_a_changed_body_is_refused(desk: Desk) -> None:
    headers = signed(json.dumps(BODY).encode())
    other = json.dumps({**BODY, "sender_id": "owner"}).encode()
    answer = await desk.client.post(desk.channel.url, content=other, headers=headers)
    assert (answer.status_code, desk.got) == (401, [])


async def test_one_of_several_signatures_is_enough(desk: Desk) -> None:
    right = signed(json.dumps(BODY).encode())["webhook-signature"]
    assert (await desk.post(**{"webhook-signature": f"v1a,x v1,AAAA {right}"})).status_code == 202


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "the body"),
        (b"[]", "the body"),
        (b"{" * 5000, "the body"),
        ({**BODY, "content": " "}, "blank"),
        ({**BODY, "chat_id": ""}, "chat_id"),
        ({**BODY, "chat_id": "a\0b"}, "chat_id"),
        ({**BODY, "sender_id": "x" * 300}, "sender_id"),
        ({**BODY, "sender_id": 5}, "sender_id"),
        ({**BODY, "session_key": "telegram:1"}, "session_key"),
        ({**BODY, "media": ["/etc/passwd"]}, "media"),
        (b'{"chat_id":"c","sender_id":"s","content":"\\ud800"}', "the body"),
        ({"chat_id": "c"}, "sender_id"),
    ],
)
async def test_bad_input_gets_one_sentence(desk: Desk, body: Any, said: str) -> None:
    answer = await desk.post(body)
    assert (answer.status_code, desk.got) == (400, [])
    assert said in answer.json()["error"]
    assert "\n" not in answer.json()["error"]


async def test_a_large_body_is_refused_while_it_comes() -> None:
    async with listening() as desk:

        async def endless() -> AsyncIterator[bytes]:
            while True:
                yield b"x" * 1000

        try:
            answer = await desk.client.post(desk.channel.url, content=endless())
            assert answer.status_code == 413
        except (httpx.WriteError, httpx.ReadError):
            pass  # the server had closed the connection already
        assert desk.got == []
        assert (await desk.post({**BODY, "content": "x" * MAX_BODY})).status_code == 413


def test_our_signatures_are_the_librarys() -> None:
    body = b'{"a": 1}'
    assert Signer(SECRET).headers("msg_1", int(NOW), body) == signed(body)
    assert Signer(SECRET).check(signed(body), NOW + 299, body) == ""


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_AAAA", "whsec_not base64!", "é" * 40])
def test_a_weak_secret_is_refused_and_not_shown(secret: str) -> None:
    config = ChannelConfig.model_validate({"secret": secret}, strict=False)
    with pytest.raises(ConfigError, match="openssl rand") as caught:
        HttpChannel("hook", config)
    assert len(secret) < 8 or secret not in str(caught.value)


# --- Readers.


async def test_a_reader_gets_what_was_sent_and_what_comes(desk: Desk) -> None:
    desk.answer(3, "earlier")
    desk.answer(4, "elsewhere", chat="c2")
    async with desk.reading() as reader:
        assert await reader.event() == (3, "earlier")
        desk.answer(7, "now")
        assert await reader.event() == (7, "now")


async def test_a_reader_goes_on_after_the_last_event_it_had(desk: Desk) -> None:
    for at in (3, 5, 9):
        desk.answer(at, str(at))
    async with desk.reading(**{"Last-Event-ID": "3"}) as reader:
        assert [await reader.event() for _ in "ab"] == [(5, "5"), (9, "9")]


async def test_a_reader_gets_all_that_it_missed_at_once(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wick_graph.gateway.channels.http._PING", 2 * LONG)
    for at in range(1, 251):
        desk.answer(at, f"a{at}")
    async with desk.reading() as reader:
        assert [(await reader.event())[0] for _ in range(250)] == [*range(1, 251)]


async def test_a_text_cannot_fake_an_event(desk: Desk) -> None:
    desk.answer(1, "a\n\nid: 99\ndata: {}\r\n\u2028x")
    desk.answer(2, "b")
    async with desk.reading() as reader:
        assert await reader.event() == (1, "a\n\nid: 99\ndata: {}\r\n\u2028x")
        assert await reader.event() == (2, "b")


@pytest.mark.parametrize(
    ("query", "headers", "status"),
    [
        ("?chat_id=c1", {"Authorization": ""}, 401),
        ("?chat_id=c1", {"Authorization": "Bearer wrong"}, 401),
        ("", {}, 400),
        ("?chat_id=c1", {"Last-Event-ID": "x"}, 400),
        ("?chat_id=c1&after=-1", {}, 400),
    ],
)
async def test_a_reader_needs_the_token_and_a_chat(
    desk: Desk, query: str, headers: dict[str, str], status: int
) -> None:
    own = {"Authorization": f"Bearer {TOKEN}", **headers}
    answer = await desk.client.get(desk.channel.url + query, headers=own)
    assert answer.status_code == status
    assert answer.json()["error"]


def test_without_a_token_nobody_reads() -> None:
    config = ChannelConfig.model_validate({"secret": SECRET, "options": {"port": 0}}, strict=False)
    channel = HttpChannel("hook", config)

    async def status() -> int:
        await channel.start(Desk().receive)
        async with httpx.AsyncClient() as client:
            answer = await client.get(channel.url, headers={"Authorization": "Bearer"})
        await channel.stop()
        return answer.status_code

    assert asyncio.run(status()) == 401


async def test_it_stops_with_readers_and_says_that_it_does_not_listen(desk: Desk) -> None:
    assert desk.channel.healthy() == ""
    async with desk.reading() as reader:
        desk.answer(1, "x")
        await reader.event()
        await asyncio.wait_for(desk.channel.stop(), LONG)
    assert "does not listen" in desk.channel.healthy()


async def test_a_port_in_use_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"{port}.*choose another"):
            await Desk(port=port).channel.start(Desk().receive)


# --- Send.


ANSWER = OutboundMessage(
    channel="hook", chat_id="c1", content="done", reply_to="msg_1", buttons=(("Yes", "y"),)
)


@pytest.fixture
def callback() -> Any:
    with loopback(http(b"{}")) as server:
        yield server


def at(server: Loopback, *, allowed: bool = True) -> HttpChannel:
    allow = [server.url()] if allowed else []
    return Desk(callback=f"{server.url()}/answers", allow=allow).channel


async def test_a_callback_gets_a_signed_answer_with_the_key_as_its_id(callback: Loopback) -> None:
    channel = at(callback)
    assert channel.idempotent
    for _ in range(2):  # sent again after a crash, it has the same id
        assert await channel.send(ANSWER, "run-7/0") == "run-7/0"
    assert [callback.headers(n)["webhook-id"] for n in (0, 1)] == ["run-7/0", "run-7/0"]
    headers, body = callback.headers(), callback.body()
    right = Webhook(SECRET).sign("run-7/0", MOMENT, body.decode())
    assert headers["webhook-signature"] == right
    assert json.loads(body) == {
        "chat_id": "c1", "content": "done", "reply_to": "msg_1",
        "buttons": [{"label": "Yes", "code": "y"}],
    }  # fmt: skip


async def test_a_key_that_is_no_header_is_hashed(callback: Loopback) -> None:
    number = await at(callback).send(ANSWER, "a b\r\nX-Evil: 1é")
    assert callback.headers()["webhook-id"] == number
    assert len(number) == 64
    assert "x-evil" not in callback.headers()


async def test_a_private_callback_is_refused_unless_allowed(callback: Loopback) -> None:
    with pytest.raises(DeliveryError, match=r"channels\.hook\.options\.allow") as caught:
        await at(callback, allowed=False).send(ANSWER, "k")
    assert caught.value.permanent
    assert callback.asked == []


@pytest.mark.parametrize(
    "url",
    ["http://169.254.169.254/latest", "http://[::1]:80/", "http://10.0.0.1/", "http://0.0.0.0/"],
)
async def test_a_callback_leads_to_no_inner_address(url: str) -> None:
    with pytest.raises(DeliveryError, match="refused") as caught:
        await Desk(callback=url).channel.send(ANSWER, "k")
    assert caught.value.permanent


@pytest.mark.parametrize("status", ["301 Moved", "307 Temporary"])
async def test_a_redirect_is_not_taken_for_an_acceptance(callback: Loopback, status: str) -> None:
    with loopback(http(b"", status, f"Location: {callback.url()}/x")) as moved:
        allow = [moved.url(), callback.url()]
        channel = Desk(callback=f"{moved.url()}/a", allow=allow).channel
        with pytest.raises(DeliveryError, match="redirects"):
            await channel.send(ANSWER, "k")
    with loopback(http(b"", status, "Location: http://169.254.169.254/")) as moved:
        channel = Desk(callback=f"{moved.url()}/a", allow=[moved.url()]).channel
        with pytest.raises(DeliveryError, match="refused"):
            await channel.send(ANSWER, "k")


@pytest.mark.parametrize(
    ("answer", "wait", "permanent"),
    [
        (http(b"", "500 No"), None, False),
        (http(b"", "429 Slow", "Retry-After: 12"), 12.0, False),
        (http(b"", "429 Slow", "Retry-After: never"), None, False),
        (http(b"", "410 Gone"), None, True),
        (b"", None, False),
        (b"nonsense\r\n\r\n", None, False),
    ],
)
async def test_a_refusal_of_the_callback_says_when_to_try_again(
    answer: bytes, wait: float | None, permanent: bool
) -> None:
    with loopback(answer) as server, pytest.raises(DeliveryError) as caught:
        await at(server).send(ANSWER, "k")
    assert (caught.value.retry_after, caught.value.permanent) == (wait, permanent)
    assert SECRET not in str(caught.value)


async def test_files_are_not_sent(callback: Loopback) -> None:
    message = OutboundMessage(channel="h", chat_id="c", content="x", media=("/etc/passwd",))
    with pytest.raises(DeliveryError, match="sends no files"):
        await at(callback).send(message, "k")
    assert callback.asked == []


async def test_without_a_callback_the_outbox_is_the_answer() -> None:
    assert await Desk().channel.send(ANSWER, "k") == ""
