"""The layout of moments in a page: lists of numbers, tables of names, stack frames."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import compress, repeat
from operator import is_
from typing import Any, Final

import ormsgpack
from langchain_core.messages import AIMessage

from wick_graph.errors import StorageError
from wick_graph.journal.request_key import packed
from wick_graph.store.codec import fold, unfold
from wick_graph.store.journal_rows import RUN_BYTES

# --- The layout of moments in a page: short lists of numbers, and the tables of their names.
#
# The numbers in `KINDS`, `NODES` and `PHASE_CODES` are the file format: add, never change. A moment
# with an unknown number is read as a gap.
#
# A page is `[format, run's offset, first, places, entries]` in msgpack. A place is one visit of a
# node. An entry is `[code, microseconds since the run began, up, depth, place, name, fields]`;
# `up` is the distance back to the moment around it or the one that it ends.


FORMAT: Final = 1

KINDS: Final[Mapping[tuple[str, str], int]] = {
    ("run", "enter"): 0,
    ("run", "exit"): 1,
    ("run", "error"): 2,
    ("node", "enter"): 3,
    ("node", "exit"): 4,
    ("node", "error"): 5,
    ("hook", "enter"): 6,
    ("hook", "exit"): 7,
    ("hook", "error"): 8,
    ("model", "request"): 9,
    ("model", "replaced"): 10,
    ("model", "response"): 11,
    ("model", "error"): 12,
    ("model", "retry"): 13,
    ("model", "fallback"): 14,
    ("model", "chunk"): 15,
    ("route", "taken"): 16,
    ("tool", "enter"): 17,
    ("tool", "call"): 18,
    ("tool", "replaced"): 19,
    ("tool", "return"): 20,
    ("tool", "exit"): 21,
    ("tool", "error"): 22,
    ("interrupt", "raise"): 23,
    ("interrupt", "answer"): 24,
    ("event", "event"): 25,
    ("event", "lost"): 26,
    ("node", "retry"): 27,
    ("node", "cached"): 28,
    ("state", "update"): 29,
    ("agent", "spawn"): 30,
    ("agent", "return"): 31,
}
"""The number of each kind and phase of a moment."""

EVENT: Final = KINDS["event", "event"]
"""A moment of a kind without a number; its fields hold kind and phase."""

LOST: Final = KINDS["event", "lost"]
"""Closes a moment that was open when the process died."""

NODES: Final[Mapping[str, int]] = {"before_agent": 0, "modify_request": 1, "model": 2, "tools": 3}
"""The number of each node; other nodes are written by name."""

PHASE_CODES: Final[Mapping[str, int]] = {
    "before_agent": 0,
    "modify_request": 1,
    "wrap_model_call": 2,
    "after_model": 3,
    "wrap_tool_call": 4,
}
"""The number of each phase of a hook."""

KIND_OF: Final = {code: kind for kind, code in KINDS.items()}

NODE_OF: Final = {code: node for node, code in NODES.items()}

PHASE_OF: Final = {code: phase for phase, code in PHASE_CODES.items()}
"""The meaning of each number; a later release wrote any other number."""

OPENS: Final = frozenset(
    {("run", "enter"), ("node", "enter"), ("hook", "enter"), ("model", "request")}
    | {("tool", "enter"), ("tool", "call")}
)
"""Moments that a later moment ends."""

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
"""The moments that each closing moment ends."""

_COMPRESSED: Final = 2_048
"""Size in bytes from which a page is compressed."""

_PLAIN: Final = b"\x00"

_ZLIB: Final = b"\x01"

PageEntry = list[Any]

AT, UP, DEPTH, PLACE, NAME, FIELDS = 1, 2, 3, 4, 5, 6
"""Indexes of an entry's parts after its code."""


@dataclass(frozen=True, slots=True)
class PageContent:
    """A decoded page."""

    run: int
    first: int
    places: list[list[Any]]
    """Node, task, checkpoint, superstep, step, visit, call id, tool."""
    entries: list[PageEntry]


def node_of(place: list[Any]) -> str | None:
    """Return the node of a place; None for an unknown number."""
    node = place[0]
    return node if isinstance(node, str) else NODE_OF.get(node)


def pack_page(run: int, first: int, places: list[list[Any]], entries: list[PageEntry]) -> bytes:
    """Encode a page."""
    data = ormsgpack.packb([FORMAT, first, places, entries])
    mark = _PLAIN
    if len(data) > _COMPRESSED and (small := fold(data, 1)) is not None:
        data, mark = small, _ZLIB
    return run.to_bytes(RUN_BYTES, "little") + mark + data


def unpack_page(body: bytes) -> PageContent:
    """Decode a page after its check value was verified.

    Raises:
        StorageError: A newer release wrote it.
    """
    run, mark, data = int.from_bytes(body[:RUN_BYTES], "little"), body[4:5], body[5:]
    if mark == _ZLIB:
        data = unfold(data)
    version, first, places, entries = ormsgpack.unpackb(data)
    if version != FORMAT:
        raise StorageError("the journal has an unknown format; upgrade wick_graph")
    return PageContent(run, first, places, entries)


# --- What is open while a run goes on: the stack of one visit of a node.


CALL, TOOL = 6, 7
"""Where a place holds its tool call's id and the tool's name."""


class Frame:
    """Something that was entered and not left yet."""

    __slots__ = ("at", "call", "depth", "inner", "kind", "seq", "value")

    def __init__(self, seq: int, kind: str, depth: int, at: int, call: str | None = None) -> None:
        self.seq = seq
        self.kind = kind
        """Kind and phase of the moment that opened it."""
        self.depth = depth
        self.at = at
        """Microseconds since the run began."""
        self.call = call
        """Its call, if several calls run at once in one visit."""
        self.value: Any = None
        """What went in."""
        self.inner: Any = None
        """What came out of the frame inside of this one that was left last."""


class Visit:
    """One visit of a node: where it is, and what is open in it."""

    __slots__ = (
        *("chunks", "frames", "index", "own", "page", "place"),
        *("replies", "state", "taken", "within"),
    )

    def __init__(self, place: list[Any], within: str = "") -> None:
        self.place = place
        """Node, task, checkpoint, superstep, step, visit, call id, tool: as a page holds it."""
        self.within = within
        """The task of the surrounding visit, for a node of a subgraph."""
        self.frames: list[Frame] = []
        self.replies: list[tuple[int, Reply]] | None = None
        """Replies of models: their moment, and what came."""
        self.chunks: list[tuple[int, list[int]]] | None = None
        """For each attempt: when its first piece arrived, and how many there have been."""
        self.state: Any = None
        """What the node was given."""
        self.taken: Any = None
        """What could change of the moment that is being written, as it was when it happened."""
        self.own: Any = None
        """What a tool itself returned, before hooks saw it."""
        self.page = -1
        """The page that holds the place, by its first moment."""
        self.index = 0
        """Where in the page."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply as received."""

    fields: dict[str, Any]
    calls: bytes | None
    """Its calls, encoded; None if no hook could change them."""

    @classmethod
    def of(cls, reply: AIMessage, *, touched: bool) -> Reply:
        """Copy a reply."""
        calls = packed(reply.tool_calls) if touched and reply.tool_calls else None
        return cls(dict(reply.__dict__), calls)


# --- What a run's row tells of its run, with numbers for the usual names.


ABOUT: Final[Mapping[str, int]] = {
    "agent": 0,
    "model": 1,
    "hooks": 2,
    "graph": 3,
    "code": 4,
    "versions": 5,
    "level": 6,
    "mode": 7,
    "base": 8,
    "first": 9,
    "steps": 10,
    "visits": 11,
    "last": 12,
    "stopped": 13,
    "wick-graph": 14,
    "langgraph": 15,
    "langchain-core": 16,
    "before_agent": 17,
    "modify_request": 18,
    "tools": 19,
}
"""The number of each usual key: the file format; add, never change."""

_ABOUT_NAMES: Final = {number: name for name, number in ABOUT.items()}


def pack_about(about: Mapping[str, Any]) -> bytes:
    """Encode what is known of a run; its keys, and those of dicts in it, are texts."""
    return ormsgpack.packb(_renamed(about, ABOUT), option=ormsgpack.OPT_NON_STR_KEYS)


def unpack_about(data: bytes) -> dict[str, Any]:
    """Undo `pack_about`; older rows hold the names themselves."""
    found = ormsgpack.unpackb(data, option=ormsgpack.OPT_NON_STR_KEYS)
    return _renamed(dict(found), _ABOUT_NAMES)


def _renamed(about: Mapping[Any, Any], names: Mapping[Any, Any]) -> dict[Any, Any]:
    made = _keyed(about, names)
    for name in compress(made, map(is_, map(type, made.values()), repeat(dict))):
        made[name] = _keyed(made[name], names)
    return made


def _keyed(data: Mapping[Any, Any], names: Mapping[Any, Any]) -> dict[Any, Any]:
    return dict(zip(map(names.get, data, data), data.values(), strict=True))
