"""A recording changes nothing of a run, chains with other tools, and never fails a run."""

from __future__ import annotations

import asyncio
import functools
import operator
import os
import sqlite3
import stat
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.language_models.fake import FakeListLLM
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.pregel import Pregel, _loop, _runner

from tests.foreign.graphs import add, calls, config, loop, model, react, retried, subgraph
from wick_graph import Agent
from wick_graph.debug import DebugSession, record
from wick_graph.exports.page import as_page
from wick_graph.exports.plain import Hider
from wick_graph.foreign import seams
from wick_graph.foreign.copies import RECORDED
from wick_graph.journal.journal import Journal
from wick_graph.journal.recorder import Writer
from wick_graph.store import SqlSaver
from wick_graph.store.saver import SqlSaver as Saver
from wick_graph.testing import ScriptedModel

PLACES = (
    (Pregel, "stream"),
    (Pregel, "astream"),
    (Pregel, "bulk_update_state"),
    (_runner, "run_with_retry"),
    (_runner, "arun_with_retry"),
    (_loop.PregelLoop, "put_writes"),
)


def test_closing_restores_what_was_there() -> None:
    before = [getattr(*place) for place in PLACES]
    with record(store="sqlite://"):
        assert all(getattr(*place) is not old for place, old in zip(PLACES, before, strict=True))
    assert [getattr(*place) for place in PLACES] == before


@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_patches_chain_with_another_tools_in_either_order(
    first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []
    # The first value that `monkeypatch` sees is the last that it puts back: LangGraph's own.
    monkeypatch.setattr(Pregel, "stream", Pregel.stream)

    def patched() -> None:
        original = Pregel.stream

        @functools.wraps(original)
        def theirs(*args: Any, **kwargs: Any) -> Any:
            heard.append("theirs")
            return original(*args, **kwargs)

        monkeypatch.setattr(Pregel, "stream", theirs)

    made = loop(None)
    if first == "theirs":
        patched()
    block = record(store="sqlite://")
    with block as recording:
        if first == "ours":
            patched()
        made.graph.invoke({"n": 0})
        assert len(recording.runs) == 1
    theirs = Pregel.stream
    made.graph.invoke({"n": 0})
    assert heard == ["theirs", "theirs"]
    assert Pregel.stream is theirs
    with record(store="sqlite://") as again:  # the one that stayed in the chain does nothing
        made.graph.invoke({"n": 0})
        assert len(again.runs) == 1
        assert len(again.moments("node.enter")) == 6
    recording.close()
    again.close()


def test_any_thread_and_any_task_is_recorded_or_only_this_context() -> None:
    made = loop(None)

    def elsewhere() -> None:
        thread = threading.Thread(target=made.graph.invoke, args=({"n": 0},))
        thread.start()
        thread.join()

    with record(store="sqlite://") as everywhere:
        elsewhere()
        with ThreadPoolExecutor() as pool:
            pool.submit(made.graph.invoke, {"n": 0}).result()
        asyncio.run(made.graph.ainvoke({"n": 0}))
        assert len(everywhere.runs) == 3
    with record(store="sqlite://", scope="context") as here:
        elsewhere()
        assert here.runs == []
        made.graph.invoke({"n": 0})
        assert len(here.runs) == 1
    everywhere.close()
    here.close()


class Slow(TypedDict, total=False):
    log: Annotated[list[str], operator.add]


def test_runs_beside_each_other_in_a_thread_are_recorded_whole(tmp_path: Path) -> None:
    together = threading.Barrier(3)

    def wait(state: Slow) -> Slow:
        together.wait(30)
        return {"log": ["waited"]}

    graph: Any = StateGraph(Slow).add_node("wait", wait).add_node("more", lambda s: {"log": ["m"]})
    graph = graph.add_edge(START, "wait").add_edge("wait", "more").compile(InMemorySaver())
    where = config()
    with record(store=f"sqlite:///{tmp_path / 'r.db'}") as recording:
        with ThreadPoolExecutor(3) as pool:
            for made in [pool.submit(graph.invoke, {"log": ["i"]}, where) for _ in range(3)]:
                made.result()
        assert recording.problems == []
        whats = ["run.enter", *["node.enter", "node.exit"] * 2, "run.exit"]
        thread = where["configurable"]["thread_id"]
        for at, (name, run_id) in enumerate(recording.runs):
            assert name == thread
            session = recording.session(at)
            journal = session._cursor.views.journal
            assert journal is not None
            assert [m.what for m in journal.moments(run_id)] == whats
            assert {m.status for m in journal.moments(run_id)} == {"ok"}
        assert journal is not None
        seqs = [m.seq for m in journal.moments()]
        assert seqs == list(range(1, 19))
        assert len({run.branch for run in journal.runs()}) > 1
    recording.close()


def test_copies_are_private_named_and_kept_for_a_week(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with record() as recording:
        loop(None).graph.invoke({"n": 0}, config())
    recording.close()
    assert f"recording into {RECORDED}" in capsys.readouterr().err
    if os.name == "posix":
        assert stat.S_IMODE(RECORDED.stat().st_mode) == 0o600
    with SqlSaver.from_url(f"sqlite:///{RECORDED}") as saver:
        (info,) = saver.threads.list()
        assert info.expires_at is not None
        assert (info.expires_at - info.last_access).days == 7


def test_an_update_of_the_state_is_recorded_and_copied() -> None:
    for saver in (InMemorySaver(), SqlSaver.from_url("sqlite://")):
        made, where = loop(saver), config()
        with record(store="sqlite://") as recording:
            made.graph.invoke({"n": 0}, where)
            made.graph.update_state(where, {"n": 1, "log": ["by hand"]}, as_node="b")
            made.graph.invoke(None, where)
            assert recording.problems == []
            (moment,) = recording.moments("state.update")
            told = recording.details(moment)
            assert told["as_node"] == "b"
            assert [write["channel"] for write in told["writes"]] == ["n", "log"]
            session = recording.session()
            assert session.inspect.state(at=f"#{moment.seq}")["log"][-1] == "by hand"
            assert session.inspect.state(at="@last") == made.graph.get_state(where).values
        recording.close()


def test_an_update_beside_all_recordings_is_copied_with_the_next_run() -> None:
    made, where = loop(InMemorySaver()), config()
    made.graph.invoke({"n": 0}, where)
    made.graph.update_state(where, {"n": 1}, as_node="b")
    with record(store="sqlite://") as recording:
        made.graph.invoke(None, where)
        session = recording.session()
        assert session.inspect.state(at="@first")["n"] == 1
        assert session.inspect.state(at="@last") == made.graph.get_state(where).values
    recording.close()


def broken(name: str, after: int) -> Callable[..., Any]:
    """Return a method that fails from its nth call on."""
    original, calls = getattr(Saver, name), [0]

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        if calls[0] > after:
            raise sqlite3.OperationalError("disk I/O error")
        return original(self, *args, **kwargs)

    return method


INJECTED = [(name, after) for name in ("put", "put_writes", "journal_rows") for after in range(6)]


@pytest.mark.parametrize(("name", "after"), [*INJECTED, ("get_tuple", 0), ("from_url", 0)])
def test_a_failing_store_of_copies_leaves_the_run_unharmed(
    name: str, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, made, where = loop(InMemorySaver()), loop(InMemorySaver()), config()
    wanted = [expected.graph.invoke({"n": 0}, config())]
    if name != "from_url":
        monkeypatch.setattr(Saver, name, broken(name, after))
    store = "sqlite:////dev/null/x.db" if name == "from_url" else "sqlite://"
    with record(store=store) as recording:
        found = [made.graph.invoke({"n": 0}, where)]
        made.graph.invoke(None, where)
    assert found == wanted
    if name == "from_url" or (name, after) in (("put", 0), ("put_writes", 0), ("journal_rows", 0)):
        assert recording.problems


@pytest.mark.parametrize("after", range(0, 12, 3))
def test_a_moment_that_cannot_be_written_leaves_the_run_unharmed(
    after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    add, calls = Writer.begin, [0]

    def begin(self: Any, *args: Any) -> Any:
        calls[0] += 1
        if calls[0] > after:
            raise RuntimeError("injected")
        return add(self, *args)

    monkeypatch.setattr(Writer, "begin", begin)
    with SqlSaver.from_url("sqlite://") as saver:
        made, where = loop(saver), config()
        with record() as recording:
            assert made.graph.invoke({"n": 0}, where)["n"] == 3
        assert len(recording.problems) == (1 if calls[0] > after else 0)
        assert made.graph.get_state(where).values["n"] == 3


def test_errors_pass_through_a_recording_as_they_are() -> None:
    def fail(state: Slow) -> Slow:
        raise KeyError("gone")

    graph: Any = StateGraph(Slow).add_node("fail", fail).add_edge(START, "fail").compile()
    with record(store="sqlite://") as recording:
        with pytest.raises(KeyError, match="gone") as info:
            graph.invoke({})
        error, run = recording.moments("node.error")[0], recording.moments("run.error")[0]
        text = "\n".join(recording.details(error)["traceback"])
        assert "in fail" in text
        assert 'raise KeyError("gone")' in text
        assert "During task with name 'fail'" in text
        assert run.error == "KeyError: 'gone'"
    recording.close()
    assert info.value.args == ("gone",)


def test_a_wick_agent_is_recorded_once_on_its_own_and_as_a_node() -> None:
    with SqlSaver.from_url("sqlite://") as saver:
        agent = Agent("a", ScriptedModel(["hi"]), store=saver)
        with record(store="sqlite://") as recording:
            agent.invoke("hello", thread_id="t")
        assert len(recording.runs) == 1
        assert [m.node for m in recording.moments("node.enter")].count("model") == 1


def test_layers_of_middleware_are_hooks_and_their_changes_are_known() -> None:
    made = react(None)
    with record(store="sqlite://") as recording:
        made.graph.invoke(made.inputs[0])
        assert recording.problems == []
        names = [m.name for m in recording.moments("hook.enter")]
        assert names == ["Prompting", "Passing", "Doubling", "Prompting", "Passing"]
        (changed,) = recording.moments("tool.enter")
        told = recording.details(changed)
        assert told["args"] == {"a": 2, "b": 2}
        assert told["change"] == {"by": "Doubling", "args": {"a": 2, "b": 2}}
        assert [recording.details(m) for m in recording.moments("hook.exit")][2] == {}
        session = recording.session()
        first = recording.moments("model.request")[0]
        request = session.request(f"#{first.seq}")
        assert request.exact
        assert request.system[0][1] == "You add. Be brief."
        blamed = [one.by for one in session.inspect.blame(f"#{first.seq}") if one.part == "system"]
        assert set(blamed) == {"Prompting"}
    recording.close()


def test_retries_and_cached_results_are_moments_of_their_own() -> None:
    made, where = retried(InMemorySaver()), config()
    with record(store="sqlite://") as recording:
        for one in made.inputs:
            made.graph.invoke(one, where)
        assert [m.error for m in recording.moments("node.retry")] == ["ConnectionError: away"] * 2
        assert [m.node for m in recording.moments("node.cached")] == ["kept"]
    recording.close()


def test_questions_and_answers_are_moments() -> None:
    made, where = subgraph(InMemorySaver()), config()
    with record(store="sqlite://") as recording:
        for one in made.inputs:
            made.graph.invoke(one, where)
        (asked,) = recording.moments("interrupt.raise")
        (answer,) = recording.moments("interrupt.answer")
        assert recording.details(asked)["value"][0]["value"] == "which?"
        assert recording.details(answer)["value"] == "this"
        ends = [recording.details(m)["stopped_because"] for m in recording.moments("run.exit")]
        assert ends == ["interrupted", "done"]
    recording.close()


@pytest.fixture
def without(request: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """Take one seam away, as a release of LangGraph without it would."""
    known = seams._SEAMS[request.param]
    gone = tuple((module, f"{name}_gone", *rest) for module, name, *rest in known)
    monkeypatch.setitem(seams._SEAMS, request.param, gone)
    return str(request.param)


@pytest.mark.parametrize("without", [*seams._SEAMS], indirect=True)
def test_without_a_seam_the_rest_is_recorded_and_a_banner_names_what_lacks(without: str) -> None:
    made, where = react(InMemorySaver()), config()
    with record(store="sqlite://") as recording:
        made.graph.invoke(made.inputs[0], where)
        assert recording.problems == []
        if without == "runs":
            assert recording.runs == []
            return
        session = recording.session()
        assert any(without in banner for banner in session.banners)
        assert recording.moments("model.request")
    recording.close()


def test_the_journal_of_a_recorded_run_names_its_channels_and_nodes() -> None:
    with SqlSaver.from_url("sqlite://") as saver:
        made, where = loop(saver), config()
        with record():
            made.graph.invoke({"n": 0}, where)
        journal = Journal(saver, where["configurable"]["thread_id"])
        (run,) = journal.runs()
        assert run.shape["channels"] == {"n": "LastValue", "log": "add"}
        assert run.shape["nodes"] == ["a", "b"]
        with DebugSession.open(saver, where["configurable"]["thread_id"]) as session:
            assert set(session.inspect.state()) == {"n", "log"} - {"n"}


def test_a_secret_reaches_no_page_and_no_export(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "tok-9876543210-secret"
    monkeypatch.setenv("OTHER_API_KEY", secret)

    def fail(state: Slow) -> Slow:
        raise KeyError(f"with {secret}")

    with SqlSaver.from_url("sqlite://") as saver:
        graph: Any = StateGraph(Slow).add_node("fail", fail).add_edge(START, "fail")
        where = config()
        with record() as recording, pytest.raises(KeyError):
            graph.compile(saver).invoke({"log": [secret]}, where)
        told = str([recording.details(moment) for moment in recording.moments()])
        assert "•••" in told
        assert secret not in told
        journal = Journal(saver, where["configurable"]["thread_id"])
        assert secret not in as_page(journal, Hider.of(journal))
        assert "in fail" in as_page(journal, Hider.of(journal))
        with journal.reading() as db:
            rows = journal.rows
            thread = rows.thread(db)
            kept = [body for _, body in rows.contents(db, thread)]
            kept += [page.body or b"" for page in rows.pages(db, thread, 0)]
        assert kept
        assert not any(secret.encode() in body for body in kept)


def test_a_model_of_texts_is_recorded() -> None:
    model = FakeListLLM(responses=["42"])
    made: Any = StateGraph(MessagesState)
    made.add_node("say", lambda state: {"messages": [("ai", model.invoke("6*7?"))]})
    made.add_edge(START, "say")
    with record(store="sqlite://") as recording:
        made.compile().invoke({"messages": []})
    (asked,), (said,) = recording.moments("model.request"), recording.moments("model.response")
    assert asked.node == said.node == "say"
    with recording.session() as session:
        assert session.inspect.request(f"#{asked.seq}").messages[-1]["content"] == "6*7?"
    recording.close()


def test_calls_in_a_thread_that_a_node_starts_are_recorded() -> None:
    """Such a thread has no context, only the node's config."""
    pool, asked = ThreadPoolExecutor(1), model(calls(("add", {"a": 1, "b": 2})))

    def work(state: Any, config: RunnableConfig) -> Any:
        said = pool.submit(asked.invoke, "sum", config).result()
        return {"messages": [said, pool.submit(add.invoke, said.tool_calls[0], config).result()]}

    made: Any = StateGraph(MessagesState)
    made.add_node("work", work).add_edge(START, "work")
    with record(store="sqlite://") as recording:
        made.compile().invoke({"messages": []})
    found = recording.moments()
    assert [m.what for m in found if m.kind in ("model", "tool")] == [
        *("model.request", "model.response", "tool.enter", "tool.exit")
    ]
    assert {m.node for m in found if m.kind in ("model", "tool")} == {"work"}
    recording.close()
    pool.shutdown()
