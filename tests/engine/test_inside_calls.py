"""An agent inside a call of another agent, or in a user's graph, has an end and data of its own."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_store
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.memory import InMemoryStore
from langgraph.types import Send

from tests.engine.support import Door, agent_of
from wick_graph import Agent, BaseHook, ToolContext, events, tool
from wick_graph.errors import ConfigError
from wick_graph.hooks import ApprovalHook, Approve, Tripwire
from wick_graph.hooks.budget import Budget, BudgetHook
from wick_graph.messages import Processors, to_llm_dict
from wick_graph.testing import ScriptedModel


def asks(*calls: tuple[str, str, dict[str, Any]]) -> AIMessage:
    """Return a reply with calls: name, id, arguments."""
    made = [{"name": name, "id": id, "args": args} for name, id, args in calls]
    return AIMessage("", tool_calls=made)


def calling(inner: Agent[Any]) -> Any:
    """Return a tool that runs an agent's graph."""

    @tool(replay="safe")
    def ask(text: str) -> str:
        """Ask the other agent."""
        return str(inner.graph.invoke({"messages": [("user", text)]})["messages"][-1].text)

    return ask


def pay(amount: float) -> str:
    """Pay."""
    return f"paid {amount:g}"


class Night(BaseHook):
    name = "night"

    def before_agent(self, state: Any, ctx: Any) -> Any:
        raise Tripwire("it is night", answer="We open at nine.")


def test_a_guardrail_of_an_agent_inside_a_call_ends_that_agent_alone() -> None:
    inner = Agent("inner", ScriptedModel([]), hooks=[Night()])
    reply = asks(("ask", "a", {"text": "?"}), ("pay", "b", {"amount": 1}))
    model, rules = ScriptedModel([reply, "Done."]), [ApprovalHook({"pay": True})]
    with Agent(model=model, tools=[calling(inner), pay], hooks=rules, store="sqlite://") as outer:
        first = outer.invoke("Go", thread_id="t")
        assert (first.stopped_because, first.reason) == ("interrupted", "")
        thread = outer.threads.get("t")
        assert thread is not None
        assert (thread.status, thread.title, thread.last_error) == ("waiting", "Go", None)
        done = outer.resume("t", Approve())
        assert [m.text for m in done.messages[2:]] == ["We open at nine.", "paid 1", "Done."]


def test_an_agent_inside_a_call_sends_its_messages_through_its_own_processors() -> None:
    def signed(name: str) -> Processors:
        def sign(message: Any) -> Any:
            made = to_llm_dict(message)
            if made["role"] == "user":
                made["content"] += f" ({name})"
            return made

        return Processors(outbound=sign)

    within = ScriptedModel(["So."])
    inner = Agent("inner", within, processors=signed("inner"))
    model = ScriptedModel([asks(("ask", "a", {"text": "?"})), "Done."])
    outer = Agent(model=model, tools=[calling(inner)], processors=signed("outer"))
    result = outer.invoke("Go")
    assert within.calls[0].messages[-1].text == "? (inner)"
    assert model.calls[-1].messages[0].text == "Go (outer)"
    assert result.usage.calls == 3


def test_what_an_agent_inside_a_call_uses_counts_in_the_thread_and_in_its_budget() -> None:
    def priced(usage: Any, model: str, provider: str | None = None) -> Decimal:
        return Decimal("0.01")

    def deep(depth: int) -> Agent[Any]:
        replies: list[Any] = [asks(("ask", "a", {"text": "?"})), "So."] if depth else ["So."]
        tools = [calling(deep(depth - 1))] if depth else []
        return Agent(f"a{depth}", ScriptedModel(replies), tools=tools, hooks=hooks)

    hooks = [BudgetHook(prices=priced)]
    model = ScriptedModel([asks(("ask", "a", {"text": "?"})), "So."])
    with Agent("outer", model, tools=[calling(deep(1))], hooks=hooks, store="sqlite://") as outer:
        result = outer.invoke("Go", thread_id="t")
        assert result.usage.calls == 5
        assert result.thread_usage == result.usage
        assert result.cost is not None
        assert result.cost.usd == Decimal("0.05")
        more = [BudgetHook(Budget(usd=0.05, per="thread"), prices=priced)]
        after = Agent("outer", ScriptedModel(["no"]), hooks=more, store=outer.store)
        assert after.invoke("More", thread_id="t").stopped_because == "limit"


def test_what_agents_use_in_a_graph_or_a_hook_counts_in_the_thread_too(door: Door) -> None:
    inner = Agent("inner", ScriptedModel(["So."] * 9, cursor="fifo"))
    builder = StateGraph(MessagesState)
    builder.add_node("agent", inner.graph)
    builder.add_conditional_edges(START, lambda state: [Send("agent", state), Send("agent", state)])
    graph: Any = builder.compile()

    class Asks(BaseHook):
        name = "asks"

        def before_agent(self, state: Any, ctx: Any) -> None:
            inner.graph.invoke({"messages": [("user", "?")]})

    @tool(replay="safe")
    def fan(text: str) -> str:
        """Ask two."""
        return str(graph.invoke({"messages": [("user", text)]})["messages"][-1].text)

    reply = asks(*(("fan", f"f{n}", {"text": "?"}) for n in range(3)))
    agent, _ = agent_of(reply, "Done.", tools=[fan], hooks=[Asks()])
    result = door(agent, "Go")
    assert result.usage.calls == 2 + 3 * 2 + 1
    assert result.thread_usage == result.usage


@pytest.mark.parametrize("direct", [False, True])
def test_a_stream_tells_the_words_of_the_agent_that_was_asked(direct: bool) -> None:
    inner = Agent("inner", ScriptedModel(["Inner words."]))

    @tool(return_direct=direct)
    def ask() -> str:
        """Ask the other agent."""
        return str(inner.graph.invoke({"messages": [("user", "?")]})["messages"][-1].text)

    outer = Agent(model=ScriptedModel([asks(("ask", "a", {})), "Done."]), tools=[ask])
    told = list(outer.stream("Go"))
    said = [event.delta for event in told if isinstance(event, events.ChatModelStream)]
    assert "".join(said) == ("Inner words." if direct else "Done.")
    assert [event.name for event in told if isinstance(event, events.ToolStart)] == ["ask"]


@pytest.mark.parametrize("kind", ["ours", "foreign"])
def test_a_decision_inside_a_call_is_not_about_a_call_with_the_same_id_around_it(kind: str) -> None:
    rules = [ApprovalHook({"pay": True})]
    script = ScriptedModel([asks(("pay", "call_0", {"amount": 3})), "Paid."])
    inner = Agent("inner", script, tools=[pay], hooks=rules)
    model = ScriptedModel([asks(("ask", "call_0", {"text": "?"})), "Done."])
    store: Any = "sqlite://" if kind == "ours" else InMemorySaver()
    with Agent(model=model, tools=[calling(inner)], store=store) as outer:
        assert outer.invoke("Go", thread_id="t").interrupts[0].value["tool"] == "pay"
        assert outer.resume("t", Approve()).text == "Done."


def test_the_steps_of_an_agent_inside_a_call_go_with_the_step_of_the_call() -> None:
    inner = Agent("inner", ScriptedModel(["So."] * 9, cursor="fifo"))
    steps = [step for n in range(9) for step in (asks(("ask", f"a{n}", {"text": "?"})), "Done.")]
    model, ask = ScriptedModel(steps, cursor="fifo"), calling(inner)
    with Agent(model=model, tools=[ask], store="sqlite://", keep_latest=2) as outer:
        sizes = list[int]()
        for _ in range(9):
            outer.invoke("Go", thread_id="t")
            thread = outer.threads.get("t")
            assert thread is not None
            sizes.append(thread.steps)
        assert sizes[-1] <= max(sizes[:4])


def test_a_question_inside_a_call_outlives_the_dropping_of_steps() -> None:
    script = ScriptedModel([asks(("pay", "p", {"amount": 3})), "Paid."])
    inner = Agent("inner", script, tools=[pay], hooks=[ApprovalHook({"pay": True})])
    model = ScriptedModel([asks(("ask", "a", {"text": "?"})), "Done."])
    with Agent(model=model, tools=[calling(inner)], store="sqlite://") as outer:
        outer.invoke("Go", thread_id="t")
        outer.threads.keep_latest("t", 1)
        assert outer.resume("t", Approve()).text == "Done."


# --- As a node of a user's graph.


@dataclass
class Ctx:
    user: str = "nobody"


def agent_with(context: list[Any]) -> Agent[Any, Ctx]:
    """Return an agent with a context and a long-term store; its tool notes the context."""

    @tool
    def look(ctx: ToolContext) -> str:
        """Look."""
        context.append(ctx.context)
        get_store().put(("seen",), "it", {"n": 1})
        return "seen"

    model = ScriptedModel([asks(("look", "a", {})), "Done."])
    return Agent("looker", model, tools=[look], context_schema=Ctx, long_term=InMemoryStore())


@pytest.mark.parametrize(
    ("given", "got"),
    [(None, Ctx()), (Ctx("ada"), Ctx("ada")), ({"user": "ada"}, Ctx("ada")), ("odd", Ctx())],
)
@pytest.mark.parametrize("style", ["invoke", "ainvoke"])
def test_a_node_has_its_own_context_and_long_term_store(style: str, given: Any, got: Ctx) -> None:
    seen = list[Any]()
    agent = agent_with(seen)
    built = StateGraph(MessagesState).add_node("look", agent).add_edge(START, "look")
    graph: Any = built.compile()
    input: Any = {"messages": [("user", "?")]}
    if style == "invoke":
        state = graph.invoke(input, context=given)
    else:
        state = asyncio.run(graph.ainvoke(input, context=given))
    assert state["messages"][-1].text == "Done."
    assert seen == [got]
    store = agent.graph.store
    assert store is not None
    assert store.get(("seen",), "it") is not None


def test_the_long_term_store_of_the_graph_around_comes_first() -> None:
    agent, outer = agent_with([]), InMemoryStore()
    built = StateGraph(MessagesState).add_node("look", agent).add_edge(START, "look")
    graph: Any = built.compile(store=outer)
    graph.invoke({"messages": [("user", "?")]})
    assert outer.get(("seen",), "it") is not None


def test_a_node_without_the_context_that_it_needs_is_refused_before_it_runs() -> None:
    @dataclass
    class Needed:
        user: str

    model = ScriptedModel(["never"])
    agent = Agent("strict", model, context_schema=Needed)
    built = StateGraph(MessagesState).add_node("ask", agent).add_edge(START, "ask")
    graph: Any = built.compile()
    with pytest.raises(ConfigError, match="strict needs a context of Needed"):
        graph.invoke({"messages": [("user", "?")]})
    assert not model.calls
