"""`--context FILE`: the context of an agent at the command line."""

from __future__ import annotations

import json
import secrets
from pathlib import Path

import pytest

from wick_graph.cli.app import call

APP = '''
from dataclasses import dataclass
from wick_graph import ToolContext, tool

@dataclass
class Ctx:
    user: str

@tool
def whoami(ctx: ToolContext) -> str:
    """Say who asks."""
    return f"You are {ctx.context.user}."
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    module = f"cli_context_{secrets.token_hex(4)}"
    (tmp_path / f"{module}.py").write_text(APP)
    (tmp_path / "talk.yaml").write_text("steps: [{calls: [{tool: whoami}]}, Done.]")
    (tmp_path / "agents.yaml").write_text(
        f"store: sqlite:///w.db\nmodel: scripted:talk.yaml\ntools: ['{module}:whoami']\n"
        f"context: {{use: '{module}:Ctx'}}\napprovals: {{whoami: true}}\n"
    )
    (tmp_path / "ada.json").write_text('{"user": "ada"}')
    (tmp_path / "list.json").write_text("[]")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_run_and_resume_read_it_from_a_file(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shared = ["--trust", "--json"]
    assert call(["run", "Who am I?", "-t", "t", "--context", "ada.json", *shared]) == 0
    assert json.loads(capsys.readouterr().out)["stopped_because"] == "interrupted"
    assert call(["resume", "t", "--all-approve", *shared]) != 0
    assert "needs a context of Ctx" in capsys.readouterr().err
    assert call(["resume", "t", "--all-approve", "--context", "ada.json", *shared]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["tool_calls"][0]["output"] == "You are ada."


@pytest.mark.parametrize(
    ("file", "says"), [("none.json", "cannot be read"), ("list.json", "holds no JSON object")]
)
def test_a_file_without_one_is_refused(
    folder: Path, file: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["run", "Hi.", "--trust", "--context", file]) == 2
    assert says in capsys.readouterr().err
