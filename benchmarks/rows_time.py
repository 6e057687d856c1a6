"""Lines that are measured by the clock, side by side."""

from __future__ import annotations

import asyncio
import gc
import itertools
import time
from collections.abc import Callable
from functools import partial
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

DOOR = "wick_graph, LangGraph's door"


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
    return row_of(f"loop-{turns}", title, found, ours=OURS, against=PEER, goal=0.45)


async def durable(turns: int, goal: float, count: int, *, others: bool) -> list[Row]:
    """Time a turn with every step on disk; and, of the same rounds, what the journal adds."""
    rest = (RAW, HAND, *((DEEP,) if _has_deep() else ())) if others else ()
    names = (OURS, PEER, SAFE, SILENT, *rest)
    found = await rounds({name: looping(name, turns, durable=True) for name in names}, count)
    title = f"a turn of {turns}, every step on disk"
    both = {name: found[name] for name in (OURS, SILENT)}
    journal = f"the journal's part in a turn of {turns}"
    safe = {name: found[name] for name in (SAFE, PEER)}
    return [
        row_of(f"durable-{turns}", title, found, ours=OURS, against=PEER, goal=goal),
        row_of(f"safe-{turns}", f"{title}, a safe tool", safe, ours=SAFE, against=PEER, goal=0.43),
        row_of(f"journal-{turns}", journal, both, ours=OURS, against=SILENT, goal=1.1),
    ]


async def under_create_agent(turns: int, count: int) -> Row:
    names = (ON_OURS, PEER)
    found = await rounds({name: looping(name, turns, durable=True) for name in names}, count)
    title = f"`create_agent`, a turn of {turns}: `SqlSaver` for `AsyncSqliteSaver`"
    return row_of("saver-time", title, found, ours=ON_OURS, against=PEER, goal=0.4)


def streaming(model: Callable[[int], Any], tokens: int) -> dict[str, Run]:
    """Read a reply token by token; the time is for one token."""

    def at_door(made: Any) -> Any:
        return made.astream(question(), stream_mode="messages")

    def reading(make: Callable[[Any], Callable[[], Any]]) -> Run:
        async def run(_: Path) -> Sample:
            begin = make(model(tokens))

            async def read() -> None:
                async for _ in begin():
                    pass

            return await timed(read, per=tokens)

        return run

    def ours(made: Any) -> Agent:
        return Agent(model=made, store=False)

    return {
        OURS: reading(lambda made: partial(ours(made).astream, "go")),
        PEER: reading(lambda made: partial(at_door, create_agent(made, []))),
        DOOR: reading(lambda made: partial(at_door, ours(made).graph)),
        "the model alone": reading(lambda made: partial(made._astream, [])),
    }


async def stream(tokens: int, count: int, *, cheap: bool) -> list[Row]:
    kind = CheapTokens if cheap else Tokens
    found = await rounds(streaming(lambda n: kind(tokens=n), tokens), count)
    key, title = ("stream-engine", "a token, made for nothing") if cheap else ("stream", "a token")
    note = "the model's own share is in both" if not cheap else "what carries it, almost alone"
    own = {name: column for name, column in found.items() if name != DOOR}
    door = {name: found[name] for name in (DOOR, PEER)}
    goal = 0.4 if cheap else None  # the model's own share alone is 0.38 of the other
    row = row_of(key, title, own, ours=OURS, against=PEER, goal=goal, unit="µs", note=note)
    if not cheap:
        return [row]
    key, title = "stream-door", "a token at LangGraph's own door, `messages`"
    return [row, row_of(key, title, door, ours=DOOR, against=PEER, goal=1.0, unit="µs")]


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
    title = "ten tools of 50 ms (wall)"
    return row_of("tools", title, found, ours=OURS, against=best, goal=1.3, by="wall")


def together(name: str, threads: int, turns: int) -> Run:
    """Run many threads at once on a model that takes 20 ms."""

    async def run(folder: Path) -> Sample:
        model = Turns(turns=turns, pause=0.02)
        async with ALL[name](model, TOOLS, folder / "bench.db") as ask:
            return await timed(lambda: asyncio.gather(*(ask(fresh()) for _ in range(threads))))

    return run


async def many(threads: int, turns: int, count: int) -> Row:
    found = await rounds({name: together(name, threads, turns) for name in (OURS, PEER)}, count)
    title = f"{threads} threads of {turns} turns, model 20 ms"
    return row_of("threads", title, found, ours=OURS, against=PEER, goal=0.5)


def resumed(name: str, turns: int) -> Run:
    """From a new question in a long thread, that this process has not seen, to the model's call."""

    async def run(folder: Path) -> Sample:
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

    return run


async def resume(turns: int, count: int) -> Row:
    found = await rounds({name: resumed(name, turns) for name in (OURS, PEER)}, count)
    title = f"a thread of {turns} turns: from the question to the model's call"
    return row_of("resume", title, found, ours=OURS, against=PEER, goal=0.7)


def _has_deep() -> bool:
    try:
        import deepagents  # noqa: F401, PLC0415  # an optional peer
    except ImportError:
        return False
    return True
