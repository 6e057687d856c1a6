"""Serve Python functions as HTTP tools, to which `HTTPTool` forwards calls."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from typing import Any, Final

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from wick_graph.constants import DEFAULT_TOOL_TIMEOUT_SECONDS
from wick_graph.core.bridge import ASYNC_BRIDGE
from wick_graph.errors import ConfigError
from wick_graph.machine import listener
from wick_graph.messages import ToolCall
from wick_graph.server import guard
from wick_graph.service.options import Limits, Problem, is_loopback
from wick_graph.tools.bound import BoundTool, bind_tool
from wick_graph.tools.execute import execute
from wick_graph.tools.protocol import ToolContext
from wick_graph.tools.result import read_text
from wick_graph.tools.toolsets import check_free

_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")

_JSON: Final = "application/json"


def tool_app(tools: Iterable[Any], host: str = "127.0.0.1") -> Starlette:
    """Build an application that runs tools: `POST /tools/{name}`, `GET /tools`, `GET /health`.

    Args:
        tools: Functions and tools of every kind; they are checked and run like an agent's own.
        host: The address to listen on. On loopback it accepts only loopback host names, so that
            no web page reaches it under a name of its own.

    Raises:
        ConfigError: One is not a tool or has the name of a built-in tool, or two share a name.
    """
    bound = _bound(tools)
    served = _Served(bound, (host, *_LOOPBACK) if is_loopback(host) else ())
    routes = [
        Route("/health", served.health),
        Route("/tools", served.listed),
        Route("/tools/{name}", served.call, methods=["POST"]),
    ]
    return Starlette(routes=routes, exception_handlers={Problem: _answered})


def serve_tools(
    tools: Iterable[Any], host: str, port: int, ready: Callable[[list[str], str], None]
) -> None:
    """Serve tools until SIGTERM or Ctrl-C.

    Args:
        tools: As `tool_app` takes them.
        host: The address to listen on.
        port: 0 picks a free one.
        ready: Called with the tools' names and the origin once the server accepts requests.

    Raises:
        ConfigError: A tool is refused, or the address cannot be listened on.
    """
    bound = _bound(tools)
    config = uvicorn.Config(
        tool_app(bound.values(), host), log_level="warning", lifespan="off", server_header=False
    )
    with listener(host, port) as taken:
        at = f"[{host}]" if ":" in host else host
        ready(sorted(bound), f"http://{at}:{taken.getsockname()[1]}")
        uvicorn.Server(config).run(sockets=[taken])


def _bound(tools: Iterable[Any]) -> dict[str, BoundTool]:
    bound: dict[str, BoundTool] = {}
    for tool in map(bind_tool, tools):
        check_free(tool.name)
        if tool.name in bound:
            raise ConfigError(f"two tools are called {tool.name}; rename one")
        bound[tool.name] = tool
    return bound


class _Served:
    def __init__(self, tools: dict[str, BoundTool], hosts: tuple[str, ...]) -> None:
        self._tools = tools
        self._hosts = hosts

    async def health(self, request: Request) -> JSONResponse:
        """Report that the server is up."""
        self._check(request)
        return JSONResponse({"status": "ok"})

    async def listed(self, request: Request) -> JSONResponse:
        """List the tools in the format for registration."""
        self._check(request)
        return JSONResponse(
            {
                "tools": [
                    {"name": t.name, "description": t.description, "parameters": t.parameters}
                    for t in self._tools.values()
                ]
            }
        )

    async def call(self, request: Request) -> JSONResponse:
        """Run one call."""
        self._check(request)
        tool = self._tools.get(request.path_params["name"])
        if tool is None:
            raise Problem(404, "there is no such tool")
        args = _args(await _body(request))
        # a repeated call has the same key
        key = request.headers.get("idempotency-key", "")[:128] or secrets.token_hex(16)
        context = ToolContext(
            call_id=key,
            name=tool.name,
            key=key,
            index=0,
            attempt=1,
            thread_id=None,
            run_id=None,
            agent="",
            state={},
            config={},
            check=tool.check,
        )
        call = ToolCall(id=key, name=tool.name, args=args, ctx=context)
        done = await execute(call, tool, ASYNC_BRIDGE, DEFAULT_TOOL_TIMEOUT_SECONDS)
        if done.error is not None:
            return JSONResponse({"error": done.error})
        return JSONResponse({"result": read_text(done)})

    def _check(self, request: Request) -> None:
        named = request.url.hostname or ""
        if self._hosts and named.strip("[]") not in self._hosts:
            raise Problem(403, "this server is not known under that host name")


async def _body(request: Request) -> Any:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != _JSON:  # a page of another origin cannot send JSON without a preflight request
        raise Problem(415, "send JSON, with Content-Type: application/json")
    limits, body = Limits(), bytearray()
    try:
        async for part in request.stream():
            body += part
            if len(body) > limits.body:
                raise Problem(413, f"the body is larger than {limits.body} bytes")
    except ClientDisconnect:
        raise Problem(400, "the body broke off") from None
    return guard.parse(bytes(body), limits.depth, limits.values)


def _args(body: Any) -> dict[str, Any]:
    args = body.get("args", {}) if isinstance(body, dict) else None
    if not isinstance(args, dict):
        raise Problem(400, 'send {"name": …, "args": {…}}')
    return args


async def _answered(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, Problem)
    return JSONResponse(error.body(), status_code=error.status)
