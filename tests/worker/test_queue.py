"""Placement and sweep: who is served next, and what is repaired."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.postgres import connected
from wick_graph import Agent
from wick_graph.config import load_config
from wick_graph.errors import ThreadBusyError
from wick_graph.service.metrics import Metrics
from wick_graph.service.options import Limits
from wick_graph.service.runs import RunRequest, Runs
from wick_graph.store import SqlSaver
from wick_graph.store.server_rows import QUARANTINED, QUEUED, RUNNING, StreamRow
from wick_graph.store.verify import verify
from wick_graph.worker.queue import RunQueue

ASKED = {"agent": "default", "kind": "message", "messages": []}
LIMITS = "limits: {default: {running: 20}, heavy: {weight: 2}}"


class Desk:
    """A queue, and stores of tenants that admit runs."""

    def __init__(self, url: str, path: Path) -> None:
        file = path / "agents.yaml"
        self.url, self.schema = url, url.rpartition("schema=")[2]
        file.write_text(
            f"store: {url}\nworkers: {{queue_schema: {self.schema}_q}}\n{LIMITS}\n"
            "agents: {default: {model: 'scripted:demo'}}\n"
        )
        self.queue = RunQueue(load_config(file))
        self.stack = ExitStack()
        self.savers: dict[str, SqlSaver] = {}

    def saver(self, tenant: str) -> SqlSaver:
        if tenant not in self.savers:
            made = SqlSaver.from_url(self.url, tenant=tenant)
            self.savers[tenant] = self.stack.enter_context(made)
        return self.savers[tenant]

    def admit(self, tenant: str, thread: str, **more: Any) -> StreamRow:
        run_id = str(uuid.uuid4())
        row = self.saver(tenant).streams.admit(thread, run_id, ASKED, waits=True, **more)
        assert row is not None
        return row

    def sql(self, text: str) -> list[Any]:
        with connected(self.url) as db:
            db.execute(f"SET search_path TO {self.schema}, {self.schema}_q")
            cursor = db.execute(text)
            return cursor.fetchall() if cursor.description else []

    def jobs(self) -> list[str]:
        """Return the tenants of the jobs, in the order in which workers get them."""
        order = "WHERE status = 'todo' ORDER BY priority DESC, id"
        return [row[0] for row in self.sql(f"SELECT queue_name FROM procrastinate_jobs {order}")]

    def register(self) -> int:
        return int(self.sql("SELECT worker_id FROM procrastinate_register_worker_v1()")[0][0])


@pytest.fixture
def desk(postgres_url: str, tmp_path: Path) -> Iterator[Desk]:
    made = Desk(postgres_url, tmp_path)
    yield made
    made.stack.close()
    made.queue.close()
    made.sql(f"DROP SCHEMA {made.schema}_q CASCADE")


def test_a_burst_of_one_tenant_does_not_keep_others_waiting(desk: Desk) -> None:
    for n in range(30):
        desk.admit("burst", f"t{n}")
    assert desk.queue.place_now("burst") == 20  # as many as may run
    assert desk.queue.place_now("burst") == 0
    for tenant in ("anna", "heavy"):
        for n in range(4):
            desk.admit(tenant, f"t{n}")
        assert desk.queue.place_now(tenant) == 4
    order = desk.jobs()
    assert order[0] == "heavy"  # half of the priority is lost by each
    assert order.index("anna") < 4
    assert sorted(order[:12]) == ["anna"] * 4 + ["burst"] * 4 + ["heavy"] * 4
    assert order[12:] == ["burst"] * 16


def test_one_run_of_a_thread_is_in_the_queue_and_the_next_one_follows(desk: Desk) -> None:
    streams = desk.saver("anna").streams
    rows = [desk.admit("anna", "t") for _ in range(3)]
    assert desk.queue.place_now("anna") == 1
    with pytest.raises(ThreadBusyError, match="came earlier"):
        streams.claim(rows[1])
    begun = streams.claim(rows[0])
    assert begun is not None
    assert (begun.status, begun.first) == (RUNNING, 1)
    assert desk.queue.place_now("anna") == 0
    assert streams.give_up(begun, "over")
    assert desk.queue.place_now("anna") == 1
    assert streams.give_up(rows[1], "cancelled", "cancelled", waits=True)
    assert not streams.give_up(rows[0], "again")
    last = streams.claim(rows[2])
    assert last is not None
    assert last.first == 3  # each of the others has told its end
    assert [row.run_id for row in streams.of_thread("t")] == [row.run_id for row in rows[::-1]]
    assert verify(desk.saver("anna")).is_whole


def test_a_worker_that_read_the_row_before_the_run_began_goes_on_behind_its_events(
    desk: Desk,
) -> None:
    mine = desk.saver("anna").streams
    waiting = desk.admit("anna", "t")
    desk.queue.place_now("anna")
    with SqlSaver.from_url(desk.url, tenant="anna") as other:
        first = mine.claim(waiting)
        assert first is not None
        event = {"event": "on_chain_start", "data": {}}
        mine.append(first, 2, [event, event])
        mine.leave(first)  # as a worker that dies
        again = other.streams.claim(waiting)
        assert again is not None
        assert (again.status, again.first, other.streams.last(again)) == (RUNNING, 1, 2)
        mine.leave(first)  # it comes too late
        now = mine.get("t", first.run_id)
        assert now is not None
        assert now.server == other.streams.server
        other.streams.quarantine(waiting)
        now = mine.get("t", first.run_id)
        assert now is not None
        assert (now.status, now.first) == (QUARANTINED, 1)
        assert mine.give_up(waiting, "over")
        numbers = [number for number, _ in mine.read("t", 0)]
        assert numbers == [1, 2, 3]
    assert verify(desk.saver("anna")).is_whole


def test_a_busy_thread_is_refused_unless_the_run_waits(desk: Desk) -> None:
    desk.admit("anna", "t")
    streams = desk.saver("anna").streams
    with pytest.raises(ThreadBusyError):
        streams.admit("t", str(uuid.uuid4()), ASKED)
    assert streams.waiting() == 1
    assert streams.admit("other", str(uuid.uuid4()), ASKED) is not None


def test_the_sweep_repairs_what_is_lost_and_only_one_worker_sweeps(desk: Desk) -> None:
    first, second = desk.register(), desk.register()
    rows = [desk.admit("anna", f"t{n}") for n in range(4)]
    assert desk.queue.sweep(second, 10, 30) == 0  # the first one leads
    assert desk.queue.sweep(first, 10, 30) == 4  # a server died before it placed them
    desk.sql("DELETE FROM procrastinate_jobs WHERE id = 1")
    desk.sql("UPDATE procrastinate_jobs SET status = 'failed' WHERE id = 2")
    desk.sql(f"UPDATE procrastinate_jobs SET status = 'doing', worker_id = {second} WHERE id = 3")
    desk.sql(f"UPDATE procrastinate_workers SET last_heartbeat = '2000-01-01' WHERE id = {second}")
    assert desk.queue.sweep(first, 10, 30) == 3  # the worker of the third died
    assert len(desk.jobs()) == 4
    assert desk.queue.sweep(first, 10, 30) == 0
    desk.sql(f"UPDATE procrastinate_workers SET last_heartbeat = '2000-01-01' WHERE id = {first}")
    third = desk.register()
    assert desk.queue.sweep(third, 10, 1e9) == 0  # the first one is frozen, so this one leads
    assert desk.queue.knows("anna", "t0", rows[0].run_id)
    assert not desk.queue.knows("ben", "t0", rows[0].run_id)
    assert not desk.queue.knows("anna", "t1", rows[0].run_id)


def test_a_begun_run_without_a_lease_gets_a_job_again(desk: Desk) -> None:
    number, streams = desk.register(), desk.saver("anna").streams
    row = streams.claim(desk.admit("anna", "t"))
    assert row is not None
    streams.quarantine(row)
    assert desk.queue.sweep(number, 10, 30) == 1
    assert desk.queue.sweep(number, 10, 30) == 0  # it is in the queue
    found = streams.get("t", row.run_id)
    assert found is not None
    assert found.status == QUARANTINED
    lease = desk.saver("anna").leases.acquire("t")
    desk.sql("DELETE FROM procrastinate_jobs")
    assert desk.queue.sweep(number, 10, 30) == 0  # a process executes it
    desk.saver("anna").leases.release(lease)
    assert desk.queue.sweep(number, 10, 30) == 1


def test_a_sweep_of_threads_keeps_one_whose_run_waits(desk: Desk) -> None:
    with SqlSaver.from_url(desk.url, tenant="ben", ttl=0.001) as saver:
        row = saver.streams.admit("t", str(uuid.uuid4()), ASKED)
        assert row is not None
        saver.sweep()
        found = saver.streams.get("t", row.run_id)
        assert found is not None
        assert found.status == QUEUED


async def test_an_answer_has_what_its_run_was_asked_with(desk: Desk) -> None:
    """A worker needs the tools of the page that asked, and the output that was asked for."""
    saver, asked = desk.saver("anna"), {"frontend_tools": [{"name": "pick"}], "output_schema": {}}
    row = saver.streams.admit("t", str(uuid.uuid4()), {**ASKED, **asked})
    assert row is not None
    assert saver.streams.give_up(row, "it waits", "interrupted")
    runs = Runs("anna", saver, Limits(), Metrics(), lambda *_, **__: None, desk.queue)
    request = RunRequest(agent_id="default", kind="resume", answer="blue")
    for _ in range(2):
        made: Any = await runs.start(Agent("default", "scripted:demo"), request, "t", "key")
        assert {name: made.asked[name] for name in asked} == asked
    assert made.run_id == saver.streams.of_thread("t")[0].run_id
