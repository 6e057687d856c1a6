"""Who is measured: each opens a database, or none, and gives a function that runs one input.

The peers are used as their documentation shows: `durability="sync"` wherever there is a database,
because that is what ours does, and LangGraph's own SQLite saver with its own settings.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage, ToolMessage, messages_to_dict
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from workload import QUESTION, addressed, look, question

from wick_graph import Agent, SqlSaver, tool

Ask = Callable[[str], Awaitable[Any]]
"""Run one input in the thread of this name."""
Open = Callable[[BaseChatModel, Sequence[Any], Path | None], AbstractAsyncContextManager[Ask]]

MANY = 100_000


@asynccontextmanager
async def wick(
    model: BaseChatModel,
    tools: Sequence[Any],
    path: Path | None,
    *,
    replay: Any = "never",
    journal: Any = "steps",
    **settings: Any,
) -> AsyncIterator[Ask]:
    """Ours, with the journal at its default level."""
    saver = None if path is None else SqlSaver.from_url(f"sqlite:///{path}", **settings)
    made = [tool(replay=replay)(fn) for fn in tools]
    store = False if saver is None else saver
    agent = Agent(model=model, tools=made, store=store, max_iterations=MANY, journal=journal)
    graph = agent.graph
    try:
        yield lambda thread: graph.ainvoke(question(), addressed(thread))
    finally:
        if saver is not None:
            await asyncio.to_thread(saver.close)


@asynccontextmanager
async def _on_their_saver(build: Callable[[Any], Any], path: Path | None) -> AsyncIterator[Ask]:
    if path is None:
        graph = build(None)
        yield lambda thread: graph.ainvoke(question(), addressed(thread))
        return
    async with AsyncSqliteSaver.from_conn_string(str(path)) as saver:
        await saver.setup()
        kept = build(saver)
        yield lambda thread: kept.ainvoke(question(), addressed(thread), durability="sync")


def langchain_agent(
    model: BaseChatModel, tools: Sequence[Any], path: Path | None
) -> AbstractAsyncContextManager[Ask]:
    """LangChain's `create_agent`."""
    return _on_their_saver(lambda s: create_agent(model, list(tools), checkpointer=s), path)


def deep_agent(
    model: BaseChatModel, tools: Sequence[Any], path: Path | None
) -> AbstractAsyncContextManager[Ask]:
    """`create_deep_agent` of deepagents; it carries more middleware than anybody else here."""
    from deepagents import create_deep_agent  # noqa: PLC0415  # an optional peer

    def build(saver: Any) -> Any:
        return create_deep_agent(model=model, tools=list(tools), checkpointer=saver)

    return _on_their_saver(build, path)


def raw_graph(
    model: BaseChatModel, tools: Sequence[Any], path: Path | None
) -> AbstractAsyncContextManager[Ask]:
    """Two nodes by hand: what LangGraph costs when nothing is around it."""
    known = {fn.__name__: fn for fn in tools}

    async def think(state: Any) -> Any:
        return {"messages": [await model.ainvoke(state["messages"])]}

    async def act(state: Any) -> Any:
        calls = state["messages"][-1].tool_calls
        made = [await known[call["name"]](**call["args"]) for call in calls]
        return {
            "messages": [
                ToolMessage(text, tool_call_id=call["id"], name=call["name"])
                for text, call in zip(made, calls, strict=True)
            ]
        }

    async def go_on(state: Any) -> str:
        return "act" if state["messages"][-1].tool_calls else "__end__"

    graph = StateGraph(MessagesState)
    graph.add_node("think", think)
    graph.add_node("act", act)
    graph.add_edge(START, "think")
    graph.add_conditional_edges("think", go_on, ["act", "__end__"])
    graph.add_edge("act", "think")
    return _on_their_saver(lambda saver: graph.compile(checkpointer=saver), path)


@asynccontextmanager
async def bare(model: BaseChatModel, tools: Sequence[Any], path: Path | None) -> AsyncIterator[Ask]:
    """An agent's nodes and edges without what an agent does in them; nothing is stored."""
    known = {fn.__name__: fn for fn in tools}

    async def nothing(state: Any) -> Any:
        return {}

    async def think(state: Any) -> Any:
        return {"messages": [await model.ainvoke(state["messages"])]}

    async def act(state: Any) -> Any:
        call = state["messages"][-1].tool_calls[0]
        text = await known[call["name"]](**call["args"])
        return {"messages": [ToolMessage(text, tool_call_id=call["id"], name=call["name"])]}

    def route(state: Any) -> str:
        return "tools" if state["messages"][-1].tool_calls else END

    graph: Any = StateGraph(MessagesState)
    for name, body in (
        ("before_agent", nothing),
        ("modify_request", nothing),
        ("model", think),
        ("tools", act),
    ):
        graph.add_node(name, body)
    graph.add_edge(START, "before_agent")
    graph.add_edge("before_agent", "modify_request")
    graph.add_edge("modify_request", "model")
    graph.add_conditional_edges("model", route, ["tools", END])
    graph.add_edge("tools", "modify_request")
    made = graph.compile()
    yield lambda thread: made.ainvoke(question(), addressed(thread))


@asynccontextmanager
async def unstored(
    model: BaseChatModel, tools: Sequence[Any], path: Path | None
) -> AsyncIterator[Ask]:
    """Ours without its store."""
    async with wick(model, tools, None) as ask:
        yield ask


@asynccontextmanager
async def by_hand(
    model: BaseChatModel, tools: Sequence[Any], path: Path | None
) -> AsyncIterator[Ask]:
    """A loop without a graph; with a database, a row and a commit for each new message."""
    known = {fn.__name__: fn for fn in tools}
    db = None if path is None else _raw_database(path)

    def keep(thread: str, message: Any) -> None:
        if db is not None:
            text = repr(messages_to_dict([message])[0])
            db.execute("INSERT INTO messages (thread, body) VALUES (?, ?)", (thread, text))
            db.execute("COMMIT")
            db.execute("BEGIN")

    async def ask(thread: str) -> Any:
        messages: list[Any] = [HumanMessage(QUESTION)]
        keep(thread, messages[0])
        while True:
            messages.append(await model.ainvoke(messages))
            keep(thread, messages[-1])
            if not messages[-1].tool_calls:
                return messages
            for call in messages[-1].tool_calls:
                text = await known[call["name"]](**call["args"])
                messages.append(ToolMessage(text, tool_call_id=call["id"], name=call["name"]))
                keep(thread, messages[-1])

    yield ask
    if db is not None:
        db.execute("COMMIT")
        db.close()


def _raw_database(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("CREATE TABLE messages (rid INTEGER PRIMARY KEY, thread TEXT, body TEXT)")
    db.execute("BEGIN")
    return db


@asynccontextmanager
async def agent_on_ours(
    model: BaseChatModel, tools: Sequence[Any], path: Path | None
) -> AsyncIterator[Ask]:
    """LangChain's `create_agent`, unchanged, on our saver."""
    assert path is not None
    with SqlSaver.from_url(f"sqlite:///{path}") as saver:
        graph: Any = create_agent(model, list(tools), checkpointer=saver)
        yield lambda thread: graph.ainvoke(question(), addressed(thread), durability="sync")


OURS, PEER = "wick_graph", "create_agent"
SAFE, SILENT = "wick_graph, safe tool", "wick_graph, no journal"
DEEP, RAW, HAND = "deepagents", "raw LangGraph", "loop by hand"
ON_OURS = "create_agent on SqlSaver"
UNSTORED, BARE = "wick_graph, nothing stored", "four empty nodes, nothing stored"
ALL: dict[str, Open] = {
    OURS: wick,
    SAFE: partial(wick, replay="safe"),
    SILENT: partial(wick, journal="off"),
    PEER: langchain_agent,
    DEEP: deep_agent,
    RAW: raw_graph,
    HAND: by_hand,
    ON_OURS: agent_on_ours,
    UNSTORED: unstored,
    BARE: bare,
}

TOOLS = (look,)
