"""What a test must leave as it was: the next one in the same process begins with it."""

from __future__ import annotations

import gc
import os
import signal
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from tests.support.forked import ROOT

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
_OF_PYTEST: Final = "PYTEST_"


class Leftovers:
    """What is the same in the whole process, compared as each test ends."""

    def __init__(self) -> None:
        self._temp = f"{Path(tempfile.gettempdir()).resolve()}/"
        given = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
        self._kept = tuple(
            f"{path}/"
            for one in (str(ROOT), sys.prefix, *given)
            for path in (one, Path(one).resolve())
        )
        """Of a checkout in that folder, and of what the tests are run with."""
        self._modules = {*sys.modules}
        self._places: list[tuple[Any, str]] = []
        self._before = self._now()
        self._since: dict[str, str] = {}

    def look(self, test: str, *, last: bool) -> str:
        """Say what differs from before, after the last test of a module, else nothing.

        Fixtures of a module may change what they put back after its last test.
        """
        if last:
            self._forget_modules()
            if stores := _open_stores():
                return f"{test} is the last of its file, and left {stores}; close what opened them"
        now = self._now()
        found = [name for name in now if name in self._before and now[name] != self._before[name]]
        self._since = {name: self._since.get(name, test) for name in found}
        if not last or not found:
            return ""
        told = [f"{_change(name, self._before[name], now[name])}" for name in found]
        since = sorted(set(self._since.values()))
        self._before, self._since = now, {}
        return f"left behind since {', '.join(since)}: {'; '.join(told)}"

    def _now(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "the working directory": _folder(),
            "the garbage collector": (gc.isenabled(), gc.get_threshold()),
            "the environment": {k: v for k, v in os.environ.items() if k[:7] != _OF_PYTEST},
            "sys.path": [path for path in sys.path if not self._is_tests(path)],
        }
        found.update((one.name, signal.getsignal(one)) for one in _SIGNALS)
        found.update(
            (f"{getattr(owner, '__name__', owner)}.{name}", getattr(owner, name))
            for owner, name in self._seams()
        )
        return found

    @staticmethod
    def _is_tests(path: str) -> bool:
        """Tell the checkout and its tests: pytest puts those first that it imports from next."""
        return path == str(ROOT) or path.startswith(f"{ROOT}/tests")

    def _forget_modules(self) -> None:
        """Forget what was loaded from the folder of a test: others have modules so named."""
        for name in sys.modules.keys() - self._modules:
            path = str(getattr(sys.modules[name], "__file__", ""))
            if path.startswith(self._temp) and not path.startswith(self._kept):
                del sys.modules[name]
            else:
                self._modules.add(name)

    def _seams(self) -> list[tuple[Any, str]]:
        """Return LangGraph's functions that a recording replaces, once LangGraph is loaded."""
        if not self._places and "langgraph.pregel" in sys.modules:
            from wick_graph.foreign.seams import _SEAMS  # noqa: PLC0415 - loads LangGraph

            for found in _SEAMS.values():
                for module, path, *_ in found:
                    owner: Any = import_module(module)
                    *outer, name = path.split(".")
                    for part in outer:
                        owner = getattr(owner, part)
                    self._places.append((owner, name))
        return self._places


def _open_stores() -> str:
    """Tell of PostgreSQL's sessions: whether the next test waits for one depends on those left."""
    sessions = sys.modules.get("wick_graph.store.sessions")
    if sessions is None or not sessions._pools:
        return ""
    users = sum(len(pool.users) for pool in sessions._pools.values())
    return f"{len(sessions._pools)} pools of sessions with {users} open stores"


def _folder() -> str:
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        return "none"


def _change(name: str, old: Any, new: Any) -> str:
    """Say what changed; of variables only the names: a value may be a key of this machine."""
    if isinstance(old, dict):
        return f"{name}: {', '.join(sorted(k for k in {*old, *new} if old.get(k) != new.get(k)))}"
    return f"{name}: {old} → {new}"
