"""What an agent must ask for, the agents that it gives tasks to must ask for, too."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from tests.engine.support import wild
from tests.hooks.test_approvals_crashes import life
from tests.support.command import Inside
from wick_graph import Agent, tool
from wick_graph.hooks.approvals import ApprovalHook, Approve, Reject
from wick_graph.runtime.tool_ledger import CANNOT_ASK
from wick_graph.store import SqlSaver
from wick_graph.store.verify import verify
from wick_graph.subagents import Background, Subagent, delegation
from wick_graph.testing import ScriptedModel, call

PAYS: Any = call("pay", to="mallory")
GIVES: Any = wild("delegate_to_agent", agent="child", task="pay")
RULES = {"pay": True}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlSaver]:
    with SqlSaver.from_url(f"sqlite:///{tmp_path}/t.db") as opened:
        yield opened
        assert verify(opened).is_whole


class Family:
    """A child that pays, and the agents above it."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.paid: list[str] = []

    def child(
        self, rules: Any = None, steps: Any = (PAYS, "Paid.", PAYS, "Again."), **more: Any
    ) -> Agent:
        @tool
        def pay(to: str) -> str:
            """Pay somebody."""
            self.paid.append(to)
            return "paid"

        hooks = [] if rules is None else [ApprovalHook(rules)]
        more.setdefault("store", self.store)
        return Agent("child", ScriptedModel(list(steps)), tools=[pay], hooks=hooks, **more)

    def parent(self, child: Agent, rules: Any = RULES, name: str = "parent", **more: Any) -> Agent:
        below = {"child": Subagent(child, "Pays", **more)}
        hooks = [ApprovalHook(rules)] if rules else []
        model = ScriptedModel([GIVES, "All done.", "More."])
        return Agent(name, model, tools=[delegation(below)], hooks=hooks, store=self.store)


@pytest.mark.sisters(4)
@pytest.mark.parametrize(
    "own", [None, {"pay": False}, {"pay": "to == 'nobody'"}, {"pay": True}, {"*": False}]
)
@pytest.mark.parametrize(("decision", "paid"), [(Approve(), ["mallory"]), (Reject(), [])])
def test_a_child_is_bound_and_cannot_loosen(
    store: SqlSaver, own: Any, decision: Any, paid: list[str]
) -> None:
    family = Family(store)
    parent = family.parent(family.child(own))
    asked = parent.invoke("Go", thread_id="t")
    assert (asked.stopped_because, family.paid) == ("interrupted", [])
    (question,) = asked.interrupts
    assert question.value["tool"] == "pay"
    done = parent.resume("t", decision)
    assert (done.stopped_because, family.paid) == ("done", paid), "and it is asked once"


def test_a_child_may_be_stricter(store: SqlSaver) -> None:
    family = Family(store)
    parent = family.parent(family.child({"pay": True}), rules={"pay": False})
    assert parent.invoke("Go", thread_id="t").stopped_because == "interrupted"
    assert family.paid == []


def test_a_grandchild_is_bound(store: SqlSaver) -> None:
    family = Family(store)
    middle = family.parent(family.child(), rules=None, name="middle")
    gives = wild("delegate_to_agent", agent="middle", task="pay")
    top = Agent(
        "top",
        ScriptedModel([gives, "All done."]),
        tools=[delegation({"middle": Subagent(middle, "Gives on", inherit_approvals=True)})],
        hooks=[ApprovalHook(RULES)],
        store=store,
    )
    assert top.invoke("Go", thread_id="t").stopped_because == "interrupted"
    assert family.paid == []
    assert top.resume("t", Approve()).stopped_because == "done"
    assert family.paid == ["mallory"]


def test_an_opt_out_is_the_parents_own_alone(store: SqlSaver) -> None:
    family = Family(store)
    loose = family.parent(family.child(), inherit_approvals=False)
    assert loose.invoke("Go", thread_id="t").stopped_because == "done"
    assert family.paid == ["mallory"]
    middle = family.parent(family.child(), name="middle", inherit_approvals=False)
    gives = wild("delegate_to_agent", agent="middle", task="pay")
    top = Agent(
        "top",
        ScriptedModel([gives, "All done."]),
        tools=[delegation({"middle": Subagent(middle, "Gives on")})],
        hooks=[ApprovalHook({"*y": True})],
        store=store,
    )
    assert top.invoke("Go", thread_id="u").stopped_because == "interrupted"
    assert family.paid == ["mallory"], "a rule of the agent above holds all the same"


@pytest.mark.parametrize("how", ["resume", "message", "fork", "copy"])
def test_the_rules_are_the_childs_threads_own(store: SqlSaver, how: str) -> None:
    """Whoever goes on in the child's thread without the parent is bound by them."""
    family = Family(store)
    child = family.child(steps=(PAYS, PAYS, "Paid.", PAYS, "Again.", PAYS, "Again."))
    family.parent(child).invoke("Go", thread_id="t")
    (mine,) = [info for info in store.threads.list() if info.parent == "t"]
    thread = mine.thread_id
    if how == "resume":
        child.resume(thread, Approve())
        assert family.paid == ["mallory"]
        assert child.resume(thread).stopped_because == "interrupted"
    elif how == "message":
        assert child.invoke("Pay", thread_id=thread).stopped_because == "interrupted"
    else:
        if how == "fork":
            store.threads.fork(thread, "u")
        else:
            store.copy_thread(thread, "u")
        assert child.invoke("Pay", thread_id="u").stopped_because == "interrupted"
    assert family.paid == (["mallory"] if how == "resume" else [])


def test_a_child_whose_process_died_at_once_is_bound(tmp_path: Path) -> None:
    """Killed in its first call, before the parent could adopt it; then it is resumed alone."""
    log = tmp_path / "log"

    def family(dies: bool) -> tuple[Agent, Agent]:
        @tool(replay="safe")
        def look() -> str:
            """Look."""
            if dies:
                os._exit(9)
            return "seen"

        @tool
        def pay(to: str) -> str:
            """Pay somebody."""
            log.write_text(to)
            return "paid"

        url = f"sqlite:///{tmp_path}/t.db"
        model = ScriptedModel([call("look"), PAYS, "Paid."])
        child = Agent("child", model, tools=[look, pay], store=url)
        give = delegation({"child": Subagent(child, "Pays")})
        hooks = [ApprovalHook(RULES)]
        above = ScriptedModel([GIVES, "Done."])
        return Agent("parent", above, tools=[give], hooks=hooks, store=url), child

    def begins() -> None:
        family(dies=True)[0].invoke("Go", thread_id="t")

    assert life(begins) == 9
    _, child = family(dies=False)
    (mine,) = [info for info in child.threads.list() if info.thread_id != "t"]
    assert child.resume(mine.thread_id).stopped_because == "interrupted"
    assert not log.exists()


def test_a_child_that_can_ask_nobody_does_not_run_the_call() -> None:
    family = Family(InMemorySaver())
    child = family.child(steps=(PAYS, "I could not."), store=False)
    result = family.parent(child).invoke("Go", thread_id="t")
    assert (result.stopped_because, family.paid) == ("done", [])
    assert CANNOT_ASK.startswith("this call needs approval")


def test_a_background_task_is_bound(store: SqlSaver) -> None:
    family = Family(store)
    background = Background({"child": Subagent(family.child(), "Pays")})
    steps = [wild("start_task", agent="child", task="pay"), "Begun.", "More."]
    names = [one.name for one in background.tools({})]
    start = next(name for name in names if "start" in name)
    steps[0] = wild(start, agent="child", task="pay")
    hooks = [ApprovalHook(RULES), background]
    parent = Agent("parent", ScriptedModel(steps), hooks=hooks, store=store)
    try:
        parent.invoke("Go", thread_id="t")
        end = time.monotonic() + 30
        while not (found := [i for i in store.threads.list() if i.status == "waiting"]):
            assert time.monotonic() < end
            time.sleep(0.02)
    finally:
        background.close()
    assert family.paid == []
    assert family.child().resume(found[0].thread_id).stopped_because == "interrupted"
    assert family.paid == []


def test_validate_warns_of_an_opt_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wick = Inside(tmp_path, capsys).wick
    file = tmp_path / "agents.yaml"
    file.write_text(
        "agents:\n"
        "  top:\n"
        "    model: scripted:demo\n"
        "    approvals: {calculate: true}\n"
        "    subagents: {low: {description: Works, inherit_approvals: false}}\n"
        "  low: {model: 'scripted:demo', tools: [calculate]}\n"
    )
    said = wick("validate", "-c", str(file))
    assert said.code == 0
    warning = (
        "agents.top.subagents.low: inherit_approvals is false, so low runs without approval "
        "what top must ask for"
    )
    assert f"note: {warning}" in said.out + said.err
    said = wick("validate", "-c", str(file), "--json")
    assert said.json["notices"] == [warning]
