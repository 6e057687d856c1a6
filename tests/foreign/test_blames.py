"""Which layer of middleware changed what a model was sent, checked by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from deepagents import create_deep_agent
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import HumanMessage, SystemMessage
from langgraph.graph import START, MessagesState, StateGraph

from tests.foreign.graphs import Passing, Prompting, add, calls, model
from wick_graph import Agent
from wick_graph.debug import record
from wick_graph.models.scripted import ScriptedModel, call

Change = Callable[[Any], dict[str, Any]]


def layer(name: str, change: Change) -> AgentMiddleware:
    """Return a middleware that overrides parts of each request."""

    def wrap(self: Any, request: Any, handler: Any) -> Any:
        return handler(request.override(**change(request)))

    made: Any = type(name, (AgentMiddleware,), {"wrap_model_call": wrap})
    return made()  # type: ignore[no-any-return]  # made here


KIND = layer(
    "Kind",
    lambda r: {"system_message": SystemMessage(f"{r.system_message.text} Be kind.")},
)
LAST = layer("Last", lambda r: {"messages": r.messages[-1:]})
HINT = layer("Hint", lambda r: {"messages": [*r.messages, HumanMessage("Hint.")]})
HIDE = layer("Hide", lambda r: {"tools": []})
COLD = layer("Cold", lambda r: {"model_settings": {"temperature": 0.5}})
LOUD = layer(
    "Loud",
    lambda r: {"messages": [r.messages[0].model_copy(update={"content": "SUM"}), *r.messages[1:]]},
)


def agent(*layers: AgentMiddleware) -> Any:
    asked: Any = model(calls(("add", {"a": 1, "b": 2})), "done")
    if COLD in layers:  # the plain double is bound without settings
        asked = ScriptedModel([call("add", a=1, b=2), "done"])
    return create_agent(asked, tools=[add], system_prompt="You add.", middleware=layers)


def around(inner: Any) -> Any:
    made: Any = StateGraph(MessagesState)
    made.add_node("inner", inner).add_edge(START, "inner")
    return made.compile()


def called() -> Any:
    inner = agent(HINT)
    return around(lambda state: {"messages": inner.invoke(state)["messages"][-1:]})


def wick() -> Any:
    own = Agent("own", ScriptedModel(["inside"]), system_prompt="You are in.", store=False)
    return around(own.graph)


def deep() -> Any:
    lead = ScriptedModel([call("task", description="add", subagent_type="adder"), "done"])
    adder: Any = {
        "name": "adder",
        "description": "adds",
        "system_prompt": "You add.",
        "model": ScriptedModel(["three"]),
        "tools": [add],
        "middleware": [Prompting(), LAST],
    }
    return create_deep_agent(
        model=lead, system_prompt="You lead.", middleware=[KIND], subagents=[adder]
    )


PROMPT = ("system", "kept", "agent", "You add.")
BRIEF = [
    ("system", "added", "Prompting", "You add. Be brief."),
    ("system", "dropped", "Prompting", "You add."),
]
SUM, ASKED, GOT = (("message", "kept", "thread", text) for text in ("sum", "", "3"))
HINTED = ("message", "added", "Hint", "Hint.")
TOOL = ("tool", "kept", "agent", "add")
CUT = [("message", "dropped", "Last", text) for text in ("sum", "")]
RAISED, LOWERED = ("message", "added", "Loud", "SUM"), ("message", "dropped", "Loud", "sum")
KINDLY = [
    ("system", "added", "Kind", "You lead. Be kind."),
    ("system", "dropped", "Kind", "You lead."),
]

ROWS: list[tuple[str, Callable[[], Any], list[list[Any]]]] = [
    (
        "both",
        lambda: agent(Prompting(), KIND),
        [
            [
                ("system", "added", "Kind", "You add. Be brief. Be kind."),
                ("system", "dropped", "Prompting", "You add."),
                ("system", "dropped", "Kind", "You add. Be brief."),
                SUM,
                TOOL,
            ]
        ],
    ),
    (
        "the other way round",
        lambda: agent(KIND, Prompting()),
        [
            [
                ("system", "added", "Prompting", "You add. Be kind. Be brief."),
                ("system", "dropped", "Kind", "You add."),
                ("system", "dropped", "Prompting", "You add. Be kind."),
                SUM,
                TOOL,
            ]
        ],
    ),
    ("cut", lambda: agent(Passing(), LAST), [[PROMPT, SUM, TOOL], [PROMPT, GOT, *CUT, TOOL]]),
    (
        "hinted",
        lambda: agent(HINT, Prompting()),
        [[*BRIEF, SUM, HINTED, TOOL], [*BRIEF, SUM, ASKED, GOT, HINTED, TOOL]],
    ),
    ("hidden", lambda: agent(HIDE), [[PROMPT, SUM, ("tool", "dropped", "Hide", "add")]]),
    ("set", lambda: agent(COLD), [[PROMPT, SUM, TOOL, ("setting", "added", "Cold", 0.5)]]),
    (
        "rewritten",
        lambda: agent(LOUD),
        [[PROMPT, RAISED, LOWERED, TOOL], [PROMPT, RAISED, ASKED, GOT, LOWERED, TOOL]],
    ),
    (
        "nested twice",
        lambda: around(around(agent(Prompting(), LAST))),
        [[*BRIEF, SUM, TOOL], [*BRIEF, GOT, *CUT, TOOL]],
    ),
    ("called", called, [[PROMPT, SUM, HINTED, TOOL], [PROMPT, SUM, ASKED, GOT, HINTED, TOOL]]),
    (
        "wick",
        wick,
        [[("system", "kept", "agent", "You are in."), SUM]],
    ),
    (
        "deep",
        deep,
        [
            [*KINDLY, SUM],
            [*BRIEF, ("message", "kept", "thread", "add"), TOOL],
            [*KINDLY, SUM, ASKED, ("message", "kept", "thread", "three")],
        ],
    ),
]


@pytest.mark.parametrize(("name", "make", "blames"), ROWS, ids=[row[0] for row in ROWS])
def test_each_blame_names_its_layer(name: str, make: Any, blames: list[Any]) -> None:
    with record(store="sqlite://") as recording:
        make().invoke({"messages": [("user", "sum")]})
    with recording.session() as session:
        asked = recording.moments("model.request")[: len(blames)]
        found = [session.inspect.blame(f"#{one.seq}") for one in asked]
    shown = [
        [
            (b.part, b.op, b.by, getattr(b.value, "content", b.value))
            for b in parts
            if name != "deep" or b.part != "tool" or b.value == "add"  # it brings many
        ]
        for parts in found
    ]
    assert shown == blames
    recording.close()
