"""The checks before every route: token, host, origin, limits; and the context of a request."""

from __future__ import annotations

import asyncio
import json
import math
import secrets
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, NoReturn
from urllib.parse import urlsplit

from fastapi import Depends, Request
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.types import Scope as AsgiScope

from wick_graph.engine.agent import Agent
from wick_graph.engine.result import new_thread_id
from wick_graph.messages.content import json_parts
from wick_graph.server.limits import CLOSE, Budgets
from wick_graph.server.sign_in import LINK, SignIns
from wick_graph.service.detached import DetachedRun, wait_for_start
from wick_graph.service.options import (
    LOCAL,
    Problem,
    ServerOptions,
    error_body,
    is_loopback,
    log,
    problem_of,
)
from wick_graph.service.runs import RunRequest
from wick_graph.service.service import Service, Tenant
from wick_graph.store import SqlSaver
from wick_graph.store.server_rows import ServerRuns, StreamRow, TokenScope, includes
from wick_graph.store.threads import ThreadInfo
from wick_graph.tracing import recording
from wick_graph.tracing.otel import RequestTracer

# --- Parse a request's JSON: unambiguous and within limits.


_DIGITS: Final = 400


def parse(body: bytes, depth: int, values: int) -> Any:
    """Parse JSON; refuse duplicate keys, NaN, lone surrogates, and too much size or depth.

    Args:
        body: The JSON.
        depth: Allowed levels of nested containers.
        values: Allowed number of keys, items and containers together.

    Raises:
        Problem: 400, with the first error.
    """
    if not body:
        raise Problem(400, "the body is empty; send JSON")
    if json_parts(body, values) > values:
        raise Problem(400, f"the JSON has more than {values} keys and items; send less at once")
    try:
        text = body.decode("utf-8")
        value = json.loads(
            text, object_pairs_hook=_once, parse_constant=_no_number, parse_int=_whole
        )
    except UnicodeDecodeError:
        raise Problem(400, "the body is not UTF-8") from None
    except RecursionError:
        raise Problem(400, f"the JSON is nested more than {depth} deep") from None
    except ValueError as error:
        raise Problem(400, f"invalid JSON: {error}") from None
    _check(value, depth)
    return value


def _check(value: Any, depth: int) -> None:
    """Walk the value level by level."""
    level = [value]
    for _ in range(depth):
        below: list[Any] = []
        for item in level:
            if isinstance(item, str):
                _check_text(item)
            elif isinstance(item, float) and math.isinf(item):
                raise Problem(400, "invalid JSON: a number is too large")
            elif isinstance(item, dict):
                for key in item:
                    _check_text(key)
                below += item.values()
            elif isinstance(item, list):
                below += item
        if not below:
            return
        level = below
    raise Problem(400, f"the JSON is nested more than {depth} deep")


def _check_text(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise Problem(400, "invalid JSON: half of a surrogate pair is not a character") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a key occurs twice in one object")
    return made


def _whole(digits: str) -> int:
    if len(digits) > _DIGITS:  # parsing takes time quadratic in the length
        raise ValueError(f"a number has more than {_DIGITS} digits")
    return int(digits)


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


# --- The guard before every route: token, host, origin, limits.


OPEN: Final = frozenset({"/health", "/livez", "/readyz"})
"""Paths that need no token; the page's files need none either."""

PAGE: Final = "/ui"
"""Path of the page, and the beginning of the paths of its files."""

API: Final = "/ui/api/v1"
"""Beginning of the paths of the page's API."""

SIGN_IN: Final = f"{API}/sign-in"

SECRET: Final = "x-wick-secret"
"""The header with a signed-in browser's second secret."""

_LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")

_TOKEN_LENGTH: Final = 256

_HEAD: Final = 65_536

_LARGE: Final = 16_384
"""Size in bytes from which bodies are checked one at a time."""

_WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})

_SECURITY: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request."""

    tenant: str
    scope: str
    token: str = ""
    """The token's id; empty without tokens."""

    def allows(self, wanted: TokenScope) -> bool:
        """Return whether the caller has a scope."""
        return includes(self.scope, wanted)

    @property
    def who(self) -> str:
        """The caller's name in records of approvals."""
        return f"token {self.token}" if self.token else "local"

    def require(self, *wanted: TokenScope) -> None:
        """Check that the caller has one of these scopes.

        Raises:
            Problem: 403.
        """
        if not any(map(self.allows, wanted)):
            needed = " or ".join(wanted)
            raise Problem(403, f"the token's scope is {self.scope}; this needs {needed}")


_LOCAL: Final = Caller(LOCAL, "admin")
"""The caller of a server without tokens."""

Needs = Callable[[Scope], tuple[TokenScope, ...] | None]
"""Return the scopes that open a request's route, any one: none for a method that its path has not.

None if there is no such path.
"""


class Guard:
    """ASGI middleware that checks every request."""

    def __init__(
        self, app: ASGIApp, service: Service, needs: Needs, sign_ins: SignIns, budgets: Budgets
    ) -> None:
        self._app, self._service, self._needs = app, service, needs
        self._sign_ins = sign_ins
        self._options: ServerOptions = service.options
        self._budgets = budgets
        self._turn = asyncio.Lock()
        """Held while one large body is checked; other requests are answered between two of them."""
        own = (self._options.host, *self._options.allowed_hosts)
        self._hosts = {name.lower() for name in (*_LOOPBACK, *own)}
        # A server on a network requires tokens, and a page of a foreign host name has none.
        self._any_host = not is_loopback(self._options.host) and not self._options.allowed_hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
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
                raise Problem(426, "websockets are not supported; use the event streams")
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
        """Let the application answer; keep the caller's tenant open meanwhile."""
        headers = Headers(scope=scope)
        if "upgrade" in headers and "websocket" in headers["upgrade"].lower():
            raise Problem(426, "websockets are not supported; use the event streams")
        _check_head(headers)
        self._check_host(headers)
        self._check_origin(headers)
        if scope["path"] in OPEN or _is_file(scope["path"]):
            await self._app(scope, receive, send)  # no body is read from an unknown caller
            return
        caller = await self._caller(headers, scope)
        scope["state"]["caller"] = caller
        scope = self._of_server(scope)
        address, limits = (scope.get("client") or ("",))[0], self._service.file.limits
        each = self._options.limits.requests_per_minute
        self._budgets.admit(caller.token or address, each, caller.tenant, limits)
        with self._budgets.answering(caller.tenant, limits):
            if scope["method"] in _WITH_BODY and self._may(caller, scope):
                receive = await self._body(headers, caller, receive)
            async with self._service.using(caller.tenant) as tenant:
                scope["state"]["tenant"] = tenant
                await self._app(scope, receive, send)

    def _of_server(self, scope: Scope) -> Scope:
        """Lead a path of the page's API to the server's own route if the page has none there."""
        path: str = scope["path"]
        if not path.startswith(f"{API}/") or self._needs(scope) is not None:
            return scope
        return {**scope, "path": path.removeprefix(API), "raw_path": path[len(API) :].encode()}

    def _may(self, caller: Caller, scope: Scope) -> bool:
        """Return whether a route takes the body; otherwise it is not read.

        Raises:
            Problem: The caller's token does not allow it.
        """
        needed = self._needs(scope)
        if needed:
            caller.require(*needed)
        return bool(needed)

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

    async def _caller(self, headers: Headers, scope: Scope) -> Caller:
        given, is_page = headers.getlist("authorization"), scope["path"].startswith(f"{API}/")
        if is_page and not given:
            caller = await self._signed_in(headers) if self._options.auth else _LOCAL
            _check_page(headers, scope)  # the secret alone is not enough for a write
            return caller
        if not self._options.auth:
            return _LOCAL
        if not given and not is_page:  # as LangGraph's clients send it
            given = [f"Bearer {key}" for key in headers.getlist("x-api-key")]
        token = given[0].removeprefix("Bearer ") if len(given) == 1 else ""
        if token.startswith(LINK) and scope["path"] == SIGN_IN and scope["method"] == "POST":
            _check_page(headers, scope)  # a refused request does not use the link up
            signed = self._sign_ins.redeem(token)
            if signed is not None:
                return Caller(signed.tenant, signed.scope, signed.token)
        if token and token != given[0] and len(token) < _TOKEN_LENGTH:
            tokens = self._service.tokens
            info = await self._service.local.saver.streams.run(tokens.check, token)
            if info is not None:
                return Caller(info.tenant, info.scope, info.id)
        raise Problem(401, "a valid token is needed", headers={"WWW-Authenticate": "Bearer"})

    async def _signed_in(self, headers: Headers) -> Caller:
        """Return who the browser has signed in as; it ends when the token does."""
        secret, cookies = headers.get(SECRET, ""), "; ".join(headers.getlist("cookie"))
        signed = self._sign_ins.find(cookies, secret) if secret else None
        if signed is None:
            raise Problem(401, "sign in again")
        caller = Caller(signed.tenant, signed.scope, signed.token)
        if caller.token:
            streams, tokens = self._service.local.saver.streams, self._service.tokens
            if not await streams.run(tokens.is_valid, caller.token):
                self._sign_ins.end(cookies)
                raise Problem(401, "the token has ended; sign in again with another one")
        return caller

    async def _body(self, headers: Headers, caller: Caller, receive: Receive) -> Receive:
        """Read and check the whole body; return a `receive` that replays it."""
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise Problem(415, "send the body without a content encoding")
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
                parse(body, limits.depth, limits.values)
            return _replay(body, receive)
        async with self._turn:
            parse(body, limits.depth, limits.values)
            await asyncio.sleep(0)  # so that the loop checks only one body per iteration
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


def _is_file(path: str) -> bool:
    return path == PAGE or (path.startswith(f"{PAGE}/") and not path.startswith(f"{PAGE}/api/"))


def _check_page(headers: Headers, scope: Scope) -> None:
    """Refuse a request with a browser's own credentials from anywhere but the page itself."""
    origin = headers.get("origin")
    writes = scope["method"] not in ("GET", "HEAD")
    if writes and origin is None:
        raise Problem(403, "send the Origin of the page with a write")
    foreign = headers.get("sec-fetch-site", "none") not in ("same-origin", "none")
    if foreign or (origin is not None and _place_of(origin) != headers["host"].lower()):
        raise Problem(403, "pages of other origins may not use this server")
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if writes and kind != "application/json":
        raise Problem(415, "send JSON, with Content-Type: application/json")


_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


def _check_head(headers: Headers) -> None:
    """Refuse a head that a proxy may have read differently."""
    if "content-length" in headers and "transfer-encoding" in headers:
        raise Problem(
            400,
            "the request has both Content-Length and Transfer-Encoding; send one",
            headers=CLOSE,
        )
    if sum(len(key) + len(value) for key, value in headers.raw) > _HEAD:
        raise Problem(400, f"the head is larger than {_HEAD} bytes", headers=CLOSE)


def method_of(scope: Scope) -> str:
    """Return a request's method as a metric label; `other` if it is unusual."""
    method = str(scope.get("method", ""))
    return method if method in _METHODS else "other"


def _replay(
    body: bytes, receive: Receive, turn: asyncio.Lock | None = None
) -> Callable[[], Awaitable[Message]]:
    """Return a `receive` that replays the body; a large one waits for its turn.

    The application parses and validates a body in the same iteration of the loop in which it
    receives it, so the turn ends with that iteration.
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
    """Return an origin's host and port; None, which equals no `Host`, if it has none."""
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:
        return None


async def _answer(problem: Problem, scope: Scope, send: Send) -> None:
    body: Any = json.dumps(
        error_body(problem, scope["path"]), ensure_ascii=True, default=str
    ).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    headers += [(key.lower().encode(), value.encode()) for key, value in problem.headers.items()]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


# --- A tracing span around every request.


class Traced:
    """ASGI middleware that records a span for every request."""

    def __init__(self, app: ASGIApp, tracer: RequestTracer) -> None:
        self._app: Final = app
        self._tracer: Final = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request inside its span; a run that it starts belongs to the span."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        tracer = self._tracer
        with (
            tracer.request(method_of(scope), Headers(scope=scope)) as span,
            recording(tracer.recorder),
        ):

            async def sending(message: Message) -> None:
                if message["type"] == "http.response.start":
                    span.answered(message["status"])
                await send(message)

            try:
                await self._app(scope, receive, sending)
            except Exception as error:
                span.failed(type(error).__name__)
                raise
            finally:
                route: Any = scope.get("route")
                if route is not None:
                    span.routed(route.path)


# --- The context of a request: the caller, the tenant, and what they may use.


@dataclass(frozen=True, slots=True)
class RequestContext:
    """What a route gets: the caller, its tenant and the service."""

    caller: Caller
    tenant: Tenant
    service: Service

    @property
    def options(self) -> ServerOptions:
        """The server's options."""
        return self.service.options

    @property
    def saver(self) -> SqlSaver:
        """The tenant's store."""
        return self.tenant.saver

    @property
    def streams(self) -> ServerRuns:
        """The tenant's rows of server runs."""
        return self.tenant.saver.streams

    async def agent(self, agent_id: str | None) -> Agent:
        """Return an agent; the default one if none is named.

        Raises:
            Problem: There is no such agent, or it cannot be built.
        """
        named = agent_id or self.tenant.agents.default_id
        if named not in self.tenant.agents:  # it may have been added at another server just now
            await self.tenant.refresh(now=True)
        return await self.tenant.agents.ready(named)

    async def with_context(
        self, agent: Agent, request: RunRequest, thread_id: str | None
    ) -> RunRequest:
        """Return a request with a checked context, in which the identity is the token's.

        A run that continues without one gets that of the thread's last run, as after a crash, if
        that was of the same agent: another one may let its callers choose an identity.

        Raises:
            ConfigError: It does not fit the agent's schema.
            Problem: The store has no keys, so it would keep the context readable.
        """
        schema, given = agent.spec.context, request.context
        if given is not None and not self.saver.is_encrypted:
            raise Problem(400, "the server keeps no context without encryption; set store_keys")
        if given is None and request.kind == "resume" and thread_id is not None:
            rows = await self.streams.run(self.streams.of_thread, thread_id, 1)
            last = rows[0].asked if rows and rows[0].asked["agent"] == request.agent_id else {}
            if (known := last.get("context")) is not None:
                return replace(request, context=known)
        if schema is None:
            return request  # the agent refuses one
        made = schema.with_subject(agent.name, given, self.caller.token or LOCAL)
        return replace(request, context=made)

    async def begin(
        self,
        request: RunRequest,
        thread_id: str | None,
        key: str | None = None,
        *,
        waits: bool = False,
    ) -> DetachedRun | StreamRow:
        """Start a run for the caller, in a new thread unless the caller names one.

        With `waits`, it waits for earlier runs of the thread.

        Raises:
            Problem: The server accepts no more runs.
            ThreadBusyError: The thread has a running run.
        """
        self.service.check_capacity()
        agent, where = await self.agent(request.agent_id), thread_id or new_thread_id()
        request = await self.with_context(agent, request, thread_id)
        named = thread_id is not None
        run = await self.tenant.runs.start(agent, request, where, key, named=named, waits=waits)
        if isinstance(run, DetachedRun):
            await wait_for_start(run)
        return run

    async def thread(self, thread_id: str) -> ThreadInfo:
        """Return a thread.

        Raises:
            Problem: There is no such thread.
        """
        found = await self.saver.threads.aget(thread_id)
        if found is None:
            raise Problem(404, "thread not found")
        return found

    async def agent_of(self, thread_id: str) -> Agent:
        """Return the agent that a thread belongs to.

        Raises:
            Problem: There is no such thread, or the agent is gone.
        """
        thread = await self.thread(thread_id)
        rows = await self.streams.run(self.streams.of_thread, thread_id, 1)
        named = rows[0].asked["agent"] if rows else thread.agent
        return await self.agent(named if named in self.tenant.agents else None)

    def require(self, scope: TokenScope) -> None:
        """Check that the caller has a scope.

        Raises:
            Problem: The token's scope does not allow it.
        """
        self.caller.require(scope)

    async def is_admitted(self) -> bool:
        """Return whether the caller's token is still valid; for answers without an end."""
        service, token = self.service, self.caller.token
        if not token:
            return True
        found: bool = await service.local.saver.streams.run(service.tokens.is_valid, token)
        return found

    async def check_waiting_agent(self, thread_id: str, agent: Agent) -> None:
        """Check that a waiting thread waits under this agent.

        Raises:
            Problem: There is no such thread, or it waits for a decision under another agent.
        """
        thread = await self.thread(thread_id)
        if thread.status == "waiting" and thread.agent not in (None, agent.name):
            raise Problem(
                409,
                f"the thread waits under the agent {thread.agent}, not {agent.name}; "
                "answer under that one, or send a new message",
            )


def _context_for(*scopes: TokenScope) -> Callable[[Request], Awaitable[RequestContext]]:
    async def context(request: Request) -> RequestContext:  # async: too short for a thread
        caller: Any = request.scope["state"]["caller"]
        caller.require(*scopes)
        return RequestContext(caller, request.scope["state"]["tenant"], request.app.state.service)

    context.needs = scopes  # type: ignore[attr-defined]  # the guard reads it before it reads a body
    return context


def needed_by(routes: Iterable[APIRoute]) -> Needs:
    """Return a function that finds the scopes that open a request's route."""
    found = [
        (route, next(s for part in route.dependant.dependencies if (s := _needs(part.call))))
        for route in routes
        if any(_needs(part.call) for part in route.dependant.dependencies)
    ]

    def needs(scope: AsgiScope) -> tuple[TokenScope, ...] | None:
        known: tuple[TokenScope, ...] | None = None
        for route, wanted in found:
            match = route.matches(scope)[0]
            if match is Match.FULL:
                return wanted
            known = () if match is Match.PARTIAL else known
        return known

    return needs


def _needs(call: Any) -> tuple[TokenScope, ...] | None:
    return getattr(call, "needs", None)


Reader = Annotated[RequestContext, Depends(_context_for("read"))]

Runner = Annotated[RequestContext, Depends(_context_for("run"))]

Answerer = Annotated[RequestContext, Depends(_context_for("run", "approve"))]
"""For answers: a question needs `run`, a waiting call needs `approve`."""

Debugging = Annotated[RequestContext, Depends(_context_for("debug"))]

Admin = Annotated[RequestContext, Depends(_context_for("admin"))]
