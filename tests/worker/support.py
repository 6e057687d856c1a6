"""A fleet: servers and workers in processes of their own, over one PostgreSQL, to be killed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from tests.server.support import START_SECONDS, Served
from tests.source import ROOT
from tests.support import forked
from tests.support.postgres import connected
from tests.support.proxy import LossyProxy
from tests.support.waiting import until
from wick_graph.store import SqlSaver

TOOLS = '''
import os, signal, time
from pathlib import Path
from wick_graph import tool

HERE = Path(__file__).parent

@tool
def mark(n: str) -> str:
    """Write a line, once and never again."""
    with open(HERE / "lines", "a") as file:
        file.write(n + "\\n")
    time.sleep(float(os.environ.get("MARK_SECONDS", "0.2")))
    return f"marked {n}"

@tool
def die(n: str) -> str:
    """End the process."""
    with open(HERE / "deaths", "a") as file:
        file.write(n + "\\n")
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"

@tool(replay="safe")
def die_again(n: str) -> str:
    """End the process, also when the call is made again."""
    return die.fn(n) if hasattr(die, "fn") else os.kill(os.getpid(), signal.SIGKILL)
'''


@dataclass
class Fleet:
    """A folder with agents, its servers and its workers."""

    path: Path
    url: str
    lease: float = 3
    limits: dict[str, Any] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    servers: list[Served] = field(default_factory=list)
    workers: list[subprocess.Popen[str]] = field(default_factory=list)
    ways: dict[int, LossyProxy] = field(default_factory=dict)
    """The way of a worker to the database, by its process, if the test may cut it."""

    def __post_init__(self) -> None:
        (self.path / "tools.py").write_text(TOOLS)
        self.queue = self.url.rpartition("schema=")[2] + "_q"
        file = {
            "store": f"${{WAY:-{self.url}}}",
            "workers": {
                **{"mode": "external", "lease": self.lease, "heartbeat": self.lease / 3},
                "queue_schema": self.queue,
            },
            "limits": self.limits,
            "defaults": {"ttl": "never", "journal": "off", "model": "scripted:demo"},
            "agents": {"default": {"tools": ["tools:mark", "tools:die", "tools:die_again"]}},
        }
        (self.path / "agents.yaml").write_text(json.dumps(file))

    def serve(self) -> Served:
        """Start a server."""
        served = Served(self.path, ("--no-auth", "--trust"), self.env).start()
        self.servers.append(served)
        return served

    def work(self, *more: str, by_itself: bool = False) -> subprocess.Popen[str]:
        """Start a worker, perhaps with a way of its own to the database; wait until it works."""
        way = LossyProxy(self.url) if by_itself else None
        process = forked.Popen(
            [sys.executable, "-m", "wick_graph", "worker", "--trust", *more],
            cwd=self.path,
            stderr=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                **{"PYTHONPATH": str(ROOT)},
                **({} if way is None else {"WAY": way.url}),
                **self.env,
            },
        )
        self.workers.append(process)
        if way is not None:
            self.ways[process.pid] = way
        assert process.stderr is not None
        late = threading.Timer(START_SECONDS, process.kill)
        late.start()
        try:
            said = []
            for line in process.stderr:
                said.append(line)
                if re.match("working for", line):
                    break
            else:
                raise AssertionError("".join(said))
        finally:
            late.cancel()
        log = (self.path / f"worker-{process.pid}.log").open("w")
        threading.Thread(target=_drain, args=(process.stderr, log), daemon=True).start()
        return process

    def ask(self, text: str, thread: str, at: int = 0, **more: Any) -> str:
        """Begin a run that nobody waits for; return its id."""
        body = {"thread_id": thread, "messages": [{"role": "user", "content": text}], **more}
        body.setdefault("on_busy", "queue")
        with self.servers[at].http() as http, http.stream("POST", "/agents/stream", json=body) as s:
            assert s.status_code == 200, s.read()
            return s.headers["x-run-id"]

    def status(self) -> Counter[str]:
        """Count the runs by status."""
        return Counter(self.sql("SELECT status FROM streams", one=True))

    def sql(self, text: str, *values: Any, one: bool = False) -> list[Any]:
        """Run a statement outside of the product."""
        with connected(self.url) as db:
            db.execute(f"SET search_path TO {self.url.rpartition('schema=')[2]}, {self.queue}")
            cursor = db.execute(text, values)
            rows = cursor.fetchall() if cursor.description else []
        return [row[0] for row in rows] if one else rows

    def is_over(self, runs: int) -> bool:
        """Return whether so many runs have ended, and none goes on."""
        found = self.status()
        return found.total() == runs and not found.keys() & {"queued", "running", "quarantined"}

    def wait(self, runs: int, seconds: float = 240) -> None:
        """Wait until all runs have ended."""
        until(lambda: self.is_over(runs), lambda: self.left(runs), seconds)

    def left(self, runs: int) -> str:
        """Say which runs have not ended, what the queue and the leases hold, and who works."""
        rows = self.sql(
            "SELECT rid, thread, status, placed, first FROM streams WHERE ended IS NULL"
        )
        held = self.sql("SELECT thread, owner, until, tries, extract(epoch FROM now()) FROM leases")
        jobs = self.sql("SELECT id, status, worker_id, queueing_lock FROM procrastinate_jobs")
        alive = {one.pid: one.poll() for one in self.workers}
        said = [path.read_text()[-500:] for path in self.path.glob("worker-*.log")]
        return f"{self.status()} of {runs}; {rows=}\n{held=}\n{jobs=}\n{alive=}\n{said=}"

    def lines(self, name: str = "lines") -> list[str]:
        """Return what the tools wrote."""
        path = self.path / name
        return path.read_text().split() if path.exists() else []

    def asked(self, thread: str) -> list[str]:
        """Return the questions of a thread, in the order of its history."""
        with SqlSaver.from_url(self.url) as saver:
            saved = saver.get_tuple({"configurable": {"thread_id": thread}})
        messages = saved.checkpoint["channel_values"]["messages"] if saved else []
        return [m.text for m in messages if m.type == "human"]

    def close(self) -> None:
        """End all processes, and drop the queue."""
        for served in self.servers:
            if served.process is not None and served.process.poll() is None:
                served.kill()
        for process in self.workers:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()
        for way in self.ways.values():
            way.close()
        with psycopg.connect(self.url.rpartition("schema=")[0].rstrip("?&"), autocommit=True) as db:
            db.execute(f'DROP SCHEMA IF EXISTS "{self.queue}" CASCADE')


def _drain(pipe: Any, log: Any) -> None:
    with log, pipe:
        for line in pipe:
            log.write(line)
            log.flush()
