"""The paths of the server, each by what a caller gets from it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator

from tests.server.support import Served

ASK = {"messages": [{"role": "user", "content": "What is 21*2?"}]}


@pytest.fixture
def http(shared: Served) -> Any:
    with shared.http() as client:
        yield client


def ask(http: httpx.Client, agent: str = "default", **more: Any) -> dict[str, Any]:
    got = http.post(f"/agents/{agent}/invoke", json={**ASK, **more})
    assert got.status_code == 200, got.text
    answer: dict[str, Any] = got.json()
    return answer


def test_invoke_tells_all_that_the_seeds_tell(http: httpx.Client) -> None:
    answer = ask(http)
    assert answer["response"] == "It is 42."
    call = answer["tool_calls"][0]
    assert (call["name"], call["args"], call["output"]) == (
        "calculate",
        {"expression": "21*2"},
        "42",
    )
    wanted = {"trace_id", "thread_id", "response", "tool_calls", "todos", "files"}
    wanted |= {"structured_response", "interrupted", "interrupted_tool", "interrupted_args"}
    assert wanted <= set(answer)
    assert answer["thread_id"].startswith("th_")


def test_HT_11_messages(http: httpx.Client) -> None:
    got = http.get("/agents/messages/test").json()
    shown = {key: value for key, value in got.items() if key not in ("messages", "pretty_print")}
    assert shown == {
        "chain_length": 5,
        "last_content": "2+2 = 4",
        "last_role": "assistant",
        "validate_ok": True,
        "validate_error": "",
        "user_count": 1,
        "assistant_count": 2,
        "tool_count": 1,
        "system_count": 1,
        "bad_role_error": 'message[0]: unknown role "hacker"',
        "spoof_error": 'message[1]: role "assistant" not allowed (must be "user" or "system")',
        "merged_length": 6,
        "token_estimate": 12,
    }


@pytest.mark.parametrize(
    ("path", "body", "status", "error"),
    [
        ("/agents/default/invoke", None, 400, "body: is required"),
        ("/agents/default/invoke", {"messages": []}, 400, "messages"),
        (
            "/agents/nobody/invoke",
            {"messages": [{"role": "assistant", "content": "x"}]},
            400,
            'message[0]: role "assistant" not allowed (must be "user" or "system")',
        ),
        ("/agents/nobody/invoke", ASK, 404, "agent not found"),
        ("/agents/nobody/stream", ASK, 404, "agent not found"),
        ("/agents/nobody/stream", {"messages": 5}, 400, "messages"),
    ],
)
def test_D_31_body_then_messages_then_agent(
    http: httpx.Client, path: str, body: Any, status: int, error: str
) -> None:
    got = http.post(path, json=body) if body is not None else http.post(path)
    assert got.status_code == status
    assert got.headers["content-type"] == "application/json"
    assert error in got.json()["error"]


PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}


@pytest.mark.parametrize("path", ["/agents/default/invoke", "/v1/chat/completions"])
@pytest.mark.parametrize(
    ("content", "taken"),
    [
        ([{"type": "text", "text": "What is 21*2?"}], True),
        ([PICTURE, {"type": "text", "text": "What is it?"}], True),
        ([], False),
        ([{"type": "text", "text": " "}], False),
        ([{"type": "text"}], False),
        ([{"text": "x"}], False),
        ([{"type": "image", "source_type": "x"}], False),  # it would fail at each further call
        ([{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}], False),
        ([{"type": "image_url", "image_url": {"url": "https://a\n"}}], False),
        ([{"type": "image_url", "image_url": {"url": "data:image/,AA=="}}], False),
        ([{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAA"}}], False),
        ([{"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}], False),
        ([{**PICTURE, "more": 1}], False),
    ],
)
def test_contents_of_blocks(http: httpx.Client, path: str, content: Any, taken: bool) -> None:
    body = {"messages": [{"role": "user", "content": content}]}
    got = http.post(path, json={**body, "model": "default"} if path[1] == "v" else body)
    assert got.status_code == (200 if taken else 400), got.text


@pytest.mark.parametrize(
    "url",
    [
        *("https://a/b.png", "http://", "data:image/png;base64,AA==", "data:image/x,AA=="),
        *("data:image/;base64,AA==", "data:image/png;base64,AAA", "data:image/png;base64,A==="),
        *(
            "data:image/svg+xml;base64,AAAAAAA=",
            "data:image/png;base64,AA=A",
            "data:text/x;base64,",
        ),
    ],
)
def test_a_picture_is_taken_where_the_description_says_so(http: httpx.Client, url: str) -> None:
    parts = http.get("/openapi.json").json()["components"]["schemas"]
    block = {"type": "image_url", "image_url": {"url": url}}
    pictures = {"const": "image_url"}
    described = next(o for o in _objects(parts) if o.get("properties", {}).get("type") == pictures)
    taken = Draft202012Validator(described).is_valid(block)
    body = {"messages": [{"role": "user", "content": [block]}]}
    assert http.post("/agents/default/invoke", json=body).status_code == (200 if taken else 400)


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for part in value.values() if isinstance(value, dict) else value:
        if isinstance(part, dict | list):
            yield from _objects(part)


def test_agents_are_listed_and_shown(http: httpx.Client) -> None:
    listed = http.get("/agents").json()
    assert [agent["agent_id"] for agent in listed] == ["default", "slow", "careful"]
    assert http.get("/agents/default").json() == listed[0]
    assert listed[0]["tools"] == ["calculate", "write_todos"]
    assert http.get("/agents/nobody").status_code == 404


def test_an_agent_of_the_tenant_s_own(http: httpx.Client) -> None:
    mine = {"agent_id": "mine", "model": "scripted:demo"}
    made = http.post("/agents", json={**mine, "tools": ["calculate"]})
    assert made.status_code == 201, made.text
    assert http.post("/agents", json={"agent_id": "mine"}).status_code == 409
    assert ask(http, "mine")["response"] == "21*2 = 42."
    other = {"agent_id": "other", "model": "scripted:/etc/passwd"}
    assert http.post("/agents", json=other).status_code == 409
    assert http.delete("/agents/mine").status_code == 204
    assert http.get("/agents/mine").status_code == 404
    assert http.delete("/agents/default").status_code == 409
    reserved = http.post("/agents", json={"agent_id": "traces"})
    assert reserved.status_code == 400
    assert http.post("/agents", json={"agent_id": "x", "tools": ["nope"]}).status_code == 400
    assert http.get("/agents/x").status_code == 404


def test_hooks_are_switched_for_the_tenant_alone(http: httpx.Client) -> None:
    off = http.patch("/agents/slow/hooks", json={"remove": ["todolist"]}).json()
    assert off == {"agent_id": "slow", "hooks": ["tracing", "summarization"]}
    assert "write_todos" not in http.get("/agents/slow").json()["tools"]
    assert http.patch("/agents/slow/hooks", json={"remove": ["nope"]}).status_code == 400
    assert http.patch("/agents/slow/hooks", json={"add": ["budget"]}).status_code == 409
    on = http.patch("/agents/slow/hooks", json={"add": ["todolist"]}).json()
    assert on["hooks"] == ["tracing", "todolist", "summarization"]


def test_flow(http: httpx.Client) -> None:
    flow = http.get("/agents/default/flow").json()
    assert [hook["name"] for hook in flow["hooks"]] == ["tracing", "todolist", "summarization"]
    assert flow["max_iterations"] == 9
    assert "nodes" in flow["graph"]


def test_the_life_of_a_thread(http: httpx.Client) -> None:
    thread = ask(http, thread_id="life")["thread_id"]
    listed = http.get("/threads", params={"limit": 500}).json()
    assert thread in [info["thread_id"] for info in listed]
    assert http.get(f"/threads/{thread}").json()["stopped_because"] == "done"
    state = http.get(f"/threads/{thread}/state").json()
    assert [m["role"] for m in state["messages"]] == ["user", "assistant", "tool", "assistant"]
    history = http.get(f"/threads/{thread}/history", params={"limit": 2}).json()
    assert len(history) == 2
    assert history[0]["checkpoint_id"] == state["checkpoint_id"]
    more = http.get(
        f"/threads/{thread}/history", params={"before": history[-1]["checkpoint_id"]}
    ).json()
    assert more[0]["checkpoint_id"] == history[-1]["parent_checkpoint_id"]
    unknown = http.get(f"/threads/{thread}/history", params={"before": "no-such-step"})
    assert (unknown.status_code, unknown.json()) == (404, {"error": "checkpoint not found"})
    assert http.post(f"/threads/{thread}/pin", json={}).json()["pinned"] is True
    fork = http.post(f"/threads/{thread}/fork", json={"thread_id": "life-2"})
    assert fork.status_code == 201, fork.text
    copied = http.get("/threads/life-2/state").json()
    assert copied["messages"] == state["messages"]
    assert http.post(f"/threads/{thread}/fork", json={"thread_id": "life-2"}).status_code == 409
    assert http.delete(f"/threads/{thread}").status_code == 204
    assert http.get(f"/threads/{thread}").json() == {"error": "thread not found"}
    assert http.get("/threads/life-2/state").json()["messages"] == state["messages"]


def test_a_fork_from_an_earlier_step_goes_on_from_there(http: httpx.Client) -> None:
    thread = ask(http, thread_id="branch")["thread_id"]
    history = http.get(f"/threads/{thread}/history", params={"limit": 50}).json()
    first = next(step for step in history if len(step["messages"]) == 2)
    body = {"checkpoint_id": first["checkpoint_id"], "thread_id": "branch-2"}
    assert http.post(f"/threads/{thread}/fork", json=body).status_code == 201
    forked = http.get("/threads/branch-2/state").json()["messages"]
    assert forked[:2] == first["messages"]
    assert len(forked) < 4  # finished results come along, what came after does not
    missing = {"checkpoint_id": "1ef00000-0000-6000-8000-000000000000", "thread_id": "branch-3"}
    assert http.post(f"/threads/{thread}/fork", json=missing).status_code == 404
    assert http.get("/threads/branch-3").status_code == 404


def test_runs_and_their_journal(http: httpx.Client) -> None:
    answer = ask(http)
    run, thread = answer["run_id"], answer["thread_id"]
    shown = http.get(f"/runs/{run}").json()
    assert (shown["status"], shown["agent_id"]) == ("done", "default")
    assert [r["run_id"] for r in http.get(f"/threads/{thread}/runs").json()] == [run]
    moments = http.get(f"/threads/{thread}/journal").json()
    assert {moment["kind"] for moment in moments} >= {"run", "node", "model", "tool", "route"}
    trace = http.get(f"/agents/traces/{run}").json()
    assert any(span["metadata"].get("tool_name") == "calculate" for span in trace["spans"])
    assert http.get("/agents/traces").json()[0]["trace_id"] == run
    assert http.get("/runs/00000000-0000-4000-8000-000000000000").status_code == 404


def test_the_same_key_gives_the_same_run(http: httpx.Client) -> None:
    headers = {"Idempotency-Key": "order-1"}
    first = http.post("/agents/default/invoke", json=ASK, headers=headers).json()
    again = http.post("/agents/default/invoke", json=ASK, headers=headers).json()
    assert again["run_id"] == first["run_id"]
    assert again["response"] == first["response"]
    assert again["tool_calls"] == first["tool_calls"]
    other = {"messages": [{"role": "user", "content": "Another thing"}]}
    refused = http.post("/agents/default/invoke", json=other, headers=headers)
    assert refused.status_code == 409
    stream = http.post("/agents/default/stream", json=ASK, headers=headers)
    assert stream.headers["x-run-id"] == first["run_id"]


def test_an_approval_from_question_to_answer(http: httpx.Client) -> None:
    answer = ask(http, "careful")
    assert (answer["interrupted"], answer["interrupted_tool"]) == (True, "calculate")
    assert answer["interrupted_args"] == {"expression": "21*2"}
    waiting = http.get(f"/threads/{answer['thread_id']}/approvals").json()
    assert [(w["kind"], w["status"]) for w in waiting] == [("approval", "pending")]
    asked = waiting[0]["id"]
    assert http.get(f"/agents/hitl/{asked}").json() == waiting[0]
    done = http.post(f"/agents/hitl/{asked}/respond", json={"response": "approve"}).json()
    assert done["run"]["response"] == "It is 42."
    assert http.post(f"/agents/hitl/{asked}/respond", json={}).status_code == 404


def test_a_denied_call_is_not_run(http: httpx.Client) -> None:
    thread = ask(http, "careful")["thread_id"]
    asked = http.get(f"/threads/{thread}/approvals").json()[0]["id"]
    body = {"status": "denied", "response": "too dear"}
    run = http.post(f"/agents/hitl/{asked}/respond", json=body).json()["run"]
    assert "too dear" in run["tool_calls"][0]["error"]


def test_resume_answers_too(http: httpx.Client) -> None:
    thread = ask(http, "careful")["thread_id"]
    body = {"thread_id": thread, "answer": {"decision": "approve"}}
    assert http.post("/agents/resume", json=body).json()["response"] == "It is 42."
    nothing = http.post("/agents/resume", json={"thread_id": "nobody"})
    assert (nothing.status_code, nothing.json()) == (404, {"error": "thread not found"})


def test_a_decision_that_nothing_waits_for_is_a_conflict(http: httpx.Client) -> None:
    thread = http.post("/agents/default/invoke", json=ASK).json()["thread_id"]
    body = {"thread_id": thread, "answer": {"decision": "approve"}}
    answer = http.post("/agents/resume", json=body)
    assert answer.status_code == 409
    assert "waits for a decision" in answer.json()["error"]
    assert http.get(f"/threads/{thread}").json()["stopped_because"] == "done"


def test_tools_come_and_go(http: httpx.Client) -> None:
    tool = {
        "name": "weather",
        "description": "Say what the weather is.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        "callback_url": "https://tools.example.com",
    }
    assert http.post("/agents/tools/register", json=tool).json()["status"] == "registered"
    available = http.get("/agents/tools/available").json()["tools"]
    assert {"name": "weather", "source": "external"} in available
    assert {"name": "write_todos", "source": "todolist"} in available
    assert http.delete("/agents/tools/deregister/weather").json()["status"] == "deregistered"
    assert http.delete("/agents/tools/deregister/weather").status_code == 404
    for key in ("name", "callback_url"):
        without = {k: v for k, v in tool.items() if k != key}
        refused = http.post("/agents/tools/register", json=without)
        assert (refused.status_code, refused.json()) == (400, {"error": f"{key}: is required"})
    for bad in ("file:///etc/passwd", "http://u:p@example.com", "gopher://x"):
        body = {**tool, "callback_url": bad}
        assert http.post("/agents/tools/register", json=body).status_code == 400


def test_metrics(http: httpx.Client) -> None:
    ask(http)
    text = http.get("/metrics").text
    assert 'wick_runs_total{stopped_because="done"}' in text
    assert "wick_run_seconds_count" in text
    assert 'wick_requests_total{method="POST",status="200"}' in text


def test_openapi_describes_itself(http: httpx.Client) -> None:
    schema = http.get("/openapi.json").json()
    assert "/agents/{agent_id}/invoke" in schema["paths"]
    for operations in schema["paths"].values():
        for operation in operations.values():
            assert "422" not in operation["responses"]
            for parameter in operation.get("parameters", ()):
                assert parameter.get("description"), parameter
    assert json.dumps(schema)
    for name in ("RunForm", "AgentForm", "ResumeForm", "SkillForm", "RunAnswer", "ThreadAnswer"):
        for key, field in schema["components"]["schemas"][name]["properties"].items():
            assert field.get("description"), (name, key)
