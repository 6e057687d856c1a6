"""A working directory with a secret beside it, and an agent that is told what to call."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.engine.support import wild
from wick_graph import Agent
from wick_graph.backends import LocalBackend, Root
from wick_graph.errors import ConfigError
from wick_graph.hooks.filesystem import FilesystemHook
from wick_graph.testing import ScriptedModel

SECRET = "the secret that must not be read"
SWAPPER = """
import ctypes, os, select, sys
libc = ctypes.CDLL(None)
first, second = (os.fsencode(name) for name in sys.argv[1:])
while not select.select([0], [], [], 0)[0]:
    for _ in range(1_000):
        libc.renameat2(-100, first, -100, second, 2)
"""


@dataclass(frozen=True)
class Answer:
    """What the model reads of one call."""

    text: str
    failed: bool


class World:
    """`w` is the working directory, `outside` stands beside it."""

    def __init__(self, folder: Path, mechanism: Any, **options: Any) -> None:
        self.work = folder / "w"
        self.outside = folder / "outside"
        for path in (self.work / "a" / "b", self.outside):
            path.mkdir(parents=True)
        (self.outside / "secret").write_text(SECRET)
        (self.work / "x").write_text("inside")
        (self.work / "b.txt").write_text("b")
        (self.work / "a" / "f").write_text("deep")
        self.mechanism = mechanism
        self.backend = self.make(**options)
        self.answers: list[str] = []

    def make(self, **options: Any) -> LocalBackend:
        options.setdefault("mechanism", self.mechanism)
        return LocalBackend(self.work, **options)

    def ask(self, *asked: tuple[str, dict[str, Any]], **options: Any) -> list[Answer]:
        """Have an agent make these calls, one after the other; the run goes on after each."""
        backend = options.pop("backend", self.backend)
        script = ScriptedModel([*(wild(name, **args) for name, args in asked), "done"])
        hook = FilesystemHook(backend, **options)
        result = Agent(model=script, hooks=[hook], store=False).invoke("go")
        assert result.stopped_because == "done"
        told = [m for m in result.messages if m.type == "tool"]
        answers = [Answer(m.text, getattr(m, "status", "") == "error") for m in told]
        self.answers += [answer.text for answer in answers]
        return answers

    def one(self, tool: str, **args: Any) -> str:
        """Make one call that must succeed."""
        (answer,) = self.ask((tool, args))
        assert not answer.failed, answer.text
        return answer.text

    def refused(self, tool: str, words: str = "", **args: Any) -> str:
        """Make one call that must be refused, in one sentence that can be stored and shown."""
        (answer,) = self.ask((tool, args))
        assert answer.failed, answer.text[:500]
        assert answer.text.startswith("Error: ")
        assert words in answer.text
        assert len(answer.text) < 600
        assert answer.text.isprintable()
        answer.text.encode()
        return answer.text

    def nothing_leaked(self) -> None:
        assert not [text for text in self.answers if SECRET in text]
        assert sorted(path.name for path in self.outside.iterdir()) == ["secret"]
        assert (self.outside / "secret").read_text() == SECRET

    def close(self) -> None:
        self.backend.close()


def or_skip(mechanism: str, folder: Path) -> None:
    """Skip where the system does not have the mechanism."""
    try:
        Root(folder, mechanism=mechanism).close()  # type: ignore[arg-type]  # one of the two names
    except ConfigError:
        pytest.skip(f"this system has no {mechanism}")


def exchange(first: Path, second: Path) -> None:
    """Let two names change places in one step."""
    libc = ctypes.CDLL(None, use_errno=True)
    at_cwd, flag = -100, 2
    if libc.renameat2(at_cwd, os.fsencode(first), at_cwd, os.fsencode(second), flag):
        raise OSError(ctypes.get_errno(), "renameat2")


@contextlib.contextmanager
def swapping(first: Path, second: Path) -> Iterator[None]:
    """Let two names change places all the time."""
    try:
        exchange(first, second)
        exchange(first, second)
    except (OSError, AttributeError):
        pytest.skip("this file system cannot exchange two names")
    # Another process, so that it does not take turns with the reader.
    names = [os.fsdecode(name) for name in (first, second)]
    with subprocess.Popen(
        [sys.executable, "-c", SWAPPER, *names], stdin=subprocess.PIPE
    ) as process:
        try:
            yield
        finally:
            assert process.stdin is not None
            process.stdin.close()


def read_while_swapped(
    read: Callable[[str], bytes], work: Path, planted: Path, path: str, tries: int, seconds: float
) -> set[bytes]:
    """Read a path while a part of it changes places with a planted link; return what came."""
    seen: set[bytes] = set()
    swapped = work / "a" / "f" if planted.name == "file" else work / "a"
    until = time.monotonic() + seconds
    with swapping(swapped, planted):
        done, refused = 0, False
        while time.monotonic() < until and SECRET.encode() not in seen:
            try:
                seen.add(read(path))
            except Exception:
                refused = True
            done += 1
            if done >= tries and refused and seen:
                break
    return seen


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Measure a limit of the processor's time, here and in children: a busy machine changes none.

    What waits for ever is ended by the limit that each test has.
    """
    start, clock = sum(os.times()[:4]), time.monotonic()
    yield
    # what another test's child took counts when it ends: then the clock says less
    took = min(sum(os.times()[:4]) - start, time.monotonic() - clock)
    assert took <= seconds, f"took {took:.3f} s, at most {seconds} s"


def fastest(call: Callable[[], None]) -> float:
    """Return the seconds of the fastest of five calls, which a busy machine does not change."""
    took = []
    for _ in range(5):
        start = time.perf_counter()
        call()
        took.append(time.perf_counter() - start)
    return min(took)
