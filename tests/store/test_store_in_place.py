"""What was changed in place and written back is stored as it was; nothing handed out is shared."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator
from operator import add
from threading import Event
from typing import Annotated, Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Overwrite

from tests.store.encrypted import key
from tests.store.store_graphs import CountingModel, config, look, put_writes_late
from wick_graph import Agent
from wick_graph.errors import StorageError
from wick_graph.langgraph_config import PULL
from wick_graph.store import Keys, SqlSaver
from wick_graph.store.sharing import ItemWriter
from wick_graph.testing import ScriptedModel, call

AT = config()


@pytest.fixture(params=["plain", "encrypted"])
def saver(url: str, request: pytest.FixtureRequest) -> Iterator[SqlSaver]:
    keys = Keys([key("place")]) if request.param == "encrypted" else None
    with SqlSaver.from_url(url, synchronous="NORMAL", keys=keys) as opened:
        yield opened


def merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """A reducer that changes what it is given, below what the write holds."""
    for name, value in new.items():
        old.setdefault(name, []).extend(value)
    return old


def patched(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A reducer that changes an old element in place, and none of the writes is in the list."""
    for change in new:
        found = [one for one in old if one["id"] == change["id"]]
        if found:
            found[0].update(change)
        else:
            old.append(dict(change))
    return old


class State(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    items: Annotated[list[dict[str, Any]], add]
    todo: list[dict[str, Any]]
    files: dict[str, dict[str, Any]]
    groups: Annotated[dict[str, list[Any]], merged]
    rows: Annotated[list[dict[str, Any]], patched]


def joined(old: list[Any], new: list[list[Any]]) -> list[Any]:
    return [*old, *(one for write in new for one in write)]


class Many(TypedDict):
    items: Annotated[list[Any], DeltaChannel(joined, snapshot_frequency=3)]


Node = Any


def graph_of(saver: BaseCheckpointSaver[Any], *nodes: Node, schema: Any = State) -> Any:
    builder = StateGraph(schema)
    for number, node in enumerate(nodes):
        builder.add_node(str(number), node)
        builder.add_edge(str(number - 1) if number else START, str(number))
    return builder.compile(checkpointer=saver)


def stored(saver: SqlSaver, thread: str = "t") -> dict[str, Any]:
    """Read a thread's values as another process does: nothing is known."""
    saver._core.caches.clear()
    found = saver.get_tuple(config(thread))
    assert found is not None
    return found.checkpoint["channel_values"]


def calls_of(args: dict[str, Any], id: str = "a") -> AIMessage:
    return AIMessage("go", id=id, tool_calls=[{"name": "act", "args": args, "id": "c"}])


START_STATE: dict[str, Any] = {
    "messages": [HumanMessage("hi", id="h"), calls_of({"n": "old"})],
    "items": [{"a": 1}, {"a": 2}],
    "todo": [{"done": False}, {"done": False}],
    "files": {"x": {"text": "old"}, "y": {"text": "y"}},
    "groups": {"g": [1]},
    "rows": [{"id": 1, "v": "old"}, {"id": 2, "v": "two"}],
}


def start() -> dict[str, Any]:
    return copy.deepcopy(START_STATE)


def test_a_call_whose_arguments_were_edited(saver: SqlSaver) -> None:
    """LangGraph's own idiom: edit the last message of a state, and write it back."""
    graph = graph_of(saver, lambda s: {})
    graph.invoke(start(), AT)
    for turn in ("first", "second"):
        message = graph.get_state(AT).values["messages"][-1]
        message.tool_calls[0]["args"] = {"n": turn}
        graph.update_state(AT, {"messages": [message]})
        assert graph.get_state(AT).values["messages"][-1].tool_calls[0]["args"] == {"n": turn}
        assert stored(saver)["messages"][-1].tool_calls[0]["args"] == {"n": turn}


async def test_a_call_whose_arguments_were_edited_async(saver: SqlSaver) -> None:
    graph = graph_of(saver, lambda s: {})
    await graph.ainvoke(start(), AT)
    message = (await graph.aget_state(AT)).values["messages"][-1]
    message.tool_calls[0]["args"] = {"n": "new"}
    await graph.aupdate_state(AT, {"messages": message})
    assert stored(saver)["messages"][-1].tool_calls[0]["args"] == {"n": "new"}


def edit_todo(state: Any) -> Any:
    state["todo"][0]["done"] = True
    return {"todo": state["todo"]}


def edit_message(state: Any) -> Any:
    state["messages"][-1].tool_calls[0]["args"]["n"] = "new"
    return {"messages": [state["messages"][-1]]}


def edit_all_messages(state: Any) -> Any:
    state["messages"][0].content = "new"
    return {"messages": state["messages"]}


def edit_and_add(state: Any) -> Any:
    state["messages"][0].content = "new"
    return {"messages": [state["messages"][0], AIMessage("more", id="m")]}


def edit_and_remove(state: Any) -> Any:
    state["messages"][1].content = "new"
    return {"messages": [RemoveMessage(id="h"), state["messages"][1]]}


def edit_file(state: Any) -> Any:
    state["files"]["x"]["text"] = "new"
    return {"files": {**state["files"]}}


def edit_item(state: Any) -> Any:
    state["items"][0]["a"] = "new"
    return {"items": [state["items"][0]]}


def overwrite(state: Any) -> Any:
    state["items"][1]["a"] = "new"
    return {"items": Overwrite(state["items"])}


NODES: list[tuple[Node, str]] = [
    (edit_todo, "todo"),
    (edit_message, "messages"),
    (edit_all_messages, "messages"),
    (edit_and_add, "messages"),
    (edit_and_remove, "messages"),
    (edit_file, "files"),
    (edit_item, "items"),
    (overwrite, "items"),
    (lambda s: {"groups": {"g": [2]}}, "groups"),
    (lambda s: {"rows": [{"id": 1, "v": "new"}]}, "rows"),
]


@pytest.mark.sisters(16)
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize(("node", "channel"), NODES)
def test_a_node_that_edits_and_returns(
    saver: SqlSaver, node: Node, channel: str, durability: Any
) -> None:
    """What the run itself sees is what is stored, whichever way a reducer went."""
    graph = graph_of(saver, lambda s: {}, node)
    seen = graph.invoke(start(), AT, durability=durability)[channel]
    assert seen != START_STATE[channel]
    assert stored(saver)[channel] == seen


def test_a_later_turn_that_edits(saver: SqlSaver) -> None:
    """The same with a list that this process read, and that an earlier one wrote."""
    graph = graph_of(saver, edit_todo, edit_message, edit_file)
    plain = graph_of(saver, lambda s: {})
    for turn in range(3):
        given = {"messages": [calls_of({"n": f"old {turn}"}, f"a{turn}")]}
        plain.invoke(given | ({} if turn else {"todo": [{"done": False}] * 12}), AT)
        plain.update_state(AT, {"files": {"x": {"text": "old"}}})
        saver._core.caches.clear()
        seen = graph.invoke({"messages": []}, AT)
        assert seen["messages"][-1].tool_calls[0]["args"] == {"n": "new"}
        assert stored(saver) == {name: value for name, value in seen.items() if value}


def test_edits_of_parallel_tasks(saver: SqlSaver) -> None:
    def editor(at: int) -> Node:
        def edit(state: Any) -> Any:
            state["messages"][at].content = f"by {at}"
            return {"messages": [state["messages"][at]]}

        return edit

    builder = StateGraph(State)
    for at in range(5):
        builder.add_node(str(at), editor(at))
        builder.add_edge(START, str(at))
    graph = builder.compile(checkpointer=saver)
    graph.update_state(AT, {"messages": [HumanMessage("old", id=str(at)) for at in range(5)]})
    seen = graph.invoke({"messages": []}, AT)
    assert [one.content for one in seen["messages"]] == [f"by {at}" for at in range(5)]
    assert stored(saver)["messages"] == seen["messages"]


@pytest.mark.parametrize("first", ["before", "behind"])
def test_writes_that_come_behind_their_checkpoint(saver: SqlSaver, first: str) -> None:
    """LangGraph saves both from a pool of threads: which is first is not certain.

    They do not wait for another commit: until then the stored checkpoint would be the old one.
    """
    graph = graph_of(saver, lambda s: {})
    graph.update_state(AT, {"todo": [{"done": False}, {"done": False}]})
    before = saver.get_tuple(AT)
    assert before is not None
    checkpoint = copy.copy(before.checkpoint)
    todo = before.checkpoint["channel_values"]["todo"]
    other = {"text": "other"}
    checkpoint["id"] = "f" + checkpoint["id"][1:]
    checkpoint["channel_values"] = {"todo": [*todo, other]}
    versions = {"todo": saver.get_next_version(9 << 20, None)}
    checkpoint["channel_versions"] = {**checkpoint["channel_versions"], **versions}
    todo[0]["done"] = True
    if first == "before":
        saver.put_writes(before.config, [("todo", [other])], "one", PULL)
    saver.put(before.config, checkpoint, {"source": "loop", "step": 9}, versions)
    saver.put_writes(before.config, [("todo", [todo[0]])], "two", PULL)
    assert saver._core.deferred.since is None
    assert stored(saver)["todo"] == [{"done": True}, {"done": False}, {"text": "other"}]


@pytest.mark.parametrize("defer", [False, True])
def test_a_join_is_stored_as_it_was_though_writes_come_late(
    saver: SqlSaver, monkeypatch: pytest.MonkeyPatch, defer: bool
) -> None:
    """A join's set is changed in place by the next step, before the last writes have come."""
    builder = StateGraph(State)
    for name in "abcd":
        builder.add_node(name, lambda s: {"items": [{}]}, defer=defer and name == "d")
    for edge in ((START, "a"), (START, "b"), ("b", "c"), (["a", "c"], "d")):
        builder.add_edge(*edge)
    graph, stored_next, came = builder.compile(checkpointer=saver), *(Event() for _ in range(2))
    put, put_writes = SqlSaver.put, SqlSaver.put_writes

    def put_behind(self: SqlSaver, config: Any, checkpoint: Any, metadata: Any, new: Any) -> Any:
        if metadata["step"] == 2:  # the set is changed, and what is stored last is still step 1
            stored_next.set()
            came.wait(10)
        return put(self, config, checkpoint, metadata, new)

    @functools.wraps(put_writes)
    def late(self: SqlSaver, config: Any, writes: Any, task: str, path: str = "") -> None:
        is_late = dict(writes).get("join:a+c:d") == "a"
        if is_late:
            stored_next.wait(10)
        put_writes(self, config, writes, task, path)
        if is_late:
            came.set()

    monkeypatch.setattr(SqlSaver, "put", put_behind)
    monkeypatch.setattr(SqlSaver, "put_writes", late)
    graph.invoke({}, AT, durability="sync")
    joins = {one.metadata["step"]: one.checkpoint["channel_values"] for one in saver.list(AT)}
    assert joins[1]["join:a+c:d"] == (({"a"}, False) if defer else {"a"})


def test_a_delta_channel(saver: SqlSaver) -> None:
    """It is rebuilt from its writes: as with LangGraph's saver, edits and snapshots included."""

    def again(state: Any) -> Any:
        state["items"][0]["n"] += 1
        return {"items": [state["items"][0]]}

    def seen_with(given: BaseCheckpointSaver[Any]) -> list[Any]:
        graph, seen = graph_of(given, again, schema=Many), []
        for turn in range(6):
            graph.invoke({"items": [{"n": turn * 100}]}, AT, durability="sync")
            tail = graph.get_state(AT).values["items"][-1]
            tail["edited"] = turn
            graph.update_state(AT, {"items": [tail]})
            saver._core.caches.clear()
            seen.append(graph.get_state(AT).values["items"])
        return seen

    with SqliteSaver.from_conn_string(":memory:") as theirs:
        assert seen_with(saver) == seen_with(theirs)


def test_create_agent(saver: SqlSaver) -> None:
    graph = create_agent(
        CountingModel(turns=1), [look], checkpointer=saver, interrupt_before=["tools"]
    )
    graph.invoke({"messages": [HumanMessage("hi")]}, AT)
    message = graph.get_state(AT).values["messages"][-1]
    message.tool_calls[0]["args"]["q"] = "edited"
    graph.update_state(AT, {"messages": [message]})
    answered = graph.invoke(None, AT)
    assert answered["messages"][2].content.startswith("edited found")
    assert stored(saver)["messages"][1].tool_calls[0]["args"] == {"q": "edited"}


def test_our_own_agent(saver: SqlSaver) -> None:
    ran: list[str] = []

    def act(what: str) -> str:
        """Act."""
        ran.append(what)
        return what

    agent = Agent("a", ScriptedModel([call("act", what="old"), "done"]), tools=[act], store=saver)
    agent.graph.interrupt_before_nodes = ["tools"]
    agent.invoke("go", thread_id="t")
    message = agent.graph.get_state(AT).values["messages"][-1]
    message.tool_calls[0]["args"]["what"] = "new"
    agent.graph.update_state(AT, {"messages": [message]}, as_node="model")
    agent.graph.interrupt_before_nodes = []
    agent.graph.invoke(None, AT)
    assert ran == ["new"]
    assert stored(saver)["messages"][1].tool_calls[0]["args"] == {"what": "new"}


def test_nothing_handed_out_is_shared(saver: SqlSaver) -> None:
    """Whoever changes what a state, a history or a result holds changes that copy alone."""
    graph = graph_of(saver, lambda s: {"items": [{"a": 3}]}, lambda s: {"items": [{"a": 4}]})

    def spoil(values: Any) -> None:
        for message in values.get("messages", ()):
            message.content = "spoilt"
        for name in ("items", "todo", "rows"):
            for one in values.get(name, ()):
                one.clear()
        values.get("files", {}).clear()

    spoil(graph.invoke(start(), AT))
    expected = stored(saver)
    fresh = copy.deepcopy(expected)
    for state in graph.get_state_history(AT):
        again = graph.get_state(state.config).values
        assert again == state.values
        spoil(state.values)
        assert graph.get_state(state.config).values == again
    for found in saver.list(AT):
        spoil(found.checkpoint["channel_values"])
    spoil(graph.get_state(AT).values)
    graph.update_state(AT, {"items": [{"a": 5}]})
    fresh["items"].append({"a": 5})
    assert graph.get_state(AT).values == {
        k: v for k, v in fresh.items() if k in State.__annotations__
    }
    assert stored(saver)["messages"] == fresh["messages"]


def test_equal_elements_are_not_one_object(saver: SqlSaver) -> None:
    """Equal content is stored once; each place where it occurs gets an object of its own."""
    graph = graph_of(saver, edit_todo, edit_file)
    same = {"text": "old"}
    graph.update_state(AT, {"todo": [{"done": False}] * 12, "files": {"x": same, "y": same}})
    seen = graph.invoke({"messages": []}, AT)
    assert seen["todo"] == [{"done": True}] + [{"done": False}] * 11
    assert seen["files"] == {"x": {"text": "new"}, "y": {"text": "old"}}
    assert stored(saver)["todo"] == seen["todo"]


@pytest.fixture(params=["first", "late"])
def order(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Either order of a step's writes and its checkpoint."""
    if request.param == "late":
        put_writes_late(monkeypatch)


@pytest.mark.usefixtures("order")
def test_an_append_encodes_what_is_new(saver: SqlSaver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step costs what it writes, however long the list is."""
    seen: list[Any] = []
    real = ItemWriter._element

    def counted(self: ItemWriter, lane: Any, paired: bool, key: Any, value: Any) -> int:
        seen.append(value)
        return real(self, lane, paired, key, value)

    nodes = [
        lambda s, n=n: {"messages": [AIMessage("x", id=f"n{n}-{len(s['messages'])}")]}
        for n in range(4)
    ]
    graph = graph_of(saver, *nodes)
    many = [HumanMessage("h", id=f"h{n}") for n in range(300)]
    graph.invoke({"messages": many}, AT, durability="sync")
    monkeypatch.setattr(ItemWriter, "_element", counted)
    graph.invoke({"messages": [HumanMessage("again", id="again")]}, AT, durability="sync")
    written = [one for one in seen if isinstance(one, (AIMessage, HumanMessage))]
    assert {one.id for one in written} == {"again", "n0-305", "n1-306", "n2-307", "n3-308"}
    assert len(written) <= 3 * 5


@pytest.mark.usefixtures("order")
def test_changed_but_not_written_is_named_in_debug_mode(url: str) -> None:
    def silent(state: Any) -> Any:
        state["items"][0]["a"] = "changed"
        return {"todo": [{"done": True}]}

    def spoken(state: Any) -> Any:
        state["items"][0]["a"] = "changed"
        return {"items": [state["items"][0]]}

    with SqlSaver.from_url(url, debug=True) as saver:
        graph_of(saver, lambda s: {}, spoken).invoke(start(), AT, durability="sync")
        with pytest.raises(
            StorageError, match=r"at index 0 of channel 'items' was changed in place"
        ):
            graph_of(saver, lambda s: {}, silent).invoke(
                start(), config("other"), durability="sync"
            )
