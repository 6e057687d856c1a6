"""Processes of this project without the second that its libraries take to load.

A process that has loaded them forks one child for each command. A child is a process like any
other: with a number of its own that can be killed, its own folder, environment and streams, and
Python's usual end. What the libraries keep when they are loaded is the same in all of them, so a
test about loading, or about what Python itself reads from the environment, starts a process the
long way; so does `Popen` where it is asked for what a fork cannot do.

The end of a program that exits with a code leaves out one thing: what the children share is not
taken apart, which would copy all of it, and take as long as the rest of a short command.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import fcntl
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self, cast

ROOT: Final = Path(__file__).resolve().parents[2]  # `tests.source` loads pytest for it
LIBRARIES: Final = (
    *("fastapi", "httpx", "langchain.agents", "openai", "rich.console", "sqlalchemy", "uvicorn"),
    *("wick_graph.cli.app", "wick_graph.debug", "wick_graph.loading", "wick_graph.store"),
    *("wick_graph.testing", "yaml", "langchain_openai", "rich.markdown"),
    *("wick_graph.debug.terminal.shell", "wick_graph.gateway.gateway", "wick_graph.server.app"),
    *("wick_graph.server.process", "wick_graph.models.demo", "jsonschema.validators"),
)
_READ_BY_PYTHON: Final = ("PYTHON", "LC_", "LANG", "LD_", "TZ", "COV")
_REQUEST_BYTES: Final = 2**20
_LOOK_SECONDS: Final = 0.005


class Popen(subprocess.Popen[Any]):
    """`subprocess.Popen`; it forks `sys.executable -m MODULE …` from a process that is loaded.

    So it does with `-c CODE`, with a script, and with a terminal that a new session takes
    (`take_terminal`).
    """

    _forked = False

    @staticmethod
    def loaded() -> Loaded:
        """Return the process that is forked."""
        return Loaded.get()

    def _execute_child(self, *given: Any) -> None:
        args, executable, preexec, _, passed, cwd, env, _, _, shell = given[:10]
        pipes, ids, groups = given[10:16], given[17:21], given[21:]
        at_terminal = preexec is take_terminal and groups[:1] == (True,)
        groups_kept = groups[1:] == (-1,) and (at_terminal or not (preexec or groups[0]))
        usual = ids == (None, None, None, -1) and groups_kept
        if not usual or executable or passed or shell or not _can_fork(args, env):
            super()._execute_child(*given)  # type: ignore[misc]
            return
        streams = [own if at == -1 else at for own, at in enumerate((pipes[0], pipes[3], pipes[5]))]
        wanted: dict[str, Any] = {"args": [*map(str, args)], "cwd": str(cwd or Path.cwd())}
        wanted["terminal"] = at_terminal
        answer = self.loaded().ask({**wanted, "env": dict(env or os.environ)}, streams)
        self._forked, self._child_created, self.pid = True, True, answer
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def _internal_poll(self, *args: Any, **kwargs: Any) -> int | None:
        if not self._forked:
            return cast("int | None", super()._internal_poll(*args, **kwargs))  # type: ignore[misc]
        if self.returncode is None and self._waitpid_lock.acquire(False):  # type: ignore[attr-defined]
            try:
                pid, status = self._try_wait(os.WNOHANG)
                if pid and self.returncode is None:
                    self._handle_exitstatus(status)  # type: ignore[attr-defined]
            finally:
                self._waitpid_lock.release()  # type: ignore[attr-defined]
        return cast("int | None", self.returncode)

    def _try_wait(self, flags: int) -> tuple[int, int]:
        if not self._forked:
            return cast("tuple[int, int]", super()._try_wait(flags))  # type: ignore[misc]
        while (status := self.loaded().ask({"ended": self.pid})) is None:
            if flags & os.WNOHANG:
                return 0, 0
            time.sleep(_LOOK_SECONDS)
        return self.pid, status


def take_terminal() -> None:
    """Make a terminal on standard input that of this session, so that Ctrl-C becomes a signal."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def run(
    args: Sequence[str], *, check: bool = False, timeout: float | None = None, **more: Any
) -> subprocess.CompletedProcess[Any]:
    """Do what `subprocess.run` does, with `Popen` of this module."""
    given = more.pop("input", None)
    if given is not None:
        more["stdin"] = subprocess.PIPE
    if more.pop("capture_output", False):
        more.update(stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with Popen(args, **more) as process:
        try:
            out, err = process.communicate(given, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(args, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


def _can_fork(args: Any, env: Mapping[str, str] | None) -> bool:
    if isinstance(args, str) or len(args) < 2 or args[0] != sys.executable:
        return False
    if args[1] not in ("-m", "-c") and not str(args[1]).endswith(".py"):
        return False
    asked, own = _read_by_python(env or os.environ), _read_by_python(os.environ)
    return asked == own


def _read_by_python(env: Mapping[str, str]) -> dict[str, str]:
    found = {k: v for k, v in env.items() if k.startswith(_READ_BY_PYTHON)}
    return {k: v for k, v in found.items() if (k, v) != ("PYTHONPATH", str(ROOT))}


class Loaded:
    """The process that has the libraries, one for each that runs tests; it ends with that."""

    _one: Self | None = None
    _making = threading.Lock()
    code = "from tests.support.forked import serve; serve({})"

    @classmethod
    def get(cls) -> Self:
        with cls._making:
            if cls._one is None or cls._one._owner != os.getpid():
                cls._one = cls()
            return cls._one

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._asked = 0
        self._socket, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (self._socket, there):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _REQUEST_BYTES)
        code = self.code.format(there.fileno())
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        with there:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code], pass_fds=[there.fileno()], env=env, cwd="/"
            )

    def ask(self, wanted: dict[str, Any], streams: Sequence[int] = ()) -> Any:
        """Say what is wanted; return the number of a new process, or how one ended."""
        with self._lock:
            self._asked += 1
            socket.send_fds(self._socket, [json.dumps([self._asked, wanted]).encode()], streams)
            while True:  # a test whose time was up has left its answer here
                number, answer = json.loads(self._socket.recv(_REQUEST_BYTES))
                if number == self._asked:
                    return answer


def load() -> None:
    """Load what the command needs."""
    for name in LIBRARIES:
        with contextlib.suppress(ImportError):  # of an extra
            __import__(name)


def serve(descriptor: int, load: Callable[[], None] = load) -> None:
    """Fork what is asked for until nobody asks any more; a child returns from here as itself."""
    shared: set[str] = set()
    atexit.register(_end, shared)  # the first that is registered is called last
    gc.disable()  # there is little garbage, and to look for it takes a third of the time
    load()
    shared |= sys.modules.keys() - {"__main__"}
    gc.freeze()  # a child that looks through all there is, as each does at its end, would copy it
    gc.enable()
    ended: dict[int, int] = {}
    asked = socket.socket(fileno=descriptor)
    while True:
        said, streams, _, _ = socket.recv_fds(asked, _REQUEST_BYTES, 3)
        if not said:
            os._exit(0)
        number, wanted = json.loads(said)
        if "ended" in wanted:
            while (found := _reaped()) is not None:
                ended[found[0]] = found[1]
            asked.send(json.dumps([number, ended.get(wanted["ended"])]).encode())
            continue
        pid = os.fork()
        if pid == 0:
            asked.close()
            _become(wanted, streams)
            return
        ended.pop(pid, None)  # numbers come again
        for one in streams:
            os.close(one)
        asked.send(json.dumps([number, pid]).encode())


_code: list[int] = []
"""With what the program exits that this process runs, once it does."""


def _end(shared: set[str]) -> None:
    """End as Python does, but for what the children share."""
    if not _code:
        return
    for name in [name for name in reversed(sys.modules) if name not in shared]:
        module = sys.modules.pop(name)
        if isinstance(module, types.ModuleType):  # a program may keep others out, by None
            vars(module).clear()
    gc.collect()
    with contextlib.suppress(OSError, ValueError):  # Python would say so in its own words
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(_code[0])


def _reaped() -> tuple[int, int] | None:
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (pid, status) if pid else None


def _become(wanted: dict[str, Any], streams: Sequence[int]) -> None:
    """Be the process that is wanted, as `python -m` makes it."""
    for own, given in enumerate(streams):
        os.dup2(given, own)
        os.close(given)
    if wanted["terminal"]:
        os.setsid()
        take_terminal()
    os.chdir(wanted["cwd"])
    os.environ.clear()
    os.environ.update(wanted["env"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    made: Any = sys
    made.stdin = made.__stdin__ = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    made.stdout = made.__stdout__ = _stream(1, "strict", at_once=os.isatty(1))
    made.stderr = made.__stderr__ = _stream(2, "backslashreplace", at_once=True)
    faulthandler.enable(made.stderr)
    _, what, *args = wanted["args"]
    try:
        if what == "-m":
            sys.path[0] = wanted["cwd"]
            sys.argv = args
            runpy.run_module(args[0], run_name="__main__", alter_sys=True)
        else:
            _run_code(what, args)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            _code.append((end.code or 0) & 0xFF)
        raise
    _code.append(0)


def _run_code(what: str, args: list[str]) -> None:
    """Run a program as Python does: `__main__` stays until the end of the process."""
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    code: str | bytes
    if what == "-c":
        name, code, sys.path[0] = "<string>", args.pop(0), ""
    else:
        path = Path(what)
        name, code, sys.path[0] = what, path.read_bytes(), str(path.resolve().parent)
        main.__file__ = what
    sys.argv = [what, *args]
    exec(compile(code, name, "exec"), main.__dict__)


def _stream(descriptor: int, errors: str, *, at_once: bool) -> Any:
    buffering = 1 if at_once else -1
    return open(descriptor, "w", buffering, encoding="utf-8", errors=errors, closefd=False)
