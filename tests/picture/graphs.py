"""LangGraph graphs of many shapes, built as programs build them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Annotated, Any, Final, Literal

from langchain_core.messages import AIMessage, AnyMessage
from langgraph.func import entrypoint
from langgraph.graph import END, START, StateGraph, add_messages
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, Send
from typing_extensions import TypedDict

from wick_graph import Agent, BaseHook
from wick_graph.subagents import Background, Subagent, delegation
from wick_graph.tools.toolsets import Unasked

Edges = Sequence[tuple[str, str]]
HOSTILE: Final = 'a"] --> b</text><script>alert(1)</script>&amp;%%{init}%%\\'
RIGHT_TO_LEFT: Final = "\u202e\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627\u202c"
WIDE: Final = "\u4f60\u597d\uff0c\u4e16\u754c \U0001f680 \u0928\u092e\u0938\u094d\u0924\u0947"


class State(TypedDict):
    """One channel is enough to draw."""

    log: Annotated[list[str], operator.add]


class Chat(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


def step(state: Any) -> dict[str, Any]:
    return {"log": ["x"]}


def of_edges(edges: Edges, **choices: dict[str, str]) -> Any:
    """Compile a graph of plain edges, and of one choice for each node that has one."""
    graph = StateGraph(State)
    ways = [*edges, *((source, t) for source, ends in choices.items() for t in ends.values())]
    for name in dict.fromkeys(node for edge in ways for node in edge):
        if name not in (START, END):
            graph.add_node(name, step)
    for source, target in edges:
        graph.add_edge(source, target)
    for source, ends in choices.items():
        graph.add_conditional_edges(source, lambda state: "", dict[Hashable, str](ends.items()))
    return graph.compile()


def chain() -> Any:
    names = [START, "load", "split", "embed", "store", END]
    return of_edges(list(pairwise(names)))


def one_node() -> Any:
    return of_edges([(START, "only"), ("only", END)])


def self_loop() -> Any:
    return of_edges([(START, "poll")], poll={"again": "poll", "ready": END})


def self_loop_without_label() -> Any:
    return of_edges([(START, "spin"), ("spin", "spin"), ("spin", "next"), ("next", END)])


def diamond() -> Any:
    return of_edges([(START, "a"), ("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("d", END)])


def fan_out(count: int) -> Any:
    workers = [f"worker_{i:02}" for i in range(count)]
    edges = [(START, "plan"), *(("plan", w) for w in workers), *((w, "join") for w in workers)]
    return of_edges([*edges, ("join", END)])


def router(count: int) -> Any:
    ends = {f"case {i}": f"handler_{i}" for i in range(count)}
    edges = [(START, "router"), *((name, END) for name in ends.values())]
    return of_edges(edges, router=ends)


def supervisor() -> Any:
    names = ["researcher", "coder", "reviewer", "writer"]
    edges = [(START, "supervisor"), *((name, "supervisor") for name in names)]
    return of_edges(edges, supervisor={**{name: name for name in names}, "FINISH": END})


def swarm() -> Any:
    names = ["alice", "bob", "carol", "dave"]
    graph = StateGraph(State)
    for name in names:
        others = tuple(other for other in names if other != name)
        graph.add_node(name, step, destinations=(*others, END))
    graph.add_edge(START, "alice")
    return graph.compile()


def parallel_labels() -> Any:
    """Several decisions lead to the same node."""
    return of_edges(
        [(START, "grade"), ("fix", "grade")],
        grade={"wrong": "fix", "ugly": "fix", "slow": "fix", "good": END},
    )


def nested_loops() -> Any:
    return of_edges(
        [(START, "outer"), ("outer", "middle"), ("middle", "inner")],
        inner={"inner again": "inner", "middle": "middle", "outer": "outer", "done": END},
    )


def long_jumps() -> Any:
    names = [f"step_{i}" for i in range(8)]
    edges = [(START, names[0]), *pairwise(names), (names[-1], END)]
    jumps = [(names[0], names[4]), (names[0], names[7]), (names[1], names[6]), (names[2], names[5])]
    return of_edges([*edges, *jumps])


def returns_everywhere() -> Any:
    names = [f"n{i}" for i in range(6)]
    edges = [(START, names[0]), *pairwise(names), (names[-1], END)]
    return of_edges([*edges, *((names[i], names[j]) for i in range(1, 6) for j in range(i))])


def bipartite() -> Any:
    left, right = [f"l{i}" for i in range(5)], [f"r{i}" for i in range(5)]
    edges = [*((START, a) for a in left), *((a, b) for a in left for b in right)]
    return of_edges([*edges, *((b, END) for b in right)])


def disconnected() -> Any:
    """Nodes that only a goto reaches: LangGraph knows of no edge to them."""
    graph = StateGraph(State)
    for name in ("start_here", "hidden_one", "hidden_two", "hidden_three"):
        graph.add_node(name, step)
    graph.add_edge(START, "start_here")
    graph.add_edge("start_here", END)
    graph.add_edge("hidden_one", "hidden_two")
    return graph.compile()


def two_worlds() -> Any:
    """Two loops that never meet but in the end."""
    return of_edges(
        [(START, "a1"), (START, "b1"), ("a1", "a2"), ("b1", "b2")],
        a2={"more": "a1", "stop": END},
        b2={"more": "b1", "stop": END},
    )


def long_names() -> Any:
    names = [
        "a_node_whose_author_wanted_to_say_everything_about_it_in_its_name_and_then_some_more",
        "x",
        "The quick brown fox jumps over the lazy dog and does not stop there, it goes on and on",
    ]
    choice = {"a decision that needs a whole sentence to be told, and then another one": names[2]}
    edges = [(START, names[0]), (names[0], names[1]), (names[2], END)]
    return of_edges(edges, **{names[1]: {**choice, "no": END}})


def strange_names() -> Any:
    names = [HOSTILE, RIGHT_TO_LEFT, WIDE, "tab\tand\nline", "\x1b[31mred\x07", "START", "1. list"]
    edges = [(START, names[0]), *pairwise(names), (names[-1], END)]
    return of_edges(edges, **{names[2]: {HOSTILE: names[5], RIGHT_TO_LEFT: names[0]}})


def subgraph_of() -> Any:
    inner = StateGraph(State)
    inner.add_node("draft", step)
    inner.add_node("critique", step)
    inner.add_edge(START, "draft")
    inner.add_edge("draft", "critique")
    inner.add_conditional_edges("critique", lambda state: "", {"again": "draft", "ok": END})
    graph = StateGraph(State)
    graph.add_node("collect", step)
    graph.add_node("write", inner.compile(interrupt_before=["critique"]))
    graph.add_node("publish", step, defer=True, metadata={"owner": "news", "retries": 2})
    graph.add_edge(START, "collect")
    graph.add_edge("collect", "write")
    graph.add_edge("write", "publish")
    graph.add_edge("publish", END)
    return graph.compile(interrupt_before=["publish"], interrupt_after=["collect", "publish"])


def commands() -> Any:
    def choose(state: State) -> Command[Literal["left", "right", "__end__"]]:
        return Command(goto="left")

    graph = StateGraph(State)
    graph.add_node("choose", choose)
    graph.add_node("left", step)
    graph.add_node("right", step)
    graph.add_edge(START, "choose")
    graph.add_edge("left", "choose")
    graph.add_edge("right", "choose")
    return graph.compile()


def map_reduce() -> Any:
    graph = StateGraph(State)
    for name in ("list", "map", "reduce"):
        graph.add_node(name, step)
    graph.add_edge(START, "list")
    graph.add_conditional_edges("list", lambda state: [Send("map", {})], ["map"])
    graph.add_edge("map", "reduce")
    graph.add_edge("reduce", END)
    return graph.compile()


def chat_with_tools() -> Any:
    def search(query: str) -> str:
        """Search."""
        return query

    def open_page(address: str) -> str:
        """Open a page."""
        return address

    graph = StateGraph(Chat)
    graph.add_node("llm", lambda state: {"messages": [AIMessage("hi")]})
    graph.add_node("tools", ToolNode([search, open_page]))
    graph.add_edge(START, "llm")
    graph.add_conditional_edges("llm", lambda state: END, {"tools": "tools", END: END})
    graph.add_edge("tools", "llm")
    return graph.compile()


def functional() -> Any:
    @entrypoint()
    def workflow(value: int) -> int:
        return value

    return workflow


def dense() -> Any:
    """As tangled as programs get: 24 nodes, 60 edges."""
    names = [f"node_{i}" for i in range(24)]
    edges = [(START, names[0]), (names[-1], END)]
    edges += [(names[i], names[(i * 7 + 5) % 24]) for i in range(24)]
    edges += [(names[i], names[min(i + 1 + i % 3, 23)]) for i in range(23)]
    edges += [(names[i], names[(i * 11 + 3) % 24]) for i in range(0, 24, 2)]
    return of_edges([edge for edge in dict.fromkeys(edges) if edge[0] != edge[1]])


def binary_tree() -> Any:
    edges = [(START, "t1"), *((f"t{i // 2}", f"t{i}") for i in range(2, 32))]
    return of_edges([*edges, *((f"t{i}", END) for i in range(16, 32))])


class _Around(BaseHook):
    def __init__(self, name: str) -> None:
        self.name = name

    def wrap_model_call(self, request: Any, next: Any) -> Any:
        return next(request)

    def wrap_tool_call(self, call: Any, next: Any) -> Any:
        return next(call)

    def modify_request(self, request: Any, ctx: Any) -> Any:
        return request


class _Opens(_Around):
    def before_agent(self, state: Any, ctx: Any) -> Any:
        return None

    def after_model(self, message: Any, ctx: Any) -> Any:
        return None

    def tools(self, state: Any) -> Any:
        def remember(fact: str) -> str:
            """Remember."""
            return fact

        return [remember]


class _ByThread(_Around):
    def tools(self, state: Any) -> Any:
        return [state["messages"][0]]


def tool_named(name: str) -> Callable[[str], str]:
    def called(text: str) -> str:
        """Do it."""
        return text

    called.__name__ = name
    return called


def bare_agent() -> Any:
    return Agent("bare", "scripted:demo", store=False).graph


def full_agent() -> Any:
    hooks = [_Around("tracing"), _Opens("memory"), _Around("retry"), _ByThread("skills")]
    hooks += [_Around("summarization"), _Around("permission")]
    names = "read_file write_file edit_file glob grep execute web_search fetch_page ask_human"
    tools = [tool_named(name) for name in names.split()]
    return Agent("full", "scripted:demo", hooks=hooks, tools=tools, store=False).graph


def giving_agent() -> Any:
    """An agent with two others below it, one of them in the background, and an MCP server."""
    below = Agent("below", "scripted:demo", store=False)
    waits = {"researcher": Subagent(below, "Finds what is known about a subject, with sources")}
    runs = {"writer": Subagent(below, "Writes it down, at length and in the house's own style, x")}
    agent = Agent(
        "giving",
        "scripted:demo",
        hooks=[_Around("tracing"), Background(runs)],
        tools=[tool_named("grep"), delegation(waits)],
        store=False,
    )
    agent.spec = replace(agent.spec, beside=(Unasked("files"),))
    return agent.graph


def agent_in_a_graph() -> Any:
    graph = StateGraph(Chat)
    graph.add_node("prepare", lambda state: {})
    graph.add_node("assistant", bare_agent())
    graph.add_edge(START, "prepare")
    graph.add_edge("prepare", "assistant")
    graph.add_edge("assistant", END)
    return graph.compile()


GRAPHS: Final[dict[str, Callable[[], Any]]] = {
    made.__name__: made
    for made in (
        *(chain, one_node, self_loop, self_loop_without_label, diamond, supervisor, swarm),
        *(parallel_labels, nested_loops, long_jumps, returns_everywhere, bipartite, disconnected),
        *(two_worlds, long_names, strange_names, subgraph_of, commands, map_reduce),
        *(chat_with_tools, functional, dense, binary_tree, bare_agent, full_agent),
        giving_agent,
        agent_in_a_graph,
    )
} | {
    "fan_out_5": lambda: fan_out(5),
    "fan_out_50": lambda: fan_out(50),
    "router_12": lambda: router(12),
}
"""Every graph by name."""
XRAYED: Final = ("subgraph_of", "agent_in_a_graph")
"""Those that are drawn with their subgraphs opened too."""
