"""The seven file tools: their schemas, and the answers that a model reads."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from wick_graph.backends import FileSystem, Found, Matches, Stop
from wick_graph.drive import THREADS
from wick_graph.hooks.turns import Turns, earlier_writers, step_of
from wick_graph.messages import ToolResult
from wick_graph.messages.content import clean_text
from wick_graph.tools.files import MAX_ENTRIES, answer, listing_json
from wick_graph.tools.func import FuncTool
from wick_graph.tools.protocol import ToolContext
from wick_graph.tracing import audit, refusals
from wick_graph.views import peek

T = TypeVar("T")

MAX_TRACKED_FILE: Final = 1_000_000
"""Code points of a file that the state keeps."""
MAX_TRACKED_THREAD: Final = 10_000_000
"""Code points of all files of a thread that its state keeps."""

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
    """Make the tools; `execute` only where the backend runs commands."""
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
    """Name what belongs to one call: the same when the call is repeated."""
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
    """Put on record what a rule forbids; the model is told as of any failure."""
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
        "Replace a text in a file by another one. The text is matched exactly, line ends and "
        f"indentation included; {which}. A file that changed since it was read is refused.",
        edit_file,
        required=("path", "old_text", "new_text"),
        path=_text("File path to edit"),
        old_text=_text("Exact text to replace"),
        new_text=_text("Text that stands there afterwards; may be empty"),
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
    """Let earlier calls of the reply change the file first; return what they left, by path."""
    earlier = earlier_writers(ctx.state, ctx.index, path, fs.workdir)
    return turns.wait(step_of(ctx.key), earlier) if earlier else {}


async def _stoppable(call: Callable[[Stop], T]) -> T:
    """Run a blocking call in a thread, and end it when nobody waits for it any more."""
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
    """Track a file in the state: what it contains now, or only its size where that is much."""
    files = peek(ctx.state, "files") or {}
    others = sum(len(text) for name, text in files.items() if name != path and _is_text(text))
    if len(text) > MAX_TRACKED_FILE or others + len(text) > MAX_TRACKED_THREAD:
        return {"files": {path: {"content": None, "size": len(text)}}, "seen": {path: digest}}
    return {"files": {path: text}, "seen": {path: digest}}


def _is_text(value: Any) -> bool:
    return isinstance(value, str)
