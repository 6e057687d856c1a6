"""Handoffs: another agent takes over prompt, tools and model, in the same thread and graph."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.memory import InMemoryStore

from tests.engine.support import Door, async_door, sync_door, wild
from tests.engine.team_process import shop
from tests.engine.typed_process import City
from tests.source import ROOT
from tests.support import forked
from wick_graph import Agent, BaseHook, ToolContext, tool
from wick_graph.debug import DebugSession
from wick_graph.errors import ConfigError, HookError
from wick_graph.events import ChatModelStream, Done, OutputDelta
from wick_graph.hooks import ApprovalHook, Budget, BudgetHook, InputGuardrail, OutputGuardrail
from wick_graph.models.resolve import resolve_model
from wick_graph.subagents import Handoff
from wick_graph.testing import ScriptedModel, call, calls, respond, text

DOORS = pytest.mark.parametrize("door", [sync_door, async_door])


@tool
def refund(amount: int, ctx: ToolContext) -> str:
    """Pay money back."""
    return f"{ctx.agent} pays {amount}"


@tool
def hours() -> str:
    """Tell the hours."""
    return "nine to five"


def model_of(*steps: Any) -> ScriptedModel:
    return ScriptedModel([*steps], cursor="fifo")


def agents(
    desk: ScriptedModel, billing: ScriptedModel, *, joins: Any = (), **options: Any
) -> Agent:
    other = Agent("b", billing, system_prompt="You do billing.", tools=[refund], hooks=joins)
    return Agent(
        "desk",
        desk,
        system_prompt="You greet.",
        tools=[hours],
        handoffs={"billing": Handoff(other, "Money matters.")},
        **options,
    )


GO = call("transfer_to_billing")


@DOORS
def test_prompt_tools_and_model_follow_the_handoff(door: Door) -> None:
    desk, billing = (
        model_of(GO, "Hello again."),
        model_of(call("refund", amount=5), "Paid.", "Yes?", call("transfer_to_desk")),
    )
    agent = agents(desk, billing)
    result = door(agent, "Money back!", thread_id="t")
    assert result.text == "Paid."
    assert [one["output"] for one in result.tool_calls] == ["billing takes over.", "desk pays 5"]
    assert [(c.system, c.tool_names) for c in desk.calls] == [
        ("You greet.", ("hours", "transfer_to_billing"))
    ]
    assert [(c.system, c.tool_names) for c in billing.calls] == [
        ("You do billing.", ("refund", "transfer_to_desk"))
    ] * 2
    at: Any = {"configurable": {"thread_id": "t"}}
    assert agent.graph.get_state(at).values["active"] == "billing"
    assert door(agent, "Sure?", thread_id="t").text == "Yes?"
    assert door(agent, "Back, please.", thread_id="t").text == "Hello again."
    assert agent.graph.get_state(at).values["active"] == "desk"
    assert door(agents(model_of("New."), model_of()), "Hi.").text == "New."


@pytest.mark.parametrize("written", [["billing"], {"billing": 1}, 5, "nobody"])
def test_a_wrong_name_of_the_active_agent_means_the_entry_agent(written: Any) -> None:
    agent = agents(model_of(GO, "Hello."), model_of("Billing."))
    agent.invoke("Hi.", thread_id="t")
    agent.graph.update_state({"configurable": {"thread_id": "t"}}, {"active": written})
    assert agent.invoke("Who?", thread_id="t").text == "Hello."


def test_it_needs_no_node_and_no_step_of_its_own() -> None:
    agent = agents(model_of(GO), model_of("Done."))
    alone = Agent("desk", model_of())
    assert [*agent.graph.nodes] == [*alone.graph.nodes]
    assert "active" not in alone.graph.channels
    agent.invoke("Hi.", thread_id="t")
    steps = [*agent.graph.get_state_history({"configurable": {"thread_id": "t"}})]
    assert len(steps) == 2 + 1 + 3 + 2  # before_agent, a turn with tools, a turn without


def test_limits_and_budget_are_the_runs() -> None:
    desk = model_of(text("", usage=(1, 1)), GO)
    agent = agents(model_of(GO), model_of(wild("refund", amount=1), "Last."), max_iterations=3)
    result = agent.invoke("Hi.")
    assert (result.stopped_because, result.text, result.usage.calls) == ("limit", "Last.", 3)
    assert desk is not None


def paid(number: int, *steps: Any) -> Any:
    return calls(*steps, usage=(number, 0), unchecked=True)


@pytest.mark.parametrize(("mine", "other", "most"), [(None, 30, 4), (30, None, 4), (90, 30, 4)])
def test_the_stricter_budget_wins_and_counts_the_whole_run(
    mine: int | None, other: int | None, most: int
) -> None:
    def hooks(limit: int | None) -> list[Any]:
        return [] if limit is None else [BudgetHook(Budget(tokens=limit), prices=lambda *_: None)]

    desk = model_of(paid(10, ("transfer_to_billing", {})))
    billing = model_of(*[paid(10, ("refund", {"amount": 1}))] * 9)
    result = agents(desk, billing, joins=hooks(other), hooks=hooks(mine)).invoke("Hi.")
    assert result.stopped_because == "limit"
    assert "budget of 30 tokens" in result.text
    assert result.usage.calls == most - 1


def test_the_targets_approvals_bind_while_it_is_active(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'w.db'}"
    rules = [ApprovalHook({"refund": True, "hours": True})]

    def made() -> Agent:
        steps = [call("refund", amount=5), "Paid."]
        return agents(ScriptedModel([wild("hours"), GO]), model_of(*steps), joins=rules, store=url)

    with made() as agent:
        asked = agent.invoke("Money back!", thread_id="t")
        assert asked.stopped_because == "interrupted"
        assert asked.interrupts[0].value["tool"] == "refund"
        outputs = [one["output"] for one in asked.tool_calls]
        assert outputs[:2] == ["nine to five", "billing takes over."]
    with made() as agent:
        answer = {asked.interrupts[0].id: {"decision": "approve"}}
        done = agent.resume("t", answer)
        assert done.tool_calls[2]["output"] == "desk pays 5"


class Marks(BaseHook):
    """A hook that does not join."""

    name = "marks"

    def modify_request(self, request: Any, ctx: Any) -> Any:
        return request.append_system("marked")


def refuse(text: str) -> str | None:
    return "no" if "tulip" in text else None


def test_the_targets_guardrails_join_and_other_hooks_do_not() -> None:
    billing = model_of("It is tulip.")
    agent = agents(model_of(GO), billing, joins=[OutputGuardrail(refuse), Marks()])
    seen: list[Any] = [*agent.stream("Which?")]
    assert isinstance(seen[-1], Done)
    assert seen[-1].stopped_because == "guardrail"
    assert "tulip" not in repr(seen)
    assert [c.system for c in billing.calls] == ["You do billing."]


def test_the_target_judges_the_input_when_it_takes_over() -> None:
    billing = model_of("never")
    agent = agents(model_of(GO), billing, joins=[InputGuardrail(refuse)])
    result = agent.invoke("Tell tulip.", thread_id="t")
    assert result.stopped_because == "guardrail"
    assert not billing.calls
    assert [m.type for m in result.messages] == ["human", "ai", "tool", "ai"]


def test_an_output_guardrail_of_one_holds_back_the_text_of_all() -> None:
    desk = model_of("Hello there, nice to see you.")
    agent = agents(desk, model_of(), joins=[OutputGuardrail(refuse)])
    deltas = [e.delta for e in agent.stream("Hi.") if isinstance(e, ChatModelStream)]
    assert deltas == ["Hello there, nice to see you."]


@pytest.mark.parametrize(
    ("what", "says"), [("team", "Paid back."), ("swarm", "Paid back. billing")]
)
def test_a_killed_run_goes_on_with_the_agent_that_took_over(
    what: str, says: str, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'w.db'}"
    command = [sys.executable, "-m", "tests.engine.team_process", what, url]
    how: dict[str, Any] = {"cwd": ROOT, "capture_output": True, "text": True, "timeout": 120}
    died = forked.run([*command, "die"], **how)
    assert (died.returncode, died.stdout) == (-9, ""), died.stderr
    went_on = forked.run(command, **how)
    assert went_on.stdout.strip() == says, went_on.stderr
    with shop(url) as agent:
        if what == "team":
            assert agent.invoke("Who are you?", thread_id="t").text == "Still billing."


@pytest.mark.parametrize(
    ("handoffs", "says"),
    [
        ({"b": "x"}, "is a Handoff"),
        ({"a b": Handoff(Agent("b", model_of()), "B.")}, "use another name"),
        ({"desk": Handoff(Agent("b", model_of()), "B.")}, "is the agent itself"),
        ({"b": Handoff(Agent("b", model_of()), " ")}, "needs a description"),
        ({"b": Handoff(agents(model_of(), model_of()), "B.")}, "has handoffs of its own"),
        ({"b": Handoff(Agent("b", model_of(), context_schema=int), "B.")}, "context_schema"),
        ({"b": Handoff(Agent("b", model_of(), long_term=InMemoryStore()), "B.")}, "long-term"),
    ],
)
def test_what_cannot_take_over_is_refused(handoffs: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Agent("desk", model_of(), handoffs=handoffs)


def test_a_copy_and_a_debugger_keep_them() -> None:
    agent = agents(model_of(GO), model_of("Done.")).copy_with(None, name="front")
    agent.invoke("Hi.", thread_id="t")
    with DebugSession.open(agent, "t") as session:
        session.add("break modify_request if active == 'billing'")
        assert session.value("active") is None
        session.cont()
        assert session.value("active") == "billing"
        session.goto("@last")
        assert session.value("active") == "billing"


def test_a_copy_with_another_model_gives_it_to_all() -> None:
    model = model_of(GO, "Both from one model.")
    agent = agents(model_of(), model_of()).copy_with(None, model=resolve_model(model))
    assert agent.invoke("Hi.").text == "Both from one model."
    assert [c.system for c in model.calls] == ["You greet.", "You do billing."]


@pytest.mark.parametrize("name", ["a" * 90, "Front desk — Zürich", "приём"])
def test_the_way_back_to_an_agent_with_any_name_is_a_usable_tool(name: str) -> None:
    billing = model_of(respond(lambda asked: call(asked.tool_names[-1])))
    agent = agents(model_of(GO, "Back."), billing).copy_with(None, name=name)
    assert agent.invoke("Hi.").text == "Back."
    assert re.fullmatch(r"transfer_to_[a-zA-Z0-9_-]{1,52}", billing.calls[0].tool_names[-1])


@pytest.mark.parametrize("at_first", [True, False])
def test_a_hooks_tool_cannot_replace_a_handoff(at_first: bool) -> None:
    @tool
    def transfer_to_billing() -> str:
        """Lead astray."""
        return "astray"

    class Takes(BaseHook):
        name = "takes"

        def tools(self, state: Any) -> Any:
            return [transfer_to_billing] if at_first or state["messages"] else []

    def run() -> None:
        agents(model_of(GO), model_of(), hooks=[Takes()]).invoke("Hi.")

    says = "hook takes tools: transfer_to_billing is a handoff; give this tool another name"
    with pytest.raises(ConfigError if at_first else HookError, match=says):
        run()


def test_a_partial_output_is_read_in_the_way_of_the_agent_that_took_over() -> None:
    long = {"name": "B" * 40, "people": 1}
    structured = {"structured_output": True}
    how: dict[str, Any] = {"cursor": "fifo", "chunk_delay": 0.05}
    native = ScriptedModel([json.dumps(long)], profile=structured, **how)
    by_tool = ScriptedModel([call("City", **long)], **how)
    go: Any = ScriptedModel([GO], **how), ScriptedModel([GO], profile=structured, **how)
    for desk, billing in zip(go, (native, by_tool), strict=True):
        handoffs = {"billing": Handoff(Agent("b", billing), "M.")}
        agent: Agent = Agent("desk", desk, handoffs=handoffs, output_type=City)
        events = [*agent.stream("Hi.")]
        deltas = [event.output for event in events if isinstance(event, OutputDelta)]
        assert deltas[0] != deltas[-1] == long


def test_an_input_may_choose_who_answers() -> None:
    agent = agents(model_of(), model_of("Billing here."))
    given = {"messages": "Hi.", "active": "billing"}
    assert asyncio.run(agent.ainvoke(given)).text == "Billing here."
