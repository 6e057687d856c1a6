"""Run LangGraph's tests of stores with `SqlStore`, and LangChain's of typed output with `Agent`.

The tests come from the source distributions of the installed versions, by pip. A test that fails
and that `not_ours.yaml` does not name fails the run, and so does one that it names and that passes.
Tests that use no part of ours are not counted.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import shutil
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

import yaml

from tests.langgraph.run import HERE, UNUSED, unpacked
from tests.langgraph.run import outcomes_of as run
from tests.support.postgres import DSN, running

PLUGIN: Final = "wick_stand_ins"
"""What `stand_ins.py` is called beside the tests."""

PATIENCE: Final = [
    *("-p", PLUGIN, "-o", "asyncio_mode=auto", "--timeout", "600"),
    *("-n", "2", "--dist", "worksteal"),  # the slowest tests stand together
]


@dataclass(frozen=True)
class Suite:
    """Tests of another package."""

    package: str
    files: tuple[str, ...]
    store: str = "sqlite"


SUITES: Final[Mapping[str, Suite]] = {
    "agents": Suite("langchain", ("unit_tests/agents/test_response*.py",)),
    "memory-sqlite": Suite("langgraph-checkpoint", ("test_store.py",)),
    "memory-postgres": Suite("langgraph-checkpoint", ("test_store.py",), "postgres"),
    "sqlite": Suite(
        "langgraph-checkpoint-sqlite", ("test_store.py", "test_async_store.py", "test_ttl.py")
    ),
    "postgres": Suite(
        "langgraph-checkpoint-postgres", ("test_store.py", "test_async_store.py"), "postgres"
    ),
}


def main(arguments: list[str] | None = None) -> int:
    """Run, compare, report; 0 if exactly the named tests fail."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stores", default="sqlite,postgres", help="which databases are used")
    parser.add_argument("--suites", default=",".join(SUITES), help="which suites are run")
    known, more = parser.parse_known_args(arguments)
    named = yaml.safe_load((HERE / "not_ours.yaml").read_text(encoding="utf-8"))
    bad = 0
    for name in known.suites.split(","):
        if (suite := SUITES[name]).store in known.stores.split(","):
            bad += _judged(name, suite, named.get(name) or {}, more)
    return 1 if bad else 0


def _judged(name: str, suite: Suite, allowed: Mapping[str, str], more: list[str]) -> int:
    """Run a suite; print what is wrong, and return how much of it there is."""
    version = importlib.metadata.version(suite.package)
    folder = unpacked(suite.package, version)
    shutil.copyfile(HERE / "stand_ins.py", folder / f"{PLUGIN}.py")
    tests = folder / "tests"
    files = [str(file) for glob in suite.files for file in sorted(tests.glob(glob))]
    with running() if suite.store == "postgres" else nullcontext("") as url:
        head, _, query = url.partition("?")  # LangGraph's tests cut it at its last slash
        environment = {DSN: f"{head}?{quote(query, safe='=&')}" if query else head}
        unused = [one for one in UNUSED if one != "recording"]  # LangChain's tests replay replies
        found = run(folder, environment, [*PATIENCE, *more, *files], unused)
    outcomes = {test: one["ours"] for test, one in found.items()}
    failed = {test: text for test, (kind, text) in outcomes.items() if kind == "failed"}
    explained = {test for test in failed if test.partition("[")[0] in allowed or test in allowed}
    print(
        *(f"{test} fails:\n{failed[test]}" for test in sorted(failed.keys() - explained)), sep="\n"
    )
    needless = [
        one for one in allowed if not any(one in (test, test.partition("[")[0]) for test in failed)
    ]
    if not more:
        print(*(f"{one} is named in not_ours.yaml, and no such test fails" for one in needless))
    passed = sum(kind == "passed" for kind, _ in outcomes.values())
    wrong = len(failed) - len(explained) + (0 if more else len(needless))
    print(
        f"{name}, {suite.package} {version}: {passed} of {len(outcomes)} tests pass, "
        f"{len(explained)} fail for a named reason, {wrong} unexplained"
    )
    return wrong


if __name__ == "__main__":
    sys.exit(main())
