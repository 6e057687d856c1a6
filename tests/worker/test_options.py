"""What configures workers, and who needs no worker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import forked
from wick_graph.config import load_config
from wick_graph.errors import ConfigError
from wick_graph.worker.queue import RunQueue, ids_in

AGENT = "agents: {default: {model: 'scripted:demo'}}\n"


def test_a_tenant_has_its_share(tmp_path: Path) -> None:
    path = tmp_path / "agents.yaml"
    path.write_text(AGENT + "limits: {default: {running: 7, waiting: 3}, anna: {running: 500}}\n")
    limits = load_config(path).limits
    anna, other = limits.share("anna"), limits.share("ben")
    assert (anna.running, anna.waiting, anna.weight) == (500, 3, 1)
    assert (other.running, other.waiting, other.weight) == (7, 3, 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("workers: {mode: extern}", "workers.mode"),
        ("workers: {slots: 0}", "workers.slots"),
        ("workers: {lease: 1s}", "workers.lease"),
        ("workers: {lease: 6s, heartbeat: 5s}", "half of its lease"),
        ("workers: {queue_schema: 'x\"; DROP'}", "workers.queue_schema"),
        ("limits: {anna: {runing: 5}}", "limits.anna.runing"),
        ("limits: {anna: {weight: 0}}", "limits.anna.weight"),
        ("limits: {anna: 5}", "limits.anna"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "agents.yaml"
    path.write_text(f"{AGENT}{text}\n")
    with pytest.raises(ConfigError, match=said):
        load_config(path)


def test_workers_need_postgresql(tmp_path: Path) -> None:
    path = tmp_path / "agents.yaml"
    path.write_text(AGENT + "workers: {mode: external}\n")
    with pytest.raises(ConfigError, match="workers need PostgreSQL"):
        RunQueue(load_config(path))
    assert not [*tmp_path.glob("**/*.db")]


@pytest.mark.parametrize(
    "forged",
    [
        *(None, [], {}, {"tenant": "a"}, {"tenant": "a", "thread": "61", "run": None}),
        {"tenant": "a", "thread": "zz", "run": "00" * 16},
        {"thread": "61", "run": "00" * 16},
    ],
)
def test_a_job_without_ids_names_no_run(forged: Any) -> None:
    assert ids_in(forged) is None


def test_a_job_holds_three_ids() -> None:
    made = {"tenant": "a", "thread": b"t 1".hex(), "run": "0" * 31 + "1", "messages": ["hello"]}
    assert ids_in(made) == ("a", "t 1", "00000000-0000-0000-0000-000000000001")


def test_who_needs_no_worker_loads_no_queue() -> None:
    code = "import sys, wick_graph.cli.serve, wick_graph.server.process, wick_graph.service.service"
    loaded = (
        "print([n for n in sys.modules if n.startswith(('procrastinate', 'wick_graph.worker'))])"
    )
    done = forked.run(
        [sys.executable, "-c", f"{code}; {loaded}"], stdout=subprocess.PIPE, text=True
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[]")
