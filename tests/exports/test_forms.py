"""The other forms: moments as lines, a timeline, and a test that replays."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.journal.support import agent_of
from tests.source import ROOT
from tests.support import forked
from wick_graph.cli.app import call as wick
from wick_graph.config import load_config
from wick_graph.exports.chrome import as_chrome
from wick_graph.exports.plain import Hider, as_jsonl
from wick_graph.journal import Journal
from wick_graph.loading import build_agent
from wick_graph.models.resolve import ModelChoice
from wick_graph.store import SqlSaver
from wick_graph.testing import ScriptedModel, call, calls


def exported(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = wick(["export", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_lines_follow_the_schema(journal: Journal, folder: Path) -> None:
    schema = json.loads((ROOT / "docs" / "moment.schema.json").read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    rows = [json.loads(line) for line in as_jsonl(journal, Hider.of(journal))]
    for row in rows:
        Draft202012Validator(schema).validate(row)
    assert [row["seq"] for row in rows] == list(range(1, journal.last() + 1))
    with pytest.raises(Exception, match="'nope' was unexpected"):
        Draft202012Validator(schema).validate({**rows[0], "nope": 1})


@pytest.fixture
def trace(journal: Journal) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(as_chrome(journal, Hider.of(journal)))["traceEvents"]
    return found


def test_slices_of_a_lane_lie_in_each_other_or_apart(trace: list[dict[str, Any]]) -> None:
    lanes = defaultdict(list)
    for event in trace:
        if event["ph"] == "X":
            lanes[event["tid"]].append((event["ts"], event["ts"] + event["dur"], event["name"]))
    for slices in lanes.values():
        for one in slices:
            for other in slices:
                apart = one[1] <= other[0] or other[1] <= one[0]
                inside = (one[0] <= other[0] and other[1] <= one[1]) or (
                    other[0] <= one[0] and one[1] <= other[1]
                )
                assert apart or inside, (one, other)
        assert sum(name == "tools" for *_, name in slices) <= 1, "parallel calls share a lane"
    assert len(lanes) == 4


def test_the_timeline_has_all_that_happened(trace: list[dict[str, Any]], journal: Journal) -> None:
    slices = [event for event in trace if event["ph"] == "X"]
    opened = {m.parent for m in journal.moments() if m.is_end}
    assert {event["args"]["seq"] for event in slices} == opened
    calls = [e["args"]["args"] for e in slices if e["name"] == "tool add"]
    assert {"a": -3, "b": 11} in calls
    arrows = defaultdict(list)
    for event in trace:
        if event["ph"] in "sf":
            arrows[event["id"]].append(event)
    assert len(arrows) == 3
    for start, end in arrows.values():
        assert (start["ph"], end["ph"]) == ("s", "f")
        for arrow in (start, end):
            lane = [s for s in slices if s["tid"] == arrow["tid"]]
            assert any(s["ts"] <= arrow["ts"] <= s["ts"] + s["dur"] for s in lane)
    counted = [event["args"] for event in trace if event["ph"] == "C"]
    assert counted[-1] == {"input": 56, "output": 17}
    assert [e["args"]["seq"] for e in trace if e["ph"] == "i"] == [
        m.seq for m in journal.moments() if m.status != "ok"
    ]


_NEEDS = {
    "X": {"name", "cat", "ts", "dur", "pid", "tid"},
    "s": {"name", "cat", "id", "ts", "pid", "tid"},
    "f": {"name", "cat", "id", "ts", "pid", "tid", "bp"},
    "i": {"name", "ts", "pid", "tid", "s"},
    "C": {"name", "ts", "pid", "args"},
    "M": {"name", "pid", "tid", "args"},
}
"""What the trace event format wants of each kind; whole slices (`X`) need no ends to match."""


def test_every_event_is_as_the_format_wants_it(trace: list[dict[str, Any]]) -> None:
    assert {event["ph"] for event in trace} == set(_NEEDS)
    for event in trace:
        assert set(event) >= _NEEDS[event["ph"]], event
        assert event.get("ts", 0) >= 0
        assert event.get("dur", 0) >= 0
    for kind in "XsC":
        times = [event["ts"] for event in trace if event["ph"] == kind]
        assert times == sorted(times)
    lanes = {event["tid"] for event in trace if event["ph"] in "Xsfi"}
    named = [e["tid"] for e in trace if e["ph"] == "M" and e["name"] == "thread_name"]
    assert sorted(named) == sorted(lanes)
    ids = [event["id"] for event in trace if event["ph"] == "s"]
    assert len(ids) == len(set(ids))


def test_names_are_ascii(saver: SqlSaver) -> None:
    agent, _ = agent_of(saver, hooks=[])
    agent.spec = replace(agent.spec, name="zähler·")
    agent.invoke("add", thread_id="u")
    journal = Journal(saver, "u")
    made = json.loads(as_chrome(journal, Hider.of(journal)))["traceEvents"]
    names = [event["name"] for event in made]
    assert "run z?hler?" in names
    assert all(name.isascii() for name in names)


YAML = """\
store: sqlite:///store.db
agents:
  sums:
    model: openai:gpt-none
    system_prompt: {prompt}
    tools: [calculate]
    journal: steps
"""


def recorded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Record the agent of a file with a model that answers; its own one has no key here."""
    (folder / "agents.yaml").write_text(YAML.format(prompt="Add."), encoding="utf-8")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    model = ScriptedModel(
        [
            calls(("calculate", {"expression": "6*7"}), ("calculate", {"expression": "x"})),
            "It's 42.",
        ]
    )
    file = load_config(folder / "agents.yaml")
    store = SqlSaver.from_url(file.store_url)
    choice = ModelChoice(model=model, name="gpt-none")
    agent = build_agent("sums", file, store=store, model=choice)
    agent.invoke("6*7, and x?", thread_id="th.1-a")
    store.close()


def run_test(folder: Path, name: str) -> subprocess.CompletedProcess[str]:
    """Run a test in a process of its own that has no network, and no plugins but these."""
    options = ["-q", "-p", "pytest_socket", "-p", "wick_graph.pytest_plugin", "--disable-socket"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return forked.run(
        [sys.executable, "-m", "pytest", "-W", "ignore", "-p", "no:cacheprovider", *options, name],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
    )


def test_a_run_becomes_a_test_that_passes_offline(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded(folder, monkeypatch)
    code, out, err = exported(capsys, "--thread", "th.1-a", "--to", "pytest")
    assert (code, err) == (0, "")
    assert out.splitlines() == ["wrote test_th_1_a.py", "wrote test_th_1_a.wickrun"]
    (folder / "store.db").unlink()
    done = run_test(folder, "test_th_1_a.py")
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    (folder / "agents.yaml").write_text(YAML.format(prompt="Subtract."), encoding="utf-8")
    done = run_test(folder, "test_th_1_a.py")
    assert done.returncode == 1
    assert "+system: Subtract." in done.stdout


def test_an_agent_with_servers_is_no_test_of_itself(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded(folder, monkeypatch)
    with (folder / "agents.yaml").open("a", encoding="utf-8") as file:
        file.write("    mcp_servers: {files: {command: [no-such-program]}}\n")
    code, _, err = exported(capsys, "--thread", "th.1-a", "--to", "pytest")
    assert (code, "sums has tools of MCP servers" in err) == (2, True)
    assert not list(folder.glob("test_*"))


@pytest.mark.slow
def test_what_the_test_says_is_compared(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded(folder, monkeypatch)
    exported(capsys, "--thread", "th.1-a", "--to", "pytest", "-o", "test_run.py")
    text = (folder / "test_run.py").read_text(encoding="utf-8")
    changed = text.replace("'6*7'", "'6*8'")
    assert changed != text
    (folder / "test_run.py").write_text(changed, encoding="utf-8")
    done = run_test(folder, "test_run.py")
    assert (done.returncode, "assert run.calls ==" in done.stdout) == (1, True)


def test_what_cannot_be_a_test_says_why(
    journal: Journal, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = exported(capsys, "--thread", "t", "--to", "pytest")
    assert code == 2
    assert "the agent of this thread is not in agents.yaml; say where it is made" in err
    code, _, err = exported(capsys, "--thread", "t", "--to", "pytest", "--agent", "a b:c")
    assert "--agent takes module:name" in err
    code, _, err = exported(
        capsys, "--thread", "t", "--to", "pytest", "--run", "9", "--agent", "a:b"
    )
    assert "has no run 9" in err


def test_a_run_with_secrets_is_no_test(
    saver: SqlSaver, folder: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("SOME_API_KEY", "canary-4711-4711")
    agent, _ = agent_of(saver, hooks=[], model=ScriptedModel([call("add", a=1, b=2), "ok"]))
    agent.invoke("use canary-4711-4711", thread_id="s")
    code, _, err = exported(capsys, "--thread", "s", "--to", "pytest", "--agent", "a:b")
    assert code != 0
    assert "holds secrets" in err
    assert "--to jsonl` writes each as •••" in err
    assert not list(folder.glob("test_s*"))


@pytest.mark.parametrize(
    ("form", "name"),
    [("html", "t.html"), ("wickrun", "t.wickrun"), ("chrome", "t.trace.json"),
     ("jsonl", "t.jsonl")],
)  # fmt: skip
def test_each_form_is_written_from_a_thread_and_from_a_file(
    form: str, name: str, journal: Journal, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exported(capsys, "-t", "t", "--to", form) == (0, f"wrote {name}\n", "")
    first = (folder / name).read_bytes()
    exported(capsys, "-t", "t", "--to", "wickrun", "-o", "x.wickrun")
    assert exported(capsys, "x.wickrun", "--to", form, "-o", name)[0] == 0
    again = (folder / name).read_bytes()
    assert form == "wickrun" or again == first


def test_mistakes_are_sentences(
    journal: Journal, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "name what to export" in exported(capsys)[2]
    assert "the file x.wickrun and --thread exclude" in exported(capsys, "x.wickrun", "-t", "t")[2]
    assert "there is no thread nope" in exported(capsys, "-t", "nope")[2]
    assert "cannot be read" in exported(capsys, "nope.wickrun")[2]
    code, _, err = exported(capsys, "-t", "t", "-o", str(folder / "no" / "x.html"))
    assert (code, "cannot be written" in err) == (2, True)
