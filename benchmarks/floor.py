"""What a turn would cost with parts of the engine left out: the floors under the table's goals.

    python benchmarks/floor.py [--rounds 3] [--only KEY,…] [--count [--threads 30]]

Measured as the table is: CPU time, in rounds whose order turns, ÷ `create_agent` with its SQLite
saver and `durability="sync"` in the same round; memory as `memory.py` measures it. Left out, one
after the other: the way to the store's thread and back, the disk's part in commits, both, the
journal, the store, and all that is ours: what remains is LangGraph's loop with an agent's four
nodes, empty, in the same steps. Nothing is left out of a resumed thread: what is not stored cannot
be resumed.

With `--count`, Python's bytecodes are counted in place of CPU time: they are the same on each
machine and at each hour, to a hundredth. What the disk, the kernel and SQLite do is not in them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import memory
from contenders import ALL, BARE, OURS, PEER, SAFE, SILENT, UNSTORED, wick
from measure import Bytecodes, Run, Sample, Spread, parser_of, rounds
from rows_felt import opened, turned
from rows_time import looping, resumed, together

from wick_graph.engine import pinned
from wick_graph.store.worker import Worker

WHOLE = "LangGraph's loop unshortened"
HERE, UNFLUSHED = "wick_graph, stored by the loop's thread", "wick_graph, commits not flushed"
NEITHER, ALL_THREE = "wick_graph, both of these", "wick_graph, both, and no journal"
FREE = "create_agent, nothing stored"
_unflushed = partial(wick, synchronous="NORMAL")
ALL.update({HERE: wick, UNFLUSHED: _unflushed, NEITHER: _unflushed})
ALL[ALL_THREE] = partial(_unflushed, journal="off")
ALL[FREE] = lambda model, tools, path: ALL[PEER](model, tools, None)
IN_PLACE = (HERE, NEITHER, ALL_THREE)
LEFT_OUT = (WHOLE, OURS, SAFE, HERE, UNFLUSHED, NEITHER, SILENT, ALL_THREE, UNSTORED, BARE)
STORED = (WHOLE, OURS, SILENT)
COUNTED = (WHOLE, OURS, SAFE, SILENT, UNSTORED, BARE, FREE)
"""What differs in bytecodes."""

MEASURES: dict[str, tuple[str, tuple[str, ...], Callable[[str], Run]]] = {
    "opening": ("opening a run in a new thread", LEFT_OUT, lambda name: opened(name, 100)),
    "turn": ("a turn with one tool in a new thread", LEFT_OUT, lambda name: turned(name, 100)),
    "loop": ("a turn of 100", LEFT_OUT, lambda name: looping(name, 100, durable=True)),
    "threads": ("200 threads of 10 turns, model 20 ms", LEFT_OUT, lambda n: together(n, 200, 10)),
    "resume": ("a thread of 400 turns until the model's call", STORED, lambda n: resumed(n, 400)),
}


def _at_once(worker: Worker, work: Any, future: Any, *, long: bool = False) -> None:
    """Do in the caller's thread what the store's would do; it holds up the loop."""
    try:
        future.set_result(work())
    except BaseException as error:
        future.set_exception(error)


def run_of(name: str, make: Callable[[str], Run]) -> Run:
    """Measure one of them, on the loop that it is about."""

    async def run(folder: Path) -> Sample:
        given: Any = Worker
        give, pinned.switch["lean"] = Worker.give, name != WHOLE
        given.give = _at_once if name in IN_PLACE else give
        try:
            return await make(OURS if name == WHOLE else name)(folder)
        finally:
            given.give, pinned.switch["lean"] = give, True

    return run


async def shown(key: str, count: int) -> None:
    """Measure all of them and print each beside the peer."""
    title, without, make = MEASURES[key]
    names = (PEER, *without)
    found = await rounds({name: run_of(name, make) for name in names}, count)
    print(title)
    for name in names:
        pairs = zip(found[name], found[PEER], strict=True)
        ratio = Spread.of([mine.cpu / theirs.cpu for mine, theirs in pairs])
        each = Spread.of([one.cpu * 1e3 for one in found[name]])
        spread = f"({ratio.low:.2f}–{ratio.high:.2f})"
        print(f"  {name:40} {each.median:8.2f} ms  {ratio.median:.2f}× {spread}", flush=True)


COUNTABLE: dict[str, Callable[[str, int], Run]] = {"opening": opened, "turn": turned}


async def counted(key: str, threads: int) -> None:
    """Count the bytecodes of opening or turn for each, and print them beside the peer's."""
    title, make = MEASURES[key][0], COUNTABLE[key]
    with Bytecodes():
        runs = {name: run_of(name, lambda name: make(name, threads)) for name in (PEER, *COUNTED)}
        found = await rounds(runs, 1)
    print(f"{title}, in bytecodes")
    for name, (one,) in found.items():
        print(f"  {name:40} {one.cpu:9,.0f}  {one.cpu / found[PEER][0].cpu:.2f}×", flush=True)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join([*MEASURES, "memory"]), help="keys, by commas")
    parser.add_argument("--count", action="store_true", help="bytecodes of `opening` and `turn`")
    parser.add_argument("--threads", type=int, default=30, help="of which bytecodes are counted")
    options = parser.parse_args()
    keys = options.only.split(",")
    if options.count:
        for key in COUNTABLE:
            if key in keys:
                asyncio.run(counted(key, options.threads))
        return
    for key in MEASURES:
        if key in keys:
            asyncio.run(shown(key, options.rounds))
    if "memory" in keys:
        print("memory of a live thread")
        for name in (PEER, OURS, SILENT, UNSTORED, BARE):
            print(f"  {name:40} {memory.in_process(name, 500)['live'] / 1e3:8.1f} kB", flush=True)


if __name__ == "__main__":
    main()
