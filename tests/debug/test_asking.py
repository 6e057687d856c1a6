"""What a recording answers, and what it says where it cannot."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from tests.debug.conftest import Opener
from tests.debug.support import WAIT, World
from wick_graph import Agent, BaseHook, ModelRequest, SqlSaver, ToolResult, tool
from wick_graph.debug import DebugSession, record
from wick_graph.debug.recording import RecordedRuns
from wick_graph.errors import DebugError, ExpressionError, StorageError, ThreadNotFoundError
from wick_graph.exports.plain import Hider
from wick_graph.exports.wickrun import write_wickrun
from wick_graph.testing import ScriptedModel, call


@pytest.mark.parametrize("row", ["M12"])
def test_the_request_the_decision_and_the_tokens(row: str, opened: Opener) -> None:
    session = opened()
    request = session.request("@8.3")
    assert (request.when, request.exact, request.position) == ("at", True, "t/b0@8.3")
    assert [message["role"] for message in request.messages] == [
        *("system", "user", "assistant", "tool", "tool", "tool", "user")
    ]
    assert request.system == (
        ("agent", "You add numbers."),
        ("todo", "Keep a list."),
        ("guard", "Be careful."),
    )
    assert (request.tools, request.settings) == (["add"], {"temperature": 0.3})
    assert session.request("@first").when == "after"
    assert session.request("@last").seq == request.seq
    route = session.inspect.route("@8")
    assert (route.chosen, route.reason) == ("route: tools", "the reply calls 3 tool(s)")
    assert [rule["result"] for rule in route.candidates] == [False, False, False, True]
    assert session.inspect.route("@last").chosen == "route: end"
    totals = [one["total"] for one in session.inspect.tokens()]
    assert totals == sorted(totals)
    assert totals[-1] == session.inspect.state("usage.total_tokens", "@last")
    assert (session.inspect.response("@last") or {})["content"] == "Done."


@pytest.mark.parametrize("row", ["M12"])
def test_a_step_shows_what_it_changed(row: str, opened: Opener) -> None:
    session = opened()
    session.goto("@1")
    changes = {change.path: change for change in session.inspect.diff()}
    assert set(changes) == {"memory.notes"}
    session.goto("@3")
    assert {"iteration", "usage.total_tokens", "messages[1]"} <= {
        c.path for c in session.inspect.diff()
    }
    assert [c.op for c in session.inspect.diff("@3", "@7", "messages")] == ["add"] * 4
    assert session.inspect.diff("@3", "@3") == []
    assert session.inspect.pending("@3") == []
    after = session.inspect.moments("node.exit")[2]
    assert {one["channel"] for one in session.inspect.pending(after)} >= {"messages", "iteration"}
    assert len(session.inspect.state("messages", after)) == 1, (
        "the state has it at the step's end alone"
    )
    assert session.value("len(messages)", after) == 2


@pytest.mark.parametrize(
    ("path", "by"),
    [
        pytest.param("messages[0].content", ["input"], id="B3-input"),
        pytest.param("messages[1]", ["model", "model"], id="B3-reply"),
        pytest.param(
            "messages[2].content",
            ["hook:guard", "tool:add", "hook:todo", "model", "model"],
            id="B3-tool-and-hooks",
        ),
        pytest.param(
            "messages[4].content", ["tool:add", "hook:todo", "model", "model"], id="B3-tool"
        ),
        pytest.param("messages[5].content", ["model", "model"], id="B3-answer"),
        pytest.param("todos", ["hook:guard"], id="B3-hook"),
        pytest.param("memory.notes", ["hook:todo"], id="B3-before"),
    ],
)
def test_who_wrote_it(path: str, by: list[str], opened: Opener) -> None:
    """`why` follows a value back; `watch` and reverse-continue stop at the same node's end."""
    session = opened()
    causes = session.why(path, "@last")
    assert [cause.by for cause in causes] == by
    assert causes[0].text.startswith(path)
    if by == ["input"]:
        return
    session.breakpoints.watch(path if "[" not in path else path.partition(".")[0])
    session.goto("@last")
    stop = session.reverse_cont()
    wrote = session.inspect.locate(causes[0].position)
    assert stop.reason == "watch"
    assert stop.entry is not None
    assert path.startswith("messages") or stop.entry.task == wrote.task


@pytest.mark.parametrize("row", ["B4"])
def test_every_part_of_a_prompt_has_its_owner(row: str, opened: Opener) -> None:
    blamed = opened().inspect.blame("@8.3")
    owners = [(one.part, one.by, one.op) for one in blamed]
    assert owners == [
        ("system", "agent", "kept"),
        ("system", "todo", "added"),
        ("system", "guard", "added"),
        *[("message", "thread", "kept")] * 5,
        ("message", "todo", "added"),
        ("tool", "agent", "kept"),
        ("setting", "guard", "added"),
    ]


@pytest.mark.parametrize("row", ["B4"])
def test_what_hooks_dropped_and_changed_has_its_owner_too(row: str, world: World, url: str) -> None:
    class Cutter(BaseHook):
        name = "cutter"

        def modify_request(self, request: ModelRequest, ctx: Any) -> ModelRequest:
            first = request.messages[0]
            changed = request.replace(first, HumanMessage("In short: add them", id=first.id))
            return changed.with_tools([]).replace_system("Only this.")

    agent, _ = world.agent(url, "Done.", hooks=[Cutter()])
    agent.invoke("add them", thread_id="t")
    with agent, DebugSession.open(agent, "t") as session:
        session.turn()
        told = {(one.part, one.op, one.by) for one in session.inspect.blame()}
        assert told == {
            ("system", "added", "cutter"),
            ("system", "dropped", "cutter"),
            ("message", "added", "cutter"),
            ("message", "dropped", "cutter"),
            ("tool", "dropped", "cutter"),
        }
        assert all(
            session.inspect.locate(f"#{one.seq}").name == "cutter"
            for one in session.inspect.blame()
        )


@pytest.mark.parametrize("row", ["B9"])
def test_bisect_finds_where_an_expression_turns(row: str, opened: Opener) -> None:
    session = opened()
    found = session.inspect.bisect("@first", "@last", "len(messages) > 1")
    assert (found.what, found.node) == ("node.exit", "model")
    turned = session.inspect.bisect("@3", "@last", "iteration < 2")
    assert (turned.what, turned.visit) == ("node.exit", 2)
    with pytest.raises(DebugError, match="is true from"):
        session.inspect.bisect("@first", "@last", "1 < 2")
    with pytest.raises(ExpressionError):
        session.inspect.bisect("@first", "@last", "1 <")


def test_history_search_and_completion(opened: Opener) -> None:
    session = opened()
    lengths = [len(value) for _, value in session.inspect.history("messages")]
    assert lengths == [2, 3, 4, 5, 6]
    assert [entry.node for entry, _ in session.inspect.history("todos")] == ["model", "model"]
    assert {entry.what for entry in session.inspect.search("negative")} >= {"tool.exit"}
    assert session.inspect.search("no such text anywhere") == []
    assert session.inspect.complete("mess") == ["messages"]
    assert session.inspect.complete("tool:") == ["tool:add"]


def test_the_stack_names_every_frame(opened: Opener) -> None:
    session = opened()
    session.breakpoints.break_("tool:add", "args.a == 2")
    session.cont()
    frames = session.inspect.where()
    assert [(frame.kind, frame.name) for frame in frames] == [
        *(("tool", "add"), ("hook", "guard"), ("hook", "todo")),
        *(("tool", "add"), ("node", "tools"), ("agent", "adder")),
    ]
    assert [frame.depth for frame in frames] == [5, 4, 3, 2, 1, 0]
    assert "wrap_tool_call" in frames[1].text


@pytest.mark.parametrize("is_async", [False, True], ids=["invoke", "ainvoke"])
def test_the_runs_of_a_block_are_recorded(is_async: bool, world: World, url: str) -> None:
    agent, _ = world.agent(url, call("add", a=1, b=2), "Done.", "Never.", journal="off")
    with agent, record() as recording:
        if is_async:
            asyncio.run(agent.ainvoke("go", thread_id="t"))
        else:
            agent.invoke("go", thread_id="t")
        [ended] = recording.moments("tool.exit")
        assert recording.details(ended)["output"] == "13!"
        assert [thread for thread, _ in recording.runs] == ["t"]
        with recording.session() as session:
            assert session.inspect.state("messages[-1].content", "@last") == "Done."
    with agent, pytest.raises(DebugError, match="nothing was recorded"), record() as nothing:
        nothing.moments()


def test_runs_are_read_after_their_store_was_closed(world: World, url: str) -> None:
    with record() as recording:
        runs = RecordedRuns(recording)
        for number in (1, 2):
            agent, _ = world.agent(url, call("add", a=1, b=2), "Done.", "So.", journal="off")
            with agent:
                agent.invoke("go", thread_id=f"t{number}")
                agent.invoke("again", thread_id=f"t{number}")
    assert [run.called("add", a=1) for run in runs] == [1, 0, 1, 0]
    assert runs.last.requests[0].messages[-2].text == "again"
    assert len(recording.moments("tool.exit")) == 2
    with runs[0].session() as session:
        assert session.inspect.state("messages[-1].content", "@last") == "So."
    assert "the store is closed" not in "".join(runs.report(3))


# --- bad input ---------------------------------------------------------------------------------


def test_a_thread_without_a_journal_shows_its_checkpoints(world: World, url: str) -> None:
    agent, _ = world.agent(url, journal="off")
    agent.invoke("add them", thread_id="t")
    with agent, DebugSession.open(agent, "t") as session:
        assert session.banners == [
            "recorded without a journal: hooks, prompts and tools are not known"
        ]
        assert {entry.kind for entry in session.inspect.moments()} == {"checkpoint"}
        assert session.inspect.state("messages[-1].content", "@last") == "Done."
        assert session.nextnode().moved
        assert session.until("len(messages) > 3").moved
        assert session.inspect.diff("@first", "@last")
        assert session.inspect.line(session.inspect.moments()[0])
        assert session.inspect.where()[0].kind
        for ask in (session.request, session.inspect.route, session.inspect.blame):
            with pytest.raises(DebugError):
                ask()
        with pytest.raises(DebugError):
            session.fork()


def test_an_unknown_thread_and_an_odd_source_are_refused(url: str, tmp_path: Path) -> None:
    with SqlSaver.from_url(url) as saver:
        with pytest.raises(ThreadNotFoundError):
            DebugSession.open(saver, "nobody")
        with pytest.raises(DebugError, match="which thread"):
            DebugSession.open(saver)
    with pytest.raises(DebugError, match="cannot be debugged"):
        DebugSession.open(7)
    broken = tmp_path / "broken.wickrun"
    broken.write_bytes(b"nothing")
    with pytest.raises(StorageError):
        DebugSession.open(str(broken))
    empty = DebugSession()
    for verb in ("step", "cont", "reverse_step", "next_error"):
        assert not empty.verb(verb).moved
    with pytest.raises(DebugError):
        empty.inspect.state()
    with pytest.raises(DebugError):
        empty.verb("fly")


def test_a_file_is_looked_at_and_never_run(world: World, recorded: str, tmp_path: Path) -> None:
    path = tmp_path / "run.wickrun"
    agent, _ = world.agent(None)
    with SqlSaver.from_url(recorded) as saver, DebugSession.open(saver, "t") as session:
        assert session.journal is not None
        write_wickrun(session.journal, saver, path, Hider.of(session.journal))
        lines = [session.inspect.line(entry) for entry in session.inspect.moments()]
    with agent, DebugSession.open(str(path), agent=agent) as session:
        assert [session.inspect.line(entry) for entry in session.inspect.moments()] == lines
        assert session.request("@8.3").exact
        with pytest.raises(DebugError, match="file"):
            session.live(session.fork("@4"), timeout=WAIT)
        with pytest.raises(DebugError, match="file"):
            session.run("Hello", timeout=WAIT)


def test_an_agent_of_another_store_runs_nothing_in_its_own_thread_of_the_same_id(
    world: World, recorded: str, tmp_path: Path
) -> None:
    agent, _ = world.agent(f"sqlite:///{tmp_path / 'other.db'}")
    agent.invoke("mine", thread_id="t")
    before, added = agent.threads.get("t"), list(world.added)
    with agent:
        with DebugSession.open(recorded, "t", agent=agent) as session:
            refused = pytest.raises(DebugError, match="store is not the one of this thread")
            with refused:
                session.run("Hello", timeout=WAIT)
        after = agent.threads.get("t")
    assert before is not None
    assert after is not None
    assert (after.steps, world.added) == (before.steps, added)


def test_lost_moments_are_told(world: World, recorded: str) -> None:
    path = recorded.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path)) as db, db:
        pages = [row[0] for row in db.execute("SELECT rid FROM moments ORDER BY rid")]
        db.execute("DELETE FROM moments WHERE rid = ?", (pages[1],))
    db.close()
    with DebugSession.open(recorded, "t") as session:
        assert any("missing" in banner for banner in session.banners)
        gap = next(entry for entry in session.inspect.moments() if entry.kind == "gap")
        assert "missing" in session.inspect.line(gap)
        assert session.verb("next_error").entry == gap
        assert session.inspect.where()
        assert session.inspect.details(gap) == {}
        with pytest.raises((StorageError, DebugError)):
            session.inspect.state(at=gap)
        assert session.goto("@last").moved
        assert session.inspect.state("messages[-1].content") == "Done."


def test_values_that_are_huge_or_cannot_be_shown(world: World, url: str) -> None:
    class Odd:
        def __repr__(self) -> str:
            raise ValueError("no text")

    huge = "x" * 50_000_000

    @tool(max_output=None)
    def big() -> ToolResult:
        """Return much, and something odd."""
        return ToolResult("", "big", huge, artifact=Odd())

    agent, _ = world.agent(url, call("big"), "Done.", tools=[big], hooks=[])
    with agent, DebugSession(agent) as session:
        session.breakpoints.break_("tool:big:after", 'output == "y"')
        stop = session.run("go", thread_id="t", stop_on_entry=False, timeout=WAIT)
        assert stop.reason in ("condition-error", "finished")
        if stop.reason != "finished":
            session.cont(timeout=WAIT)
        exit_ = session.inspect.moments("tool.exit")[0]
        assert len(session.inspect.line(exit_)) < 1_000
        assert session.inspect.call(exit_) is not None
        assert session.inspect.state("messages[-1].content", "@last") == "Done."
        assert session.cont().reason in ("end", "condition-error")


@pytest.mark.parametrize(
    "expression",
    [
        "().__class__.__bases__",
        "__import__('os')",
        "[x for x in messages]",
        "lambda: 1",
        "9 ** 9 ** 9",
        '"x" * 999999999',
        "messages[0].__dict__",
        "sorted(" * 40 + "messages" + ")" * 40,
        "1" * 3_000,
    ],
)
def test_an_expression_that_reaches_too_far_is_refused(expression: str, opened: Opener) -> None:
    session = opened()
    session.goto("@last")
    with pytest.raises(ExpressionError):
        session.value(expression)


def test_a_recording_of_another_version_of_the_code_says_so(recorded: str, world: World) -> None:
    class Other(BaseHook):
        name = "other"

        def modify_request(self, request: Any, ctx: Any) -> Any:
            return request

    agent = Agent("adder", ScriptedModel([]), hooks=[Other()], store=recorded)
    with agent, DebugSession.open(agent, "t") as session:
        assert session.banners
        assert all("recorded with" in banner for banner in session.banners)
        assert session.goto("@last").entry is not None
