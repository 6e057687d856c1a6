"""Runs of an agent on a disk that fails: started under the fault injector, prints what came of it.

`python -m tests.durability.faulty_process LIBRARY FOLDER [KINDS]` prints one JSON object. Each
trial is a forked child, so that the interpreter is started once.
"""

from __future__ import annotations

import ctypes
import json
import os
import sqlite3
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.durability import agent_process
from tests.durability.agent_process import CALLS, THREAD, TURNS, Log, agent_of
from tests.durability.test_kill import final, life, read, rerun
from wick_graph import events
from wick_graph.errors import StorageError

WRITES, SYNCS = 0, 1
EIO, FULL, SHORT, TORN = 1, 2, 3, 4
WAYS = {
    "EIO at a write": (WRITES, EIO),
    "ENOSPC at a write": (WRITES, FULL),
    "a short write": (WRITES, SHORT),
    "a torn write, then death": (WRITES, TORN),
    "EIO at an fsync": (SYNCS, EIO),
    "death at an fsync": (SYNCS, TORN),
}
POINTS = [int(n) for n in os.environ.get("WICK_FAULTS", "1,9").split(",")]


def trial(faults: Any, folder: Path, way: str, nth: int) -> dict[str, Any]:
    """Let the disk fail once in a run, then go on with it, on a disk that works."""
    folder.mkdir()
    hit, told = os.pipe()

    def run(url: str, log: Log, replay: str) -> None:
        agent_of(url, log, replay).close()  # the database is there
        faults.faults_watch(b"t.db")
        faults.faults_arm(*WAYS[way], nth, 0)
        try:
            agent_process.ours(url, log, replay)
        except StorageError as error:
            log.write("raised", str(error).replace("\n", " "))
        finally:
            os.write(told, b"x" if faults.faults_hit() else b"")

    killed = life(run, folder, "never", None)
    os.close(told)
    reached = killed or os.read(hit, 1) == b"x"
    os.close(hit)
    for _ in range(3):
        if read(folder)[-1:] == [("done", "done")]:
            break
        life(agent_process.ours, folder, "never", None)
    lines, got = read(folder), final(folder, "never")
    with closing(sqlite3.connect(folder / "t.db")) as db, db:
        whole = db.execute("PRAGMA integrity_check").fetchone()[0]
    db.close()
    said = [rest for word, rest in lines if word in ("failed", "raised")]
    return {
        "way": way,
        "nth": nth,
        "reached": reached,
        "killed": killed,
        "rerun": dict(rerun(lines)),
        "started_twice": max(Counter(n for word, n in lines if word == "start").values()) > 1,
        "answered": len(got["results"]) == TURNS * CALLS,
        "ended": ("done", "done") in lines,
        "whole": whole,
        "said": said,
        "names_the_file": all(str(folder / "t.db") in text for text in said),
    }


def commits_first(faults: Any, folder: Path) -> dict[str, Any]:
    """Count calls of which a reader was told without an fsync after they had ended."""
    folder.mkdir()
    faults.faults_watch(b"t.db")
    ended: dict[str, int] = {}

    class Counting(Log):
        def write(self, word: str, name: object) -> None:
            if word == "end":
                ended[str(name)] = faults.faults_syncs()
            super().write(word, name)

    log = Counting(folder / "log")
    early, told = [], 0
    with agent_of(f"sqlite:///{folder / 't.db'}", log, "never") as agent:
        for event in agent.stream("go", thread_id=THREAD):
            if isinstance(event, events.ToolEnd):
                told += 1
                number = event.output.removeprefix("done ")
                if faults.faults_syncs() <= ended[number]:
                    early.append(number)
        with agent.store._core.reading() as db:  # type: ignore[union-attr]
            level = db.execute("PRAGMA synchronous").fetchone()[0]
    return {"told": told, "early": early, "synchronous": level}


def disk_full(faults: Any, folder: Path) -> dict[str, Any]:
    """Fill the disk in a run, read while it is full, and go on in the same process."""
    folder.mkdir()
    log = Log(folder / "log")
    told: set[str] = set()
    failed = ""
    with agent_of(f"sqlite:///{folder / 't.db'}", log, "never") as agent:
        agent.invoke("go", thread_id="calm")
        os.ftruncate(log.fd, 0)
        faults.faults_watch(b"t.db")
        for event in agent.stream("go", thread_id=THREAD):
            if isinstance(event, events.ToolEnd):
                told.add(event.output)
                if len(told) == CALLS:
                    faults.faults_arm(WRITES, FULL, 1, 1)
            if isinstance(event, events.Failed):
                failed = event.error
        listed = len(agent.threads.list())
        calm: Any = {"configurable": {"thread_id": "calm"}}
        there = agent.graph.get_state(calm).values["messages"]
        try:
            agent.invoke("and now?", thread_id="other")
            refused = ""
        except StorageError as error:
            refused = str(error)
        faults.faults_off()
        result = agent.resume(THREAD)
        texts = {m.text for m in result.messages if m.type == "tool"}
    return {
        "failed": failed,
        "refused": refused,
        "listed": listed,
        "readable": there[-1].text,
        "lost": sorted(told - texts),
        "text": result.text,
        "rerun": dict(rerun(read(folder))),
    }


def main() -> None:
    faults = ctypes.CDLL(sys.argv[1])
    faults.faults_arm.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_int]
    faults.faults_syncs.restype = ctypes.c_long
    folder = Path(sys.argv[2])
    print(
        json.dumps(
            {
                "trials": [
                    trial(faults, folder / f"{n}-{nth}", way, nth)
                    for n, way in enumerate(WAYS)
                    for nth in POINTS
                ],
                "commits": commits_first(faults, folder / "commits"),
                "full": disk_full(faults, folder / "full"),
            }
        )
    )


if __name__ == "__main__":
    main()
