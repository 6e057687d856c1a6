"""SIGKILL at random instants: nothing acknowledged is lost, nothing finished is run twice.

`WICK_KILL_TRIALS` sets the number of trials on SQLite for each kind of tool (6 here, thousands by
night); on PostgreSQL there are half as many.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.durability import agent_process
from tests.durability.agent_process import CALLS, CONFIG, TURNS, Log, agent_of, url_of
from tests.durability.conftest import Furnish
from tests.support import forked

TRIALS = int(os.environ.get("WICK_KILL_TRIALS", "6"))
LAST = Path("/proc/sys/kernel/ns_last_pid")
MOST = 16
"""Times as many trials, until every window has been hit."""
KILLS = 3
SEED = 20_261_122
WINDOWS = {
    "model": "in the model call",
    "enter": "before the intent",
    "start": "in the tool",
    "end": "after the result",
    "ack": "in the commit",
}
Work = Callable[[str, Log, str], None]
Lines = list[tuple[str, str]]


def life(work: Work, folder: Path, replay: str, lines: int | None, delay: float = 0.0) -> bool:
    """Run the agent in a forked child; return whether it was killed.

    It is killed a moment after it has written so many lines: by what it does, not by the clock,
    so that a slow machine kills it at the same places.
    """
    before = len(read(folder))
    pid = os.fork()
    if pid == 0:
        try:
            work(url_of(folder), Log(folder / "log"), replay)
        finally:
            os._exit(0)
    ended, status = 0, 0
    if lines is not None:
        while len(read(folder)) - before < lines and not ended:
            ended, status = os.waitpid(pid, os.WNOHANG)
            time.sleep(0.0005)
        if not ended:
            time.sleep(delay)
            os.kill(pid, signal.SIGKILL)
    if not ended:
        _, status = os.waitpid(pid, 0)
    return os.WIFSIGNALED(status)


def read(folder: Path) -> Lines:
    log = folder / "log"
    lines = log.read_text().splitlines() if log.exists() else []
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines)]


def number(call_id: str) -> str:
    turn, _, i = call_id.removeprefix("c").partition("_")
    return str(int(turn) * CALLS + int(i))


def rerun(lines: Lines) -> Counter[str]:
    """Count calls that started again after a reader was told of them, or after they had ended."""
    found: Counter[str] = Counter()
    ended: set[str] = set()
    told: set[str] = set()
    for word, name in lines:
        if word == "start" and name in told:
            found["told, run again"] += 1
        elif word == "start" and name in ended:
            found["ended, run again"] += 1
        elif word == "end":
            ended.add(name)
        elif word == "ack":
            told.add(number(name))
    return found


def trial(work: Work, folder: Path, replay: str, dice: random.Random, total: Counter[str]) -> None:
    """Kill a run three times at random, then let it finish."""
    for _ in range(KILLS):
        if life(work, folder, replay, dice.randint(1, 20), dice.uniform(0, 0.004)):
            total["kills"] += 1
            lines = read(folder)
            total[WINDOWS.get(lines[-1][0], "elsewhere") if lines else "before the model"] += 1
    for _ in range(4):
        life(work, folder, replay, None)
        if read(folder)[-1:] == [("done", "done")]:
            break


def final(folder: Path, replay: str) -> dict[str, Any]:
    with agent_of(url_of(folder), Log(folder / "log"), replay) as agent:
        state = agent.graph.get_state(CONFIG).values
    messages = state["messages"]
    return {
        "messages": [f"{m.type} {m.text}" for m in messages],
        "results": {number(m.tool_call_id): m.text for m in messages if m.type == "tool"},
        "files": state["files"],
        "todos": state["todos"],
        "usage": state["usage"],
    }


@pytest.mark.timeout(900)
@pytest.mark.parametrize("replay", ["never", "safe"])
def test_killed_anywhere_nothing_is_lost_and_nothing_finished_runs_twice(
    tmp_path: Path, furnish: Furnish, database: str, replay: str
) -> None:
    dice, total = random.Random(SEED), Counter[str]()
    trials = TRIALS if database == "sqlite" else TRIALS // 2
    whole = furnish(tmp_path / "whole")
    life(agent_process.ours, whole, replay, None)
    expected = final(whole, replay)
    for n in range(MOST * trials):
        if n >= trials and all(total[window] for window in WINDOWS.values()):
            break
        folder = furnish(tmp_path / f"trial{n}")
        trial(agent_process.ours, folder, replay, dice, total)
        if any(text.startswith("poison") for word, text in read(folder) if word == "failed"):
            total["poisoned"] += 1  # all three kills hit one step: the thread says so, and waits
            continue
        lines, got = read(folder), final(folder, replay)
        total += rerun(lines)
        total["failed"] += sum(word == "failed" for word, _ in lines)
        starts = Counter(name for word, name in lines if word == "start")
        unknown = {n for n, text in got["results"].items() if "outcome unknown" in text}
        total["unknown"] += len(unknown)
        assert set(got["results"]) == {str(n) for n in range(TURNS * CALLS)}, n
        assert got["usage"] == expected["usage"], n
        last = max(set(expected["results"]) - unknown, key=int)
        assert [todo["id"] for todo in got["todos"]] == [last], n
        assert {n: text for n, text in expected["files"].items() if n not in unknown} == got[
            "files"
        ]
        shown = [m for m in got["messages"] if "outcome unknown" not in m]
        assert [m for m in expected["messages"] if m in shown] == shown, n
        assert len(got["messages"]) == len(expected["messages"]), n
        if replay == "never":
            assert max(starts.values()) == 1, (n, starts)
        else:
            assert not unknown
    print(f"\nkilled on {database}, {replay}: {dict(total)}", file=sys.stderr)
    assert total["kills"] >= trials, "the kills came too late to mean anything"
    assert total["told, run again"] == 0
    assert total["failed"] == 0
    assert all(total[window] for window in WINDOWS.values()), "a window was never hit"


@pytest.mark.sisters
@pytest.mark.timeout(300)
@pytest.mark.parametrize("work", [agent_process.without_ledger, agent_process.stock])
def test_the_harness_can_fail(tmp_path: Path, work: Work) -> None:
    """Without the ledger, and on LangGraph's own saver, finished calls do run again."""
    dice, total = random.Random(SEED), Counter[str]()
    for n in range(MOST * TRIALS):
        if total["ended, run again"] + total["told, run again"]:
            break
        folder = tmp_path / f"trial{n}"
        folder.mkdir()
        trial(work, folder, "never", dice, total)
        total += rerun(read(folder))
    print(f"\n{work.__name__}: {dict(total)}", file=sys.stderr)
    assert total["ended, run again"] + total["told, run again"] > 0


def test_a_number_that_comes_again_is_a_process_that_has_not_ended() -> None:
    if not LAST.exists():
        pytest.skip("this system does not let a process choose the next number")
    first = forked.Popen([sys.executable, "-c", "pass"], stdin=subprocess.PIPE)
    first.communicate(timeout=60)
    for _ in range(50):  # others take numbers too
        try:
            LAST.write_text(f"{first.pid - 1}")
        except OSError as why:
            pytest.skip(f"no right to choose the next number: {why}")
        with forked.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as second:
            ended = second.poll()
            second.kill()
        if second.pid == first.pid:
            break
    else:
        pytest.skip("the number did not come again")
    assert ended is None
    assert second.returncode == -9
