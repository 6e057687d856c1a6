"""A tool that looks something up over HTTP, for the attacks by way of the web."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from wick_graph.tools import HTTPTool, ToolContext
from wick_graph.web import Client

SECRET = "Bearer sk-secret-token-0123456789"
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"id": {"type": "string"}}}


def context(key: str = "step:0") -> ToolContext:
    ids: dict[str, Any] = dict.fromkeys(("thread_id", "run_id", "state", "config"))
    return ToolContext(call_id="c", name="t", key=key, index=0, attempt=1, agent="a", **ids)


def tool(url: str, **more: Any) -> HTTPTool:
    client = more.pop("client", None) or Client(allow=[url])
    return HTTPTool("lookup", "Look up", SCHEMA, url, client, **more)


async def called(made: HTTPTool, args: dict[str, Any] | None = None) -> str:
    return await made.execute(args or {"id": "7"}, context())


def answers(monkeypatch: pytest.MonkeyPatch, name: str, *found: list[str]) -> list[str]:
    """Let the resolver give these addresses for a name, one list after the other."""
    real, asked = socket.getaddrinfo, []

    def getaddrinfo(host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
        if host not in (name, name.encode()):
            return real(host, port, *args, **kwargs)
        asked.append(name)
        listed = found[min(len(asked), len(found)) - 1]
        entries = [real(address, port, *args, **kwargs) for address in listed]
        return [entry for several in entries for entry in several]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return asked
