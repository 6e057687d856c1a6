"""An agent in a process of its own, to be killed: it writes what it does to a log that survives.

Log lines, appended at once: `model N` when the model is asked, `enter N` before a call reaches the
ledger, `start N` and `end N` by the tool, `ack ID` once a reader was told.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.sqlite import SqliteSaver

from wick_graph import Agent, BaseHook, ToolResult, events, tool
from wick_graph.store import SqlSaver

CALLS = 3
TURNS = 4
THREAD = "t"
CONFIG: Any = {"configurable": {"thread_id": THREAD}}


class Log:
    """Lines that are in the file when `write` returns; they survive SIGKILL."""

    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, word: str, name: object) -> None:
        os.write(self.fd, f"{word} {name}\n".encode())


class Planned(BaseChatModel):
    """Call three tools in each of four turns, then answer; its place comes from the prompt."""

    log: Any

    @property
    def _llm_type(self) -> str:
        return "planned"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self.bind(tools=tools)

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        turn = sum(isinstance(m, AIMessage) for m in messages)
        self.log.write("model", turn)
        time.sleep(0.003)
        message = AIMessage("finished", id="last")
        if turn < TURNS:
            calls: Any = [
                {"name": "act", "args": {"n": turn * CALLS + i}, "id": f"c{turn}_{i}"}
                for i in range(CALLS)
            ]
            message = AIMessage(f"turn {turn}", tool_calls=calls, id=f"turn{turn}")
        return ChatResult(generations=[ChatGeneration(message=message)])


class Door(BaseHook):
    """Note that a call is on its way to the ledger."""

    name = "door"

    def __init__(self, log: Log) -> None:
        self.log = log

    def wrap_tool_call(self, call: Any, next: Any) -> Any:
        self.log.write("enter", call.args["n"])
        return next(call)


def url_of(folder: Path) -> str:
    """Return the URL of a trial's database: the one it was given, or a file."""
    given = folder / "url"
    return given.read_text() if given.exists() else f"sqlite:///{folder / 't.db'}"


def agent_of(url: str, log: Log, replay: str) -> Agent:
    @tool(replay=replay)  # type: ignore[call-overload,untyped-decorator]  # one of the three words
    def act(n: int) -> ToolResult:
        """Have an effect on the world that can be counted."""
        log.write("start", n)
        time.sleep(0.004)
        log.write("end", n)
        todo = {"id": str(n), "title": f"do {n}", "status": "done"}
        update = {"files": {str(n): f"by {n}"}, "todos": [todo]}
        return ToolResult("", "act", f"done {n}", update=update)

    model = Planned(log=log)
    return Agent(model=model, tools=[act], hooks=[Door(log)], store=url)


def ours(url: str, log: Log, replay: str) -> None:
    """Run, or go on with, the agent, and note what its reader is told."""
    agent = agent_of(url, log, replay)
    known = agent.threads.get(THREAD)
    begun = known is not None and known.steps > 0
    stream = agent.stream_resume(THREAD) if begun else agent.stream("go", thread_id=THREAD)
    for event in stream:
        if isinstance(event, events.ToolEnd):
            log.write("ack", event.run_id)
        if isinstance(event, events.Failed):
            log.write("failed", event.error.replace("\n", " "))
        if isinstance(event, events.Done):
            log.write("done", event.stopped_because)
    agent.close()


def without_ledger(url: str, log: Log, replay: str) -> None:
    """The same engine with its ledger taken out: what the harness must be able to see."""
    SqlSaver.ledger = lambda self, lease: None  # type: ignore[method-assign,assignment,return-value]  # on purpose
    ours(url, log, replay)


def stock(url: str, log: Log, replay: str) -> None:
    """LangChain's agent on LangGraph's own saver, with sync durability."""

    def act(n: int) -> str:
        """Have an effect on the world that can be counted."""
        log.write("start", n)
        time.sleep(0.004)
        log.write("end", n)
        return f"done {n}"

    with SqliteSaver.from_conn_string(url.removeprefix("sqlite:///")) as saver:
        graph: Any = create_agent(Planned(log=log), [act], checkpointer=saver)
        begun = saver.get_tuple(CONFIG) is not None
        given = None if begun else {"messages": [("user", "go")]}
        for part in graph.stream(given, CONFIG, stream_mode="updates", durability="sync"):
            for message in (part.get("tools") or {}).get("messages", []):
                log.write("ack", message.tool_call_id)
    log.write("done", "done")
