"""Which lane takes a call, and who the model thinks is calling."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.tracers._streaming import _StreamingCallbackHandler
from langgraph.graph import END, START, MessagesState, StateGraph

from tests.testing.scripted_doors import DOORS, ask
from wick_graph.errors import ConfigError
from wick_graph.testing import Lane, ScriptedModel, UnexpectedModelCall, When

every_door = pytest.mark.parametrize("door", DOORS)


def ls(path: str = ".") -> str:
    """List a folder."""
    return path


def grep(pattern: str) -> str:
    """Search."""
    return pattern


def told(purpose: str = "agent", agent: str = "") -> dict[str, Any]:
    return {"config": {"metadata": {"wick_purpose": purpose, "wick_agent": agent}}}


@every_door
async def test_purpose_and_agent_come_from_the_metadata(door: str) -> None:
    model = ScriptedModel(lanes=[Lane("any", ["x"])])
    await ask(model, "hi", door, **told("summarize", "helper"))
    await ask(model.bind_tools([ls]), "hi", door, **told("title", "other"))
    await ask(model, "hi", door)
    seen = [(c.purpose, c.agent) for c in model.calls]
    assert seen == [("summarize", "helper"), ("title", "other"), ("agent", "")]
    assert all("wick_purpose" not in c.settings for c in model.calls)


@pytest.mark.parametrize("door", ["invoke", "ainvoke"])
async def test_they_arrive_when_a_listener_makes_an_invoke_stream(door: str) -> None:
    class Listener(BaseCallbackHandler, _StreamingCallbackHandler[Any]):
        def tap_output_aiter(self, run_id: Any, output: Any) -> Any:
            return output

        def tap_output_iter(self, run_id: Any, output: Any) -> Any:
            return output

    model = ScriptedModel(lanes=[Lane("any", ["x"])])
    config = {**told("title", "a")["config"], "callbacks": [Listener()]}
    await ask(model, "hi", door, config=config)
    assert [(c.purpose, c.agent, c.streamed) for c in model.calls] == [("title", "a", True)]


@pytest.mark.parametrize("mode", ["values", "messages"])
async def test_they_arrive_through_a_graph_that_has_them(mode: Any) -> None:
    model = ScriptedModel(lanes=[Lane("any", ["x y"])])

    async def node(state: MessagesState) -> Any:
        return {"messages": [await model.ainvoke(state["messages"])]}

    builder = StateGraph(MessagesState)
    builder.add_node("n", node)
    builder.add_edge(START, "n")
    builder.add_edge("n", END)
    start: Any = {"messages": [HumanMessage("hi")]}
    config = told("summarize", "outer")["config"]
    [_ async for _ in builder.compile().astream(start, config, stream_mode=mode)]
    streamed = mode == "messages"
    seen = [(c.purpose, c.agent, c.streamed) for c in model.calls]
    assert seen == [("summarize", "outer", streamed)]


@pytest.mark.parametrize(
    ("when", "takes"),
    [
        pytest.param({"agent": "coder"}, True, id="agent"),
        pytest.param({"agent": "cod*"}, True, id="agent-wildcard"),
        pytest.param({"agent": "code"}, False, id="agent-other"),
        pytest.param({"purpose": "subagent:*"}, True, id="purpose-wildcard"),
        pytest.param({"purpose": "agent"}, False, id="purpose-other"),
        pytest.param({"last": r"count \d+ files"}, True, id="last"),
        pytest.param({"last": "^files"}, False, id="last-other"),
        pytest.param({"system": "terse"}, True, id="system"),
        pytest.param({"system": "verbose"}, False, id="system-other"),
        pytest.param({"tools": ["grep"]}, True, id="tools"),
        pytest.param({"tools": ["grep", "write"]}, False, id="tools-missing"),
        pytest.param({"tools": []}, False, id="tools-none"),
        pytest.param({"agent": "coder", "last": "nope"}, False, id="all-must-hold"),
        pytest.param(When(system="terse", tools=("ls", "grep")), True, id="when-object"),
        pytest.param(lambda call: len(call.messages) == 2, True, id="function"),
        pytest.param(lambda call: call.temperature if False else False, False, id="function-no"),
        pytest.param(None, True, id="always"),
    ],
)
@every_door
async def test_a_lane_takes_the_calls_that_meet_its_conditions(
    when: Any, takes: bool, door: str
) -> None:
    model = ScriptedModel(lanes=[Lane("tried", ["taken"], when=when), Lane("rest", ["left"])])
    prompt = [SystemMessage("Be terse."), HumanMessage("please count 3 files")]
    reply = await ask(model.bind_tools([ls, grep]), prompt, door, **told("subagent:coder", "coder"))
    assert reply.content == ("taken" if takes else "left")
    assert model.calls[0].lane == ("tried" if takes else "rest")


def test_no_tools_is_a_condition_too() -> None:
    model = ScriptedModel(["with"], lanes=[Lane("last", ["without"], when={"tools": []})])
    assert model.invoke("hi").content == "without"
    assert model.bind_tools([ls]).invoke("hi").content == "with"


def test_the_first_lane_that_matches_wins() -> None:
    model = ScriptedModel(["main"], lanes=[Lane("a", ["first"]), Lane("b", ["second"])])
    assert model.invoke("hi").content == "first"


def test_plain_steps_answer_the_agent_and_nobody_else() -> None:
    model = ScriptedModel(["for the agent"])
    with pytest.raises(UnexpectedModelCall, match=r"no lane.*main(?s:.*)purpose: summarize"):
        model.invoke("hi", **told("summarize"))
    assert model.invoke("hi").content == "for the agent"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        pytest.param(lambda: Lane("two words", ["x"]), "not a lane's name", id="name"),
        pytest.param(lambda: Lane("a", "text"), "are a list", id="steps-text"),
        pytest.param(lambda: Lane("a", ["x"], cursor="lifo"), "'lifo'", id="cursor"),  # type: ignore[arg-type]  # the mistake under test
        pytest.param(lambda: Lane("a", ["x"], when={"agnet": "x"}), "'agnet'", id="matcher"),
        pytest.param(lambda: Lane("a", ["x"], when={"last": "("}), "'last'", id="regex"),
        pytest.param(lambda: Lane("a", ["x"], when={"tools": "ls"}), "list of names", id="tools"),
        pytest.param(
            lambda: ScriptedModel(lanes=[Lane("a", ["x"]), Lane("a", ["y"])]),
            "own name",
            id="twice",
        ),
        pytest.param(
            lambda: ScriptedModel(["x"], lanes=[Lane("main", ["x"])]), "own name", id="main-twice"
        ),
    ],
)
def test_a_malformed_lane_is_refused(make: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make()
