"""Why a run stopped at a limit: the limit that ended it, at once and when the thread is asked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from wick_graph import Agent, BaseHook
from wick_graph.cli.app import call
from wick_graph.hooks import Budget, BudgetHook
from wick_graph.testing import ScriptedModel
from wick_graph.testing import call as asks

CALL = "{calls: [{tool: calculate, args: {expression: 1+1}}]}"
AGENTS = """\
agents:
  default: {{model: 'scripted:talk.yaml', tools: [calculate], {keys}}}
"""
Wick = Callable[..., tuple[int, str, str]]


@pytest.fixture
def wick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Wick:
    monkeypatch.chdir(tmp_path)

    def run(*args: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = call(args)
        return (code, *capsys.readouterr())

    return run


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ("max_iterations: 2", "the agent may make 2 model calls in one run"),
        ("max_iterations: 1", "the agent may make 1 model call in one run"),
        ("budget: {tokens: 1}", "the budget of 1 tokens for this run is used up"),
        ("deadline: 0.5", "the run was longer than its deadline of 0.5 s"),
        (
            "middleware: [{use: ModelCallLimitMiddleware, args: {run_limit: 1}}]",
            "Model call limits exceeded: run limit (1/1)",
        ),
    ],
)
def test_the_true_limit_is_named(wick: Wick, keys: str, why: str) -> None:
    Path("agents.yaml").write_text(AGENTS.format(keys=keys), "utf-8")
    steps = {"max_iterations: 1": "done", "max_iterations: 2": f"{CALL}, done"}
    slow = ", {delay: 60, text: x}" if "deadline" in keys else ""
    script = steps.get(keys, f"{CALL}{slow}, {CALL}, {CALL}, done")
    Path("talk.yaml").write_text(f"steps: [{script}]", "utf-8")
    code, _, err = wick("run", "--trust", "-t", "mine", "Go")
    assert code == 0
    assert f"stopped: limit: {why}\n" in err
    assert f'"last_error": "{why}"' in wick("threads", "show", "mine", "--json")[1]
    again = wick("resume", "--trust", "mine")[2]
    assert f"stopped: limit: {why}\n" in again


def test_a_result_has_the_reason() -> None:
    def double(number: int) -> int:
        """Double a number."""
        return 2 * number

    model = ScriptedModel([asks("double", number=1), asks("double", number=2), "Never."])
    spent = BudgetHook(Budget(tokens=1))
    with Agent("spends", model, tools=[double], hooks=[spent]) as agent:
        result = agent.invoke("Go")
    assert result.reason == "the budget of 1 tokens for this run is used up"
    assert result.to_dict()["reason"] == result.reason
    with Agent("answers", ScriptedModel(["Hi."])) as agent:
        result = agent.invoke("Hi")
    assert result.reason == ""
    assert "reason" not in result.to_dict()


def test_the_words_of_a_model_are_no_reason() -> None:
    class Ends(BaseHook):
        phases = ("after_model",)

        def after_model(self, reply: object, ctx: object) -> dict[str, str]:
            return {"stop_reason": "limit"}

    with Agent("ends", ScriptedModel(["My answer."]), hooks=[Ends()]) as agent:
        result = agent.invoke("Go")
    assert (result.stopped_because, result.reason) == ("limit", "a hook ended the run")
