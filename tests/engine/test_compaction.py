"""Compaction: the summary grows, the history stays, and nothing is lost on the way."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import MessagesState, StateGraph

from tests.support.postgres import connected
from wick_graph import Agent, BaseHook, SqlSaver, tool
from wick_graph.debug import DebugSession
from wick_graph.engine import compaction
from wick_graph.engine.compaction import Compaction, Terms, place_of_cut
from wick_graph.engine.guest import GuestAgent
from wick_graph.errors import ConfigError, ModelError
from wick_graph.hooks import ApprovalHook
from wick_graph.hooks.approvals import Approve
from wick_graph.hooks.summarization import SummarizationHook, parts
from wick_graph.messages import estimate_tokens
from wick_graph.store.maintenance import export_thread, import_thread, repair
from wick_graph.store.schema import metadata
from wick_graph.store.verify import verify
from wick_graph.testing import Lane, ScriptedModel, When, call, calls, error, respond

Compact = Callable[..., Compaction]

SOON = 30
AT: Any = {"configurable": {"thread_id": "t"}}
SUMMARIZE = When(purpose="summarize")
FACT = re.compile(r"FACT-\w+")


def digest(asked: Any) -> str:
    """Summarise as a good model does: keep each fact that the input names."""
    return "known: " + " ".join(dict.fromkeys(FACT.findall(asked.messages[-1].text)))


def model_of(*steps: Any, summaries: Any = None) -> ScriptedModel:
    """Play steps for the agent, then answer `ok`; the summariser keeps facts by default."""
    own = [respond(digest)] * 30 if summaries is None else summaries
    main = [*steps, *["ok"] * 60]
    return ScriptedModel(
        lanes=[
            Lane("s", own, when=SUMMARIZE, cursor="fifo"),
            Lane("a", main, when=When(purpose="agent"), cursor="fifo"),
        ]
    )


def agent_of(store: Any, model: Any = None, **options: Any) -> Agent:
    hooks = [*options.pop("hooks", ()), SummarizationHook()]
    return Agent(model=model or model_of(), hooks=hooks, store=store, **options)


def summary(agent: Agent) -> dict[str, Any]:
    return dict(agent.graph.get_state(AT).values.get("summary") or {})


def rows(url: str) -> dict[str, Any]:
    """Return every row of a database, but the clock's."""
    tables = [name for name in metadata.tables if name != "clock"]
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as db, db:
            found = {t: sorted(map(repr, db.execute(f"SELECT * FROM {t}"))) for t in tables}
        db.close()
        return found
    with connected(url) as pg:
        return {t: sorted(map(repr, pg.execute(f'SELECT * FROM "{t}"').fetchall())) for t in tables}


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return f"sqlite:///{tmp_path / 'store.db'}"


@pytest.fixture
def file(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.db'}"


@pytest.fixture(params=["compact", "acompact"])
def compact(request: pytest.FixtureRequest) -> Compact:
    def run(agent: Agent, **options: Any) -> Compaction:
        if request.param == "compact":
            return agent.compact("t", **options)
        return asyncio.run(agent.acompact("t", **options))

    return run


def talk(agent: Agent, turns: int, word: str = "turn") -> None:
    for i in range(turns):
        agent.invoke(f"{word} {i}", thread_id="t")


# --- what it does --------------------------------------------------------------------------------


def test_five_compactions_keep_the_first_fact(url: str) -> None:
    model = model_of()
    with agent_of(url, model) as agent:
        for n in range(5):
            agent.invoke(f"Remember FACT-{n}.", thread_id="t")
            talk(agent, 10)
            assert agent.compact("t").outcome == "compacted"
            assert agent.compact("t").outcome == "short", "they are counted behind the summary"
        text = summary(agent)["text"]
        agent.invoke("What do you know?", thread_id="t")
        sent = [m.text for m in model.calls[-1].messages]
        assert FACT.findall(text) == [f"FACT-{n}" for n in range(5)]
        assert "FACT-0" in sent[0]
        assert len(sent) == 1 + 4 + 1, "the summary, what is kept, and the question"
        assert len(agent.graph.get_state(AT).values["messages"]) == 112, "the history is whole"
        settings = [c.settings for c in model.calls if c.purpose == "summarize"]
        assert settings == [{"max_tokens": 1024, "temperature": 0.3}] * 5
        assert verify(agent.store).is_whole  # type: ignore[arg-type]


def test_the_summary_outlives_the_process_and_later_runs(url: str) -> None:
    with agent_of(url) as agent:
        agent.invoke("FACT-a", thread_id="t")
        talk(agent, 10)
        agent.compact("t")
    with agent_of(url) as agent:
        before = summary(agent)
        talk(agent, 2)
        assert summary(agent) == before != {}


def test_it_changes_the_summary_and_no_other_fact(file: str, compact: Compact) -> None:
    with agent_of(file) as agent:
        talk(agent, 11)
        before, old = agent.graph.get_state(AT), agent.threads.get("t")
        made = compact(agent)
        after, new = agent.graph.get_state(AT), agent.threads.get("t")
        assert (made.outcome, made.usage.calls) == ("compacted", 1)
        assert {**before.values, "summary": after.values["summary"]} == after.values
        assert (before.next, before.config) == (after.next, after.config)
        assert replace(new, last_access=old.last_access, expires_at=old.expires_at) == old


def test_21_messages_are_enough_and_20_are_not() -> None:
    def place(count: int, **terms: Any) -> int:
        chain = [(HumanMessage, AIMessage)[i % 2](f"{i}", id=f"{i}") for i in range(count)]
        return place_of_cut(parts(chain, None), "", 128_000, Terms(**terms))

    assert [place(20), place(21), place(22)] == [0, 17, 18]
    assert [place(4, force=True), place(5, force=True)] == [0, 1]
    assert place(6, messages=5, keep=2) == 4


@pytest.mark.parametrize(("extra", "at"), [(0, 0), (1, 4)])
def test_the_window_is_the_models_and_not_its_limit_of_a_reply(extra: int, at: int) -> None:
    """A window of 128,000 tokens is used up to 96,000, whatever one reply may hold."""

    def chain(tokens: int) -> list[BaseMessage]:
        return [AIMessage("x" * 4 * tokens, id=f"{i}") for i in range(8)]

    each = next(n for n in range(11_900, 12_001) if estimate_tokens(chain(n)) > 95_992)
    messages = chain(each)
    messages[0] = AIMessage("x" * 4 * (each + 96_000 - estimate_tokens(messages) + extra), id="0")
    assert estimate_tokens(messages) == 96_000 + extra
    assert place_of_cut(parts(messages, None), "", 128_000, Terms()) == at


def test_calls_and_results_count_and_are_summarised_in_short() -> None:
    long = "y" * 50_000

    @tool
    def look(what: str) -> str:
        """Look."""
        return f"FACT-inside {long}"

    model = model_of(*[step for i in range(6) for step in (call("look", what=f"FACT-{i}"), "ok")])
    with agent_of(None, model, tools=[look]) as agent:
        talk(agent, 6)
        agent.compact("t")
        asked = next(c for c in model.calls if c.purpose == "summarize").messages[-1].text
        assert "FACT-0" in asked
        assert "FACT-inside" in asked
        assert "truncated" in asked
        assert len(asked) < 5 * 2_100 + 2_000


def test_a_model_for_summaries_is_called_in_place_of_the_agents(file: str) -> None:
    own, other = model_of(), model_of(summaries=["OTHER"])
    with agent_of(file, own) as agent:
        talk(agent, 11)
        chosen = replace(agent.spec.model, model=other, name="other")
        assert agent.compact("t", model=chosen).outcome == "compacted"
        assert summary(agent)["text"] == "OTHER"
        assert {c.purpose for c in own.calls} == {"agent"}


def test_the_calls_pass_the_agents_hooks_and_processors(file: str) -> None:
    seen: list[str] = []

    class Watch(BaseHook):
        def wrap_model_call(self, request: Any, next: Any) -> Any:
            seen.append(request.purpose)
            return next(request)

    with agent_of(file, hooks=[Watch()]) as agent:
        talk(agent, 11)
        agent.compact("t")
    assert seen[-1] == "summarize"


def test_a_summary_that_is_too_long_is_cut(file: str) -> None:
    with agent_of(file, model_of(summaries=["z" * 100_000])) as agent:
        talk(agent, 11)
        agent.compact("t")
        assert len(summary(agent)["text"]) == 8_192


# --- where it cuts -------------------------------------------------------------------------------


def group(n: int, size: int) -> list[BaseMessage]:
    asked = [{"name": "f", "args": {}, "id": f"c{n}-{i}"} for i in range(size)]
    answers = [ToolMessage("r", tool_call_id=f"c{n}-{i}", id=f"r{n}-{i}") for i in range(size)]
    return [AIMessage("", tool_calls=asked, id=f"a{n}"), *answers]


def texts(n: int, size: int) -> list[BaseMessage]:
    return [HumanMessage("q", id=f"h{n}"), AIMessage("a", id=f"t{n}")][: size or 1]


@given(
    st.lists(st.tuples(st.booleans(), st.integers(1, 6)), max_size=20),
    st.integers(1, 8),
    st.integers(0, 5),
)
def test_a_call_is_never_separated_from_its_results(
    shape: list[tuple[bool, int]], keep: int, lost: int
) -> None:
    """Results of the last calls may still come: they, too, stay behind the cut with their calls."""
    made = [(group if is_group else texts)(n, size) for n, (is_group, size) in enumerate(shape)]
    chain = [message for part in made for message in part]
    if shape and shape[-1][0]:
        chain = chain[: len(chain) - min(lost, shape[-1][1])]
    at = place_of_cut(parts(chain, None), "", 128_000, Terms(keep=keep, force=True))
    old, rest = chain[:at], chain[at:]
    asked = {one["id"] for m in old if isinstance(m, AIMessage) for one in m.tool_calls}
    assert asked == {m.tool_call_id for m in old if isinstance(m, ToolMessage)}
    assert not rest or not isinstance(rest[0], ToolMessage)
    assert len(rest) >= min(keep, len(chain))


def test_results_that_come_late_stay_with_their_calls() -> None:
    asked = AIMessage("", tool_calls=[{"name": "f", "args": {}, "id": "c"}], id="a")
    later = [HumanMessage("q", id=f"h{i}") for i in range(6)]
    chain = [HumanMessage("x", id="x"), asked, *later]
    assert place_of_cut(parts(chain, None), "", 128_000, Terms(force=True)) == 1


# --- nothing is lost -----------------------------------------------------------------------------


class Stuck(BaseHook):
    """Hold the summariser until it may go on."""

    def __init__(self) -> None:
        self.inside, self.go_on = threading.Event(), threading.Event()

    def wrap_model_call(self, request: Any, next: Any) -> Any:
        if request.purpose == "summarize":
            self.inside.set()
            self.go_on.wait(SOON)
        return next(request)

    def free_after(self, seconds: float) -> None:
        """Let it go on so long after it was entered: a `def` cannot be abandoned."""
        self.inside.wait(SOON)
        time.sleep(seconds)
        self.go_on.set()


@pytest.fixture
def stuck() -> Iterator[Stuck]:
    hook = Stuck()
    yield hook
    hook.go_on.set()


@pytest.mark.parametrize(
    "answer", [error("the provider is down"), "", " \n\t "], ids=["fails", "empty", "blank"]
)
def test_a_failure_changes_no_row(url: str, compact: Compact, answer: Any) -> None:
    model = model_of(summaries=["FIRST", answer, answer, answer])
    with agent_of(url, model) as agent:
        talk(agent, 11)
        agent.compact("t")
        talk(agent, 11)
        before = rows(url)
        assert compact(agent).outcome == "failed"
        assert rows(url) == before
        assert summary(agent)["text"] == "FIRST"


def test_a_failure_in_the_middle_changes_no_row(file: str) -> None:
    """The text is read in pieces; the summary of half of them is no summary."""
    model = model_of(*["w" * 8_000] * 12, summaries=["HALF", error("down")])
    with agent_of(file, model) as agent:
        talk(agent, 12)
        before = rows(file)
        small = replace(agent.spec.model, context_window=16_000)
        assert agent.compact("t", model=small).outcome == "failed"
        assert len([c for c in model.calls if c.purpose == "summarize"]) == 2
        assert rows(file) == before


def test_a_summariser_that_is_too_slow_changes_no_row(
    file: str, compact: Compact, stuck: Stuck, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "COMPACTION_SECONDS", 0.05)
    with agent_of(file, hooks=[stuck]) as agent:
        stuck.go_on.set()
        talk(agent, 11)
        stuck.go_on.clear()
        stuck.inside.clear()
        before = rows(file)
        threading.Thread(target=stuck.free_after, args=(0.4,)).start()
        assert compact(agent).outcome == "failed"
        assert rows(file) == before


async def test_one_that_is_cancelled_changes_no_row(file: str, stuck: Stuck) -> None:
    with agent_of(file, hooks=[stuck]) as agent:
        talk(agent, 11)
        before = rows(file)
        task = asyncio.create_task(agent.acompact("t"))
        await asyncio.to_thread(stuck.inside.wait, SOON)
        task.cancel()
        stuck.go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert rows(file) == before
        assert (await agent.acompact("t")).outcome == "compacted", "it can be tried again"


async def test_messages_that_come_meanwhile_are_kept(url: str, stuck: Stuck) -> None:
    model = model_of()
    with agent_of(url, model, hooks=[stuck]) as agent:
        await asyncio.to_thread(talk, agent, 11)
        held = [m.id for m in agent.graph.get_state(AT).values["messages"]]
        task = asyncio.create_task(agent.acompact("t"))
        await asyncio.to_thread(stuck.inside.wait, SOON)
        await agent.ainvoke("FACT-new", thread_id="t")  # the thread is not held meanwhile
        stuck.go_on.set()
        assert (await task).outcome == "compacted"
        assert summary(agent)["upto"] == held[-5]
        await agent.ainvoke("And?", thread_id="t")
        sent = [m.text for m in model.calls[-1].messages]
        assert "FACT-new" in sent
        assert len(sent) == 1 + 4 + 2 + 1


async def test_it_waits_for_a_run_that_goes_on(url: str) -> None:
    inside, go_on = asyncio.Event(), asyncio.Event()

    @tool
    async def hold() -> str:
        """Wait."""
        inside.set()
        await go_on.wait()
        return "held"

    model = model_of(*["ok"] * 11, call("hold"), "end")
    with agent_of(url, model, tools=[hold]) as agent:
        for i in range(11):
            await agent.ainvoke(f"{i}", thread_id="t")
        run = asyncio.create_task(agent.ainvoke("hold", thread_id="t"))
        await asyncio.wait_for(inside.wait(), SOON)
        task = asyncio.create_task(agent.acompact("t"))
        while not any(c.purpose == "summarize" for c in model.calls):
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.02)
        assert not task.done()
        go_on.set()
        assert (await run).text == "end"
        assert (await asyncio.wait_for(task, SOON)).outcome == "compacted"
        assert summary(agent)["text"].startswith("known")


async def test_it_does_not_wait_forever(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    inside, go_on = asyncio.Event(), asyncio.Event()

    @tool
    async def hold() -> str:
        """Wait."""
        inside.set()
        await go_on.wait()
        return "held"

    with agent_of(file, model_of(*["ok"] * 11, call("hold")), tools=[hold]) as agent:
        for i in range(11):
            await agent.ainvoke(f"{i}", thread_id="t")
        run = asyncio.create_task(agent.ainvoke("hold", thread_id="t"))
        await asyncio.wait_for(inside.wait(), SOON)
        monkeypatch.setattr(compaction, "_PATIENCE", 0.02)
        assert (await agent.acompact("t")).outcome == "busy"
        assert summary(agent) == {}
        go_on.set()
        await run


async def test_a_thread_is_compacted_once_at_a_time(file: str, stuck: Stuck) -> None:
    model = model_of()
    with agent_of(file, model, hooks=[stuck]) as agent:
        await asyncio.to_thread(talk, agent, 11)
        task = asyncio.create_task(agent.acompact("t"))
        await asyncio.to_thread(stuck.inside.wait, SOON)
        assert (await agent.acompact("t")).outcome == "busy"
        stuck.go_on.set()
        assert (await task).outcome == "compacted"
        assert len([c for c in model.calls if c.purpose == "summarize"]) == 1


async def test_of_two_processes_one_stores_its_summary(url: str, stuck: Stuck) -> None:
    slow = agent_of(url, model_of(summaries=["SLOW"]), hooks=[stuck])
    fast = agent_of(url, model_of(summaries=["FAST"]))
    with slow, fast:
        await asyncio.to_thread(talk, slow, 11)
        task = asyncio.create_task(slow.acompact("t"))
        await asyncio.to_thread(stuck.inside.wait, SOON)
        assert (await fast.acompact("t")).outcome == "compacted"
        before = rows(url)
        stuck.go_on.set()
        assert (await task).outcome == "changed"
        assert rows(url) == before
        assert summary(slow)["text"] == "FAST"


async def test_a_thread_that_is_deleted_meanwhile_stays_deleted(file: str, stuck: Stuck) -> None:
    with agent_of(file, hooks=[stuck]) as agent:
        await asyncio.to_thread(talk, agent, 11)
        task = asyncio.create_task(agent.acompact("t"))
        await asyncio.to_thread(stuck.inside.wait, SOON)
        agent.threads.delete("t")
        stuck.go_on.set()
        assert (await task).outcome == "changed"
        assert agent.threads.get("t") is None


def test_an_unknown_thread_is_not_made(file: str) -> None:
    with agent_of(file) as agent:
        assert agent.compact("t", force=True).outcome == "short"
        assert agent.threads.get("t") is None


# --- threads that are not at rest ----------------------------------------------------------------


def test_a_thread_that_waits_for_an_approval_waits_on(url: str, compact: Compact) -> None:
    ran: list[str] = []

    @tool
    def act(what: str) -> str:
        """Act."""
        ran.append(what)
        return "acted"

    model = model_of(*["ok"] * 11, calls(("act", {"what": "it"})), "end")
    with agent_of(url, model, tools=[act], hooks=[ApprovalHook({"act": True})]) as agent:
        agent.invoke("FACT-0", thread_id="t")
        talk(agent, 10)
        asked = agent.invoke("go", thread_id="t", idempotency_key="k")
        assert asked.interrupts
        assert compact(agent).outcome == "compacted"
        assert agent.threads.get("t").status == "waiting"
        again = agent.invoke("go", thread_id="t", idempotency_key="k")
        assert again.interrupts == asked.interrupts, "a repeated call still finds the question"
        assert ran == []
        assert agent.resume("t", Approve()).text == "end"
        assert (ran, "FACT-0" in summary(agent)["text"]) == (["it"], True)
        assert "FACT-0" in model.calls[-1].messages[0].text


def test_a_thread_whose_run_failed_goes_on(url: str) -> None:
    model = model_of(*["ok"] * 11, error("down"), "later")
    with agent_of(url, model) as agent:
        agent.invoke("FACT-0", thread_id="t")
        talk(agent, 10)
        with pytest.raises(ModelError):
            agent.invoke("go", thread_id="t")
        assert agent.compact("t").outcome == "compacted"
        assert agent.threads.get("t").status == "failed"
        assert agent.resume("t").text == "later"
        assert "FACT-0" in summary(agent)["text"]


def test_a_thread_whose_process_died_is_left_to_its_run(file: str) -> None:
    """A write would look like progress of that run, and its next death would charge nobody."""

    @tool
    def die() -> str:
        """Take the process down."""
        os.kill(os.getpid(), signal.SIGKILL)
        return "never"

    def made() -> Agent:
        return agent_of(file, model_of(*["ok"] * 11, call("die")), tools=[die])

    pid = os.fork()
    if pid == 0:
        try:
            agent = made()
            talk(agent, 11)
            agent.invoke("go", thread_id="t")
        finally:
            os._exit(0)
    assert os.WIFSIGNALED(os.waitpid(pid, 0)[1])
    with agent_of(file, tools=[die]) as agent:
        before = agent.store.get_tuple(AT)  # type: ignore[union-attr]
        assert agent.compact("t").outcome == "unfinished"
        assert agent.store.get_tuple(AT) == before  # type: ignore[union-attr]
        assert "outcome unknown" in str(agent.resume("t").messages)


def test_an_update_by_hand_keeps_the_summary(file: str) -> None:
    with agent_of(file) as agent:
        agent.invoke("FACT-0", thread_id="t")
        talk(agent, 10)
        agent.compact("t")
        kept = summary(agent)
        agent.graph.update_state(AT, {"todos": []}, as_node="model")
        assert summary(agent) == kept != {}
        agent.graph.update_state(AT, {"messages": [HumanMessage("more")]}, as_node="model")
        assert summary(agent) == kept
        agent.compact("t", force=True)
        mine = {"text": "mine", "upto": kept["upto"]}
        agent.graph.update_state(AT, {"summary": mine}, as_node="model")
        assert summary(agent) == mine


def test_a_debugger_and_a_fork_read_it(url: str) -> None:
    model = model_of()
    with agent_of(url, model) as agent:
        agent.invoke("FACT-0", thread_id="t")
        talk(agent, 10)
        agent.compact("t")
        agent.invoke("after", thread_id="t")
        text = summary(agent)["text"]
        with DebugSession.open(agent, "t") as session:
            assert session.inspect.state("summary", "@last")["text"] == text
            session.add("break model:request")
            session.goto("@last")
            session.reverse_cont()
            stop = session.live(session.fork(response="Otherwise."), timeout=SOON, in_place=True)
            while stop.reason not in ("finished", "failed"):
                stop = session.cont(timeout=SOON)
            assert stop.reason == "finished"
            assert session.inspect.state("summary", "@last")["text"] == text
        assert summary(agent)["text"] == text
        last = [m.text for m in agent.graph.get_state(AT).values["messages"]][-1]
        assert last == "Otherwise."


def test_copies_of_the_thread_and_fewer_checkpoints_keep_it(file: str, tmp_path: Path) -> None:
    with agent_of(file) as agent:
        agent.invoke("FACT-0", thread_id="t")
        talk(agent, 10)
        agent.compact("t")
        agent.threads.keep_latest("t", 1)
        agent.compact("t", force=True, keep=1)
        kept = summary(agent)
        export_thread(agent.store, "t", tmp_path / "t.db")  # type: ignore[arg-type]
    copies = [f"sqlite:///{tmp_path}/{name}.db" for name in ("imported", "repaired")]
    with SqlSaver.from_url(copies[0]) as saver:
        import_thread(saver, tmp_path / "t.db")
        assert verify(saver).is_whole
    repair(file, copies[1])
    for url in copies:
        with agent_of(url) as agent:
            assert summary(agent) == kept != {}


# --- what it refuses -----------------------------------------------------------------------------


def test_a_guest_graph_is_refused_in_a_sentence() -> None:
    graph = StateGraph(MessagesState)
    graph.add_node("n", lambda state: {"messages": [AIMessage("hi")]})
    graph.set_entry_point("n")
    guest = GuestAgent(graph.compile(checkpointer=InMemorySaver()))
    with pytest.raises(ConfigError, match="is a LangGraph graph .* only an agent's threads"):
        guest.compact("t")


def test_an_agent_that_would_not_send_the_summary_is_refused(file: str) -> None:
    with (
        Agent(model=model_of(), store=file) as agent,
        pytest.raises(ConfigError, match="has no SummarizationHook"),
    ):
        agent.compact("t")


def test_a_store_without_leases_is_refused() -> None:
    with pytest.raises(ConfigError, match="give it a database URL"):
        agent_of(InMemorySaver()).compact("t")


@pytest.mark.parametrize("wrong", [{"keep": 0}, {"messages": 0}, {"percent": 101}])
def test_terms_that_make_no_sense_are_refused(file: str, wrong: dict[str, int]) -> None:
    with agent_of(file) as agent, pytest.raises(ConfigError, match="compaction needs"):
        agent.compact("t", **wrong)  # type: ignore[arg-type]
