"""`make attack`: attack every target in turn until the time is up; exit 1 at a finding."""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import time
import traceback
from importlib.util import find_spec

from hypothesis import seed

from tests.fuzz.targets import TARGETS

LONG = 300
"""Seconds from which on the slow tools run too, each for a part of the time."""
GUIDED = ("bodies", "addresses", "event_lines", "expressions")


def attack(name: str, number: int) -> int:
    """Attack a target with the examples of a seed; return how many there were."""
    fn = TARGETS[name]
    count = 0
    inner = fn.hypothesis.inner_test  # type: ignore[attr-defined]  # where Hypothesis keeps it

    def counted(*args: object, **named: object) -> None:
        nonlocal count
        count += 1
        inner(*args, **named)

    fn.hypothesis.inner_test = counted  # type: ignore[attr-defined]  # put back below
    try:
        seed(number)(fn)()
    finally:
        fn.hypothesis.inner_test = inner  # type: ignore[attr-defined]  # as it was
    return count


def slow(seconds: float) -> list[list[str]]:
    """Name the commands that take their own time: the server's description, and guided fuzzing."""
    if seconds < LONG:
        return []
    test = "tests/server/test_contract.py::test_N6_schemathesis_finds_nothing"
    commands = [[sys.executable, "-m", "pytest", "-q", "-n", "0", "-m", "slow", test]]
    if find_spec("atheris") is not None:
        part = str(int(seconds / 5 / len(GUIDED)))
        commands += [[sys.executable, "-m", "tests.fuzz.guided", name, part] for name in GUIDED]
    return commands


def main() -> int:
    """Attack until the time is up."""
    parser = argparse.ArgumentParser(prog="make attack", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--only", choices=[*TARGETS], help="one target")
    given = parser.parse_args()
    until, found, examples = time.monotonic() + given.seconds, 0, dict.fromkeys(TARGETS, 0)
    print(f"seed {given.seed}", flush=True)
    for command in [] if given.only else slow(given.seconds):
        found += subprocess.run(command, check=False).returncode != 0
    names = [given.only] if given.only else [*TARGETS]
    broken: set[str] = set()
    for turn in range(10**9):
        for name in names:
            if time.monotonic() > until and turn:
                break
            if name in broken:
                continue
            try:
                examples[name] += attack(name, given.seed + turn)
            except Exception:
                broken.add(name)
                print(f"\nFOUND by {name}, seed {given.seed + turn}:", flush=True)
                traceback.print_exc(limit=-6)
        if time.monotonic() > until or broken.issuperset(names):
            break
    for name in names:
        print(f"{name:16} {examples[name]:8,} attacks{'  BROKEN' * (name in broken)}")
    return 1 if found or broken else 0


if __name__ == "__main__":
    sys.exit(main())
