"""After a half-done step, a new message keeps all that the finished calls of the step wrote.

The other calls of that step wait for an answer here; those of a run that was cancelled, or that has
reached its deadline, leave the same writes.
"""

from __future__ import annotations

from operator import add
from typing import Annotated, Any

import pytest
from langchain_core.messages import ToolMessage
from langgraph.channels import LastValue
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from tests.engine.support import Door, async_door, sync_door
from wick_graph import Agent, BaseHook, ToolContext, tool
from wick_graph.core.bridge import SYNC_BRIDGE, run_to_end
from wick_graph.engine.answers import keep_finished_results
from wick_graph.hooks import ApprovalHook, TodoListHook, Tripwire
from wick_graph.subagents import Handoff, Subagent, delegation
from wick_graph.testing import ScriptedModel, calls

DOORS = pytest.mark.parametrize("door", [sync_door, async_door])
STORES = pytest.mark.parametrize("saver", [None, InMemorySaver], ids=["own-store", "langgraph's"])
ON: Any = {"configurable": {"thread_id": "t"}}
TODOS = [{"id": "1", "title": "T", "status": "done"}]
CUT = "Error: run interrupted before this tool finished"


class Till(TypedDict, total=False):
    booked: Annotated[list[int], add]
    price: Annotated[int, LastValue]


@tool
def book(n: int, ctx: ToolContext) -> Command[Any]:
    """Book a number."""
    answer = ToolMessage(f"booked {n}", tool_call_id=ctx.call_id)
    update = {"booked": [n], "files": {f"{n}.txt": "written"}, "messages": [answer]}
    return Command(update=update)


@tool
def quote(price: int, ctx: ToolContext) -> Command[Any]:
    """Set the price."""
    answer = ToolMessage(f"quoted {price}", tool_call_id=ctx.call_id)
    return Command(update={"price": price, "messages": [answer]})


RAN: list[int] = []


def pay(amount: int) -> str:
    """Pay an amount."""
    RAN.append(amount)
    return f"paid {amount}"


PAY = ("pay", {"amount": 9})


def agent_of(*asked: Any, hooks: Any = (), **options: Any) -> Agent:
    RAN.clear()
    script: list[Any] = [calls(*asked), "two", "three"]
    options.setdefault("tools", [book, quote, pay])
    hooks = [ApprovalHook({"pay": True}), *hooks]
    return Agent("a", ScriptedModel(script), hooks=hooks, state_schema=Till, **options)


def held(agent: Agent) -> dict[str, Any]:
    return dict(agent.graph.get_state(ON).values)


def answers(agent: Agent) -> list[str]:
    return [m.text for m in held(agent)["messages"] if m.type == "tool"]


@DOORS
@STORES
def test_a_new_message_keeps_the_state_updates_of_finished_calls(door: Door, saver: Any) -> None:
    asked = [("book", {"n": 8}), PAY, ("book", {"n": 7}), ("write_todos", {"todos": TODOS})]
    options = {"store": saver()} if saver else {}
    agent = agent_of(*asked, hooks=[TodoListHook()], **options)
    assert door(agent, "go", thread_id="t").stopped_because == "interrupted"
    result = door(agent, "never mind", thread_id="t")
    assert (result.text, result.todos) == ("two", TODOS)
    assert sorted(result.files) == ["7.txt", "8.txt"]
    assert held(agent)["booked"] == [8, 7]
    assert answers(agent) == ["booked 8", CUT, "booked 7", "Updated 1 todo(s)"]
    ids = [m.id for m in held(agent)["messages"]]
    assert len({*ids}) == len(ids)
    door(agent, "and now?", thread_id="t")
    assert held(agent)["booked"] == [8, 7]
    assert RAN == []


@DOORS
def test_a_new_message_keeps_a_handoff(door: Door) -> None:
    billing = Agent("billing", ScriptedModel(["unused", "Billing here."]))
    asked = [("transfer_to_billing", {}), PAY]
    agent = agent_of(*asked, handoffs={"billing": Handoff(billing, "Bills.")})
    door(agent, "go", thread_id="t")
    assert door(agent, "well?", thread_id="t").text == "Billing here."
    assert held(agent)["active"] == "billing"
    assert answers(agent) == ["billing takes over.", CUT]


def test_a_new_message_keeps_the_usage_of_a_finished_sub_agent_in_the_thread_alone() -> None:
    clerk = Agent("clerk", ScriptedModel(["Paris. " * 200]))
    tools = [pay, delegation({"clerk": Subagent(clerk, "Knows.")})]
    asked = [("delegate_to_agent", {"agent": "clerk", "task": "x " * 500}), PAY]
    agent = agent_of(*asked, tools=tools)
    first = agent.invoke("go", thread_id="t")
    second = agent.invoke("never mind", thread_id="t")
    assert first.thread_usage.calls == 2
    assert (second.usage.calls, second.thread_usage.calls) == (1, 3)


def test_a_new_message_keeps_the_updates_of_hooks_around_finished_calls() -> None:
    class Counts(BaseHook):
        name = "counts"

        def wrap_tool_call(self, call: Any, next: Any) -> Any:
            result = next(call)
            return result, {"booked": [100]}

    agent = agent_of(("book", {"n": 8}), PAY, hooks=[Counts()])
    agent.invoke("go", thread_id="t")
    agent.invoke("never mind", thread_id="t")
    assert held(agent)["booked"] == [100, 8]


def test_a_process_that_dies_before_the_new_message_is_stored_keeps_updates_once() -> None:
    agent = agent_of(("book", {"n": 8}), PAY)
    agent.invoke("go", thread_id="t")
    saver: Any = agent.graph.checkpointer
    for _ in range(2):
        run_to_end(keep_finished_results(agent.graph, saver, ON, SYNC_BRIDGE))
    assert (held(agent)["booked"], answers(agent)) == ([8], ["booked 8"])
    assert agent.invoke("never mind", thread_id="t").text == "two"
    assert (held(agent)["booked"], answers(agent)) == ([8], ["booked 8", CUT])
    assert RAN == []


def test_the_end_that_a_guardrail_set_in_a_finished_call_does_not_end_the_next_run() -> None:
    class Guard(BaseHook):
        name = "guard"

        def wrap_tool_call(self, call: Any, next: Any) -> Any:
            if call.name == "book":
                raise Tripwire("no booking", answer="I may not book.")
            return next(call)

    agent = agent_of(("book", {"n": 8}), PAY, hooks=[Guard()])
    agent.invoke("go", thread_id="t")
    result = agent.invoke("never mind", thread_id="t")
    assert (result.text, result.stopped_because) == ("two", "done")
    assert "I may not book." in [m.text for m in result.messages]


def test_updates_that_no_step_can_apply_do_not_lock_the_thread(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The channel takes one value for each step, so the step itself has failed on these two."""
    agent = agent_of(("quote", {"price": 1}), ("quote", {"price": 2}))
    with pytest.raises(Exception, match="price"):
        agent.invoke("go", thread_id="t")
    assert agent.invoke("never mind", thread_id="t").text == "two"
    assert answers(agent) == ["quoted 1", "quoted 2"]
    assert "price" not in held(agent)
    assert "without their state updates" in caplog.text


def test_interrupts_of_ones_own_keep_the_updates_too() -> None:
    def ask() -> str:
        """Ask."""
        return str(interrupt("sure?"))

    agent = agent_of(("book", {"n": 8}), ("ask", {}), tools=[book, ask])
    agent.invoke("go", thread_id="t")
    agent.invoke("never mind", thread_id="t")
    assert (held(agent)["booked"], answers(agent)) == ([8], ["booked 8", CUT])
