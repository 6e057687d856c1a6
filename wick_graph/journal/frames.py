"""What is open while a run goes on: the stack of one visit of a node."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from wick_graph.journal.taking import Reply
from wick_graph.moments import Place
from wick_graph.store.values.rows import pack_id

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
    inner: Any = None
    """What came out of the frame inside of this one that was left last."""


@dataclass(slots=True)
class Visit:
    """One visit of a node: where it is, and what is open in it."""

    place: list[Any]
    """Node, task, checkpoint, superstep, step, visit, call id, tool: as a page holds it."""
    frames: list[Frame] = field(default_factory=list)
    replies: list[tuple[int, Reply]] = field(default_factory=list)
    """Replies of models: their moment, and what came."""
    chunks: list[int] = field(default_factory=list)
    """When the first piece of the coming reply arrived, and how many there are."""
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
