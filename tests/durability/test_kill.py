"""SIGKILL at random instants: nothing acknowledged is lost, nothing finished is run twice."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.durability import agent_process
from tests.durability.agent_process import CALLS, THREAD, Log, agent_of

TURNS = 4
TRIALS = int(os.environ.get("WICK_KILL_TRIALS", "20"))
KILLS = 3
SEED = 20_261_122


def life(database: Path, log: Path, replay: str, kill_after: float | None) -> bool:
    """Run the agent in a forked child; return whether it was killed."""
    pid = os.fork()
    if pid == 0:
        try:
            agent_process.main(str(database), str(log), str(TURNS), replay)
        finally:
            os._exit(0)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return os.WIFSIGNALED(status)


def read(log: Path) -> list[tuple[str, str]]:
    lines = log.read_text().splitlines() if log.exists() else []
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines)]


def violations(lines: list[tuple[str, str]], results: dict[str, str]) -> Counter[str]:
    """Count calls that started again after they had ended or been acknowledged."""
    found: Counter[str] = Counter()
    ended: set[str] = set()
    acknowledged: set[str] = set()
    for word, name in lines:
        if word == "start":
            found["starts"] += 1
            if name in acknowledged:
                found["acknowledged run again"] += 1
            elif name in ended and results.get(name) == f"done {name}":
                found["recorded run again"] += 1
        elif word == "end":
            ended.add(name)
        elif word == "ack":
            turn, _, i = name.removeprefix("c").partition("_")
            acknowledged.add(str(int(turn) * CALLS + int(i)))
    return found


def final(database: Path, log: Path, replay: str) -> tuple[list[str], dict[str, str]]:
    with agent_of(str(database), Log(str(log)), TURNS, replay) as agent:
        config: Any = {"configurable": {"thread_id": THREAD}}
        state = agent.graph.get_state(config).values
        messages = state["messages"]
        tools = {m.tool_call_id: m.text for m in messages if m.type == "tool"}
    results = {}
    for call_id, text in tools.items():
        turn, _, i = call_id.removeprefix("c").partition("_")
        results[str(int(turn) * CALLS + int(i))] = text
    return [f"{m.type} {m.text}" for m in messages], results


@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
@pytest.mark.timeout(400)
@pytest.mark.parametrize("replay", ["never", "safe"])
def test_killed_anywhere_nothing_is_lost_and_nothing_finished_runs_twice(
    tmp_path: Path, replay: str
) -> None:
    dice = random.Random(SEED)
    total: Counter[str] = Counter()
    whole = tmp_path / "whole"
    whole.mkdir()
    life(whole / "t.db", whole / "log", replay, None)
    expected, _ = final(whole / "t.db", whole / "log", replay)
    for trial in range(TRIALS):
        folder = tmp_path / f"trial{trial}"
        folder.mkdir()
        database, log = folder / "t.db", folder / "log"
        for _ in range(KILLS):
            total["kills"] += life(database, log, replay, dice.uniform(0.003, 0.15))
        for _ in range(4):  # the last lives are not killed
            life(database, log, replay, None)
            if read(log)[-1:] == [("done", "done")]:
                break
        messages, results = final(database, log, replay)
        lines = read(log)
        total += violations(lines, results)
        unknown = [n for n, text in results.items() if "outcome unknown" in text]
        total["unknown"] += len(unknown)
        total["failed"] += sum(word == "failed" for word, _ in lines)
        starts = Counter(name for word, name in lines if word == "start")
        if replay == "never":
            assert max(starts.values(), default=0) <= 1, (trial, starts)
        assert set(results) == {str(n) for n in range(TURNS * CALLS)}, trial
        shown = [m for m in messages if "outcome unknown" not in m]
        assert [m for m in expected if m in shown] == shown, trial
        assert len(messages) == len(expected), trial
    print(f"\n{replay}: {dict(total)}", file=sys.stderr)
    assert total["kills"] >= TRIALS, "the kills came too late to mean anything"
    assert total["acknowledged run again"] == 0
    if replay == "never":  # of a safe call nobody was told of, an end is not yet a record
        assert total["recorded run again"] == 0
    assert total["failed"] == 0
