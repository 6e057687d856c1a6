"""How long a sweep takes for each expired thread.

    python benchmarks/sweep.py [--threads 2000] [--url sqlite:///path.db]

Half of the threads, each of one turn with its journal, have expired. Printed are wall time and the
CPU time of this process, without making the threads.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from wick_graph import Agent
from wick_graph.store import SqlSaver


def main() -> None:
    """Make threads, let every second one expire, and sweep."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2_000)
    parser.add_argument("--url")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = asked.url or f"sqlite:///{Path(folder) / 'bench.db'}"
        with SqlSaver.from_url(url, synchronous="NORMAL") as saver:
            for ttl in (3_600, "never"):
                agent = Agent("bench", "scripted:demo", store=saver, ttl=ttl)
                for number in range(asked.threads // 2):
                    agent.invoke("What is 2+3?", thread_id=f"{ttl}-{number}")
            later = time.time() + 7_200
            saver.clock = lambda: later
            began, used = time.perf_counter(), time.process_time()
            gone = len(saver.sweep())
            wall, cpu = time.perf_counter() - began, time.process_time() - used
            left = len(saver.threads.list(limit=asked.threads))
    each = [f"{seconds / max(gone, 1) * 1_000:.3f} ms" for seconds in (wall, cpu)]
    print(f"{gone} threads swept, {left} left: {each[0]} wall, {each[1]} CPU for each")


if __name__ == "__main__":
    main()
