"""The tool by which a model asks the user."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.engine.support import wild
from wick_graph import Agent
from wick_graph.testing import ScriptedModel, calls
from wick_graph.tools import builtin


def agent_of(*steps: Any, store: Any = None) -> Agent:
    tools = builtin(["request_user_input"], Path())
    return Agent(model=ScriptedModel([*steps, "Done."]), tools=tools, store=store)


ASKS = calls(("request_user_input", {"question": "Which colour?", "options": ["red", "blue"]}))


@pytest.mark.parametrize(
    ("answer", "read"),
    [("blue", "blue"), ("", ""), ({"colour": 1}, '{"colour":1}'), (7, "7"), (["a"], '["a"]')],
)
def test_the_answer_is_the_result(answer: Any, read: str) -> None:
    agent = agent_of(ASKS)
    result = agent.invoke("Go", thread_id="t")
    (asked,) = result.interrupts
    assert result.stopped_because == "interrupted"
    assert asked.value == {
        "kind": "question",
        "question": "Which colour?",
        "options": ["red", "blue"],
        "call_id": "call_1_1",
        "index": 0,
    }
    done = agent.resume("t", answer)
    assert done.text == "Done."
    assert [m.text for m in done.messages if m.type == "tool"] == [read]


def test_several_questions_wait_at_once_and_survive_the_process(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/t.db"
    steps = calls(*(("request_user_input", {"question": q}) for q in ("One?", "Two?")))
    with agent_of(steps, store=store) as agent:
        asked = {i.value["question"]: i.id for i in agent.invoke("Go", thread_id="t").interrupts}
    with agent_of(steps, store=store) as agent:
        left = agent.resume("t", {asked["Two?"]: "2"})
        assert [i.id for i in left.interrupts] == [asked["One?"]]
    with agent_of(steps, store=store) as agent:
        done = agent.resume("t", {asked["One?"]: "1"})
    assert [m.text for m in done.messages if m.type == "tool"] == ["1", "2"]


def test_it_is_safe_to_repeat_and_waits_without_a_limit() -> None:
    (tool,) = builtin(["request_user_input"], Path())
    assert (tool.replay, tool.timeout) == ("safe", None)


@pytest.mark.parametrize("args", [{}, {"question": ""}, {"question": "?", "options": "ab"}])
def test_a_question_that_is_none_is_refused(args: dict[str, Any]) -> None:
    result = agent_of(wild("request_user_input", **args)).invoke("Go")
    assert result.stopped_because == "done"
    assert result.tool_calls[0]["error"].startswith("invalid arguments: ")
