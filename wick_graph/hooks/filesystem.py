"""FilesystemHook: files and commands of a backend as tools, and long results kept in files."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import inspect
import logging
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeVar

from langchain_core.messages import AIMessage

from wick_graph.backends import FileSystem, Found, Matches, Rules, Stop
from wick_graph.constants import RESULT_TAIL_CHARS
from wick_graph.core.bridge import THREADS
from wick_graph.core.request import ModelRequest, peek
from wick_graph.errors import ConfigError, ToolError
from wick_graph.hooks.approvals import approved
from wick_graph.hooks.protocol import (
    BaseHook,
    HookContext,
    KeepsFrom,
    in_place,
    note_store,
    store_files,
)
from wick_graph.langgraph_config import CHECKPOINTER, configurable
from wick_graph.messages import ToolCall, ToolResult
from wick_graph.messages.content import clean_text
from wick_graph.tools.function_tool import FuncTool
from wick_graph.tools.protocol import ToolContext
from wick_graph.tools.result import (
    MAX_ENTRIES,
    answer,
    cap,
    failure,
    listing_json,
    read_text,
    with_text,
)
from wick_graph.tracing import audit, refusals

# --- Calls of one reply that change the same file run in call order.
#
# All calls run concurrently, but the state takes their writes in call order: so the last call
# must also be the last on disk. This memory serves only calls in progress; if it is lost, an edit
# may be refused because the file has changed.


WRITERS: Final = frozenset({"write_file", "edit_file"})

WAIT_SECONDS: Final = 2.0
"""Seconds that a call waits for an earlier one, which may itself wait for a person."""

_MAX_STEPS: Final = 256

PATH_NAMES: Final = ("path", "file_path")


@dataclass(slots=True)
class _Step:
    over: set[int] = field(default_factory=set)
    digests: dict[str, str] = field(default_factory=dict)


class Turns:
    """What the calls of one reply have done."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._steps: OrderedDict[str, _Step] = OrderedDict()

    def wait(self, step: str, earlier: Collection[int]) -> dict[str, str]:
        """Wait until earlier calls have ended; return the digests of their files, by path."""
        until = time.monotonic() + WAIT_SECONDS
        with self._changed:
            while not self._step(step).over.issuperset(earlier):
                if not self._changed.wait(until - time.monotonic()):
                    break
            return dict(self._step(step).digests)

    def wrote(self, step: str, path: str, digest: str) -> None:
        """Record the digest of a file that a call wrote."""
        with self._changed:
            self._step(step).digests[path] = digest

    def end(self, step: str, index: int) -> None:
        """Record that a call has ended, with or without success."""
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
    """Return the earlier calls of the reply that change the same file."""
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
    """Normalise a path as text, without looking at the disk."""
    if not isinstance(path, str):
        return None
    parts: list[str] = []
    for part in (path if path.startswith("/") else f"{workdir}/{path}").split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


# --- The seven file tools: their schemas, and their results for the model.


T = TypeVar("T")

MAX_TRACKED_FILE: Final = 1_000_000
"""Most code points of one file in the state."""

MAX_TRACKED_THREAD: Final = 10_000_000
"""Most code points of all files in a thread's state."""

_ALIASES: Final = {
    "file_path": "path",
    "old_string": "old_text",
    "new_string": "new_text",
    "offset": "line",
    "limit": "lines",
}

_WORKDIR: Final = "; the working directory if it is left out"


def file_tools(
    fs: FileSystem, turns: Turns, *, require_unique: bool = False
) -> tuple[FuncTool[..., Any], ...]:
    """Make the tools; `execute` only if the backend runs commands."""
    made = [
        _ls(fs),
        _read_file(fs),
        _write_file(fs, turns),
        _edit_file(fs, turns, require_unique),
        _glob(fs),
        _grep(fs),
    ]
    return (*made, _execute(fs)) if fs.can_execute else tuple(made)


def stem_of(ctx: ToolContext) -> str:
    """Return a file stem for a call: the same if the call is repeated."""
    mark = hashlib.sha256((ctx.key or ctx.call_id).encode("utf-8", "replace")).hexdigest()[:16]
    return f"{ctx.name}-{mark}"


def _tool(
    name: str,
    description: str,
    fn: Callable[..., Any],
    *,
    required: tuple[str, ...],
    **properties: Any,
) -> FuncTool[..., Any]:
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }
    aliases = {alias: real for alias, real in _ALIASES.items() if real in properties}
    fn = _audited(fn)
    if name == "execute":
        return FuncTool(name, description, schema, fn, aliases=aliases, timeout=None)
    return FuncTool(name, description, schema, fn, aliases=aliases, replay="safe", max_output=None)


def _audited(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Audit what a rule forbids; for the model it is a failure like any other."""
    if inspect.iscoroutinefunction(fn):

        @functools.wraps(fn)
        async def acalled(args: dict[str, Any], ctx: ToolContext) -> Any:
            with refusals(ctx):
                return await fn(args, ctx)

        return acalled

    @functools.wraps(fn)
    def called(args: dict[str, Any], ctx: ToolContext) -> Any:
        with refusals(ctx):
            return fn(args, ctx)

    return called


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def _count(description: str, least: int = 1) -> dict[str, Any]:
    return {"type": "integer", "minimum": least, "description": description}


def _ls(fs: FileSystem) -> FuncTool[..., Any]:
    def ls(args: dict[str, Any], ctx: ToolContext) -> str:
        listing = fs.ls(args.get("path") or ".", MAX_ENTRIES)
        return listing_json(listing.entries, listing.total)

    return _tool(
        "ls",
        "List files and directories at the given path",
        ls,
        required=(),
        path=_text(f"Directory path to list{_WORKDIR}"),
    )


def _read_file(fs: FileSystem) -> FuncTool[..., Any]:
    def read_file(args: dict[str, Any], ctx: ToolContext) -> ToolResult:
        found = fs.read(
            args["path"],
            line=max(1, args.get("line", 1)),
            lines=args.get("lines"),
            byte=args.get("byte", 0),
        )
        text = found.text + "".join(f"\n\n[{note}]" for note in found.notes)
        update = {"seen": {found.path: found.digest}} if found.digest else None
        return _result(ctx, text, update)

    return _tool(
        "read_file",
        "Read a text file. A long file comes in parts; the end of each says how to go on.",
        read_file,
        required=("path",),
        path=_text("File path to read"),
        line=_count("First line to read, counted from 1", 0),
        lines=_count("How many lines to read; as many as fit if it is left out"),
        byte=_count("Begin at this byte instead of the first one", 0),
    )


def _write_file(fs: FileSystem, turns: Turns) -> FuncTool[..., Any]:
    def write_file(args: dict[str, Any], ctx: ToolContext) -> ToolResult:
        content = clean_text(args["content"])
        _in_turn(fs, turns, ctx, args["path"])
        allowed = ctx.allowed is not None
        done = fs.write(args["path"], content.encode(), allowed=allowed)
        turns.wrote(step_of(ctx.key), done.path, done.digest)
        text = answer({"path": done.path, "bytes_written": done.bytes_written})
        return _result(ctx, text, _written(ctx, done.path, content, done.digest))

    return _tool(
        "write_file",
        "Write a file: create it, and the directories above it, or replace all that is in it. "
        "To change a part of a file use edit_file.",
        write_file,
        required=("path", "content"),
        path=_text("File path to write"),
        content=_text("All that the file is to contain"),
    )


def _edit_file(fs: FileSystem, turns: Turns, require_unique: bool) -> FuncTool[..., Any]:
    def edit_file(args: dict[str, Any], ctx: ToolContext) -> ToolResult:
        changed = _in_turn(fs, turns, ctx, args["path"])
        done = fs.edit(
            args["path"],
            args["old_text"],
            args["new_text"],
            unique=require_unique,
            seen={**(peek(ctx.state, "seen") or {}), **changed},
            key=ctx.key,
            allowed=ctx.allowed is not None,
        )
        turns.wrote(step_of(ctx.key), done.path, done.digest)
        said: dict[str, Any] = {
            "path": done.path,
            "replacements": 1,
            "remaining": done.remaining,
        }
        if done.repeated:
            said["note"] = "this call had already changed the file; it was not changed again"
        return _result(ctx, answer(said), _written(ctx, done.path, done.text, done.digest))

    which = "must be in the file exactly once" if require_unique else "the first occurrence counts"
    return _tool(
        "edit_file",
        "Replace a text in a file by another one. The text is matched exactly, indentation "
        f"included; {which}. A file that changed since it was read is refused.",
        edit_file,
        required=("path", "old_text", "new_text"),
        path=_text("File path to edit"),
        old_text=_text("Exact text to replace"),
        new_text=_text("Text to put there instead; may be empty"),
    )


def _glob(fs: FileSystem) -> FuncTool[..., Any]:
    def glob(args: dict[str, Any], ctx: ToolContext) -> str:
        found = fs.glob(args["pattern"], args.get("path") or ".")
        return _searched({"files": found.files, "truncated": found.truncated}, found)

    return _tool(
        "glob",
        "Find files by name, such as *.py anywhere below, or by relative path, such as "
        "src/**/*.py. Knows *, ?, **, [a-z], [!a-z] and {a,b}.",
        glob,
        required=("pattern",),
        pattern=_text("Pattern of the name, or of the path if it has a / or **"),
        path=_text(f"Directory to search{_WORKDIR}"),
    )


def _grep(fs: FileSystem) -> FuncTool[..., Any]:
    async def grep(args: dict[str, Any], ctx: ToolContext) -> str:
        found = await _stoppable(
            lambda stop: fs.grep(args["pattern"], args.get("path") or ".", stop)
        )
        matches = [{"file": m.file, "line": m.line, "text": m.text} for m in found.matches]
        return _searched({"matches": matches, "truncated": found.truncated}, found)

    return _tool(
        "grep",
        "Search the lines of files for a regular expression (RE2: no look-around, no "
        "back-references). Gives file, line number and text of each line that matches.",
        grep,
        required=("pattern",),
        pattern=_text("Regular expression"),
        path=_text(f"File or directory to search{_WORKDIR}"),
    )


def _execute(fs: FileSystem) -> FuncTool[..., Any]:
    async def execute(args: dict[str, Any], ctx: ToolContext) -> str:
        seconds = args.get("timeout")
        done = await _stoppable(
            lambda stop: fs.exec(args["command"], timeout=seconds, name=stem_of(ctx), stop=stop)
        )
        audit(
            "execute",
            tool_call_id=ctx.call_id,
            thread_id=ctx.thread_id,
            level=done.level,
            exit_code=done.exit_code,
        )
        said: dict[str, Any] = {
            "stdout": done.stdout,
            "stderr": done.stderr,
            "exit_code": done.exit_code,
            "timed_out": done.timed_out,
        }
        more: dict[str, Any] = {"signal": done.signal, "note": "; ".join(done.notes)}
        if done.stdout_file:
            more |= {"stdout_bytes": done.stdout_bytes, "stdout_file": done.stdout_file}
        if done.stderr_file:
            more |= {"stderr_bytes": done.stderr_bytes, "stderr_file": done.stderr_file}
        return answer(said | {name: value for name, value in more.items() if value})

    return _tool(
        "execute",
        "Run a shell command in the working directory and wait for its end. It has no input, and "
        "nothing of it goes on in the background; nothing is kept from one command to the next.",
        execute,
        required=("command",),
        command=_text("Command for sh"),
        timeout={
            "type": "number",
            "exclusiveMinimum": 0,
            "maximum": 600,
            "description": "Seconds after which it is killed",
        },
    )


def _in_turn(fs: FileSystem, turns: Turns, ctx: ToolContext, path: str) -> dict[str, str]:
    """Wait for earlier calls of the reply on the same file; return digests by path."""
    earlier = earlier_writers(ctx.state, ctx.index, path, fs.workdir)
    return turns.wait(step_of(ctx.key), earlier) if earlier else {}


async def _stoppable(call: Callable[[Stop], T]) -> T:
    """Run a blocking call in a thread; stop it if the caller is cancelled."""
    stop = Stop()
    try:
        return await asyncio.wrap_future(THREADS.submit(call, stop))
    except asyncio.CancelledError:
        stop.set()
        raise


def _searched(said: dict[str, Any], found: Found | Matches) -> str:
    return answer({**said, "note": "; ".join(found.notes)} if found.notes else said)


def _result(ctx: ToolContext, output: str, update: Mapping[str, Any] | None) -> ToolResult:
    return ToolResult(tool_call_id=ctx.call_id, name=ctx.name, output=output, update=update)


def _written(ctx: ToolContext, path: str, text: str, digest: str) -> dict[str, Any]:
    """Track a file in the state: its contents, or only its size if it is large."""
    files = peek(ctx.state, "files") or {}
    others = sum(len(text) for name, text in files.items() if name != path and _is_text(text))
    if len(text) > MAX_TRACKED_FILE or others + len(text) > MAX_TRACKED_THREAD:
        return {"files": {path: {"content": None, "size": len(text)}}, "seen": {path: digest}}
    return {"files": {path: text}, "seen": {path: digest}}


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


_CHANGING: Final = frozenset({*WRITERS, "execute"})

_log: Final = logging.getLogger(__name__)


class FilesystemHook(BaseHook):
    """Add the file tools, and keep long results of all tools in files.

    The tools are `ls`, `read_file`, `write_file`, `edit_file`, `glob`, `grep` and, if the backend
    runs commands, `execute`. Written files are tracked in the state under `files`, by absolute
    path. A tool result that is too long to show is kept whole in a file of the backend; the model
    sees its head, its tail and the path of the file.

    Args:
        backend: The backend with the files.
        require_unique: Refuse an edit if its text occurs more than once in the file, instead of
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
        """The sandbox level of commands, and the notices of the backend."""
        level = self.backend.level
        if not level:
            return self.backend.notices
        said = f"execute runs commands at the sandbox level {level}"
        return (f"{said}, which is none" if level == "local" else said, *self.backend.notices)

    @property
    def workdir_names(self) -> Sequence[str]:  # type: ignore[override]  # set in the constructor
        """The backend's folder by name, and by where its links lead."""
        folder = self.backend.workdir
        return tuple(dict.fromkeys((folder, os.path.realpath(folder))))

    def keep_from(self, rules: Rules) -> None:
        """Protect more files and folders that govern agents, such as the agent's store.

        Backends of other kinds have their own rules.

        Raises:
            ConfigError: Commands could change them.
        """
        if isinstance(self.backend, KeepsFrom):
            self.backend.keep_from(rules)
            self._kept_from.update(rules.stores)

    def tools(self, state: Mapping[str, Any]) -> Sequence[Any]:
        """Return the same tools in every state."""
        return self._tools

    @in_place
    async def modify_request(self, request: ModelRequest, ctx: HookContext) -> ModelRequest:
        """Add the sandbox level of commands to the system prompt, if commands can run."""
        if not self.backend.level:
            return request
        return request.append_system(commands_section(self.backend))

    @in_place
    async def wrap_tool_call(self, call: ToolCall, next: Any) -> Any:
        """Run the call; keep a result that is too long in a file."""
        ctx: ToolContext | None = call.ctx
        if ctx is None:
            return await next(call)
        if (
            ctx.allowed is not None and ctx.allowed != call.args
        ):  # a person approved other arguments
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
        """Protect the stores of this run and of all agents here; return why that fails."""
        if call.name not in _CHANGING:
            return ""
        note_store(configurable(call.ctx.config).get(CHECKPOINTER))
        if files := store_files() - self._kept_from:
            try:
                self.keep_from(Rules(stores=tuple(files)))
            except ConfigError as error:
                return str(error)
        return ""

    async def _kept(self, next: Any, call: ToolCall) -> Any:
        ctx = call.ctx
        return await next(call.replace(ctx=replace(ctx, keep=partial(self._keep, ctx))))

    def _asks(self, call: ToolCall) -> str:
        """Return why a person must approve a call; empty if not, or if it is impossible."""
        if call.name not in WRITERS or call.ctx.allowed == call.args or not can_ask(call.ctx):
            return ""
        paths = (call.args[name] for name in PATH_NAMES if name in call.args)
        try:
            return next(filter(None, (self.backend.asks(str(path)) for path in paths)), "")
        except ToolError:  # the tool reports it
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


def can_ask(ctx: ToolContext) -> bool:
    """Return whether a question of this call can wait in a store for its answer."""
    return bool(configurable(ctx.config).get(CHECKPOINTER))


def commands_section(backend: FileSystem) -> str:
    """Write the section of the system prompt about commands."""
    return (
        f"Commands of the tool execute run at the sandbox level {backend.level}. "
        f"{backend.confinement}"
    )
