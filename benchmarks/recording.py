"""CPU of recording another LangGraph graph, as a ratio to the same run unrecorded.

    python benchmarks/recording.py [--turns 100] [--rounds 9] [--only ROW …]

Each round makes one run recorded and one not, in an order that turns, each in a thread of its own.
Printed are the medians of the rounds' ratios of CPU time, and the journal's bytes a moment. `idle`
has a recording open in another context, `copied` no saver, `layers` 4 middlewares. `page` writes a
recording of ten times as many turns as HTML.
"""

from __future__ import annotations

import argparse
import gc
import logging
import statistics
import sys
import tempfile
import time
from contextlib import nullcontext
from contextvars import Context
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from workload import Turns, addressed, question

from wick_graph import Agent, SqlSaver
from wick_graph.debug import record
from wick_graph.exports.page import as_page
from wick_graph.exports.plain import Hider
from wick_graph.journal import Journal


class Passing(AgentMiddleware):
    """Wraps each request and each call, and passes them on."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    @property
    def name(self) -> str:
        """Its name: each of an agent's has its own."""
        return self._name

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(request)

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        return handler(request)


def look(n: int) -> str:
    """Look."""
    return f"{n}: " + "result " * 100


GOALS = {"stored": 1.25, "layers": 1.35, "copied": 2.0, "idle": 1.005}

ROWS = [*GOALS, "page"]


def graph_of(row: str, turns: int, saver: SqlSaver) -> Any:
    layers = [Passing(f"layer{at}") for at in range(4)] if row == "layers" else []
    kept = None if row == "copied" else saver
    return create_agent(Turns(turns=turns), tools=[look], middleware=layers, checkpointer=kept)


def cpu_of(graph: Any, thread: str, around: Any) -> float:
    gc.collect()
    with around:
        began = time.process_time()
        graph.invoke(question(), addressed(thread))
        return time.process_time() - began


def measure(row: str, turns: int, rounds: int, folder: Path) -> tuple[float, float]:
    """Return the median ratio, and the bytes of a moment."""
    ratios = []
    with (
        SqlSaver.from_url(f"sqlite:///{folder / f'{row}.db'}") as saver,
        SqlSaver.from_url(f"sqlite:///{folder / f'{row}-copies.db'}") as copies,
    ):
        graph, elsewhere = graph_of(row, turns, saver), Context()
        for at in range(rounds + 1):
            spent = {}
            for kind in ("on", "off")[:: 1 if at % 2 else -1]:
                thread = f"{kind}{at}"
                if kind == "on" and row == "idle":
                    block = record(copies, scope="context")
                    elsewhere.run(block.__enter__)
                    spent[kind] = cpu_of(graph, thread, nullcontext())
                    elsewhere.run(block.__exit__)
                else:
                    around = record(copies) if kind == "on" else nullcontext()
                    spent[kind] = cpu_of(graph, thread, around)
            if at:  # the first round warms up
                ratios.append(spent["on"] / spent["off"])
        kept = copies if row == "copied" else saver
        if row == "idle":
            return statistics.median(ratios), 0.0
        known = [one for one in kept.threads.list() if one.thread_id.startswith(("on", "rec_"))]
        journal = Journal(kept, known[0].thread_id)
        return statistics.median(ratios), journal.size() / journal.last()


def write_page(turns: int, folder: Path) -> None:
    """Print what the page of a recording costs."""
    with SqlSaver.from_url(f"sqlite:///{folder / 'page.db'}") as saver:
        agent = Agent("a", Turns(turns=turns), tools=[look], store=saver, max_iterations=turns + 2)
        agent.invoke("go", thread_id="t")
        journal = Journal(saver, "t")
        began = time.process_time()
        page = as_page(journal, Hider.of(journal))
        spent, size = time.process_time() - began, len(page.encode()) / 1e6
        told = f"{journal.last():,} moments, {spent:.1f} s, {size:.1f} MB"
        print(f"page    {told}  (goal 5 s and 5 MB for 12,000)", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", nargs="*", choices=ROWS, default=ROWS)
    options = parser.parse_args()
    logging.disable()
    with tempfile.TemporaryDirectory() as folder:
        for row in options.only:
            if row == "page":
                write_page(10 * options.turns, Path(folder))
                continue
            ratio, size = measure(row, options.turns, options.rounds, Path(folder))
            told = f"{size:6.0f} B a moment" if size else ""
            print(f"{row:7} {ratio:6.3f}×  (goal {GOALS[row]})  {told}", flush=True)


if __name__ == "__main__":
    main()
