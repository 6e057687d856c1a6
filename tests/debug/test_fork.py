"""Forks and replays: what is executed is told beforehand, and the past never changes."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import pytest
from langchain_core.messages import AIMessage

from tests.debug.conftest import Opener
from tests.debug.support import WAIT, World, three_calls
from tests.journal.support import Guard, Todo
from wick_graph import Agent, tool
from wick_graph.debug import DebugSession, Mock, Policy, Stop
from wick_graph.errors import DebugError, ReplayError
from wick_graph.testing import ScriptedModel, call

FINISHED = "finished"


def hooks() -> list[Any]:
    return [Todo(), Guard()]


def rest(session: DebugSession, stop: Stop, answer: Any = None) -> Stop:
    """Let a run go on to its end; questions are answered."""
    while stop.reason not in (FINISHED, "failed", "cancelled", "interrupt"):
        asked = stop.reason in ("ask", "divergence") and answer is not None
        stop = session.accept(answer, timeout=WAIT) if asked else session.cont(timeout=WAIT)
    return stop


def rows_of(url: str) -> dict[str, set[Any]]:
    """Return every row of every table that a recording is made of."""
    tables = ("checkpoints", "writes", "moments", "blobs", "items", "runs", "calls")
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as db, db:
        found = {name: set(db.execute(f"SELECT * FROM {name}")) for name in tables}
    db.close()
    return found


@pytest.fixture
def forked(world: World, url: str) -> Any:
    """An agent with a finished run of one call, and a session over it."""
    script = [call("add", a=1, b=1), "Done.", "Otherwise.", "Third.", "Fourth."]
    agent, model = world.agent(url, *script)
    agent.invoke("go", thread_id="t")
    with agent, DebugSession.open(agent, "t") as session:
        yield session, world, model


def content(session: DebugSession) -> list[str]:
    return [message["content"] for message in session.inspect.state("messages", "@last")]


@pytest.mark.parametrize(
    ("at", "edit", "expected", "added"),
    [
        pytest.param(
            "@4",
            {"args": {"a": 5, "b": 5}},
            ["go", "", "10!", "Done."],
            [(1, 11), (5, 5)],
            id="M5-args",
        ),
        pytest.param("@4", {"result": "99"}, ["go", "", "99!", "Done."], [(1, 11)], id="M5-result"),
        pytest.param(
            "@6.4",
            {"response": "By hand."},
            ["go", "", "12!", "By hand."],
            [(1, 11)],
            id="M5-reply",
        ),
        pytest.param(
            "@6",
            {"state": {"messages[2].content": "13"}},
            ["go", "", "13", "Done."],
            [(1, 11)],
            id="M5-state",
        ),
        pytest.param(
            "@6.4",
            {"request": {"system": "Be brief."}},
            ["go", "", "12!", "Done."],
            [(1, 11)],
            id="M5-prompt",
        ),
    ],
)
def test_a_fork_goes_on_with_the_edit_and_leaves_the_past_alone(
    at: str, edit: dict[str, Any], expected: list[str], added: list[Any], forked: Any, url: str
) -> None:
    session, world, _ = forked
    before, lines = (
        rows_of(url),
        [session.inspect.line(entry) for entry in session.inspect.moments()],
    )
    session.goto(at)
    plan = session.fork(**edit)
    assert rows_of(url) == before, "preparing writes nothing"
    assert plan.text.startswith(f"branch b1 from t/b0{at}: ")
    stop = session.live(plan, timeout=WAIT)
    assert (stop.mode, session.branch) == ("FORK", 1)
    assert rest(session, stop).reason == FINISHED
    assert content(session) == expected
    assert world.added == added
    after = rows_of(url)
    assert all(rows <= after[name] for name, rows in before.items()), "the past is as it was"
    assert [(b.number, b.parent) for b in session.inspect.branches()] == [(0, None), (1, 0)]
    session.choose(0)
    assert [session.inspect.line(entry) for entry in session.inspect.moments()] == lines
    assert content(session) == ["go", "", "12!", "Done."]
    compared = session.compare(0, 1)
    assert compared.first is not None
    assert ("another request" in compared.first) is bool({"state", "request"} & set(edit))
    assert all(seconds > 0 for seconds in compared.seconds)


@pytest.mark.parametrize("row", ["M5"])
def test_branches_of_branches_are_a_tree(row: str, forked: Any) -> None:
    session, world, _ = forked
    for branch, at, result in ((0, "@4", "one"), (1, "@6", None), (0, "@4", "two")):
        session.choose(branch)
        session.goto(at)
        plan = session.fork(result=result) if result else session.fork()
        assert rest(session, session.live(plan, timeout=WAIT)).reason == FINISHED
    told = [(b.number, b.parent, b.moments > 0) for b in session.inspect.branches()]
    assert told == [(0, None, True), (1, 0, True), (2, 1, True), (3, 0, True)]
    texts = {}
    for branch in range(4):
        session.choose(branch)
        texts[branch] = content(session)[2]
    assert texts == {0: "12!", 1: "one!", 2: "one!", 3: "two!"}
    assert world.added == [(1, 11)]


@pytest.mark.parametrize("row", ["M5"])
def test_a_prompt_is_edited_for_one_request(row: str, forked: Any) -> None:
    session, world, model = forked
    session.goto("@6.3")
    assert session.here.what == "model.request"
    before = len(model.calls)
    plan = session.fork(request={"system": "Be brief.", "settings": {"temperature": 0.1}})
    rest(session, session.live(plan, timeout=WAIT))
    [asked] = model.calls[before:]
    assert asked.messages[0].content == "Be brief."
    assert session.executed == (1, 0)
    assert world.added == [(1, 11)]
    assert ("debugger", "Be brief.") in session.request(
        session.inspect.moments("model.replaced")[0]
    ).system


@pytest.mark.parametrize("row", ["B7"])
def test_the_preview_says_what_will_be_executed(row: str, forked: Any) -> None:
    session, _, _ = forked
    session.goto("@3.3")
    planned = session.will_execute()
    assert [(one.step, one.kind, one.name, one.policy) for one in planned] == [
        (3, "node", "model", "live"),
        (3, "model", "scripted", "recorded"),
        (4, "node", "tools", "live"),
        (4, "tool", "add", "recorded"),
        (5, "node", "modify_request", "live"),
        (6, "node", "model", "live"),
        (6, "model", "scripted", "recorded"),
    ]
    assert [one.side_effects for one in planned if one.kind == "tool"] == [True]
    assert all(one.tokens for one in planned if one.kind == "model")
    policy = Policy(model="live", tools={"a*": Mock("0")})
    assert [one.policy for one in session.will_execute(policy=policy) if one.kind != "node"] == [
        *("live", "mock", "live")
    ]
    assert "2 models, 1 tool would execute" in session.fork(policy=policy).text


@pytest.mark.parametrize(
    ("policy", "answer", "stops", "added", "text"),
    [
        pytest.param(Policy(), None, [], [(1, 11)], "12!", id="B7-recorded"),
        pytest.param(
            Policy(tools={"add": "live"}), None, [], [(1, 11), (1, 11)], "12!", id="B7-live"
        ),
        pytest.param(
            Policy(tools={"add": Mock({"error": "no"})}),
            None,
            [],
            [(1, 11)],
            "Error: no",
            id="B7-mock",
        ),
        pytest.param(
            Policy(other="ask"), "recorded", ["ask"], [(1, 11)], "12!", id="B7-ask-recorded"
        ),
        pytest.param(
            Policy(other="ask"), "live", ["ask"], [(1, 11), (1, 11)], "12!", id="B7-ask-live"
        ),
        pytest.param(Policy(other="ask"), Mock("7"), ["ask"], [(1, 11)], "7!", id="B7-ask-value"),
    ],
)
def test_each_tool_is_treated_by_its_policy(
    policy: Policy, answer: Any, stops: list[str], added: list[Any], text: str, forked: Any
) -> None:
    session, world, _ = forked
    session.goto("@4")
    stop = session.live(session.fork(policy=policy), timeout=WAIT)
    seen = []
    while stop.reason not in (FINISHED, "failed"):
        stop = session.cont(timeout=WAIT)
        if stop.reason in ("ask", "divergence"):
            assert session.cont(timeout=WAIT).reason == stop.reason, "it is not passed over"
            seen.append(stop.reason)
            stop = session.accept(answer, timeout=WAIT)
    assert seen == stops
    assert world.added == added
    assert content(session)[2] == text


def test_a_tool_with_effects_that_was_not_recorded_is_asked_about(forked: Any) -> None:
    session, world, _ = forked
    session.goto("@3.3")
    calls = [{"id": "c9", "name": "add", "args": {"a": 8, "b": 8}}]
    plan = session.fork(response={"content": "", "tool_calls": calls})
    stop = session.live(plan, timeout=WAIT)
    while stop.reason not in ("ask", FINISHED):
        stop = session.cont(timeout=WAIT)
    assert stop.reason == "ask"
    assert "recorded were" in stop.text
    with pytest.raises(DebugError, match="nothing for this call"):
        session.accept("recorded")
    assert world.added == [(1, 11)]
    assert rest(session, session.accept("live", timeout=WAIT)).reason == FINISHED
    assert world.added == [(1, 11), (8, 18)]


def test_a_fork_of_a_parallel_step_runs_no_sibling_again(world: World, url: str) -> None:
    agent, _ = world.agent(url, *three_calls(), "More.")
    agent.invoke("add them", thread_id="t")
    assert len(world.added) == 3
    with agent, DebugSession.open(agent, "t") as session:
        session.breakpoints.break_("tool:add", "args.a == 2")
        session.cont()
        plan = session.fork(args={"a": 2, "b": 40})
        for told in (plan, plan.with_policy(Policy(tools={"add": "ask"}))):
            made = [(one.policy, one.text) for one in told.will_execute if one.edited]
            assert made == [
                ("live", "tool add: really called with other arguments; it has side effects")
            ]
        assert [one.policy for one in plan.will_execute if one.name == "add"].count("live") == 1
        assert "add=recorded, add=live" in plan.text or "add=live, add=recorded" in plan.text
        session.breakpoints.delete(1)
        assert rest(session, session.live(plan, timeout=WAIT)).reason == FINISHED
        assert world.added[3:] == [(2, 40)]
        assert sorted(content(session)[2:5]) == [
            "12!",
            "42!",
            "Error: negative numbers are not added",
        ]


@pytest.mark.parametrize(
    "edit",
    [
        {"at": "@2", "args": {"a": 1}},
        {"at": "@2", "result": "x"},
        {"at": "@4", "response": "x"},
        {"at": "@4", "state": {"nothing": 1}},
        {"at": "@4", "state": {"messages[9].content": "x"}},
        {"at": "@last"},
        {"at": "@4", "args": {"a": 1, "b": 1}, "result": "x"},
        {"at": "@6.4", "request": {"system": "?"}, "response": "x"},
        {"at": "@4.5", "args": 3},
        {"at": "@3.3", "request": {"messages": 3}},
        {"at": "@3.3", "request": {"settings": 3}},
        {"at": "@3.3", "request": {"other": 3}},
    ],
)
def test_a_fork_that_cannot_be_is_refused(edit: dict[str, Any], forked: Any, url: str) -> None:
    session, _, _ = forked
    before = rows_of(url)
    with pytest.raises(DebugError):
        session.fork(**edit)
    assert rows_of(url) == before


def test_what_a_given_reply_and_another_request_execute_is_told(forked: Any) -> None:
    session, _, _ = forked
    asked = next(e for e in session.inspect.moments() if e.what == "model.request")
    for edit, policy in (({"response": "x"}, "mock"), ({"request": {"system": "?"}}, "live")):
        plan = session.fork(f"#{asked.seq}", **edit)
        models = [one for one in plan.will_execute if one.kind == "model"]
        assert [(one.policy, one.edited) for one in models] == [
            (policy, True),
            ("recorded", False),
        ]


@pytest.mark.parametrize("state", [{"messages": 3}, {"usage": 4}, {"messages": [None]}])
def test_a_state_that_the_graph_refuses_leaves_no_copy(
    state: dict[str, Any], forked: Any, url: str
) -> None:
    session, _, _ = forked
    before = rows_of(url)
    with pytest.raises(DebugError, match="the graph refuses this state"):
        session.live(session.fork("@4", state=state), timeout=WAIT)
    assert rows_of(url) == before


# --- replays -----------------------------------------------------------------------------------


@pytest.mark.parametrize("door", ["sync", "async"])
@pytest.mark.parametrize("row", ["M6"])
def test_a_replay_calls_no_model_and_no_tool(row: str, door: Any, world: World, url: str) -> None:
    agent, model = world.agent(url)
    agent.invoke("add them", thread_id="t")
    asked, added = len(model.calls), list(world.added)
    with agent, DebugSession.open(agent, "t") as session:
        before = rows_of(url)
        stop = session.replay(door=door, timeout=WAIT)
        child = session.replayed
        assert child is not None
        assert (stop.reason, child.executed) == (FINISHED, (0, 0))
        assert (len(model.calls), world.added) == (asked, added)
        assert session.compare(session, child).first is None
        assert rows_of(url) == before
        assert len(child.inspect.moments()) >= len(session.inspect.moments())
        child.close()


@pytest.mark.parametrize("row", ["M6"])
def test_a_replay_stops_where_the_code_of_today_asks_something_else(
    row: str, world: World, url: str
) -> None:
    agent, model = world.agent(url)
    agent.invoke("add them", thread_id="t")
    asked, added = len(model.calls), list(world.added)
    other = Agent(
        "adder",
        model,
        hooks=hooks(),
        system_prompt="Subtract.",
        tools=[tool(world.add)],
        store=False,
    )
    with agent, DebugSession.open(agent, "t", agent=other) as session:
        assert any("another prompt" in banner for banner in session.banners)
        stop = session.replay(timeout=WAIT)
        assert stop.reason == "divergence"
        assert stop.mode == "REPLAY"
        assert "-system: You add numbers." in stop.text
        assert "+system: Subtract." in stop.text
        child = session.replayed
        assert child is not None
        assert child.here is not None
        assert child.here.what == "model.request"
        assert (len(model.calls), world.added) == (asked, added)
        assert child.accept(Mock("I refuse."), timeout=WAIT).reason == FINISHED
        assert child.executed == (0, 0)
        first = session.compare(session, child).first
        assert first is not None
        assert "I refuse." in first
        child.close()


def test_a_replay_needs_a_recording_and_an_agent(opened: Opener, world: World) -> None:
    with pytest.raises(DebugError, match="no agent"):
        opened().replay()
    agent, _ = world.agent(None, hooks=[])
    with agent, pytest.raises(DebugError, match="without a journal"):
        DebugSession(agent).replay()
    silent, _ = world.agent(None, "Done.", journal="off")
    with silent:
        silent.invoke("go", thread_id="t")
        with (
            DebugSession.open(silent, "t") as session,
            pytest.raises(ReplayError, match="no journal"),
        ):
            session.replay()


def test_mocks_hold_for_later_forks(forked: Any) -> None:
    session, world, _ = forked
    session.policy = session.policy.with_tool("add", Mock("5"))
    session.goto("@4")
    rest(session, session.live(session.fork(), timeout=WAIT))
    assert content(session)[2] == "5!"
    assert world.added == [(1, 11)]
    with pytest.raises(DebugError, match="no policy"):
        Policy(model="sometimes")  # type: ignore[arg-type]  # that is the test


def test_a_prepared_fork_has_the_policy_that_was_set_last(forked: Any) -> None:
    session, world, _ = forked
    session.goto("@4")
    plan, own = session.fork(), session.fork(policy=Policy())
    session.policy = session.policy.with_tool("add", Mock("5"))
    rest(session, session.live(plan, timeout=WAIT))
    assert content(session)[2] == "5!"
    rest(session, session.live(own, timeout=WAIT))
    assert content(session)[2] == "12!", "a policy of its own stays"
    assert world.added == [(1, 11)]


def test_a_plan_under_another_policy_says_what_it_then_executes(forked: Any) -> None:
    session, world, _ = forked
    first = session.fork("@4")
    policy = Policy(model="live", tools={"add": Mock("5")})
    plan = first.with_policy(policy)
    assert plan == session.fork("@4", policy=policy)
    assert first.will_execute == session.will_execute("@4"), "a plan itself never changes"
    rest(session, session.live(plan, timeout=WAIT))
    assert content(session) == ["go", "", "5!", "Done."]
    assert (world.added, session.executed) == ([(1, 11)], (1, 0))


def test_two_versions_of_the_code_are_compared_on_one_recording(world: World, url: str) -> None:
    """B9, across code versions: the first difference is named, at no call."""
    agent, model = world.agent(url)
    agent.invoke("add them", thread_id="t")
    changed = Agent(
        "adder",
        ScriptedModel([]),
        hooks=hooks(),
        system_prompt="?",
        tools=[tool(world.add)],
        store=False,
    )
    with agent, DebugSession.open(agent, "t") as session:
        session.replay(timeout=WAIT)
        same = session.replayed
        session.replay(agent=changed, policy=Policy(model=Mock("None.")), timeout=WAIT)
        other = session.replayed
        assert same is not None
        assert other is not None
        assert session.compare(same, session).first is None
        assert "None." in str(session.compare(session, other).first)
        assert len(model.calls) == 2
        for child in (same, other):
            child.close()


def test_parallel_visits_are_compared_call_by_call(world: World, url: str) -> None:
    """Threads begin them in any order; here the replies tell another order, with the same ids."""
    first, _ = world.agent(url, *three_calls())
    reply = first.invoke("add them", thread_id="t").messages[1]
    turned = AIMessage("", tool_calls=reply.tool_calls[::-1])  # type: ignore[attr-defined]  # a reply
    other, _ = world.agent(url, turned, "Done.")
    other.invoke("add them", thread_id="u")
    with first, other, DebugSession.open(first, "t") as one, DebugSession.open(other, "u") as two:
        rows = [row for row in one.compare(one, two).rows if row.node == "tools"]
    assert [(row.visit, row.same) for row in rows] == [(1, True), (2, True), (3, True)]
    assert [row.a for row in rows] == [row.b for row in rows]
