"""An agent's long-term store: wherever LangGraph's own tools look for it, and in sub-agents."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from deepagents.backends import StoreBackend
from deepagents.middleware import FilesystemMiddleware
from langchain.tools import ToolRuntime
from langchain_core.tools import tool as langchain_tool
from langgraph.config import get_store
from langgraph.prebuilt import InjectedStore
from langgraph.store.memory import InMemoryStore

from tests.engine.support import Door, async_door, sync_door, wild
from wick_graph import Agent, load, tool
from wick_graph.errors import ConfigError
from wick_graph.hooks import ApprovalHook, Approve
from wick_graph.loading import Agents
from wick_graph.middleware import MiddlewareHook
from wick_graph.store import SqlStore
from wick_graph.subagents import Background, Subagent, delegation
from wick_graph.testing import ScriptedModel, respond

DOORS = pytest.mark.parametrize("door", [sync_door, async_door])


@tool
def by_function(what: str) -> str:
    """Keep it."""
    get_store().put(("kept",), "by function", {"what": what})
    return "kept"


@tool
async def by_coroutine(what: str) -> str:
    """Keep it."""
    await get_store().aput(("kept",), "by coroutine", {"what": what})
    return "kept"


@langchain_tool
def by_runtime(what: str, runtime: ToolRuntime) -> str:
    """Keep it."""
    assert runtime.store is not None
    runtime.store.put(("kept",), "by runtime", {"what": what})
    return "kept"


@langchain_tool
async def by_injection(what: str, store: Annotated[Any, InjectedStore()]) -> str:
    """Keep it."""
    await store.aput(("kept",), "by injection", {"what": what})
    return "kept"


TOOLS = (by_function, by_coroutine, by_runtime, by_injection)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    with SqlStore.from_url(f"sqlite:///{tmp_path / 'long.db'}") as made:
        yield made


def agent_of(*steps: Any, **options: Any) -> Agent:
    return Agent("agent", ScriptedModel(list(steps)), **options)


def kept(store: Any) -> dict[str, Any]:
    return {item.key: item.value["what"] for item in store.search(("kept",), limit=100)}


@DOORS
def test_every_way_of_langgraph_leads_to_it(door: Door, store: SqlStore) -> None:
    calls = [wild(one.name, what=one.name) for one in TOOLS]
    door(agent_of(*calls, "Done.", tools=TOOLS, long_term=store), "Keep")
    assert kept(store) == {
        one.name.replace("_", " "): one.name for one in (by_function, by_coroutine, *TOOLS[2:])
    }


@DOORS
def test_another_store_of_langgraph_serves_too(door: Door) -> None:
    store = InMemoryStore()
    agent = agent_of(wild("by_runtime", what="x"), "Done.", tools=TOOLS, long_term=store)
    door(agent, "Keep")
    assert kept(store) == {"by runtime": "x"}


def test_without_one_a_tool_is_told(store: SqlStore) -> None:
    agent = agent_of(wild("by_injection", what="x"), "Done.", tools=TOOLS)
    (told,) = agent.invoke("Keep").tool_calls
    assert "compiled without one" in told["error"]


@DOORS
def test_it_outlives_threads_and_is_there_after_a_resume(
    door: Door, store: SqlStore, tmp_path: Path
) -> None:
    options: Any = {
        "tools": TOOLS,
        "hooks": [ApprovalHook({"by_runtime": True})],
        "store": f"sqlite:///{tmp_path / 'threads.db'}",
        "long_term": store,
    }
    model = [wild("by_runtime", what="x"), "Done."]
    with agent_of(*model, **options) as agent:
        assert door(agent, "Keep", thread_id="t").stopped_because == "interrupted"
    assert kept(store) == {}
    with agent_of(*model, **options) as agent:
        if door is sync_door:
            agent.resume("t", Approve())
        else:
            asyncio.run(agent.aresume("t", Approve()))
    assert kept(store) == {"by runtime": "x"}


@DOORS
def test_a_child_without_one_has_its_parents(door: Door, store: SqlStore, tmp_path: Path) -> None:
    threads = f"sqlite:///{tmp_path / 'threads.db'}"
    other = InMemoryStore()

    def child_of(*steps: Any, **options: Any) -> Subagent:
        return Subagent(agent_of(*steps, tools=TOOLS, store=threads, **options), "Keeps")

    own = child_of(wild("by_function", what="own"), "Kept.", long_term=other)
    without = child_of(wild("by_injection", what="inherited"), "Kept.")
    tools = [delegation({"own": own, "without": without})]
    steps = [wild("delegate_to_agent", agent=name, task="Keep") for name in ("own", "without")]
    door(agent_of(*steps, "Done.", tools=tools, store=threads, long_term=store), "Keep")
    assert kept(store) == {"by injection": "inherited"}
    assert kept(other) == {"by function": "own"}


@DOORS
def test_a_task_in_the_background_has_its_parents(
    door: Door, store: SqlStore, tmp_path: Path
) -> None:
    threads = f"sqlite:///{tmp_path / 'threads.db'}"
    clerk = agent_of(wild("by_runtime", what="later"), "Kept.", tools=TOOLS, store=threads)

    def wait(call: Any) -> Any:
        said = next(m.text for m in call.messages if m.type == "tool")
        found = said.partition('"task_id": "')[2].partition('"')[0]
        return wild("await_async_tasks", task_ids=[found])

    steps = [wild("start_async_task", agent="clerk", task="Keep"), respond(wait), "Done."]
    tasks = Background({"clerk": Subagent(clerk, "Keeps")})
    door(agent_of(*steps, hooks=[tasks], store=threads, long_term=store), "Keep")
    tasks.close()
    assert kept(store) == {"by runtime": "later"}


@DOORS
def test_deepagents_keeps_its_files_there(door: Door, store: SqlStore) -> None:
    backend = StoreBackend(namespace=lambda runtime: ("filesystem",))
    hook = MiddlewareHook(FilesystemMiddleware(backend=backend))
    write = wild("write_file", file_path="/plan.md", content="Buy tea.")
    read = wild("read_file", file_path="/plan.md")
    for steps in ([write, "Done."], [read, "Done."]):  # in a thread each
        result = door(agent_of(*steps, hooks=[hook], long_term=store), "Go")
    assert "Buy tea." in result.tool_calls[0]["output"]
    (item,) = store.search(("filesystem",))
    assert item.key == "/plan.md"


def test_a_graph_for_a_platform_brings_none(store: SqlStore) -> None:
    agent = agent_of("Done.", long_term=store)
    assert agent.graph.store is store
    assert agent.copy_with(None).graph.store is store
    assert agent.platform_graph().store is None


# --- agents.yaml

FILE = """\
store: sqlite:///threads.db
long_term: {ttl: 30d}
defaults: {model: "scripted:demo", recall: [users, "{user}"]}
agents: {default: {}, other: {}}
"""


def test_agents_of_a_file_share_one_and_tenants_do_not(tmp_path: Path) -> None:
    (tmp_path / "agents.yaml").write_text(FILE, "utf-8")
    config = load(tmp_path / "agents.yaml").config
    asked: Any = {"config": {"configurable": {"user": "u"}}}
    with Agents(config, tenant="a") as a, Agents(config, tenant="b") as b:
        a["default"].invoke('remember(text="likes tea", name="drink")', **asked)
        for agents, expected in ((a, "likes tea"), (b, "There is no such note.")):
            result = agents["other"].invoke('recall(query="tea")', **asked)
            assert expected in result.tool_calls[0]["output"]
        found = a["default"].spec.long_term
        assert isinstance(found, SqlStore)
        assert found.ttl_config == {"default_ttl": 30 * 24 * 60}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{}\nagents: {a: {recall: [x]}}", "agents.a.recall: needs the long-term store"),
        ("{index: {embed: x}}\nagents: {a: {}}", "long_term.index.dims: is missing"),
        ("{index: {embed: 'no:body', dims: 3}}\nagents: {a: {}}", "embed cannot be used"),
        ("{tll: 3d}\nagents: {a: {}}", "ttl"),
    ],
)
def test_mistakes_are_told_with_their_place(tmp_path: Path, text: str, why: str) -> None:
    key = "limits" if text.startswith("{}") else "long_term"
    (tmp_path / "agents.yaml").write_text(f"defaults: {{model: 'scripted:demo'}}\n{key}: {text}")
    with pytest.raises(ConfigError, match=why), load(tmp_path / "agents.yaml") as agents:
        agents["a"]
