"""A disk that fails at the nth call: the errors are said, and nothing that was told is lost.

`WICK_FAULTS` lists the calls at which it fails (`1,9` here, every one by night).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.source import ROOT

SOURCE = Path(__file__).with_name("faults.c")


pytestmark = pytest.mark.xdist_group("faults")  # all are run once


@pytest.fixture(scope="module")
def came(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Build the injector, run all trials under it, and return what came of them."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("1 harness skipped: there is no C compiler to build the fault injector with")
    folder = tmp_path_factory.mktemp("faults")
    library = folder / "faults.so"
    built = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"]
    subprocess.run(built, check=True, capture_output=True)
    ran = subprocess.run(
        [sys.executable, "-m", "tests.durability.faulty_process", str(library), str(folder)],
        cwd=ROOT,
        env={**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return json.loads(ran.stdout)


@pytest.mark.timeout(600)
def test_r6_the_commit_is_on_the_disk_before_anybody_is_told(came: Any) -> None:
    assert came["commits"] == {"told": 12, "early": [], "synchronous": 2}


@pytest.mark.timeout(600)
def test_r7_a_disk_that_fails_loses_nothing_and_repeats_nothing(came: Any) -> None:
    trials = came["trials"]
    for one in trials:
        assert one["rerun"] == {}, one
        assert not one["started_twice"], one
        assert one["answered"], one
        assert one["ended"], one
        assert one["whole"] == "ok", one
        assert one["names_the_file"], one["said"]
    reached = [one for one in trials if one["reached"]]
    killed = sum(one["killed"] for one in trials)
    errors = sum(bool(one["said"]) for one in trials)
    print(
        f"\nfaults: {len(trials)} trials, {len(reached)} reached, {killed} killed, "
        f"{errors} told as errors",
        file=sys.stderr,
    )
    assert {one["way"] for one in reached} == {one["way"] for one in trials}, "a fault never struck"
    assert killed > 0
    assert errors > 0


@pytest.mark.timeout(600)
def test_r8_a_full_disk_is_said_and_the_same_process_goes_on(came: Any) -> None:
    full = came["full"]
    assert "the disk is full; free some space and try again" in full["failed"]
    assert "the disk is full" in full["refused"]
    assert (full["listed"], full["readable"]) == (2, "finished")
    assert (full["lost"], full["text"], full["rerun"]) == ([], "finished", {})
