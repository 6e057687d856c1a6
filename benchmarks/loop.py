"""Time the loop side by side with LangChain's `create_agent`: same model, same tool, same disk.

    python benchmarks/loop.py [--rounds 5] [--only NAME]

Each round runs both once, one after the other; printed are medians and their ratio.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from wick_graph import Agent, SqlSaver, tool

Run = Callable[[], Awaitable[Any]]


class Turns(BaseChatModel):
    """Call one tool so many times, then answer: the cheapest model that makes a loop."""

    turns: int = 25

    @property
    def _llm_type(self) -> str:
        return "turns"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self.bind(tools=tools)

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        return self._reply(messages)

    async def _agenerate(self, messages: list[BaseMessage], *args: Any, **kw: Any) -> ChatResult:
        return self._reply(messages)

    def _reply(self, messages: list[BaseMessage]) -> ChatResult:
        done = len(messages) // 2
        if done >= self.turns - 1:
            message = AIMessage("done " * 30)
        else:
            call = {"name": "look", "args": {"n": done}, "id": f"c{done}", "type": "tool_call"}
            message = AIMessage("thinking " * 20, tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=message)])


async def look(n: int) -> str:
    """Look."""
    return f"{n}: " + "result " * 100


def peer(turns: int, saver: Any = None) -> Any:
    graph = create_agent(Turns(turns=turns), [look], checkpointer=saver)
    return graph.with_config({"recursion_limit": 10_000})


def ours(turns: int, store: Any = False, replay: str = "never") -> Agent:
    made = tool(replay=replay)(look)
    return Agent(model=Turns(turns=turns), tools=[made], store=store, max_iterations=turns + 1)


ASK = {"messages": [("user", "go")]}


async def bare(turns: int) -> tuple[Run, Run]:
    mine, theirs = ours(turns).graph, peer(turns)
    return (lambda: mine.ainvoke(ASK)), (lambda: theirs.ainvoke(ASK))


async def durable(turns: int) -> tuple[Run, Run]:
    folder = Path(tempfile.mkdtemp())
    saver = SqlSaver.from_url(f"sqlite:///{folder}/ours.db")
    mine = ours(turns, saver).graph
    counter = iter(range(1_000))

    async def run_theirs() -> None:
        async with AsyncSqliteSaver.from_conn_string(f"{folder}/theirs.db") as their_saver:
            config: Any = {"configurable": {"thread_id": f"t{next(counter)}"}}
            await peer(turns, their_saver).ainvoke(ASK, config, durability="sync")

    async def run_ours() -> None:
        await mine.ainvoke(ASK, {"configurable": {"thread_id": f"t{next(counter)}"}})

    return run_ours, run_theirs


CASES: dict[str, Callable[[], Awaitable[tuple[Run, Run]]]] = {
    "loop of 25, no store": lambda: bare(25),
    "loop of 100, no store": lambda: bare(100),
    "loop of 100, durable": lambda: durable(100),
    "loop of 400, durable": lambda: durable(400),
}


async def measure(name: str, rounds: int) -> str:
    pair = await CASES[name]()
    times: tuple[list[float], list[float]] = ([], [])
    for i in range(rounds + 1):
        for run, taken in zip(pair, times, strict=True):
            started = time.perf_counter()
            await run()
            if i:  # the first round warms up
                taken.append(time.perf_counter() - started)
    mine, theirs = (statistics.median(taken) * 1e3 for taken in times)
    return f"{name:28} ours {mine:9.1f} ms   create_agent {theirs:9.1f} ms   {mine / theirs:5.2f}×"


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    for name in CASES:
        if options.only in name:
            print(await measure(name, options.rounds))


if __name__ == "__main__":
    asyncio.run(main())
