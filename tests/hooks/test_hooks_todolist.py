"""TodoListHook, through an agent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.engine.support import Door, wild
from wick_graph import Agent
from wick_graph.hooks.todolist import TodoListHook
from wick_graph.testing import ScriptedModel, calls

TWO = [
    {"id": "1", "title": "Read", "status": "done"},
    {"id": "2", "title": "Write", "status": "in_progress"},
]


def agent_of(*steps: Any, **options: Any) -> tuple[Agent, ScriptedModel]:
    model = ScriptedModel(list(steps))
    return Agent(model=model, hooks=[TodoListHook()], **options), model


def write(*todos: Any) -> Any:
    return wild("write_todos", todos=list(todos))


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        pytest.param(TWO, TWO, id="TD-04"),
        pytest.param([], [], id="empty"),
        pytest.param(
            [{"title": " a "}, {"title": "b", "status": "done"}],
            [
                {"id": "1", "title": "a", "status": "pending"},
                {"id": "2", "title": "b", "status": "done"},
            ],
            id="D-14 defaults",
        ),
        pytest.param(
            [{"id": 7, "title": "a"}, {"title": "b"}, {"id": "1", "title": "c"}],
            [
                {"id": "7", "title": "a", "status": "pending"},
                {"id": "2", "title": "b", "status": "pending"},
                {"id": "1", "title": "c", "status": "pending"},
            ],
            id="D-14 ids",
        ),
    ],
)
def test_the_list_is_replaced(door: Door, given: list[Any], kept: list[Any]) -> None:
    agent, _ = agent_of(write(*given), "ok")
    result = door(agent, "Plan")
    assert result.todos == kept
    assert result.messages[2].text == f"Updated {len(kept)} todo(s)"


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param([{"title": "a", "status": "later"}], id="TD-05"),
        pytest.param([{"title": "  "}], id="blank title"),
        pytest.param([{"id": "1"}], id="no title"),
        pytest.param([{"id": "1", "title": "a"}, {"id": 1, "title": "b"}], id="one id twice"),
        pytest.param(["a"], id="a text"),
    ],
)
def test_a_wrong_list_is_an_error_and_changes_nothing(door: Door, wrong: list[Any]) -> None:
    agent, _ = agent_of(write(*TWO), write(*wrong), "ok")
    result = door(agent, "Plan")
    assert result.messages[4].text.startswith("Error: ")
    assert "todos[" in result.messages[4].text
    assert result.todos == TWO


def test_two_writes_in_one_reply_leave_the_last_one(door: Door) -> None:
    both = calls(
        ("write_todos", {"todos": [{"title": "first"}]}),
        ("write_todos", {"todos": [{"title": "second"}]}),
    )
    agent, _ = agent_of(both, "ok")
    assert [todo["title"] for todo in door(agent, "Plan").todos] == ["second"]


def test_the_list_survives_the_next_run_and_another_process(door: Door, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/t.db"
    with agent_of(write(*TWO), "ok", store=store)[0] as agent:
        assert door(agent, "Plan", thread_id="t").todos == TWO
        assert door(agent, "Again", thread_id="new").todos == TWO  # the script writes again
    with agent_of(write(*TWO), "ok", "still there", store=store)[0] as agent:
        result = door(agent, "And now?", thread_id="t")
    assert (result.text, result.todos) == ("still there", TWO)
    assert result.to_dict()["todos"] == TWO


def test_a_thread_without_a_list_begins_with_none(door: Door) -> None:
    agent, model = agent_of("ok")
    assert door(agent, "Hello").todos == []
    assert model.calls[0].tool_names == ("write_todos",)
    assert model.calls[0].system == ""
