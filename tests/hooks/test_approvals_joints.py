"""Where approvals meet other parts: changed tools, sub-agents, forks, sealed stores."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver

from tests.engine.support import wild
from tests.hooks.approving import ON
from wick_graph import Agent, Result, tool
from wick_graph.hooks.approvals import ApprovalHook, Approve, Reject
from wick_graph.store import Keys, SqlSaver, rotate
from wick_graph.subagents import Subagent, delegation
from wick_graph.testing import ScriptedModel, call, calls


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlSaver]:
    with SqlSaver.from_url(f"sqlite:///{tmp_path}/t.db") as opened:
        yield opened


def sync_resume(agent: Agent, *given: Any) -> Result:
    return agent.resume(*given)


def async_resume(agent: Agent, *given: Any) -> Result:
    return asyncio.run(agent.aresume(*given))


class Box:
    """A tool that must be allowed, and what it did."""

    def __init__(self, store: Any, *, says: str = "Write a file.", steps: Any = ()) -> None:
        self.ran: list[str] = []

        @tool(replay="never", description=says)
        def write(path: str) -> str:
            self.ran.append(path)
            return f"wrote {path}"

        script = list(steps) or [call("write", path="a"), "Done.", "More."]
        self.agent = Agent(
            "writer",
            ScriptedModel(script),
            tools=[write],
            hooks=[ApprovalHook({"write": True})],
            store=store,
        )


def test_a_decision_that_names_no_call_is_for_what_was_shown(store: SqlSaver) -> None:
    """The tool has come to say something else since the person saw it: it is asked about anew."""
    shown = Box(store)
    assert shown.agent.invoke("Go", thread_id="t").stopped_because == "interrupted"
    changed = Box(store, says="Send a file to everybody.")
    result = changed.agent.resume("t", Approve())
    assert (result.stopped_because, changed.ran) == ("interrupted", [])
    assert changed.agent.resume("t", Approve()).text == "Done."
    assert changed.ran == ["a"]


@pytest.mark.parametrize("decision", [Approve(), Reject()])
def test_an_approved_call_of_a_fork_is_the_forks_own(store: SqlSaver, decision: Any) -> None:
    """Whatever is decided in the fork, the source waits on; and neither runs twice."""
    box = Box(store)
    box.agent.invoke("Go", thread_id="t")
    box.agent.threads.fork("t", "u")
    box.agent.resume("u", decision)
    in_fork = ["a"] if isinstance(decision, Approve) else []
    assert box.ran == in_fork
    assert box.agent.threads.get("t").status == "waiting"
    assert box.agent.resume("t", Approve()).text == "Done."
    assert box.ran == [*in_fork, "a"]


def test_a_fork_of_what_was_approved_and_run_runs_it_no_more(store: SqlSaver) -> None:
    box = Box(store)
    box.agent.invoke("Go", thread_id="t")
    box.agent.resume("t", Approve())
    config: Any = {"configurable": {"thread_id": "t"}}
    before = next(s for s in box.agent.graph.get_state_history(config) if s.next == ("tools",))
    box.agent.graph.invoke(None, before.config)
    assert box.ran == ["a"]


@pytest.mark.parametrize(("decision", "ran"), [(Approve(), ["a"]), (Reject(), [])])
def test_a_childs_call_waits_for_its_own_decision(
    store: SqlSaver, decision: Any, ran: list[str]
) -> None:
    """The parent's caller decides about exactly the call that the child was about to make."""
    child = Box(store)
    give = wild("delegate_to_agent", agent="writer", task="write a")
    parent = Agent(
        "parent",
        ScriptedModel([give, "All done."]),
        tools=[delegation({"writer": Subagent(child.agent, "Writes")})],
        store=store,
    )
    asked = parent.invoke("Go", thread_id="t")
    (question,) = asked.interrupts
    assert (asked.stopped_because, question.value["tool"]) == ("interrupted", "write")
    forged = type(decision)(hash="0" * 64)
    again = parent.resume("t", forged)
    assert (again.stopped_because, child.ran) == ("interrupted", [])
    assert parent.resume("t", decision).text == "All done."
    assert child.ran == ran


def test_what_waits_is_answered_after_the_keys_were_changed(tmp_path: Path) -> None:
    """Results of before are taken, the question is the same, and the old key opens nothing."""
    url = f"sqlite:///{tmp_path}/sealed.db"
    old, new = (hashlib.sha256(name).digest() for name in (b"old", b"new"))
    effects: list[str] = []

    def made(store: SqlSaver) -> Agent:
        @tool(replay="never")
        def act(n: int) -> str:
            """Have an effect."""
            effects.append(f"act {n}")
            return f"acted {n}"

        @tool(replay="never")
        def write(path: str) -> str:
            """Write a file."""
            effects.append(f"write {path}")
            return f"wrote {path}"

        both = calls(("act", {"n": 1}), ("write", {"path": "a"}))
        hooks = [ApprovalHook({"write": True})]
        return Agent(
            "a", ScriptedModel([both, "Done."]), tools=[act, write], hooks=hooks, store=store
        )

    with SqlSaver.from_url(url, keys=Keys([old])) as store:
        asked = made(store).invoke("Go", thread_id="t")
        (question,) = asked.interrupts
    with SqlSaver.from_url(url, keys=Keys([new, old])) as store:
        assert rotate(store) > 0
    with SqlSaver.from_url(url, keys=Keys([new])) as store:
        result = made(store).resume("t", {question.id: Approve(hash=question.value["hash"])})
    assert result.text == "Done."
    assert [m.text for m in result.messages if m.type == "tool"] == ["acted 1", "wrote a"]
    assert effects == ["act 1", "write a"]


@pytest.mark.parametrize(
    "answer",
    [
        *("yes", "approve", "ok", "", True, 1, ["approve"]),
        *({"decision": "approved"}, {"decision": "approve", "all": True}, {"approve": True}),
    ],
    ids=str,
)
def test_a_text_that_sounds_like_one_is_no_decision(store: SqlSaver, answer: Any) -> None:
    box = Box(store)
    box.agent.invoke("Go", thread_id="t")
    result = box.agent.resume("t", answer)
    assert (result.stopped_because, box.ran) == ("interrupted", [])
    assert box.agent.resume("t", Approve()).text == "Done."
    assert box.ran == ["a"]


@pytest.mark.parametrize("copied", ["head", "latest", "copy"])
def test_a_copy_of_a_thread_that_waits_waits_too(store: SqlSaver, copied: str) -> None:
    """So no sweep takes it, however it was made."""
    box = Box(store)
    box.agent.invoke("Go", thread_id="t")
    head = next(iter(store.threads.history("t"))).checkpoint_id
    if copied == "copy":
        store.copy_thread("t", "u")
    else:
        store.threads.fork("t", "u", head if copied == "head" else None)
    row = store.threads.get("u")
    assert row is not None
    assert (row.agent, row.status, row.stopped_because) == ("writer", "waiting", "interrupted")
    assert box.agent.resume("u", Approve()).text == "Done."


@pytest.mark.parametrize("door", [sync_resume, async_resume])
@pytest.mark.parametrize("own", [True, False], ids=["own-store", "langgraph's"])
def test_an_update_that_drops_the_question_leaves_a_thread_that_is_done(
    own: bool, door: Any, store: SqlSaver
) -> None:
    """A message behind the reply ends its plan: there is no call to decide about any more."""
    box = Box(store if own else InMemorySaver())
    agent = box.agent
    assert agent.invoke("Go", thread_id="t", idempotency_key="k").interrupts
    agent.graph.update_state(ON, {"messages": [HumanMessage("A note.")]})
    if own:  # a thread that waits is never swept
        row = agent.threads.get("t")
        assert row is not None
        assert (row.status, row.stopped_because) == ("idle", "done")
    again = agent.invoke("Go", thread_id="t", idempotency_key="k")
    assert (again.stopped_because, again.interrupts) == ("done", ())
    for _ in range(2):
        result = door(agent, "t")
        assert (result.stopped_because, result.interrupts, box.ran) == ("done", (), [])
        if own:
            row = agent.threads.get("t")
            assert row is not None
            assert (row.status, row.stopped_because) == ("idle", "done")
    assert agent.invoke("Go on", thread_id="t").text == "Done."


@pytest.mark.parametrize("door", [sync_resume, async_resume])
def test_an_update_that_leaves_the_call_open_leaves_the_question(
    door: Any, store: SqlSaver
) -> None:
    box = Box(store)
    box.agent.invoke("Go", thread_id="t")
    box.agent.graph.update_state(ON, {"todos": []})
    row = store.threads.get("t")
    assert row is not None
    assert (row.status, row.stopped_because) == ("waiting", "interrupted")  # never swept
    for _ in range(2):
        result = door(box.agent, "t")
        assert (result.stopped_because, box.ran) == ("interrupted", [])
        assert [asked.value["tool"] for asked in result.interrupts] == ["write"]
    assert door(box.agent, "t", Approve()).text == "Done."
    assert box.ran == ["a"]
