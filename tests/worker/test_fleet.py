"""Servers and workers over one PostgreSQL: whatever dies, no run, call or order is lost."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.waiting import until
from tests.worker.support import Fleet

pytestmark = [pytest.mark.xdist_group("fleet"), pytest.mark.timeout(900)]


@pytest.fixture
def fleet(postgres_url: str, tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(tmp_path, postgres_url)
    yield made
    made.close()


def load(fleet: Fleet, runs: int, threads: int) -> dict[str, list[str]]:
    """Ask so many questions; return them by thread, in the order of arrival."""
    asked: dict[str, list[str]] = {}
    for n in range(runs):
        thread = f"t{n % threads}"
        text = f'mark(n="{n}")'
        fleet.ask(text, thread, at=n % len(fleet.servers))
        asked.setdefault(thread, []).append(text)
    return asked


def check(fleet: Fleet, asked: dict[str, list[str]]) -> None:
    """Check that no run is lost, no call was made twice, and each thread has its order."""
    assert fleet.status().keys() <= {"done"}, fleet.status()
    twice = [line for line, count in Counter(fleet.lines()).items() if count > 1]
    assert not twice
    for thread, texts in asked.items():
        assert fleet.asked(thread) == texts
    assert not fleet.sql("SELECT 1 FROM leases WHERE tries > 2")


def progressed(fleet: Fleet, done: int, runs: int) -> bool:
    return fleet.status()["done"] >= done or fleet.is_over(runs)


def harm(fleet: Fleet, what: str, victim: subprocess.Popen[str]) -> None:
    """Kill a worker, or keep it from its database for longer than its lease."""
    if what == "kill":
        victim.kill()
        victim.wait()
        fleet.work(by_itself=victim.pid in fleet.ways)
        return
    if what == "freeze":
        victim.send_signal(signal.SIGSTOP)
        time.sleep(fleet.lease + 1)  # the point of the test: longer than the lease
        victim.send_signal(signal.SIGCONT)
        return
    way = fleet.ways[victim.pid]
    assert way.commits > 0, "the worker goes another way"
    way.cut(*what.split(" and "))
    time.sleep(fleet.lease + 1)  # as above
    way.mend()


CUTS = ("asks and answers", "asks", "answers")


def survive(fleet: Fleet, runs: int, threads: int, workers: int, harms: list[str]) -> None:
    chance = random.Random(runs)
    fleet.serve()
    for _ in range(workers):
        fleet.work(by_itself=bool({*harms} & {*CUTS}))
    asked = load(fleet, runs, threads)
    for what in harms:
        made = fleet.status()["done"] + 1
        until(partial(progressed, fleet, made, runs), "no progress", 120)
        harm(fleet, what, chance.choice([one for one in fleet.workers if one.poll() is None]))
    fleet.wait(runs)
    check(fleet, asked)


def test_runs_survive_kills_and_freezes_of_workers(fleet: Fleet) -> None:
    survive(fleet, runs=30, threads=6, workers=2, harms=["freeze", *["kill"] * 3])


@pytest.mark.parametrize(
    "way", [CUTS[0], *(pytest.param(cut, marks=pytest.mark.slow) for cut in CUTS[1:])]
)
def test_a_worker_that_is_cut_off_harms_nothing_when_it_comes_back(fleet: Fleet, way: str) -> None:
    survive(fleet, runs=20, threads=5, workers=2, harms=[way, way])


@pytest.mark.slow
def test_many_runs_survive_many_kills_freezes_and_cuts(fleet: Fleet) -> None:
    def of(name: str, default: int) -> int:
        return int(os.environ.get(f"WICK_FLEET_{name}", default))

    for _ in range(of("SERVERS", 2) - 1):
        fleet.serve()
    cuts = [CUTS[n % len(CUTS)] for n in range(of("CUTS", 10))]
    harms = [*["freeze"] * of("FREEZES", 10), *cuts, *["kill"] * of("KILLS", 100)]
    random.Random(1).shuffle(harms)
    survive(fleet, of("RUNS", 1000), of("THREADS", 100), of("WORKERS", 3), harms)


def test_jobs_are_only_hints(fleet: Fleet) -> None:
    """Deleted, doubled, wrongly finished and forged jobs lose nothing and start nothing."""
    fleet.serve()
    fleet.ask('mark(n="deleted")', "a")
    fleet.ask('mark(n="finished")', "b")
    fleet.ask('mark(n="doubled")', "c")
    fleet.ask('mark(n="behind")', "c")
    lock = "SELECT replace(encode(run, 'hex'), '', '') FROM streams ORDER BY rid"
    deleted, finished, doubled, behind = fleet.sql(lock, one=True)
    fleet.sql("DELETE FROM procrastinate_jobs WHERE queueing_lock = %s", deleted)
    fleet.sql(
        "UPDATE procrastinate_jobs SET status = 'succeeded' WHERE queueing_lock = %s", finished
    )

    def forge(**args: object) -> None:
        fleet.sql(
            "INSERT INTO procrastinate_jobs (queue_name, task_name, args) VALUES ('x', 'x', %s)",
            json.dumps(args),
        )

    forge(tenant="local", run=doubled)
    forge(tenant="local", run=behind)  # it would come before its turn
    forge(tenant="other", run=doubled)  # of another tenant
    forge(tenant="local", run="00" * 16)
    forge(tenant="../x", run="zz", messages=["hello"])
    forge()
    fleet.work()
    fleet.wait(4)
    assert Counter(fleet.lines()) == Counter(["deleted", "finished", "doubled", "behind"])
    assert fleet.asked("c") == ['mark(n="doubled")', 'mark(n="behind")']
    assert fleet.status() == {"done": 4}
    until(lambda: not fleet.sql("SELECT 1 FROM procrastinate_jobs"), "jobs are left")


def test_a_worker_that_stops_gives_its_runs_to_others(fleet: Fleet) -> None:
    fleet.env["MARK_SECONDS"] = "0.1"
    fleet.lease = 30
    fleet.__post_init__()
    fleet.serve()
    first = fleet.work()
    calls = " then ".join(f'mark(n="{n}")' for n in range(3))
    for n in range(4):
        fleet.ask(calls.replace('n="', f'n="{n}-'), f"t{n}")
    until(lambda: len(fleet.lines()) > 2, "no run has begun")
    fleet.work()
    first.send_signal(signal.SIGTERM)
    assert first.wait(60) == 0
    fleet.wait(4, 20)  # the leases of the first one would hold for 30 s
    assert not [line for line, count in Counter(fleet.lines()).items() if count > 1]


def test_a_deadly_run_is_quarantined_and_ends_as_dead(fleet: Fleet) -> None:
    fleet.serve()
    run = fleet.ask('die_again(n="1")', "deadly")
    fleet.ask('mark(n="healthy")', "healthy")

    def again() -> bool:
        if not [one for one in fleet.workers if one.poll() is None]:
            fleet.work()
        return fleet.is_over(2)

    until(again, "the runs go on", 200)
    found = fleet.servers[0].wick("runs", "--dead", "--json")
    assert [one["run_id"] for one in json.loads(found)] == [run]
    assert fleet.lines() == ["healthy"]
    assert fleet.status() == {"done": 1, "failed": 1}


def test_above_the_limit_of_waiting_runs_a_server_answers_429(fleet: Fleet) -> None:
    fleet.limits = {"default": {"waiting": 2, "running": 1}}
    fleet.__post_init__()
    served = fleet.serve()
    for n in range(2):
        fleet.ask(f'mark(n="{n}")', f"t{n}")
    body = {"messages": [{"role": "user", "content": "hello"}], "thread_id": "t2"}
    with served.http() as http:
        refused = http.post("/agents/invoke", json=body)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        busy = {**body, "thread_id": "t0"}
        assert http.post("/agents/invoke", json=busy).status_code == 429
    fleet.work()
    fleet.wait(2)
    with served.http() as http:
        assert http.post("/agents/invoke", json=body).json()["response"]


def test_a_stream_of_openai_s_form_tells_the_usage_of_a_worker_s_run(fleet: Fleet) -> None:
    (fleet.path / "told.yaml").write_text("steps: [{text: Hello., usage: [5, 7]}]\n")
    file = json.loads((fleet.path / "agents.yaml").read_text())
    file["agents"]["told"] = {"model": "scripted:told.yaml"}
    (fleet.path / "agents.yaml").write_text(json.dumps(file))
    fleet.work()
    asked = {
        "model": "told",
        "messages": [{"role": "user", "content": "Hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    with fleet.serve().http() as http:
        told = http.post("/v1/chat/completions", json=asked).text.split("data: ")
    usage = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
    assert json.loads(told[-2])["usage"] == usage
    code, log = fleet.servers[0].stop()
    assert (code, '"error"' in log) == (0, False), log


def test_a_thread_whose_run_waits_for_a_worker_is_not_deleted(fleet: Fleet) -> None:
    """A queued run is not lost: its thread stays until the run has ended or is cancelled."""
    fleet.serve()
    run = fleet.ask('mark(n="1")', "t")
    with fleet.servers[0].http() as http:
        assert http.delete("/threads/t").json() == {"error": "thread is busy"}
        pruned = http.post("/langgraph/threads/prune", json={"thread_ids": ["t"]})
        assert pruned.json() == {"pruned_count": 0}
        assert http.get(f"/runs/{run}").json()["status"] == "queued"
        assert http.post("/threads/t/cancel").status_code < 300
        assert http.delete("/threads/t").status_code == 204
