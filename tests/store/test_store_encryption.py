"""An encrypted store: it is opened with its keys alone, and nobody else can read its content."""

from __future__ import annotations

import base64
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.types import interrupt

from tests.store.conftest import Outside
from tests.store.encrypted import (
    CANARY,
    KEYS,
    NEW,
    OLD,
    ON,
    OTHER,
    agent_of,
    dump,
    fill,
    places_of,
    readers,
    sealed_rows,
)
from tests.store.store_graphs import agent, config, looping_graph
from wick_graph import Agent
from wick_graph.errors import StorageError
from wick_graph.journal import Journal
from wick_graph.store import Keys, SqlSaver, cipher, rotate, verify
from wick_graph.store.maintenance import export_thread, import_thread
from wick_graph.testing import ScriptedModel, call

WITH_CONTENT = {
    *("threads.title", "threads.last_error", "checkpoints.body", "writes.body", "items.body"),
    *("blobs.body", "calls.body", "streams.body", "events.body"),
}


def states(saver: SqlSaver, thread_id: str = "a") -> list[Any]:
    found = saver.list({"configurable": {"thread_id": thread_id}})
    return [(one.checkpoint, one.metadata, one.pending_writes) for one in found]


# --- what can be read ---------------------------------------------------------------------------


def test_without_keys_content_lies_open(url: str, outside: Outside) -> None:
    """What the next test looks for is there to be found."""
    with SqlSaver.from_url(url) as saver:
        fill(saver)
        assert places_of(outside, CANARY) == WITH_CONTENT


def test_no_content_can_be_read_in_the_database(url: str, outside: Outside) -> None:
    with SqlSaver.from_url(url, keys=KEYS) as saver:
        fill(saver)
        saver.threads.fork("a", "b")
        saver.threads.rename("b", f"{CANARY} too")
        assert places_of(outside, CANARY) == set()
        info = saver.threads.get("a")
        assert info is not None
        assert (info.title, info.last_error) == (f"{CANARY} question 0", f"{CANARY} broke")
    assert places_of(outside, CANARY) == set()


def test_no_content_can_be_read_in_the_files(url: str, path: Path) -> None:
    with SqlSaver.from_url(url, keys=KEYS) as saver:
        fill(saver)
        beside = sorted(path.parent.glob(f"{path.name}*"))
        assert [file.name for file in beside] == ["store.db", "store.db-shm", "store.db-wal"]
        for file in beside:
            assert CANARY.encode() not in file.read_bytes(), file
        assert path.with_name("store.db-wal").stat().st_size > 50_000
    assert CANARY.encode() not in path.read_bytes()
    assert path.stat().st_size > 50_000


def test_what_stays_readable_is_what_the_documentation_says(url: str, outside: Outside) -> None:
    def look_around() -> str:
        """Look."""
        return CANARY

    with SqlSaver.from_url(url, keys=KEYS) as saver:
        fill(saver)
        looks = ScriptedModel([call("look_around"), CANARY])
        Agent("helper", looks, tools=[look_around], store=saver).invoke("?", thread_id="z")
    assert places_of(outside, "helper") == {"threads.agent"}
    assert places_of(outside, "look_around") == {"calls.name"}  # long: no cipher text has it
    assert {"names.text"} == places_of(outside, "messages")


@pytest.mark.parametrize(("keys", "seen"), [(None, {"checkpoints.meta"}), (KEYS, set[str]())])
def test_a_short_metadata_is_hidden_too(
    url: str, outside: Outside, keys: Keys | None, seen: set[str]
) -> None:
    """Without keys it stands in its checkpoint's row, outside of what is sealed."""
    metadata: Any = {"source": "input", "step": -1, "a": "xyzw"}
    with SqlSaver.from_url(url, keys=keys) as saver:
        saver.put(config("a", checkpoint_ns=""), empty_checkpoint(), metadata, {})
        assert states(saver)[0][1] == metadata
    assert places_of(outside, "xyzw") == seen


def test_equal_content_of_two_threads_does_not_look_equal(url: str, outside: Outside) -> None:
    with SqlSaver.from_url(url, keys=KEYS) as saver:
        fill(saver, "a", "b")
    for table, column in (("blobs", "hash"), ("calls", "args")):
        query = f"SELECT {column} FROM {table} WHERE thread=? AND length({column})>=16"
        one, other = ({bytes(row[0]) for row in outside.run(query, n)} for n in (1, 2))
        assert len(one) == len(other) > 0
        assert not one & other, table


def test_lists_are_shared_as_without_keys(tmp_path: Path, path: Path, database: str) -> None:
    def rows(name: str, keys: Keys | None) -> int:
        with SqlSaver.from_url(f"sqlite:///{tmp_path}/{name}.db", keys=keys) as saver:
            looping_graph(saver, 6).invoke({}, config("a"))
            saver.threads.fork("a", "b")
            with saver._core.reading() as db:
                counted = db.execute("SELECT count(*) FROM items").fetchone()[0]
            assert len(states(saver, "b")) == len(states(saver)) > 10
        return int(counted)

    assert rows("sealed", KEYS) == rows("plain", None)


# --- opening ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "given", "says"),
    [
        pytest.param(None, KEYS, "is not encrypted, and keys were given for it", id="plain+keys"),
        pytest.param(KEYS, None, "is encrypted, and no keys were given for it", id="sealed-keys"),
        pytest.param(OLD, OTHER, f"is encrypted with the key {OLD.ids[0]}", id="wrong key"),
    ],
)
def test_a_store_that_the_keys_do_not_fit_is_left_alone(
    url: str,
    outside: Outside,
    tmp_path: Path,
    made: Keys | None,
    given: Keys | None,
    says: str,
) -> None:
    with SqlSaver.from_url(url, keys=made) as saver:
        agent(saver).invoke({"messages": [HumanMessage("hello", id="h")]}, config())
    before = dump(outside)
    files = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(StorageError, match=says) as caught:
        SqlSaver.from_url(url, keys=given)
    assert str(caught.value).startswith("the database ")
    assert str(caught.value).count("\n") == 0
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == files
    assert dump(outside) == before
    with SqlSaver.from_url(url, keys=made) as saver:
        assert saver.get_tuple(config()) is not None


def test_a_store_in_memory_can_be_encrypted() -> None:
    with SqlSaver.from_url("sqlite://", keys=KEYS) as saver:
        fill(saver)
        assert len(states(saver)) > 5


def test_two_processes_make_one_encrypted_store(url: str) -> None:
    with SqlSaver.from_url(url, keys=KEYS) as one, SqlSaver.from_url(url, keys=KEYS) as other:
        fill(one, "a")
        fill(other, "b")
        assert states(one, "b") == states(other, "b")
        assert states(one, "a") == states(other, "a")


def test_who_opened_an_empty_store_without_keys_writes_nothing_plain(
    url: str, outside: Outside
) -> None:
    """It was empty then; since, somebody with keys has opened it too."""
    with SqlSaver.from_url(url) as plain, SqlSaver.from_url(url, keys=KEYS) as sealed:
        assert plain.threads.list() == []
        assert sealed.threads.list() == []
        with pytest.raises(StorageError, match="is encrypted, and no keys were given"):
            agent_of(plain).invoke("go", thread_id="a")
        assert sealed.threads.list() == []
        agent_of(sealed).invoke("go", thread_id="a")
        assert [info.thread_id for info in sealed.threads.list()] == ["a"]


def test_the_library_is_asked_for_only_where_there_are_keys(
    monkeypatch: pytest.MonkeyPatch, path: Path, url: str
) -> None:
    monkeypatch.delattr("wick_graph.store.cipher")
    monkeypatch.delitem(sys.modules, "wick_graph.store.cipher")
    for name in [name for name in sys.modules if name.split(".")[0] == "cryptography"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(StorageError, match=r'install "wick-graph\[encrypt\]"'):
        SqlSaver.from_url(url, keys=KEYS)
    assert not path.exists()
    with SqlSaver.from_url(url) as saver:
        fill(saver)


# --- the life of a thread -----------------------------------------------------------------------


def asking(store: SqlSaver, log: Path) -> Agent:
    def act(n: int) -> str:
        """Act, which is noted."""
        with log.open("a") as file:
            file.write(f"act {n}\n")
        return f"{CANARY} acted"

    def ask(what: str) -> str:
        """Ask somebody."""
        return f"they said {interrupt(what)}"

    steps: list[Any] = [call("act", n=1), call("ask", what=f"{CANARY}?"), f"{CANARY} done"]
    return Agent(model=ScriptedModel(steps), tools=[act, ask], store=store, journal="full")


def in_another_process(work: Callable[[], bool]) -> bool:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if work() else 2
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_thread_lives_as_without_keys(
    url: str, outside: Outside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked here, answered in another process, forked, looked at, pruned, and deleted."""
    file = tmp_path / "log"
    with SqlSaver.from_url(url, keys=KEYS) as saver:
        assert asking(saver, file).invoke("go", thread_id="a").stopped_because == "interrupted"
    words = " ".join(base64.b64encode(key).decode() for key in KEYS.by_id.values())
    monkeypatch.setenv("WICK_TEST_KEYS", words)

    def answer() -> bool:
        with SqlSaver.from_url(url, keys="env:WICK_TEST_KEYS") as saver:
            return asking(saver, file).resume("a", "yes").text == f"{CANARY} done"

    assert in_another_process(answer)
    with SqlSaver.from_url(url, keys=KEYS) as saver:
        mine = asking(saver, file)
        assert file.read_text() == "act 1\n"
        history = [step.checkpoint_id for step in saver.threads.history("a")]
        assert len(history) == len(states(saver)) > 5
        saver.threads.fork("a", "b", history[3])
        assert mine.graph.get_state({"configurable": {"thread_id": "b"}}).values["messages"]
        journal = Journal(saver, "a")
        assert journal.problems() == []
        assert CANARY in str(journal.request_at(journal.last()).messages)
        before = states(saver)[0]
        saver.threads.keep_latest("a", 1)
        assert states(saver) == [before]
        saver.delete_for_runs([str(before[1]["run_id"])])
        for thread_id in ("a", "b"):
            assert saver.threads.delete(thread_id)
        left = {name: len(rows) for name, rows in dump(outside).items() if rows}
        assert left == {"blobs": 1, "clock": 1}
    with SqlSaver.from_url(url, keys=KEYS) as saver:
        fill(saver)  # a store from which all was deleted stays the encrypted one that it is


def recorded(saver: SqlSaver, thread_id: str) -> Any:
    """Ask the ledger for a finished call of a thread, as a run does before it would run it."""
    lease = saver.leases.acquire(thread_id)
    try:
        return saver.ledger(lease).begin("step:0", "pay", {"cents": 7}, "never")
    finally:
        saver.leases.release(lease)


@pytest.mark.parametrize("to", [None, KEYS, OTHER], ids=["plain", "same keys", "other keys"])
@pytest.mark.parametrize("of", [None, KEYS], ids=["from plain", "from encrypted"])
def test_a_thread_moves_between_stores(
    url: str, tmp_path: Path, of: Keys | None, to: Keys | None
) -> None:
    """With its ledger: what is finished is not run again, whatever key it is kept under."""
    file = tmp_path / "a.thread"
    with SqlSaver.from_url(url, keys=of) as saver:
        fill(saver)
        lease = saver.leases.acquire("a")
        saver.ledger(lease).begin("step:0", "pay", {"cents": 7}, "never")
        saver.ledger(lease).finish("step:0", "pay", {"cents": 7}, {"paid": CANARY})
        saver.leases.release(lease)
        saver.threads.fork("a", "fork")
        assert recorded(saver, "fork").fields == {"paid": CANARY}
        export_thread(saver, "a", file)
        before, events = states(saver), saver.streams.read("a", 0)
        problems = Journal(saver, "a").problems()
    assert (CANARY.encode() in file.read_bytes()) is (of is None)
    with SqlSaver.from_url(f"sqlite:///{tmp_path}/to.db", keys=to) as saver:
        if of is not None and to is not KEYS:
            with pytest.raises(StorageError, match="is encrypted"):
                import_thread(saver, file)
        assert import_thread(saver, file, keys=of) == "a"
        assert states(saver) == before
        assert recorded(saver, "a").fields == {"paid": CANARY}
        assert Journal(saver, "a").problems() == problems == []
        info = saver.threads.get("a")
        assert info is not None
        assert (info.title, info.last_error) == (f"{CANARY} question 0", f"{CANARY} broke")
        assert agent_of(saver).graph.get_state(ON).values["messages"]
    assert events


def test_an_export_can_be_plain(url: str, tmp_path: Path) -> None:
    file = tmp_path / "a.thread"
    with SqlSaver.from_url(url, keys=KEYS) as saver:
        fill(saver)
        export_thread(saver, "a", file, plain=True)
        assert import_thread(saver, file, to="again") == "again"
        assert [one[0] for one in states(saver, "again")] == [one[0] for one in states(saver)]
    with SqlSaver.from_url(f"sqlite:///{file}") as saver:
        assert len(states(saver)) > 5


# --- changing the key ---------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [200, 3])
def test_everything_is_sealed_anew_under_a_new_key(
    url: str, outside: Outside, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    monkeypatch.setattr(verify, "_BATCH", batch)
    with SqlSaver.from_url(url, keys=OLD) as saver:
        fill(saver, "a", "b")
        before = states(saver), [*saver.streams.read("a", 0)]
    with SqlSaver.from_url(url, keys=KEYS) as saver:
        agent_of(saver, 1).invoke("and now?", thread_id="c")
        under = {cipher.key_of(row.body) for row in sealed_rows(saver)}
        assert under == {KEYS.current, OLD.current}
        count = len([row for row in sealed_rows(saver) if cipher.key_of(row.body) == OLD.current])
        texts = 4
        assert rotate(saver) == count + texts + 1
        assert rotate(saver) == 0
    assert not any(OLD.current in bytes(row[-1] or b"")[:5] for row in dump(outside)["items"])
    with SqlSaver.from_url(url, keys=NEW) as saver:
        assert (states(saver), [*saver.streams.read("a", 0)]) == before
        assert {cipher.key_of(row.body) for row in sealed_rows(saver)} == {NEW.current}
        for thread_id in ("a", "b"):
            for read in readers(thread_id).values():
                read(saver)
            assert Journal(saver, thread_id).problems() == []
        info = saver.threads.get("a")
        assert info is not None
        assert info.title == f"{CANARY} question 0"
    with pytest.raises(StorageError, match="is encrypted with the key"):
        SqlSaver.from_url(url, keys=OLD)


def test_a_change_that_others_write_against_is_not_finished(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SqlSaver.from_url(url, keys=OLD) as saver:
        fill(saver, "a")
    with SqlSaver.from_url(url, keys=KEYS) as saver:
        monkeypatch.setattr(verify, "_texts", lambda core: 1)  # there is always one more
        with pytest.raises(StorageError, match="a process still writes"):
            rotate(saver)
    with SqlSaver.from_url(url, keys=OLD) as saver:  # the store is under the old key as before
        assert saver.threads.list()


def test_a_damaged_row_stops_the_change_and_the_old_key_is_still_needed(
    url: str, outside: Outside
) -> None:
    with SqlSaver.from_url(url, keys=OLD) as saver:
        fill(saver)
    rid, body = outside.run("SELECT rid, body FROM events ORDER BY rid LIMIT 1")[0]
    outside.run("UPDATE events SET body=? WHERE rid=?", bytes(body)[:-1], rid)
    with SqlSaver.from_url(url, keys=KEYS) as saver:
        with pytest.raises(StorageError, match="table events is damaged"):
            rotate(saver)
        assert len(states(saver)) > 5
    with pytest.raises(StorageError, match=f"encrypted with the key {OLD.ids[0]}"):
        SqlSaver.from_url(url, keys=NEW)
    outside.run("UPDATE events SET body=? WHERE rid=?", bytes(body), rid)
    with SqlSaver.from_url(url, keys=KEYS) as saver:
        assert rotate(saver) > 0
    SqlSaver.from_url(url, keys=NEW).close()


def test_a_plain_store_has_no_key_to_change(url: str) -> None:
    with SqlSaver.from_url(url) as saver, pytest.raises(StorageError, match="is not encrypted"):
        rotate(saver)


# --- the form -----------------------------------------------------------------------------------

MARK = (
    "0180bdcb3acadc8f1f704d52277004353434d82987131bf3ae0a830cf0353391e96f9365b496134662b3174c4522"
    "7f73361333ae28fe4bbbc56df39e1700c7c630ac7e6b882f0464c75858397d8d17e2dc"
)
ROW = "0180bdcb3a57bebd98299700f84ad47b571abc8e172d8afa8cf714c2e912e51c18b8ae8e9092"
TITLE = "0180bdcb3afb6fab04ae8e9a10b989cf63d731f01056a7601ebcb1f8a724c11d132a"


def test_what_an_earlier_release_wrote_is_read() -> None:
    store = cipher.Encrypted(bytes.fromhex(MARK), KEYS, "the database")
    own = store.of(3, b"local", b"a")
    assert own.unseal(bytes.fromhex(ROW), "a row", 3, None, b"x") == b"hello"
    assert own.mark(bytes(16)).hex() == "7a7d20261183571d28bbff48f8b1766f"
    assert own.unmark(own.mark(b"0123456789abcdef")) == b"0123456789abcdef"
    assert store.open(bytes.fromhex(TITLE), b"local", b"a", "title") == b"t"


def test_the_same_content_never_looks_the_same() -> None:
    own = cipher.Encrypted(bytes.fromhex(MARK), KEYS, "the database").of(3, b"local", b"a")
    assert len({own.seal(b"hello", 1) for _ in range(100)}) == 100
    assert len({own.seal(b"hello", 1)[5:17] for _ in range(100)}) == 100
