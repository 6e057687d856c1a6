"""How moments lie in a page: short lists of numbers, and the tables that give them their names.

The numbers in `KINDS`, `PHASES` and `NODES` are the file format: add, never change.

A page is `[format, run's offset, first, places, entries]` in msgpack. A place is one visit of a
node; an entry is `[code, microseconds since the run began, up, depth, place, name, fields]`, where
`up` is how far back the moment lies that this one is inside of or that it ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import ormsgpack

from wick_graph.errors import StorageError
from wick_graph.hooks.protocol import PHASES
from wick_graph.store.keeping.journal_rows import RUN_BYTES
from wick_graph.store.values.folding import fold, unfold

FORMAT: Final = 1
KINDS: Final[tuple[tuple[str, str], ...]] = (
    ("run", "enter"),
    ("run", "exit"),
    ("run", "error"),
    ("node", "enter"),
    ("node", "exit"),
    ("node", "error"),
    ("hook", "enter"),
    ("hook", "exit"),
    ("hook", "error"),
    ("model", "request"),
    ("model", "replaced"),
    ("model", "response"),
    ("model", "error"),
    ("model", "retry"),
    ("model", "fallback"),
    ("model", "chunk"),
    ("route", "taken"),
    ("tool", "enter"),
    ("tool", "call"),
    ("tool", "replaced"),
    ("tool", "return"),
    ("tool", "exit"),
    ("tool", "error"),
    ("interrupt", "raise"),
    ("interrupt", "answer"),
    ("event", "event"),
    ("event", "lost"),
)
"""Kind and phase of a moment, by their number."""
CODES: Final = {kind: code for code, kind in enumerate(KINDS)}
EVENT: Final = CODES["event", "event"]
LOST: Final = CODES["event", "lost"]
"""Closes what was open when its process died."""
NODES: Final = ("before_agent", "modify_request", "model", "tools")
NODE_CODES: Final = {name: code for code, name in enumerate(NODES)}
HOOK_PHASES: Final = PHASES
PHASE_CODES: Final = {name: code for code, name in enumerate(HOOK_PHASES)}

OPENS: Final = frozenset(
    {("run", "enter"), ("node", "enter"), ("hook", "enter"), ("model", "request")}
    | {("tool", "enter"), ("tool", "call")}
)
"""Moments that something follows which ends what they began."""
ENDS: Final = {
    ("run", "exit"): "run.enter",
    ("run", "error"): "run.enter",
    ("node", "exit"): "node.enter",
    ("node", "error"): "node.enter",
    ("hook", "exit"): "hook.enter",
    ("hook", "error"): "hook.enter",
    ("model", "response"): "model.request",
    ("model", "error"): "model.request",
    ("tool", "return"): "tool.call",
    ("tool", "exit"): "tool.enter",
    ("tool", "error"): "tool.enter",
}
"""What each closing moment ends."""

_COMPRESSED: Final = 2_048
"""Bytes from which a page is compressed."""
_PLAIN: Final = b"\x00"
_ZLIB: Final = b"\x01"

Entry = list[Any]
AT, UP, DEPTH, PLACE, NAME, FIELDS = 1, 2, 3, 4, 5, 6
"""Where the parts of an entry stand, behind its code."""


@dataclass(frozen=True, slots=True)
class PageContent:
    """A page, decoded."""

    run: int
    first: int
    places: list[list[Any]]
    """Node, task, checkpoint, superstep, step, visit, call id, tool."""
    entries: list[Entry]


def pack_page(run: int, first: int, places: list[list[Any]], entries: list[Entry]) -> bytes:
    """Encode a page."""
    data = ormsgpack.packb([FORMAT, first, places, entries])
    mark = _PLAIN
    if len(data) > _COMPRESSED and (small := fold(data, 1)) is not None:
        data, mark = small, _ZLIB
    return run.to_bytes(RUN_BYTES, "little") + mark + data


def unpack_page(body: bytes) -> PageContent:
    """Decode a page whose check value was right.

    Raises:
        StorageError: It was written by a newer release.
    """
    run, mark, data = int.from_bytes(body[:RUN_BYTES], "little"), body[4:5], body[5:]
    if mark == _ZLIB:
        data = unfold(data)
    version, first, places, entries = ormsgpack.unpackb(data)
    if version != FORMAT:
        raise StorageError("the journal has an unknown format; upgrade wick_graph")
    return PageContent(run, first, places, entries)
