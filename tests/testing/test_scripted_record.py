"""The record of calls, and the errors of a script that was not followed."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

from wick_graph.errors import ConfigError
from wick_graph.testing import (
    Lane,
    ModelCall,
    ScriptedModel,
    ScriptFailure,
    StepLike,
    UnconsumedSteps,
    UnexpectedModelCall,
    attempts,
    call,
    calls,
    context_overflow,
    cut_stream,
    delay,
    empty,
    error,
    rate_limit,
    respond,
    timeout,
)


def look(at: str) -> str:
    """Look at something."""
    return at


def test_a_call_is_recorded_as_it_came() -> None:
    model = ScriptedModel(["x"], temperature=0.2)
    prompt = [SystemMessage("A"), HumanMessage("q"), SystemMessage("B")]
    model.bind_tools([look]).invoke(prompt, stop=["END"], max_tokens=5)
    (seen,) = model.calls
    assert [m.content for m in seen.messages] == ["A", "q", "B"]
    assert seen.system == "A\n\nB"
    assert seen.tool_names == ("look",)
    assert seen.settings == {"temperature": 0.2, "stop": ["END"], "max_tokens": 5}
    assert (seen.purpose, seen.agent, seen.streamed) == ("agent", "", False)
    assert (seen.number, seen.lane, seen.step) == (0, "main", 0)


def test_later_changes_do_not_reach_the_record() -> None:
    model = ScriptedModel(["x", "y"])
    blocks: list[str | dict[str, Any]] = [{"type": "text", "text": "old"}]
    asked = AIMessage("", tool_calls=[{"name": "look", "args": {"at": ["old"]}, "id": "c"}])
    prompt = [
        HumanMessage(blocks, id="h"),
        asked,
        ToolMessage("old", tool_call_id="c", additional_kwargs={"k": ["old"]}),
    ]
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    settings: dict[str, Any] = {"metadata_like": {"k": ["old"]}}
    model.invoke(prompt, tools=[tool], **settings)
    first = str(model.calls[0])

    prompt[0].content[0]["text"] = "new"  # type: ignore[index]  # known to be a block
    asked.tool_calls[0]["args"]["at"][0] = "new"
    prompt[2].additional_kwargs["k"][0] = "new"
    prompt[2].content = "new"
    tool["function"]["name"] = "new"  # type: ignore[index]  # known to be a mapping
    settings["metadata_like"]["k"][0] = "new"
    model.invoke(prompt, tools=[tool], **settings)

    assert str(model.calls[0]) == first
    assert "new" not in first
    assert model.calls[1].messages[0].text == "new"
    second = str(model.calls[1])
    assert "old" not in second


def test_copies_and_bindings_write_to_one_record() -> None:
    model = ScriptedModel([rate_limit(), "x"])
    with pytest.raises(Exception, match="rate limit"):
        model.bind_tools([look]).invoke("hi")
    for other in (
        model.model_copy(),
        model.model_copy(deep=True),
        model.model_copy(update={"temperature": 1.0}),
        copy.deepcopy(model),
        model.bind(stop=["x"]),
        model.with_config({"tags": ["x"]}),
    ):
        assert other.invoke("hi").content == "x"  # the fault was taken, whoever asks
    assert len(model.calls) == 7
    model.assert_complete()


def test_without_a_record_there_is_none_to_misread() -> None:
    model = ScriptedModel(["x"], record_calls=False)
    model.invoke("hi")
    with pytest.raises(ConfigError, match="record_calls"):
        _ = model.calls
    model.assert_complete()


def test_a_call_beyond_the_script_says_where_it_is() -> None:
    model = ScriptedModel([call("look", at="sky"), "the last words"])
    thread = [
        HumanMessage("what is up there?"),
        AIMessage("", tool_calls=[{"name": "look", "args": {"at": "sky"}, "id": "c"}]),
        ToolMessage("clouds", tool_call_id="c"),
        AIMessage("the last words"),
        HumanMessage("and now?"),
    ]
    with pytest.raises(UnexpectedModelCall) as problem:
        model.bind_tools([look]).invoke(thread, {"metadata": {"wick_agent": "watcher"}})
    told = str(problem.value)
    for part in (
        "lane: main, cursor: 2 of 2 (prompt)",
        "nearest step: 2: 'the last words'",
        "agent: watcher",
        "tools: look",
        "look({'at': 'sky'})",
        "tool: clouds",
        "human: and now?",
    ):
        assert part in told
    assert isinstance(problem.value, AssertionError)
    assert model.calls[0].step == -1


def test_steps_that_nobody_took_are_listed() -> None:
    model = ScriptedModel(
        ["one", call("look", at="sky")], lanes=[Lane("title", ["T"], when={"purpose": "title"})]
    )
    model.invoke("hi")
    with pytest.raises(UnconsumedSteps) as problem:
        model.assert_complete()
    told = str(problem.value)
    assert "title 1: 'T'" in told
    assert 'main 2: look({"at": "sky"})' in told
    assert "'one'" not in told
    assert isinstance(problem.value, ScriptFailure)


def test_every_kind_of_step_has_a_name() -> None:
    def choose(seen: ModelCall) -> str:
        return "x"

    steps: list[StepLike] = [
        attempts(rate_limit(2), delay(0.5, timeout()), cut_stream(3, "abc"), empty(), "y" * 200),
        respond(choose),
        context_overflow(7),
        error(ValueError("no")),
        error(KeyError),
        calls(("look", {"at": "x"}), text="t"),
    ]
    with pytest.raises(UnconsumedSteps) as problem:
        ScriptedModel(steps).assert_complete()
    assert str(problem.value).splitlines()[1:] == [
        "  main 1: rate_limit(2)",
        "  main 2: delay(0.5, timeout())",
        "  main 3: cut_stream(3, 'abc')",
        "  main 4: empty()",
        f"  main 5: '{'y' * 116}...",
        "  main 6: respond(choose)",
        "  main 7: context_overflow(above_tokens=7)",
        "  main 8: error(ValueError('no'))",
        "  main 9: error(KeyError)",
        '  main 10: \'t\' + look({"at": "x"})',
    ]


def test_a_finished_script_is_complete() -> None:
    model = ScriptedModel(["one", "two"])
    first = model.invoke("hi")
    model.invoke([HumanMessage("hi"), first, HumanMessage("more")])
    model.assert_complete()


def test_a_call_too_many_is_not_forgotten_when_it_was_swallowed() -> None:
    model = ScriptedModel(["one"])
    reply = model.invoke("hi")
    with pytest.raises(UnexpectedModelCall):
        model.invoke([HumanMessage("hi"), reply, HumanMessage("more")])
    with pytest.raises(UnexpectedModelCall, match="human: more"):
        model.assert_complete()


def test_what_another_process_has_done_counts_as_taken() -> None:
    steps: list[StepLike] = [rate_limit(), "one", "two"]
    first = ScriptedModel(steps)
    with pytest.raises(Exception, match="rate limit"):
        first.invoke("hi")
    thread = [HumanMessage("hi"), first.invoke("hi"), HumanMessage("more")]
    second = ScriptedModel(steps)
    assert second.invoke(thread).content == "two"
    second.assert_complete()
    with pytest.raises(UnconsumedSteps, match="main 3: 'two'"):
        first.assert_complete()


def test_an_overflow_that_never_came_is_missed() -> None:
    model = ScriptedModel([context_overflow(above_tokens=1000), "one", "two"])
    reply = model.invoke("hi")
    model.invoke([HumanMessage("hi"), reply, HumanMessage("more")])
    with pytest.raises(UnconsumedSteps, match="context_overflow"):
        model.assert_complete()


def test_an_exception_is_raised_as_it_is() -> None:
    class Odd(Exception):
        def __init__(self, a: int, b: int) -> None:
            super().__init__(f"{a} and {b}")

    problem = Odd(1, 2)
    with pytest.raises(Odd) as raised:
        ScriptedModel([error(problem)]).invoke("hi")
    assert raised.value is problem
