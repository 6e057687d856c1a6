"""A process that dies at any level of a delegation: the next one finishes, and repeats nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.source import ROOT
from tests.support import forked


def run(folder: Path, level: str, when: str, how: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.subagents.process", str(folder), "th_top", level, when]
    return forked.run(
        [*command, how], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )


@pytest.mark.sisters
@pytest.mark.parametrize(
    ("level", "when"),
    [("low", "before"), ("mid", "before"), ("mid", "after"), ("top", "after")],
)
def test_a_delegation_killed_at_any_level_finishes_with_nothing_run_twice(
    level: str, when: str, tmp_path: Path
) -> None:
    died = run(tmp_path, level, when, "begin")
    assert died.returncode == -signal.SIGKILL, died.stderr
    done = run(tmp_path, level, when, "resume")
    assert done.returncode == 0, done.stderr
    noted = (tmp_path / "effects").read_text(encoding="utf-8").splitlines()
    assert noted == [
        *("top begins", "mid begins", "low begins"),
        *("low ends", "mid ends", "top ends"),
    ]
    # twelve replies of ten tokens each: what a child used counts once, however often it died
    assert done.stdout == "top is done. 120\n"
