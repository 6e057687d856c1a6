"""FilesystemHook: files and commands of a backend as tools, and long results kept in files."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, Protocol, runtime_checkable
from weakref import WeakSet

from wick_graph.backends import FileSystem, Rules
from wick_graph.constants import RESULT_TAIL_CHARS
from wick_graph.errors import ConfigError, ToolError
from wick_graph.hooks.approvals import approved
from wick_graph.hooks.file_tools import file_tools, stem_of
from wick_graph.hooks.protocol import BaseHook, HookContext, in_place
from wick_graph.hooks.turns import PATH_NAMES, WRITERS, Turns, step_of
from wick_graph.keys import CHECKPOINTER, configurable
from wick_graph.messages import ToolCall, ToolResult
from wick_graph.request import ModelRequest
from wick_graph.tools.protocol import ToolContext
from wick_graph.tools.result import cap, failure, read_text, with_text

_CHANGING: Final = frozenset({*WRITERS, "execute"})
_log: Final = logging.getLogger(__name__)


@runtime_checkable
class InFiles(Protocol):
    """A store that knows which files of this machine it is in."""

    @property
    def files(self) -> tuple[str, ...]:
        """Return them, absolute."""
        ...


_STORES: Final[WeakSet[InFiles]] = WeakSet()
"""Those of the agents of this process: a helper's tools leave its boss's store alone too."""
_STORES_LOCK: Final = threading.Lock()


def note_store(store: object) -> None:
    """Have the tools of all agents leave a store alone."""
    if isinstance(store, InFiles):
        with _STORES_LOCK:
            _STORES.add(store)


def _store_files() -> set[str]:
    with _STORES_LOCK:
        return {file for store in _STORES for file in store.files}


class FilesystemHook(BaseHook):
    """Bring the file tools, and keep long results of all tools in files.

    The tools are `ls`, `read_file`, `write_file`, `edit_file`, `glob`, `grep` and, where the
    backend runs commands, `execute`. What is written is tracked in the state under `files`, by
    absolute path. A result of any tool that is longer than the tool may show is kept whole in a
    file of the backend; the model sees its head, its tail, and where the file is.

    Args:
        backend: Where the files are.
        require_unique: Refuse an edit whose text stands in the file more than once, instead of
            changing the first occurrence.
    """

    name = "filesystem"
    phases = ("before_agent", "modify_request", "wrap_tool_call")

    def __init__(self, backend: FileSystem, *, require_unique: bool = False) -> None:
        self.backend: Final = backend
        self._kept_from: set[str] = set()
        self._turns: Final = Turns()
        self._tools: Final = file_tools(backend, self._turns, require_unique=require_unique)

    @property
    def notices(self) -> tuple[str, ...]:
        """Say in one line each at which level commands run, and what this hook does not bring."""
        level = self.backend.level
        if not level:
            return self.backend.notices
        said = f"execute runs commands at the sandbox level {level}"
        return (f"{said}, which is none" if level == "local" else said, *self.backend.notices)

    @property
    def workdir_names(self) -> Sequence[str]:  # type: ignore[override]  # it is known when it is made
        """Name the backend's folder, and where links lead from that name."""
        folder = self.backend.workdir
        return tuple(dict.fromkeys((folder, os.path.realpath(folder))))

    def keep_from(self, rules: Rules) -> None:
        """Let more files and folders govern agents, such as the store of one that has this hook.

        A backend of another kind keeps rules of its own.

        Raises:
            ConfigError: Commands could change them.
        """
        if isinstance(self.backend, _Guarded):
            self.backend.keep_from(rules)
            self._kept_from.update(rules.stores)

    def tools(self, state: Mapping[str, Any]) -> Sequence[Any]:
        """Return the same tools in every state."""
        return self._tools

    @in_place
    async def modify_request(self, request: ModelRequest, ctx: HookContext) -> ModelRequest:
        """Say at which sandbox level commands run, where they do."""
        if not self.backend.level:
            return request
        return request.append_system(commands_section(self.backend))

    @in_place
    async def wrap_tool_call(self, call: ToolCall, next: Any) -> Any:
        """Have a result that is too long kept, once the tool has run."""
        ctx: ToolContext | None = call.ctx
        if ctx is None:
            return await next(call)
        if ctx.allowed is not None and ctx.allowed != call.args:  # other arguments were allowed
            call = call.replace(ctx=replace(ctx, allowed=None))
        try:
            if why := self._keep_from_stores(call):
                return failure(call, ToolError(why))
            if why := self._asks(call):
                return await approved(call, why, partial(self._kept, next))
            return await self._kept(next, call)
        finally:
            if call.name in WRITERS:
                self._turns.end(step_of(ctx.key), ctx.index)

    def _keep_from_stores(self, call: ToolCall) -> str:
        """Leave this run's store alone, and those of all agents of this process; say why not."""
        if call.name not in _CHANGING:
            return ""
        note_store(configurable(call.ctx.config).get(CHECKPOINTER))
        if files := _store_files() - self._kept_from:
            try:
                self.keep_from(Rules(stores=tuple(files)))
            except ConfigError as error:
                return str(error)
        return ""

    async def _kept(self, next: Any, call: ToolCall) -> Any:
        ctx = call.ctx
        return await next(call.replace(ctx=replace(ctx, keep=partial(self._keep, ctx))))

    def _asks(self, call: ToolCall) -> str:
        """Say why a person must allow a call; empty if nobody need, has to, or can be asked."""
        if call.name not in WRITERS or call.ctx.allowed == call.args or not can_ask(call.ctx):
            return ""
        paths = (call.args[name] for name in PATH_NAMES if name in call.args)
        try:
            return next(filter(None, (self.backend.asks(str(path)) for path in paths)), "")
        except ToolError:  # the tool says it
            return ""

    def _keep(self, ctx: ToolContext, result: ToolResult, limit: int) -> ToolResult:
        text = read_text(result)
        shown = cap(text, limit)
        if shown is text:
            return result
        try:
            path = self.backend.keep(f"{stem_of(ctx)}.txt", text.encode())
        except (ToolError, OSError) as error:
            _log.warning("the whole result of %s could not be kept: %s", ctx.name, error)
        else:
            tail = min(RESULT_TAIL_CHARS, limit // 2)
            note = f"[the whole result is in {path}; read parts of it by read_file or grep]\n\n"
            shown = shown[: len(shown) - tail] + note + shown[len(shown) - tail :]
        return with_text(result.replace(output=cap(result.output, limit)), shown)


@runtime_checkable
class _Guarded(Protocol):
    """A backend that can be told what governs agents."""

    def keep_from(self, rules: Rules) -> None: ...


def can_ask(ctx: ToolContext) -> bool:
    """Say whether a question of this call is kept until somebody answers it."""
    return bool(configurable(ctx.config).get(CHECKPOINTER))


def commands_section(backend: FileSystem) -> str:
    """Write what the model is told about commands."""
    return (
        f"Commands of the tool execute run at the sandbox level {backend.level}. "
        f"{backend.confinement}"
    )
