"""Calls of one reply that change one file do so in the order in which they were asked for.

They run at the same time, and the state takes their writes in call order: so the last call must
also be the last on disk. What is remembered here only serves calls that are under way; losing it
costs an edit that is refused because the file has changed.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from langchain_core.messages import AIMessage

from wick_graph.views import peek

WRITERS: Final = frozenset({"write_file", "edit_file"})
WAIT_SECONDS: Final = 2.0
"""How long a call waits for an earlier one, which may wait for a person itself."""
_MAX_STEPS: Final = 256
PATH_NAMES: Final = ("path", "file_path")


@dataclass(slots=True)
class _Step:
    over: set[int] = field(default_factory=set)
    digests: dict[str, str] = field(default_factory=dict)


class Turns:
    """What calls of the same reply have done."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._steps: OrderedDict[str, _Step] = OrderedDict()

    def wait(self, step: str, earlier: Collection[int]) -> dict[str, str]:
        """Wait until earlier calls are over; return the digests that they left, by path."""
        until = time.monotonic() + WAIT_SECONDS
        with self._changed:
            while not self._step(step).over.issuperset(earlier):
                if not self._changed.wait(until - time.monotonic()):
                    break
            return dict(self._step(step).digests)

    def wrote(self, step: str, path: str, digest: str) -> None:
        """Note what a call left on disk."""
        with self._changed:
            self._step(step).digests[path] = digest

    def end(self, step: str, index: int) -> None:
        """Note that a call is over, whatever became of it."""
        with self._changed:
            self._step(step).over.add(index)
            self._changed.notify_all()

    def _step(self, step: str) -> _Step:
        if step not in self._steps:
            self._steps[step] = _Step()
            while len(self._steps) > _MAX_STEPS:
                self._steps.popitem(last=False)
        return self._steps[step]


def step_of(key: str) -> str:
    """Return the part of a call's key that all calls of its reply share."""
    return key.rpartition(":")[0]


def earlier_writers(state: Mapping[str, Any], index: int, path: str, workdir: str) -> set[int]:
    """Return which calls of the reply change the same file and come before this one."""
    messages = peek(state, "messages") or ()
    reply = messages[-1] if messages else None
    if not isinstance(reply, AIMessage):
        return set()
    mine = _normal(path, workdir)
    return {
        i
        for i, call in enumerate(reply.tool_calls[:index])
        if call["name"] in WRITERS
        and any(_normal(call["args"].get(name), workdir) == mine for name in PATH_NAMES)
    }


def _normal(path: Any, workdir: str) -> str | None:
    """Bring a path into one form, as text alone."""
    if not isinstance(path, str):
        return None
    parts: list[str] = []
    for part in (path if path.startswith("/") else f"{workdir}/{path}").split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)
