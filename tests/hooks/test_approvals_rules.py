"""Rules that say which calls must be asked about, from Python and from agents.yaml."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import wick_graph
from tests.engine.support import wild
from tests.hooks.approving import Box
from wick_graph import Agent
from wick_graph.config import parse_config
from wick_graph.errors import ConfigError
from wick_graph.hooks.approvals import ApprovalHook, approval_hook
from wick_graph.testing import ScriptedModel, malformed_args
from wick_graph.tools import FuncTool


@pytest.mark.parametrize(
    ("rules", "asks"),
    [
        ({"write": True}, True),
        ({"write": False}, False),
        ({"other": True}, False),
        ({"*": True}, True),
        ({"wr?te": True, "x*": False}, True),
        ({"*": True, "write": False}, False),
        ({"*": False, "wr*": True}, True),
        ({"Write": True}, False),
        ({"write": "path == 'a'"}, True),
        ({"write": "path == 'b'"}, False),
        ({"write": "args.path == 'a' and tool == 'write'"}, True),
        ({"write": "'text' in args and len(args.text) > 3"}, False),
        ({"write": "text == ''"}, True),  # not given: there is no such name
        ({"write": "path > 3"}, True),
        ({"write": "'/' + 1"}, True),
        ({"write": "path"}, True),
        ({}, False),
    ],
)
def test_which_calls_need_approval(rules: dict[str, Any], asks: bool) -> None:
    box = Box("a", hooks=[ApprovalHook(rules)])
    result = box.agent.invoke("Go")
    assert (result.stopped_because == "interrupted") is asks
    assert box.ran == ([] if asks else ["a"])


def test_a_rule_that_fails_asks_and_says_why() -> None:
    box = Box("a", write="pth == 'a'")
    (asked,) = box.agent.invoke("Go").interrupts
    assert asked.value["why"] == (
        "the rule pth == 'a' failed (column 1: there is no pth; did you mean path)"
    )


def test_arguments_cannot_pass_for_the_names_of_a_rule() -> None:
    ran = []

    def run(args: dict[str, Any]) -> str:
        ran.append(args)
        return "ran"

    free = FuncTool("free", "Take anything.", {"type": "object"}, run)
    model = ScriptedModel([wild("free", tool="harmless", args={"safe": True}), "Done."])
    agent = Agent(model=model, tools=[free], hooks=[ApprovalHook({"free": "tool == 'free'"})])
    assert agent.invoke("Go").stopped_because == "interrupted"
    assert ran == []


def test_calls_that_would_fail_anyway_are_not_asked_about() -> None:
    box = Box("a")
    model = ScriptedModel([wild("write", pth="a"), malformed_args("write"), "Done."])
    tools = box.agent.spec.tools
    box.agent = Agent(model=model, tools=tools, hooks=[ApprovalHook({"*": True})])
    result = box.agent.invoke("Go", thread_id="t")
    assert (result.stopped_because, box.ran) == ("done", [])
    first, second = box.answers
    assert "path: missing" in first
    assert second.startswith("Error: ")


# --- agents.yaml ---------------------------------------------------------------------------------


def parsed(rules: str) -> Any:
    text = f"agents:\n  default:\n    tools: [calculate]\n    approvals:\n{rules}"
    return parse_config(text, source="agents.yaml", base_dir=Path.cwd(), env={})


def test_a_file_activates_the_hook_only_where_it_has_rules() -> None:
    file = parsed(
        "      calculate: true\n      write_file: \"glob(path, '*.env')\"\n      ls: false\n"
    )
    hook = approval_hook(file.agent())
    assert hook is not None
    assert {name: getattr(rule, "text", rule) for name, rule in hook.rules.items()} == {
        "calculate": True,
        "write_file": "glob(path, '*.env')",
        "ls": False,
    }
    assert approval_hook(parsed("      {}\n").agent()) is None


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        (
            "      ls: true\n      calculate: 'path =='\n",
            "6: agents.default.approvals.calculate: "
            "is not an expression, at column 7: this is not an expression; write it as in Python",
        ),
        (
            "      calculate: path.upper()\n",
            "5: agents.default.approvals.calculate: is not an "
            "expression, at column 1: only these can be called",
        ),
        ("      calculate: 3\n", "5: agents.default.approvals.calculate: must be true, false, or"),
        ("      calculate: [a]\n", "5: agents.default.approvals.calculate: must be true, false"),
        ("      'a b': true\n", '4: agents.default.approvals: has the key "a b", which fits no'),
        ("      3\n", "agents.default.approvals: must be a block of keys"),
    ],
)
def test_a_rule_that_is_wrong_is_named_with_its_place(rules: str, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parsed(rules)
    assert says in str(refused.value)


@pytest.mark.parametrize("rule", [None, 3, [], "a ="])
def test_a_rule_that_is_wrong_is_refused_in_python_too(rule: Any) -> None:
    with pytest.raises(ConfigError, match="approvals of act: "):
        ApprovalHook({"act": rule})


def test_a_rule_for_a_tool_whose_name_is_nearly_right_is_refused(tmp_path: Path) -> None:
    text = """\
defaults: {model: scripted:demo, tools: [calculate]}
agents:
  right: {approvals: {calculate: true, write_file: true, "calc*": true, "calculat?": true}}
  wrong:
    approvals:
      calclate: true
"""
    (tmp_path / "agents.yaml").write_text(text, "utf-8")
    with wick_graph.load(tmp_path / "agents.yaml") as agents:
        assert agents["right"].invoke("What is 2*3?").stopped_because == "interrupted"
        with pytest.raises(ConfigError, match=r"agents\.yaml:6: .+; did you mean calculate\?"):
            agents["wrong"]
