"""A sub-agent as somebody at the command line meets it."""

from __future__ import annotations

from pathlib import Path

from tests.support.command import Folder

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
