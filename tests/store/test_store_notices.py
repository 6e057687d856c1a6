"""Notices between processes: they arrive, few transactions carry many, and none can do harm."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest

from tests.support.postgres import connected, with_schema
from tests.support.waiting import until
from wick_graph.store import notices
from wick_graph.store.notices import Notices, topic
from wick_graph.store.saver import dialect_of

ONE, OTHER = topic("thread", "anna", "t1"), topic("thread", "bert", "t1")


@pytest.fixture
def opened(postgres_url: str) -> Iterator[list[Notices]]:
    """Two processes, as far as notices go."""
    made = [Notices(dialect_of(postgres_url)) for _ in range(2)]
    for each in made:
        each.start()
    for each in made:
        until(lambda each=each: each.works, "no notice arrives")
    yield made
    for each in made:
        each.close()


def channel(url: str) -> str:
    raw, name = dialect_of(url).direct()
    raw.close()
    return str(name)


def test_a_topic_reaches_those_who_listen_to_it(opened: list[Notices]) -> None:
    one, two = opened
    told, others = threading.Event(), threading.Event()
    with two.listening(ONE, told.set), two.listening(OTHER, others.set):
        one.tell(ONE)
        assert told.wait(60)
        assert not others.is_set()
        told.clear()
        two.tell(ONE)  # its own ones too, at once
        assert told.is_set()
    told.clear()
    one.tell(ONE, OTHER)
    with two.listening(OTHER, others.set):
        one.tell(OTHER)
        assert others.wait(60)
    assert not told.is_set()


def test_many_topics_share_a_few_transactions(opened: list[Notices], postgres_url: str) -> None:
    one, two = opened
    seen: set[str] = set()
    topics = [topic("thread", "anna", f"t{number}") for number in range(3_000)]
    with ExitStack() as stack, connected(postgres_url) as db:
        for each in topics:
            stack.enter_context(two.listening(each, partial(seen.add, each)))
        query = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
        time.sleep(1.1)  # a session counts late, also what it did before
        before = db.execute(query).fetchone()
        begun = time.monotonic()
        for each in topics:
            one.tell(each)
        until(lambda: len(seen) == len(topics), "a topic is lost")
        most = 20 * (time.monotonic() - begun) + 5
        time.sleep(1.1)
        db.execute("SELECT pg_stat_clear_snapshot()")
        after = db.execute(query).fetchone()
    assert before is not None
    assert after is not None
    assert after[0] - before[0] <= most + 5


def test_the_first_notices_do_not_wait_for_each_other(
    opened: list[Notices], postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "time", SimpleNamespace(monotonic=lambda: 0.0))  # it stands still
    one, came = Notices(dialect_of(postgres_url)), threading.Event()
    one.start()
    try:
        until(lambda: one.works, "no notice arrives")
        for number in range(notices._AT_ONCE):
            with opened[1].listening(topic("thread", f"{number}"), came.set):
                came.clear()
                one.tell(topic("thread", f"{number}"))
                assert came.wait(60), f"notice {number} waits"
    finally:
        one.close()


def test_a_lost_session_is_opened_again_and_all_look(
    opened: list[Notices], postgres_url: str
) -> None:
    one, two = opened
    told = threading.Event()
    with two.listening(ONE, told.set), connected(postgres_url) as db:
        db.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'wick_graph notices'"
        )
        assert told.wait(60)  # some may have been missed
        until(lambda: one.works and two.works, "the session stays lost")
        told.clear()
        one.tell(ONE)
        assert told.wait(60)


@pytest.mark.parametrize(
    "payload",
    [
        "",
        ":",
        "x",
        "x:*",
        "x:,,,",
        f"x:{ONE}",
        "x:" + "a" * 7_000,
        "x:\u00e9\u2028",
        "*:*",
        "x:'; --",
    ],
)
def test_a_forged_notice_only_makes_one_look(
    opened: list[Notices], postgres_url: str, payload: str
) -> None:
    told = threading.Event()
    with opened[1].listening(ONE, told.set), connected(postgres_url) as db:
        db.execute("SELECT pg_notify(%s, %s)", (channel(postgres_url), payload))
        opened[0].tell(ONE)
        assert told.wait(60)
    assert opened[1].works


def test_another_schema_hears_nothing(opened: list[Notices], postgres_url: str) -> None:
    other = postgres_url.rpartition("schema=")[0] + "schema=other"
    assert channel(other) != channel(postgres_url)


def test_what_is_left_is_sent_at_the_end(opened: list[Notices]) -> None:
    one, two = opened
    told = threading.Event()
    with two.listening(ONE, told.set):
        one.tell(OTHER)
        one.tell(ONE)
        one.close()
        assert told.wait(60)


def test_a_file_has_notices_within_its_process(tmp_path: Path) -> None:
    made = Notices(dialect_of(f"sqlite:///{tmp_path}/wick.db"))
    made.start()
    told = threading.Event()
    with made.listening(ONE, told.set):
        made.tell(ONE)
    assert told.is_set()
    assert not made.works
    made.close()


def test_a_server_that_is_away_is_waited_for(postgres_server: str) -> None:
    with psycopg.connect(postgres_server) as db:
        assert db.info.server_version
    made = Notices(dialect_of(with_schema("postgresql://x@127.0.0.1:1/x", "gone")))
    made.start()
    made.tell(*(topic("thread", str(number)) for number in range(10_000)))
    assert not made.works
    assert len(made._unsent) <= 4_096
    made.close()
