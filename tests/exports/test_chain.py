"""Runs behind approvals as tests: the answers come from the recording."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.support import forked
from wick_graph import Agent
from wick_graph.errors import ReplayError
from wick_graph.exports.plain import Hider
from wick_graph.exports.testfile import FromCode, replay_file, write_test
from wick_graph.exports.wickrun import write_wickrun
from wick_graph.journal import Journal
from wick_graph.journal.replay import replay
from wick_graph.models import resolve_model
from wick_graph.store import SqlSaver
from wick_graph.testing import ScriptedModel

AGENT = '''\
from langgraph.types import interrupt
from wick_graph import Agent, tool
from wick_graph.hooks import ApprovalHook
from wick_graph.subagents import Subagent, delegation
from wick_graph.testing import ScriptedModel, call, calls

PAID = []


@tool
def pay(sum: int) -> str:
    """Pay."""
    PAID.append(sum)
    return f"paid {sum}"


@tool
def ask(what: str) -> str:
    """Ask twice."""
    return f"{interrupt(what)} {interrupt({'again': what})}"


def asking(store="sqlite://", steps=()):
    steps_of_child = [call("ask", what="c"), "Asked."]
    child = Agent("child", ScriptedModel(steps_of_child), tools=[ask], store=store)
    tools = [ask, delegation({"child": Subagent(child, "Asks")})]
    return Agent("asking", ScriptedModel(list(steps)), tools=tools, store=store)


ASKS = [calls(("ask", {"what": "a"}), ("ask", {"what": "b"}),
              ("delegate_to_agent", {"agent": "child", "task": "Ask"})), "Done."]


def made(store="sqlite://", steps=()):
    return Agent("payer", ScriptedModel(list(steps)), tools=[pay],
                 hooks=[ApprovalHook({"pay": "ask"})], store=store)


SCHEMA = {"title": "City", "type": "object", "properties": {"name": {"type": "string"}}}
typed = Agent("typed", ScriptedModel([]), output_type={**SCHEMA, "required": ["name"]}, store=False)
GIVES = ["Chat.", calls(("City", {}), unchecked=True), call("City", name="Bern")]
STEPS = [call("pay", sum=1), calls(("pay", {"sum": 2}), ("pay", {"sum": 3})), "Done."]
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "paying.py").write_text(AGENT)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "paying", raising=False)
    return import_module("paying")


@pytest.fixture
def saver(module: Any, tmp_path: Path) -> Any:
    """A run, an approval, then two answers at once: one allows, one refuses."""
    with SqlSaver.from_url(f"sqlite:///{tmp_path / 'store.db'}") as store:
        agent = module.made(store, module.STEPS)
        asked = agent.invoke("pay", thread_id="t")
        asked = agent.resume("t", {"decision": "approve"})
        first, second = asked.interrupts
        answers = {first.id: {"decision": "approve"}, second.id: {"decision": "reject"}}
        ended = agent.resume("t", answers)
        assert ended.text == "Done."
        module.PAID.clear()
        yield store


def test_a_chain_of_runs_is_replayed_with_the_recorded_answers(module: Any, saver: Any) -> None:
    journal = Journal(saver, "t")
    assert [run.mode for run in journal.runs()] == ["input", "answer", "answer"]
    replayed = replay(module.made(), journal)
    assert replayed.values["messages"][-1].text == "Done."
    assert (replayed.model_calls, replayed.tool_calls) == (3, 2)
    assert module.PAID == []
    paths = [[m.name for m in j.moments(kind="node.enter")] for j in (journal, replayed.journal)]
    assert sorted(paths[0]) == sorted(paths[1])
    first = replay(module.made(), journal, 1)
    assert first.model_calls == 1


def check_passes(file: Path) -> None:
    """Run an exported test."""
    done = forked.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", file.name],
        cwd=file.parent,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_a_run_behind_two_approvals_becomes_a_test_that_passes(
    module: Any, saver: Any, tmp_path: Path
) -> None:
    journal, file = Journal(saver, "t"), tmp_path / "test_paid.py"
    write_test(journal, saver, file, FromCode("paying", "made"), Hider.of(journal))
    check_passes(file)


def test_what_tools_and_sub_agents_asked_is_asked_again(module: Any, tmp_path: Path) -> None:
    file = tmp_path / "test_asking.py"
    with SqlSaver.from_url(f"sqlite:///{tmp_path / 'asking.db'}") as saver:
        agent = module.asking(saver, module.ASKS)
        result = agent.invoke("ask", thread_id="t")
        while result.interrupts:
            result = agent.resume("t", {one.id: "yes" for one in result.interrupts})
        journal = Journal(saver, "t")
        assert (result.text, len(journal.runs())) == ("Done.", 3)
        replayed = replay(module.asking(), journal)
        assert (replayed.model_calls, replayed.tool_calls) == (2, 3)
        stopped = [run.stopped_because for run in replayed.journal.runs()]
        assert stopped == ["interrupted", "interrupted", "done"]
        first = replay(module.asking(), journal, 1)
        assert [run.stopped_because for run in first.journal.runs()] == ["interrupted"]
        write_test(journal, saver, file, FromCode("paying", "asking"), Hider.of(journal))
    check_passes(file)


def test_a_run_with_an_output_becomes_a_test_of_the_output(module: Any, tmp_path: Path) -> None:
    file = tmp_path / "test_typed.py"
    with SqlSaver.from_url(f"sqlite:///{tmp_path / 'typed.db'}") as saver:
        steps = ScriptedModel(module.GIVES, cursor="fifo")
        agent = module.typed.copy_with(saver, model=resolve_model(steps))
        assert agent.invoke("Go", thread_id="t").output == {"name": "Bern"}
        journal = Journal(saver, "t")
        write_test(journal, saver, file, FromCode("paying", "typed"), Hider.of(journal))
    assert """run.text == '{"name": "Bern"}'""" in file.read_text()
    check_passes(file)


def test_an_answer_to_what_is_no_longer_asked_ends_the_replay(
    module: Any, saver: Any, tmp_path: Path
) -> None:
    trusting = Agent("payer", ScriptedModel([]), tools=[module.pay], store=False)
    journal = Journal(saver, "t")
    write_wickrun(journal, saver, tmp_path / "t.wickrun", Hider.of(journal))
    with pytest.raises(ReplayError):
        replay_file(tmp_path / "t.wickrun", trusting)
