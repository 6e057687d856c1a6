"""Every operation that the description names is used once, and nothing else is there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.server.support import AGENTS, serving

pytestmark = pytest.mark.xdist_group("endpoints")  # they share a server

ASK = {"messages": [{"role": "user", "content": "What is 21*2?"}]}
TOOL = {
    "name": "weather",
    "description": "Say what the weather is.",
    "parameters": {"type": "object"},
    "callback_url": "https://tools.example.com",
}
GOES_ON = {"thread_id": "{waiting}", "answer": {"decision": "approve"}}
SKILL = {"files": {"SKILL.md": "---\nname: knit\ndescription: How to knit.\n---\nKnit."}}
CHAT = {"model": "default", **ASK}
AG_UI = {"threadId": "ag-ui", "runId": "1", **ASK}
CHAT_7 = {
    "id": "ai-sdk",
    "messages": [{"id": "1", "role": "user", "parts": [{"type": "text", "text": "Hi"}]}],
}
RPC = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks"}
CARD = ".well-known/agent-card.json"
UI = "/ui/api/v1"
USES: dict[tuple[str, str], tuple[str, Any, int]] = {
    ("GET", "/health"): ("/health", None, 200),
    ("GET", "/livez"): ("/livez", None, 200),
    ("GET", "/readyz"): ("/readyz", None, 200),
    ("POST", "/ag-ui/{agent_id}"): ("/ag-ui/default", AG_UI, 200),
    ("POST", "/ai-sdk/{agent_id}"): ("/ai-sdk/default", CHAT_7, 200),
    ("GET", "/ai-sdk/{agent_id}/{thread_id}/stream"): (  # its run has ended
        "/ai-sdk/default/{thread}/stream",
        None,
        204,
    ),
    ("POST", "/a2a/{agent_id}"): ("/a2a/default", RPC, 200),
    ("GET", f"/a2a/{{agent_id}}/{CARD}"): (f"/a2a/default/{CARD}", None, 200),
    ("GET", "/metrics"): ("/metrics", None, 200),
    ("GET", "/agents"): ("/agents", None, 200),
    ("POST", "/agents"): ("/agents", {"agent_id": "new", "model": "scripted:demo"}, 201),
    ("GET", "/agents/{agent_id}"): ("/agents/default", None, 200),
    ("DELETE", "/agents/{agent_id}"): ("/agents/{own}", None, 204),
    ("POST", "/agents/invoke"): ("/agents/invoke", ASK, 200),
    ("POST", "/agents/{agent_id}/invoke"): ("/agents/default/invoke", ASK, 200),
    ("POST", "/agents/stream"): ("/agents/stream", ASK, 200),
    ("POST", "/agents/{agent_id}/stream"): ("/agents/default/stream", ASK, 200),
    ("POST", "/agents/resume"): ("/agents/resume", GOES_ON, 200),
    ("POST", "/agents/{agent_id}/resume"): ("/agents/careful/resume", GOES_ON, 200),
    ("GET", "/agents/hitl/{request_id}"): ("/agents/hitl/{question}", None, 200),
    ("POST", "/agents/hitl/{request_id}/respond"): (
        "/agents/hitl/{question}/respond",
        {"response": "approve"},
        200,
    ),
    ("GET", "/agents/{agent_id}/flow"): ("/agents/default/flow", None, 200),
    ("PATCH", "/agents/{agent_id}/hooks"): ("/agents/default/hooks", {"add": ["todolist"]}, 200),
    ("GET", "/containers"): ("/containers", None, 200),
    ("POST", "/agents/{agent_id}/container"): (  # its commands run in none
        "/agents/default/container",
        {"action": "stop"},
        409,
    ),
    ("GET", "/skills"): ("/skills", None, 200),
    ("PUT", "/skills/{name}"): ("/skills/knit", SKILL, 200),
    ("GET", "/skills/{name}"): ("/skills/{skill}", None, 200),
    ("DELETE", "/skills/{name}"): ("/skills/{skill}", None, 204),
    ("GET", "/agents/{agent_id}/skills"): ("/agents/default/skills", None, 200),
    ("GET", "/agents/{agent_id}/files/list"): ("/agents/default/files/list", None, 200),
    ("GET", "/agents/{agent_id}/files/read"): ("/agents/default/files/read?path=a.txt", None, 200),
    ("GET", "/agents/files/download"): ("/agents/files/download?path=a.txt", None, 200),
    ("PUT", "/agents/files/upload"): (
        "/agents/files/upload",
        {"path": "b.txt", "content": "b"},
        200,
    ),
    ("GET", "/agents/tools/available"): ("/agents/tools/available", None, 200),
    ("POST", "/agents/tools/register"): ("/agents/tools/register", TOOL, 200),
    ("DELETE", "/agents/tools/deregister/{name}"): ("/agents/tools/deregister/{tool}", None, 200),
    ("GET", "/agents/messages/test"): ("/agents/messages/test", None, 200),
    ("GET", "/agents/traces"): ("/agents/traces", None, 200),
    ("GET", "/agents/traces/{trace_id}"): ("/agents/traces/{run}", None, 200),
    ("GET", "/runs/{run_id}"): ("/runs/{run}", None, 200),
    ("GET", "/runs/{run_id}/events"): ("/runs/{run}/events", None, 200),
    ("POST", "/runs/{run_id}/cancel"): ("/runs/{run}/cancel", None, 200),
    ("GET", "/threads"): ("/threads", None, 200),
    ("GET", "/threads/{thread_id}"): ("/threads/{thread}", None, 200),
    ("DELETE", "/threads/{thread_id}"): ("/threads/{thread}", None, 204),
    ("GET", "/threads/{thread_id}/state"): ("/threads/{thread}/state", None, 200),
    ("GET", "/threads/{thread_id}/history"): ("/threads/{thread}/history", None, 200),
    ("POST", "/threads/{thread_id}/fork"): ("/threads/{thread}/fork", {}, 201),
    ("POST", "/threads/{thread_id}/pin"): ("/threads/{thread}/pin", {}, 200),
    ("POST", "/threads/{thread_id}/cancel"): ("/threads/{thread}/cancel", None, 200),
    ("GET", "/threads/{thread_id}/runs"): ("/threads/{thread}/runs", None, 200),
    ("GET", "/threads/{thread_id}/events"): ("/threads/{thread}/events", None, 200),
    ("GET", "/threads/{thread_id}/journal"): ("/threads/{thread}/journal", None, 200),
    ("GET", "/threads/{thread_id}/approvals"): ("/threads/{waiting}/approvals", None, 200),
    ("GET", "/v1/models"): ("/v1/models", None, 200),
    ("GET", "/v1/models/{model}"): ("/v1/models/default", None, 200),
    ("POST", "/v1/chat/completions"): ("/v1/chat/completions", CHAT, 200),
    ("POST", f"{UI}/sign-in"): (f"{UI}/sign-in", {}, 200),
    ("DELETE", f"{UI}/sign-in"): (f"{UI}/sign-in", {}, 204),
    ("GET", f"{UI}/me"): (f"{UI}/me", None, 200),
    ("GET", f"{UI}/agents/{{agent_id}}/graph"): (f"{UI}/agents/default/graph", None, 200),
    **{
        ("GET", f"{UI}/threads/{{thread_id}}/{part}"): (
            f"{UI}/threads/{{thread}}/{part}{'?q=it' if part == 'search' else ''}",
            None,
            200,
        )
        for part in ("recording", "moments", "search", "graph", "overview", "export")
    },
    ("GET", f"{UI}/stream"): (  # it has no end, so nobody follows it here
        f"{UI}/stream?follow=run:0:no-such-thread",
        None,
        404,
    ),
    ("GET", f"{UI}/threads/{{thread_id}}/blobs/{{name}}"): (  # no text of it was cut
        f"{UI}/threads/{{thread}}/blobs/{'0' * 64}",
        None,
        404,
    ),
    **{
        ("GET", f"{UI}/threads/{{thread_id}}/moments/{{seq}}{part.partition('?')[0]}"): (
            f"{UI}/threads/{{thread}}/moments/10{part}",
            None,
            200,
        )
        for part in (
            *("", "/request", "/blame", "/state", "/diff", "/writes", "/preview"),
            *("/route", "/tokens"),
            *("/why?path=messages[0]", "/move?verb=next"),
        )
    },
    ("POST", f"{UI}/threads/{{thread_id}}/sessions"): (
        f"{UI}/threads/{{thread}}/sessions",
        {},
        201,
    ),
    ("GET", f"{UI}/sessions/{{session}}"): (f"{UI}/sessions/{{session}}", None, 200),
    ("DELETE", f"{UI}/sessions/{{session}}"): (f"{UI}/sessions/{{session}}", {}, 204),
    ("POST", f"{UI}/sessions/{{session}}"): (f"{UI}/sessions/{{session}}", {"line": "next"}, 200),
    ("GET", f"{UI}/sessions"): (f"{UI}/sessions", None, 200),
    ("POST", f"{UI}/sessions"): (f"{UI}/sessions", {"agent": "default"}, 201),
    ("GET", f"{UI}/threads/{{thread_id}}/compare"): (
        f"{UI}/threads/{{thread}}/compare?run=1&theirs=1",
        None,
        200,
    ),
    ("GET", f"{UI}/gateway"): (f"{UI}/gateway", None, 200),
    ("POST", f"{UI}/gateway/outbox/{{row}}/resend"): (f"{UI}/gateway/outbox/1/resend", {}, 404),
}
"""By method and path: an address, a body, and the status of the answer."""


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("endpoints")
    (folder / "work").mkdir()
    (folder / "work/a.txt").write_text("a", "utf-8")
    agents = AGENTS.replace("default: {", "default: {backend: {type: local, workdir: work}, ")
    with serving(folder, agents=agents) as served, served.http() as client:
        client.headers["Origin"] = served.url  # as the page does
        yield client


def asked(http: httpx.Client, agent: str) -> Any:
    got = http.post(f"/agents/{agent}/invoke", json=ASK)
    assert got.status_code == 200, got.text
    return got.json()


def names_in(http: httpx.Client, text: str) -> dict[str, str]:
    """Make what an address or a body speaks of."""
    made: dict[str, str] = {}
    if "{run}" in text or "{thread}" in text:
        done = asked(http, "default")
        made |= {"run": done["run_id"], "thread": done["thread_id"]}
    if "{waiting}" in text or "{question}" in text:
        made["waiting"] = asked(http, "careful")["thread_id"]
        (question,) = http.get(f"/threads/{made['waiting']}/approvals").json()
        made["question"] = question["id"]
    if "{session}" in text:
        thread = asked(http, "default")["thread_id"]
        session = http.post(f"{UI}/threads/{thread}/sessions", json={})
        made["session"] = session.json()["session"]
    if "{own}" in text:
        made["own"] = "own"
        assert http.post("/agents", json={"agent_id": "own", "model": "scripted:demo"}).is_success
    if "{tool}" in text:
        made["tool"] = "gone"
        assert http.post("/agents/tools/register", json={**TOOL, "name": "gone"}).is_success
    if "{skill}" in text:
        made["skill"] = "knit"
        assert http.put("/skills/knit", json=SKILL).is_success
    return made


@pytest.mark.sisters(11)
@pytest.mark.parametrize("use", [pytest.param(key, id=" ".join(key)) for key in USES])
def test_an_operation_is_answered(http: httpx.Client, use: tuple[str, str]) -> None:
    address, body, status = USES[use]
    made = names_in(http, f"{address}{body}")
    if isinstance(body, dict) and "thread_id" in body:
        body = {**body, "thread_id": made["waiting"]}
    got = http.request(use[0], address.format(**made), json=body)
    assert got.status_code == status, got.text
    assert "x-request-id" in got.headers


def test_every_operation_is_used(http: httpx.Client) -> None:
    paths = http.get("/openapi.json").json()["paths"]
    there = {(method.upper(), path) for path, found in paths.items() for method in found}
    ours = {(method, path) for method, path in there if not path.startswith("/langgraph/")}
    assert ours == {*USES, ("GET", "/agents/events")}  # which has no end: test_event_bus.py
    assert len(there) > len(ours)  # LangGraph's client uses the others: test_langgraph.py
