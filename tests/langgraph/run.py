"""Run LangGraph's own tests with `SqlSaver`, and name every test that fails only with ours.

The tests come from the source distribution of the installed version, by pip. LangGraph's saver runs
those that fail with ours. A difference that `differences.yaml` does not name fails the run, and so
does one that it names and that is gone.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections import defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parent.parent
STORES: Final = ("sqlite", "postgres", "encrypted")
PEER: Final = "theirs"
OURS: Final = "ours_"
FILES: Final = (
    "test_pregel*.py",
    "test_time_travel*.py",
    "test_interrupt*.py",
    "test_checkpoint_migration.py",
    "test_large_cases*.py",
    "test_pydantic.py",
    "test_subgraph_persistence*.py",
    "test_delta_channel*.py",
    "test_strict_resume.py",
)
"""Every file of LangGraph's that uses a checkpointer."""
UNUSED: Final = (
    *("benchmark", "cacheprovider", "codspeed", "hypothesispytest", "langsmith_plugin"),
    *("randomly", "recording", "schemathesis", "socket", "wick_graph"),
)
"""Plugins that these tests do not know; most of them take a second to load, in each process."""
LATER_LIBRARIES: Final = frozenset(
    f"test_large_cases{door}.py::test_weather_subgraph" for door in ("", "_async")
)
"""They compare metadata that later releases of langchain-core add to: no saver passes them.

All stores together, by night, prove that LangGraph's does not; one store does not ask again.
"""
_TRIES: Final = 3
"""How often a test that fails only with ours is run alone: some measure time."""
Outcomes = dict[str, dict[str, tuple[str, str]]]
"""Per test, what each saver made of it: `passed`, `failed` or `skipped`, and the report."""
_UNKNOWN: Final = ("missing", "it was not run")


def unpacked(name: str, version: str) -> Path:
    """Return the folder with the tests of a version of a package; they are fetched once."""
    folder = ROOT / ".cache" / f"{name}-{version}"
    if not (folder / "tests").is_dir():
        folder.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as work:
            pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary=:all:"]
            build = ["--no-build-isolation", "-d", work]
            subprocess.run([*pip, *build, f"{name}=={version}"], check=True)
            (archive,) = Path(work).glob("*.tar.gz")
            with tarfile.open(archive) as packed:
                # the first releases of Python 3.11 know no filter
                packed.extraction_filter = getattr(tarfile, "data_filter", None)
                packed.extractall(work)
            (made,) = (one for one in Path(work).iterdir() if one.is_dir())
            # without the package beside them: what is tested is what is installed
            shutil.rmtree(made / name.partition("-")[0])
            made.rename(folder)
    return folder


def prepared(version: str) -> Path:
    """Return the folder with LangGraph's tests, run with our savers."""
    folder = unpacked("langgraph", version)
    original = folder / "tests/conftest_langgraph.py"
    if not original.exists():
        (folder / "tests/conftest.py").rename(original)
    shutil.copyfile(HERE / "checkpointers.py", folder / "tests/conftest.py")
    return folder


def run(
    folder: Path, savers: list[str], workers: str, more: list[str], only: Collection[str] = ()
) -> Outcomes:
    """Run the tests, or `only` these, with some savers; return the outcomes."""
    found = sorted({file for pattern in FILES for file in (folder / "tests").glob(pattern)})
    names = [f"tests/{name}" for name in only] or [str(file) for file in found]
    environment = {
        "WICK_LANGGRAPH_SAVERS": ",".join(savers),
        "WICK_POSTGRES_FIXTURES": str(ROOT / "tests/support/postgres.py"),
    }
    return outcomes_of(folder, environment, ["-n", workers, *more, *names])


def outcomes_of(
    folder: Path,
    environment: Mapping[str, str],
    words: Collection[str],
    unused: Collection[str] = UNUSED,
) -> Outcomes:
    """Run pytest on unpacked tests; return the outcomes that a plugin wrote down."""
    with tempfile.TemporaryDirectory() as results:
        fixed = {"NO_DOCKER": "true", "LANGSMITH_TRACING": "false"}
        env = {**os.environ, **fixed, **environment, "WICK_LANGGRAPH_OUTCOMES": results}
        pytest = [sys.executable, "-m", "pytest", "-q", "--no-header", "--tb=short"]
        plugins = [word for name in unused for word in ("-p", f"no:{name}")]
        loop = ["-o", "asyncio_default_fixture_loop_scope=function"]
        settings = ["-c", os.devnull, "--rootdir", str(folder), "-r", "E"]
        command = [*pytest, *plugins, *loop, *settings, "--show-capture=no", "--no-summary"]
        done = subprocess.run([*command, *words], cwd=folder, env=env, check=False)
        if done.returncode not in (0, 1):
            sys.exit(f"the tests in {folder} could not be run: pytest ended with {done.returncode}")
        return _read(Path(results))


def _read(results: Path) -> Outcomes:
    outcomes: Outcomes = defaultdict(dict)
    for file in results.iterdir():
        for text in file.read_text(encoding="utf-8").splitlines():
            line: dict[str, Any] = json.loads(text)
            before = outcomes[line["name"]].get(line["saver"])
            if before is None or line["outcome"] == "failed":
                outcomes[line["name"]][line["saver"]] = line["outcome"], line["text"]
    return outcomes


def differences(outcomes: Outcomes, store: str) -> dict[str, str]:
    """Return the tests that LangGraph's saver passes and ours does not, with the report."""
    return {
        name: by_saver.get(OURS + store, _UNKNOWN)[1]
        for name, by_saver in outcomes.items()
        if by_saver.get(PEER, _UNKNOWN)[0] == "passed"
        and by_saver.get(OURS + store, _UNKNOWN)[0] != "passed"
    }


def judged(found: dict[str, str], allowed: dict[str, str], run_: set[str]) -> list[str]:
    """Return what is wrong: differences that nobody allowed, and allowances that nobody needs."""
    wrong = [f"{name} fails only with SqlSaver:\n{found[name]}" for name in found.keys() - allowed]
    for name in allowed:
        if name not in run_:
            wrong.append(f"{name} is listed as a difference, and there is no such test")
        elif name not in found:
            wrong.append(f"{name} is listed as a difference, and passes; remove it")
    return sorted(wrong)


def main(arguments: list[str] | None = None) -> int:
    """Run, compare, report; 0 if every difference is an allowed one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stores", default=",".join(STORES), help="which of our stores are run")
    parser.add_argument("--workers", default="2", help="processes")
    parser.add_argument("--brief", action="store_true", help="only the last line of each report")
    known, more = parser.parse_known_args(arguments)
    stores = known.stores.split(",")
    version = importlib.metadata.version("langgraph")
    folder = prepared(version)
    savers = [OURS + store for store in stores]
    outcomes = run(folder, savers, known.workers, more)
    allowed = yaml.safe_load((HERE / "differences.yaml").read_text(encoding="utf-8")) or {}
    if more:  # some of the tests: what was not run cannot be missing
        allowed = {name: why for name, why in allowed.items() if name in outcomes}
    asked = _failed(outcomes, savers) - (frozenset() if len(stores) > 1 else LATER_LIBRARIES)
    for _ in range(_TRIES):
        outcomes.update(_again(folder, savers, asked))
        asked = {name for store in stores for name in differences(outcomes, store)} - set(allowed)
    bad = 0
    for store in stores:
        found = differences(outcomes, store)
        wrong = judged(found, allowed, set(outcomes))
        bad += len(wrong)
        print(*(_brief(one) if known.brief else one for one in wrong), sep="\n")
        passed = sum(by.get(OURS + store, _UNKNOWN)[0] == "passed" for by in outcomes.values())
        both = len(outcomes) - passed - len(found)
        print(
            f"langgraph {version}, {store}: {passed} of {len(outcomes)} tests pass; {both} fail "
            f"with LangGraph's saver too, {len(found)} differ, {len(wrong)} unexplained"
        )
    return 1 if bad else 0


def _failed(outcomes: Outcomes, savers: list[str]) -> set[str]:
    return {
        name
        for name, by_saver in outcomes.items()
        if any(by_saver.get(saver, _UNKNOWN)[0] != "passed" for saver in savers)
    }


def _again(folder: Path, savers: list[str], failed: Collection[str]) -> Outcomes:
    """Run what fails with ours once more, alone, and with LangGraph's."""
    if not failed:
        return {}
    print("again, alone:", *sorted(failed))
    functions = sorted({name.split("[")[0] for name in failed})
    return run(folder, [PEER, *savers], "0", [], functions)


def _brief(text: str) -> str:
    lines = text.splitlines()
    told = [line for line in lines if line.startswith("E ")]
    return f"{lines[0]} {told[-1] if told else lines[-1]}"


if __name__ == "__main__":
    sys.exit(main())
