"""The context of a run: checked at every door, seen by tools and hooks, and nowhere kept."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain.tools import ToolRuntime
from langchain_core.tools import tool as langchain_tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.runtime import Runtime
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from tests.engine.support import wild
from wick_graph import Agent, BaseHook, HookContext, SqlSaver, ToolContext, load, tool
from wick_graph.debug import DebugSession
from wick_graph.engine.guest import GuestAgent
from wick_graph.errors import ConfigError
from wick_graph.events import Done, Failed
from wick_graph.hooks import ApprovalHook, TracingHook
from wick_graph.journal import Journal
from wick_graph.journal.replay import replay
from wick_graph.loading import check_agents
from wick_graph.subagents import Background, Subagent, delegation
from wick_graph.testing import ScriptedModel, call, calls
from wick_graph.tracing import recording
from wick_graph.tracing.recorder import JsonlRecorder

SECRET = "canary-4711-of-the-context"


@dataclass
class Ctx:
    user: str
    key: str = SECRET


class Model(BaseModel):
    user: Annotated[str, Field(min_length=1)]


class Typed(TypedDict):
    user: str


class Seen(BaseHook):
    """Keep what each phase sees of the context."""

    name = "seen"

    def __init__(self) -> None:
        self.contexts: list[Any] = []

    def before_agent(self, state: Any, ctx: HookContext) -> None:
        self.contexts.append(ctx.context)

    def modify_request(self, request: Any, ctx: HookContext) -> Any:
        self.contexts.append(ctx.context)
        return request

    def after_model(self, message: Any, ctx: HookContext) -> None:
        self.contexts.append(ctx.context)

    def wrap_tool_call(self, call: Any, next: Any) -> Any:
        self.contexts.append(call.ctx.context)
        return next(call)


@tool
def whoami(ctx: ToolContext) -> str:
    """Say who asks."""
    return f"You are {ctx.context.user}."


def agent_of(*steps: Any, **options: Any) -> Agent[Any, Ctx]:
    model = ScriptedModel([*(steps or (call("whoami"), "Done."))])
    options.setdefault("tools", [whoami])
    return Agent("a", model, context_schema=Ctx, **options)


def journal_of(agent: Agent[Any, Ctx]) -> Journal:
    assert isinstance(agent.store, SqlSaver)
    return Journal(agent.store, "t")


def by_stream(agent: Agent[Any, Ctx], given: Any, **options: Any) -> Any:
    *_, last = agent.stream(given, **options)
    assert isinstance(last, Done), last
    return last.result


def by_astream(agent: Agent[Any, Ctx], given: Any, **options: Any) -> Any:
    async def run() -> Any:
        return [event async for event in agent.astream(given, **options)][-1]

    last = asyncio.run(run())
    assert isinstance(last, Done), last
    return last.result


DOORS: list[Callable[..., Any]] = [
    lambda agent, given, **options: agent.invoke(given, **options),
    lambda agent, given, **options: asyncio.run(agent.ainvoke(given, **options)),
    by_stream,
    by_astream,
]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("given", [Ctx("ada"), {"user": "ada"}])
def test_tools_and_hooks_see_the_context_at_every_door(
    door: Callable[..., Any], given: Any
) -> None:
    seen = Seen()
    result = door(agent_of(hooks=[seen]), "Who am I?", context=given)
    assert result.tool_calls[0]["output"] == "You are ada."
    assert seen.contexts == [Ctx("ada")] * 6
    if isinstance(given, Ctx):
        assert all(one is given for one in seen.contexts)


def test_langgraphs_own_door_takes_it_too() -> None:
    agent, given = agent_of(), {"messages": [("user", "Who am I?")]}
    graph: Any = agent.graph
    for context in (Ctx("ada"), {"user": "ada"}):
        state = graph.invoke(given, context=context)
        assert state["messages"][-2].text == "You are ada."
    with pytest.raises(ConfigError, match=r"needs a context"):
        graph.invoke(given)
    assert graph.get_context_jsonschema()["required"] == ["user"]


def test_langchains_tools_see_it_as_in_langgraph() -> None:
    @langchain_tool
    def who(runtime: ToolRuntime) -> str:
        """Say who asks."""
        context: Any = runtime.context
        return str(context.user)

    result = agent_of(call("who"), "Done.", tools=[who]).invoke("?", context=Ctx("ada"))
    assert result.tool_calls[0]["output"] == "ada"


@pytest.mark.parametrize(
    ("schema", "given", "seen"),
    [(Model, {"user": "ada"}, Model(user="ada")), (Typed, {"user": "ada"}, {"user": "ada"})],
)
def test_models_and_typed_dicts_are_schemas(schema: Any, given: Any, seen: Any) -> None:
    kept = Seen()
    agent = Agent(model=ScriptedModel(["Done."]), hooks=[kept], context_schema=schema)
    agent.invoke("?", context=given)
    assert kept.contexts == [seen] * 3


class Live:
    """A thing of the program that no JSON has."""


@dataclass
class WithLive:
    live: Live


def test_an_instance_passes_with_what_no_json_has() -> None:
    kept, live = Seen(), Live()
    agent = Agent(model=ScriptedModel(["Done."] * 2), hooks=[kept], context_schema=WithLive)
    agent.invoke("?", context=WithLive(live))
    assert kept.contexts[0].live is live
    with pytest.raises(ConfigError, match="is a WithLive, not a dict"):
        agent.invoke("?", context={"live": 1})


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (None, r"needs a context of Ctx, also to resume a thread: user \(missing\)"),
        ({"user": [SECRET]}, r"does not fit Ctx: user \(string type\)"),
        ({"key": SECRET}, r"does not fit Ctx: user \(missing\)"),
        (Live(), r"is a Ctx, not a Live"),
    ],
)
def test_a_wrong_context_is_refused_before_anything_and_never_quoted(given: Any, says: str) -> None:
    agent = agent_of()
    graph: Any = agent.graph
    doors: list[Callable[[], Any]] = [
        lambda: agent.invoke("?", context=given),
        lambda: agent.stream("?", context=given),
        lambda: graph.invoke({"messages": [("user", "?")]}, context=given),
        lambda: agent.resume("t", context=given),
    ]
    for door in doors:
        with pytest.raises(ConfigError, match=says) as refused:
            door()
        assert SECRET not in str(refused.value)
    assert agent.threads.list() == []


def test_a_schema_of_defaults_needs_no_context() -> None:
    @dataclass
    class Defaults:
        user: str = "nobody"

    agent = Agent(
        model=ScriptedModel([call("whoami"), "Done."]), tools=[whoami], context_schema=Defaults
    )
    assert agent.invoke("?").tool_calls[0]["output"] == "You are nobody."


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"context_schema": "Ctx"}, "context_schema takes a dataclass"),
        ({"context_schema": Ctx, "context_subject": "name"}, "names a field of the context"),
        ({"context_subject": "user"}, "context_schema takes a dataclass"),
    ],
)
def test_a_wrong_schema_is_refused_at_once(options: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Agent(model=ScriptedModel([]), **options)


def test_an_agent_without_a_schema_takes_no_context() -> None:
    agent = Agent(model=ScriptedModel(["Hi."]), context_schema=None)
    with pytest.raises(ConfigError, match="takes no context; give it a context_schema"):
        agent.invoke("?", context={"user": "ada"})


def test_it_is_given_again_to_resume(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'w.db'}"

    def made() -> Agent[Any, Ctx]:
        return agent_of(hooks=[ApprovalHook({"whoami": True})], store=url)

    with made() as agent:
        asked = agent.invoke("Who am I?", thread_id="t", context=Ctx("ada"))
        assert asked.stopped_because == "interrupted"
    answer = {asked.interrupts[0].id: {"decision": "approve"}}
    with made() as agent:
        with pytest.raises(ConfigError, match="also to resume a thread"):
            agent.resume("t", answer)
        result = agent.resume("t", answer, context=Ctx("ada"))
        assert result.tool_calls[0]["output"] == "You are ada."


def test_it_is_found_in_no_byte_that_is_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    url, spans = f"sqlite:///{tmp_path / 'w.db'}", tmp_path / "spans.jsonl"
    with (
        recording(JsonlRecorder(spans)),
        agent_of(
            wild("whoami"), wild("missing"), "Done.", store=url, hooks=[Seen(), TracingHook()]
        ) as agent,
    ):
        agent.invoke("Who am I?", thread_id="t", context=Ctx("ada"))
        with pytest.raises(ConfigError):
            agent.invoke("Who am I?", thread_id="t", context={"key": [SECRET]})
        journal = journal_of(agent)
        assert any("You are ada." in str(journal.details(one)) for one in journal.moments())
    kept = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert {"w.db", "spans.jsonl"} <= kept.keys()
    assert b"whoami" in b"".join(kept.values())
    assert [name for name, data in kept.items() if SECRET.encode() in data] == []
    assert SECRET not in caplog.text


def test_a_child_of_the_same_schema_gets_it(tmp_path: Path) -> None:
    store = SqlSaver.from_url(f"sqlite:///{tmp_path / 'w.db'}")
    child = agent_of(store=store)
    other: Agent[str, Model] = Agent(
        "other", ScriptedModel(["Hi."]), store=store, context_schema=Model
    )
    below = {"child": Subagent(child, "Knows."), "other": Subagent(lambda: other, "Late.")}
    asks = [
        wild("delegate_to_agent", agent="child", task="Who asks?"),
        wild("delegate_to_agent", agent="other", task="Who asks?"),
        wild("start_async_task", agent="child", task="Who asks?"),
        "Done.",
    ]
    parent = agent_of(*asks, store=store, tools=[delegation(below)], hooks=[Background(below)])
    result = parent.invoke("Ask both.", context=Ctx("ada"))
    assert result.tool_calls[0]["output"] == "Done."
    assert "needs a context" in result.tool_calls[1]["error"]
    outputs = [
        message.text
        for info in store.threads.list()
        if info.agent == "a" and info.parent
        for message in child.graph.get_state(
            {"configurable": {"thread_id": info.thread_id}}
        ).values["messages"]
    ]
    assert "You are ada." in outputs
    store.close()


class Alike(TypedDict):
    user: str


class Child(Ctx):
    """An instance of it is one of `Ctx` too."""


class WithDefault(BaseModel):
    user: str = "nobody"


@pytest.mark.parametrize("how", ["waits", "background"])
@pytest.mark.parametrize(
    ("caller", "below", "is_refused"),
    [
        (Ctx, Model, True),
        (None, Ctx, True),
        (Typed, Alike, True),
        (Typed, Typed, False),
        (Ctx, Child, False),
        (Child, Ctx, False),
        (None, WithDefault, False),
        (Ctx, None, False),
    ],
)
def test_a_child_that_nobody_gives_its_context_is_refused_when_the_agent_is_made(
    caller: Any, below: Any, is_refused: bool, how: str
) -> None:
    child: Agent[Any, Any] = Agent("child", ScriptedModel([]), store=False, context_schema=below)
    agents = {"child": Subagent(child, "Knows.")}
    tools = [delegation(agents)] if how == "waits" else []
    hooks = [] if how == "waits" else [Background(agents)]

    def make() -> Agent[Any, Any]:
        model = ScriptedModel([])
        return Agent("a", model, tools=tools, hooks=hooks, store=False, context_schema=caller)

    if not is_refused:
        assert make().name == "a"
        return
    with pytest.raises(ConfigError, match="the sub-agent child needs a context of .* a default"):
        make()


def test_a_guest_gets_its_own(tmp_path: Path) -> None:
    def node(state: MessagesState, runtime: Runtime[Ctx]) -> Any:
        return {"messages": [("ai", f"You are {runtime.context.user}.")]}

    graph = StateGraph(MessagesState, context_schema=Ctx)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    agent = GuestAgent(graph.compile())
    assert agent.invoke("?", context={"user": "ada"}).text == "You are ada."


def test_a_debugger_gives_it_to_its_runs() -> None:
    agent = agent_of(call("whoami"), "Done.", call("whoami"), "Done.")
    agent.invoke("Who am I?", thread_id="t", context=Ctx("ada"))
    with DebugSession.open(agent, "t") as session:
        session.goto("@last")
        failed = session.run("Again?", thread_id="u", stop_on_entry=False, timeout=60)
        assert failed.reason == "failed"
        assert "needs a context" in failed.text
        session.context = Ctx("bob")
        session.run("Again?", thread_id="v", stop_on_entry=False, timeout=60)
        assert session.result["messages"][-2].text == "You are bob."
    with pytest.raises(ConfigError, match="needs a context"):
        replay(agent, journal_of(agent))
    assert replay(agent, journal_of(agent), context=Ctx("eve")).tool_calls == 1


APP = """
from dataclasses import dataclass
from wick_graph import ToolContext, tool

@dataclass
class Ctx:
    user: str

@tool
def whoami(ctx: ToolContext) -> str:
    "Say who asks."
    return f"You are {ctx.context.user}."
"""


def test_a_file_names_its_schema(tmp_path: Path) -> None:
    (tmp_path / "context_app.py").write_text(APP)
    (tmp_path / "talk.yaml").write_text("steps: [{calls: [{tool: whoami}]}, Done.]")
    (tmp_path / "agents.yaml").write_text(
        "model: scripted:talk.yaml\ntools: ['context_app:whoami']\n"
        "context: {use: 'context_app:Ctx', subject: user}\n"
    )
    with load(tmp_path / "agents.yaml") as agents:
        result = agents["default"].invoke("?", context={"user": "ada"})
        assert result.tool_calls[0]["output"] == "You are ada."
        assert "agents.default.context" in agents.config.starts.sections


@pytest.mark.parametrize("background", ["true", "false"])
def test_a_file_with_a_sub_agent_that_gets_no_context_is_refused(
    tmp_path: Path, background: str
) -> None:
    (tmp_path / f"context_app_{background}.py").write_text(APP)
    (tmp_path / "t.yaml").write_text("steps: [Done.]")
    (tmp_path / "agents.yaml").write_text(
        "store: sqlite:///w.db\ndefaults: {model: scripted:t.yaml}\nagents:\n"
        f"  boss: {{subagents: {{knower: {{description: Knows., background: {background}}}}}}}\n"
        f"  knower: {{context: {{use: 'context_app_{background}:Ctx'}}}}\n"
    )
    says = r"agents.yaml:4:.*agents\.boss\.subagents\.knower.*needs a context of Ctx"
    with load(tmp_path / "agents.yaml") as agents, pytest.raises(ConfigError, match=says):
        agents["boss"]
    with pytest.raises(ConfigError, match=says):
        check_agents(agents.config)
    assert not (tmp_path / "w.db").exists()


def test_a_failed_event_is_no_leak() -> None:
    def boom(ctx: ToolContext) -> str:
        """Fail."""
        raise RuntimeError("no")

    agent = agent_of(calls(("boom", {})), "Done.", tools=[boom])
    last = [*agent.stream("?", context=Ctx("ada"))][-1]
    assert not isinstance(last, Failed)
    assert SECRET not in repr(last)


@pytest.mark.parametrize(("schema", "sees"), [(Ctx, Ctx("ada")), (Model, None)])
def test_a_graph_of_the_same_schema_gets_it_as_a_child(schema: Any, sees: Any) -> None:
    seen: list[Any] = []

    def node(state: MessagesState, runtime: Runtime[Any]) -> Any:
        seen.append(runtime.context)
        return {"messages": [("ai", "Hello.")]}

    graph = StateGraph(MessagesState, context_schema=schema).add_node("node", node)
    child = GuestAgent(graph.add_edge(START, "node").compile(), "child")
    model = ScriptedModel([call("delegate_to_agent", agent="child", task="Greet."), "Done."])
    tools = [delegation({"child": Subagent(child, "Greets.")})]
    agent = Agent(model=model, tools=tools, context_schema=Ctx)
    assert agent.invoke("Go", context=Ctx("ada")).tool_calls[0]["output"] == "Hello."
    assert seen == [sees]
