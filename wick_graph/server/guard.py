"""What stands before every route: who asks, from where, how much, how often."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from wick_graph.server import strict
from wick_graph.server.budgets import CLOSE, Budgets
from wick_graph.server.options import ServerOptions, is_loopback
from wick_graph.server.problems import Problem, log, problem_of, told
from wick_graph.server.service import Service
from wick_graph.server.tenancy import LOCAL
from wick_graph.store.keeping.tokens import Scope as TokenScope
from wick_graph.store.keeping.tokens import includes

OPEN: Final = frozenset({"/health"})
"""What answers without a token."""
_LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")
_TOKEN_LENGTH: Final = 256
_HEAD: Final = 65_536
_LARGE: Final = 16_384
"""Bytes from which on bodies are checked one after the other."""
_WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH"})
_SECURITY: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks."""

    tenant: str
    scope: str
    token: str = ""
    """The token's id; empty where there are no tokens."""

    def allows(self, wanted: TokenScope) -> bool:
        """Say whether the caller may do something."""
        return includes(self.scope, wanted)

    @property
    def who(self) -> str:
        """What records of approvals call the caller."""
        return f"token {self.token}" if self.token else "local"

    def must_have(self, *wanted: TokenScope) -> None:
        """Refuse a caller who has none of these scopes.

        Raises:
            Problem: 403.
        """
        if not any(map(self.allows, wanted)):
            needed = " or ".join(wanted)
            raise Problem(403, f"the token's scope is {self.scope}; this needs {needed}")


Needs = Callable[[Scope], tuple[TokenScope, ...] | None]
"""Names the scopes of which a request's route needs one; None if there is no such route."""


class Guard:
    """An ASGI application around another one."""

    def __init__(self, app: ASGIApp, service: Service, needs: Needs) -> None:
        self._app, self._service, self._needs = app, service, needs
        self._options: ServerOptions = service.options
        self._budgets = Budgets()
        self._turn = asyncio.Lock()
        """Held by the one large body that is checked now: between two, others are answered."""
        own = (self._options.host, *self._options.allowed_hosts)
        self._hosts = {name.lower() for name in (*_LOOPBACK, *own)}
        # Whoever binds to a network has tokens, and a page of a foreign name has none of them.
        self._any_host = not is_loopback(self._options.host) and not self._options.allowed_hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        number = secrets.token_hex(8)
        started = False

        async def sending(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                caller = scope.get("state", {}).get("caller")
                mine = self._service.metrics_of(LOCAL if caller is None else caller.tenant)
                mine.answered(method_of(scope), message["status"])
                own = [(b"x-request-id", number.encode()), *_SECURITY]
                message = {**message, "headers": [*message.get("headers", ()), *own]}
            await send(message)

        try:
            if scope["type"] != "http":
                raise Problem(426, "there are no websockets here; use the event streams")
            scope.setdefault("state", {})["request_id"] = number
            await self._admit(scope, receive, sending)
        except Exception as error:
            problem = problem_of(error)
            if started:
                log.error("request %s broke off: %s", number, problem.error)
                raise
            if problem.status >= 500:
                problem.more = {**problem.more, "request_id": number}
            await _answer(problem, scope, sending)

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the application answer; the caller's tenant stays open until it has."""
        headers = Headers(scope=scope)
        if "upgrade" in headers and "websocket" in headers["upgrade"].lower():
            raise Problem(426, "there are no websockets here; use the event streams")
        _check_head(headers)
        self._check_host(headers)
        self._check_origin(headers)
        if scope["path"] in OPEN:
            await self._app(scope, receive, send)  # from somebody unknown no body is taken
            return
        caller = await self._caller(headers)
        scope["state"]["caller"] = caller
        address, limits = (scope.get("client") or ("",))[0], self._service.file.limits
        each = self._options.limits.requests_per_minute
        self._budgets.admit(caller.token or address, each, caller.tenant, limits)
        with self._budgets.answering(caller.tenant, limits):
            if scope["method"] in _WITH_BODY and self._may(caller, scope):
                receive = await self._body(headers, caller, receive)
            async with self._service.using(caller.tenant) as tenant:
                scope["state"]["tenant"] = tenant
                await self._app(scope, receive, send)

    def _may(self, caller: Caller, scope: Scope) -> bool:
        """Say whether there is something that takes a body; of no other caller it is read.

        Raises:
            Problem: The caller's token does not allow it.
        """
        needed = self._needs(scope)
        if needed is not None:
            caller.must_have(*needed)
        return needed is not None

    def _check_host(self, headers: Headers) -> None:
        named = headers.getlist("host")
        host = _without_port(named[0].lower()) if len(named) == 1 else ""
        if len(named) != 1 or (host not in self._hosts and not self._any_host):
            raise Problem(403, "this server is not known under that host name")

    def _check_origin(self, headers: Headers) -> None:
        origin = headers.get("origin")
        if origin is not None and origin in self._options.allowed_origins:
            return
        same = origin is not None and _place_of(origin) == headers["host"].lower()
        foreign = headers.get("sec-fetch-site", "none") == "cross-site"
        if (origin is not None and not same) or foreign:
            raise Problem(403, "pages of other origins may not use this server")

    async def _caller(self, headers: Headers) -> Caller:
        if not self._options.auth:
            return Caller(LOCAL, "admin")
        given = headers.getlist("authorization")
        token = given[0].removeprefix("Bearer ") if len(given) == 1 else ""
        if token and token != given[0] and len(token) < _TOKEN_LENGTH:
            tokens = self._service.tokens
            info = await self._service.local.saver.streams.run(tokens.check, token)
            if info is not None:
                return Caller(info.tenant, info.scope, info.id)
        raise Problem(401, "a valid token is needed", headers={"WWW-Authenticate": "Bearer"})

    async def _body(self, headers: Headers, caller: Caller, receive: Receive) -> Receive:
        """Read and check the whole body, and hand it on."""
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise Problem(415, "send the body as it is, without a content encoding")
        limits = self._options.limits
        declared = headers.get("content-length", "")
        size = int(declared[:20]) if declared.isdigit() else limits.body
        if size > limits.body:
            raise Problem(413, f"the body is larger than {limits.body} bytes", headers=CLOSE)
        with self._budgets.reading(caller.tenant, self._service.file.limits, size) as pieces:
            await self._read(pieces, receive)
        body = b"".join(pieces)
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if body and kind != "application/json":
            raise Problem(415, "send JSON, with Content-Type: application/json")
        if len(body) < _LARGE:
            if body:
                strict.parse(body, limits.depth, limits.values)
            return _replay(body, receive)
        async with self._turn:
            strict.parse(body, limits.depth, limits.values)
            await asyncio.sleep(0)  # so that only one is checked in a round of the loop
        return _replay(body, receive, self._turn)

    async def _read(self, pieces: list[bytes], receive: Receive) -> None:
        limit, size = self._options.limits.body, 0
        try:
            async with asyncio.timeout(self._options.limits.header):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Problem(400, "the body broke off")
                    pieces.append(message.get("body", b""))
                    size += len(pieces[-1])
                    if size > limit:
                        raise Problem(413, f"the body is larger than {limit} bytes", headers=CLOSE)
                    if not message.get("more_body"):
                        return
        except TimeoutError:
            raise Problem(408, "the body came too slowly", headers=CLOSE) from None


_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


def _check_head(headers: Headers) -> None:
    """Refuse a head that another program on the way may have read in another sense."""
    if "content-length" in headers and "transfer-encoding" in headers:
        raise Problem(400, "a body has one length", headers=CLOSE)
    if sum(len(key) + len(value) for key, value in headers.raw) > _HEAD:
        raise Problem(400, f"the head is larger than {_HEAD} bytes", headers=CLOSE)


def method_of(scope: Scope) -> str:
    """Return a request's method, or that it is none of the usual ones: it becomes a label."""
    method = str(scope.get("method", ""))
    return method if method in _METHODS else "other"


def _replay(
    body: bytes, receive: Receive, turn: asyncio.Lock | None = None
) -> Callable[[], Awaitable[Message]]:
    """Return a `receive` that hands the body on; a large one when it is its turn.

    The application parses and validates a body in the same step of the loop in which it gets it,
    so the turn ends with that step.
    """
    given: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        if not given:
            return await receive()
        message = given.pop()
        if turn is not None:
            await turn.acquire()
            asyncio.get_running_loop().call_soon(turn.release)
        return message

    return replayed


def _without_port(host: str) -> str:
    head, colon, port = host.rpartition(":")
    return head if colon and port.isdigit() and not host.endswith("]") else host


def _place_of(origin: str) -> str | None:
    """Return an origin's host and port; None if it has none, which no `Host` is equal to."""
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:
        return None


async def _answer(problem: Problem, scope: Scope, send: Send) -> None:
    body: Any = json.dumps(told(problem, scope["path"]), ensure_ascii=True, default=str).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    headers += [(key.lower().encode(), value.encode()) for key, value in problem.headers.items()]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
