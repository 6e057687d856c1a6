"""A sub-agent as somebody at the command line meets it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command import Folder
from wick_graph import load

AGENTS = """\
store: sqlite:///checkpoints/wick.db
agents:
  boss:
    model: scripted:boss.yaml
    subagents: {helper: {description: Does sums.}}
  helper: {model: 'scripted:helper.yaml', tools: [calculate]}
"""
BOSS = """\
steps:
- calls: [{tool: delegate_to_agent, args: {agent: helper, task: 'What is 6*7?'}}]
- The helper says 42.
"""
HELPER = "steps: [{calls: [{tool: calculate, args: {expression: 6*7}}]}, '42']\n"


def test_the_calls_of_a_sub_agent_are_shown_and_its_thread_is_kept(tmp_path: Path) -> None:
    folder = Folder(tmp_path).write(agents=AGENTS, boss=BOSS, helper=HELPER)
    ended = folder.wick("run", "-t", "mine", "boss", "Go")
    assert ended.code == 0, ended.err
    assert ended.out == "The helper says 42.\n"
    assert 'helper → calculate(expression="6*7")' in ended.err
    with folder.store as store:
        child = next(info for info in store.threads.list() if info.agent == "helper")
    assert child.parent == "mine"


def test_the_picture_shows_the_tool_that_gives_tasks_away(tmp_path: Path) -> None:
    folder = Folder(tmp_path).write(agents=AGENTS, boss=BOSS, helper=HELPER)
    drawn = folder.wick("graph", "boss")
    assert "delegate_to_agent" in drawn.out


TEAM = """\
agents:
  desk:
    model: scripted:desk.yaml
    handoffs: {billing: Money matters., legal: The law.}
  billing:
    model: scripted:billing.yaml
    tools: [calculate]
    approvals: {calculate: true}
    handoffs: {desk: Everything else.}
  legal: {model: 'scripted:desk.yaml', backend: {type: local, workdir: files}}
"""
DESK = "steps: [{calls: [{tool: transfer_to_billing, args: {}}]}]\n"
BILLING = "steps: [{calls: [{tool: calculate, args: {expression: 6*7}}]}, Paid.]\n"


def test_agents_of_a_file_take_over_from_each_other(tmp_path: Path) -> None:
    folder = Folder(tmp_path).write(agents=TEAM, desk=DESK, billing=BILLING)
    assert folder.wick("validate").code == 0
    asked = folder.wick("run", "-t", "mine", "desk", "Money back!")
    assert "calculate" in asked.err
    ended = folder.wick("resume", "mine", "--all-approve")
    assert (ended.code, ended.out) == (0, "Paid.\n"), ended.err
    with load(tmp_path / "agents.yaml") as agents:
        assert [*agents["desk"].spec.parts] == ["billing", "legal"]
        assert [*agents["billing"].spec.parts] == ["desk"]


@pytest.mark.parametrize(
    ("handoffs", "says"),
    [
        (
            "{biling: Money.}",
            "desk.handoffs.biling: there is no agent biling; did you mean billing",
        ),
        ("{desk: Me.}", "agents.desk: handoffs: 'desk' is the agent itself; name another agent"),
        ("{legal: ''}", "desk.handoffs.legal: must not be empty"),
        ("[billing]", "desk.handoffs: "),
        ("{other: Tells.}", "agents.desk: handoffs: other has another context_schema"),
    ],
)
def test_a_handoff_that_cannot_be_is_refused(handoffs: str, says: str, tmp_path: Path) -> None:
    more = "  other: {model: 'scripted:desk.yaml', context: {use: 'codes:Who'}}\n"
    written = TEAM.replace("{billing: Money matters., legal: The law.}", handoffs) + more
    folder = Folder(tmp_path).write(agents=written, desk=DESK, billing=BILLING)
    (tmp_path / "codes.py").write_text(
        "from dataclasses import dataclass\n@dataclass\nclass Who:\n    name: str\n"
    )
    folder.wick("trust")
    ended = folder.wick("validate")
    assert ended.code != 0
    assert says in ended.err


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ("transfer_to_legal", ""),
        ("transfer_to_desk", ""),
        ("transfer_*", ""),
        ("transfer_to_legl", "there is no tool transfer_to_legl; did you mean transfer_to_legal?"),
        ("transfer_to_legal_typo", "desk.approvals.transfer_to_legal_typo: there is no tool "),
        (
            "transfer_to_xyzzy",
            "the handoffs are transfer_to_desk, transfer_to_billing, transfer_to_l",
        ),
    ],
)
def test_an_approval_of_a_handoff_names_one(rule: str, says: str, tmp_path: Path) -> None:
    written = TEAM.replace("desk.yaml\n", f"desk.yaml\n    approvals: {{'{rule}': true}}\n", 1)
    folder = Folder(tmp_path).write(agents=written, desk=DESK, billing=BILLING)
    ended = folder.wick("validate")
    assert (ended.code != 0) is bool(says), ended.err
    assert says in ended.err
