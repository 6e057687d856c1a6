"""Agents below an agent are boxes of their own, and a thread tells which were given tasks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from wick_graph import Agent
from wick_graph.cli.app import call as command
from wick_graph.picture import as_svg, as_text, overlay_of, picture_of
from wick_graph.subagents import Subagent, delegation
from wick_graph.testing import ScriptedModel, call, calls

YAML = """\
store: sqlite:///store.db
agents:
  boss:
    model: openai:gpt-none
    mcp_servers: {files: {command: [no-such-program]}}
    subagents:
      researcher: {description: Finds what is known.}
      writer: {description: Writes it down., background: true}
  researcher: {model: openai:gpt-none}
  writer: {model: openai:gpt-none}
"""


def test_what_a_file_says_is_below_an_agent_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "agents.yaml").write_text(YAML, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert command(["graph", "boss", "--format", "json"]) == 0
    made = json.loads(capsys.readouterr().out)
    below = {node["id"]: node for node in made["nodes"] if node["kind"] == "agent"}
    assert {id: node["facts"]["sub_agent_by"] for id, node in below.items()} == {
        "agent:researcher": "delegate_to_agent",
        "agent:writer": "start_async_task",
    }
    assert below["agent:writer"]["facts"]["description"] == "Writes it down."
    led = {(edge["source"], edge["target"]) for edge in made["edges"]}
    assert {("tools", "agent:researcher"), ("tools", "agent:writer")} <= led
    (tools,) = (node for node in made["nodes"] if node["id"] == "tools")
    assert tools["facts"]["mcp_server"] == "files"


def test_a_thread_tells_which_agents_were_given_tasks(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    below = Agent("below", ScriptedModel(["Old.", "New.", "Both."]), store=url)
    tasks = [("delegate_to_agent", {"agent": "asker", "task": text}) for text in ("How?", "Why?")]
    tools = [delegation({name: Subagent(below, f"The {name}") for name in ("asker", "idler")})]
    again = call("delegate_to_agent", agent="asker", task="?")
    model = ScriptedModel([calls(*tasks), again, "So."])
    with Agent("boss", model, tools=tools, store=url) as agent:
        assert agent.invoke("Ask", thread_id="t").text == "So."
        run = overlay_of(agent.graph, "t")
        drawn = picture_of(agent.graph).with_run(run)
    below.close()
    assert run.nodes["agent:asker"].visits == 3
    assert "agent:idler" not in run.nodes
    assert run.edges["tools", "agent:asker"].visits == 3
    assert "3 visits" in as_text(drawn)
    assert as_svg(drawn).count("sub-agent, by delegate_to_agent") >= 2
