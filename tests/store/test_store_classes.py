"""Classes of the user's own: what a graph names is stored, what nobody named is data."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator
from dataclasses import dataclass
from operator import add
from typing import Annotated, Any, NamedTuple, TypedDict

import pytest
from langchain.agents import create_agent
from langchain.agents.structured_output import ToolStrategy
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt
from pydantic import BaseModel

from tests.store.encrypted import key
from tests.store.store_graphs import config
from wick_graph import Agent
from wick_graph.errors import StorageError
from wick_graph.store import Keys, SqlSaver, StoredObject
from wick_graph.testing import ScriptedModel

AT = config()


class Mood(enum.Enum):
    GOOD = "good"


class Place(NamedTuple):
    x: int
    y: int


@dataclass
class Inner:
    place: Place


class Order(BaseModel):
    mood: Mood
    inner: Inner | None = None


class Decision(BaseModel):
    yes: bool


@dataclass
class Stranger:
    x: Any


class State(TypedDict, total=False):
    order: Order | None
    orders: Annotated[list[Order], add]
    by_name: dict[str, Order]
    answer: Any


STRANGER = Stranger(1)
"""No code of a graph names its class."""
ORDER = Order(mood=Mood.GOOD, inner=Inner(Place(1, 2)))


@pytest.fixture(params=["plain", "encrypted"])
def saver(url: str, request: pytest.FixtureRequest) -> Iterator[SqlSaver]:
    keys = Keys([key("place")]) if request.param == "encrypted" else None
    with SqlSaver.from_url(url, synchronous="NORMAL", keys=keys) as opened:
        yield opened


def again(saver: SqlSaver) -> SqlSaver:
    """Return a saver that knows no class, as in another process."""
    made = SqlSaver(saver._core, type(saver.serde)())
    saver._core.caches.clear()
    return made


def graph_of(saver: SqlSaver, *nodes: Any, schema: Any = State) -> Any:
    builder = StateGraph(schema)
    for number, node in enumerate(nodes):
        builder.add_node(str(number), node)
        builder.add_edge(str(number - 1) if number else START, str(number))
    return builder.compile(checkpointer=saver)


def ordering(state: State) -> Any:
    return {"order": ORDER, "orders": [ORDER], "by_name": {"a": ORDER}}


def test_what_the_schema_names(saver: SqlSaver) -> None:
    expected = {"order": ORDER, "orders": [ORDER], "by_name": {"a": ORDER}}
    graph_of(saver, ordering).invoke({}, AT)
    graph = graph_of(again(saver), lambda s: {"answer": type(s["order"]).__name__})
    assert graph.get_state(AT).values == expected
    assert next(graph.get_state_history(AT)).values == expected
    assert graph.invoke({"orders": [ORDER]}, AT)["orders"] == [ORDER, ORDER]
    assert graph.get_state(AT).values["answer"] == "Order"


async def test_what_the_schema_names_async(saver: SqlSaver) -> None:
    await graph_of(saver, ordering).ainvoke({}, AT)
    graph = graph_of(again(saver), ordering)
    assert (await graph.aget_state(AT)).values["order"] == ORDER
    history = [one async for one in graph_of(again(saver), ordering).aget_state_history(AT)]
    assert history[0].values["order"] == ORDER
    await graph.aupdate_state(AT, {"order": Order(mood=Mood.GOOD)})
    assert (await graph.aget_state(AT)).values["order"] == Order(mood=Mood.GOOD)


@pytest.mark.parametrize("kind", ["model", "data"])
def test_a_schema_that_is_a_class_itself(saver: SqlSaver, kind: str) -> None:
    class Model(BaseModel):
        order: Order

    @dataclass
    class Data:
        order: Order

    schema: Any = Model if kind == "model" else Data
    builder = StateGraph(schema)
    builder.add_node("fan", lambda s: {})
    builder.add_node("one", lambda s: {"order": s.order}, input_schema=schema)
    builder.add_edge(START, "fan")
    builder.add_conditional_edges("fan", lambda s: [Send("one", s)], ["one", END])
    graph = builder.compile(checkpointer=saver)
    assert graph.invoke(schema(order=ORDER), AT)["order"] == ORDER
    assert builder.compile(checkpointer=again(saver)).get_state(AT).values["order"] == ORDER


def test_two_classes_of_one_name(saver: SqlSaver) -> None:
    """A function that is called twice makes its classes twice."""

    def made() -> Any:
        class Local(BaseModel):
            n: int

        schema = dataclasses.make_dataclass("Own", [("local", Local)])
        return graph_of(saver, lambda s: {"local": Local(n=s.local.n + 1)}, schema=schema), Local

    graphs = [made(), made()]
    for graph, _ in graphs:
        graph.get_state(AT)
    for turn, (graph, cls) in enumerate([*graphs, *graphs]):
        assert graph.invoke({"local": cls(n=turn)}, config(str(turn)))["local"].n == turn + 1


def test_a_subgraph_names_its_own(saver: SqlSaver) -> None:
    def made(given: SqlSaver) -> Any:
        child = StateGraph(State)
        child.add_node("ask", lambda s: {"order": ORDER, "answer": interrupt("go?")})
        child.add_edge(START, "ask")

        class Outer(TypedDict, total=False):
            answer: Any

        outer = StateGraph(Outer)
        outer.add_node("child", child.compile())
        outer.add_edge(START, "child")
        return outer.compile(checkpointer=given)

    made(saver).invoke({"answer": None}, AT)
    graph = made(again(saver))
    assert graph.get_state(AT, subgraphs=True).tasks[0].state.values["answer"] is None
    assert graph.invoke(Command(resume="yes"), AT) == {"answer": "yes"}


def test_the_functional_api(saver: SqlSaver) -> None:
    @task
    def place(order: Order) -> Order:
        return order

    def made(given: SqlSaver) -> Any:
        @entrypoint(checkpointer=given)
        def work(order: Order) -> Order:
            done = place(order).result()
            interrupt("go?")
            return done

        return work

    made(saver).invoke(ORDER, AT)
    assert made(again(saver)).invoke(Command(resume=1), AT) == ORDER


def asking(state: State) -> Any:
    return {"answer": interrupt("sure?", response_schema=Decision)}


@pytest.mark.parametrize("between", [lambda saver: saver, again], ids=["here", "elsewhere"])
def test_what_an_interrupt_asks_for(saver: SqlSaver, between: Any) -> None:
    graph_of(saver, asking).invoke({}, AT)
    graph = graph_of(between(saver), asking)
    assert graph.invoke(Command(resume={"yes": True}), AT)["answer"] == Decision(yes=True)
    # a third process names the class in the code that asks
    later = graph_of(between(saver), asking)
    assert later.get_state(AT).values["answer"] == Decision(yes=True)
    # one that does not keeps the data
    other = graph_of(again(saver), ordering)
    assert other.get_state(AT).values["answer"] == StoredObject(
        f"{__name__}:Decision", [{"yes": True}, None, ["yes"]]
    )


def test_a_structured_answer_of_an_agent_of_langchain(saver: SqlSaver) -> None:
    class Model(GenericFakeChatModel):
        def bind_tools(self, *args: Any, **kwargs: Any) -> Any:
            return self

    def made(given: SqlSaver) -> Any:
        asked = {"name": "Decision", "args": {"yes": True}, "id": "1"}
        model = Model(messages=iter([AIMessage("", tool_calls=[asked])]))
        return create_agent(model, [], response_format=ToolStrategy(Decision), checkpointer=given)

    hello = {"messages": [HumanMessage("hi")]}
    assert made(saver).invoke(hello, AT)["structured_response"] == Decision(yes=True)
    values = made(again(saver)).get_state(AT).values
    assert values["structured_response"] == Decision(yes=True)


def test_an_unknown_class_is_refused_when_it_is_written(saver: SqlSaver) -> None:
    graph = graph_of(saver, lambda s: {"answer": STRANGER})
    with pytest.raises(StorageError, match=r"allow=\[Stranger\]"):
        graph.invoke({"order": ORDER}, AT)
    assert graph.get_state(AT).values == {"order": ORDER, "orders": []}
    with pytest.raises(StorageError, match=r"allow=\[Stranger\]"):
        graph.update_state(AT, {"answer": [STRANGER]})
    assert graph_of(saver, ordering).invoke({}, AT)["orders"] == [ORDER]


class Many(TypedDict, total=False):
    items: Annotated[list[Any], add]
    one: Any
    kept: dict[str, Any]
    parts: Annotated[list[Any], DeltaChannel(lambda old, new: [*old, *(x for w in new for x in w)])]


def test_an_unknown_class_is_data_when_it_is_read(url: str) -> None:
    """Wherever it lies; the next turn goes on, and what it writes back is what it was."""
    given = {
        "items": [Stranger(1)],
        "one": Stranger([Stranger(2)]),
        "kept": {"a": Stranger(3)},
        "parts": [Stranger(4)],
    }
    with SqlSaver.from_url(url, allow=[Stranger]) as saver:
        graph_of(saver, lambda s: {}, schema=Many).invoke(given, AT)

    def data(x: Any) -> StoredObject:
        return StoredObject(f"{__name__}:Stranger", {"x": x})

    def writing_back(state: Any) -> Any:
        return {"items": state["items"], "one": state["one"], "kept": state["kept"]}

    with SqlSaver.from_url(url) as saver:
        graph = graph_of(saver, writing_back, schema=Many)
        expected = {
            "items": [data(1)],
            "one": data([data(2)]),
            "kept": {"a": data(3)},
            "parts": [data(4)],
        }
        assert graph.get_state(AT).values == expected
        assert next(graph.get_state_history(AT)).values == expected
        assert graph.invoke({"items": ["next"]}, AT)["items"][:2] == [data(1), "next"]
        graph.update_state(AT, {"parts": graph.get_state(AT).values["parts"]})
    with SqlSaver.from_url(url, allow=[Stranger]) as saver:
        values = graph_of(saver, writing_back, schema=Many).get_state(AT).values
        assert values["items"] == [Stranger(1), "next", Stranger(1), "next"]
        assert (values["one"], values["kept"]) == (Stranger([Stranger(2)]), {"a": Stranger(3)})
        assert values["parts"] == [Stranger(4), Stranger(4)]


def test_our_own_agent_goes_on_after_an_unknown_class(url: str) -> None:
    kept = {"extra": Stranger(1), "timestamp": "2026-01-01T00:00:00+00:00"}
    told = HumanMessage("see", id="1", additional_kwargs=kept)

    def agent(saver: SqlSaver) -> Agent:
        return Agent("a", ScriptedModel(["one", "two"]), store=saver)

    with SqlSaver.from_url(url, allow=[Stranger]) as saver:
        agent(saver).graph.update_state(AT, {"messages": [told]}, as_node="model")
    for n in range(2):
        with SqlSaver.from_url(url) as saver:
            agent(saver).invoke(f"question {n}", thread_id="t")
            messages = agent(saver).graph.get_state(AT).values["messages"]
            held = messages[0].additional_kwargs["extra"]
            assert held == StoredObject(f"{__name__}:Stranger", {"x": 1})
    with SqlSaver.from_url(url, allow=[Stranger]) as saver:
        assert agent(saver).graph.get_state(AT).values["messages"][0] == told


def test_the_error_of_a_task_is_a_text(saver: SqlSaver) -> None:
    def failing(state: State) -> Any:
        raise ValueError("boom")

    graph = graph_of(saver, failing)
    with pytest.raises(ValueError, match="boom"):
        graph.invoke({"order": ORDER}, AT)
    for one in (graph.get_state(AT), next(graph.get_state_history(AT))):
        assert one.tasks[0].error == "ValueError('boom')"


def test_a_copy_of_a_checkpoint(saver: SqlSaver) -> None:
    """`__copy__` puts a sibling beside the checkpoint, which nobody asked for by its id."""
    graph = graph_of(saver, lambda s: {"answer": 1}, lambda s: {"answer": 2})
    graph.invoke({}, AT)
    head = graph.get_state(AT)
    copied = graph.get_state(graph.update_state(head.config, None, as_node="__copy__"))
    assert copied.values == head.values
    assert copied.parent_config == head.parent_config
    assert copied.metadata["source"] == "fork"
    assert graph.get_state(AT).config == copied.config
    updated = graph.update_state(AT, [({"answer": 9}, "0")], as_node="__copy__")
    assert graph.get_state(updated).values["answer"] == 9
    assert graph.invoke(None, updated)["answer"] == 2


async def test_a_copy_of_a_checkpoint_async(saver: SqlSaver) -> None:
    graph = graph_of(saver, lambda s: {"answer": 1})
    await graph.ainvoke({}, AT)
    first = [one async for one in graph.aget_state_history(AT)][-1]
    copied = await graph.aupdate_state(first.config, None, as_node="__copy__")
    assert (await graph.aget_state(copied)).metadata["source"] == "fork"
