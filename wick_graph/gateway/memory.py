"""Memory of conversations: files of notes, which of them a conversation reaches, and the tools."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any, Final

from wick_graph.backends import Root
from wick_graph.config.gateway import Memory
from wick_graph.core.redaction import REDACTOR
from wick_graph.errors import ConfigError, ToolError
from wick_graph.gateway.schedule import zone_of
from wick_graph.hooks.memory import must_be_no_secret
from wick_graph.hooks.prompt_files import cut_visibly, is_missing
from wick_graph.machine import lock
from wick_graph.messages.content import clean_text, visible
from wick_graph.store.mailbox import hashed
from wick_graph.tools.function_tool import FuncTool
from wick_graph.tools.protocol import ToolContext

# --- The store: MEMORY.md and one file a day, below one folder.


FOLDER: Final = "memory"

LONG_TERM: Final = f"{FOLDER}/MEMORY.md"

MAX_FILE: Final = 64 * 1024
"""Bytes of MEMORY.md, and of the notes of one day."""

MAX_NOTE: Final = 8 * 1024
"""Bytes of one note."""

DAYS: Final = 3
"""Days in a prompt, today included."""

SHOWN_LONG_TERM: Final = 16 * 1024
"""Bytes of MEMORY.md in a prompt."""

SHOWN_DAY: Final = 4 * 1024
"""Bytes of a day in a prompt: its last ones."""

SEPARATOR: Final = "\n\n---\n\n"

_CALLS: Final = f"{FOLDER}/.calls.json"
"""What recent calls wrote, so that a repeated call writes nothing twice."""

_MOST_CALLS: Final = 200

_MOST_FOUND: Final = 50

_DIGIT: Final = "[0-9]"


class MemoryStore:
    """Long-term notes in `memory/MEMORY.md`, daily notes in `memory/YYYYMM/YYYYMMDD.md`.

    Each write replaces a file as a whole, one writer at a time among all processes. A link is
    never followed, a text that looks like a secret is refused, hidden characters become visible.
    Refusals are `ToolError`s. Days begin in the zone; the first write makes the folder.

    Raises:
        ConfigError: There is no such zone.
    """

    def __init__(
        self, folder: Path, timezone: str = "UTC", clock: Callable[[], float] = time.time
    ) -> None:
        self.folder: Final = Path(folder)
        self._zone: Final = zone_of(timezone)
        self._clock = clock

    def today(self) -> date:
        """Return the date in the store's zone."""
        return datetime.fromtimestamp(self._clock(), self._zone).date()

    def read_long_term(self) -> str:
        """Return MEMORY.md; empty if it is missing."""
        return self._text(LONG_TERM)

    def read_day(self, day: date | None = None) -> str:
        """Return the notes of a day, by default of today; empty if there are none."""
        return self._text(_file_of(day or self.today()))

    def context(self) -> str:
        """Return what a prompt shows: long-term notes, then the last days, newest first."""
        known = cut_visibly(self.read_long_term(), SHOWN_LONG_TERM, "; use memory_read")
        dates = [self.today() - timedelta(days=back) for back in range(DAYS)]
        notes = [_end(text) for day in dates if (text := self.read_day(day)).strip()]
        parts = [f"## Long-term Memory\n\n{known}"] if known.strip() else []
        parts += [f"## Recent Daily Notes\n\n{SEPARATOR.join(notes)}"] if notes else []
        return SEPARATOR.join(parts)

    def write_long_term(self, text: str, key: str = "") -> None:
        """Replace MEMORY.md; a call repeated with the same key changes nothing.

        Raises:
            ToolError: The text is refused, or MEMORY.md has changed since the call was interrupted.
        """
        new = self._checked(text, MAX_FILE).encode()
        self._write(LONG_TERM, key, lambda _: new, replaces=True)

    def append_today(self, text: str, key: str = "") -> None:
        """Add a note to those of today; a call repeated with the same key adds nothing.

        Raises:
            ToolError: The text is refused, or the day is full.
        """
        note, day = self._checked(text, MAX_NOTE), self.today()
        if not note.strip():
            raise ToolError("the note is empty; write what to remember")

        def with_note(had: bytes) -> bytes:
            end = had[-MAX_NOTE:].decode("utf-8", "replace")
            must_be_no_secret(f"{end}\n{note}", known=REDACTOR.found(end))
            new = (had or f"# {day}\n".encode()) + f"\n{note}".encode()
            if len(new) > MAX_FILE:
                raise ToolError(
                    f"today's notes are full, at {MAX_FILE:,} bytes; put what matters into "
                    "MEMORY.md with memory_write"
                )
            return new

        self._write(_file_of(day), key, with_note)

    def search(self, query: str) -> list[str]:
        """Return the lines that have all words of a query, long-term notes and new days first.

        Raises:
            ToolError: The query has no word.
        """
        words = {*query.casefold().split()}
        if not words:
            raise ToolError("the query is empty; give words to look for")
        return [*islice(self._lines_with(words), _MOST_FOUND)]

    def _lines_with(self, words: Collection[str]) -> Iterator[str]:
        days = sorted(self.folder.glob(f"{FOLDER}/{_DIGIT * 6}/{_DIGIT * 8}.md"), reverse=True)
        for rel in (LONG_TERM, *(f"{FOLDER}/{one.parent.name}/{one.name}" for one in days)):
            for line in self._text(rel).splitlines():
                if all(word in line.casefold() for word in words):
                    yield f"{Path(rel).stem}: {line.strip()[:300]}"

    def _text(self, rel: str) -> str:
        return REDACTOR.text(visible(read_text(self.folder, rel, MAX_FILE)))

    def _checked(self, text: str, limit: int) -> str:
        made = visible(clean_text(text)).strip("\r\n")
        if (size := len(made.encode())) > limit:
            raise ToolError(f"the text has {size:,} bytes, more than {limit:,}; shorten it")
        must_be_no_secret(made)
        return made

    def _write(
        self, rel: str, key: str, change: Callable[[bytes], bytes], *, replaces: bool = False
    ) -> None:
        """Write what a function makes of a file, one writer among all threads and processes.

        A call records what it is about to write. Repeated with its key it writes nothing if its
        text is there: it begins the file, whatever was added behind it since.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with Root(self.folder) as root:
                root.make_dir(FOLDER)
                folder = root.open_dir(FOLDER)
                try:
                    lock(folder, wait=True)
                    calls, had = _calls(root), _bytes(root, rel)
                    if record := calls.get(key):
                        now = _bytes(root, record["file"])
                        if _digest(now[: record["size"]]) == record["after"]:
                            return
                        if replaces and _digest(now) != record["before"]:
                            raise ToolError(
                                "MEMORY.md changed since this call was interrupted; read it and "
                                "write again"
                            )
                    new = change(had)
                    made = {"before": _digest(had), "after": _digest(new), "size": len(new)}
                    if key:
                        kept = [*calls.items(), (key, {"file": rel, **made})][-_MOST_CALLS:]
                        root.replace(_CALLS, json.dumps(dict(kept)).encode())
                    root.replace(rel, new)
                finally:
                    os.close(folder)
        except OSError as error:
            raise ToolError(f"the memory cannot be written: {error.strerror}") from error


def _file_of(day: date) -> str:
    return f"{FOLDER}/{day:%Y%m}/{day:%Y%m%d}.md"


def _end(text: str) -> str:
    """Return the last lines of a day that a prompt has room for."""
    raw = text.encode()
    if len(raw) <= SHOWN_DAY:
        return text
    kept = raw[-SHOWN_DAY:].decode("utf-8", "ignore")
    kept = kept.partition("\n")[2] or kept
    heading = text.partition("\n")[0]
    return f"{heading}\n\n[cut: {SHOWN_DAY:,} of {len(raw):,} bytes; use memory_read]\n{kept}"


def read_text(folder: Path, rel: str, most: int) -> str:
    """Return the first bytes of a file below a folder as text; empty if one is missing.

    Raises:
        ToolError, ConfigError: It cannot be read, or is a link.
    """
    try:
        os.lstat(folder / rel)  # most are missing, in each turn, and a Root costs much more
    except FileNotFoundError:
        return ""
    except OSError:
        pass  # a Root says why
    try:
        with Root(folder) as root:
            data = root.read_bytes(rel, most)
    except (ToolError, ConfigError) as error:
        if is_missing(error):
            return ""
        raise
    return data.decode("utf-8", "replace").removeprefix("\ufeff")


def _bytes(root: Root, rel: str) -> bytes:
    try:
        return root.read_bytes(rel, MAX_FILE)
    except ToolError as error:
        if is_missing(error):
            return b""
        raise


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _calls(root: Root) -> dict[str, dict[str, Any]]:
    try:
        known = json.loads(root.read_bytes(_CALLS, 2**20))
        return {key: one for key, one in known.items() if Path(one["file"]) and one["size"] >= 0}
    except (ToolError, ValueError, TypeError, KeyError, AttributeError):  # missing or damaged
        return {}


# --- A folder for each person and group, and which memory a conversation reaches.


PEOPLE: Final = ".people"
"""Folder of the workspace with a folder for each sender but the owner, and for each group."""


def is_owner(origin: Mapping[str, Any]) -> bool:
    """Return whether only the owner writes and reads a conversation."""
    return origin.get("role") == "owner" and origin.get("group") is False


def who_of(origin: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return whom a conversation is with: a sender in direct chats, else a chat, of a channel."""
    channel, chat, sender = (str(origin.get(n) or "") for n in ("channel", "chat_id", "sender_id"))
    direct = origin.get("group") is False and sender
    return ("sender", channel, sender) if direct else ("chat", channel, chat)


def scope_folder(workspace: Path, origin: Mapping[str, Any]) -> Path:
    """Return the folder of whom a conversation is with: the workspace is the owner's.

    Every other sender has one for all direct chats of a channel, and every group has one. No two
    share a folder, whatever their ids are.
    """
    if is_owner(origin):
        return workspace
    kind, channel, number = who_of(origin)
    plain = re.sub(r"[^a-z0-9]+", "-", f"{kind}-{channel[:16]}-{number[:32]}".lower()).strip("-")
    return workspace / PEOPLE / f"{plain}-{hashed(kind, channel, number)[:32]}"


@dataclass(frozen=True)
class Memories:
    """The memories of a workspace, by conversation."""

    workspace: Path
    scope: Memory = "owner"
    """Who has one besides the owner: no other, each `sender` in direct chats, or each `chat`."""
    timezone: str = "UTC"
    clock: Callable[[], float] = time.time

    def of(self, origin: Mapping[str, Any]) -> MemoryStore | None:
        """Return the memory of a conversation; None if it has none.

        The owner's is for direct chats with the owner alone. A conversation with untrusted text
        has none.
        """
        others: Mapping[str, Collection[str]] = {"sender": {"sender"}, "chat": {"sender", "chat"}}
        may = is_owner(origin) or who_of(origin)[0] in others.get(self.scope, ())
        if origin.get("role") not in ("owner", "user") or not may:
            return None
        return MemoryStore(scope_folder(self.workspace, origin), self.timezone, self.clock)


# --- The tools.


TOOLS: Final = ("memory_read", "memory_search", "memory_append", "memory_write")


def memory_tools(memories: Memories) -> tuple[FuncTool[..., Any], ...]:
    """Make the tools that read and write the memory of the conversation that calls them."""

    def store(ctx: ToolContext) -> MemoryStore:
        if (found := memories.of(ctx.origin)) is None:
            raise ToolError("this conversation has no memory; answer without it")
        return found

    def memory_read(date: str = "", *, ctx: ToolContext) -> str:
        """Read the notes in your memory: MEMORY.md, or those of a day.

        Args:
            date: Day as YYYY-MM-DD; MEMORY.md if it is left out
            ctx: The call
        """
        text = store(ctx).read_day(_day(date)) if date else store(ctx).read_long_term()
        return text if text.strip() else "There are no notes."

    def memory_search(query: str, ctx: ToolContext) -> str:
        """Find the lines in all notes of your memory that have all the given words.

        Args:
            query: Words to look for
            ctx: The call
        """
        return "\n".join(store(ctx).search(query)) or "No note has these words."

    def memory_append(text: str, ctx: ToolContext) -> str:
        """Add a note to today's in your memory.

        Args:
            text: What to remember; never a secret
            ctx: The call
        """
        store(ctx).append_today(text, _key(ctx))
        return "The note is added."

    def memory_write(text: str, ctx: ToolContext) -> str:
        """Replace MEMORY.md, your long-term notes. Read it first: what you leave out is lost.

        Args:
            text: All that MEMORY.md is to contain; never a secret
            ctx: The call
        """
        store(ctx).write_long_term(text, _key(ctx))
        return "MEMORY.md is replaced."

    return (
        FuncTool.from_function(memory_read, replay="safe"),
        FuncTool.from_function(memory_search, replay="safe"),
        FuncTool.from_function(memory_append, replay="key"),
        FuncTool.from_function(memory_write, replay="key"),
    )


def _key(ctx: ToolContext) -> str:
    """Return the name of a call among those of all threads."""
    return _digest(json.dumps([ctx.thread_id, ctx.key]).encode())[:32]


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ToolError(f"{text[:40]!r} is no date; write it as YYYY-MM-DD") from None
