"""The benchmarks run and say what they measured; whether it is good is not for a test."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.source import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("benchmarks"),  # one run for all
]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a quick run writes; it is small enough for a test, and measures nothing."""
    out = tmp_path_factory.mktemp("bench")
    files = ["--json", str(out / "out.json"), "--markdown", str(out / "out.md")]
    subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "run.py"), "--quick", *files],
        cwd=out,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(out)},
        check=True,
        capture_output=True,
        timeout=280,
    )
    made: dict[str, Any] = json.loads((out / "out.json").read_text())
    made["table"] = (out / "out.md").read_text().splitlines()
    return made


@pytest.mark.slow
def test_every_row_has_what_its_goal_is_about(measured: dict[str, Any]) -> None:
    rows = {row["key"]: row for row in measured["rows"]}
    assert len(rows) == len(measured["rows"])
    goals = {key: row["goal"] for key, row in rows.items()}
    assert {
        "commits": 4,
        "commits-safe": 3,
        "flat": 1.2,
        "bytes": 1 / 50,
        "saver-bytes": 1 / 50,
        "saver-time": 0.4,
        "journal-bytes": 1.5,
        "stream-engine": 0.4,
        "stream-door": 1.0,
        "threads": 0.5,
        "resume": 0.7,
        "opening": 1.0,
        "turn": 0.8,
        "warm": 1.3,
        "first-3": 1.0,
        "event-3": 0.4,
        "sweep": 0.3,
        "list": 5.0,
        "memory-idle": 50,
        "memory-live": 60,
        "disk": 4.5,
        "import-agent": 1.15,
        "tools": 1.3,
        "import": 150,
        "help": 300,
    }.items() <= goals.items()
    assert sum(key.startswith(("loop-", "durable-", "journal-")) for key in rows) == 7
    for row in rows.values():
        assert row["held"] > 0, row["key"]
        met = None if row["goal"] is None else row["held"] <= row["goal"]
        assert row["met"] == met, row["key"]
        assert row["load"] > 0, row["key"]
        assert all(spread["low"] <= spread["median"] for spread in row["values"].values())


def test_commits_are_counted_and_fewer_than_the_peers(measured: dict[str, Any]) -> None:
    rows = {row["key"]: row for row in measured["rows"]}
    for key in ("commits", "commits-safe"):
        ours, peer = (spread["median"] for spread in rows[key]["values"].values())
        assert 0 < ours < peer


@pytest.mark.slow
def test_growth_and_table_are_written(measured: dict[str, Any]) -> None:
    growth = measured["growth"]
    assert set(growth["bytes"]) == set(growth["cpu_ms"]) >= {"wick_graph", "create_agent"}
    assert all(points for curve in ("bytes", "cpu_ms") for points in growth[curve].values())
    assert len(measured["table"]) == len(measured["rows"]) + 2
    assert set(measured["about"]["packages"]) >= {"langgraph", "langchain"}


def test_plots_are_left_out_with_a_sentence_where_the_library_is_absent(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['matplotlib'] = None; import plots, pathlib; "
        "print(plots.draw({'cpu_ms': {}, 'bytes': {}}, pathlib.Path(sys.argv[1])))"
    )
    made = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "plots")],
        cwd=ROOT / "benchmarks",
        check=True,
        capture_output=True,
        text=True,
    )
    assert 'pip install "wick-graph[bench]"' in made.stdout
    assert not (tmp_path / "plots").exists()


def test_bytecodes_are_counted_for_what_is_left_out(tmp_path: Path) -> None:
    script = str(ROOT / "benchmarks" / "floor.py")
    command = [sys.executable, script, "--count", "--only", "turn", "--threads", "2"]
    made = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    counts = {
        line[:42].strip(): int(line[42:].split()[0].replace(",", ""))
        for line in made.stdout.splitlines()[1:]
    }
    assert counts["wick_graph"] > counts["wick_graph, no journal"]
    assert counts["wick_graph, no journal"] > 1.5 * counts["wick_graph, nothing stored"]
    assert counts["create_agent"] > counts["create_agent, nothing stored"] > 0
    assert counts["LangGraph's loop unshortened"] > 1.2 * counts["wick_graph"]


@pytest.mark.parametrize("more", [[], ["--plain"]])
def test_a_long_thread_is_made_and_opened(more: list[str], tmp_path: Path) -> None:
    script = str(ROOT / "benchmarks" / "long_thread.py")
    command = [sys.executable, script, "--turns", "4", *more]
    made = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert [line.split()[0] for line in made.stdout.splitlines()[-3:]] == ["made", *["opened"] * 2]


def test_a_profile_names_who_takes_the_time(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "where.py"), "--turns", "2"]
    made = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert {"ours: store", "LangGraph"} <= {line[2:36].strip() for line in made.stdout.splitlines()}


def test_each_workload_of_the_gate_runs(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "gate.py"), "--dry"]
    made = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert len(made.stdout.splitlines()) == 10


def test_the_gate_holds_up_to_two_per_cent() -> None:
    code = (
        "import gate; base = {'same': 1000, 'more': 1000}; "
        "print(*(holds for _, holds in gate.judged(base, {'same': 1020, 'more': 1021, 'new': 9})))"
    )
    command = [sys.executable, "-c", code]
    here = ROOT / "benchmarks"
    made = subprocess.run(command, cwd=here, check=True, capture_output=True, text=True)
    assert made.stdout.split() == ["True", "False", "True"]


def test_the_queueing_simulation_prints_its_table() -> None:
    file = ROOT / "benchmarks" / "queueing.py"
    done = subprocess.run(
        [sys.executable, str(file), "--quick"], check=True, capture_output=True, text=True
    )
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines()]
    assert {len(row) for row in rows if "---" not in row[0]} == {10}
    waits = {(row[2], row[3]): float(row[6]) for row in rows[2:] if row[1] == "70%"}
    assert waits["first come", "20,000"] > 10 * waits["fair", "20,000"]
