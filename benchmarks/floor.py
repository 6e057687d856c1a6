"""What a turn would cost with parts of the engine left out: the floors under the table's goals.

    python benchmarks/floor.py [--rounds 3] [--turns 100] [--runs 100]

Measured as the table is: CPU time, in rounds whose order turns, ÷ `create_agent` with its SQLite
saver and `durability="sync"` in the same round. First a turn with one tool in a new thread, then a
turn of one long run. Left out, one after the other: the journal, the store, and all that is ours:
what remains is LangGraph's loop with an agent's four nodes, empty, in the same steps.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from contenders import ALL, OURS, PEER, SAFE, SILENT, TOOLS, Ask
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import ToolMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from measure import Run, Sample, Spread, parser_of, rounds, timed
from rows_time import fresh
from workload import Turns, addressed, question

from wick_graph.engine import pinned

BARE, UNSTORED, WHOLE = "four empty nodes", "nothing stored", "LangGraph's loop unshortened"


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


Open = Callable[..., AbstractAsyncContextManager[Ask]]


def run_of(name: str, turns: int, runs: int) -> Run:
    """Run new threads of so many turns; the time is for one turn."""
    opened: Open = bare if name == BARE else ALL.get(name, ALL[OURS])

    async def run(folder: Path) -> Sample:
        path = None if name in (BARE, UNSTORED) else folder / "bench.db"
        pinned.switch["lean"] = name != WHOLE
        try:
            async with opened(Turns(turns=turns), TOOLS, path) as ask:

                async def work() -> None:
                    for _ in range(runs):
                        await ask(fresh())

                return await timed(work, per=runs * turns)
        finally:
            pinned.switch["lean"] = True

    return run


async def shown(title: str, turns: int, runs: int, count: int) -> None:
    """Measure all of them and print each beside the peer."""
    names = (PEER, WHOLE, OURS, SAFE, SILENT, UNSTORED, BARE)
    found = await rounds({name: run_of(name, turns, runs) for name in names}, count)
    print(title)
    for name in names:
        pairs = zip(found[name], found[PEER], strict=True)
        ratio = Spread.of([mine.cpu / theirs.cpu for mine, theirs in pairs])
        each = Spread.of([one.cpu * 1e3 for one in found[name]])
        spread = f"({ratio.low:.2f}–{ratio.high:.2f})"
        print(f"  {name:30} {each.median:7.2f} ms  {ratio.median:.2f}× {spread}", flush=True)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--turns", type=int, default=100)
    parser.add_argument("--runs", type=int, default=100)
    options = parser.parse_args()

    async def both() -> None:
        await shown(
            "a model call of a turn with one tool, in a new thread", 2, options.runs, options.rounds
        )
        await shown(f"a turn of {options.turns}", options.turns, 1, options.rounds)

    asyncio.run(both())


if __name__ == "__main__":
    main()
