"""Death at each named point of a step, first, second and third time that it is reached."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.durability import agent_process
from tests.durability.agent_process import CALLS, TURNS, Log, url_of
from tests.durability.conftest import Furnish
from tests.durability.test_kill import final, life, read, rerun
from tests.support.orphans import assert_no_orphans
from wick_graph.store import SqlSaver
from wick_graph.store.leases import Leases
from wick_graph.store.ledger import Ledger
from wick_graph.store.threads import Threads

POINTS: dict[str, tuple[Any, str, bool]] = {
    "before the lease": (Leases, "acquire", False),
    "after the lease": (Leases, "acquire", True),
    "after the run is opened": (Threads, "open", True),
    "before the intent": (Ledger, "begin", False),
    "after the intent": (Ledger, "begin", True),
    "before the result": (Ledger, "finish", False),
    "after the result": (Ledger, "finish", True),
    "before the writes": (SqlSaver, "put_writes", False),
    "after the writes": (SqlSaver, "put_writes", True),
    "before the checkpoint": (SqlSaver, "put", False),
    "after the checkpoint": (SqlSaver, "put", True),
    "before the run is closed": (Leases, "release", False),
    "after the run is closed": (Leases, "release", True),
}


def dying(point: str, nth: int) -> Callable[[str, Log, str], None]:
    """Make a life that ends at the nth time that a point is reached."""
    kind, method, after = POINTS[point]

    def work(url: str, log: Log, replay: str) -> None:
        original, reached = getattr(kind, method), 0

        def patched(*args: Any, **kwargs: Any) -> Any:
            nonlocal reached
            reached = mine = reached + 1  # three calls are under way at once
            if mine == nth and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            value = original(*args, **kwargs)
            if mine == nth:
                os.kill(os.getpid(), signal.SIGKILL)
            return value

        setattr(kind, method, patched)
        agent_process.ours(url, log, replay)

    return work


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("whole")
    life(agent_process.ours, folder, "never", None)
    return final(folder, "never")


@pytest.mark.sisters(39)
@pytest.mark.timeout(120)
@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("point", list(POINTS))
def test_a_death_at_this_point_loses_nothing_and_repeats_nothing(
    tmp_path: Path, furnish: Furnish, point: str, nth: int, expected: dict[str, Any]
) -> None:
    furnish(tmp_path)
    once = POINTS[point][0] in (Leases, Threads)
    killed = life(dying(point, nth), tmp_path, "never", None)
    assert killed == (nth == 1 or not once)  # some points are reached once in a run
    for _ in range(3):
        if read(tmp_path)[-1:] == [("done", "done")]:
            break
        life(agent_process.ours, tmp_path, "never", None)
    lines, got = read(tmp_path), final(tmp_path, "never")
    with SqlSaver.from_url(url_of(tmp_path)) as saver:
        assert_no_orphans(saver)
    unknown = {n for n, text in got["results"].items() if "outcome unknown" in text}
    assert rerun(lines) == Counter()
    assert not [rest for word, rest in lines if word == "failed"]
    assert max(Counter(name for word, name in lines if word == "start").values()) == 1
    assert set(got["results"]) == {str(n) for n in range(TURNS * CALLS)}
    assert len(got["messages"]) == len(expected["messages"])
    assert len(unknown) <= CALLS
    if not killed or point.startswith(("before the lease", "after the lease", "after the run")):
        assert got == expected
