"""Run the mutants: each in a copy of the tree, never in the tree itself.

python -m tests.mutants                 all of them, two at a time
python -m tests.mutants lease journal   those with one of these words in their names
python -m tests.mutants --quick         those that every test run has too
python -m tests.mutants --list          what there is
"""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

import pytest

from tests.mutants.mutants import MUTANTS
from tests.mutants.patches import Mutant, NotFound, copy_tree, mutated, node_id
from tests.source import ROOT

_BROKEN: Final = ("ImportError", "ModuleNotFoundError", "NameError", "SyntaxError")
"""What fails in this way tests nothing: the mutant does not run."""
_SECONDS: Final = 300
"""For all the tests of one mutant."""
_FAILED: Final = 70
"""How a child ends that could not run pytest."""
_OURS: Final = frozenset({"tests", "wick_graph"})
_WARM: Final = (
    *("pytest_asyncio.plugin", "pytest_socket", "pytest_timeout", "xml.etree.ElementTree"),
    *("langgraph.graph.state", "langgraph.prebuilt", "langgraph.checkpoint.memory"),
    *("langchain_core.tools", "langchain_core.language_models", "langchain.chat_models"),
    *("langsmith.client", "langsmith.run_helpers", "hypothesis", "jsonschema", "re2"),
    *("sqlalchemy.dialects.sqlite", "sqlalchemy.dialects.postgresql", "cryptography.fernet"),
    *("fastapi", "uvicorn", "httpx", "yaml", "rich.console", "typer", "docker", "psycopg"),
)
_PLUGINS: Final = (
    *("pytest_asyncio.plugin", "pytest_socket", "pytest_timeout"),
    "wick_graph.pytest_plugin",
)
"""What the tests need; to load all that is installed takes longer than most of them."""
# A promise is the store's, whatever the database: SQLite starts at once.
_OPTIONS: Final = (
    *(
        "-q",
        "--tb=short",
        "-m",
        "slow or not slow",
        "-k",
        "not postgres",
        "-p",
        "no:cacheprovider",
        "--timeout",
        "60",
    ),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),  # of what is warm
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a mutant."""

    mutant: Mutant
    caught: bool
    why: str
    """The first line of each named test's failure, or what is wrong."""
    seconds: float


def warm() -> None:
    """Import what all tests import of others: a child that is forked then begins with it."""
    for name in _WARM:
        with suppress(ImportError):
            importlib.import_module(name)


def run_all(mutants: Sequence[Mutant], workers: int) -> Iterator[Outcome]:
    """Run mutants, so many at a time, each in a copy of the tree and a process of its own."""
    warm()
    with tempfile.TemporaryDirectory(prefix="wick-mutants-") as folder:
        free = [Path(folder, str(number)) for number in range(workers)]
        for place in free:
            copy_tree(place)
        running: dict[int, _Trial] = {}
        waiting = list(reversed(mutants))
        while waiting or running:
            while waiting and free:
                mutant = waiting.pop()
                try:
                    trial = _Trial.of(mutant, free[-1])
                except (NotFound, SyntaxError) as error:
                    yield Outcome(mutant, False, str(error), 0.0)
                    continue
                free.pop()
                running[trial.begin()] = trial
            for pid in [*running]:
                if (status := _ended(pid, running[pid])) is not None:
                    trial = running.pop(pid)
                    free.append(trial.tree)
                    yield trial.outcome(status)
            time.sleep(0.02)


def _ended(pid: int, trial: _Trial) -> int | None:
    """Return how a trial's process ended; one that takes too long is ended."""
    if time.monotonic() - trial.began > _SECONDS:
        os.kill(pid, signal.SIGKILL)
        return os.waitpid(pid, 0)[1]
    done, status = os.waitpid(pid, os.WNOHANG)
    return status if done else None


@dataclass(slots=True)
class _Trial:
    """A mutant in a copy of the tree."""

    mutant: Mutant
    tree: Path
    ids: list[str]
    files: dict[Path, str]
    began: float = field(default_factory=time.monotonic)

    @classmethod
    def of(cls, mutant: Mutant, tree: Path) -> _Trial:
        return cls(mutant, tree, [node_id(test) for test in mutant.tests], mutated(mutant))

    @property
    def report(self) -> Path:
        return self.tree.with_suffix(".xml")

    @property
    def said(self) -> Path:
        return self.tree.with_suffix(".txt")

    def begin(self) -> int:
        """Change the copy, run the tests in a child, and return its id."""
        for path, text in self.files.items():
            (self.tree / path).write_text(text, encoding="utf-8")
        self.report.unlink(missing_ok=True)
        pid = os.fork()
        if pid == 0:
            try:
                self._test()
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(_FAILED)
        return pid

    def _test(self) -> None:
        """Run pytest on the copy, and on nothing of the tree that this program stands in."""
        said = os.open(self.said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(said, 1)
        os.dup2(said, 2)
        os.chdir(self.tree)
        for name in [name for name in sys.modules if name.partition(".")[0] in _OURS]:
            del sys.modules[name]
        sys.path[:] = [str(self.tree), *(one for one in sys.path if one not in ("", str(ROOT)))]
        sys.dont_write_bytecode = True  # else what was compiled could outlive its source
        kept = os.environ.get("PYTHONPATH")
        os.environ |= {
            "PYTHONPATH": os.pathsep.join(filter(None, (str(self.tree), kept))),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        }
        os.environ.pop("PYTEST_XDIST_WORKER", None)
        os.environ.pop("PYTEST_ADDOPTS", None)
        plugins = [word for name in _PLUGINS for word in ("-p", name)]
        here = (f"--junitxml={self.report}", f"--basetemp={self.tree.with_suffix('.tmp')}")
        code = pytest.main([*plugins, *_OPTIONS, *here, *self.ids])
        sys.stdout.flush()
        os._exit(int(code))

    def outcome(self, status: int) -> Outcome:
        """Put the copy back, and say whether all of the tests failed, and how."""
        for path in self.files:
            shutil.copy2(ROOT / path, self.tree / path)
        caught, why = self._judged(os.waitstatus_to_exitcode(status))
        return Outcome(self.mutant, caught, why, time.monotonic() - self.began)

    def _judged(self, code: int) -> tuple[bool, str]:
        if code not in (0, 1) or not self.report.exists():
            return False, f"pytest ended with {code}: {_last(self.said.read_text('utf-8'))}"
        failures = _failures(self.report)
        lacking = [one for one in self.ids if not _lines_of(one, failures)]
        if lacking:
            return False, "survives " + ", ".join(one.rpartition("::")[2] for one in lacking)
        lines = [_lines_of(one, failures)[0] for one in self.ids]
        if broken := [line for line in lines if line.startswith(_BROKEN)]:
            return False, f"does not run: {broken[0]}"
        return True, " · ".join(lines)


def _failures(report: Path) -> list[tuple[str, str]]:
    """Return the failed tests, by file and name, and the first lines of what failed them."""
    made = []
    for case in ElementTree.parse(report).iter("testcase"):
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
    options = [
        "-n",
        "2",
        "--dist",
        "loadgroup",
        "-k",
        "not postgres",
        "-p",
        "no:cacheprovider",
        "-q",
    ]
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
    for outcome in run_all(chosen, workers):
        survived += not outcome.caught
        word = "caught" if outcome.caught else "SURVIVED"
        name, why = outcome.mutant.name, outcome.why[:150]
        print(f"{word:9} {outcome.seconds:5.1f} s  {name:34} {why}", flush=True)
    took = time.monotonic() - began
    print(f"{len(chosen) - survived} of {len(chosen)} caught in {took:.0f} s")
    return 1 if survived or not chosen else 0
