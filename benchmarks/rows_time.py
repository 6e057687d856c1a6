"""Lines that are measured by the clock, side by side."""

from __future__ import annotations

import asyncio
import gc
import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from contenders import (
    ALL,
    DEEP,
    HAND,
    ON_OURS,
    OURS,
    PEER,
    RAW,
    SAFE,
    SILENT,
    TOOLS,
)
from langchain.agents import create_agent
from measure import Row, Run, Sample, rounds, row_of, timed
from workload import CheapTokens, Fan, Once, Tokens, Turns, nap, question

from wick_graph import Agent

_threads = itertools.count()


def fresh() -> str:
    """Name a thread that nobody has used."""
    return f"t{next(_threads)}"


def looping(name: str, turns: int, *, durable: bool) -> Run:
    """Run one input of so many turns; the time is for one turn."""

    async def run(folder: Path) -> Sample:
        path = folder / "bench.db" if durable else None
        async with ALL[name](Turns(turns=turns), TOOLS, path) as ask:
            return await timed(lambda: ask(fresh()), per=turns)

    return run


async def loop(turns: int, count: int) -> Row:
    runs = {name: looping(name, turns, durable=False) for name in (OURS, PEER, RAW, HAND)}
    found = await rounds(runs, count)
    title = f"a turn of {turns}, nothing stored"
    return row_of(f"loop-{turns}", title, found, ours=OURS, against=PEER, goal=0.6)


async def durable(turns: int, goal: float, count: int, *, deep: bool) -> list[Row]:
    """Time a turn with every step on disk; and, of the same rounds, what the journal adds."""
    names = (OURS, PEER, SAFE, SILENT, RAW, HAND, *((DEEP,) if deep and _has_deep() else ()))
    found = await rounds({name: looping(name, turns, durable=True) for name in names}, count)
    title = f"a turn of {turns}, every step on disk"
    both = {name: found[name] for name in (OURS, SILENT)}
    journal = f"the journal's part in a turn of {turns}"
    return [
        row_of(f"durable-{turns}", title, found, ours=OURS, against=PEER, goal=goal),
        row_of(f"journal-{turns}", journal, both, ours=OURS, against=SILENT, goal=1.1),
    ]


async def under_create_agent(turns: int, count: int) -> Row:
    names = (ON_OURS, PEER)
    found = await rounds({name: looping(name, turns, durable=True) for name in names}, count)
    title = f"`create_agent`, a turn of {turns}: `SqlSaver` for `AsyncSqliteSaver`"
    return row_of("saver-time", title, found, ours=ON_OURS, against=PEER, goal=0.4)


def streaming(model: Callable[[int], Any], tokens: int) -> dict[str, Run]:
    """Read a reply token by token; the time is for one token."""

    async def ours(_: Path) -> Sample:
        agent = Agent(model=model(tokens), store=False)

        async def read() -> None:
            async for _ in agent.astream("go"):
                pass

        return await timed(read, per=tokens)

    async def theirs(_: Path) -> Sample:
        graph: Any = create_agent(model(tokens), [])

        async def read() -> None:
            async for _ in graph.astream(question(), stream_mode="messages"):
                pass

        return await timed(read, per=tokens)

    async def nobody(_: Path) -> Sample:
        made = model(tokens)

        async def read() -> None:
            async for _ in made._astream([]):
                pass

        return await timed(read, per=tokens)

    return {OURS: ours, PEER: theirs, "the model alone": nobody}


async def stream(tokens: int, count: int, *, cheap: bool) -> Row:
    kind = CheapTokens if cheap else Tokens
    found = await rounds(streaming(lambda n: kind(tokens=n), tokens), count)
    key, title = ("stream-engine", "a token, made for nothing") if cheap else ("stream", "a token")
    note = "the model's own share is in both" if not cheap else "what carries it, almost alone"
    goal = 0.35
    return row_of(key, title, found, ours=OURS, against=PEER, goal=goal, unit="µs", note=note)


async def parallel_tools(count: int) -> Row:
    """Ten tools of 50 ms in one turn, held against 50 ms."""

    def run(name: str) -> Run:
        async def one(_: Path) -> Sample:
            async with ALL[name](Fan(), (nap,), None) as ask:
                return await timed(lambda: ask(fresh()))

        return one

    async def ideal(_: Path) -> Sample:
        return await timed(lambda: asyncio.sleep(0.05))

    best = "one tool of 50 ms"
    found = await rounds({OURS: run(OURS), PEER: run(PEER), best: ideal}, count)
    return row_of("tools", "ten tools of 50 ms", found, ours=OURS, against=best, goal=1.3)


async def many(threads: int, turns: int, count: int) -> Row:
    """Many threads at once on a model that takes 20 ms."""

    def run(name: str) -> Run:
        async def one(folder: Path) -> Sample:
            model = Turns(turns=turns, pause=0.02)
            async with ALL[name](model, TOOLS, folder / "bench.db") as ask:
                return await timed(lambda: asyncio.gather(*(ask(fresh()) for _ in range(threads))))

        return one

    found = await rounds({OURS: run(OURS), PEER: run(PEER)}, count)
    title = f"{threads} threads of {turns} turns, model 20 ms"
    return row_of("threads", title, found, ours=OURS, against=PEER, goal=0.4)


async def resume(turns: int, count: int) -> Row:
    """From a new question in a long thread, that this process has not seen, to the model's call."""

    def run(name: str) -> Run:
        async def one(folder: Path) -> Sample:
            path, asked = folder / "bench.db", list[tuple[float, float]]()
            async with ALL[name](Turns(turns=turns), TOOLS, path) as ask:
                await ask("long")

            def now() -> None:
                asked.append((time.perf_counter(), time.process_time()))

            async with ALL[name](Once(on_call=now), TOOLS, path) as ask:
                await ask("other")  # whatever is made once per process is made
                asked.clear()
                gc.collect()
                wall, cpu = time.perf_counter(), time.process_time()
                await ask("long")
            return Sample(asked[0][0] - wall, asked[0][1] - cpu)

        return one

    found = await rounds({OURS: run(OURS), PEER: run(PEER)}, count)
    title = f"a thread of {turns} turns: from the question to the model's call"
    return row_of("resume", title, found, ours=OURS, against=PEER, goal=0.6)


def _has_deep() -> bool:
    try:
        import deepagents  # noqa: F401, PLC0415  # an optional peer
    except ImportError:
        return False
    return True
