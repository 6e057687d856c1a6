"""Every kind of moment of a run with two hooks and three parallel tools, in both doors."""

from __future__ import annotations

import random
import threading
import traceback
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import pytest
from langgraph.types import interrupt

from tests.engine.support import Door
from tests.journal.conftest import Opener
from tests.journal.support import agent_of
from wick_graph import Agent, BaseHook, ToolResult, Verdict, events
from wick_graph.core.moments import Kind, Moment, Place
from wick_graph.errors import HookError, WickError
from wick_graph.journal import Entry, Journal
from wick_graph.journal.page_format import DEPTH, ENDS, KINDS, OPENS, UP
from wick_graph.journal.recorder import BranchCounters, Writer, plans_of
from wick_graph.store import SqlSaver
from wick_graph.testing import ScriptedModel, call, rate_limit


def recorded(door: Door, url: str, opened: Opener, **options: Any) -> tuple[Journal, list[Entry]]:
    agent, _ = agent_of(url, **options)
    door(agent, "add", thread_id="t")
    agent.close()
    journal = opened()
    return journal, list(journal.moments())


def test_every_moment_of_the_run_is_there_once(door: Door, url: str, opened: Opener) -> None:
    _, moments = recorded(door, url, opened)
    assert [m.seq for m in moments] == list(range(1, len(moments) + 1))
    model = {"hook.enter": 3, "hook.exit": 3, "node.enter": 2, "node.exit": 2}
    model |= {"model.request": 1, "model.response": 1, "route.taken": 1}
    tools = {f"tool.{phase}": 3 for phase in ("enter", "call", "return", "exit")}
    tools |= {"hook.enter": 6, "hook.exit": 6, "node.enter": 3, "node.exit": 3}
    start = {"run.enter": 1, "run.exit": 1, "node.enter": 1, "node.exit": 1}
    start |= {"hook.enter": 1, "hook.exit": 1}
    expected = Counter(start) + Counter(model) + Counter(model) + Counter(tools)
    assert Counter(m.what for m in moments) == expected


def test_moments_hang_together(door: Door, url: str, opened: Opener) -> None:
    _, moments = recorded(door, url, opened)
    by_seq = {m.seq: m for m in moments}
    for moment in moments[1:]:
        parent = by_seq[moment.parent or 0]
        assert parent.seq < moment.seq
        if moment.is_end:
            assert (parent.kind, parent.depth) == (moment.kind, moment.depth) or (
                moment.what == "tool.return"
            )
            assert moment.duration_us == moment.at_us - parent.at_us
        else:
            assert moment.depth == parent.depth + 1
        assert parent.task in (None, moment.task) or moment.kind == "run"
    frames = []
    inner = next(m for m in moments if m.what == "tool.call")
    while inner.parent is not None:
        frames.append(inner.name)
        inner = by_seq[inner.parent]
    assert frames == ["add", "guard", "todo", "add", "tools"]
    assert inner.what == "run.enter"


def test_each_visit_of_a_node_is_a_step(door: Door, url: str, opened: Opener) -> None:
    agent, _ = agent_of(url, hooks=[])
    door(agent, "add", thread_id="t")
    agent.close()
    entered = list(opened().moments(kind="node.enter"))
    names = ["before_agent", "modify_request", "model", *["tools"] * 3, "modify_request", "model"]
    assert [m.name for m in entered] == names
    assert [m.step for m in entered] == list(range(1, 9))
    assert [m.visit for m in entered] == [1, 1, 1, 1, 2, 3, 2, 2]
    assert [m.superstep for m in entered] == [1, 2, 3, 4, 4, 4, 5, 6]


def test_parallel_calls_are_told_apart(door: Door, url: str, opened: Opener) -> None:
    journal, moments = recorded(door, url, opened)
    for call_id in {m.call_id for m in moments if m.kind == "tool"}:
        own = [m for m in moments if m.call_id == call_id and m.kind in ("tool", "hook")]
        assert len({m.task for m in own}) == 1
        assert [m.what for m in own] == [
            *("tool.enter", "hook.enter", "hook.enter", "tool.call"),
            *("tool.return", "hook.exit", "hook.exit", "tool.exit"),
        ]
        enter = journal.details(own[0])["args"]
        assert journal.details(own[2])["change"] == {
            "by": "todo",
            "args": {**enter, "b": enter["b"] + 10},
        }
        call_ = journal.details(own[3])
        assert (call_["changed"], call_["replay"]) == (True, "never")
        assert call_["args"] == {**enter, "b": 11}
        exit_ = journal.details(own[-1])
        if enter["a"] < 0:
            assert exit_["error"] == "negative numbers are not added"
            assert own[-1].status == "error"
            assert "change" not in journal.details(own[5])
        else:
            plain = f"{enter['a'] + 11:g}"
            assert (exit_["output"], exit_["before_hooks"]) == (plain + "!", {"output": plain})
            change = journal.details(own[5])["change"]
            assert change == {"by": "guard", "result": {"output": plain + "!"}}


def test_replies_routes_and_writes_are_told(door: Door, url: str, opened: Opener) -> None:
    agent, model = agent_of(url)
    result = door(agent, "add", thread_id="t")
    agent.close()
    journal = opened()
    replies = [journal.details(m) for m in journal.moments(kind="model.response")]
    assert [r["reply"].text for r in replies] == ["", "Done."]
    assert [c["args"]["a"] for c in replies[0]["reply"].tool_calls] == [1, 2, -3]
    assert [r["finish_reason"] for r in replies] == ["tool_calls", "stop"]
    assert sum(r["usage"]["total_tokens"] for r in replies) == result.usage.total_tokens
    routes = [journal.details(m) for m in journal.moments(kind="route")]
    assert [(r["chosen"], r["calls"]) for r in routes] == [("route: tools", 3), ("route: end", 0)]
    assert routes[0]["reason"] == "the reply calls 3 tool(s)"
    first = [next(c["predicate"] for c in r["candidates"] if c["result"]) for r in routes]
    assert first == ["the reply calls tools", "the reply calls no tool"]
    assert {c["reads"] for c in routes[0]["candidates"]} == {"messages", "stop_reason"}
    exits = {m.step: m for m in journal.moments(kind="node.exit")}
    wrote = {(w["channel"], w.get("path")): w for w in journal.details(exits[3])["writes"]}
    assert wrote["messages", result.messages[1].id]["op"] == "append"
    assert wrote["iteration", None]["value"] == 1
    assert [w["channel"] for w in journal.details(exits[1])["writes"]][-1] == "memory"
    assert journal.details(next(journal.moments(kind="hook.exit")))["update"] == [
        {"channel": "memory", "op": "set", "path": "notes"}
    ]
    assert len(model.calls) == 2


def test_a_reply_that_is_not_kept_as_it_came_is_kept_in_the_journal(
    door: Door, url: str, opened: Opener
) -> None:
    class Shout(BaseHook):
        name = "shout"

        def wrap_model_call(self, request: Any, next: Any) -> Any:
            reply = next(request)
            return reply.model_copy(update={"content": reply.text.upper()})

    agent, _ = agent_of(url, hooks=[Shout()], model=ScriptedModel(["soft"]))
    assert door(agent, "?", thread_id="t").text == "SOFT"
    agent.close()
    journal = opened()
    response = next(journal.moments(kind="model.response"))
    assert journal.details(response)["reply"].text == "soft"
    change = next(
        journal.details(m)["change"]
        for m in journal.moments(kind="hook.exit")
        if m.hook_phase == "wrap_model_call"
    )
    assert (change["by"], change["reply"].text) == ("shout", "SOFT")


def test_a_verdict_and_an_answer_of_a_hook_are_told(door: Door, url: str, opened: Opener) -> None:
    class Refuse(BaseHook):
        name = "refuse"

        def after_model(self, message: Any, ctx: Any) -> Any:
            answers: dict[str, Any] = {c["id"]: "not now" for c in message.tool_calls}
            return Verdict(answers=answers) if answers else None

    class Stand(BaseHook):
        name = "stand"

        def wrap_tool_call(self, call: Any, next: Any) -> Any:
            return ToolResult(call.id, call.name, "instead")

    script: list[Any] = [call("add", a=1, b=1), "ok"]
    journal, moments = recorded(door, url, opened, hooks=[Refuse()], model=ScriptedModel(script))
    first = next(m for m in moments if m.what == "hook.exit")
    assert journal.details(first)["verdict"]["answers"] == {"call_1_1": "not now"}
    agent, _ = agent_of(url, hooks=[Stand()], model=ScriptedModel(script))
    door(agent, "?", thread_id="u")
    agent.close()
    other = opened("u")
    own = [m.what for m in other.moments() if m.call_id is not None and m.kind != "node"]
    assert own == ["tool.enter", "hook.enter", "hook.exit", "tool.exit"]
    stood = other.details(next(other.moments(kind="tool.exit")))
    assert stood == {"output": "instead"}


def test_a_failed_run_says_where_and_why(door: Door, url: str, opened: Opener) -> None:
    class Broken(BaseHook):
        name = "broken"

        def wrap_tool_call(self, call: Any, next: Any) -> Any:
            raise RuntimeError("no luck")

    agent, _ = agent_of(url, hooks=[Broken()])
    with pytest.raises(HookError, match="no luck"):
        door(agent, "add", thread_id="t")
    agent.close()
    journal = opened()
    errors = [(m.what, m.error) for m in journal.moments() if m.phase == "error"]
    assert errors[0] == ("hook.error", "RuntimeError: no luck")
    assert {what for what, _ in errors} == {"hook.error", "tool.error", "node.error", "run.error"}
    [run] = journal.runs()
    assert (run.status, run.stopped_because) == ("failed", "failed")


@pytest.mark.filterwarnings("error")
def test_an_answer_of_a_hook_that_is_refused_is_a_moment_too(
    url: str, opened: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    class Odd(BaseHook):
        name = "odd"

        def after_model(self, response: Any, ctx: Any) -> Any:
            return {"a set", "has a method", "update"}

    agent, _ = agent_of(url, hooks=[Odd()])
    with pytest.raises(HookError, match="odd"):
        agent.invoke("add", thread_id="t")
    agent.close()
    assert "was not recorded" not in caplog.text
    assert "hook.exit" in {m.what for m in opened().moments() if "odd" in repr(m)}


def test_retries_are_moments(door: Door, url: str, opened: Opener) -> None:
    model = ScriptedModel([rate_limit(retry_after=0), "ok"])
    journal, moments = recorded(door, url, opened, hooks=[], model=model)
    [again] = [m for m in moments if m.what == "model.retry"]
    assert "rate limit" in (again.error or "")
    assert journal.details(again)["delay"] >= 0


def test_readers_of_events_and_the_journal_hear_the_same_run(url: str, opened: Opener) -> None:
    agent, _ = agent_of(url)
    heard = [event.event for event in agent.stream("add", thread_id="t")]
    assert isinstance(heard, list)
    assert heard.count(events.ToolEnd.event) == 3
    assert heard[-1] == "done"
    agent.close()
    journal = opened()
    assert [m.status for m in journal.moments(kind="tool.exit")].count("error") == 1
    first, last = (journal.details(m) for m in journal.moments(kind="model.response"))
    assert last["chunks"] >= 1
    assert last["first_token_us"] >= 0
    assert "chunks" not in first  # a reply of calls alone has no text to stream


def test_pieces_are_counted_over_the_commits_of_a_run(url: str, opened: Opener) -> None:
    model = ScriptedModel(["one two three four"], chunk_delay=0.03)  # deferred writes wait 0.02
    agent, _ = agent_of(url, hooks=[], model=model)
    heard = [e for e in agent.stream("?", thread_id="t") if type(e) is events.ChatModelStream]
    agent.close()
    journal = opened()
    [reply] = [journal.details(m) for m in journal.moments(kind="model.response")]
    assert reply["chunks"] == len(heard) > 1


def test_full_keeps_the_pieces_of_a_reply(url: str, opened: Opener) -> None:
    for thread, level in (("t", "full"), ("u", "steps")):
        agent, _ = agent_of(url, hooks=[], model=ScriptedModel(["one two three"]), journal=level)
        list(agent.stream("?", thread_id=thread))
        agent.close()
    journal = opened("t")
    pieces = [journal.details(m)["text"] for m in journal.moments(kind="model.chunk")]
    assert "".join(pieces) == "one two three"
    assert not list(opened("u").moments(kind="model.chunk"))


def test_off_writes_nothing(door: Door, url: str, opened: Opener) -> None:
    agent, _ = agent_of(url, journal="off")
    assert door(agent, "add", thread_id="t").text == "Done."
    agent.close()
    journal = opened()
    assert journal.runs() == []
    assert list(journal.moments()) == []
    assert journal.size() == 0


def test_moments_are_chosen_by_run_kind_and_number(url: str, opened: Opener) -> None:
    agent, _ = agent_of(url, hooks=[], model=ScriptedModel(["one", "two", "three"]))
    ids = [agent.invoke("?", thread_id="t").run_id for _ in range(3)]
    agent.close()
    journal = opened()
    every = list(journal.moments())
    assert [r.run_id for r in journal.runs()] == ids
    second = list(journal.moments(run=ids[1]))
    assert second == [m for m in every if m.run == 2]
    assert [m.what for m in journal.moments(run=3, kind="model")] == [
        "model.request",
        "model.response",
    ]
    assert list(journal.moments(after=5, limit=3)) == every[5:8]
    assert list(journal.backwards()) == every[::-1]
    assert list(journal.backwards(7)) == every[:6][::-1]
    assert journal.moment(9) == every[8]
    assert journal.last() == every[-1].seq


class Bringing(BaseHook):
    """Bring a tool, and note where it is asked for it."""

    name = "bringing"

    def __init__(self, then: Callable[[], Any]) -> None:
        self.threads: list[str] = []
        self.frames: list[str] = []
        self.then = then

    def tools(self, state: Any) -> Any:
        self.threads.append(threading.current_thread().name)
        self.frames += [frame.filename for frame in traceback.extract_stack()]
        self.then()
        return (brought,)


def brought() -> str:
    """Bring."""
    return "brought"


def own() -> str:
    """Own."""
    return "own"


def test_who_writes_asks_no_hook_for_its_tools(
    door: Door, url: str, opened: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    """A hook may write to the store where it is asked; the record says who brought which tool."""
    store = SqlSaver.from_url(url)
    Agent("a", ScriptedModel(["x"]), store=store).invoke("q", thread_id="other")
    hook = Bringing(lambda: store.threads.pin("other"))
    model = ScriptedModel([call("own"), call("brought"), "done"])
    with Agent("a", model, tools=[own], hooks=[hook], store=store) as agent:
        door(agent, "hi", thread_id="t")
    assert "wick-flush" not in hook.threads
    assert not [name for name in hook.frames if "/wick_graph/journal/" in name]
    assert not caplog.records
    journal = opened()
    assert len(list(journal.moments(kind="model.request"))) == 3
    asked = next(journal.moments(kind="model.request"))
    made = {b.value: b.by for b in journal.blame(asked.seq) if b.part == "tool"}
    assert made == {"own": "agent", "brought": "bringing"}


def test_an_error_that_cannot_be_shown_is_a_moment_too(
    door: Door, url: str, opened: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither one whose own text raises, nor a question that is nested 100,000 levels deep."""

    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    def mute() -> str:
        """Fail without words."""
        raise Mute

    def ask() -> str:
        """Ask with too much."""
        value: Any = 1
        for _ in range(100_000):
            value = [value]
        return str(interrupt(value))

    model = ScriptedModel([call("mute"), "ok", call("ask")])
    with Agent("a", model, tools=[mute, ask], store=url) as agent:
        door(agent, "?", thread_id="t")
        with pytest.raises(WickError, match="nested deeper"):
            door(agent, "?", thread_id="t")
    assert not caplog.records
    errors = [moment.error for moment in opened().moments() if moment.error is not None]
    assert errors[:2] == ["GraphInterrupt"] * 2
    assert "nested deeper" in errors[2]


class Bare:
    """All that a writer asks of an encoder when no field is encoded."""

    def __init__(self) -> None:
        self.hooks: dict[str, int] = {}
        self.names: dict[str, str] = {}


@pytest.mark.parametrize("seed", range(20))
def test_moments_nest_as_the_calls_that_they_belong_to(seed: int) -> None:
    """In any order, also of ends without a beginning, and of several calls beside each other."""
    chance, bare = random.Random(seed), cast("Any", Bare())
    writer = Writer(bare, BranchCounters(), 0, plans_of({}))
    kinds = [kind for kind in KINDS if kind[0] in ("hook", "tool", "model", "node", "route")]
    place = Place("tools", "task", "checkpoint", 1)
    writer.begin(1)
    open_: list[tuple[int, str, str | None, int]] = []
    expected = []
    for seq in range(1, 200):
        kind, call = chance.choice(kinds), chance.choice([None, None, "a", "b"])
        moment = Moment(cast("Kind", kind[0]), kind[1], "name", {}, call, place=place, seq=seq)
        writer.add(moment, None)
        mine = [one for one in open_ if call is None or one[2] in (None, call)]
        if kind not in ENDS:
            around = mine[-1] if mine else (seq, "", None, -1)
            expected.append([seq - around[0], around[3] + 1])
            open_ += [(seq, ".".join(kind), call, around[3] + 1)] if kind in OPENS else []
            continue
        ended = next((one for one in reversed(mine) if one[1] == ENDS[kind]), None)
        expected.append([0, 0] if ended is None else [seq - ended[0], ended[3]])
        if ended is not None:  # what is open inside it ends too, unless it is of a call beside it
            at = open_.index(ended)
            beside = [one for one in open_[at:] if call and one[2] not in (None, call)]
            open_[at:] = beside
    assert [[entry[UP], entry[DEPTH]] for entry in writer.entries] == expected


def test_a_piece_costs_the_same_however_many_came_before_it() -> None:
    writer = Writer(cast("Any", Bare()), BranchCounters(), 0, plans_of({}))
    place = Place("model", "task", "checkpoint", 1)
    writer.begin(1)
    writer.add(Moment("node", "enter", "model", {}, place=place, seq=1), None)
    [visit], pieces = writer._visits.values(), list[Any]()
    for _ in range(3):
        writer.count_chunk(Moment("model", "chunk", "m", {}, place=place))
        pieces.append(visit.chunks)
    assert pieces[0] is pieces[1] is pieces[2], "they are copied for each"
    assert len(pieces[0]) == 3
