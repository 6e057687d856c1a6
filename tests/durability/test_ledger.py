"""What the ledger knows in forks, copies, replays and updates, and of calls that ask somebody."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import pytest
from langchain_core.messages import AIMessage
from langgraph.types import Command, interrupt

from tests.store.test_store_graphs import delta_graph
from tests.support.orphans import assert_no_orphans
from tests.support.recorded import until_written
from wick_graph import Agent, SqlSaver, tool
from wick_graph.errors import StorageError
from wick_graph.store.ledger import Ledger
from wick_graph.store.maintenance import export_thread, import_thread
from wick_graph.testing import ScriptedModel, call, calls
from wick_graph.tools import ToolContext
from wick_graph.types import Replay

ON: Any = {"configurable": {"thread_id": "t"}}


class World:
    """Effects that can be counted, across processes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def done(self, what: str) -> None:
        with self.path.open("a") as file:
            file.write(f"{what}\n")

    @property
    def effects(self) -> Counter[str]:
        return Counter(self.path.read_text().split()) if self.path.exists() else Counter()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "effects")


def agent_of(url: str, world: World, *steps: Any) -> Agent:
    @tool(replay="never")
    def act(n: int) -> str:
        """Have an effect."""
        world.done(f"act{n}")
        return f"acted {n}"

    @tool(replay="never")
    def die(n: int) -> str:
        """Have an effect, wait for the siblings' results, and take the process down."""
        world.done(f"die{n}")
        until_written(url, "acted 1", "acted 2")
        os.kill(os.getpid(), signal.SIGKILL)
        return "never"

    @tool(replay="never")
    def ask(n: int) -> str:
        """Ask somebody, then have an effect."""
        answer = interrupt(f"may {n}?")
        world.done(f"ask{n}")
        return f"{answer} {n}"

    return Agent(model=ScriptedModel(list(steps)), tools=[act, die, ask], store=url)


def crashed(url: str, world: World) -> tuple[Any, ...]:
    """Leave a thread behind in which two calls have finished and one was under way."""
    steps = (calls(("act", {"n": 1}), ("act", {"n": 2}), ("die", {"n": 3})), "ok")
    pid = os.fork()
    if pid == 0:
        agent_of(url, world, *steps).invoke("go", thread_id="t")
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status)
    return steps


def results(messages: list[Any]) -> list[str]:
    texts = [m.text.removeprefix("Error: ") for m in messages if m.type == "tool"]
    return [text[:29] if text.startswith("interrupted") else text for text in texts]


def said(agent: Agent) -> list[tuple[str, str]]:
    return [(m.type, m.text) for m in agent.graph.get_state(ON).values["messages"]]


KNOWN = ["acted 1", "acted 2", "interrupted, outcome unknown:"]


@pytest.mark.sisters(2)
@pytest.mark.parametrize("how", ["fork", "copy", "export"])
def test_a_copy_of_a_crashed_thread_runs_nothing_again(
    tmp_path: Path, url: str, world: World, how: str
) -> None:
    steps = crashed(url, world)
    before = world.effects
    with agent_of(url, world, *steps) as agent:
        store = agent.store
        assert isinstance(store, SqlSaver)
        if how == "fork":
            info = agent.threads.fork("t", "u")
            assert (info.parent, info.status, info.title) == ("t", "idle", "u")
        elif how == "copy":
            store.copy_thread("t", "u")
        else:
            export_thread(store, "t", tmp_path / "moved.db")
            assert import_thread(store, tmp_path / "moved.db", to="u") == "u"
        made, was = agent.resume("u"), agent.resume("t")
        assert (made.text, was.text) == ("ok", "ok")
        assert results(made.messages) == results(was.messages)
        assert all(text in KNOWN for text in results(made.messages))
        assert results(made.messages)[2] == KNOWN[2]
    assert world.effects == before == Counter({"act1": 1, "act2": 1, "die3": 1})


@pytest.mark.parametrize("replay", ["never", "key", "safe"])
def test_a_tool_that_changes_its_arguments_keeps_its_result(
    url: str, world: World, replay: Replay
) -> None:
    class Sort:
        name = "sort"
        replay: Replay
        description = "Have an effect, and sort in place what was given."
        parameters: ClassVar = {"type": "object", "properties": {"items": {"type": "array"}}}

        def execute(self, args: dict[str, Any], ctx: ToolContext) -> str:
            world.done("sort")
            args["items"].sort()
            args["seen"] = True
            return f"sorted {args['items']}"

    sort = Sort()
    sort.replay = replay

    def agent() -> Agent:
        steps: list[Any] = [call("sort", items=[3, 1, 2]), "ok"]
        return Agent(model=ScriptedModel(steps), tools=[sort], store=url)

    def life() -> None:
        finish = Ledger.finish

        def dying(self: Ledger, *args: Any) -> None:
            finish(self, *args)
            os.kill(os.getpid(), signal.SIGKILL)

        Ledger.finish = dying  # type: ignore[assignment,method-assign]  # in a process of its own
        for _ in agent().stream("go", thread_id="t"):  # somebody is told of each result
            pass

    pid = os.fork()
    if pid == 0:
        life()
        os._exit(0)
    assert os.WIFSIGNALED(os.waitpid(pid, 0)[1])
    with agent() as other:
        made = other.resume("t")
        assert results(made.messages) == ["sorted [1, 2, 3]"]
        asked = next(m for m in made.messages if isinstance(m, AIMessage))
        assert asked.tool_calls[0]["args"] == {"items": [3, 1, 2]}
    assert world.effects == Counter({"sort": 1})


def test_an_exported_thread_goes_on_in_another_database(
    tmp_path: Path, url: str, world: World
) -> None:
    steps = crashed(url, world)
    before = world.effects
    with agent_of(url, world, *steps) as agent:
        assert isinstance(agent.store, SqlSaver)
        export_thread(agent.store, "t", tmp_path / "moved.db")
        kept = said(agent)
    with agent_of(f"sqlite:///{tmp_path}/moved.db", world, *steps) as agent:
        assert said(agent) == kept
        assert agent.threads.get("t").title == "go"
        assert agent.resume("t").text == "ok"
        assert isinstance(agent.store, SqlSaver)
        assert len(agent.store.threads.sizes()["t"]) >= 3  # its ledger and its journal came along
    assert world.effects == before


def test_an_exported_thread_stays_its_tenants_and_is_taken_over_by_another(
    tmp_path: Path, url: str, world: World
) -> None:
    file = tmp_path / "moved.db"
    with SqlSaver.from_url(url, tenant="anna") as store:
        Agent(model=ScriptedModel(["hello"]), store=store).invoke("go", thread_id="t")
        export_thread(store, "t", file)
    with SqlSaver.from_url(f"sqlite:///{file}") as local:
        assert local.threads.list() == []
    with SqlSaver.from_url(f"sqlite:///{file}", tenant="anna") as anna:
        assert [info.thread_id for info in anna.threads.list()] == ["t"]
    with SqlSaver.from_url(url, tenant="ben") as store:
        assert import_thread(store, file) == "t"
        assert [info.title for info in store.threads.list()] == ["go"]
    with SqlSaver.from_url(f"sqlite:///{file}", tenant="cara") as cara:
        Agent(model=ScriptedModel(["hello"]), store=cara).invoke("go", thread_id="c")
    with (
        SqlSaver.from_url(url, tenant="dora") as store,
        pytest.raises(StorageError, match="threads of 2 tenants, and none of dora"),
    ):
        import_thread(store, file)


@pytest.mark.parametrize(("before", "effects"), [("model", {"act1": 2}), ("tools", {"act1": 1})])
def test_a_fork_does_again_what_came_behind_it_and_nothing_that_came_before(
    url: str, world: World, before: str, effects: dict[str, int]
) -> None:
    """What another reply asks for is another call; what the fork's own history holds, has run."""
    with agent_of(url, world, call("act", n=1), "ok") as agent:
        agent.invoke("go", thread_id="t")
        history = list(agent.graph.get_state_history(ON))
        at = [state for state in history if state.next == (before,)][-1]
        fork = agent.threads.fork("t", "u", at.config["configurable"]["checkpoint_id"])
        assert fork.steps < agent.threads.get("t").steps
        done = agent.resume("u")
        assert (done.text, results(done.messages)) == ("ok", ["acted 1"])
        assert agent.graph.get_state(ON).values["messages"][-1].text == "ok"
        assert world.effects == Counter(effects)
        assert isinstance(agent.store, SqlSaver)
        assert_no_orphans(agent.store)


def test_a_fork_from_before_a_call_does_not_know_that_it_was_under_way(
    url: str, world: World
) -> None:
    """In the source its outcome is unknown; in the fork it was never asked for."""
    crashed(url, world)
    with agent_of(url, world, call("act", n=3), "ok") as agent:
        history = list(agent.graph.get_state_history(ON))
        at = next(state for state in history if state.next == ("model",))
        agent.threads.fork("t", "u", at.config["configurable"]["checkpoint_id"])
        done = agent.resume("u")
        assert results(done.messages) == ["acted 3"]


def test_a_replay_from_before_the_tools_takes_what_they_had_done(url: str, world: World) -> None:
    with agent_of(url, world, call("act", n=1), "ok", "ok again") as agent:
        agent.invoke("go", thread_id="t")
        at = next(s for s in agent.graph.get_state_history(ON) if s.next == ("tools",))
        agent.graph.invoke(None, at.config)
        ledger = [m.text for m in agent.graph.get_state(ON).values["messages"] if m.type == "tool"]
        assert ledger == ["acted 1"]
        assert world.effects == Counter({"act1": 1})


def test_edited_arguments_make_another_call(url: str, world: World) -> None:
    with agent_of(url, world, call("act", n=1), "ok") as agent:
        agent.graph.invoke({"messages": [("user", "go")]}, ON, interrupt_before=["tools"])
        reply = agent.graph.get_state(ON).values["messages"][-1]
        edited = reply.model_copy(
            update={"tool_calls": [{**reply.tool_calls[0], "args": {"n": 5}}]}
        )
        agent.graph.update_state(ON, {"messages": [edited]}, as_node="model")
        result = agent.graph.invoke(None, ON)
        assert [m.text for m in result["messages"] if m.type == "tool"] == ["acted 5"]
        assert world.effects == Counter({"act5": 1})


def test_a_call_that_asks_runs_once_for_its_answer(url: str, world: World) -> None:
    steps = calls(("act", {"n": 1}), ("ask", {"n": 2})), "ok"
    with agent_of(url, world, *steps) as agent:
        first = agent.invoke("go", thread_id="t")
        assert [i.value for i in first.interrupts] == ["may 2?"]
        assert world.effects == Counter({"act1": 1})
    with agent_of(url, world, *steps) as agent:  # another process could bring the answer
        done = agent.resume("t", "yes")
        assert results(done.messages) == ["acted 1", "yes 2"]
        assert world.effects == Counter({"act1": 1, "ask2": 1})


def test_a_fork_of_a_waiting_thread_waits_for_an_answer_of_its_own(url: str, world: World) -> None:
    steps = calls(("act", {"n": 1}), ("ask", {"n": 2})), "ok"
    with agent_of(url, world, *steps) as agent:
        agent.invoke("go", thread_id="t")
        assert agent.threads.fork("t", "u").status == "waiting"
        assert results(agent.resume("u", "no").messages) == ["acted 1", "no 2"]
        assert agent.threads.get("t").status == "waiting"
        other: Any = {"configurable": {"thread_id": "t"}}
        agent.graph.invoke(Command(resume="yes"), other)
        assert results(agent.graph.get_state(ON).values["messages"]) == ["acted 1", "yes 2"]
        assert world.effects == Counter({"act1": 1, "ask2": 2})


@pytest.mark.parametrize("kept", [1, 3])
def test_keeping_the_latest_checkpoints_keeps_the_state(url: str, world: World, kept: int) -> None:
    steps = [call("act", n=1), "one", call("act", n=2), "two", "three"]
    with agent_of(url, world, *steps) as plain:
        for text in ("a", "b"):
            plain.invoke(text, thread_id="t")
        whole = plain.graph.get_state(ON).values
        plain.threads.keep_latest("t", kept)
        assert plain.graph.get_state(ON).values == whole
        assert plain.threads.get("t").steps == kept
        assert plain.invoke("c", thread_id="t").text == "three"


@pytest.mark.sisters(3)
@pytest.mark.parametrize("kept", [1, 2, 7])
def test_keeping_the_latest_checkpoints_of_a_delta_channel_keeps_its_value(
    url: str, kept: int
) -> None:
    """A delta channel is rebuilt from its ancestors' writes: these must stay behind the scenes."""
    with SqlSaver.from_url(url) as saver:
        graph = delta_graph(saver)
        for n in range(4):
            graph.invoke({"notes": [f"note {n}"]}, ON)
        whole = graph.get_state(ON).values
        saver.threads.keep_latest("t", kept)
        assert graph.get_state(ON).values == whole
        assert len(list(graph.get_state_history(ON))) == kept
        graph.invoke({"notes": ["one more"]}, ON)
        assert graph.get_state(ON).values["notes"][: len(whole["notes"])] == whole["notes"]
