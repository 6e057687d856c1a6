"""Count the instructions of ten workloads at two commits; fail if one grew by more than 2 %.

    python benchmarks/gate.py --base origin/main     # needs valgrind, and changes no checkout
    python benchmarks/gate.py --only "new thread"    # those whose name holds this
    python benchmarks/gate.py --dry                  # runs each workload once and counts nothing

Both commits run in the same environment with the workloads of this file, which use public names
only. A process imports the package once under valgrind; for each workload two children run it
some times and ten times more. A tenth of the difference of their counts is one run, without its
start. What waits for a commit is written by the clock, so workloads with a store vary by some per
cent from count to count; the others do not.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from measure import parser_of
from workload import CheapTokens, Once, Turns, addressed, look, question

from wick_graph import Agent, SqlSaver, tool
from wick_graph.journal import Journal

MOST = 1.02
"""Instructions of a commit ÷ those of its base."""
WARM = 2
"""Runs of a workload before the counted ones."""
RUNS = 10
"""Counted runs."""
PARTS = ("wick_graph", "nodes")
"""What is counted of a checkout."""
ROOT = Path(__file__).resolve().parent.parent

Work = Callable[[int], Any]
"""Runs a workload once; its number makes names of threads."""


class Prepared:
    """What workloads run on, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.saver = SqlSaver.from_url(f"sqlite:///{folder / 'gate.db'}", synchronous="NORMAL")

    def agent(self, model: Any, *, stored: bool = True, **more: Any) -> Agent:
        store = self.saver if stored else False
        tools = [tool(replay="safe")(look)]
        return Agent("gate", model, tools=tools, store=store, max_iterations=1_000, **more)

    def turn(self, model: Any, thread: str, *, stored: bool = True) -> Work:
        made = self.agent(model, stored=stored)
        return lambda n: made.invoke("go", thread_id=thread.format(n))

    def after_turns(self, work: Work, times: int) -> Work:
        """Make turns, whose count varies by more than what a single small work takes."""
        talks = self.turn(Turns(turns=3), "t{}")
        for number in range(20):
            talks(number)
        return lambda number: [work(number) for _ in range(times)]

    def tokens(self, *, own: bool) -> Work:
        made = self.agent(CheapTokens(tokens=300), stored=False)

        async def read(number: int) -> None:
            config = addressed(f"s{number}")
            theirs = made.graph.astream(question(), config, stream_mode="messages")
            async for _ in made.astream("go", thread_id=f"s{number}") if own else theirs:
                pass

        return lambda n: asyncio.run(read(n))

    def sweep(self, number: int) -> Any:
        made = self.agent(Once(), ttl=1e-6)
        for n in range(5):
            made.invoke("go", thread_id=f"old-{number}-{n}")
        return self.saver.sweep()

    def journal(self, number: int) -> Any:
        return [*Journal(self.saver, "t1").moments()]

    def history(self, number: int) -> Any:
        return [*self.agent(Once()).graph.get_state_history(addressed("t1"))]


WORKLOADS: dict[str, Callable[[Prepared], Work]] = {
    "a loop without a store": lambda on: on.turn(Turns(turns=25), "l{}", stored=False),
    "a new thread, one tool": lambda on: on.turn(Turns(turns=2), "n{}"),
    "durable turns": lambda on: on.turn(Turns(turns=25), "u{}"),
    "a turn more in one thread": lambda on: on.turn(Once(), "one"),
    "tokens": lambda on: on.tokens(own=True),
    "tokens at LangGraph's door": lambda on: on.tokens(own=False),
    "100 lists of threads": lambda on: on.after_turns(lambda n: on.saver.threads.list(20), 100),
    "ten histories": lambda on: on.after_turns(on.history, 10),
    "100 journals": lambda on: on.after_turns(on.journal, 100),
    "threads and their sweep": lambda on: on.sweep,
}


def count_here(folder: Path, only: str, *, dry: bool) -> None:
    """Run each workload in children; under valgrind, each leaves its count in the folder."""
    SqlSaver.from_url("sqlite://").close()  # so that no child counts what it imports
    for at, name in enumerate(one for one in WORKLOADS if only in one):
        for runs in (WARM,) if dry else (WARM, WARM + RUNS):
            place = folder / f"{at}-{runs}"
            place.mkdir()
            if (child := os.fork()) == 0:
                try:
                    work = WORKLOADS[name](Prepared(place))
                    gc.collect()
                    gc.disable()  # one look through all objects is more than most workloads
                    for number in range(runs):
                        work(number)
                except BaseException as error:
                    print(f"{name}: {error!r}", file=sys.stderr, flush=True)
                    os._exit(1)
                os._exit(0)
            if os.waitpid(child, 0)[1]:
                raise SystemExit(f"the workload {name!r} failed")
            print(json.dumps([name, runs, child]), flush=True)


def counted(tree: Path, only: str) -> dict[str, int]:
    """Return the instructions of one run of each workload of the package in a folder."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        command = [
            *("valgrind", "--tool=cachegrind", "--cache-sim=no", "-q"),
            f"--cachegrind-out-file={folder}/out.%p",
            *(sys.executable, __file__, "--here", made, "--only", only),
        ]
        env = {**os.environ, "PYTHONPATH": str(tree), "PYTHONHASHSEED": "0"}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
        found: dict[str, list[int]] = {}
        for line in done.stdout.splitlines():
            name, _, child = json.loads(line)
            text = (folder / f"out.{child}").read_text("ascii", "replace")
            total = re.search(r"^summary: (\d+)", text, re.MULTILINE)
            assert total is not None, "valgrind wrote no summary"
            found.setdefault(name, []).append(int(total[1]))
    return {name: (more - some) // RUNS for name, (some, more) in found.items()}


def judged(base: Mapping[str, int], head: Mapping[str, int]) -> Iterator[tuple[str, bool]]:
    """Yield a line for each workload, and whether it holds."""
    for name, now in head.items():
        was = base.get(name)
        if was is None:
            yield f"{name:28} {now / 1e6:9.2f} M  new", True
        else:
            line = f"{name:28} {was / 1e6:9.2f} M → {now / 1e6:9.2f} M  {now / was - 1:+.2%}"
            yield line, now <= was * MOST


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--base", default="HEAD", help="the commit to compare with")
    parser.add_argument("--dry", action="store_true", help="run everything, count nothing")
    parser.add_argument("--only", default="", help="a part of the names of workloads")
    parser.add_argument("--json", type=Path, help="write the counts here")
    parser.add_argument("--here", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        count_here(options.here, options.only, dry=False)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        if options.dry:
            count_here(Path(folder), options.only, dry=True)
            return 0
        # Both from sources alone: a loop took 4 % more for the same where modules were loaded from
        # compiled files, and only a checkout that was used before has those.
        trees = Path(folder) / "base", Path(folder) / "head"
        git = ["git", "archive", options.base, *PARTS]
        for tree, command in zip(
            trees, (git, ["tar", "-c", "--exclude=__pycache__", *PARTS]), strict=True
        ):
            tree.mkdir()
            held = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True)
            subprocess.run(["tar", "-x", "-C", str(tree)], input=held.stdout, check=True)
        base, head = (counted(one, options.only) for one in trees)
    if options.json:
        options.json.write_text(json.dumps({"base": base, "head": head}, indent=1) + "\n", "utf-8")
    lines = [*judged(base, head)]
    for line, holds in lines:
        print(line if holds else f"{line}  GREW BY MORE THAN {MOST - 1:.0%}")
    return int(not all(holds for _, holds in lines))


if __name__ == "__main__":
    sys.exit(main())
