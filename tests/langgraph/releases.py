"""The seams and their fallback on each release of LangGraph that pyproject.toml allows.

    python -m tests.langgraph.releases [RELEASE …]

Each release is installed into a folder of its own, before the others on the path; without names,
the package index tells which there are.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]

TESTS = (
    *("tests/foreign/test_seams.py", "tests/foreign/test_harmless.py", "tests/engine/test_lean.py"),
    *("-k", "seam or place or served or both_loops_do_the_same"),
)
"""What holds with all seams, and without each of them; and that both loops do the same."""


def allowed() -> list[str]:
    """List the releases that pyproject.toml allows, the newest first."""
    pip = [sys.executable, "-m", "pip", "index", "versions", "langgraph"]
    said = subprocess.run(pip, capture_output=True, text=True, check=True).stdout
    listed = re.search(r"Available versions: (.*)", said)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needs = [Requirement(one) for one in project["dependencies"]]
    wanted = next(one.specifier for one in needs if one.name == "langgraph")
    return [*wanted.filter([] if listed is None else listed[1].split(", "))]


def tested(release: str, folder: str) -> bool:
    """Run the tests with a release; return whether all pass."""
    pip = [sys.executable, "-m", "pip", "install", "-qq", "--no-deps", "--target", folder]
    subprocess.run([*pip, f"langgraph=={release}"], check=True)
    path = os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])
    says = f"import importlib.metadata as m; assert m.version('langgraph') == {release!r}"
    env = {**os.environ, "PYTHONPATH": path}
    subprocess.run([sys.executable, "-c", says], env=env, cwd=ROOT, check=True)
    pytest = [sys.executable, "-m", "pytest", "-q", "--no-header", *TESTS]
    return subprocess.run(pytest, env=env, cwd=ROOT, check=False).returncode == 0


def main(releases: list[str]) -> int:
    """Test the releases; return how many fail."""
    failed = []
    for release in releases or allowed():
        print(f"langgraph {release}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            failed += [] if tested(release, folder) else [release]
    print(f"failed: {', '.join(failed)}" if failed else "all passed")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
