"""Channels of one's own: hooks and tools write them, threads keep them, the debugger shows them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from decimal import Decimal
from operator import add
from pathlib import Path
from typing import Annotated, Any, NotRequired

import pytest
from langchain_core.tools import tool as langchain_tool
from langgraph.channels import EphemeralValue
from langgraph.prebuilt import InjectedState
from langgraph.types import Command, Overwrite
from typing_extensions import TypedDict

from tests.engine.support import wild
from wick_graph import Agent, BaseHook, ToolContext, ToolResult, tool, tool_msg
from wick_graph.debug import DebugSession
from wick_graph.errors import ConfigError, HookError, WickError
from wick_graph.testing import ScriptedModel, call, calls


class Shop(TypedDict):
    cart: Annotated[list[str], add]
    owner: NotRequired[str]


@tool
def put(what: str, ctx: ToolContext) -> ToolResult:
    """Put a thing into the cart."""
    held = [*(ctx.state.get("cart") or ())]
    return ToolResult(ctx.call_id, ctx.name, f"after {held}", update={"cart": [what]})


class Owner(BaseHook):
    """Write one's own channel, and read what the tools have written."""

    name = "owner"

    def __init__(self) -> None:
        self.carts: list[Any] = []

    def before_agent(self, state: Any, ctx: Any) -> Any:
        return {"owner": "ada"}

    def modify_request(self, request: Any, ctx: Any) -> Any:
        self.carts.append(ctx.state["cart"])
        return request, {"cart": ["stamp"]} if len(self.carts) == 1 else {}


def agent_of(*steps: Any, **options: Any) -> Agent:
    options.setdefault("tools", [put])
    return Agent("a", ScriptedModel([*steps]), state_schema=Shop, **options)


DOORS: list[Callable[..., Any]] = [
    lambda agent, given, **more: agent.invoke(given, **more),
    lambda agent, given, **more: asyncio.run(agent.ainvoke(given, **more)),
]


def values_of(agent: Agent, thread: str = "t") -> dict[str, Any]:
    found = agent.graph.get_state({"configurable": {"thread_id": thread}}).values
    return {name: found.get(name) for name in ("cart", "owner")}


@pytest.mark.parametrize("door", DOORS)
def test_hooks_and_tools_write_it_and_reducers_combine_a_step(door: Callable[..., Any]) -> None:
    hook = Owner()
    asked = calls(("put", {"what": "pen"}), ("put", {"what": "ink"}))
    agent = agent_of(asked, call("put", what="cap"), "Done.", hooks=[hook])
    result = door(agent, "Shop.", thread_id="t")
    assert values_of(agent) == {"cart": ["stamp", "pen", "ink", "cap"], "owner": "ada"}
    assert hook.carts == [[], ["stamp", "pen", "ink"], ["stamp", "pen", "ink", "cap"]]
    assert [one["output"] for one in result.tool_calls] == [
        "after ['stamp']",
        "after ['stamp']",
        "after ['stamp', 'pen', 'ink']",
    ]


def test_it_is_kept_with_the_thread_and_an_input_may_name_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'w.db'}"
    with agent_of(call("put", what="pen"), "Done.", store=url) as agent:
        agent.invoke({"messages": "Shop.", "cart": ["bag"], "owner": "bob"}, thread_id="t")
    with agent_of("x", "x", "Hello.", store=url) as agent:
        assert values_of(agent) == {"cart": ["bag", "pen"], "owner": "bob"}
        state = agent.graph.invoke(
            {"messages": [("user", "Again.")], "cart": ["cap"]},
            {"configurable": {"thread_id": "t"}},
        )
        assert state["cart"] == ["bag", "pen", "cap"]


def test_old_threads_open_with_and_without_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'w.db'}"
    with Agent("a", ScriptedModel(["One."]), store=url) as agent:
        agent.invoke("Hello.", thread_id="t")
    with agent_of("One.", call("put", what="pen"), "Three.", store=url) as agent:
        agent.invoke("Shop.", thread_id="t")
        assert values_of(agent)["cart"] == ["pen"]
    other = Agent("b", ScriptedModel(["x"] * 4), store=url)
    with other as agent, pytest.raises(ConfigError, match="has no channel cart for its state"):
        agent.invoke("Bye.", thread_id="t")
    with Agent("a", ScriptedModel([*["x"] * 3, "Four."]), store=url) as agent:
        assert agent.invoke("Bye.", thread_id="t").text == "Four."


def test_langchains_tools_and_commands_write_it() -> None:
    @langchain_tool
    def take(state: Annotated[Any, InjectedState]) -> Command[Any]:
        """Take it."""
        last = state["messages"][-1].tool_calls[0]["id"]
        return Command(update={"cart": ["hat"], "messages": [tool_msg(last, "take", "taken")]})

    agent = agent_of(call("take"), "Done.", tools=[take])
    agent.invoke("Take.", thread_id="t")
    assert values_of(agent)["cart"] == ["hat"]


named: Any = TypedDict


class Plain(TypedDict, total=False):
    note: str
    once: Annotated[str, EphemeralValue]


def test_without_a_reducer_the_last_write_of_a_step_wins() -> None:
    @tool
    def note(text: str, ctx: ToolContext) -> ToolResult:
        """Note a text."""
        return ToolResult(ctx.call_id, ctx.name, "ok", update={"note": text})

    asked = calls(("note", {"text": "one"}), ("note", {"text": "two"}))
    agent = Agent(model=ScriptedModel([asked, "Done."]), tools=[note], state_schema=Plain)
    state = agent.graph.invoke({"messages": [("user", "Note.")]})
    assert state["note"] == "two"


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (named("S", {"messages": list[Any]}), "the channel messages is the engine's"),
        (named("S", {"request": str}), "the channel request is the engine's"),
        (named("S", {"__root__": str}), "the channel __root__ is the engine's"),
        (dict, "takes a TypedDict"),
    ],
)
def test_the_engines_channels_are_not_shadowed(schema: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Agent(model=ScriptedModel([]), state_schema=schema)


def test_a_channel_that_does_not_exist_is_still_refused() -> None:
    class Wrong(BaseHook):
        name = "wrong"

        def before_agent(self, state: Any, ctx: Any) -> Any:
            return {"basket": []}

    with pytest.raises(HookError, match=r"no channel 'basket'; it has cart, .*owner"):
        agent_of("Done.", hooks=[Wrong()]).invoke("Hi")


def test_a_value_that_no_store_keeps_is_a_tools_error_and_a_hooks_failure() -> None:
    @tool
    def pay(ctx: ToolContext) -> ToolResult:
        """Pay."""
        return ToolResult(ctx.call_id, ctx.name, "ok", update={"cart": [object()]})

    class Wrong(BaseHook):
        name = "wrong"

        def before_agent(self, state: Any, ctx: Any) -> Any:
            return {"cart": [object()]}

    agent = agent_of(wild("pay"), "Done.", tools=[pay])
    result = agent.invoke("Pay.", thread_id="t")
    assert "state update is refused: a builtins.object cannot" in result.tool_calls[0]["error"]
    failing = agent_of("Done.", hooks=[Wrong()])
    with pytest.raises(WickError, match="object cannot be stored"):
        failing.invoke("Hi", thread_id="t")
    fine = agent_of("Done.").copy_with(failing.store)
    assert fine.invoke("Hi", thread_id="t").text == "Done."


def test_the_codecs_own_types_are_kept() -> None:
    class Money(TypedDict):
        sum: Decimal

    @tool
    def pay(ctx: ToolContext) -> ToolResult:
        """Pay."""
        return ToolResult(ctx.call_id, ctx.name, "ok", update={"sum": Decimal("1.10")})

    agent = Agent(model=ScriptedModel([call("pay"), "Done."]), tools=[pay], state_schema=Money)
    state = agent.graph.invoke({"messages": [("user", "Pay.")]})
    assert state["sum"] == Decimal("1.10")


def test_the_debugger_shows_it_within_a_step_too() -> None:
    asked = calls(("put", {"what": "pen"}), ("put", {"what": "ink"}))
    agent = agent_of(asked, "Done.", hooks=[Owner()])
    agent.invoke("Shop.", thread_id="t")
    with DebugSession.open(agent, "t") as session:
        session.add("watch cart")
        carts: list[Any] = []
        while session.cont().reason != "end" and len(carts) < 9:
            carts.append(session.value("cart"))
        assert len(carts) == 3
        assert (carts[0], sorted(carts[2])) == (["stamp"], ["ink", "pen", "stamp"])


def _plain(old: Any, new: Any) -> Any:
    if isinstance(new, list):
        return new
    raise TypeError("only LangGraph knows what this is")


class _Notes(TypedDict):
    notes: Annotated[list[str], _plain]


def test_a_hook_that_calls_the_model_again_reads_its_own_channels_as_before_the_step() -> None:
    """Their reducers are not asked: one may change its argument, another gets an `Overwrite`."""
    seen: list[Any] = []

    class Again(BaseHook):
        name = "again"

        def wrap_model_call(self, request: Any, next: Any) -> Any:
            next(request)
            return next(request)

    class Writes(BaseHook):
        name = "writes"

        def wrap_model_call(self, request: Any, next: Any) -> Any:
            seen.append(request.state.get("notes"))
            return next(request), {"notes": Overwrite(["n"]) if len(seen) == 1 else ["m"]}

    model, hooks = ScriptedModel(["One.", "Two."], cursor="fifo"), [Again(), Writes()]
    agent = Agent(model=model, hooks=hooks, state_schema=_Notes, store="sqlite://")
    assert agent.invoke("Go", thread_id="t").text == "Two."
    assert seen == [[], []]
