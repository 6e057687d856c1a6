"""`wick journal`: a line for each moment, JSON for programs, and sentences for mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.journal.support import agent_of
from wick_graph import Agent
from wick_graph.cli.app import call
from wick_graph.testing import ScriptedModel
from wick_graph.testing import call as call_tool


def visit(token: str, note: str) -> str:
    """Go somewhere."""
    return f"went with {note}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "agents.yaml").write_text(
        "store: sqlite:///store.db\nagents:\n  adder: {model: scripted}\n", encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def recorded(folder: Path) -> Any:
    agent, _ = agent_of(f"sqlite:///{folder}/store.db")
    result = agent.invoke("add", thread_id="t")
    agent.close()
    return result


def wick(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = call(["journal", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_a_line_for_each_moment(recorded: Any, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = wick(capsys, "t")
    lines = out.splitlines()
    assert (code, err, len(lines)) == (0, "", 62)
    assert all(line[:6].strip().isdigit() for line in lines)
    text = "\n".join(lines)
    assert "→ run of adder (input: 1 message)" in text
    assert "model scripted: 2 messages, 1 tool  [guard changed system, settings]" in text
    assert '→ tool add({"a": 1, "b": 1})' in text
    assert "[todo changed args]" in text
    assert "← tool add: 12!" in text
    assert "✕ tool add failed: negative numbers are not added" in text
    assert "· route: tools: the reply calls 3 tool(s)" in text
    assert lines[-1].split("  ")[-1].endswith("ms")


def test_json_lines_are_moments_as_they_are(
    recorded: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = wick(capsys, "t", "--jsonl")
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["seq"] for row in rows] == list(range(1, 63))
    assert {row["run"] for row in rows} == {recorded.run_id}
    _, out, _ = wick(capsys, "t", "--json", "--kind", "model.response")
    first, last = json.loads(out)
    assert first["data"]["reply"]["tool_calls"][0]["name"] == "add"
    assert last["data"]["reply"] == {"role": "assistant", "content": "Done."}


def test_moments_can_be_chosen(recorded: Any, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = wick(capsys, "t", "--kind", "tool", "--after", "30", "--limit", "2")
    assert len(out.splitlines()) == 2
    _, by_number, _ = wick(capsys, "t", "--run", "1")
    _, by_id, _ = wick(capsys, "t", "--run", recorded.run_id)
    assert by_number == by_id
    code, out, err = wick(capsys, "t", "--kind", "interrupt")
    assert (code, out, err.strip()) == (0, "", "no such moments")


def test_mistakes_are_sentences(recorded: Any, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = wick(capsys, "nope")
    assert code != 0
    assert "there is no thread nope" in err
    code, _, err = wick(capsys, "t", "--run", "9")
    assert code != 0
    assert "has no run 9" in err
    code, _, err = wick(capsys, "t", "--json", "--jsonl")
    assert code == 2
    assert "pass one of them" in err


def test_a_thread_without_a_journal_says_so(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agent, _ = agent_of(f"sqlite:///{folder}/store.db", journal="off")
    agent.invoke("add", thread_id="t")
    agent.close()
    code, out, err = wick(capsys, "t")
    assert (code, out, err.strip()) == (0, "", "nothing is recorded in this thread")


def test_secrets_are_hidden_also_where_they_are_read_from_checkpoints(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = "sk-canary-0123456789abcdefghijklmnop"
    model = ScriptedModel([call_tool("visit", token="hunter2-hunter2", note=secret), "Done."])
    store = f"sqlite:///{folder}/store.db"
    with Agent("adder", model, tools=[visit], store=store) as agent:
        agent.invoke(f"the key is {secret}", thread_id="t")
    for form in ((), ("--json",), ("--jsonl",)):
        code, out, err = wick(capsys, "t", *form)
        assert code == 0
        assert "visit" in out
        assert secret not in out + err
        assert "hunter2-hunter2" not in out + err
