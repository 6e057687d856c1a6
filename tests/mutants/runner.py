"""Run the mutants: each in a copy of the tree, never in the tree itself.

    python -m tests.mutants                 all of them, two at a time
    python -m tests.mutants lease journal   those with one of these words in their names
    python -m tests.mutants --quick         those that every test run has too
    python -m tests.mutants --list          what there is
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from tests.mutants.mutants import MUTANTS
from tests.mutants.patches import Mutant, NotFound, copy_tree, mutated, node_id, write

_BROKEN: Final = ("ImportError", "ModuleNotFoundError", "NameError", "SyntaxError")
"""What fails in this way tests nothing: the mutant does not run."""
_SECONDS: Final = 300
"""For all the tests of one mutant."""
_TEST_SECONDS: Final = 60
_PLUGINS: Final = ("pytest_asyncio.plugin", "pytest_socket", "pytest_timeout")
"""What the tests need; to load all that is installed takes longer than most of them."""
# A promise is the store's, whatever the database: SQLite starts at once.
_OPTIONS: Final = ("-q", "-k", "not postgres", "--tb=short", "-p", "no:cacheprovider")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a mutant."""

    mutant: Mutant
    caught: bool
    why: str
    """The first line of each named test's failure, or what is wrong."""
    seconds: float


def run(mutant: Mutant) -> Outcome:
    """Run a mutant's tests in a copy of the tree that it has changed; each has to fail."""
    began = time.monotonic()
    try:
        files, ids = mutated(mutant), [node_id(test) for test in mutant.tests]
    except (NotFound, SyntaxError) as error:
        return Outcome(mutant, False, str(error), 0.0)
    with tempfile.TemporaryDirectory(prefix="wick-mutant-") as folder:
        copy = Path(folder, "tree")
        copy.mkdir()
        copy_tree(copy)
        write(files, copy)
        caught, why = _tested(copy, ids)
    return Outcome(mutant, caught, why, time.monotonic() - began)


def _tested(copy: Path, ids: Sequence[str]) -> tuple[bool, str]:
    """Say whether all of these tests fail, and how."""
    report = copy.parent / "report.xml"
    plugins = [word for name in (*_PLUGINS, "wick_graph.pytest_plugin") for word in ("-p", name)]
    command = [sys.executable, "-m", "pytest", *plugins, *_OPTIONS, f"--junitxml={report}", *ids]
    path = os.pathsep.join(filter(None, (str(copy), os.environ.get("PYTHONPATH"))))
    env = {**os.environ, "PYTHONPATH": path, "PYTEST_ADDOPTS": f"--timeout {_TEST_SECONDS}"}
    env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    env.pop("PYTEST_XDIST_WORKER", None)
    try:
        done = subprocess.run(
            command, cwd=copy, env=env, capture_output=True, text=True, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired:
        return False, f"no answer within {_SECONDS} s"
    if done.returncode not in (0, 1) or not report.exists():
        return False, f"pytest ended with {done.returncode}: {_last(done.stdout + done.stderr)}"
    failures = _failures(report)
    lacking = [one for one in ids if not _lines_of(one, failures)]
    if lacking:
        return False, "survives " + ", ".join(one.rpartition("::")[2] for one in lacking)
    lines = [_lines_of(one, failures)[0] for one in ids]
    if broken := [line for line in lines if line.startswith(_BROKEN)]:
        return False, f"does not run: {broken[0]}"
    return True, " · ".join(lines)


def _failures(report: Path) -> list[tuple[str, str]]:
    """Return the failed tests, by file and name, and the first lines of what failed them."""
    made = []
    for case in ElementTree.parse(report).iter("testcase"):  # noqa: S314  # pytest's own
        for failure in case.findall("failure"):
            place = case.get("classname", "").replace(".", "/") + ".py::" + case.get("name", "")
            made.append((place, failure.get("message", "").strip().partition("\n")[0]))
    return made


def _lines_of(node: str, failures: Iterable[tuple[str, str]]) -> list[str]:
    return [line for place, line in failures if place == node or place.startswith(f"{node}[")]


def _last(text: str) -> str:
    return " | ".join(text.strip().splitlines()[-3:])


def baseline(mutants: Sequence[Mutant]) -> bool:
    """Run all that the mutants name in the tree as it is: a test that fails anyway is no net."""
    ids = sorted({node_id(test) for mutant in mutants for test in mutant.tests})
    options = ["-n", "2", "--dist", "loadgroup", "-k", "not postgres", "-p", "no:cacheprovider", "-q"]
    print(f"{len(ids)} tests in the tree as it is …", flush=True)
    return subprocess.run([sys.executable, "-m", "pytest", *options, *ids]).returncode == 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run mutants, and print a table.

    Returns:
        0 if each was caught, 1 if not.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("words", nargs="*", help="run those that have one of these in their name")
    parser.add_argument("--quick", action="store_true", help="those of every test run alone")
    parser.add_argument("--list", action="store_true", help="name them, and run nothing")
    parser.add_argument("--workers", type=int, default=2, help="run so many at a time")
    parser.add_argument("--no-baseline", action="store_true", help="do not run the tree as it is")
    options = parser.parse_args(arguments)
    chosen = [
        mutant
        for mutant in MUTANTS
        if (mutant.quick or not options.quick)
        and (not options.words or any(word in mutant.name for word in options.words))
    ]
    if options.list:
        for mutant in chosen:
            print(f"{mutant.name:34} {mutant.promise}")
        return 0
    if not options.no_baseline and not baseline(chosen):
        print("the tests fail without any mutant: mend that first")
        return 1
    return _table(chosen, options.workers)


def _table(chosen: Sequence[Mutant], workers: int) -> int:
    began = time.monotonic()
    survived = 0
    with ThreadPoolExecutor(workers) as pool:
        for outcome in pool.map(run, chosen):
            survived += not outcome.caught
            word = "caught" if outcome.caught else "SURVIVED"
            name, why = outcome.mutant.name, outcome.why[:150]
            print(f"{word:9} {outcome.seconds:5.1f} s  {name:34} {why}", flush=True)
    took = time.monotonic() - began
    print(f"{len(chosen) - survived} of {len(chosen)} caught in {took:.0f} s")
    return 1 if survived or not chosen else 0
