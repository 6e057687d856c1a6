"""What only a server can do: lose a connection, lock rows, be shared with other programs."""

from __future__ import annotations

import os
import random
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from tests.store.encrypted import fill
from tests.store.goldens import content, fill_plain
from tests.store.store_graphs import config
from tests.store.test_store_sharing import Line
from tests.support.postgres import connected
from wick_graph.errors import StorageError, ThreadBusyError
from wick_graph.store import SqlSaver
from wick_graph.store import postgres as postgres_schema
from wick_graph.store.dialect import Database
from wick_graph.store.digests import MIGRATIONS, SCHEMA_VERSION
from wick_graph.store.postgres import postgres, target_of
from wick_graph.store.row_format import CheckpointBody
from wick_graph.store.saver import dialect_of
from wick_graph.store.verify import verify

PULL = "~__pregel_pull, think"


@pytest.fixture
def url(postgres_url: str) -> str:
    return postgres_url


@pytest.fixture
def saver(url: str) -> Iterator[SqlSaver]:
    with SqlSaver.from_url(url) as opened:
        yield opened


def run(url: str, text: str) -> list[Any]:
    """Do something as another program, in the store's schema."""
    with connected(url) as session:
        cursor = session.execute(text)
        return cursor.fetchall() if cursor.description else []


def schema_of(url: str) -> str:
    return url.rpartition("schema=")[2]


def tables(url: str) -> list[Any]:
    schema = schema_of(url)
    return run(url, f"SELECT tablename FROM pg_tables WHERE schemaname = '{schema}' ORDER BY 1")


def cut_off(saver: SqlSaver) -> None:
    """End a store's session, as a server does that is restarted."""
    raw = raw_of(saver)
    with connected(saver_url(saver)) as session:
        session.execute("SELECT pg_terminate_backend(%s, 5000)", (raw.info.backend_pid,))


def cut_off_at_commit(saver: SqlSaver, monkeypatch: pytest.MonkeyPatch) -> list[SqlSaver]:
    """Let the next commit find its session gone; the list is empty afterwards."""
    commit, cut = saver._core._commit, [saver]

    def cut_once() -> None:
        if saver._core._group is not None and cut:
            cut_off(cut.pop())
        commit()

    monkeypatch.setattr(saver._core, "_commit", cut_once)
    return cut


def raw_of(saver: SqlSaver) -> Any:
    """Return the session of a store's transaction, or the one that its next one gets."""
    db: Any = saver._core._connection
    return (db._session or db.pool._idle[-1]).raw


def set_locally(saver: SqlSaver, name: str, value: str) -> None:
    """Change what each transaction of a store sets for itself."""
    dialect: Any = saver._core.dialect
    dialect._local += f", set_config('{name}', '{value}', true)"


def saver_url(saver: SqlSaver) -> str:
    target: Any = saver._core.dialect
    sign = "&" if "?" in target._target.conninfo else "?"
    return f"{target._target.conninfo}{sign}schema={target._target.schema}"


# --- whose database is it -------------------------------------------------------------------------


def make_foreign(url: str) -> None:
    run(url, f'CREATE SCHEMA "{schema_of(url)}"')
    run(url, "CREATE TABLE threads (id int, owner text)")


def make_foreign_meta(url: str) -> None:
    run(url, f'CREATE SCHEMA "{schema_of(url)}"')
    run(url, "CREATE TABLE wick_meta (application bigint, version int)")
    run(url, "INSERT INTO wick_meta VALUES (1234, 1)")


def make_strange_meta(url: str) -> None:
    run(url, f'CREATE SCHEMA "{schema_of(url)}"')
    run(url, "CREATE TABLE wick_meta (name text)")


def make_newer(url: str) -> None:
    SqlSaver.from_url(url).close()
    run(url, "UPDATE wick_meta SET version = 99, oldest = 99")


def make_newer_before_releases_ran_side_by_side(url: str) -> None:
    SqlSaver.from_url(url).close()
    run(url, "UPDATE wick_meta SET version = 99")
    run(url, "ALTER TABLE wick_meta DROP COLUMN oldest")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        pytest.param(make_foreign, "tables of another program", id="S1-tables"),
        pytest.param(make_foreign_meta, "belongs to another program", id="S1-application id"),
        pytest.param(make_strange_meta, "belongs to another program", id="S1-meta"),
        pytest.param(make_newer, "newer wick_graph", id="S3-newer"),
        pytest.param(
            make_newer_before_releases_ran_side_by_side, "newer wick_graph", id="S3-newer-alone"
        ),
    ],
)
def test_a_schema_that_is_not_ours_is_refused_and_untouched(
    url: str, make: Callable[[str], None], says: str
) -> None:
    make(url)
    before = tables(url), run(url, "SELECT * FROM wick_meta") if "meta" in says else None
    with pytest.raises(StorageError, match=says) as caught:
        SqlSaver.from_url(url)
    assert f"schema {schema_of(url)}" in str(caught.value)
    assert (tables(url), before[1]) == before


def test_tables_of_others_stay_beside_ours(url: str) -> None:
    run(url, f'CREATE SCHEMA "{schema_of(url)}"')
    run(url, "CREATE TABLE notes (text text)")
    with SqlSaver.from_url(url) as saver:
        Line(saver).put(log=["a"])
        saver.delete_thread("t")
    assert ("notes",) in tables(url)


@pytest.mark.parametrize(
    "statement",
    [
        pytest.param(
            "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';"
            "CREATE TRIGGER t BEFORE INSERT ON items FOR EACH ROW EXECUTE FUNCTION f()",
            id="E15-trigger",
        ),
        pytest.param("CREATE RULE r AS ON INSERT TO items DO INSTEAD NOTHING", id="E15-rule"),
        pytest.param("ALTER TABLE items ADD COLUMN x text DEFAULT now()", id="E15-default"),
        pytest.param(
            "CREATE DOMAIN d AS text CHECK (length(VALUE) > 0); ALTER TABLE items ADD COLUMN x d",
            id="E15-domain",
        ),
        pytest.param("ALTER TABLE items ADD COLUMN x text NOT NULL", id="E15-required"),
        pytest.param(
            "ALTER TABLE items ADD COLUMN x bigint GENERATED ALWAYS AS IDENTITY", id="E15-identity"
        ),
        pytest.param(
            "ALTER TABLE items ADD COLUMN x bigint GENERATED ALWAYS AS (rid) STORED",
            id="E15-generated",
        ),
        pytest.param("ALTER TABLE items ADD CHECK (rid > 0)", id="E15-check"),
        pytest.param("ALTER TABLE items ADD UNIQUE (base)", id="E15-unique"),
        pytest.param("ALTER TABLE items ALTER COLUMN body TYPE text USING ''", id="E15-type"),
        pytest.param("ALTER TABLE items RENAME TO things", id="E15-renamed"),
        pytest.param(
            "ALTER TABLE items RENAME TO things; CREATE VIEW items AS SELECT * FROM things",
            id="E15-view",
        ),
    ],
)
def test_a_prepared_schema_is_refused(url: str, statement: str) -> None:
    SqlSaver.from_url(url).close()
    run(url, statement)
    with pytest.raises(StorageError, match="changed by another program: (table )?items"):
        SqlSaver.from_url(url)


def test_a_store_exists_once_it_was_made(url: str) -> None:
    assert dialect_of(url).exists() is False
    assert tables(url) == []
    SqlSaver.from_url(url).close()
    assert dialect_of(url).exists() is True


def test_processes_that_make_one_schema_at_once_get_the_same(url: str) -> None:
    children = []
    for name in "abcd":
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with SqlSaver.from_url(url) as saver:
                    Line(saver, name).put(log=[name])
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(c, 0)[1]) for c in children] == [0, 0, 0, 0]
    with SqlSaver.from_url(url) as saver:
        assert {info.thread_id for info in saver.threads.list()} == {*"abcd"}


def test_s3_migrations_are_one_transaction(url: str) -> None:
    def more(db: Database) -> None:
        db.execute("ALTER TABLE items ADD COLUMN x text")
        db.execute("CREATE TABLE more (x text)")

    def fails(db: Database) -> None:
        db.execute("SELECT 1 / 0")

    SqlSaver.from_url(url).close()
    dialect, target = postgres(url, "FULL"), target_of(url)
    db = dialect._connected()
    try:
        with pytest.raises(dialect.errors, match="division by zero"):
            postgres_schema.migrate(db, target, (*MIGRATIONS, more, fails))
        assert run(url, "SELECT version FROM wick_meta") == [(SCHEMA_VERSION,)]
        assert ("more",) not in tables(url)
        assert postgres_schema.migrate(db, target, (*MIGRATIONS, more)) == SCHEMA_VERSION + 1
        assert run(url, "SELECT version FROM wick_meta") == [(SCHEMA_VERSION + 1,)]
        assert ("more",) in tables(url)
    finally:
        db.close()


# --- URLs and secrets -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("postgresql://u:s3cr3t@h:port/d", id="port"),
        pytest.param("postgresql://u:s3cr3t@[::1/d", id="half an address"),
        pytest.param("postgresql://u:s3cr3t@h/d?nonsense=1", id="option"),
        pytest.param("postgresql://u:s3cr3t@h/d?schema=a-b", id="schema"),
        pytest.param('postgresql://u:s3cr3t@h/d?schema=a";DROP', id="schema with SQL"),
        pytest.param("postgresql://u:s3cr3t@h/d?statement_timeout=soon", id="timeout"),
        pytest.param("postgresql://u:s3cr3t@127.0.0.1:1/d", id="nobody there"),
        pytest.param("postgres://u:s3cr3t@127.0.0.1:1/d?sslpassword=s3cr3t", id="two secrets"),
        pytest.param("postgresql+psycopg://u:s3%63r3t@127.0.0.1:1/d", id="quoted"),
    ],
)
def test_no_error_shows_a_password(url: str) -> None:
    with pytest.raises(StorageError) as caught:
        SqlSaver.from_url(url)
    assert "s3" not in "".join(traceback.format_exception(caught.value))


def test_a_server_that_is_not_there_is_named() -> None:
    with pytest.raises(StorageError, match=r"d at 127\.0\.0\.1:1 .*cannot be reached"):
        SqlSaver.from_url("postgresql://u@127.0.0.1:1/d")


def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(StorageError, match=r"wick-graph\[postgres\]"):
        SqlSaver.from_url("postgresql://u@127.0.0.1:1/d")


def test_wrong_settings_are_refused(url: str) -> None:
    with pytest.raises(StorageError, match="FULL or NORMAL"):
        SqlSaver.from_url(url, synchronous="OFF")  # type: ignore[arg-type]  # the point of it


@pytest.mark.parametrize(("level", "setting"), [("FULL", "on"), ("NORMAL", "off")])
def test_how_a_commit_is_made_durable(url: str, level: Any, setting: str) -> None:
    with SqlSaver.from_url(url, synchronous=level) as saver, saver._core.writing() as db:
        assert db.execute("SHOW synchronous_commit").fetchone() == (setting,)


# --- the connection is lost -----------------------------------------------------------------------


def test_a_connection_that_is_lost_between_calls_is_opened_again(saver: SqlSaver) -> None:
    line = Line(saver)
    line.put(log=["a"])
    cut_off(saver)
    assert line.get() == {"log": ["a"]}
    cut_off(saver)
    line.put(log=["a", "b"])
    assert line.get() == {"log": ["a", "b"]}


def test_what_waits_outlives_a_lost_connection(saver: SqlSaver) -> None:
    saver._core._flusher.close()
    line = Line(saver)
    line.put(log=["a"])
    at = config("t", checkpoint_ns="", checkpoint_id=line.parent)
    saver.put_writes(at, [("log", ["x"])], "task", PULL)
    cut_off(saver)
    found = saver.get_tuple(at)
    assert found is not None
    assert found.pending_writes == [("task", "log", ["x"])]


@pytest.mark.parametrize("others", [False, True], ids=["alone", "others"])
def test_a_transaction_that_is_cut_off_goes_on_unless_others_wrote(
    saver: SqlSaver, others: bool
) -> None:
    line = Line(saver)
    line.put(log=["a"])

    def work() -> None:
        with saver._core.writing("t") as db:
            db.execute("UPDATE threads SET title = 'x'")
            cut_off(saver)
            if others:
                run(saver_url(saver), "UPDATE threads SET version = version + 1")
            db.execute("UPDATE threads SET title = title || 'y'")

    if others:
        with pytest.raises(StorageError, match="connection was lost"):
            work()
    else:
        work()
    info = saver.threads.get("t")
    assert info is not None
    assert info.title == (None if others else "xy")


def test_a_view_that_is_cut_off_goes_on_unless_it_changed(saver: SqlSaver) -> None:
    line = Line(saver)
    line.put(log=["a"])
    with saver._core.reading("t") as db:
        before = db.execute("SELECT count(*) FROM checkpoints").fetchone()
        cut_off(saver)
        assert db.execute("SELECT count(*) FROM checkpoints").fetchone() == before

    def work() -> None:
        with saver._core.reading("t") as db:
            db.execute("SELECT count(*) FROM checkpoints")
            cut_off(saver)
            run(saver_url(saver), "DELETE FROM checkpoints")
            db.execute("SELECT count(*) FROM checkpoints")

    with pytest.raises(StorageError, match="lost"):
        work()


def test_a_new_thread_keeps_its_numbers_when_it_is_cut_off(
    saver: SqlSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    Line(saver, "first").put(log=["a"])
    cut = cut_off_at_commit(saver, monkeypatch)
    for name in ("second", "third"):
        Line(saver, name).put(log=[name])
        assert Line(saver, name).get() == {"log": [name]}
    assert cut == []
    assert verify(saver).is_whole


def test_an_interrupt_while_a_transaction_is_made_again_ends_it(
    saver: SqlSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the half of it that is there is committed, or lost by a commit that only seems one."""
    for name in ("t", "u"):
        saver.threads.open(name, agent="a", ttl=60, run_id="r")
    execute = psycopg.Connection.execute
    cut: list[Any] = []

    def interrupted(self: Any, query: Any, *args: Any, **options: Any) -> Any:
        if cut and "title" in query:
            raise KeyboardInterrupt
        return execute(self, query, *args, **options)

    def second() -> None:
        with saver._core.writing("t") as db:
            cut_off(saver)
            cut.append(saver)
            db.execute("UPDATE threads SET pinned = 1")

    def work() -> None:
        with saver._core.writing("t") as db:
            db.execute("UPDATE threads SET title = 'x'")
        with pytest.raises(KeyboardInterrupt):
            second()

    monkeypatch.setattr(psycopg.Connection, "execute", interrupted)
    with pytest.raises(StorageError, match="cut off"):
        saver._core.together(work)
    cut.clear()
    assert run(saver_url(saver), "SELECT title, pinned FROM threads") == [(None, 0)] * 2
    saver.threads.open("t", agent="b", ttl=60, run_id="s")


def test_a_commit_of_what_has_failed_is_no_commit(saver: SqlSaver) -> None:
    Line(saver).put(log=["a"])

    def work() -> None:
        with saver._core.writing("t") as db:
            db.execute("UPDATE threads SET title = 'x'")
            with pytest.raises(psycopg.Error):
                db.execute("SELECT 1 / 0")

    with pytest.raises(StorageError, match="rolled back"):
        work()


def test_little_is_kept_of_a_transaction_with_large_values(saver: SqlSaver) -> None:
    Line(saver).put(log=["a"])
    for values in (("x", b"y" * 1_000_000), (b"x" * 1_000_000, "y")):
        with saver._core.reading("t") as db:
            postgres_db: Any = db
            for _ in range(40):
                db.execute("SELECT length(%s), %s", values)
            assert postgres_db._steps.done == []


@pytest.mark.parametrize(
    ("stored", "crashed"), [(True, False), (False, False), (False, True), (True, True)]
)
def test_a_commit_whose_answer_is_lost_is_made_once(
    saver: SqlSaver, monkeypatch: pytest.MonkeyPatch, stored: bool, crashed: bool
) -> None:
    """A server that has crashed may have given the number of the transaction to another one."""
    Line(saver).put(log=["a"])
    execute = psycopg.Connection.execute
    lost: list[Any] = []

    def losing(self: Any, query: Any, *args: Any, **options: Any) -> Any:
        if query != "COMMIT" or lost:
            return execute(self, query, *args, **options)
        lost.append(execute(self, query) if stored else None)
        self.close()
        raise psycopg.OperationalError("the answer is lost")

    def work() -> None:
        with saver._core.writing("t") as db:
            db.execute("UPDATE threads SET pinned = pinned + 1")
            steps: Any = db
            steps._steps.mark = "before a crash" if crashed else steps._steps.mark
            monkeypatch.setattr(psycopg.Connection, "execute", losing)

    if stored and crashed:
        with pytest.raises(StorageError, match="may or may not be stored"):
            work()
    else:
        work()
    assert len(lost) == 1
    assert run(saver_url(saver), "SELECT pinned FROM threads") == [(1,)]


def test_a_step_that_is_cut_off_is_made_again(
    saver: SqlSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = Line(saver)
    line.put(log=["a"])
    cut = cut_off_at_commit(saver, monkeypatch)
    line.put(log=["a", "b"])
    assert cut == []
    assert line.get() == {"log": ["a", "b"]}
    assert len([*saver.list(config())]) == 2


@pytest.mark.parametrize("code", ["40001", "40P01"])
def test_who_was_in_others_way_tries_again(saver: SqlSaver, code: str) -> None:
    tries: list[int] = []

    def work(db: Database) -> str:
        tries.append(1)
        if len(tries) < 3:
            db.execute(f"DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{code}'; END $$")
        return "done"

    def never(db: Database) -> None:
        tries.clear()
        work(db)

    assert saver._core.apply("t", work) == "done"
    with pytest.raises(StorageError, match="another process wrote the same rows"):
        saver._core.apply("t", never)


def test_a_value_is_not_tried_again(saver: SqlSaver) -> None:
    tries: list[int] = []

    def work(db: Database) -> None:
        tries.append(1)
        db.execute("SELECT 1 / 0")

    with pytest.raises(StorageError, match="division by zero"):
        saver._core.apply("t", work)
    assert tries == [1]


def test_a_statement_that_takes_too_long_is_ended(url: str) -> None:
    with SqlSaver.from_url(url.replace("schema=", "statement_timeout=1s&schema=")) as saver:
        with pytest.raises(StorageError, match="took too long"), saver._core.reading() as db:
            db.execute("SELECT pg_sleep(60)")
        assert saver.threads.list() == []


def test_a_table_that_is_gone_is_named(saver: SqlSaver, url: str) -> None:
    Line(saver).put(log=["a"])
    run(url, "DROP TABLE items")
    with pytest.raises(StorageError, match=r"items.*a table is gone"):
        Line(saver, "u").put(log=[os.urandom(300).hex()])


# --- many writers ---------------------------------------------------------------------------------


def test_only_writers_of_one_thread_wait_for_each_other(url: str) -> None:
    with SqlSaver.from_url(url) as one, SqlSaver.from_url(url) as two:
        for name in ("t", "u"):
            Line(one, name).put(log=["a"])
        set_locally(two, "lock_timeout", "20")
        with one._core.writing("t"):
            two.threads.touch("u")
            assert two.threads.list() != []
            with pytest.raises(StorageError, match="another process keeps it locked"):
                two.threads.touch("t")
        two.threads.touch("t")


def test_what_waits_for_a_locked_thread_is_in_nobodys_way(url: str) -> None:
    with SqlSaver.from_url(url) as one, SqlSaver.from_url(url) as two:
        two._core._flusher.close()
        lines = {name: Line(two, name) for name in ("t", "u")}
        for line in lines.values():
            line.put(log=["a"])
        at = config("t", checkpoint_ns="", checkpoint_id=lines["t"].parent)
        with one._core.writing("t"):
            two.put_writes(at, [("log", ["x"])], "task", PULL)
            lines["u"].put(log=["a", "b"])
            assert two._core.deferred.holds("t")
        found = two.get_tuple(at)
        assert found is not None
        assert found.pending_writes == [("task", "log", ["x"])]


def test_writers_of_many_threads_never_wait_in_a_circle(url: str) -> None:
    names = [f"t{n}" for n in range(6)]
    with SqlSaver.from_url(url) as one, SqlSaver.from_url(url) as two:
        for name in names:
            Line(one, name).put(log=["a"])

        def work(seed: int) -> None:
            dice, saver = random.Random(seed), (one, two)[seed % 2]
            for n in range(40):
                if n % 8 == 0:
                    saver.copy_thread(dice.choice(names), f"copy-{seed}-{n}")
                saver.threads.touch(dice.choice(names))

        started = time.monotonic()
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))
        assert time.monotonic() - started < 60
        assert len(one.threads.list(limit=100)) == 6 + 8 * 5


def test_one_of_many_takes_a_lease(url: str) -> None:
    with SqlSaver.from_url(url) as one, SqlSaver.from_url(url) as two:
        gate = threading.Barrier(8)

        def take(n: int) -> Any:
            gate.wait()
            try:
                return (one, two)[n % 2].leases.acquire("t")
            except ThreadBusyError:
                return None

        with ThreadPoolExecutor(8) as pool:
            taken = [lease for lease in pool.map(take, range(8)) if lease is not None]
        assert len(taken) == 1


def test_two_sweepers_delete_each_thread_once(url: str) -> None:
    with SqlSaver.from_url(url) as one, SqlSaver.from_url(url) as two:
        for n in range(12):
            Line(one, f"t{n}").put(log=["a"])
        for saver in (one, two):
            saver.clock = lambda: time.time() + 10_000
        with ThreadPoolExecutor(2) as pool:
            gone = [name for names in pool.map(SqlSaver.sweep, (one, two)) for name in names]
        assert sorted(gone) == sorted(f"t{n}" for n in range(12))
    for (table,) in tables(url):
        if table not in ("wick_meta", "clock"):
            assert run(url, f"SELECT count(*) FROM {table}") == [(0,)], table


def test_the_server_gives_up_a_frozen_transaction(url: str) -> None:
    with SqlSaver.from_url(url) as frozen, SqlSaver.from_url(url) as awake:
        Line(frozen).put(log=["a"])
        set_locally(frozen, "idle_in_transaction_session_timeout", "50")

        def work() -> None:
            with frozen._core.writing("t") as db:
                db.execute("UPDATE threads SET title = 'x'")
                awake.threads.touch("t")  # waits until the server has cut the other one off
                db.execute("UPDATE threads SET title = 'y'")

        with pytest.raises(StorageError, match="connection was lost"):
            work()
        info = frozen.threads.get("t")
        assert info is not None
        assert info.title is None


# --- E17: what a server's administrator may have set ----------------------------------------------


def test_e17_tables_of_the_same_names_elsewhere_are_not_looked_at(url: str) -> None:
    schema = schema_of(url)
    decoy = f"{schema}_decoy"
    run(url, f'CREATE SCHEMA "{decoy}"')
    run(url, f'CREATE TABLE "{decoy}".threads (id int)')
    try:
        path = quote(f"-csearch_path={decoy},public", safe="")
        with SqlSaver.from_url(url.replace("schema=", f"options={path}&schema=")) as saver:
            Line(saver).put(log=["a"])
            assert run(url, f'SELECT count(*) FROM "{decoy}".threads') == [(0,)]
            assert run(url, "SELECT count(*) FROM threads") == [(1,)]
    finally:
        run(url, f'DROP SCHEMA "{decoy}" CASCADE')


def test_e17_a_role_without_rights_is_told_so(url: str) -> None:
    role = f"r_{schema_of(url)}"
    run(url, f"CREATE ROLE {role} LOGIN PASSWORD 's3cr3t'")
    try:
        with pytest.raises(StorageError, match="check the user and its rights") as caught:
            SqlSaver.from_url(url.replace("postgres:@", f"{role}:s3cr3t@"))
        assert "s3cr3t" not in str(caught.value)
        assert tables(url) == []
        SqlSaver.from_url(url).close()
        with pytest.raises(StorageError, match="check the user and its rights"):
            SqlSaver.from_url(url.replace("postgres:@", f"{role}:s3cr3t@"))
    finally:
        run(url, f"DROP ROLE {role}")


# --- the clock ------------------------------------------------------------------------------------


def test_the_clock_is_the_servers(saver: SqlSaver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 0.0)
    saver.threads.open("t", agent="a", ttl=60.0, run_id="r")
    info = saver.threads.get("t")
    assert info is not None
    ((now,),) = run(saver_url(saver), "SELECT extract(epoch FROM clock_timestamp())::float8")
    assert abs(info.created.timestamp() - now) < 60
    assert abs(saver.clock() - now) < 60


def test_a_setting_sets_the_clock_of_every_process(url: str) -> None:
    option = quote("-cwick.now=1800000000", safe="")
    for _ in range(2):
        with SqlSaver.from_url(url.replace("schema=", f"options={option}&schema=")) as saver:
            saver.threads.open("t", agent="a", ttl=60.0, run_id="r")
            info = saver.threads.get("t")
            assert info is not None
            assert 0 <= info.last_access.timestamp() - 1_800_000_000 < 60


# --- schema 1 -------------------------------------------------------------------------------------

BACK_TO_SCHEMA_7 = ("UPDATE wick_meta SET version = 7",)
BACK_TO_SCHEMA_6 = (
    *BACK_TO_SCHEMA_7,
    *("DROP INDEX streams_open", "DROP INDEX streams_queue"),
    "ALTER TABLE streams DROP COLUMN tenant, DROP COLUMN placed",
    "UPDATE wick_meta SET version = 6",
)
BACK_TO_SCHEMA_5 = (
    *BACK_TO_SCHEMA_6,
    "ALTER TABLE memories DROP COLUMN dims, DROP COLUMN floats",
    "UPDATE wick_meta SET version = 5",
)
BACK_TO_SCHEMA_4 = (
    *BACK_TO_SCHEMA_5,
    *("DROP INDEX threads_recent", "DROP INDEX threads_expiry"),
    "CREATE INDEX threads_expiry ON threads (expires_at)",
    "UPDATE wick_meta SET version = 4",
)
BACK_TO_SCHEMA_3 = (
    *BACK_TO_SCHEMA_4,
    *("DROP TABLE memories", "UPDATE wick_meta SET version = 3"),
)
BACK_TO_SCHEMA_2 = (
    *BACK_TO_SCHEMA_3,
    *("DROP TABLE inbox", "DROP TABLE outbox", "DROP TABLE facts"),
    "UPDATE wick_meta SET version = 2",
)
BACK_TO_SCHEMA_1 = (
    *BACK_TO_SCHEMA_2,
    *("DROP TABLE digests", "DROP TABLE clock", "DROP INDEX checkpoints_seq"),
    *("DROP INDEX checkpoints_head", "ALTER TABLE checkpoints DROP COLUMN seq"),
    *(f"ALTER TABLE {table} DROP COLUMN checksum" for table in ("threads", "leases", "tokens")),
    "UPDATE wick_meta SET version = 1",
)


def test_a_database_of_schema_1_is_migrated(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dump = CheckpointBody.dump

    def without_number(body: CheckpointBody) -> bytes:
        body.seq = None
        return dump(body)

    with monkeypatch.context() as patched, SqlSaver.from_url(url) as saver:
        patched.setattr(CheckpointBody, "dump", without_number)  # as schema 1 had it
        fill_plain(saver)
        fill(saver, "a")
        before = content(saver)
    for statement in BACK_TO_SCHEMA_1:
        run(url, statement)
    for read_only in (True, False):
        with pytest.raises(StorageError, match=r"has schema 1, .* run `wick store migrate` once"):
            SqlSaver.from_url(url, read_only=read_only)
    with ThreadPoolExecutor(2) as pool:
        both = {*pool.map(lambda _: postgres(url, "FULL").migrate(), range(2))}
    assert both == {SCHEMA_VERSION}
    with SqlSaver.from_url(url) as saver:
        assert content(saver) == before
        assert verify(saver).is_whole


def test_a_role_without_the_right_to_write_reads(url: str) -> None:
    with SqlSaver.from_url(url) as saver:
        fill_plain(saver)
        before = content(saver)
    reading = f"{url}&options=-c%20default_transaction_read_only%3Don"
    with SqlSaver.from_url(reading) as saver:
        assert content(saver) == before
        assert saver.threads.get("loop") is not None
        with pytest.raises(StorageError, match="open for reading only"):
            saver.threads.pin("loop")


def test_a_role_that_may_not_see_the_servers_statistics_opens_the_store(url: str) -> None:
    role, schema = f"r_{schema_of(url)}", schema_of(url)
    SqlSaver.from_url(url).close()
    run(url, f"CREATE ROLE {role} LOGIN")
    try:
        run(url, f"GRANT USAGE ON SCHEMA {schema} TO {role}")
        run(url, f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {role}")
        run(url, "REVOKE SELECT ON pg_stat_bgwriter FROM PUBLIC")
        with SqlSaver.from_url(url.replace("postgres:@", f"{role}:@")) as saver:
            assert saver.threads.list() == []
    finally:
        run(url, "GRANT SELECT ON pg_stat_bgwriter TO PUBLIC")
        run(url, f"DROP OWNED BY {role}")
        run(url, f"DROP ROLE {role}")
