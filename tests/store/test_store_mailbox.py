"""The rows of a gateway: each message once, its answers and its end in one commit."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.store.conftest import Outside
from tests.store.encrypted import KEYS, NEW, OLD, places_of
from tests.store.goldens import content, fill_mailbox
from wick_graph.errors import StorageError
from wick_graph.store import SqlSaver
from wick_graph.store import verify as maintained
from wick_graph.store.encryption import Keys
from wick_graph.store.mailbox import Draft, Mailbox, hashed
from wick_graph.store.maintenance import export_thread, import_thread, repair
from wick_graph.store.verify import rotate, verify


@pytest.fixture
def saver(url: str) -> Iterator[SqlSaver]:
    with SqlSaver.from_url(url) as made:
        yield made


@pytest.fixture
def box(saver: SqlSaver) -> Mailbox:
    return saver.mailbox


def put(box: Mailbox, key: str, chat: str = "telegram:1", **more: Any) -> Any:
    return box.receive(key, chat, {"content": key}, **more)


def reply(key: str, text: str = "hello", chat: str = "telegram:1") -> Draft:
    return Draft(key=key, chat=chat, message={"content": text})


def test_a_message_that_comes_again_is_known(box: Mailbox) -> None:
    first = put(box, "k")
    assert first is not None
    assert put(box, "k") is None
    assert [one.row for one in box.waiting()] == [first.row]
    assert put(box, "K", "other:chat") is not None


def test_two_at_once_store_one_row(box: Mailbox) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = [*pool.map(lambda _: put(box, "k"), range(16))]
    assert sum(one is not None for one in made) == 1


def test_the_backlog_of_a_chat_has_a_limit_and_others_do_not_count(box: Mailbox) -> None:
    states = [put(box, f"a{n}", most=2).state for n in range(4)]
    assert states == ["open", "open", "refused", "refused"]
    assert put(box, "b", "telegram:2", most=2).state == "open"
    assert put(box, "a2") is None  # what was refused is known, too


def test_the_end_of_a_message_and_its_answers_are_one(box: Mailbox) -> None:
    one = put(box, "k")
    made = box.settle([one.row], [reply("r/0", "first"), reply("r/1", "second")])
    assert [m.message["content"] for m in made] == ["first", "second"]
    assert box.waiting() == []
    assert [m.key for m in box.unsent()] == ["r/0", "r/1"]
    assert box.settle([one.row], [reply("r/2")]) == []  # it has ended: nothing more is sent
    assert [m.key for m in box.unsent()] == ["r/0", "r/1"]


def test_nothing_is_sent_if_a_tool_of_the_turn_wrote_to_the_chat(box: Mailbox) -> None:
    one, two = put(box, "1"), put(box, "2")
    assert box.queue(reply("message/1", "from the tool"), turn="run-1") is not None
    assert box.queue(reply("message/1", "again"), turn="run-1") is None
    assert box.settle([one.row], [reply("r1")], turn="run-1", unless="telegram:1") == []
    made = box.settle([two.row], [reply("r2")], turn="run-2", unless="telegram:1")
    assert [m.key for m in made] == ["r2"]
    assert [m.key for m in box.unsent()] == ["message/1", "r2"]


def test_a_failed_message_is_tried_again_then_dead_then_sent_again(box: Mailbox) -> None:
    one = box.queue(reply("r"))
    assert one is not None
    box.failed(one, "the platform is away", box.now + 60)
    (again,) = box.unsent()
    assert (again.tries, again.error) == (1, "the platform is away")
    box.failed(again, "the chat is gone", None)
    assert box.unsent() == []
    (dead,) = box.outbox("dead")
    assert (dead.tries, dead.error, dead.message) == (2, "the chat is gone", one.message)
    assert box.resend(dead.row)
    (again,) = box.unsent()
    assert again.tries == 0
    box.sent(again, "native-7")
    (sent,) = box.outbox("sent")
    assert (sent.native, sent.message) == ("native-7", one.message)
    assert not box.resend(sent.row)


def test_the_answers_of_a_chat_are_read_from_a_place_on(box: Mailbox) -> None:
    made = [box.queue(reply(f"r{n}", str(n))) for n in range(3)]
    box.queue(reply("x", chat="telegram:2"))
    assert made[0] is not None
    after = box.answers("telegram:1", made[0].row)
    assert [one.message["content"] for one in after] == ["1", "2"]


def test_what_has_ended_is_swept_and_the_rest_stays(box: Mailbox) -> None:
    one, _, _ = put(box, "1"), put(box, "2"), put(box, "3", most=0)
    for draft in (reply("sent"), reply("dead"), reply("open")):
        made = box.queue(draft)
        assert made is not None
        if draft.key == "sent":
            box.sent(made)
        if draft.key == "dead":
            box.failed(made, "no", None)
    box.settle([one.row])
    assert box.sweep(box.now - 60) == 0
    assert box.sweep(box.now + 60) == 3
    assert box.counts() == {"inbox": {"open": 1}, "outbox": {"dead": 1, "open": 1}}


def test_facts_are_stored_changed_and_listed(box: Mailbox) -> None:
    assert box.fact("cron/a") is None
    box.put_fact("cron/a", {"text": "ä\x00\ud800"})
    box.put_fact("cron/a", {"text": "new"})
    box.put_fact("cron/b", 1)
    box.put_fact("cronus", 3)
    assert box.facts("cron/") == {"cron/a": {"text": "new"}, "cron/b": 1}
    assert box.drop_fact("cron/a")
    assert not box.drop_fact("cron/a")


def test_nobody_changes_a_fact_in_between(url: str) -> None:
    def count(box: Mailbox) -> None:
        for _ in range(20):
            box.change_fact("n", lambda n: (n or 0) + 1)

    with SqlSaver.from_url(url) as one, SqlSaver.from_url(url) as other:
        with ThreadPoolExecutor(2) as pool:
            [*pool.map(count, (one.mailbox, other.mailbox))]
        assert one.mailbox.fact("n") == 40
        assert one.mailbox.change_fact("n", lambda n: None) is None
        assert one.mailbox.fact("n") is None


def test_tenants_do_not_see_each_other(url: str) -> None:
    with SqlSaver.from_url(url, tenant="a") as a, SqlSaver.from_url(url, tenant="b") as b:
        assert put(a.mailbox, "k") is not None
        assert put(b.mailbox, "k") is not None
        a.mailbox.put_fact("f", 1)
        dead = a.mailbox.queue(reply("r"))
        assert dead is not None
        a.mailbox.failed(dead, "no", None)
        assert b.mailbox.fact("f") is None
        assert b.mailbox.unsent() == b.mailbox.outbox("dead") == []
        assert not b.mailbox.resend(dead.row)
        assert b.mailbox.settle([a.mailbox.waiting()[0].row], [reply("r")]) == []


def test_the_rows_of_a_living_process_are_its_own_and_those_of_a_dead_one_anybodys(
    url: str,
) -> None:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            with SqlSaver.from_url(url) as saver:
                put(saver.mailbox, "1")
                saver.mailbox.queue(reply("r1"))
                os.write(write, b"x")
                signal.pause()
        finally:
            os._exit(1)
    assert os.read(read, 1) == b"x"
    with SqlSaver.from_url(url) as saver:
        box = saver.mailbox
        put(box, "2")  # its chat has an earlier message, which the other process answers
        put(box, "3", "telegram:2")
        assert [one.key for one in box.waiting()] == ["3"]
        assert box.unsent() == []
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        assert [one.key for one in box.waiting()] == ["1", "2", "3"]
        assert [one.key for one in box.unsent()] == ["r1"]


def test_a_process_that_leaves_releases_its_rows(url: str) -> None:
    with SqlSaver.from_url(url) as one, SqlSaver.from_url(url) as other:
        put(one.mailbox, "1")
        assert other.mailbox.waiting() == []
        one.mailbox.note_alive()
        one.mailbox.leave()
        assert [m.key for m in other.mailbox.waiting()] == ["1"]
        assert other.mailbox.facts("server/") == {}


def test_keys_of_any_text_differ() -> None:
    keys = {hashed(*parts) for parts in (("a", "b"), ("a\nb",), ("ab",), ("", "ab"), ("\ud800",))}
    assert len(keys) == 5


PIGEON = "the pigeon flies"


def fill(box: Mailbox) -> None:
    box.receive("k", "c", {"content": PIGEON})
    box.queue(Draft(key="r", chat="c", message={"content": PIGEON}))
    box.put_fact("f", PIGEON)


def texts(box: Mailbox) -> list[Any]:
    came = [one.message["content"] for one in box.inbox()]
    return [*came, *(one.message["content"] for one in box.outbox()), *box.facts("").values()]


def test_an_encrypted_store_seals_messages_and_facts(url: str, outside: Outside) -> None:
    with SqlSaver.from_url(url, keys=OLD) as saver:
        fill(saver.mailbox)
        assert texts(saver.mailbox) == [PIGEON] * 3
    assert places_of(outside, "pigeon") == set()
    with SqlSaver.from_url(url, keys=KEYS) as saver:
        assert rotate(saver) == 4  # with the row of the store itself
        assert rotate(saver) == 0
    with pytest.raises(StorageError, match="key"):
        SqlSaver.from_url(url, keys=OLD)
    with SqlSaver.from_url(url, keys=NEW) as saver:
        assert texts(saver.mailbox) == [PIGEON] * 3
        assert verify(saver).is_whole


def test_a_rotation_that_was_cut_off_is_done_again(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SqlSaver.from_url(url, keys=OLD) as saver:
        fill(saver.mailbox)
    with SqlSaver.from_url(url, keys=KEYS) as saver:
        with monkeypatch.context() as patched:
            patched.setattr(maintained, "SEALED", maintained.SEALED[:4])  # not the facts
            patched.setattr(maintained, "_mark", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                rotate(saver)
        assert texts(saver.mailbox) == [PIGEON] * 3
        assert rotate(saver) == 2
    with SqlSaver.from_url(url, keys=NEW) as saver:
        assert texts(saver.mailbox) == [PIGEON] * 3


def test_a_store_that_holds_messages_is_not_marked_as_encrypted(url: str) -> None:
    with SqlSaver.from_url(url) as saver:
        saver.mailbox.put_fact("f", PIGEON)
    with pytest.raises(StorageError, match="is not encrypted, and keys were given"):
        SqlSaver.from_url(url, keys=KEYS)
    with SqlSaver.from_url(url) as saver:
        assert saver.mailbox.fact("f") == PIGEON


@pytest.mark.parametrize("table", ["inbox", "outbox", "facts"])
def test_a_row_under_the_name_of_another_is_found_in_an_encrypted_store(
    url: str, outside: Outside, table: str
) -> None:
    """PostgreSQL keeps no checksums: the seal shows it."""
    with SqlSaver.from_url(url, keys=KEYS) as saver:
        fill(saver.mailbox)
    outside.run(f"UPDATE {table} SET key = ?", b"x")
    with SqlSaver.from_url(url, keys=KEYS) as saver:
        found = verify(saver).findings
    assert {one.table for one in found} == {table}
    assert found[-1].what.startswith(f"table {table} is damaged or was tampered with")


# --- exports and repairs


def test_an_exported_thread_takes_no_message_along(url: str, tmp_path: Path) -> None:
    """Nor does an imported file bring some."""
    file = tmp_path / "a.thread"
    with SqlSaver.from_url(url) as saver:
        saver.threads.open("a", agent="x", ttl=None, run_id="r")
        fill(saver.mailbox)
        export_thread(saver, "a", file)
    with SqlSaver.from_url(f"sqlite:///{file}") as exported:
        assert texts(exported.mailbox) == []
        fill(exported.mailbox)
        exported.mailbox.put_fact("pair/ABCDEFGH", "of a stranger")
    with SqlSaver.from_url(url) as saver:
        assert import_thread(saver, file, to="b") == "b"
        assert texts(saver.mailbox) == [PIGEON] * 3


@pytest.mark.parametrize("keys", [None, KEYS], ids=["plain", "encrypted"])
@pytest.mark.parametrize("way", ["file to file", "file to server", "server to file"])
def test_a_repaired_store_has_its_messages(
    tmp_path: Path, request: pytest.FixtureRequest, keys: Keys | None, way: str
) -> None:
    url, to = (
        request.getfixturevalue("postgres_url") if where == "server" else f"sqlite:///{file}"
        for where, file in zip(
            way.split(" to "), (tmp_path / "old.db", tmp_path / "new.db"), strict=True
        )
    )
    with SqlSaver.from_url(url, keys=keys) as saver:
        fill_mailbox(saver)
        held = content(saver)
    made = repair(url, to, keys=keys)
    assert (made.lost, made.threads) == ([], 0)
    with SqlSaver.from_url(to, keys=keys) as saver:
        assert content(saver) == held
        assert verify(saver).is_whole
        assert saver.mailbox.receive("in 0", "telegram:1", {}) is None  # it is known still
        assert put(saver.mailbox, "new") is not None
    with pytest.raises(StorageError, match="is not empty"):
        repair(url, to, keys=keys)


@pytest.mark.parametrize("keys", [None, KEYS], ids=["plain", "encrypted"])
@pytest.mark.parametrize("target", ["sqlite", "postgres"])
@pytest.mark.parametrize(
    "change",
    [
        "UPDATE {} SET body = x'00' WHERE key = x'61'",
        "UPDATE {} SET tenant = x'62' WHERE key = x'61'",
        "UPDATE {} SET key = 'a text', body = 7 WHERE key = x'61'",
    ],
)
def test_a_repair_leaves_out_the_messages_that_were_changed(
    tmp_path: Path, request: pytest.FixtureRequest, keys: Keys | None, target: str, change: str
) -> None:
    path, to = tmp_path / "old.db", f"sqlite:///{tmp_path / 'new.db'}"
    to = request.getfixturevalue("postgres_url") if target == "postgres" else to
    with SqlSaver.from_url(f"sqlite:///{path}", keys=keys) as saver:
        for name in "ab":
            put(saver.mailbox, name)
            saver.mailbox.queue(reply(name))
            saver.mailbox.put_fact(name, name)
    db = sqlite3.connect(path)
    for table in ("inbox", "outbox", "facts"):
        db.execute(change.format(table))
    db.commit()
    db.close()
    made = repair(f"sqlite:///{path}", to, keys=keys)
    assert [one.table for one in made.lost] == ["inbox", "outbox", "facts"]
    with SqlSaver.from_url(to, keys=keys) as saver:
        assert [one.key for one in saver.mailbox.inbox()] == ["b"]
        assert [one.key for one in saver.mailbox.outbox()] == ["b"]
        assert saver.mailbox.facts("") == {"b": "b"}
        assert verify(saver).is_whole


def test_a_changed_row_is_found(tmp_path: Path) -> None:
    path = tmp_path / "wick.db"
    with SqlSaver.from_url(f"sqlite:///{path}") as saver:
        put(saver.mailbox, "k")
    db = sqlite3.connect(path)
    db.execute("UPDATE inbox SET state = 'done'")
    db.commit()
    db.close()
    with SqlSaver.from_url(f"sqlite:///{path}") as saver:
        assert [one.table for one in verify(saver).findings] == ["inbox"]
