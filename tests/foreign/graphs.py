"""Fourteen kinds of graphs, written as their users write them, with counters in their nodes."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Annotated, Any, TypedDict

from deepagents import create_deep_agent
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.cache.memory import InMemoryCache
from langgraph.channels import DeltaChannel
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import _messages_delta_reducer, add_messages
from langgraph.prebuilt import ToolNode
from langgraph.types import CachePolicy, Command, RetryPolicy, Send, interrupt

from wick_graph import Agent
from wick_graph.testing import ScriptedModel

Config = dict[str, Any]


class Scripted(BaseChatModel):
    """A model that gives its replies in order, whatever it is asked."""

    replies: Any

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any) -> Any:
        return ChatResult(generations=[ChatGeneration(message=next(self.replies))])

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self.bind(tools=[{"type": "function", "function": {"name": t.name}} for t in tools])


def model(*replies: AIMessage | str) -> Scripted:
    """Return a model with these replies."""
    made = (AIMessage(r) if isinstance(r, str) else r.model_copy() for r in replies)
    return Scripted(replies=iter(made))


def calls(*asked: tuple[str, dict[str, Any]]) -> AIMessage:
    """Return a reply that calls tools."""
    made = [
        {"name": name, "args": args, "id": f"c{at}", "type": "tool_call"}
        for at, (name, args) in enumerate(asked)
    ]
    return AIMessage("", tool_calls=made)


@tool
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@tool
def fail(why: str) -> str:
    """Fail."""
    raise ValueError(why)


@dataclass
class Made:
    """A graph, and what is given to it, one input after the other."""

    graph: Any
    inputs: Sequence[Any]
    ran: Counter[str] = field(default_factory=Counter)
    """How often each node ran."""
    asynchronous: bool = True
    """Whether it runs in both doors."""


Maker = Callable[[Any], Made]


class Log(TypedDict, total=False):
    n: int
    log: Annotated[list[str], operator.add]


def counted(ran: Counter[str], name: str, result: Any = None) -> Callable[[Any], Any]:
    """Return a node that counts its runs."""

    def node(state: Any) -> Any:
        ran[name] += 1
        return result(state) if callable(result) else result or {"log": [name]}

    node.__name__ = name
    return node


def loop(saver: Any) -> Made:
    ran: Counter[str] = Counter()
    made: Any = StateGraph(Log)
    made.add_node("a", counted(ran, "a", lambda s: {"n": s.get("n", 0) + 1, "log": ["a"]}))
    made.add_node("b", counted(ran, "b"))
    made.add_edge(START, "a").add_edge("a", "b")
    made.add_conditional_edges("b", lambda s: "a" if s["n"] < 3 else END, ["a", END])
    return Made(made.compile(checkpointer=saver), [{"n": 0}, {"n": 1}], ran)


def join(saver: Any) -> Made:
    ran: Counter[str] = Counter()
    made: Any = StateGraph(Log)
    for name in ("a", "b", "c", "end"):
        made.add_node(name, counted(ran, name))
    made.add_edge(START, "a").add_edge(START, "b").add_edge("b", "c")
    made.add_edge(["a", "c"], "end")
    return Made(made.compile(checkpointer=saver), [{"n": 1}], ran)


def sends(saver: Any) -> Made:
    ran: Counter[str] = Counter()
    made: Any = StateGraph(Log)
    made.add_node("plan", counted(ran, "plan"))
    made.add_node("work", counted(ran, "work", lambda s: {"log": [f"w{s['n']}"]}))
    made.add_edge(START, "plan")
    made.add_conditional_edges("plan", lambda s: [Send("work", {"n": n}) for n in range(3)])
    return Made(made.compile(checkpointer=saver), [{"n": 1}], ran)


def subgraph(saver: Any) -> Made:
    ran: Counter[str] = Counter()

    def ask(state: Log) -> Log:
        ran["ask"] += 1
        return {"log": [interrupt("which?") if saver is not None else "none"]}

    inner: Any = StateGraph(Log)
    inner.add_node("ask", ask).add_node("after", counted(ran, "after"))
    inner.add_edge(START, "ask").add_edge("ask", "after")
    made: Any = StateGraph(Log)
    made.add_node("inner", inner.compile()).add_node("last", counted(ran, "last"))
    made.add_edge(START, "inner").add_edge("inner", "last")
    inputs = [{"n": 1}] if saver is None else [{"n": 1}, Command(resume="this")]
    return Made(made.compile(checkpointer=saver), inputs, ran)


def closure(saver: Any) -> Made:
    ran: Counter[str] = Counter()
    inner: Any = StateGraph(Log)
    inner.add_node("deep", counted(ran, "deep")).add_edge(START, "deep")
    compiled = inner.compile()

    def outer(state: Log) -> Log:
        ran["outer"] += 1
        return {"log": compiled.invoke({"n": state["n"]})["log"]}

    made: Any = StateGraph(Log)
    made.add_node("outer", outer).add_edge(START, "outer")
    return Made(made.compile(checkpointer=saver), [{"n": 1}], ran)


def commands(saver: Any) -> Made:
    ran: Counter[str] = Counter()

    def go(state: Log) -> Command[Any]:
        ran["go"] += 1
        return Command(goto="inner", update={"log": ["go"]})

    def leave(state: Log) -> Command[Any]:
        ran["leave"] += 1
        return Command(goto="last", update={"log": ["left"]}, graph=Command.PARENT)

    inner: Any = StateGraph(Log)
    inner.add_node("leave", leave).add_edge(START, "leave")
    made: Any = StateGraph(Log)
    made.add_node("go", go, destinations=("inner",))
    made.add_node("inner", inner.compile(), destinations=("last",))
    made.add_node("last", counted(ran, "last")).add_edge(START, "go")
    return Made(made.compile(checkpointer=saver), [{"n": 1}], ran)


def deferred(saver: Any) -> Made:
    ran: Counter[str] = Counter()
    made: Any = StateGraph(Log)
    for name in ("a", "b", "c"):
        made.add_node(name, counted(ran, name))
    made.add_node("last", counted(ran, "last"), defer=True)
    made.add_edge(START, "a").add_edge(START, "b").add_edge("b", "c")
    made.add_edge("a", "last").add_edge("c", "last")
    return Made(made.compile(checkpointer=saver), [{"n": 1}], ran)


def retried(saver: Any) -> Made:
    ran: Counter[str] = Counter()

    def flaky(state: Log) -> Log:
        ran["flaky"] += 1
        if ran["flaky"] < 3:
            raise ConnectionError("away")
        return {"log": ["flaky"]}

    made: Any = StateGraph(Log)
    policy = RetryPolicy(max_attempts=3, initial_interval=0.0, jitter=False)
    made.add_node("flaky", flaky, retry_policy=policy)
    made.add_node(
        "kept",
        counted(ran, "kept"),
        cache_policy=CachePolicy(key_func=lambda state: "one"),
    )
    made.add_edge(START, "flaky").add_edge("flaky", "kept")
    return Made(made.compile(checkpointer=saver, cache=InMemoryCache()), [{"n": 1}, {"n": 2}], ran)


def functional(saver: Any) -> Made:
    ran: Counter[str] = Counter()

    @task
    def double(n: int) -> int:
        ran["double"] += 1
        return 2 * n

    @entrypoint(checkpointer=saver)
    def flow(n: int, *, previous: int | None = None) -> int:
        ran["flow"] += 1
        return double(n).result() + (previous or 0)

    return Made(flow, [3, 4], ran, asynchronous=False)


class Delta(TypedDict, total=False):
    messages: Annotated[list[BaseMessage], DeltaChannel(_messages_delta_reducer)]
    n: int


def delta(saver: Any) -> Made:
    ran: Counter[str] = Counter()
    made: Any = StateGraph(Delta)
    for name in ("a", "b"):
        made.add_node(name, counted(ran, name, {"messages": [AIMessage(name, id=f"m-{name}")]}))
    made.add_edge(START, "a").add_edge("a", "b")
    return Made(made.compile(checkpointer=saver), [{"messages": [("user", "hi")]}], ran)


def tool_node(saver: Any) -> Made:
    ran: Counter[str] = Counter()
    asked = calls(("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4}))
    bound = model(asked, "done")

    def think(state: MessagesState) -> Any:
        ran["think"] += 1
        return {"messages": [bound.invoke(state["messages"])]}

    made: Any = StateGraph(MessagesState)
    made.add_node("think", think).add_node("do", ToolNode([add, fail], handle_tool_errors=True))
    made.add_edge(START, "think").add_edge("do", "think")
    made.add_conditional_edges(
        "think", lambda s: "do" if s["messages"][-1].tool_calls else END, ["do", END]
    )
    return Made(made.compile(checkpointer=saver), [{"messages": [("user", "sum")]}], ran)


class Prompting(AgentMiddleware):
    """Changes the prompt of a request."""

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        text = f"{request.system_message.text} Be brief."
        return handler(request.override(system_message=SystemMessage(text)))

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        text = f"{request.system_message.text} Be brief."
        return await handler(request.override(system_message=SystemMessage(text)))


class Passing(AgentMiddleware):
    """Passes a request on."""

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(request)

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        return await handler(request)


class Doubling(AgentMiddleware):
    """Changes the arguments of a call."""

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        return handler(request.override(tool_call=self._doubled(request.tool_call)))

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        return await handler(request.override(tool_call=self._doubled(request.tool_call)))

    def _doubled(self, call: Any) -> Any:
        return {**call, "args": {**call["args"], "a": 2 * call["args"]["a"]}}


class Counting(AgentMiddleware):
    """Runs before and after each model."""

    def before_model(self, state: Any, runtime: Any) -> Any:
        return None


def react(saver: Any) -> Made:
    made = create_agent(
        model(calls(("add", {"a": 1, "b": 2})), "done"),
        tools=[add],
        system_prompt="You add.",
        middleware=[Prompting(), Passing(), Doubling(), Counting()],
        checkpointer=saver,
    )
    return Made(made, [{"messages": [("user", "sum")]}])


def deep(saver: Any) -> Made:
    asked = calls(("task", {"description": "add", "subagent_type": "adder"}))
    made = create_deep_agent(
        model=model(asked, "done"),
        tools=[],
        system_prompt="You delegate.",
        subagents=[
            {
                "name": "adder",
                "description": "adds",
                "system_prompt": "You add.",
                "model": model("three"),
                "tools": [],
            }
        ],
        checkpointer=saver,
    )
    return Made(made, [{"messages": [("user", "sum")]}])


class Outer(TypedDict, total=False):
    messages: Annotated[list[BaseMessage], add_messages]


def wick(saver: Any) -> Made:
    ran: Counter[str] = Counter()
    agent = Agent("inner", ScriptedModel(["inside"]), store=False)
    made: Any = StateGraph(Outer)
    made.add_node("agent", agent.graph).add_node("last", counted(ran, "last", {}))
    made.add_edge(START, "agent").add_edge("agent", "last")
    return Made(made.compile(checkpointer=saver), [{"messages": [("user", "hi")]}], ran)


GRAPHS: dict[str, Maker] = {
    "loop": loop,
    "join": join,
    "send": sends,
    "subgraph": subgraph,
    "closure": closure,
    "command": commands,
    "defer": deferred,
    "retry": retried,
    "functional": functional,
    "delta": delta,
    "toolnode": tool_node,
    "create_agent": react,
    "deepagents": deep,
    "wick": wick,
}

_numbers: Iterator[int] = count(1)


def config() -> Config:
    """Return a config with a thread of its own, named as no thread of ours may be."""
    return {"configurable": {"thread_id": f"user-{next(_numbers)}@example.com"}}
