"""One table of breakpoints: the same stops live at both doors, in the recording, and in a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import convert_to_messages

from tests.debug.support import WAIT, World
from wick_graph import Agent, BaseHook
from wick_graph.debug import DebugSession, Stop
from wick_graph.debug.locations import _AWAITED, _GIVES, CATCHES, WORDS
from wick_graph.errors import DebugError
from wick_graph.exports.plain import Hider
from wick_graph.exports.wickrun import write_wickrun
from wick_graph.hooks.summarization import SummarizationHook
from wick_graph.subagents import Subagent, delegation
from wick_graph.subagents.background import START
from wick_graph.testing import Lane, ScriptedModel, When, call, calls, rate_limit
from wick_graph.tools import builtin

OVER = ("finished", "failed", "interrupt", "end")


class Broken(BaseHook):
    """Fail where the model has answered."""

    name = "broken"

    def after_model(self, message: Any, ctx: Any) -> Any:
        raise RuntimeError("no luck")


def adds(store: Any, folder: Path) -> Agent:
    """One call that succeeds, one that fails, each by itself; two hooks."""
    return World().agent(store, call("add", a=1, b=1), call("add", a=-3, b=1), "Done.")[0]


def asks(store: Any, folder: Path) -> Agent:
    return _agent(store, call("request_user_input", question="Which?"), tools=_asking(folder))


def retries(store: Any, folder: Path) -> Agent:
    return _agent(store, rate_limit(retry_after=0), "Done.")


def breaks(store: Any, folder: Path) -> Agent:
    return _agent(store, "Done.", hooks=[Broken()])


def fails(store: Any, folder: Path) -> Agent:
    return _agent(store)


def stops_early(store: Any, folder: Path) -> Agent:
    asked = calls(("add", {"a": 1, "b": 1}), unchecked=True)
    return World().agent(store, asked, hooks=[], max_iterations=1)[0]


def compacts(store: Any, folder: Path) -> Agent:
    short = Lane("short", ["Short."] * 8, when=When(purpose="summarize"), cursor="fifo")
    main = Lane("agent", ["Done."], when=When(purpose="agent"), cursor="fifo")
    agent = _agent(store, hooks=[SummarizationHook(900)], model=ScriptedModel(lanes=[short, main]))
    old = [("user" if at % 2 else "assistant", f"{at:03}".ljust(160, "x")) for at in range(20)]
    config: Any = {"configurable": {"thread_id": "t"}}
    agent.graph.update_state(config, {"messages": convert_to_messages(old)}, as_node="model")
    return agent


def gives(store: Any, folder: Path) -> Agent:
    child = _agent(store, "Paris.", name="guide")
    given = calls(("delegate_to_agent", {"agent": "guide", "task": "?"}), unchecked=True)
    tools = [delegation({"guide": Subagent(child, "Knows towns")})]
    return _agent(store, given, "It is Paris.", tools=tools, name="host")


def _agent(store: Any, *steps: Any, name: str = "a", **options: Any) -> Agent:
    model = options.pop("model", None) or ScriptedModel(list(steps))
    return Agent(name, model, store=store, **options)


def _asking(folder: Path) -> Any:
    return builtin(["request_user_input"], folder)


Made = Callable[[Any, Path], Agent]
TABLE: list[tuple[Made, str, list[str]]] = [
    (adds, "break before_agent", ["node.enter before_agent"]),
    (adds, "break before_agent:exit", ["node.exit before_agent"]),
    (adds, "break modify_request hit 2", ["node.enter modify_request"]),
    (adds, "break modify_request:exit hit >=3", ["node.exit modify_request"]),
    (adds, "break model if visit == 2", ["node.enter model"]),
    (adds, "break model:exit hit %3", ["node.exit model"]),
    (adds, "break tools", ["node.enter tools"] * 2),
    (adds, "break tools:exit", ["node.exit tools"] * 2),
    (adds, "break hook:todo.before_agent", ["hook.enter todo"]),
    (adds, "break hook:g*.wrap_tool_call:exit", ["hook.exit guard"] * 2),
    (adds, "break hook:guard if phase == 'after_model' hit 1", ["hook.enter guard"]),
    (adds, "break tool:add:enter", ["tool.enter add"] * 2),
    (adds, "break tool:add if args.b == 11", ["tool.call add"] * 2),
    (adds, "break tool:* if error", ["tool.exit add"]),
    (adds, "break tool:a*:after hit ==2", ["tool.exit add"]),
    (adds, "tbreak tool:add", ["tool.call add"]),
    (adds, "break model:request if len(messages) > 1", ["model.request scripted"] * 2),
    (adds, "break model:response if usage.total_tokens > 0 hit 3", ["model.response scripted"]),
    (adds, "break route", ["route.taken route"] * 3),
    (adds, "break route:tools", ["route.taken route"] * 2),
    (adds, "break route:end", ["route.taken route"]),
    (adds, "break run", ["run.enter adder"]),
    (adds, "break run:exit", ["run.exit adder"]),
    (adds, "break agent:adder", ["run.enter adder"]),
    (adds, "break agent:add*:exit", ["run.exit adder"]),
    (adds, "break agent:another", []),
    (adds, "watch memory.notes", ["node.exit before_agent"]),
    (adds, "watch messages if len(messages) > 2", ["node.exit tools", "node.exit model"] * 2),
    (adds, "watch iteration hit 2", ["node.exit model"]),
    (adds, "catch error", ["tool.exit add"]),
    (adds, "catch tool-error if tool == 'add'", ["tool.exit add"]),
    (adds, "catch tool-error if tool == 'other'", []),
    (adds, "break model if args.nothing == 1 hit 1", ["node.enter model"] * 3),
    (asks, "break interrupt", ["interrupt.raise tools"]),
    (asks, "catch interrupt", ["interrupt.raise tools"]),
    (retries, "break retry", ["model.retry scripted"]),
    (retries, "catch retry", ["model.retry scripted"]),
    (breaks, "catch hook-error", ["hook.error broken"]),
    (breaks, "catch error", ["hook.error broken"]),
    (fails, "catch model-error", ["model.error scripted"]),
    (stops_early, "catch budget", ["run.exit adder"]),
    (compacts, "break compact hit 1", ["model.request scripted"]),
    (gives, "break agent:host", ["run.enter host"]),
    (gives, "break agent:guide", ["tool.call delegate_to_agent"]),
    (gives, "break agent:guide:exit", ["tool.exit delegate_to_agent"]),
    (gives, "break handoff", ["tool.call delegate_to_agent"]),
    (gives, 'log agent:* "{name}"', []),
]
ROWS = [pytest.param(*row, id=f"M4-{row[0].__name__}-{row[1]}") for row in TABLE]
Recorded = Callable[[Made], tuple[Agent, Path]]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    """Record a world once, and export it."""
    known: dict[str, tuple[Agent, Path]] = {}
    folder = tmp_path_factory.mktemp("recorded")

    def of(made: Made) -> tuple[Agent, Path]:
        name = made.__name__
        if name not in known:
            agent = made(f"sqlite:///{folder / name}.db", folder)
            with DebugSession(agent) as session:
                begin(session)
                journal = session.journal
                assert journal is not None
                write_wickrun(journal, agent.store, folder / f"{name}.wickrun", Hider.of(journal))  # type: ignore[arg-type]  # it is ours
            known[name] = agent, folder / f"{name}.wickrun"
        return known[name]

    yield of
    for agent, _ in known.values():
        agent.close()


def begin(session: DebugSession, door: Any = "sync") -> Stop:
    question = "Go on, please. " * 10
    return session.run(question, thread_id="t", door=door, stop_on_entry=False, timeout=WAIT)


def collected(session: DebugSession, stop: Stop | None = None) -> list[str]:
    found = []
    stop = session.cont() if stop is None else stop
    while stop.reason not in OVER:
        assert stop.entry is not None
        assert stop.breakpoint == 1
        found.append(f"{stop.entry.what} {stop.entry.name}")
        stop = session.cont(timeout=WAIT)
    return found


@pytest.mark.sisters(16)
@pytest.mark.parametrize(("made", "spec", "expected"), ROWS)
def test_the_same_stops_live_recorded_and_in_a_file(
    made: Made, spec: str, expected: list[str], recorded: Recorded, tmp_path: Path
) -> None:
    agent, file = recorded(made)
    spoken: list[list[str]] = []
    for source in (agent, str(file)):
        with DebugSession.open(source, "t" if source is agent else None) as session:
            assert session.add(spec).spec == spec
            if spec.endswith(":another") or "run.enter" not in "".join(expected):
                assert collected(session) == expected
            else:  # the cursor begins on it, so that only going back comes to it
                assert collected(session) == []
                session.add(spec)
                assert session.reverse_cont().breakpoint in (1, 2)
                assert session.here == session.inspect.moments()[0]
            spoken.append([output.text for output in session.outputs])
    for door in ("sync", "async"):
        with made(None, tmp_path) as again, DebugSession(again) as session:
            session.add(spec)
            assert collected(session, begin(session, door)) == expected
            told = [output.text for output in session.outputs]
            assert told[-1:] == spoken[0][-1:]
    assert spoken[0] == spoken[1]


def test_the_table_has_every_location_and_every_catch() -> None:
    specs = [spec for _, spec, _ in TABLE]
    for word in WORDS:
        assert any(f" {word} " in f"{spec} " for spec in specs), word
    caught = {spec.split()[1] for spec in specs if spec.startswith("catch")}
    assert caught == set(CATCHES) - {"divergence"}, "a replay stops at these by itself"
    assert {_AWAITED, START} == _GIVES


def test_a_watch_on_a_channel_that_there_is_not_says_so(recorded: Recorded) -> None:
    with DebugSession.open(recorded(adds)[0], "t") as session:
        made = session.breakpoints.watch("mesages[0]")
        assert not made.verified
        assert "no channel mesages" in made.note
        assert session.breakpoints.watch("messages[0].content").verified
        with pytest.raises(DebugError, match="cannot be caught"):
            session.breakpoints.catch("tool-errors")
