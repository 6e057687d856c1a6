"""The pictures of a graph and its hooks, with hooks that have awkward names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from wick_graph import Agent, BaseHook
from wick_graph.cli.hooks import as_lines, describe
from wick_graph.cli.picture import Picture, as_dot, as_mermaid, as_text, picture_of
from wick_graph.config import AgentConfig, BackendConfig, MemoryConfig, SkillsConfig
from wick_graph.hooks.pending import pending

EVIL = 'x"] --> y\\\n<script>&%%{init}%%\x1b[0m'


class Around(BaseHook):
    def __init__(self, name: str) -> None:
        self.name = name

    def wrap_model_call(self, request: Any, next: Any) -> Any:
        return next(request)

    def wrap_tool_call(self, call: Any, next: Any) -> Any:
        return next(call)


class Brings(BaseHook):
    name = "brings"

    def tools(self, state: Mapping[str, Any]) -> Sequence[Any]:
        def look(where: str) -> str:
            """Look."""
            return where

        return [look]

    def before_agent(self, state: Mapping[str, Any], ctx: Any) -> None:
        return None


class NeedsThread(BaseHook):
    name = "needs"

    def tools(self, state: Mapping[str, Any]) -> Sequence[Any]:
        return [state["messages"][0]]


@pytest.fixture
def agent() -> Agent:
    hooks = [Around("outer"), Brings(), NeedsThread(), Around(EVIL)]
    return Agent("mine", "scripted:demo", hooks=hooks, store=False)


@pytest.fixture
def picture(agent: Agent) -> Picture:
    return picture_of(agent)


def test_the_data_have_the_nodes_the_route_and_the_layers(picture: Picture) -> None:
    told = picture.to_dict()
    nodes = {node["name"]: node["hooks"] for node in told["nodes"]}
    assert list(nodes) == ["START", "before_agent", "modify_request", "model", "tools", "END"]
    assert nodes["before_agent"] == {"before_agent": ["brings"]}
    assert nodes["tools"]["wrap_tool_call"][0] == "outer"
    edges = [(edge["source"], edge["target"], edge["label"]) for edge in told["edges"]]
    assert edges == [
        ("START", "before_agent", ""),
        ("before_agent", "modify_request", ""),
        ("modify_request", "model", ""),
        ("model", "tools", "route: tools"),
        ("model", "END", "route: end"),
        ("tools", "modify_request", ""),
    ]


def test_mermaid_takes_no_order_from_a_name(picture: Picture) -> None:
    lines = as_mermaid(picture).splitlines()
    assert lines[0] == "flowchart TD"
    node = re.compile(r'    n_\w+(\["[^"\]<>&\\]*(<br/>[^"\]<>&\\]*)*"\]|\(\["(START|END)"\]\))')
    edge = re.compile(r'    n_\w+ -->(\|"route: (tools|end)"\|)? n_\w+')
    assert lines[1] == "    %% mine"
    assert all(node.fullmatch(line) or edge.fullmatch(line) for line in lines[2:])
    assert len(lines) == 2 + 6 + 6
    assert any("wrap_model_call: outer → x#34;#93;" in line for line in lines)
    assert "modify_request<br/>modify_request: no hooks" in as_mermaid(picture)


def test_dot_quotes_its_names(picture: Picture) -> None:
    drawn = as_dot(picture)
    assert drawn.startswith('digraph "mine" {\n')
    assert '"model" -> "tools" [label="route: tools"];' in drawn
    for line in drawn.splitlines()[3:-1]:
        assert re.sub(r'"(\\.|[^"\\])*"', "Q", line).strip(" ;").startswith("Q")
        assert re.fullmatch(r"[Q >\[\]=;a-z-]*", re.sub(r'"(\\.|[^"\\])*"', "Q", line))


def test_the_drawing_is_aligned_and_leads_back(picture: Picture) -> None:
    lines = as_text(picture).splitlines()
    drawn = "\n".join(lines)
    assert "│   wrap_model_call: outer → x" in drawn
    assert "├─ route: tools" in drawn
    assert lines[-1] == "  └─ route: end ─► END"
    corners = [
        line for line in lines if line.endswith(("─┐", "─┘")) and ("◄" in line or "tools" in line)
    ]
    begin, stop = (lines.index(line) for line in corners)
    rail = len(lines[begin]) - 1
    assert all(line[rail] in "┐│┘" for line in lines[begin : stop + 1])
    assert "\x1b" not in drawn


def test_the_onion_is_told_outermost_first(agent: Agent) -> None:
    told = describe(agent.spec.hooks)
    assert told["phases"]["wrap_tool_call"] == ["outer", EVIL]
    assert [hook["tools"] for hook in told["hooks"]] == [[], ["look"], None, []]
    lines = as_lines(told)
    assert "  before_agent     brings" in lines
    assert "  modify_request   -" in lines
    assert any(re.match(r"  wrap_model_call  outer → x.* → model call", line) for line in lines)
    assert "  brings brings the tools look" in lines
    assert "  needs brings tools that depend on the thread" in lines


LOCAL = BackendConfig(type="local")
SKILLS = SkillsConfig(paths=("skills",))
MEMORY = MemoryConfig(paths=("AGENTS.md",))
ALWAYS = ["tracing", "todolist", "summarization"]


@pytest.mark.parametrize(
    ("config", "more"),
    [
        pytest.param(AgentConfig(), [], id="G-05"),
        pytest.param(AgentConfig(backend=LOCAL), ["filesystem"], id="G-06"),
        pytest.param(AgentConfig(skills=SKILLS), [], id="G-07 without a backend"),
        pytest.param(
            AgentConfig(skills=SKILLS, backend=LOCAL), ["filesystem", "skills"], id="G-07"
        ),
        pytest.param(AgentConfig(memory=MEMORY), [], id="G-08 without a backend"),
        pytest.param(
            AgentConfig(memory=MEMORY, backend=LOCAL), ["filesystem", "memory"], id="G-08"
        ),
        pytest.param(
            AgentConfig(memory=MEMORY, skills=SkillsConfig(paths=()), backend=LOCAL),
            ["filesystem", "memory"],
            id="no paths",
        ),
    ],
)
def test_which_hooks_a_configuration_asks_for(config: AgentConfig, more: list[str]) -> None:
    assert list(pending(config)) == [*ALWAYS, *more]
