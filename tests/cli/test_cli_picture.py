"""The onion of an agent as `wick hooks` tells it, with hooks that have awkward names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from wick_graph import Agent, BaseHook
from wick_graph.cli.graph import as_lines, describe

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
