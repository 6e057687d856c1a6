"""The layout of moments in a page: lists of numbers, tables of names, stack frames."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import ormsgpack
from langchain_core.messages import AIMessage

from wick_graph.core.moments import Place
from wick_graph.errors import StorageError
from wick_graph.journal.request_key import packed
from wick_graph.store.codec import fold, unfold
from wick_graph.store.journal_rows import RUN_BYTES
from wick_graph.store.row_format import pack_id

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


_UUID = 36

CALL, TOOL = 6, 7
"""Where a place holds its tool call's id and the tool's name."""


@dataclass(slots=True)
class Frame:
    """Something that was entered and not left yet."""

    seq: int
    kind: str
    """Kind and phase of the moment that opened it."""
    depth: int
    at: int
    """Microseconds since the run began."""
    value: Any = None
    """What went in."""
    call: str | None = None
    """Its call, if several calls run at once in one visit."""
    inner: Any = None
    """What came out of the frame inside of this one that was left last."""


@dataclass(slots=True)
class Visit:
    """One visit of a node: where it is, and what is open in it."""

    place: list[Any]
    """Node, task, checkpoint, superstep, step, visit, call id, tool: as a page holds it."""
    within: str = ""
    """The task of the surrounding visit, for a node of a subgraph."""
    frames: list[Frame] = field(default_factory=list)
    replies: list[tuple[int, Reply]] = field(default_factory=list)
    """Replies of models: their moment, and what came."""
    chunks: list[tuple[int, list[int]]] = field(default_factory=list)
    """For each attempt: when its first piece arrived, and how many there have been."""
    state: Any = None
    """What the node was given."""
    taken: Any = None
    """What could change of the moment that is being written down, as it was when it happened."""
    own: Any = None
    """What a tool itself returned, before hooks saw it."""
    page: int = -1
    """The page that holds the place, by its first moment."""
    index: int = 0
    """Where in the page."""


def place_row(place: Place, node: Any, step: int, visit: int) -> list[Any]:
    """Return a place as a page holds it."""
    task, checkpoint = _packed(place.task), _packed(place.checkpoint)
    return [node, task, checkpoint, place.superstep, step, visit, None, None]


def _packed(text: str) -> bytes:
    """Do as `pack_id`, faster for the ids that LangGraph makes."""
    if len(text) == _UUID and text[14] in "16":
        return bytes.fromhex(text.replace("-", ""))
    return pack_id(text)


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
    return {
        names.get(name, name): {names.get(key, key): one for key, one in value.items()}
        if type(value) is dict
        else value
        for name, value in about.items()
    }
