"""A working directory at each sandbox level, with a secret beside it and a program that probes."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.containers import IMAGE, CannotStart, ContainerEngine
from wick_graph.backends import Executed, LocalBackend
from wick_graph.backends.docker import BoxOptions, DockerBackend
from wick_graph.errors import ConfigError
from wick_graph.sandbox.plan import OVERFLOW_ID

CANARY = "canary-5f1c9a"
CONFINED = ("bwrap", "landlock", "container")
LEVELS = (*CONFINED, "local")
OPTIONS = BoxOptions(image=IMAGE, memory=256 * 2**20)


@dataclass
class Cell:
    """A backend at one level, and what stands around its directory."""

    level: str
    fs: Any
    work: Path
    outside: Path
    mark: str = field(default_factory=lambda: str(random.SystemRandom().randrange(10**8, 10**9)))
    """A number that no other process has in its arguments."""

    @property
    def sleep(self) -> str:
        """A command that sleeps for ever and can be found."""
        return f"sleep {self.mark}"

    @property
    def secret(self) -> Path:
        return self.outside / "secret"

    def run(self, command: str, **options: Any) -> Executed:
        options.setdefault("timeout", 30)
        done: Executed = self.fs.exec(command, **options)
        assert done.level == self.level
        return done

    def timed(self, command: str, **options: Any) -> tuple[Executed, float]:
        start = time.monotonic()
        done = self.run(command, **options)
        return done, time.monotonic() - start

    @property
    def slack(self) -> float:
        """Seconds that an end may take on a busy machine: far less than what hangs would take."""
        return 15.0

    def left(self) -> list[str]:
        """Return the processes in whose arguments the mark stands, anywhere on this machine."""
        return [line for line in command_lines() if self.mark in line]

    def nothing_left(self) -> bool:
        """Wait for the last process to end; what stays would stay for years."""
        until = time.monotonic() + 30
        while self.left():
            if time.monotonic() > until:
                return False
            time.sleep(0.01)
        return True

    def untouched(self) -> None:
        """Check what stands beside the directory."""
        assert self.secret.read_text() == CANARY
        assert [path.name for path in self.outside.iterdir()] == ["secret"]


def command_lines() -> list[str]:
    """Return the arguments of every process but this one."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if int(entry.name) != os.getpid() and line:
            found.append(line.replace(b"\0", b" ").decode("utf-8", "replace"))
    return found


@pytest.fixture
def open_path(tmp_path: Path) -> Iterator[Path]:
    """A folder of the test's own that another user can come to: pytest closes its own to others."""
    if os.geteuid() != 0:
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="wick-test-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


def give(path: Path) -> None:
    """Give what is below a folder to the user that commands run as, where tests run as root."""
    if os.geteuid() == 0:
        for one in (path, *path.rglob("*")):
            os.chown(one, OVERFLOW_ID, OVERFLOW_ID, follow_symlinks=False)


def backend_at(level: str, work: Path, request: pytest.FixtureRequest, **options: Any) -> Any:
    """Open a backend at a level, or skip where the level does not work."""
    if level == "container":
        host = request.getfixturevalue("container_engine").host
        return DockerBackend(work, options=OPTIONS, host=host, **options)
    try:
        return LocalBackend(work, execute=level, **options)  # type: ignore[arg-type]  # a level
    except ConfigError as error:
        pytest.skip(f"no {level} here: {error}")


@pytest.fixture(scope="session")
def container_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ContainerEngine]:
    try:
        engine = ContainerEngine(tmp_path_factory.mktemp("engine"))
    except CannotStart as why:
        pytest.skip(f"no container engine: {why}")
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that tries what is forbidden."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler for the probe")
    made = tmp_path_factory.mktemp("probe") / "probe"
    source = Path(__file__).with_name("probe.c")
    subprocess.run([compiler, "-static", "-O1", "-o", made, source], check=True)
    return made


def make_cell(level: str, path: Path, request: pytest.FixtureRequest) -> Iterator[Cell]:
    """Lay a working directory and a secret out, and open a backend at the level."""
    work, outside = path / "w", path / "outside"
    for folder in (work, outside):
        folder.mkdir()
    (outside / "secret").write_text(CANARY)
    give(work)
    give(outside)
    with backend_at(level, work, request) as fs:
        yield Cell(level, fs, work, outside)


@pytest.fixture(params=LEVELS)
def cell(
    request: pytest.FixtureRequest, open_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cell]:
    """Every level."""
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    yield from make_cell(request.param, open_path, request)


@pytest.fixture(params=CONFINED)
def confined(
    request: pytest.FixtureRequest, open_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cell]:
    """Every level that is a boundary."""
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    yield from make_cell(request.param, open_path, request)


@pytest.fixture
def armed(confined: Cell, probe: Path) -> Cell:
    """A level that is a boundary, with the probe in its directory."""
    shutil.copy(probe, confined.work / "probe")
    return confined
