"""A process that dies at an approved call: no second question, and no second run."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.hooks.approving import ON
from wick_graph import Agent, BaseHook, ToolResult, tool
from wick_graph.engine.answers import waiting
from wick_graph.hooks.approvals import ApprovalHook, Approve, Reject
from wick_graph.messages import ToolCall
from wick_graph.store import SqlSaver
from wick_graph.testing import ScriptedModel, calls


def life(work: Callable[[], None]) -> int:
    """Do a piece of work in a process of its own; return how the process ended."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:
            os._exit(70)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


DIED = 9


class Dying(BaseHook):
    """Let the process end between the tool's result and its commit."""

    name = "dying"

    def wrap_tool_call(self, call: ToolCall, next: Any) -> Any:
        result: ToolResult = next(call)
        os._exit(DIED)
        return result


def agent_on(folder: Path, replay: Any, dies: str = "") -> Agent:
    @tool(replay=replay)
    def act(what: str) -> str:
        """Have an effect that can be counted."""
        with (folder / "log").open("a", encoding="utf-8") as log:
            log.write(f"{what}\n")
        if dies == "in":
            os._exit(DIED)
        return f"did {what}"

    hooks: list[Any] = [Dying()] if dies == "after" else []
    return Agent(
        model=ScriptedModel([calls(("act", {"what": "it"})), "Done."]),
        tools=[act],
        hooks=[*hooks, ApprovalHook({"act": True})],
        store=f"sqlite:///{folder}/t.db",
    )


@pytest.mark.sisters(2)
@pytest.mark.parametrize("how", ["bare", "by id"])
@pytest.mark.parametrize(
    ("dies", "replay", "ran", "read"),
    [
        ("after", "never", 1, "did it"),
        ("after", "key", 1, "did it"),
        ("in", "never", 1, "Error: interrupted, outcome unknown"),
        ("in", "key", 2, "did it"),
        ("in", "safe", 2, "did it"),
    ],
)
def test_an_approved_call_survives_a_crash_without_a_second_question(
    tmp_path: Path, how: str, dies: str, replay: str, ran: int, read: str
) -> None:
    def asks() -> None:
        with agent_on(tmp_path, replay) as agent:
            assert agent.invoke("Go", thread_id="t").stopped_because == "interrupted"

    def approves_and_dies() -> None:
        with agent_on(tmp_path, replay, dies) as agent:
            (asked,) = waiting(agent.store.get_tuple(ON))  # type: ignore[union-attr]  # it has one
            agent.resume("t", Approve() if how == "bare" else {asked.id: Approve()})

    assert life(asks) == 0
    assert not (tmp_path / "log").exists()
    assert life(approves_and_dies) == DIED
    with SqlSaver.from_url(f"sqlite:///{tmp_path}/t.db") as store:
        assert waiting(store.get_tuple(ON)) == []
    with agent_on(tmp_path, replay) as agent:
        result = agent.resume("t")
        messages = [m.text for m in result.messages if m.type == "tool"]
    assert (result.stopped_because, result.text) == ("done", "Done.")
    assert (tmp_path / "log").read_text("utf-8").split() == ["it"] * ran
    assert messages[0].startswith(read)


@pytest.mark.parametrize("again", [Approve(), Reject("too late")])
def test_an_answer_given_again_after_a_crash_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, again: Any
) -> None:
    with agent_on(tmp_path, "never") as agent:
        (asked,) = agent.invoke("Go", thread_id="t").interrupts

    def approves_and_dies() -> None:
        with agent_on(tmp_path, "never", "after") as agent:
            agent.resume("t", {asked.id: Approve()})

    assert life(approves_and_dies) == DIED
    with agent_on(tmp_path, "never") as agent:
        result = agent.resume("t", {asked.id: again})
    assert ("has got another answer before" in caplog.text) == isinstance(again, Reject)
    assert [m.text for m in result.messages if m.type == "tool"] == ["did it"]
    assert (tmp_path / "log").read_text("utf-8").split() == ["it"]
