"""A process that hands a task to the next agent, and dies at the place that its caller names.

python -m tests.engine.handoff_process DATABASE LOG PLACE
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command

from wick_graph import Agent, BaseHook, SqlSaver, ToolContext, tool, tool_msg
from wick_graph.testing import ScriptedModel, calls

CONFIG: Any = {"configurable": {"thread_id": "t"}}


class Places(BaseHook):
    """Die before a node's own work."""

    def __init__(self, place: str) -> None:
        self.place = place

    def before_agent(self, state: Any, ctx: Any) -> Any:
        if self.place == ctx.agent:
            os.kill(os.getpid(), signal.SIGKILL)


def team(saver: BaseCheckpointSaver[Any] | None, log: Path, place: str = "") -> Any:
    """Build a graph in which `alice` pays and hands over to `bob`."""

    def note(text: str) -> None:
        with log.open("a") as file:
            file.write(f"{text}\n")

    @tool
    def pay(ctx: ToolContext) -> str:
        """Pay."""
        note("pay")
        return "paid"

    @tool
    def to_bob(ctx: ToolContext) -> Command[Any]:
        """Hand over to bob."""
        note("to_bob")
        if place == "leaving":  # after the answers are stored, when the run leaves the graph
            import wick_graph.nodes.modify_request as node  # noqa: PLC0415  # in this process only

            vars(node)["ParentCommand"] = lambda command: os.kill(os.getpid(), signal.SIGKILL)
        answer = tool_msg(ctx.call_id, "to_bob", "bob has it")
        sent = [*ctx.state["messages"], answer]
        return Command(goto="bob", graph=Command.PARENT, update={"messages": sent})

    asks = calls(("pay", {}), ("to_bob", {}))
    alice = Agent("alice", ScriptedModel([asks]), tools=[pay, to_bob], hooks=[Places(place)])
    bob = Agent("bob", ScriptedModel(["Done."], cursor="fifo"), hooks=[Places(place)])
    graph = StateGraph(MessagesState)
    graph.add_node("alice", alice.graph, destinations=("bob",))
    graph.add_node("bob", bob.graph)
    graph.add_edge(START, "alice")
    graph.add_edge("bob", END)
    return graph.compile(checkpointer=saver)


def main(database: str, log: str, place: str) -> None:
    """Run to the place."""
    with SqlSaver.from_url(f"sqlite:///{database}") as saver:
        graph = team(saver, Path(log), place)
        graph.invoke({"messages": [("user", "Go.")]}, CONFIG, durability="sync")


if __name__ == "__main__":
    main(*sys.argv[1:])
