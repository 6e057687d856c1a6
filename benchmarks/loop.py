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
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
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


class Tokens(BaseChatModel):
    """Stream so many tokens."""

    tokens: int = 2_000

    @property
    def _llm_type(self) -> str:
        return "tokens"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self.bind(tools=tools)

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        message = AIMessage("token " * self.tokens)
        return ChatResult(generations=[ChatGeneration(message=message)])

    async def _astream(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> Any:
        manager = kwargs.get("run_manager")
        for _ in range(self.tokens):
            chunk = ChatGenerationChunk(message=AIMessageChunk(content="token "))
            if manager is not None:
                await manager.on_llm_new_token("token ", chunk=chunk)
            yield chunk


async def streaming(tokens: int) -> tuple[Run, Run]:
    mine = Agent(model=Tokens(tokens=tokens), store=False)
    theirs: Any = create_agent(Tokens(tokens=tokens), [])

    async def run_ours() -> None:
        async for _ in mine.astream("go"):
            pass

    async def run_theirs() -> None:
        async for _ in theirs.astream(ASK, stream_mode="messages"):
            pass

    return run_ours, run_theirs


class Fan(Turns):
    """Call ten tools in one reply, then answer."""

    def _reply(self, messages: list[BaseMessage]) -> ChatResult:
        calls: Any = [
            {"name": "nap", "args": {}, "id": f"c{i}", "type": "tool_call"} for i in range(10)
        ]
        last = len(messages) > 2
        message = AIMessage("done") if last else AIMessage("", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=message)])


async def nap() -> str:
    """Take 50 ms."""
    await asyncio.sleep(0.05)
    return "slept"


async def ten_tools() -> tuple[Run, Run]:
    mine = Agent(model=Fan(), tools=[nap], store=False).graph
    theirs: Any = create_agent(Fan(), [nap])
    return (lambda: mine.ainvoke(ASK)), (lambda: theirs.ainvoke(ASK))


async def many_threads(threads: int, turns: int) -> tuple[Run, Run]:
    folder = Path(tempfile.mkdtemp())
    saver = SqlSaver.from_url(f"sqlite:///{folder}/ours.db")
    counter = iter(range(1_000_000))

    class Slow(Turns):
        async def _agenerate(self, messages: Any, *args: Any, **kwargs: Any) -> ChatResult:
            await asyncio.sleep(0.02)
            return self._reply(messages)

    mine = Agent(model=Slow(turns=turns), tools=[look], store=saver).graph
    config = lambda: {"configurable": {"thread_id": f"t{next(counter)}"}}  # noqa: E731  # short

    async def run_ours() -> None:
        await asyncio.gather(*(mine.ainvoke(ASK, config()) for _ in range(threads)))

    async def run_theirs() -> None:
        path = f"{folder}/theirs{next(counter)}.db"
        async with AsyncSqliteSaver.from_conn_string(path) as their_saver:
            graph: Any = create_agent(Slow(turns=turns), [look], checkpointer=their_saver)
            runs = (graph.ainvoke(ASK, config(), durability="sync") for _ in range(threads))
            await asyncio.gather(*runs)

    return run_ours, run_theirs


async def resume(turns: int) -> tuple[Run, Run]:
    """Load a long thread in a fresh saver, up to the next model call and its answer."""
    folder = Path(tempfile.mkdtemp())
    config: Any = {"configurable": {"thread_id": "t"}}
    with SqlSaver.from_url(f"sqlite:///{folder}/ours.db") as saver:
        await ours(turns, saver).graph.ainvoke(ASK, config)
    async with AsyncSqliteSaver.from_conn_string(f"{folder}/theirs.db") as their_saver:
        await peer(turns, their_saver).ainvoke(ASK, config, durability="sync")
    more = {"messages": [("user", "and?")]}

    async def run_ours() -> None:
        with SqlSaver.from_url(f"sqlite:///{folder}/ours.db") as saver:
            await ours(1, saver).graph.ainvoke(more, config)

    async def run_theirs() -> None:
        async with AsyncSqliteSaver.from_conn_string(f"{folder}/theirs.db") as their_saver:
            await peer(1, their_saver).ainvoke(more, config, durability="sync")

    return run_ours, run_theirs


async def under_create_agent(turns: int) -> tuple[Run, Run]:
    """The same `create_agent`, on our saver and on LangGraph's."""
    folder = Path(tempfile.mkdtemp())
    saver = SqlSaver.from_url(f"sqlite:///{folder}/ours.db")
    counter = iter(range(1_000))

    async def run_ours() -> None:
        config: Any = {"configurable": {"thread_id": f"t{next(counter)}"}}
        await peer(turns, saver).ainvoke(ASK, config, durability="sync")

    async def run_theirs() -> None:
        config: Any = {"configurable": {"thread_id": f"t{next(counter)}"}}
        async with AsyncSqliteSaver.from_conn_string(f"{folder}/theirs.db") as their_saver:
            await peer(turns, their_saver).ainvoke(ASK, config, durability="sync")

    return run_ours, run_theirs


CASES: dict[str, Callable[[], Awaitable[tuple[Run, Run]]]] = {
    "loop of 25, no store": lambda: bare(25),
    "loop of 100, no store": lambda: bare(100),
    "loop of 100, durable": lambda: durable(100),
    "loop of 400, durable": lambda: durable(400),
    "stream of 2000 tokens": lambda: streaming(2_000),
    "ten tools of 50 ms": ten_tools,
    "200 threads of 10, durable": lambda: many_threads(200, 10),
    "resume of 400": lambda: resume(400),
    "our saver under create_agent": lambda: under_create_agent(400),
}
GOALS = (0.6, 0.6, 0.4, 0.25, 0.35, None, 0.4, 0.6, 0.4)
"""Ours over theirs, in the order of the cases; ten tools are held against the ideal of 50 ms."""


async def measure(name: str, rounds: int) -> str:
    pair = await CASES[name]()
    times: tuple[list[float], list[float]] = ([], [])
    cpu: tuple[list[float], list[float]] = ([], [])
    for i in range(rounds + 1):
        for run, taken, spent in zip(pair, times, cpu, strict=True):
            started, worked = time.perf_counter(), time.process_time()
            await run()
            if i:  # the first round warms up
                taken.append(time.perf_counter() - started)
                spent.append(time.process_time() - worked)
    mine, theirs = (statistics.median(taken) * 1e3 for taken in times)
    cpu_mine, cpu_theirs = (statistics.median(spent) * 1e3 for spent in cpu)
    goal = dict(zip(CASES, GOALS, strict=True))[name]
    return (
        f"{name:28} {mine:9.1f} {theirs:9.1f} ms {mine / theirs:5.2f}×   "
        f"cpu {cpu_mine:8.1f} {cpu_theirs:8.1f} ms {cpu_mine / cpu_theirs:5.2f}×   "
        f"goal {'-' if goal is None else f'{goal:.2f}×'}"
    )


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    print(f"{'':28}      ours     peer                   ours     peer")
    for name in CASES:
        if options.only in name:
            print(await measure(name, options.rounds), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
