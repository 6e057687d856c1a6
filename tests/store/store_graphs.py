"""Graphs and models that the tests of the store share."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable
from operator import add
from typing import Annotated, Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Send, interrupt

from wick_graph.store import SqlSaver, leases


class State(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    log: Annotated[list[str], add]
    files: dict[str, str]
    count: int


class Named(TypedDict):
    name: str


def config(thread: str = "t", **more: Any) -> RunnableConfig:
    return {"configurable": {"thread_id": thread, **more}, "recursion_limit": 10_000_000}


def put_writes_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each step's writes come behind its checkpoint, as Python 3.13 often does."""
    put_writes = SqlSaver.put_writes

    @functools.wraps(put_writes)  # LangGraph reads its signature
    def late(self: SqlSaver, *args: Any) -> None:
        time.sleep(0.005)
        put_writes(self, *args)

    monkeypatch.setattr(SqlSaver, "put_writes", late)
    for name in ("LATE_SECONDS", "WAIT_SECONDS"):
        monkeypatch.setattr(leases, name, 5.0)  # a thread may start late


def looping_graph(saver: BaseCheckpointSaver[Any], turns: int) -> Any:
    """Two nodes that take turns, each with a message, a log line and a changed file."""

    def think(state: State) -> State:
        n = state.get("count", 0)
        return {"messages": [AIMessage(f"thought {n} " + "x" * 200, id=f"m{n}")], "log": [f"t{n}"]}

    def act(state: State) -> State:
        n = state.get("count", 0)
        files = {**state.get("files", {}), f"file{n % 5}": f"content {n} " + "y" * 100}
        return {"count": n + 1, "files": files}

    def more(state: State) -> str:
        return "think" if state["count"] < turns else END

    builder = StateGraph(State)
    builder.add_node("think", think)
    builder.add_node("act", act)
    builder.add_edge(START, "think")
    builder.add_edge("think", "act")
    builder.add_conditional_edges("act", more, ["think", END])
    return builder.compile(checkpointer=saver)


def asking_graph(saver: BaseCheckpointSaver[Any], ran: list[str] | None = None) -> Any:
    """Parallel sends, one of which asks a question."""
    seen = [] if ran is None else ran

    def fan(state: State) -> State:
        return {"log": ["fan"]}

    def spread(state: State) -> list[Send]:
        return [Send("work", {"name": name}) for name in ("b", "a", "ask", "c")]

    def work(state: Named) -> State:
        name = state["name"]
        seen.append(name)
        answer = interrupt({"question": name}) if name == "ask" else name
        return {"log": [f"work {answer}"]}

    def join(state: State) -> State:
        return {"messages": [AIMessage("joined", id="j")], "log": ["join"]}

    builder = StateGraph(State)
    builder.add_node("fan", fan)
    builder.add_node("work", work)
    builder.add_node("join", join)
    builder.add_edge(START, "fan")
    builder.add_conditional_edges("fan", spread, ["work"])
    builder.add_edge("work", "join")
    builder.add_edge("join", END)
    return builder.compile(checkpointer=saver)


class CountingModel(BaseChatModel):
    """Calls the tool `look` until it has been called `turns` times, then answers."""

    turns: int = 3

    @property
    def _llm_type(self) -> str:
        return "counting"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        n = sum(message.type == "ai" for message in messages)
        call = {"name": "look", "args": {"q": f"query {n}"}, "id": f"call_{n}"}
        asked = n < self.turns
        reply = AIMessage(f"step {n}", id=f"ai{n}", tool_calls=[call] if asked else [])
        return ChatResult(generations=[ChatGeneration(message=reply)])


@tool
def look(q: str) -> str:
    """Look something up."""
    return f"{q} found " + "z" * 400


def agent(saver: BaseCheckpointSaver[Any] | None, turns: int = 3) -> Any:
    return create_agent(CountingModel(turns=turns), [look], checkpointer=saver)


def plain(snapshot: Any) -> dict[str, Any]:
    """A state snapshot without what differs between any two runs: ids and times."""
    return {
        "values": _without_ids(snapshot.values),
        "next": snapshot.next,
        "metadata": json.loads(json.dumps(snapshot.metadata)),  # LangGraph's own loses tuples
        "tasks": [
            [task.name, task.path, task.error, _values(task), _without_ids(task.result)]
            for task in snapshot.tasks
        ],
        "has_parent": snapshot.parent_config is not None,
    }


def _values(task: Any) -> list[Any]:
    return [one.value for one in task.interrupts]


def _without_ids(values: Any) -> Any:
    if isinstance(values, dict):
        return {key: _without_ids(value) for key, value in values.items()}
    if isinstance(values, list):
        return [_without_ids(value) for value in values]
    if isinstance(values, BaseMessage):
        keep = values.id is not None and len(values.id) < 10
        return values if keep else values.model_copy(update={"id": None})
    return values


Make = Callable[[BaseCheckpointSaver[Any]], Any]
