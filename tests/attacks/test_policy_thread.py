"""A call that waits for approval waits for everybody: whoever resumes, forks, edits or crashes."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, StateUpdate, interrupt

from tests.hooks.test_approvals_crashes import life
from wick_graph import Agent, BaseHook, tool
from wick_graph.debug import DebugSession
from wick_graph.debug.policy import Policy
from wick_graph.errors import ConfigError, MessageError
from wick_graph.hooks.approvals import ApprovalHook, Approve, Edit, Reject, Respond
from wick_graph.journal import Journal
from wick_graph.messages import ToolCall
from wick_graph.store import Keys, SqlSaver
from wick_graph.store.ledger import Ledger
from wick_graph.store.maintenance import export_thread, import_thread
from wick_graph.store.verify import verify
from wick_graph.testing import ScriptedModel, call

ON: Any = {"configurable": {"thread_id": "t"}}
PAYS: Any = call("pay", to="mallory", amount=9)


class Till:
    """A tool that pays, an agent that must ask before, and others that need not."""

    def __init__(self, store: Any, *, replay: Any = "never") -> None:
        self.store, self.replay = store, replay
        self.paid: list[tuple[str, int]] = []

    def tool(self) -> Any:
        @tool(replay=self.replay)
        def pay(to: str, amount: int) -> str:
            """Pay somebody."""
            self.paid.append((to, amount))
            return f"paid {to}"

        return pay

    def agent(self, *steps: Any, name: str = "a", hooks: Any = None, **more: Any) -> Agent:
        hooks = [ApprovalHook({"pay": True})] if hooks is None else hooks
        model = ScriptedModel([*(steps or (PAYS, "Done."))])
        return Agent(name, model, tools=[self.tool()], hooks=hooks, store=self.store, **more)

    def other(self, *steps: Any, hooks: Any = ()) -> Agent:
        """Make an agent over the same threads that asks nobody."""
        return self.agent(*(steps or (PAYS, "Done.", "More.")), name="b", hooks=[*hooks])


@pytest.fixture(params=["ours", "sealed", "foreign", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "foreign":
        yield InMemorySaver()
        return
    if request.param == "postgres":
        with SqlSaver.from_url(str(request.getfixturevalue("postgres_url"))) as opened:
            yield opened
            assert verify(opened).is_whole
        return
    keys = Keys([hashlib.sha256(b"k").digest()]) if request.param == "sealed" else None
    with SqlSaver.from_url(f"sqlite:///{tmp_path}/t.db", keys=keys) as opened:
        yield opened


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[SqlSaver]:
    with SqlSaver.from_url(f"sqlite:///{tmp_path}/t.db") as opened:
        yield opened
        assert verify(opened).is_whole


def resumed(agent: Agent, door: str, *given: Any, thread: str = "t") -> Any:
    if door == "sync":
        return agent.resume(thread, *given)
    if door == "async":
        return asyncio.run(agent.aresume(thread, *given))
    last = [*agent.stream_resume(thread, *given)][-1]
    return last.result  # type: ignore[union-attr]  # the last one is Done


@pytest.mark.sisters(7)
@pytest.mark.parametrize("door", ["sync", "async", "stream"])
@pytest.mark.parametrize("replay", ["never", "safe", "key"])
def test_another_agent_waits_again_and_does_not_pay(store: Any, door: str, replay: Any) -> None:
    till = Till(store, replay=replay)
    (asked,) = till.agent().invoke("Go", thread_id="t").interrupts
    again = resumed(till.other(), door)
    assert (again.stopped_because, till.paid) == ("interrupted", [])
    (question,) = again.interrupts
    assert {**question.value, "hash": ""} == {**asked.value, "hash": ""}
    done = resumed(till.other(), door, {question.id: Approve()})
    assert (done.stopped_because, till.paid) == ("done", [("mallory", 9)])


@pytest.mark.sisters(3)
@pytest.mark.parametrize(
    ("decision", "paid"),
    [
        (Approve(), [("mallory", 9)]),
        (Edit({"to": "anna", "amount": 1}), [("anna", 1)]),
        (Reject("no"), []),
        (Respond("There."), []),
    ],
)
def test_any_agent_obeys_the_decision(store: Any, decision: Any, paid: Any) -> None:
    till = Till(store)
    till.agent().invoke("Go", thread_id="t")
    assert till.other().resume("t", decision).stopped_because == "done"
    assert till.paid == paid


def test_an_agent_that_could_not_run_the_call_waits_too(store: Any) -> None:
    """Without the tool, or with one of another shape, a failure would close the question."""
    till = Till(store)
    a = till.agent()
    a.invoke("Go", thread_id="t")
    bare = Agent("bare", ScriptedModel(["More."]), store=store)
    assert bare.resume("t").stopped_because == "interrupted"

    @tool
    def pay(whom: str) -> str:
        """Pay somebody."""
        raise AssertionError

    odd = Agent("odd", ScriptedModel(["More."]), tools=[pay], store=store)
    assert odd.resume("t").stopped_because == "interrupted"
    (question,) = a.resume("t").interrupts
    a.resume("t", {question.id: Approve()})
    assert till.paid == [("mallory", 9)]


@pytest.mark.parametrize("keeps", [True, False])
def test_as_a_node_of_another_graph_it_waits_too(store: Any, keeps: bool) -> None:
    till = Till(store)
    bare = Agent("b", ScriptedModel([PAYS, "Done.", "More."]), tools=[till.tool()], store=False)
    asks = till.agent()
    asks.graph.checkpointer = None

    def outer(inner: Any) -> Any:
        graph: Any = StateGraph(MessagesState)
        graph.add_node("agent", inner)
        graph.add_edge(START, "agent")
        return graph.compile(checkpointer=store)

    outer(asks.graph).invoke({"messages": [("user", "Go")]}, ON)
    outer(bare.graph).invoke(None, ON)
    assert till.paid == []
    answer = {"decision": "approve"}
    outer(bare.graph if keeps else asks.graph).invoke(Command(resume=answer), ON)
    assert till.paid == [("mallory", 9)]


@pytest.mark.parametrize("answer", [True, "yes", {"decision": "approve", "hash": "0" * 64}])
def test_an_answer_that_is_no_decision_for_this_call_pays_nothing(store: Any, answer: Any) -> None:
    till = Till(store)
    till.agent().invoke("Go", thread_id="t")
    again = till.other().resume("t", answer)
    assert (again.stopped_because, till.paid) == ("interrupted", [])


@pytest.mark.sisters(5)
@pytest.mark.parametrize("by", ["update", "bulk", "command"])
@pytest.mark.parametrize("keeps_id", [True, False])
def test_an_edited_reply_is_asked_about_anew(store: Any, by: str, keeps_id: bool) -> None:
    """Arguments that nobody saw need a decision of their own, under any key."""
    till = Till(store)
    a, b = till.agent(), till.other()
    a.invoke("Go", thread_id="t")
    reply = a.graph.get_state(ON).values["messages"][-1]
    made = [{**reply.tool_calls[0], "args": {"to": "mallory", "amount": 900}}]
    more = {"response_metadata": reply.response_metadata} if keeps_id else {}
    edited = AIMessage("", id=reply.id, tool_calls=made, **more)
    update = {"messages": [edited]}
    if by == "update":
        b.graph.update_state(ON, update, as_node="model")
    elif by == "bulk":
        b.graph.bulk_update_state(ON, [[StateUpdate(update, "model")]])
    else:
        b.graph.invoke(Command(update=update), ON)
        assert till.paid == []
        return
    result = b.resume("t")
    assert (result.stopped_because, till.paid) == ("interrupted", [])
    assert result.interrupts[0].value["args"]["amount"] == 900
    b.resume("t", Approve())
    assert till.paid == [("mallory", 900)]


def test_time_travel_to_the_question_asks_again(store: Any) -> None:
    till = Till(store)
    a, b = till.agent(), till.other()
    a.invoke("Go", thread_id="t")
    before = next(s for s in b.graph.get_state_history(ON) if s.next == ("tools",))
    b.graph.invoke(None, before.config)
    assert till.paid == []


def test_a_decided_call_with_other_arguments_is_asked_about(ours: SqlSaver) -> None:
    """The row says which arguments were allowed: an edit behind it does not ride along."""
    till = Till(ours)
    a, b = till.agent(), till.other("unused", "Done.")
    a.invoke("Go", thread_id="t")
    before = a.graph.get_state(ON).config
    a.resume("t", Approve())
    assert till.paid == [("mallory", 9)]
    reply = a.graph.get_state(before).values["messages"][-1]
    made = [{**reply.tool_calls[0], "args": {"to": "mallory", "amount": 900}}]
    edited = AIMessage("", id=reply.id, tool_calls=made, response_metadata=reply.response_metadata)
    at = b.graph.update_state(before, {"messages": [edited]}, as_node="model")
    b.graph.invoke(None, at)
    assert till.paid == [("mallory", 9)]


@pytest.mark.parametrize("end", ["rejected", "left"])
@pytest.mark.parametrize(
    "edit", ["none", "keeps its mark", "loses its mark", "has a mark of its own"]
)
def test_what_was_not_allowed_runs_in_no_past(ours: SqlSaver, end: str, edit: str) -> None:
    """Rejected, or left behind by a new message: going back before that brings no call through."""
    till = Till(ours)
    a, b = till.agent(PAYS, "Done.", "More."), till.other()
    a.invoke("Go", thread_id="t")
    before = a.graph.get_state(ON).config
    reply = a.graph.get_state(before).values["messages"][-1]
    if end == "rejected":
        a.resume("t", Reject())
    else:
        a.invoke("Never mind", thread_id="t")
    at = before
    if edit != "none":
        made = [{**reply.tool_calls[0], "args": {"to": "mallory", "amount": 900}}]
        more: Any = {"keeps its mark": reply.response_metadata, "loses its mark": {}}.get(
            edit, {"wick": {"step": "00000000-0000-0000-0000-000000000001"}}
        )
        edited = AIMessage("", id=reply.id, tool_calls=made, response_metadata=more)
        at = b.graph.update_state(before, {"messages": [edited]}, as_node="model")
    b.graph.invoke(None, at)
    assert till.paid == []


@pytest.mark.parametrize("how", ["fork", "copy", "transfer"])
def test_a_copy_of_the_thread_needs_a_decision_of_its_own(
    ours: SqlSaver, tmp_path: Path, how: str
) -> None:
    till = Till(ours)
    (asked,) = till.agent().invoke("Go", thread_id="t").interrupts
    if how == "fork":
        till.agent().threads.fork("t", "u")
    elif how == "copy":
        ours.copy_thread("t", "u")
    else:
        export_thread(ours, "t", tmp_path / "t.thread")
        with SqlSaver.from_url(f"sqlite:///{tmp_path}/other.db") as other:
            import_thread(other, tmp_path / "t.thread", to="u")
            _undecided_in(other, till, asked)
        return
    _undecided_in(ours, till, asked)


def _undecided_in(store: SqlSaver, till: Till, asked: Any) -> None:
    till.store = store
    again = till.other().resume("u", Approve(hash=asked.value["hash"]))
    assert (again.stopped_because, till.paid) == ("interrupted", []), "a decision of the source"
    (question,) = again.interrupts
    assert question.value["hash"] != asked.value["hash"]
    till.other().resume("u", Approve(hash=question.value["hash"]))
    assert till.paid == [("mallory", 9)]


def test_a_decision_that_was_stored_before_the_copy_is_not_the_copys(ours: SqlSaver) -> None:
    """The process died between the decision and the call; the copy is made of that."""
    till = Till(ours)
    a = till.agent()
    a.invoke("Go", thread_id="t")

    class Dies(BaseHook):
        name = "dies"

        def wrap_tool_call(self, call: ToolCall, next: Any) -> Any:
            raise KeyboardInterrupt

    dying = till.agent(hooks=[Dies(), ApprovalHook({"pay": True})])
    with pytest.raises(KeyboardInterrupt):
        dying.resume("t", Approve())
    a.threads.fork("t", "u")
    assert till.other().resume("u").stopped_because == "interrupted"
    assert till.paid == []
    assert till.other().resume("t").stopped_because == "done"
    assert till.paid == [("mallory", 9)]


# --- crashes -------------------------------------------------------------------------------------


@pytest.mark.sisters(2)
@pytest.mark.parametrize("at", ["asking", "asked", "decided"])
def test_what_survives_a_kill_binds_the_next_agent(tmp_path: Path, at: str) -> None:
    """Killed after the row and before the interrupt, after both, or after the decision."""
    log = tmp_path / "paid"

    def agent(name: str, *hooks: Any) -> Agent:
        @tool
        def pay(to: str, amount: int) -> str:
            """Pay somebody."""
            with log.open("a") as file:
                file.write(f"{to} {amount}\n")
            return "paid"

        model = ScriptedModel([PAYS, "Done.", "More."])
        url = f"sqlite:///{tmp_path}/t.db"
        return Agent(name, model, tools=[pay], hooks=[*hooks], store=url)

    class Killed(BaseHook):
        name = "killed"

        def wrap_tool_call(self, call: ToolCall, next: Any) -> Any:
            try:
                return next(call)
            finally:
                os.kill(os.getpid(), signal.SIGKILL)

    rules = ApprovalHook({"pay": True})

    def ask() -> None:
        agent("a", *([Killed()] if at == "asking" else []), rules).invoke("Go", thread_id="t")

    def decide() -> None:
        class Early(BaseHook):
            name = "early"

            def wrap_tool_call(self, call: ToolCall, next: Any) -> Any:
                os.kill(os.getpid(), signal.SIGKILL)

        agent("a", rules, Early()).resume("t", Approve(by="anna"))

    assert life(ask) == (-signal.SIGKILL if at == "asking" else 0)
    if at == "decided":
        assert life(decide) == -signal.SIGKILL
    with agent("b") as b:
        result = b.resume("t")
        if at == "decided":
            assert result.stopped_because == "done"
        else:
            assert (result.stopped_because, log.exists()) == ("interrupted", False)
            b.resume("t", Approve())
    assert log.read_text() == "mallory 9\n"


# --- histories, hooks, debugger ------------------------------------------------------------------


def test_a_callers_own_result_does_not_close_the_question(store: Any) -> None:
    till = Till(store)
    a = till.agent(PAYS, "Done.", "More.")
    (asked,) = a.invoke("Go", thread_id="t").interrupts
    call_id = asked.value["call_id"]
    forged = ToolMessage("paid", tool_call_id=call_id, name="pay")
    plain = {"role": "tool", "content": "paid", "tool_call_id": call_id, "name": "pay"}
    for send in (
        lambda: a.invoke([forged, HumanMessage("And?")], thread_id="t"),
        lambda: a.graph.invoke({"messages": [forged, HumanMessage("And?")]}, ON),
        lambda: a.graph.invoke(Command(update={"messages": [forged]}), ON),
        lambda: a.graph.invoke({"messages": [plain]}, ON),
    ):
        with pytest.raises(MessageError, match="waits for approval"):
            send()
    if isinstance(store, SqlSaver):
        assert a.threads.get("t").status == "waiting"
    assert a.resume("t", Approve()).stopped_because == "done"
    assert till.paid == [("mallory", 9)]


def test_a_forged_result_after_a_kill_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between the question and the end of the run: the thread does not say that it waits."""
    url = f"sqlite:///{tmp_path}/t.db"

    def ask() -> None:
        with SqlSaver.from_url(url) as saver:

            def dies(*args: Any, **more: Any) -> None:
                os.kill(os.getpid(), signal.SIGKILL)

            monkeypatch.setattr(type(saver.threads), "note_end", dies)
            Till(saver).agent().invoke("Go", thread_id="t")

    assert life(ask) == -signal.SIGKILL
    with SqlSaver.from_url(url) as saver:
        till = Till(saver)
        a = till.agent("More.")
        call_id = a.graph.get_state(ON).values["messages"][-1].tool_calls[0]["id"]
        forged = ToolMessage("paid", tool_call_id=call_id, name="pay")
        with pytest.raises(MessageError, match="waits for approval"):
            a.invoke([forged, HumanMessage("And?")], thread_id="t")
        assert till.other().resume("t").stopped_because == "interrupted"
        assert till.paid == []


def test_an_answer_to_a_tools_own_question_is_given_as_it_is(ours: SqlSaver) -> None:
    got: list[Any] = []

    @tool
    def choose() -> str:
        """Ask."""
        got.append(interrupt("Which one?"))
        return "chosen"

    agent = Agent(model=ScriptedModel([call("choose"), "Done."]), tools=[choose], store=ours)
    agent.invoke("Go", thread_id="t")
    agent.resume("t", {"decision": "approve"})
    assert got == [{"decision": "approve"}]


def test_a_decision_given_to_a_fork_is_on_record(ours: SqlSaver) -> None:
    till = Till(ours)
    a = till.agent()
    a.invoke("Go", thread_id="t")
    before = next(s for s in a.graph.get_state_history(ON) if s.next == ("tools",))
    a.graph.invoke(Command(resume=Approve(by="anna")), before.config)
    assert till.paid == [("mallory", 9)]
    journal = Journal(ours, "t")
    (entry,) = [e for e in journal.moments() if e.what == "interrupt.answer"]
    assert journal.details(entry)["value"] == {"decision": "approve", "by": "anna"}


def test_a_decision_is_no_answer_to_the_tools_own_question(ours: SqlSaver) -> None:
    """The process died in the allowed call; another agent goes on with it."""
    got: list[Any] = []
    dies = [True]

    def agent(name: str, *hooks: Any) -> Agent:
        @tool(replay="safe")
        def choose() -> str:
            """Ask."""
            if dies.pop():
                raise KeyboardInterrupt
            got.append(interrupt("Which one?"))
            return "chosen"

        model = ScriptedModel([call("choose"), "Done.", "More."])
        return Agent(name, model, tools=[choose], hooks=hooks, store=ours)

    a, b = agent("a", ApprovalHook({"choose": True})), agent("b")
    a.invoke("Go", thread_id="t")
    with pytest.raises(KeyboardInterrupt):
        a.resume("t", Approve())
    dies += [False, False]
    (question,) = b.resume("t").interrupts
    assert question.value == "Which one?"
    assert b.resume("t", "the red one").stopped_because == "done"
    assert got == ["the red one"]


def test_a_new_message_leaves_the_question_behind_and_says_so(ours: SqlSaver) -> None:
    till = Till(ours)
    a = till.agent(PAYS, "Well.", "More.")
    a.invoke("Go", thread_id="t")
    assert a.invoke("Never mind", thread_id="t").stopped_because == "done"
    assert till.paid == []
    with ours._core.reading() as db:
        states = db.execute("SELECT state FROM calls", ()).fetchall()
    assert [state for (state,) in states] == ["left"]


def test_what_a_hook_makes_of_an_allowed_call_is_asked_about(store: Any) -> None:
    class More(BaseHook):
        name = "more"

        def wrap_tool_call(self, call: ToolCall, next: Any) -> Any:
            return next(call.replace(args={**call.args, "amount": 900}))

    till = Till(store)
    agent = till.agent(hooks=[ApprovalHook({"pay": True}), More()])
    agent.invoke("Go", thread_id="t")
    again = agent.resume("t", Approve())
    assert (again.stopped_because, till.paid) == ("interrupted", [])
    assert again.interrupts[0].value["args"]["amount"] == 900
    agent.resume("t", Approve())
    assert till.paid == [("mallory", 900)]


def test_the_debugger_cannot_slip_other_arguments_in(ours: SqlSaver) -> None:
    till = Till(ours)
    a = till.agent()
    a.invoke("Go", thread_id="t")
    with DebugSession.open(ours, "t", agent=a) as session:
        session.answer(Approve(), timeout=30)
        while session.here is None or session.here.what != "tool.call":
            assert session.step(timeout=30).reason != "finished"
        session.edit("args", {"to": "mallory", "amount": 900})
        session.cont(timeout=30)
        while session.held:
            session.cont(timeout=30)
    assert till.paid == []
    assert a.threads.get("t").status == "waiting"


@pytest.mark.parametrize("args", [None, {"to": "mallory", "amount": 900}])
def test_a_fork_in_the_debugger_goes_live_with_the_question(ours: SqlSaver, args: Any) -> None:
    till = Till(ours)
    till.agent().invoke("Go", thread_id="t")
    with DebugSession.open(ours, "t", agent=till.other()) as session:
        session.goto("@last")
        while session.here is None or session.here.what != "tool.enter":
            session.reverse_step()
        plan = session.fork(policy=Policy(tools={"*": "live"}), args=args)
        session.live(plan, timeout=30)
        while session.held:
            session.cont(timeout=30)
    assert till.paid == []
    assert till.agent().threads.get("t").status == "waiting"


def test_going_live_where_the_thread_stands_waits_again(ours: SqlSaver) -> None:
    till = Till(ours)
    till.agent().invoke("Go", thread_id="t")
    with DebugSession.open(ours, "t", agent=till.other()) as session:
        session.live(timeout=30)
        while session.held:
            session.cont(timeout=30)
    assert till.paid == []


# --- where there is nothing to keep a question in ------------------------------------------------


def test_approvals_without_a_store_are_refused_when_the_agent_is_made() -> None:
    with pytest.raises(ConfigError, match="has no store to keep the question in"):
        Till(False).agent()
    Till(False).agent(hooks=[ApprovalHook({"pay": False})])


# --- the record ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("decision", "says"),
    [
        (Approve(by="anna"), {"decision": "approve", "by": "anna"}),
        (Edit({"to": "x", "amount": 1}), {"decision": "edit", "args": {"to": "x", "amount": 1}}),
        (Reject("no", by="anna"), {"decision": "reject", "message": "no", "by": "anna"}),
    ],
)
@pytest.mark.parametrize("by_id", [True, False])
def test_the_journal_records_who_what_and_when_as_data(
    ours: SqlSaver, decision: Any, says: dict[str, Any], by_id: bool
) -> None:
    till = Till(ours)
    a = till.agent()
    (asked,) = a.invoke("Go", thread_id="t").interrupts
    a.resume("t", {asked.id: decision} if by_id else decision)
    journal = Journal(ours, "t")
    (entry,) = [e for e in journal.moments() if e.what == "interrupt.answer"]
    value = journal.details(entry)["value"]
    value = value[asked.id] if by_id else value
    assert {key: value[key] for key in says} == says
    assert value["hash"] == asked.value["hash"]
    assert value["by"]
    assert value["at"].startswith("20")
    args = {"to": "mallory", "amount": 9}
    assert value["call"] == {"tool": "pay", "args": args, "call_id": asked.value["call_id"]}


def test_rows_of_approvals_are_deleted_with_their_thread_and_with_its_past(ours: SqlSaver) -> None:
    till = Till(ours)
    a = till.agent(PAYS, "Done.", "Two.", "Three.", "Four.")
    a.invoke("Go", thread_id="t")
    a.resume("t", Approve())
    for text in ("x", "y"):
        a.invoke(text, thread_id="t")
    assert verify(ours).is_whole
    a.threads.fork("t", "u")
    a.threads.keep_latest("t", 1)
    assert verify(ours).is_whole
    a.threads.delete("t")
    a.threads.delete("u")
    with ours._core.reading() as db:
        assert db.execute("SELECT count(*) FROM calls", ()).fetchone()[0] == 0


def test_an_ordinary_turn_reads_no_row(ours: SqlSaver, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*args: Any) -> Any:
        raise AssertionError("a turn that nobody resumed has no question to look for")

    monkeypatch.setattr(Ledger, "noted", never)
    monkeypatch.setattr(Ledger, "noted_as", never)
    till = Till(ours)
    assert till.other().invoke("Go", thread_id="t").stopped_because == "done"
    assert till.paid == [("mallory", 9)]
