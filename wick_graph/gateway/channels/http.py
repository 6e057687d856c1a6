"""Messages by HTTP: signed requests bring them; answers go to readers or to a callback."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hmac
import json
import re
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import replace
from hashlib import sha256
from typing import Annotated, Any, Final

import h11
import uvicorn
from pydantic import Field, ValidationError
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from wick_graph.config.fields import Block, Text, Texts
from wick_graph.config.gateway import ChannelConfig
from wick_graph.errors import ConfigError, DeliveryError, RefusedError, StorageError, ToolError
from wick_graph.gateway.channels.connected import ConfiguredChannel, inbound
from wick_graph.gateway.channels.protocol import Past, Receive
from wick_graph.gateway.messages import InboundMessage, OutboundMessage
from wick_graph.service.options import Problem
from wick_graph.web.addresses import Target
from wick_graph.web.client import Client

TOLERANCE: Final = 300
"""Seconds by which the time of a signature may differ from ours."""

MAX_BODY: Final = 256 * 1024
"""Bytes of a request."""

_PING, _HEADER_SECONDS, _BODY_SECONDS, _READERS = 15.0, 10.0, 10.0, 100
_ID: Final = re.compile(r"[!-~]{1,128}")
_SECRET: Final = r"(?:whsec_)?((?:[A-Za-z0-9+/]{4}){8,}(?:[A-Za-z0-9+/]{2,3})?)={0,2}"
_LATER: Final = frozenset({"flood", "alone", "limit", "backlog"})
"""Reasons to refuse a message that pass."""

_CLOSE: Final = {"Connection": "close"}  # the rest of the body stays unread
_AGAIN: Final = {"Retry-After": "5"}
_SSE: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}

Name = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[^\x00-\x1f\x7f]*$")]


class HttpOptions(Block):
    """The `options:` of an HTTP channel."""

    host: Text = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8765
    callback: Text | None = None
    """Where answers are posted; without it, readers fetch them."""
    allow: Texts = ()
    """Private origins that the callback may lead to: `http://127.0.0.1:9000`."""


class Posted(Block):
    """The body of a request."""

    chat_id: Name
    sender_id: Name
    content: str
    sender_name: Name | None = None
    topic: Name | None = None
    reply_to: Name | None = None
    button: Name | None = None
    group: bool = False
    forwarded: bool = False
    bot: bool = False


class Signer:
    """Signatures by the Standard Webhooks specification.

    Args:
        secret: `whsec_` and at least 24 bytes in base64.
    """

    def __init__(self, secret: str) -> None:
        text = secret.removeprefix("whsec_").rstrip("=")
        self._key: Final = base64.b64decode(text + "=" * (-len(text) % 4))

    def headers(self, number: str, now: int, body: bytes) -> dict[str, str]:
        """Return the headers that sign a body."""
        signed = hmac.digest(self._key, b"%b.%d.%b" % (number.encode(), now, body), "sha256")
        signature = f"v1,{base64.b64encode(signed).decode()}"
        return {"webhook-id": number, "webhook-timestamp": str(now), "webhook-signature": signature}

    def check(self, headers: Mapping[str, str], now: float, body: bytes) -> str:
        """Return what is wrong with a signed body, as a sentence; empty if nothing is."""
        number, sent = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
        given = headers.get("webhook-signature", "")
        if not (_ID.fullmatch(number) and re.fullmatch(r"[0-9]{1,12}", sent) and given):
            return "webhook-id, webhook-timestamp or webhook-signature is missing or invalid"
        if abs(now - int(sent)) > TOLERANCE:
            return f"webhook-timestamp differs from our time by more than {TOLERANCE} s; sign anew"
        right = self.headers(number, int(sent), body)["webhook-signature"].encode()
        tried = [hmac.compare_digest(right, one.encode()) for one in given.split(" ")[:8]]
        return "" if any(tried) else "webhook-signature does not fit the body and the secret"


class _Connection(H11Protocol):
    """A connection; one on which no request comes to its end of headers is closed."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Begin to look at it."""
        super().connection_made(transport)
        self._look(None, first=True)

    def _look(self, seen: Any, *, first: bool = False) -> None:
        if not first and self.cycle is seen and self.conn.their_state is h11.IDLE:
            self.transport.close()
        if not self.transport.is_closing():
            self.loop.call_later(_HEADER_SECONDS, self._look, self.cycle)


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the gateway."""
        yield


class HttpChannel(ConfiguredChannel):
    """A channel for programs: POST brings a message; GET, or a callback, gets the answers.

    Args:
        name: Its key under `channels:`.
        config: Its block; `secret` signs, `token` lets readers in.
        clock: Returns the seconds since 1970.
    """

    limit = 1_000_000
    caption = 0
    idempotent = True
    options = HttpOptions
    secrets = (
        ("secret", _SECRET, "whsec_ and the output of openssl rand -base64 32"),
        ("token", r"[!-~]*", "what readers send, without spaces"),
    )

    def __init__(
        self, name: str, config: ChannelConfig, *, clock: Callable[[], float] = time.time
    ) -> None:
        super().__init__(name, config)
        self._clock, self._signer = clock, Signer(self._secrets["secret"])
        key, self._to = f"channels.{name}.options.allow", self._options.callback
        self._client = Client(allow=self._options.allow, key=key, timeout=30)
        if self._to:
            Target.parse(self._to)
        self.past: Past | None = None
        """What was sent earlier, from the outbox; the gateway sets it."""
        self.url = ""
        """Where it listens."""
        self._receive: Receive | None = None
        self._readers: dict[str, set[asyncio.Event]] = {}
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None

    async def start(self, receive: Receive) -> None:
        """Begin to listen.

        Raises:
            ConfigError: The address cannot be bound.
        """
        host, port = self._options.host, self._options.port
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            listener = socket.create_server((host, port), family=family, backlog=256)
        except OSError as error:
            raise ConfigError(
                f"channels.{self.name} cannot listen on {host}:{port} ({error.strerror or error}); "
                "choose another options.port or options.host"
            ) from None
        self.url = str(Target("http", host, listener.getsockname()[1], "/messages"))
        self._receive = receive
        routes = [Route("/messages", self._get), Route("/messages", self._post, methods=["POST"])]
        app = Starlette(routes=routes, exception_handlers={Problem: _answer})
        most, alive = 2 * _READERS, 5
        plain = uvicorn.Config(app, http=_Connection, ws="none", lifespan="off", log_config=None,
                               access_log=False, server_header=False, proxy_headers=False,
                               limit_concurrency=most, timeout_keep_alive=alive)  # fmt: skip
        self._server = _Server(plain)
        self._serving = asyncio.create_task(self._server.serve(sockets=[listener]))

    async def stop(self) -> None:
        """Stop to listen; readers ask again with `Last-Event-ID`."""
        server, serving, self._server = self._server, self._serving, None
        if server is None or serving is None:
            return
        server.should_exit = True
        for chat in list(self._readers):
            self.publish(chat)
        await asyncio.wait({serving}, timeout=0.5)
        server.force_exit = True
        await asyncio.wait({serving})

    def healthy(self) -> str:
        """Return what is wrong, as a sentence; empty if nothing is."""
        serves = self._server is not None and self._serving is not None and not self._serving.done()
        return "" if serves else f"the channel {self.name} does not listen; start it again"

    async def catch_up(self) -> None:
        """Fetch nothing: a sender repeats what was not answered with 202."""

    # --- Receive.

    async def _post(self, request: Request) -> Response:
        body = await _body(request)
        if wrong := self._signer.check(request.headers, self._clock(), body):
            raise Problem(401, wrong)
        message = self._message(request.headers, body)
        assert self._receive is not None
        try:
            refused = await self._receive(message)
        except StorageError:
            why = "the message could not be stored; send it again with the same webhook-id"
            raise Problem(503, why, headers=_AGAIN) from None
        if refused in _LATER:
            why = f"too many messages ({refused}); send it later, with a new webhook-id"
            raise Problem(429, why, headers={"Retry-After": "60"})
        if refused:
            raise Problem(403, f"the gateway does not answer this sender ({refused})")
        return JSONResponse({"id": message.native_id}, 202)

    def _message(self, headers: Mapping[str, str], body: bytes) -> InboundMessage:
        try:
            given = Posted.model_validate_json(body).model_dump()
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            key = ".".join(map(str, first["loc"])) or "the body"
            raise Problem(400, f"{key:.80}: {first['msg']:.200}") from None
        chat, sender, content = (given.pop(key) for key in ("chat_id", "sender_id", "content"))
        if not content.strip():
            raise Problem(400, "content is blank; write a text")
        about: dict[str, Any] = {
            "native_id": headers["webhook-id"],
            "sent": int(headers["webhook-timestamp"]),
        }
        made = inbound(self.name, sender, chat, content, **about, **given)
        if given["group"] or sender == chat:
            return made
        # a direct chat is one sender's
        return replace(made, session_key=f"{self.name}:{chat}:{given['topic'] or ''}:{sender}")

    # --- Send: to readers.

    def publish(self, chat_id: str) -> None:
        """Let the readers of a chat look for what is new; call it when a message is `sent`."""
        for reader in self._readers.get(chat_id, ()):
            reader.set()

    async def _get(self, request: Request) -> Response:
        given = request.headers.get("authorization", "").encode()
        token = self._secrets["token"]
        if not token or not hmac.compare_digest(given, f"Bearer {token}".encode()):
            why = f"reading needs the header Authorization: Bearer, with channels.{self.name}.token"
            raise Problem(401, why, headers={"WWW-Authenticate": "Bearer"})
        chat, query = request.query_params.get("chat_id", ""), request.query_params
        after = request.headers.get("last-event-id") or query.get("after", "0")
        if not chat or not re.fullmatch(r"[0-9]{1,18}", after):
            raise Problem(400, "give ?chat_id=, and a number as Last-Event-ID or &after=")
        if self.past is None or sum(map(len, self._readers.values())) >= _READERS:
            raise Problem(503, "no reader more can be served; try again", headers=_AGAIN)
        events = self._events(self.past, chat, int(after))
        return StreamingResponse(events, media_type="text/event-stream", headers=_SSE)

    async def _events(self, past: Past, chat: str, after: int) -> AsyncIterator[str]:
        """Yield what is in the outbox after a number, and what comes."""
        wake = asyncio.Event()
        self._readers.setdefault(chat, set()).add(wake)
        try:
            yield ": open\n\n"
            while self._server is not None:
                wake.clear()
                found = await past(chat, after)  # a part of what a long absence left
                for after, message in found:  # the next look begins behind it
                    yield f"id: {after}\nevent: message\ndata: {_data(message).decode()}\n\n"
                if found:
                    continue
                try:
                    async with asyncio.timeout(_PING):
                        await wake.wait()
                except TimeoutError:
                    yield ": ping\n\n"
        finally:
            self._readers[chat].discard(wake)
            if not self._readers[chat]:
                del self._readers[chat]

    # --- Send: to the callback.

    async def send(self, message: OutboundMessage, key: str) -> str:
        """Post a message to the callback; without one, readers find it in the outbox.

        Raises:
            DeliveryError: The callback did not take it.
        """
        if message.media:
            said = f"the channel {self.name} sends no files; write what they hold"
            raise DeliveryError(said, permanent=True)
        if not self._to:
            return ""
        number = key if _ID.fullmatch(key) else sha256(key.encode()).hexdigest()
        body = _data(message)
        headers = self._signer.headers(number, int(self._clock()), body)
        headers["Content-Type"] = "application/json"
        try:
            answer = await self._client.send("POST", self._to, headers=headers, content=body)
        except RefusedError as error:
            raise DeliveryError(f"the callback is refused: {error}", permanent=True) from None
        except ToolError as error:
            raise DeliveryError(f"the callback failed: {error}") from None
        if answer.url != str(Target.parse(self._to)):
            raise DeliveryError("the callback redirects; set its final address", permanent=True)
        if not 200 <= answer.status < 300:
            wait = answer.headers.get("retry-after", "")
            raise DeliveryError(
                f"the callback answered with {answer.status}",
                retry_after=float(wait) if re.fullmatch(r"[0-9]{1,5}", wait) else None,
                permanent=answer.status == 410,
            )
        return number


async def _answer(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, Problem)
    return JSONResponse(problem.body(), problem.status, problem.headers)


async def _body(request: Request) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for part in request.stream():
                body += part
                if len(body) > MAX_BODY:
                    raise Problem(413, f"the body has more than {MAX_BODY} bytes", headers=_CLOSE)
    except (TimeoutError, ClientDisconnect):
        raise Problem(408, "the body did not arrive in time", headers=_CLOSE) from None
    return bytes(body)


def _data(message: OutboundMessage) -> bytes:
    """Return a message as JSON on one line; files of this machine are not named."""
    made: dict[str, Any] = {"chat_id": message.chat_id, "content": message.content}
    if message.reply_to:
        made["reply_to"] = message.reply_to
    if message.buttons:
        made["buttons"] = [{"label": label, "code": code} for label, code in message.buttons]
    return json.dumps(made).encode()
