"""`agent.graph` is LangGraph's own: breakpoints, edits, history, forks, nesting, every door."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langgraph.channels import BinaryOperatorAggregate, EphemeralValue
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command, RetryPolicy, interrupt

from tests.engine.support import Door, Recorder, add, agent_of, roles
from tests.support.recorded import done_in
from wick_graph import Agent, BaseHook, WickError
from wick_graph.core.state import AgentState
from wick_graph.errors import ConfigError, MessageError
from wick_graph.nodes.route import decide, explain
from wick_graph.testing import ScriptedModel, call, calls


def on(thread: str) -> Any:
    return {"configurable": {"thread_id": thread}}


def ask(text: str) -> Any:
    return {"messages": [HumanMessage(text)]}


def test_it_is_a_compiled_state_graph_with_four_nodes_and_two_labelled_edges() -> None:
    agent, _ = agent_of("ok")
    assert isinstance(agent.graph, CompiledStateGraph)
    drawn = agent.graph.get_graph()
    nodes = {"__start__", "before_agent", "modify_request", "model", "tools", "__end__"}
    assert set(drawn.nodes) == nodes
    edges = {(e.source, e.target, e.data) for e in drawn.edges}
    assert edges == {
        ("__start__", "before_agent", None),
        ("before_agent", "modify_request", None),
        ("modify_request", "model", None),
        ("model", "tools", "route: tools"),
        ("model", "__end__", "route: end"),
        ("tools", "modify_request", None),
    }


CALLS = AIMessage("", tool_calls=[{"name": "add", "args": {}, "id": i} for i in ("1", "2")])

STATES: list[tuple[dict[str, Any], str, list[bool]]] = [
    ({}, "the last message is no reply of the model", [False, True, True, False]),
    (
        {"messages": [HumanMessage("hi")], "stop_reason": ""},
        "the last message is no reply of the model",
        [False, True, True, False],
    ),
    (
        {"messages": [AIMessage("ok")]},
        "the reply calls no tool",
        [False, False, True, False],
    ),
    ({"messages": [CALLS]}, "the reply calls 2 tool(s)", [False, False, False, True]),
    (
        {"messages": [CALLS], "stop_reason": "limit"},
        "stop_reason is limit",
        [True, False, False, True],
    ),
]


@pytest.mark.parametrize(("state", "reason", "rules"), STATES)
def test_a_decision_is_explained_as_it_is_made(
    state: dict[str, Any], reason: str, rules: list[bool]
) -> None:
    told, listed = explain(state)
    assert told == decide(state).reason == reason
    assert [rule.result for rule in listed] == rules
    assert decide(state).label == next((r.label for r in listed if r.result), "route: end")


def test_the_topology_does_not_depend_on_hooks_or_tools() -> None:
    bare = agent_of("ok", tools=[])[0].graph.get_graph()
    full = agent_of("ok", hooks=[Recorder("A", [])])[0].graph.get_graph()
    assert list(bare.nodes) == list(full.nodes)
    assert bare.edges == full.edges
    assert full.nodes["model"].metadata == {"hooks": "A"}


@pytest.mark.parametrize("node", ["before_agent", "modify_request", "model", "tools"])
def test_every_node_can_be_stopped_before_and_gone_on_from(node: str) -> None:
    agent, model = agent_of(call("add", a=1, b=2), "three")
    agent.graph.invoke(ask("?"), on("t"), interrupt_before=[node])
    assert agent.graph.get_state(on("t")).next == (node,)
    assert agent.threads.get("t").status == "waiting"
    state = agent.graph.invoke(None, on("t"))
    assert state["messages"][-1].text == "three"
    assert agent.threads.get("t").status == "idle"
    model.assert_complete()


def test_stepping_stops_before_each_node_in_turn() -> None:
    agent, _ = agent_of(call("add", a=1, b=2), "three")
    seen = []
    given: Any = ask("?")
    for _ in range(20):
        agent.graph.invoke(given, on("t"), interrupt_before="*")
        given, following = None, agent.graph.get_state(on("t")).next
        if not following:
            break
        seen.append(following[0])
    loop = ["modify_request", "model"]
    assert seen == ["before_agent", *loop, "tools", *loop]


def test_an_edit_before_the_model_keeps_the_prompt_and_what_hooks_inject() -> None:
    agent, model = agent_of("ok", hooks=[Recorder("A", [])], system_prompt="Base.")
    agent.graph.invoke(ask("old"), on("t"), interrupt_before=["model"])
    [old] = agent.graph.get_state(on("t")).values["messages"]
    edit = {"messages": [HumanMessage("new", id=old.id), HumanMessage("and more")]}
    agent.graph.update_state(on("t"), edit, as_node="modify_request")
    agent.graph.invoke(None, on("t"))
    [seen] = model.calls
    assert seen.system == "Base.\n\n[A]"
    assert [m.text for m in seen.messages[1:]] == ["new", "and more"]


def test_an_edited_overlay_is_what_the_model_gets() -> None:
    agent, model = agent_of("ok", system_prompt="Base.")
    agent.graph.invoke(ask("?"), on("t"), interrupt_before=["model"])
    overlay = agent.graph.get_state(on("t")).values["request"]
    changed = {**overlay, "system": [["Other.", "me"]], "tools": []}
    agent.graph.update_state(on("t"), {"request": changed}, as_node="modify_request")
    agent.graph.invoke(None, on("t"))
    assert (model.calls[0].system, model.calls[0].tools) == ("Other.", ())


def test_an_edited_reply_is_routed_again() -> None:
    agent, _ = agent_of("no tools today", "three")
    agent.graph.invoke(ask("?"), on("t"), interrupt_after=["model"])
    reply = agent.graph.get_state(on("t")).values["messages"][-1]
    asked = [{"name": "add", "args": {"a": 1, "b": 2}, "id": "c1", "type": "tool_call"}]
    edited = AIMessage("", id=reply.id, tool_calls=asked)
    agent.graph.update_state(on("t"), {"messages": [edited]}, as_node="model")
    assert agent.graph.get_state(on("t")).next == ("tools",)
    state = agent.graph.invoke(None, on("t"))
    assert [m.text for m in state["messages"]] == ["?", "", "3", "three"]


def test_removing_messages_by_hand_works_and_is_idempotent() -> None:
    agent, _ = agent_of("one", "two")
    agent.graph.invoke(ask("a"), on("t"))
    first = agent.graph.get_state(on("t")).values["messages"][0]
    removal = {"messages": [RemoveMessage(first.id), RemoveMessage("unknown")]}
    agent.graph.update_state(on("t"), removal, as_node="model")
    assert roles(agent.graph.get_state(on("t")).values["messages"]) == ["ai"]


def test_history_and_forks() -> None:
    agent, model = agent_of(call("add", a=1, b=2), "three")
    agent.graph.invoke(ask("?"), on("t"))
    history = list(agent.graph.get_state_history(on("t")))
    before_tools = next(s for s in history if s.next == ("tools",))
    ran = len(model.calls)
    state = agent.graph.invoke(None, before_tools.config)
    assert state["messages"][-1].text == "three"
    assert len(model.calls) == ran + 1
    assert [m.text for m in state["messages"]].count("3") == 1


def test_ledger_keys_survive_a_resume_and_differ_after_a_fork() -> None:
    keys: list[str] = []

    class Watch(BaseHook):
        name = "watch"

        def wrap_tool_call(self, call: Any, next: Any) -> Any:
            keys.append(call.ctx.key)
            return next(call)

    agent, _ = agent_of(call("add", a=1, b=2), "three", hooks=[Watch()])
    agent.graph.invoke(ask("?"), on("t"), interrupt_before=["tools"])
    agent.graph.invoke(None, on("t"))
    history = list(agent.graph.get_state_history(on("t")))
    agent.graph.invoke(None, next(s for s in history if s.next == ("tools",)).config)
    agent.graph.invoke(None, [s for s in history if s.next == ("model",)][-1].config)
    assert keys[0] == keys[1]  # the same reply, replayed
    assert keys[2] != keys[0]  # another reply, on another branch
    assert all(key.endswith(":0") for key in keys)


def _approving() -> Any:
    def risky(what: str) -> str:
        """Do something after asking."""
        return f"{what}: {interrupt({'sure': what})}"

    return risky


def test_several_interrupts_are_answered_by_id_and_finished_siblings_are_kept() -> None:
    ran: list[int] = []

    def safe(n: int) -> str:
        """Count."""
        ran.append(n)
        return str(n)

    asked = calls(("risky", {"what": "a"}), ("safe", {"n": 1}), ("risky", {"what": "b"}))
    agent, _ = agent_of(asked, "done", tools=[safe, _approving()])
    first = agent.invoke("?", thread_id="t")
    assert sorted(i.value["sure"] for i in first.interrupts) == ["a", "b"]
    answers = {i.id: f"yes {i.value['sure']}" for i in first.interrupts}
    result = agent.resume("t", answers)
    assert [m.text for m in result.messages[2:5]] == ["a: yes a", "1", "b: yes b"]
    assert ran == [1]


def test_a_new_message_on_an_interrupted_thread_keeps_the_finished_results() -> None:
    asked = calls(("risky", {"what": "a"}), ("add", {"a": 1, "b": 2}))
    agent, model = agent_of(asked, "never mind", tools=[add, _approving()])
    agent.invoke("?", thread_id="t")
    result = agent.invoke("forget it", thread_id="t")
    assert [(m.type, m.text) for m in result.messages] == [
        ("human", "?"),
        ("ai", ""),
        ("tool", "Error: run interrupted before this tool finished"),
        ("tool", "3"),
        ("human", "forget it"),
        ("ai", "never mind"),
    ]


@pytest.mark.parametrize("saver", [None, InMemorySaver], ids=["own-store", "langgraph-store"])
def test_command_resume_through_the_graph_itself(saver: Any) -> None:
    options = {"store": saver()} if saver else {}
    agent, _ = agent_of(call("risky", what="a"), "ok", tools=[_approving()], **options)
    state = agent.graph.invoke(ask("?"), on("t"))
    assert state["__interrupt__"][0].value == {"sure": "a"}
    state = agent.graph.invoke(Command(resume="yes"), on("t"))
    assert [m.text for m in state["messages"]] == ["?", "", "a: yes", "ok"]


def test_a_bad_message_is_refused_before_anything_is_stored() -> None:
    agent, _ = agent_of("never")
    with pytest.raises(MessageError, match=r"message\[0\]: user message has empty content"):
        agent.graph.invoke(ask(""), on("t"))
    assert agent.graph.get_state(on("t")).values == {}


def test_the_graph_takes_the_forms_that_langgraph_takes() -> None:
    forms: list[Any] = [
        "hi",
        ("user", "hi"),
        [("user", "hi")],
        [{"role": "user", "content": "hi"}],
        HumanMessage("hi"),
    ]
    for form in forms:
        agent, model = agent_of("ok")
        messages = [form] if isinstance(form, tuple | str) else form
        agent.graph.invoke({"messages": messages}, on("t"))
        assert model.calls[0].messages[0].text == "hi"


def test_it_nests_in_a_users_own_graph() -> None:
    agent, _ = agent_of(call("add", a=1, b=2), "three", store=False)
    outer: Any = StateGraph(MessagesState)
    outer.add_node("agent", agent.graph)
    outer.add_edge(START, "agent")
    outer.add_edge("agent", END)
    graph = outer.compile(checkpointer=InMemorySaver())
    assert graph.invoke(ask("?"), on("t"))["messages"][-1].text == "three"
    assert asyncio.run(graph.ainvoke(ask("?"), on("u")))["messages"][-1].text == "three"


@pytest.mark.filterwarnings("ignore:The 'config' parameter")  # as for LangGraph's own `ainvoke`
def test_its_ainvoke_is_a_node_of_a_users_own_graph() -> None:
    """LangGraph awaits only a function that is declared `async`."""
    agent, _ = agent_of("ok", store=False)
    outer: Any = StateGraph(MessagesState)
    outer.add_node("agent", agent.graph.ainvoke)
    outer.add_edge(START, "agent")
    graph = outer.compile()
    assert asyncio.run(graph.ainvoke(ask("?")))["messages"][-1].text == "ok"


def test_an_agent_runs_inside_another_agents_tool() -> None:
    inner, _ = agent_of("from the inside")

    def delegate(task: str) -> str:
        """Ask the other agent."""
        return inner.invoke(task).text

    async def adelegate(task: str) -> str:
        """Ask the other agent."""
        return (await inner.ainvoke(task)).text

    for tool in (delegate, adelegate):
        outer, _ = agent_of(call(tool.__name__, task="x"), "ok", tools=[tool])
        assert outer.invoke("?").messages[2].text == "from the inside"
        assert asyncio.run(outer.ainvoke("?")).messages[2].text == "from the inside"


def test_the_sync_door_works_inside_a_running_loop_and_from_threads() -> None:
    agent, _ = agent_of(call("add", a=1, b=2), "three")

    async def inside() -> str:
        return agent.invoke("?").text

    assert asyncio.run(inside()) == "three"
    texts: list[str] = []
    threads = [
        threading.Thread(target=lambda: texts.append(agent.invoke("?").text)) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert texts == ["three"] * 8


def test_the_sync_door_refuses_the_engines_own_loop() -> None:
    inner, _ = agent_of("never")

    async def wrong() -> str:
        """Block the engine's loop."""
        return inner.invoke("x").text

    agent, _ = agent_of(call("wrong"), "ok", tools=[wrong])
    answer = agent.invoke("?").messages[2].text
    assert "would block the engine's own loop; await ainvoke here" in answer


async def _astuff() -> str:
    """Be async."""
    await asyncio.sleep(0)
    return "async"


def _in_child(path: str, queue: Any) -> None:
    model = ScriptedModel([call("_astuff"), "from the child"])
    with Agent(model=model, tools=[_astuff], store=f"sqlite:///{path}") as agent:
        queue.put([m.text for m in agent.invoke("?", thread_id="child").messages])


def test_it_works_after_a_fork(tmp_path: Any) -> None:
    path = str(tmp_path / "t.db")
    model = ScriptedModel([call("_astuff"), "from the parent"])
    with Agent(model=model, tools=[_astuff], store=f"sqlite:///{path}") as agent:
        assert agent.invoke("?").text == "from the parent"  # threads and the loop exist by now
        fork = multiprocessing.get_context("fork")
        queue = fork.Queue()
        child = fork.Process(target=_in_child, args=(path, queue))
        child.start()
        assert queue.get(timeout=30) == ["?", "", "async", "from the child"]
        child.join(30)
        assert agent.threads.get("child").status == "idle"


def test_with_config_keeps_the_life_cycle() -> None:
    agent, _ = agent_of("ok")
    graph = agent.graph.with_config({"tags": ["x"]})
    assert type(graph) is type(agent.graph)
    graph.invoke(ask("?"), on("t"))
    assert agent.threads.get("t").status == "idle"


def test_langgraphs_stream_modes_work(tmp_path: Any) -> None:
    agent, _ = agent_of(call("add", a=1, b=2), "one two three")
    nodes = [next(iter(part)) for part in agent.graph.stream(ask("?"), on("t"))]
    turn = ["modify_request", "model"]
    assert nodes == ["before_agent", *turn, "tools", *turn]
    other, _ = agent_of("one two three")
    tokens = [m.text for m, _ in other.graph.stream(ask("?"), on("t"), stream_mode="messages")]
    assert "".join(t for t in tokens if t != "?").startswith("one two three")
    assert len(tokens) > 2


def test_callbacks_hear_the_model_and_the_tools(door: Door) -> None:
    heard: list[str] = []

    class Ear(BaseCallbackHandler):
        def on_chat_model_start(self, *args: Any, **kwargs: Any) -> None:
            heard.append("chat model")

        def on_chain_start(self, *args: Any, **kwargs: Any) -> None:
            heard.append(kwargs.get("name") or "")

        def on_tool_start(self, serialized: Any, input_str: str, **kwargs: Any) -> None:
            heard.append(f"tool {serialized['name']} {kwargs['inputs']}")

        def on_tool_end(self, output: Any, **kwargs: Any) -> None:
            heard.append(f"tool said {output.text}")

    agent, _ = agent_of(call("add", a=1, b=2), "ok")
    door(agent, "?", config={"callbacks": [Ear()]})
    assert heard.count("chat model") == 2
    assert {"before_agent", "modify_request", "model", "tools"} <= set(heard)
    assert [h for h in heard if h.startswith("tool ")] == [
        "tool add {'a': 1, 'b': 2}",
        "tool said 3",
    ]


def test_cancellation_leaves_a_usable_thread() -> None:
    started = asyncio.Event()

    async def hang() -> str:
        """Never come back."""
        started.set()
        await asyncio.sleep(60)
        return "never"

    agent, _ = agent_of(calls(("hang", {}), ("add", {"a": 1, "b": 2})), "ok", tools=[hang, add])

    async def run() -> None:
        task = asyncio.create_task(agent.ainvoke("?", thread_id="t"))
        await started.wait()
        while not done_in(agent.store):  # type: ignore[arg-type]  # it is ours
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        info = agent.threads.get("t")
        assert (info.status, info.stopped_because) == ("idle", "cancelled")
        result = await agent.ainvoke("again", thread_id="t")
        assert result.text == "ok"
        cut, done = result.messages[2:4]
        assert cut.text.startswith("Error: interrupted, outcome unknown")
        assert done.text == "3"

    asyncio.run(run())


def test_a_store_that_keeps_no_list_says_so() -> None:
    agent, _ = agent_of("ok", store=InMemorySaver())
    with pytest.raises(WickError, match="keeps no list of threads"):
        _ = agent.threads


@pytest.mark.parametrize("answer", [(), ("yes",)], ids=["no answer", "answer"])
@pytest.mark.parametrize("door", ["resume", "aresume", "stream_resume", "astream_resume"])
def test_an_agent_without_a_store_has_no_thread_to_go_on_with(door: str, answer: Any) -> None:
    agent, _ = agent_of("ok", store=False)

    async def go_on() -> None:
        asked = getattr(agent, door)("t", *answer)
        if door == "aresume":
            await asked

    with pytest.raises(ConfigError, match="keeps no threads to go on with; give it a database URL"):
        asyncio.run(go_on())


def test_the_channels_are_copied_as_langgraph_would_copy_them() -> None:
    agent, _ = agent_of("ok")
    kinds = set()
    for name, channel in agent.graph.channels.items():
        if not isinstance(channel, BinaryOperatorAggregate | EphemeralValue):
            continue
        channel.update([{"a": 1}] if name != "messages" else [[HumanMessage("x", id="1")]])
        made = channel.copy()
        parent: Any = type(channel).__mro__[1]
        assert type(made) is type(channel)
        usual = parent.copy(channel)
        slots = [slot for kind in type(channel).__mro__ for slot in getattr(kind, "__slots__", ())]
        assert {slot: getattr(made, slot) for slot in slots} == {
            slot: getattr(usual, slot) for slot in slots
        }
        kinds.add(parent)
    assert kinds == {BinaryOperatorAggregate, EphemeralValue}


def test_what_one_agents_graph_is_given_reaches_no_other() -> None:
    """LangGraph reads the channels once for all agents."""
    one, other = (Agent(model=ScriptedModel(["Done."])) for _ in range(2))
    builder = one.graph.builder
    builder.set_node_defaults(retry_policy=RetryPolicy(max_attempts=7), timeout=3.0)
    builder.add_node("more", lambda state: state)
    builder.schemas[AgentState].pop("messages")
    builder.channels.clear()
    for graph in (other.graph, Agent(model=ScriptedModel(["Done."])).graph):
        assert graph.nodes["model"].retry_policy is None
        assert {"messages"} <= {*graph.builder.schemas[AgentState]} & {*graph.builder.channels}
        assert "more" not in graph.builder.nodes
    assert other.invoke("go").text == "Done."
    made = [agent.graph.builder.channels for agent in (other, Agent(model=ScriptedModel([])))]
    assert not {*map(id, made[0].values())} & {*map(id, made[1].values())}
