"""The database is away for a while: writers wait, or fail; what was acknowledged is there."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import quote

import pytest

from tests.store.test_store_sharing import Line
from tests.support.postgres import Cluster, own_server
from tests.support.waiting import until
from wick_graph import Agent
from wick_graph.errors import StorageError
from wick_graph.store import SqlSaver
from wick_graph.store.postgres import AWAY_SECONDS
from wick_graph.store.verify import verify
from wick_graph.testing import ScriptedModel, call

TENANTS: Final = 6


class Writers:
    """One thread for each tenant; each write is of a thread of its own."""

    def __init__(self, url: str) -> None:
        self.stored: list[tuple[int, str]] = []
        """What was acknowledged, by tenant."""
        self.failed = 0
        """How many writes were refused."""
        self.errors: list[BaseException] = []
        self.since = 0
        """How many writes there were when something happened."""
        self._url = url
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(n,)) for n in range(TENANTS)]

    def _write(self, tenant: int) -> None:
        try:
            with SqlSaver.from_url(self._url, tenant=f"t{tenant}") as saver:
                at = 0
                while not self._ended.is_set():
                    at += 1
                    try:
                        Line(saver, f"n{at}").put(log=[at])
                        self.stored.append((tenant, f"n{at}"))
                    except StorageError:
                        self.failed += 1
                    self._ended.wait(0.05)
        except BaseException as error:
            self.errors.append(error)

    def more(self, count: int = 30) -> None:
        """Wait until all tenants have written again."""
        self.since = len(self.stored)

        def seen() -> bool:
            new = self.stored[self.since :]
            return bool(self.errors) or (len(new) >= count and len({t for t, _ in new}) == TENANTS)

        until(seen, "all tenants write")
        assert self.errors == []

    def __enter__(self) -> Writers:
        for one in self._threads:
            one.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for one in self._threads:
            one.join()

    def check(self, *, fails: bool | None) -> None:
        """Everything that was acknowledged is there, and whole."""
        for tenant in range(TENANTS):
            with SqlSaver.from_url(self._url, tenant=f"t{tenant}") as saver:
                for name in (name for of, name in self.stored if of == tenant):
                    assert Line(saver, name).get() == {"log": [int(name[1:])]}, (tenant, name)
        with SqlSaver.from_url(self._url) as saver:
            assert verify(saver).is_whole
        assert self.errors == []
        assert fails is None or (self.failed > 0) == fails


@contextmanager
def written(url: str, *, fails: bool | None = None) -> Iterator[Writers]:
    """Write before, within and after the block."""
    with Writers(url) as writers:
        writers.more()
        yield writers
        writers.more()
    writers.check(fails=fails)


def away(cluster: Cluster, seconds: float, how: str) -> None:
    cluster.stop(how)
    threading.Event().wait(seconds)  # what the test is about: it lasts so long
    cluster.start()


@pytest.mark.parametrize(
    ("seconds", "how"),
    [
        pytest.param(5, "fast", id="5s"),
        pytest.param(1, "immediate", id="crash", marks=pytest.mark.slow),
        pytest.param(90, "fast", id="90s", marks=pytest.mark.slow),
    ],
)
def test_nothing_acknowledged_is_lost_while_the_database_is_away(seconds: int, how: str) -> None:
    fails = None if how == "immediate" else seconds > AWAY_SECONDS
    with own_server() as cluster, written(cluster.url + "&schema=wick", fails=fails):
        away(cluster, seconds, how)


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_when_a_standby_takes_over() -> None:
    with own_server() as first, first.standby() as second:
        both = quote(f"{first.data},{second.data}", safe="/,")
        url = f"postgresql://postgres:@/postgres?host={both}&target_session_attrs=read-write"
        with written(f"{url}&schema=wick"):
            first.stop("immediate")
            second.promote()


@pytest.mark.parametrize("how", ["fast", "immediate"])
def test_a_run_outlives_a_restart_of_its_database(how: str) -> None:
    done: list[int] = []
    with own_server() as cluster:

        def restart(n: int) -> str:
            """Stop the database, and start it again in a second."""
            done.append(n)
            cluster.stop(how)
            threading.Timer(1, cluster.start).start()
            return "stopped"

        steps: list[Any] = [call("restart", n=1), call("restart", n=2), "done", "again"]
        with Agent("a", ScriptedModel(steps), tools=[restart], store=cluster.url) as agent:
            assert agent.invoke("go", thread_id="t").text == "done"
            assert done == [1, 2]
            assert agent.invoke("more", thread_id="t").text == "again"
            info = agent.threads.get("t")
            assert (info.status, info.stopped_because) == ("idle", "done")
            assert isinstance(agent.store, SqlSaver)
            assert verify(agent.store).is_whole


def test_a_ctrl_c_ends_the_wait_for_a_database() -> None:
    with own_server() as cluster, SqlSaver.from_url(cluster.url) as saver:
        cluster.stop()
        threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()
        since = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            saver.threads.list()
        assert time.monotonic() - since < AWAY_SECONDS / 2
        cluster.start()
        assert saver.threads.list() == []
