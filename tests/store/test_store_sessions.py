"""All stores of a process share a few sessions of PostgreSQL; releases and poolers beside them."""

from __future__ import annotations

import gc
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from tests.store.goldens import content, fill_plain
from tests.store.test_store_postgres import cut_off, raw_of, run, schema_of
from tests.store.test_store_sharing import Line
from tests.support.leftovers import Leftovers
from tests.support.pooler import needs_bouncer, pooled
from tests.support.postgres import with_schema
from tests.support.waiting import until
from wick_graph import Agent
from wick_graph.errors import StorageError
from wick_graph.store import SqlSaver, keeper, sessions
from wick_graph.store import postgres as postgres_schema
from wick_graph.store.dialect import Database
from wick_graph.store.digests import MIGRATIONS, SCHEMA_VERSION
from wick_graph.store.postgres import postgres, target_of
from wick_graph.store.verify import verify
from wick_graph.testing import ScriptedModel


@pytest.fixture
def url(postgres_url: str) -> str:
    return postgres_url


def named(url: str, name: str) -> str:
    """Give the sessions of a test a name of their own."""
    return url.replace("schema=", f"application_name={name}&schema=")


def count(url: str, name: str) -> int:
    ((found,),) = run(
        url, f"SELECT count(*) FROM pg_stat_activity WHERE application_name = '{name}'"
    )
    return int(found)


# --- one pool for all stores of a process ---------------------------------------------------------


def test_the_stores_of_many_tenants_share_a_few_sessions(url: str) -> None:
    mine = named(url, "many-tenants")
    most: list[int] = []
    with ExitStack() as stack:
        savers = [
            stack.enter_context(SqlSaver.from_url(mine, tenant=f"t{n}", pool_size=3))
            for n in range(20)
        ]
        assert count(url, "many-tenants") == 1  # nothing was needed at the same time

        def work(saver: SqlSaver) -> None:
            line = Line(saver, "same-name")
            for n in range(3):
                line.put(log=[str(k) for k in range(n + 1)])
            most.append(count(url, "many-tenants"))

        with ThreadPoolExecutor(10) as threads:
            list(threads.map(work, savers))
        assert max(most) <= 3
        for saver in savers:
            assert Line(saver, "same-name").get() == {"log": ["0", "1", "2"]}
        assert verify(savers[0]).is_whole
    until(lambda: count(url, "many-tenants") == 0, "the last store closes the sessions")


def test_stores_in_two_schemas_share_sessions(url: str, postgres_server: str) -> None:
    other = with_schema(postgres_server, f"{schema_of(url)}_b")
    with SqlSaver.from_url(url) as one, SqlSaver.from_url(other, synchronous="NORMAL") as two:
        Line(one).put(log=["one"])
        assert raw_of(one) is raw_of(two)
        assert two.threads.list() == []
        Line(two).put(log=["two"])
        assert Line(one).get() == {"log": ["one"]}
    run(url, f'DROP SCHEMA "{schema_of(other)}" CASCADE')


def test_who_holds_a_session_gets_another_one_at_once(url: str) -> None:
    with ExitStack() as stack:
        one, two, three = (
            stack.enter_context(SqlSaver.from_url(url, tenant=name, pool_size=1))
            for name in ("a", "b", "c")
        )
        with one._core.writing("t"), two._core.writing("t"), three._core.reading():
            pass
        Line(two).put(log=["a"])
        pool: Any = sessions._pools
        (shared,) = pool.values()
        assert len(shared._idle) == 1


def test_a_session_that_nobody_gives_back_is_told(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "WAIT_SECONDS", 0.05)
    with (
        SqlSaver.from_url(url, tenant="a", pool_size=1) as one,
        SqlSaver.from_url(url, tenant="b", pool_size=1) as two,
        ThreadPoolExecutor(1) as other,
    ):
        with one._core.writing("t"):
            late = other.submit(two.threads.list)
            with pytest.raises(StorageError, match=r"all 1 sessions .* raise pool: \{size:\}"):
                late.result()
        assert other.submit(two.threads.list).result() == []


def test_a_store_that_was_dropped_is_not_counted(url: str) -> None:
    SqlSaver.from_url(url, pool_size=3)
    gc.collect()
    with SqlSaver.from_url(url, pool_size=1) as saver:
        db: Any = saver._core._connection
        assert db.pool.size == 1
    assert not sessions._pools


def test_a_store_that_tests_leave_open_is_told_of(url: str) -> None:
    """The next test in the process would share its sessions."""
    leftovers = Leftovers()
    with SqlSaver.from_url(url):
        assert leftovers.look("the test", last=False) == ""
        told = leftovers.look("the test", last=True)
        assert told.startswith("the test is the last of its file, and left 1 pools of sessions")
    assert leftovers.look("the test", last=True) == ""


def test_sessions_go_to_who_came_first(url: str) -> None:
    """Who gives one back and wants it again at once would starve the others."""
    order: list[str] = []
    with SqlSaver.from_url(url, pool_size=1) as saver:
        db: Any = saver._core._connection
        pool = db.pool
        first = pool.take()

        def take(name: str) -> None:
            for n in range(3):
                taken = pool.take()
                order.append(f"{name}{n}")
                until(lambda: len(pool._line) == 1 or len(order) > 3, "the other one waits")
                pool.give(taken)

        threads = [threading.Thread(target=take, args=(name,)) for name in "ab"]
        for at, one in enumerate(threads):
            one.start()
            until(lambda at=at: len(pool._line) == at + 1, "it waits")
        pool.give(first)
        for one in threads:
            one.join()
    assert order[:4] == ["a0", "b0", "a1", "b1"]


def test_one_statement_looks_after_the_leases_of_all_tenants(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    told: list[int] = []
    with ExitStack() as stack:
        savers = [
            stack.enter_context(SqlSaver.from_url(url, tenant=f"t{n}", pool_size=1))
            for n in range(5)
        ]
        before = {*threading.enumerate()}
        with monkeypatch.context() as patch:
            patch.setattr(keeper, "LOOK_SECONDS", 3600.0)
            held = [saver.leases.acquire("t") for saver in savers]
        for lease in held:
            lease.on_stop = lambda _, lease=lease: told.append(lease.thread)
        begun = [one.name for one in threading.enumerate() if one not in before]
        assert begun == ["wick-leases"], "one keeper"
        first, *others = (saver.leases for saver in savers)
        run_one = sessions.Postgres._run

        def note(db: sessions.Postgres, text: str, values: Any) -> Any:
            sent.append(text)
            return run_one(db, text, values)

        monkeypatch.setattr(sessions.Postgres, "_run", note)
        first.check_ownership(*others)
        first.renew(*others)
        assert [text.split()[0] for text in sent if text != "COMMIT"] == [
            *("SELECT", "ROLLBACK", "UPDATE")
        ]
        with SqlSaver.from_url(url, tenant="t3") as other:
            other.leases.acquire("t", force=True)
            (savers[2]).leases.release(held[2])
        sent.clear()
        first.renew(*others)
        assert told == [held[3].thread]
        assert [lease.lost for lease in held] == [False, False, False, True, False]
        first.check_ownership(*others)
        assert told == [held[3].thread]


def test_who_waits_gets_the_session_of_one_that_could_not_be_opened(url: str) -> None:
    with SqlSaver.from_url(url, pool_size=1) as saver:
        pool: Any = saver._core._connection
        pool = pool.pool
        pool._idle.pop().raw.close()
        connect = pool._connect

        def fails() -> Any:
            pool._connect = connect
            raise StorageError("away")

        pool._connect = fails
        with pytest.raises(StorageError, match="away"):
            saver.threads.list()
        assert saver.threads.list() == []


def test_a_transaction_changes_sessions_only_if_its_fence_still_holds(url: str) -> None:
    """The fence is checked in one session: no other may write what comes after the check."""
    with SqlSaver.from_url(url) as saver:
        Line(saver).put(log=["a"])

        def work() -> None:
            with saver._core.writing("t") as db:
                db.execute("UPDATE threads SET title = 'x'")
                cut_off(saver)
                run(url, "UPDATE threads SET version = version + 1")
                for _ in range(3):
                    with suppress(*db.errors):  # type: ignore[attr-defined]  # it is PostgreSQL's
                        db.execute("UPDATE threads SET title = 'y'")

        with suppress(StorageError):
            work()
        ((title,),) = run(url, "SELECT title FROM threads")
        assert title is None
        Line(saver).get()


def test_a_pool_outlives_a_loss_of_all_its_sessions(url: str) -> None:
    name = "all-lost"
    mine = named(url, name)
    with (
        SqlSaver.from_url(mine, tenant="a") as one,
        SqlSaver.from_url(mine, tenant="b") as two,
    ):
        with one._core.reading(), two._core.reading():
            assert count(url, name) == 2
        run(
            url,
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            f"WHERE application_name = '{name}'",
        )
        Line(one).put(log=["a"])
        Line(two).put(log=["b"])
        assert Line(one).get() == {"log": ["a"]}
        assert count(url, name) == 1


def test_a_pool_lends_its_sessions_to_others(url: str) -> None:
    with SqlSaver.from_url(url, pool_size=1) as saver:
        db: Any = saver._core._connection
        with db.pool.session() as raw, raw.transaction():
            raw.execute("SELECT 1")
        assert saver.threads.list() == []
        with db.pool.session() as raw:
            raw.execute("BEGIN")  # never ended: the session is not used again
        assert saver.threads.list() == []


# --- poolers --------------------------------------------------------------------------------------


@needs_bouncer
@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_a_pooler_may_be_in_between(url: str, mode: str) -> None:
    """With one session in transaction mode, each transaction follows another client's."""
    with pooled(url, mode, 1 if mode == "transaction" else 4) as through:
        with (
            SqlSaver.from_url(through, tenant="a") as one,
            SqlSaver.from_url(through, tenant="b") as two,
            ThreadPoolExecutor(4) as threads,
        ):
            fill_plain(one)

            def work(n: int) -> None:
                line = Line((one, two)[n % 2], f"line-{n}")
                for k in range(8):
                    line.put(log=[f"{n}.{m}" for m in range(k + 1)])
                assert line.get() == {"log": [f"{n}.{m}" for m in range(8)]}

            list(threads.map(work, range(6)))
            assert verify(one).is_whole
            before = content(one)
        with SqlSaver.from_url(url, tenant="a") as straight:
            assert content(straight) == before


@needs_bouncer
def test_sessions_behind_a_pooler_do_hop(url: str) -> None:
    """What the test above relies on: a transaction may get another session than the last one."""
    with pooled(url, "transaction", 2) as through, SqlSaver.from_url(through) as saver:
        raw = raw_of(saver)
        assert raw.prepare_threshold is None

        def pid(session: Any) -> int:
            return int(session.execute("SELECT pg_backend_pid()").fetchone()[0])

        pool: Any = saver._core._connection
        seen = {pid(raw)}
        with pool.pool.session() as held:
            held.execute("BEGIN")
            with pool.pool.session() as other:
                seen |= {pid(held), pid(other)}
            held.execute("ROLLBACK")
        assert len(seen) == 2
        assert raw.info.backend_pid not in seen


@needs_bouncer
def test_a_pooler_without_transactions_is_refused_at_opening(url: str) -> None:
    with pooled(url, "statement", 2) as through:
        for _ in range(2):
            with pytest.raises(StorageError, match="set it to transaction mode"):
                SqlSaver.from_url(through)
            SqlSaver.from_url(url).close()  # now the tables are there


# --- releases side by side ------------------------------------------------------------------------


def expand(db: Database) -> None:
    """Add what a later release may need."""
    db.execute("ALTER TABLE threads ADD COLUMN region bytea")
    db.execute("ALTER TABLE streams ADD COLUMN weight bigint NOT NULL DEFAULT 1")
    db.execute("CREATE TABLE regions (rid bigint PRIMARY KEY, body bytea NOT NULL)")


def migrate(url: str, *steps: Any) -> None:
    """Migrate as a later release does."""
    db = postgres(url, "FULL")._connected()
    try:
        postgres_schema.migrate(db, target_of(url), (*MIGRATIONS, *steps))
    finally:
        db.close()


def test_a_release_works_in_the_expanded_schema_of_the_next_one(url: str) -> None:
    with SqlSaver.from_url(url) as saver:
        fill_plain(saver)
        before = content(saver)
        migrate(url, expand)
        Line(saver, "older").put(log=["a"])
        saver.delete_thread("older")
        assert content(saver) == before
    assert run(url, "SELECT version FROM wick_meta") == [(SCHEMA_VERSION + 1,)]
    with SqlSaver.from_url(url) as saver:  # it opens, and leaves the schema as it is
        assert content(saver) == before
        assert verify(saver).is_whole
    assert postgres(url, "FULL").migrate() == SCHEMA_VERSION + 1
    assert run(url, "SELECT version FROM wick_meta") == [(SCHEMA_VERSION + 1,)]


def test_a_schema_that_no_longer_serves_this_release_is_refused(url: str) -> None:
    SqlSaver.from_url(url).close()
    migrate(url, expand)
    run(url, f"UPDATE wick_meta SET oldest = {SCHEMA_VERSION + 1}")
    with pytest.raises(StorageError, match="newer wick_graph"):
        SqlSaver.from_url(url)
    with pytest.raises(StorageError, match="newer wick_graph"):
        postgres(url, "FULL").migrate()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("ALTER TABLE threads DROP COLUMN title", "threads, title bytea"),
        (
            "ALTER TABLE threads ALTER COLUMN title TYPE text USING ''",
            "threads, title (bytea|text)",
        ),
        ("DROP TABLE facts", "table facts is missing"),
    ],
    ids=["missing", "altered", "table"],
)
def test_what_a_contraction_too_early_takes_away_is_named(url: str, change: str, says: str) -> None:
    SqlSaver.from_url(url).close()
    migrate(url, expand)
    run(url, change)
    with pytest.raises(StorageError, match=says):
        SqlSaver.from_url(url)


@pytest.fixture
def writers(url: str) -> Iterator[list[BaseException]]:
    """Writers and readers at work while the test runs; yield their errors."""
    ended, errors, begun = threading.Event(), list[BaseException](), threading.Barrier(5)

    def work(n: int) -> None:
        try:
            with SqlSaver.from_url(url, tenant=f"w{n % 2}") as saver:
                line, at = Line(saver, f"w{n}"), 0
                line.put(log=["0"])
                begun.wait(60)
                while not ended.is_set():
                    at += 1
                    line.put(log=[str(at)])
                    assert line.get() == {"log": [str(at)]}
                    saver.threads.list()
        except BaseException as error:
            errors.append(error)

    SqlSaver.from_url(url).close()
    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for one in threads:
        one.start()
    begun.wait(60)
    yield errors
    ended.set()
    for one in threads:
        one.join()


def test_a_migration_under_load_shows_no_error(url: str, writers: list[BaseException]) -> None:
    migrate(url, expand)
    migrate(url, expand, lambda db: db.execute("ALTER TABLE items ADD COLUMN x bytea"))
    assert run(url, "SELECT version FROM wick_meta") == [(SCHEMA_VERSION + 2,)]
    assert writers == []


def test_a_migration_waits_for_no_transaction_while_others_wait(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SqlSaver.from_url(url, tenant="a") as one, SqlSaver.from_url(url, tenant="b") as two:
        Line(one).put(log=["a"])
        tries = list[int]()
        attempt = postgres_schema._migrated

        def counted(*given: Any) -> int:
            tries.append(1)
            return attempt(*given)

        monkeypatch.setattr(postgres_schema, "_migrated", counted)
        with ThreadPoolExecutor(1) as other, one._core.reading() as db:
            db.execute("SELECT count(*) FROM threads")
            done = other.submit(migrate, url, expand)
            until(lambda: len(tries) > 1, "the migration gave up and tried again")
            two.threads.list()
            Line(two).put(log=["b"])
        done.result()
    assert run(url, "SELECT version FROM wick_meta") == [(SCHEMA_VERSION + 1,)]


def test_a_migration_that_gets_no_peace_says_so(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_schema, "MIGRATE_SECONDS", 0.0)
    with SqlSaver.from_url(url) as one, ThreadPoolExecutor(1) as other, one._core.reading() as db:
        db.execute("SELECT count(*) FROM threads")
        with pytest.raises(StorageError, match=r"in use for .* run `wick store migrate` again"):
            other.submit(migrate, url, expand).result()
    assert run(url, "SELECT version FROM wick_meta") == [(SCHEMA_VERSION,)]


# --- texts of statements --------------------------------------------------------------------------


def test_a_statement_is_translated_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that only runs for many rows, as each step's does."""
    asked = Counter[str]()
    translate = sessions._translated

    def counting(text: Any) -> str:
        asked[translate(text)] += 1
        return translate(text)

    monkeypatch.setattr(sessions, "_translated", counting)
    monkeypatch.setattr(sessions, "_texts", {})
    with SqlSaver.from_url(url) as store:
        for name in "abc":
            Agent("a", ScriptedModel(["ok"]), store=store).invoke("go", thread_id=name)
    made = [text for text, times in asked.items() if times > 1 and "?" not in text]
    assert made == []
    assert any(text.startswith("INSERT INTO items") for text in asked)
