"""The long-term store at a size: how long a `get`, a filtered search and a search by meaning take.

    python benchmarks/long_term.py [--items 100000] [--url sqlite:///path.db] [--vectors 1000]

Printed are medians in milliseconds, of wall time and of this process's CPU time; on a busy machine
only the latter says something.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from langgraph.store.base import PutOp

from wick_graph.store import SqlStore

SPACE = 1_000
"""Items in each namespace."""
DIMS = 1536
BATCH = 1_000


def embed(texts: Sequence[str]) -> list[list[float]]:
    """Return some vector for each text."""
    made = random.Random(len(texts))
    return [[made.random() - 0.5 for _ in range(DIMS)] for _ in texts]


def measure(title: str, rounds: int, work: Callable[[int], object]) -> None:
    """Print the medians of some rounds."""
    wall, cpu = [], []
    for at in range(rounds):
        began, used = time.perf_counter(), time.process_time()
        work(at)
        wall.append(time.perf_counter() - began)
        cpu.append(time.process_time() - used)
    told = [f"{statistics.median(times) * 1_000:8.3f} ms" for times in (wall, cpu)]
    print(f"{title:44} {told[0]} wall {told[1]} CPU", flush=True)


def fill(store: SqlStore, items: int) -> None:
    """Put items into namespaces in turn, so that those of one lie far apart."""
    spaces = max(items // SPACE, 1)
    for start in range(0, items, BATCH):
        numbers = range(start, min(start + BATCH, items))
        store.batch(
            [
                PutOp(("notes", str(n % spaces)), str(n), {"n": n, "text": f"note {n} " * 8})
                for n in numbers
            ]
        )


def main() -> None:
    """Fill a store, and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--vectors", type=int, default=1_000)
    parser.add_argument("--url")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = asked.url or f"sqlite:///{Path(folder) / 'bench.db'}"
        index: Any = {"embed": embed, "dims": DIMS, "fields": ["text"]}
        with SqlStore.from_url(url) as store, SqlStore.from_url(url, index=index) as near:
            began = time.perf_counter()
            fill(store, asked.items)
            print(f"{asked.items:,} items put in {time.perf_counter() - began:.1f} s")
            spaces = max(asked.items // SPACE, 1)
            steps = [n * 7919 % asked.items for n in range(1_000)]
            measure(
                "get",
                len(steps),
                lambda at: store.get(("notes", str(steps[at] % spaces)), str(steps[at])),
            )
            none: dict[str, Any] = {"n": {"$lt": 0}}
            measure(
                f"filtered search of {SPACE:,}, all looked at",
                30,
                lambda at: store.search(("notes", str(at % spaces)), filter=none),
            )
            measure(
                "the first ten of a namespace",
                30,
                lambda at: store.search(("notes", str(at % spaces))),
            )
            put = [PutOp(("near",), str(n), {"text": str(n)}) for n in range(asked.vectors)]
            near.batch(put)
            title = f"search by meaning of {asked.vectors:,} × {DIMS}"
            measure(title, 20, lambda at: near.search(("near",), query="x"))


if __name__ == "__main__":
    main()
