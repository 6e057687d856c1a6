"""Databases of earlier releases, kept as files, and what they hold as JSON.

The files are what the release of their name wrote; nothing makes them anew. `python -m
tests.store.goldens FOLDER` writes such a set with the code as it is, for the next change of the
format: give it a folder of its own under `golden/`.
"""

from __future__ import annotations

import gzip
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import date
from operator import add
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import BaseMessage
from langgraph.channels import DeltaChannel
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt

from tests.journal.support import agent_of, steps
from tests.store.encrypted import CANARY, KEYS, fill
from tests.store.store_graphs import asking_graph, config, looping_graph
from wick_graph import BaseHook, tool
from wick_graph.errors import ModelError
from wick_graph.exports.plain import Hider
from wick_graph.exports.wickrun import open_wickrun, write_wickrun
from wick_graph.hooks import ApprovalHook, Approve
from wick_graph.journal import Journal
from wick_graph.models import ModelChoice, RetryPolicy
from wick_graph.store import SqlSaver, SqlStore
from wick_graph.store.mailbox import Draft
from wick_graph.store.maintenance import export_thread
from wick_graph.store.schema import calls, memories
from wick_graph.store.texts import compiled
from wick_graph.testing import ScriptedModel, call, rate_limit

FOLDER = Path(__file__).parent / "golden"


def _collect(state: list[Any], writes: list[Any]) -> list[Any]:
    return [*state, *(one for write in writes for one in write)]


class _Notes(TypedDict, total=False):
    notes: Annotated[list[str], DeltaChannel(_collect, list[str])]


class _Inner(TypedDict, total=False):
    log: Annotated[list[str], add]


def _delta(saver: SqlSaver) -> Any:
    builder = StateGraph(_Notes)
    builder.add_node("note", lambda state: {"notes": [f"note {len(state['notes'])}"]})
    builder.add_edge(START, "note")
    return builder.compile(checkpointer=saver)


def nested(saver: SqlSaver) -> Any:
    """A graph whose node is a graph that asks a question."""

    def ask(state: _Inner) -> _Inner:
        return {"log": [f"answer {interrupt('which?')}"]}

    inner = StateGraph(_Inner)
    inner.add_node("first", lambda state: {"log": ["first"]})
    inner.add_node("ask", ask)
    inner.add_edge(START, "first")
    inner.add_edge("first", "ask")
    outer = StateGraph(_Inner)
    outer.add_node("before", lambda state: {"log": ["before"]})
    outer.add_node("inner", inner.compile())
    outer.add_edge(START, "before")
    outer.add_edge("before", "inner")
    return outer.compile(checkpointer=saver)


def fill_plain(saver: SqlSaver) -> None:
    """Run graphs of LangGraph, with subgraphs, a fork, questions and hidden checkpoints."""
    loop = looping_graph(saver, 4)
    loop.invoke({"messages": [("user", "hello")]}, config("loop"))
    third = [*loop.get_state_history(config("loop"))][3]
    loop.update_state(third.config, {"log": ["another way"]})
    asking_graph(saver).invoke({"log": ["in"]}, config("asks"))
    nested(saver).invoke({"log": ["in"]}, config("nested"))
    for text in ("one", "two", "three"):
        _delta(saver).invoke({"notes": [text]}, config("delta"))
    saver.threads.keep_latest("delta", 2)
    saver.threads.fork("loop", "forked", third.config["configurable"]["checkpoint_id"])
    saver.threads.rename("loop", "a loop")
    saver.threads.pin("loop")


def fill_mailbox(saver: SqlSaver) -> None:
    """Let a gateway take and send messages, with each state that a row can have."""
    box, chat, text = saver.mailbox, "telegram:1", f"{CANARY} ä\x00\ud800"
    first, *_ = (box.receive(f"in {n}", chat, {"content": f"{text} {n}"}, most=2) for n in range(3))
    assert first is not None
    box.settle([first.row], [Draft(key="answer", chat=chat, message={"content": text})])
    box.queue(Draft(key="of a tool", chat="cli:direct", message={"content": text}), turn="run 1")
    for key in ("sent", "failed", "dead"):
        made = box.queue(Draft(key=key, chat=chat, message={"content": text}))
        assert made is not None
        if key == "sent":
            box.sent(made, "native 7")
        else:
            box.failed(made, f"{CANARY} is away", box.now + 60 if key == "failed" else None)
    box.put_fact("cron/daily", {"text": text, "at": [1, 2.5, None]})
    box.note_alive({"channels": ["telegram"]})


def embedded(texts: Sequence[str]) -> list[list[float]]:
    """Return vectors of texts: how often each has some letters."""
    return [[float(text.count(letter)) for letter in "abcd"] for text in texts]


def fill_memories(saver: SqlSaver) -> None:
    """Remember items of every kind: of several namespaces, with vectors, with a TTL."""
    index: Any = {"embed": embedded, "dims": 4, "fields": ["text", "more[*]"]}
    store = SqlStore.of(saver, index=index)
    text = f"{CANARY} a\x00\ud800"
    store.put(("users", "ä"), "one", {"text": text, "more": ["b", "c"], "at": date(2026, 1, 2)})
    store.put(
        ("users", "ä", "notes"), "k\x00\ud800", {"n": [1, 2.5, None, 2**70, (1,)]}, index=False
    )
    store.put(("users",), "with a ttl", {"text": text}, ttl=90)
    store.put(("users", "ä"), "one", {"text": f"{text} again", "more": []})


class _Breaks(BaseHook):
    """Fails on its way to the model."""

    name = "breaks"

    def wrap_model_call(self, request: Any, next: Any) -> Any:
        raise ValueError("broken")


@tool
def risky(what: str) -> str:
    """Act once a person has allowed it."""
    return f"did {what}"


@tool
def fatal() -> str:
    """Take the process down."""
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


def fill_moments(saver: SqlSaver, url: str) -> None:
    """Record moments of every kind that a run makes, with hooks in every phase."""
    if (child := os.fork()) == 0:
        with suppress(BaseException):
            dying = ScriptedModel([call("fatal")])
            agent_of(url, hooks=[], tools=[fatal], model=dying)[0].invoke("die", thread_id="lost")
        os._exit(0)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    again = ScriptedModel(["Here I am."], cursor="fifo")
    agent_of(saver, hooks=[], tools=[fatal], model=again)[0].invoke("go on", thread_id="lost")
    agent, _ = agent_of(saver, journal="full", model=ScriptedModel(steps(), model_name="first"))
    for _ in agent.stream("add", thread_id="hooks"):
        pass
    fallback = ScriptedModel(["From the other one."], model_name="second")
    limited = ScriptedModel([rate_limit(0.0)] * 2, model_name="first")
    retry = RetryPolicy(attempts=2, base=0.0)
    choice = ModelChoice(
        model=limited,
        name="first",
        retry=retry,
        fallbacks=(ModelChoice(model=fallback, name="second"),),
    )
    agent_of(saver, journal="full", model=choice)[0].invoke("again", thread_id="retries")
    with pytest.raises(ModelError, match="broken"):
        agent_of(saver, hooks=[_Breaks()])[0].invoke("break", thread_id="breaks")
    asking = ScriptedModel([call("risky", what="it"), "Done."])
    asks, _ = agent_of(saver, hooks=[ApprovalHook({"risky": True})], tools=[risky], model=asking)
    asks.invoke("act", thread_id="asks")
    asks.resume("asks", Approve())


# --- what is in a store ---------------------------------------------------------------------------


def content(saver: SqlSaver) -> dict[str, Any]:
    """Tell all that a store holds of its threads, as data."""
    found = sorted(saver.threads.list(), key=lambda info: info.thread_id)
    box = saver.mailbox
    mail = {
        "inbox": [_mail(one, _IN) for one in box.inbox()],
        "outbox": [_mail(one, _OUT) for one in box.outbox()],
        "facts": data(box.facts("")),
    }
    held = {info.thread_id: _thread(saver, info) for info in found}
    items = _memories(saver)
    return {
        **held,
        **({"(mailbox)": mail} if any(mail.values()) else {}),
        **({"(memories)": items} if items else {}),
    }


def _memories(saver: SqlSaver) -> list[Any]:
    """Tell the rows of the long-term store, expired ones too."""
    core, told = saver._core, []
    query = memories.select().order_by(memories.c.rid)
    with core.reading() as db:
        rows = [
            dict(zip(memories.c.keys(), row, strict=True)) for row in db.execute(*compiled(query))
        ]
    for row in rows:
        tenant, key = bytes(row["tenant"]), bytes(row["key"])
        body = core.sealing.open(bytes(row["body"]), tenant, key, "memories")
        vectors = row["vectors"] and core.sealing.open(
            bytes(row["vectors"]), tenant, key, "vectors"
        )
        times = {name: row[name] for name in ("created", "updated", "ttl", "expires")}
        value = saver.serde.unpack(body)
        told.append(
            data({**times, "key": key, "value": value, "vectors": vectors and vectors.hex()})
        )
    return told


_IN = {"key": "key", "chat": "chat", "state": "state", "tries": "tries", "received": "at"}

_OUT = {
    **{"key": "key", "chat": "chat", "state": "state", "tries": "tries", "created": "at"},
    **{"due": "due", "native": "native", "error": "error"},
}
"""What the columns hold, with the field of it; other fields are of the process that reads."""


def _mail(message: Any, columns: dict[str, str]) -> Any:
    held = {name: getattr(message, field) for name, field in columns.items()}
    return data({**held, "message": message.message})


def _thread(saver: SqlSaver, info: Any) -> dict[str, Any]:
    journal = Journal(saver, info.thread_id)
    fields = ("agent", "status", "title", "parent", "pinned", "stopped_because", "last_error")
    return {
        **{name: getattr(info, name) for name in fields},
        "created": info.created.isoformat(),
        "steps": info.steps,
        "checkpoints": [_checkpoint(one) for one in saver.list(config(info.thread_id))],
        "head": _checkpoint(saver.get_tuple(config(info.thread_id)))["id"],
        "past": [step.checkpoint_id for step in saver.threads.history(info.thread_id)],
        "runs": [[run.number, run.run_id, run.branch, run.status] for run in journal.runs()],
        "moments": [json.loads(json.dumps(journal.to_dict(m))) for m in journal.moments()],
        "problems": data(journal.problems()),
        "calls": _calls(saver, info.thread_id),
        "streams": [data(row.asked) for row in saver.streams.of_thread(info.thread_id)],
        "events": data(saver.streams.read(info.thread_id, 0)),
    }


def _checkpoint(one: Any) -> dict[str, Any]:
    at, parent = one.config["configurable"], (one.parent_config or {}).get("configurable", {})
    return {
        "id": at["checkpoint_id"],
        "ns": at["checkpoint_ns"],
        "parent": parent.get("checkpoint_id"),
        "metadata": data(one.metadata),
        "checkpoint": data({k: v for k, v in one.checkpoint.items() if k != "id"}),
        "writes": data(one.pending_writes),
    }


def _calls(saver: SqlSaver, thread_id: str) -> list[Any]:
    core = saver._core
    with core.reading(thread_id) as db:
        cache = core.thread(db, thread_id)
        assert cache is not None
        found = db.execute(*compiled(calls.select().where(calls.c.thread == cache.id))).fetchall()
    row = calls.c.keys()
    told = [dict(zip(row, one, strict=False)) for one in found]
    names = ("key", "name", "state", "tries", "started", "ended")
    return sorted([data(call[name]) for name in names] for call in told)


def data(value: Any) -> Any:
    """Tell a value as JSON has it."""
    if isinstance(value, BaseMessage):
        return {"message": type(value).__name__, **data(value.model_dump(exclude={"type"}))}
    if isinstance(value, dict):
        return {str(key): data(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [data(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(map(str, value))
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return value if isinstance(value, str | int | float | None) else str(value)


# --- the files ------------------------------------------------------------------------------------

Opener = Callable[[Path], Any]


@contextmanager
def _wickrun(path: Path) -> Iterator[SqlSaver]:
    with open_wickrun(path) as recording:
        yield recording.saver


OPENED: dict[str, Opener] = {
    "plain.db": lambda path: SqlSaver.from_url(f"sqlite:///{path}"),
    "journal.db": lambda path: SqlSaver.from_url(f"sqlite:///{path}"),
    "moments.db": lambda path: SqlSaver.from_url(f"sqlite:///{path}"),
    "mailbox.db": lambda path: SqlSaver.from_url(f"sqlite:///{path}"),
    "memories.db": lambda path: SqlSaver.from_url(f"sqlite:///{path}"),
    "encrypted.db": lambda path: SqlSaver.from_url(f"sqlite:///{path}", keys=KEYS),
    "a.thread": lambda path: SqlSaver.from_url(f"sqlite:///{path}"),
    "a.wickrun": _wickrun,
}
"""How each file is opened; the keys of the encrypted one are those of the tests."""


def unpacked(release: str, name: str, to: Path) -> Path:
    """Lay a copy of a file into a folder."""
    path = to / name
    path.write_bytes(gzip.decompress((FOLDER / release / f"{name}.gz").read_bytes()))
    return path


def expected(release: str, name: str) -> Any:
    """Return what a file holds."""
    held = gzip.decompress((FOLDER / release / f"{name}.json.gz").read_bytes())
    return json.loads(held)


def _write(folder: Path) -> None:
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as made:
        here = Path(made)
        with OPENED["plain.db"](here / "plain.db") as saver:
            fill_plain(saver)
        with OPENED["journal.db"](here / "journal.db") as saver:
            fill(saver, "a")
            export_thread(saver, "a", here / "a.thread")
            journal = Journal(saver, "a")
            write_wickrun(journal, saver, here / "a.wickrun", Hider.of(journal))
        with OPENED["moments.db"](here / "moments.db") as saver:
            fill_moments(saver, f"sqlite:///{here / 'moments.db'}")
        with OPENED["encrypted.db"](here / "encrypted.db") as saver:
            fill(saver, "a", "b")
            fill_mailbox(saver)
            fill_memories(saver)
        with OPENED["memories.db"](here / "memories.db") as saver:
            fill_memories(saver)
        with OPENED["mailbox.db"](here / "mailbox.db") as saver:
            fill_mailbox(saver)
        for name, opened in OPENED.items():
            packed = gzip.compress((here / name).read_bytes(), mtime=0)
            (folder / f"{name}.gz").write_bytes(packed)
            with opened(here / name) as saver:
                text = json.dumps(content(saver), indent=1, sort_keys=True)
            (folder / f"{name}.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    _write(FOLDER / sys.argv[1])
