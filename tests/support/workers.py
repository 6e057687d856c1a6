"""The processes that run tests, forked from one that has loaded the modules of all tests.

Each would load them anew: ten seconds of a processor, and twenty where nothing is compiled yet.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import execnet.gateway_io
import pytest
from execnet.gateway_base import Popen2IO

from tests.support import forked


class Modules(forked.Loaded):
    """The process that has loaded the modules."""

    _one = None
    code = "from tests.support import forked, workers; forked.serve({}, workers.load)"


class Worker(forked.Popen):
    """`subprocess.Popen` of a process that runs tests."""

    loaded = staticmethod(Modules.get)


class Io(Popen2IO):
    """What execnet talks to such a process through."""

    def __init__(self, args: list[str], execmodel: Any) -> None:
        pipe = subprocess.PIPE
        self.popen = Worker([args[0], *args[2:]], stdin=pipe, stdout=pipe)  # without -u
        super().__init__(self.popen.stdin, self.popen.stdout, execmodel=execmodel)

    def wait(self) -> int | None:
        return self.popen.wait()

    def kill(self) -> None:
        self.popen.kill()


class _NoTests:
    """A plugin that finds none in a module that was loaded."""

    def pytest_pycollect_makeitem(self) -> list[pytest.Item]:
        return []


def load() -> None:
    """Load the modules; one that cannot be loaded is told of by those that run tests."""
    os.chdir(forked.ROOT)
    sys.path.insert(0, str(forked.ROOT))
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        pytest.main(["--collect-only", "-n", "0", "-s", "-p", "no:terminal"], plugins=[_NoTests()])


def fork() -> None:
    """Let execnet fork each worker."""
    execnet.gateway_io.Popen2IOMaster = Io  # type: ignore[misc, assignment]
