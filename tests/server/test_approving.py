"""Over HTTP: who may run may not approve, and a thread waits under one agent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import wick_graph
from tests.server.support import Served
from wick_graph.journal import Journal
from wick_graph.store import SqlSaver

pytestmark = pytest.mark.xdist_group("approving")  # they share a server

ASK = {"messages": [{"role": "user", "content": "What is 21*2?"}]}
Http = Callable[[str], httpx.Client]


@pytest.fixture(scope="module")
def tokens(guarded: Served) -> dict[str, str]:
    """A token of each scope, of one tenant."""
    return {
        scope: guarded.wick("token", "create", "--scope", scope)
        for scope in ("read", "run", "approve", "run,approve", "admin")
    }


@pytest.fixture
def http(guarded: Served, tokens: dict[str, str]) -> Iterator[Http]:
    opened: dict[str, httpx.Client] = {}

    def client(scope: str) -> httpx.Client:
        if scope not in opened:
            opened[scope] = guarded.http(tokens[scope])
        return opened[scope]

    yield client
    for one in opened.values():
        one.close()


@pytest.fixture
def thread(http: Http) -> str:
    """A thread whose call waits for approval."""
    made = http("run").post("/agents/careful/invoke", json=ASK).json()
    assert made["interrupted"]
    return str(made["thread_id"])


def waiting(client: httpx.Client, thread: str) -> Any:
    return client.get(f"/threads/{thread}/approvals").json()


def decided(by_id: bool, question: Any, decision: Any) -> Any:
    return {question["interrupt_id"]: decision} if by_id else decision


@pytest.mark.sisters(8)
@pytest.mark.parametrize("by_id", [True, False])
@pytest.mark.parametrize("path", ["/agents/resume", "/agents/careful/resume"])
@pytest.mark.parametrize("name", ["approve", "edit", "reject", "respond"])
def test_who_may_run_decides_nothing_by_resuming(
    http: Http, thread: str, path: str, by_id: bool, name: str
) -> None:
    (question,) = waiting(http("run"), thread)
    more: dict[str, Any] = {"edit": {"args": {"expression": "1+1"}}, "respond": {"message": "4"}}
    decision = {"decision": name, **more.get(name, {})}
    body = {"thread_id": thread, "answer": decided(by_id, question, decision)}
    for scope in ("read", "run"):
        refused = http(scope).post(path, json=body)
        assert refused.status_code == 403
    assert refused.json() == {"error": "the token's scope is run; this needs approve"}
    assert len(waiting(http("run"), thread)) == 1


@pytest.mark.parametrize("status", ["answered", "denied", "cancelled"])
def test_who_may_run_decides_nothing_by_responding(http: Http, thread: str, status: str) -> None:
    (question,) = waiting(http("run"), thread)
    path = f"/agents/hitl/{question['id']}/respond"
    assert http("run").post(path, json={"status": status}).status_code == 403
    assert len(waiting(http("run"), thread)) == 1


@pytest.mark.parametrize(
    "body",
    [
        *({}, {"status": "answered"}, {"response": None}, {"response": ""}, {"response": "no"}),
        *({"response": True}, {"response": {"decision": "x"}}, {"response": {"approve": True}}),
        *({"response": {"decision": "edit"}}, {"response": {"decision": ["approve"]}}),
        {"response": {"decision": {}}},
    ],
    ids=str,
)
def test_what_is_no_decision_is_no_response(http: Http, thread: str, body: Any) -> None:
    (question,) = waiting(http("run"), thread)
    got = http("approve").post(f"/agents/hitl/{question['id']}/respond", json=body)
    assert got.status_code == 400, got.json()
    assert waiting(http("run"), thread) == [question]


def test_a_word_rejects_a_call(http: Http, thread: str) -> None:
    (question,) = waiting(http("run"), thread)
    path = f"/agents/hitl/{question['id']}/respond"
    run = http("approve").post(path, json={"response": "reject"}).json()["run"]
    assert run["tool_calls"][0]["error"]
    assert not run["interrupted"]


@pytest.mark.parametrize("answer", [True, "approve", ["approve"], {"approve": True}])
def test_what_is_no_decision_lets_nothing_run(http: Http, thread: str, answer: Any) -> None:
    body = {"thread_id": thread, "answer": answer}
    made = http("run").post("/agents/careful/resume", json=body).json()
    assert (made["interrupted"], made["interrupted_tool"]) == (True, "calculate")


@pytest.mark.parametrize("scope", ["approve", "run,approve", "admin"])
@pytest.mark.parametrize("door", ["resume", "respond"])
def test_who_may_approve_does_and_is_on_record(
    guarded: Served, http: Http, tokens: dict[str, str], thread: str, scope: str, door: str
) -> None:
    (question,) = waiting(http(scope), thread)
    decision = {"decision": "approve", "by": "somebody else"}
    if door == "resume":
        body: Any = {"thread_id": thread, "answer": decision}
        got = http(scope).post("/agents/careful/resume", json=body)
        assert got.json()["response"] == "It is 42."
    else:
        path = f"/agents/hitl/{question['id']}/respond"
        got = http(scope).post(path, json={"response": decision})
        assert got.json()["run"]["response"] == "It is 42."
    with SqlSaver.from_url(f"sqlite:///{guarded.path}/wick.db") as saver:
        journal = Journal(saver, thread)
        (entry,) = [e for e in journal.moments() if e.what == "interrupt.answer"]
        value = journal.details(entry)["value"]
    value = value if door == "resume" else value[question["interrupt_id"]]
    assert value["by"] == f"token {tokens[scope].split('_')[1]}"
    assert value["call"]["tool"] == "calculate"


def test_who_may_approve_may_not_run(http: Http, thread: str) -> None:
    approver = http("approve")
    assert approver.post("/agents/default/invoke", json=ASK).status_code == 403
    body: dict[str, Any] = {"thread_id": thread}
    assert approver.post("/agents/careful/resume", json=body).status_code == 403
    body["answer"] = "go on"
    assert approver.post("/agents/careful/resume", json=body).status_code == 403
    assert approver.delete(f"/threads/{thread}").status_code == 403


@pytest.mark.sisters
@pytest.mark.parametrize("answer", [None, {"decision": "approve"}])
def test_another_agent_does_not_take_the_waiting_call_over(
    http: Http, thread: str, answer: Any
) -> None:
    body = {"thread_id": thread} if answer is None else {"thread_id": thread, "answer": answer}
    got = http("admin").post("/agents/default/resume", json=body)
    assert got.status_code == 409
    assert "waits under the agent careful, not default" in got.json()["error"]
    assert len(waiting(http("run"), thread)) == 1
    done = http("admin").post(
        "/agents/careful/resume", json={**body, "answer": {"decision": "approve"}}
    )
    assert done.json()["response"] == "It is 42."


def test_a_copy_shows_a_question_of_its_own(http: Http, thread: str) -> None:
    (question,) = waiting(http("run"), thread)
    copy = http("run").post(f"/threads/{thread}/fork", json={}).json()["thread_id"]
    (own,) = waiting(http("run"), copy)
    assert own["value"]["hash"] != question["value"]["hash"]
    old = {"decision": "approve", "hash": question["value"]["hash"]}
    path = "/agents/careful/resume"
    again = http("approve").post(path, json={"thread_id": copy, "answer": old}).json()
    assert again["interrupted"]
    (own,) = waiting(http("run"), copy)
    new = {"decision": "approve", "hash": own["value"]["hash"]}
    done = http("approve").post(f"/agents/hitl/{own['id']}/respond", json={"response": new})
    assert done.json()["run"]["response"] == "It is 42."


def test_a_resume_elsewhere_leaves_the_thread_with_its_agent(
    guarded: Served, http: Http, thread: str
) -> None:
    """Python resumed it under another agent: it waits on, and HTTP knows whose it is."""
    agents = wick_graph.load(Path(guarded.path) / "agents.yaml")
    with agents:
        assert agents["default"].resume(thread).stopped_because == "interrupted"
    body = {"thread_id": thread, "answer": {"decision": "approve"}}
    assert http("admin").post("/agents/default/resume", json=body).status_code == 409
    done = http("admin").post("/agents/careful/resume", json=body)
    assert done.json()["response"] == "It is 42."
