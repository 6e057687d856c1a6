"""Binding tools, and calls that the bound tools would not accept."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from langchain_core.tools import tool
from langgraph.prebuilt import InjectedState
from pydantic import BaseModel, Field

from wick_graph.testing import (
    ScriptedModel,
    ScriptMismatch,
    StepLike,
    call,
    calls,
    malformed_args,
    respond,
    unknown_tool,
)


class Move(BaseModel):
    """Move something."""

    to: str
    steps: int = Field(default=1, ge=1)


@tool("move")
def move_tool(to: str, state: Annotated[dict[str, Any], InjectedState], steps: int = 1) -> str:
    """Move something."""
    return to


def move(to: str, steps: int = 1) -> str:
    """Move something."""
    return to


OPENAI = {
    "type": "function",
    "function": {
        "name": "move",
        "description": "Move something.",
        "parameters": {
            "type": "object",
            "properties": {"to": {"type": "string"}, "steps": {"type": "integer"}},
            "required": ["to"],
        },
    },
}
FREE = {"type": "function", "function": {"name": "move", "parameters": {"type": "object"}}}

FORMS = [
    pytest.param(move_tool, "move", id="langchain-tool"),
    pytest.param(move, "move", id="function"),
    pytest.param(Move, "Move", id="pydantic"),
    pytest.param(OPENAI, "move", id="openai"),
    pytest.param(OPENAI["function"], "move", id="openai-bare"),
]


@pytest.mark.parametrize(("form", "name"), FORMS)
def test_every_form_of_tool_is_bound_with_its_schema(form: Any, name: str) -> None:
    model = ScriptedModel([call(name, to="here")])
    reply = model.bind_tools([form], tool_choice="any").invoke("hi")
    assert reply.tool_calls[0]["args"] == {"to": "here"}
    seen = model.calls[0]
    assert seen.tool_names == (name,)
    assert seen.tool_choice == "any"
    schema = seen.tools[0]["function"]["parameters"]
    assert set(schema["properties"]) == {"to", "steps"}
    assert schema["required"] == ["to"]


BAD: list[Any] = [
    pytest.param({}, "'to' is a required", id="missing"),
    pytest.param({"to": 1}, "to: 1 is not of type", id="wrong-type"),
    pytest.param({"to": "x", "stpes": 1}, "no argument 'stpes'", id="unknown"),
]


@pytest.mark.parametrize(("args", "says"), BAD)
@pytest.mark.parametrize(("form", "name"), FORMS)
def test_bad_arguments_are_a_loud_error(
    form: Any, name: str, args: dict[str, Any], says: str
) -> None:
    with pytest.raises(ScriptMismatch, match=says):
        ScriptedModel([calls((name, args))]).bind_tools([form]).invoke("hi")


@pytest.mark.parametrize(("args", "says"), BAD)
def test_bad_arguments_pass_where_the_step_says_so(args: dict[str, Any], says: str) -> None:
    step = calls(("move", args), unchecked=True)
    assert ScriptedModel([step]).bind_tools([move]).invoke("hi").tool_calls[0]["args"] == args


def test_a_tool_that_is_not_bound_is_a_loud_error() -> None:
    with pytest.raises(ScriptMismatch, match=r"calls fly, which is not bound \(bound: move\)"):
        ScriptedModel([call("fly")]).bind_tools([move]).invoke("hi")
    with pytest.raises(ScriptMismatch, match="bound: none"):
        ScriptedModel([call("move", to="x")]).invoke("hi")


def test_a_step_is_checked_again_when_other_tools_are_bound() -> None:
    model = ScriptedModel([call("move", to="x", steps=1)])
    for _ in range(2):
        model.bind_tools([move]).invoke("hi")

    def other(to: int) -> None:
        """Take a number."""

    other.__name__ = "move"
    with pytest.raises(ScriptMismatch, match="not of type 'integer'"):
        model.bind_tools([other]).invoke("hi")


def test_what_a_function_returns_is_checked_too() -> None:
    steps: list[StepLike] = [respond(lambda seen: call("move", to=1))]
    with pytest.raises(ScriptMismatch):
        ScriptedModel(steps).bind_tools([move]).invoke("hi")


def test_a_tool_without_named_arguments_takes_any() -> None:
    reply = ScriptedModel([call("move", whatever=1)]).bind_tools([FREE]).invoke("hi")
    assert reply.tool_calls[0]["args"] == {"whatever": 1}


def test_an_unknown_tool_can_be_called_on_purpose() -> None:
    reply = ScriptedModel([unknown_tool("fly", {"high": True})]).bind_tools([move]).invoke("hi")
    assert [(c["name"], c["args"]) for c in reply.tool_calls] == [("fly", {"high": True})]


@pytest.mark.parametrize("raw", ['{"to": }', "no json", "[1]"])
def test_malformed_arguments_make_an_invalid_call(raw: str) -> None:
    reply = ScriptedModel([malformed_args("move", raw)]).bind_tools([move]).invoke("hi")
    assert reply.tool_calls == []
    (bad,) = reply.invalid_tool_calls
    assert (bad["name"], bad["args"], bad["id"]) == ("move", raw, "call_1_1")
    assert bad["error"]


def test_malformed_is_only_what_json_cannot_read() -> None:
    reply = ScriptedModel([malformed_args("move", '{"to": "x"}')]).invoke("hi")
    assert reply.tool_calls[0]["args"] == {"to": "x"}


def test_structured_output_comes_from_a_scripted_call() -> None:
    model = ScriptedModel([call("Move", to="there", steps=2)]).with_structured_output(Move)
    assert model.invoke("hi") == Move(to="there", steps=2)
