"""Compare two recordings, and find the moment at which an expression became true."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from wick_graph.debug.values import overlaid
from wick_graph.debug.view import Names, View, ViewCache
from wick_graph.errors import DebugError, ExpressionError, StorageError
from wick_graph.expressions import compile_expression
from wick_graph.journal.cassette import lines_of
from wick_graph.journal.entry import Entry
from wick_graph.journal.reconstruct import REQUESTS
from wick_graph.messages import to_wick

_WANTED: Final = {"model": "model.response", "tools": "tool.exit"}

_UNLIKE: Final = frozenset({"usage", "cost"})
"""Channels of a run's usage, which a comparison ignores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One visit of a node, in both recordings."""

    node: str
    visit: int
    """Number of the visit among those of its node, within the comparison."""
    a: str | None
    """Its outcome in the first recording; None if it was not visited."""
    b: str | None
    same: bool
    """Whether request, outcome and writes are equal, even if the texts hide a difference."""
    part: str = ""
    """The difference: `text` if visible there, else `request` or `writes`; empty if equal."""


class _Did:
    """The outcome of a visit, each part read on demand."""

    def __init__(self, views: ViewCache, call: str | None) -> None:
        self.views = views
        self.call = call
        """The id of the call that the visit is for."""
        self.place: int | None = None
        """The place of its end; None if it did not end."""

    @cached_property
    def text(self) -> str:
        """Its outcome in a line."""
        return "did not end" if self.place is None else _did(self.views, self.place)

    @property
    def request(self) -> Any:
        """The model's request; None if unknown."""
        return None if self.place is None else _asked(self.views, self.place)

    @property
    def writes(self) -> Any:
        """Its writes; None if unknown."""
        return None if self.place is None else _wrote(self.views, self.place)

    def is_(self, other: _Did) -> bool:
        """Return whether both are the same visit, which two branches share."""
        one, two = self.place, other.place
        journal = self.views.journal
        if one is None or two is None or journal is None or journal is not other.views.journal:
            return False
        return self.views.timeline.entries[one].seq == other.views.timeline.entries[two].seq

    def parts_from(self, other: _Did) -> str:
        """Return the part in which two visits differ; empty if none."""
        if self.is_(other):
            return ""
        if self.text != other.text:
            return "text"
        if _differ(self.request, lambda: other.request):
            return "request"
        return "writes" if _differ(self.writes, lambda: other.writes) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two recordings, aligned by node and visit."""

    first: str | None
    """The first difference in a sentence; None if there is none."""
    rows: list[Row]
    tokens: tuple[int, int]
    seconds: tuple[float, float]
    """Totals of both recordings, including what two branches share."""


def compare(one: ViewCache, other: ViewCache) -> Comparison:
    """Compare two recordings, visit by visit."""
    rows = list(_rows(_visits(one), _visits(other)))
    different = next((row for row in rows if not row.same), None)
    first = None
    if different is not None:
        first = f"{different.node}, visit {different.visit}: {_unlike(different)}"
    return Comparison(
        first=first,
        rows=rows,
        tokens=(_tokens(one), _tokens(other)),
        seconds=(_seconds(one), _seconds(other)),
    )


def bisect(views: ViewCache, start: int, stop: int, expression: str) -> Entry | bool:
    """Return the first moment after `start` at which an expression's truth changes.

    If it never changes, return its truth. Without a value it counts as false.

    Raises:
        ExpressionError: It is not an expression, or has a value nowhere.
    """
    compiled = compile_expression(expression)
    problems: list[ExpressionError | None] = []

    def holds(place: int) -> bool:
        try:
            value = bool(compiled.evaluate(Names(views.view(place))))
        except ExpressionError as error:
            problems.append(error)
            return False
        problems.append(None)
        return value

    was = holds(start)
    for place in range(start + 1, stop + 1):
        if holds(place) is not was:
            return views.timeline.entries[place]
    if problems[-1] is not None and all(problems):
        raise problems[-1]
    return was


def _unlike(row: Row) -> str:
    if row.part == "request":
        return f"the model was sent another request, and did the same: {row.a}"
    if row.part == "writes":
        return f"it wrote other values: {row.a}"
    return f"{row.a or 'not there'} ≠ {row.b or 'not there'}"


def _visits(views: ViewCache) -> dict[tuple[str, int], list[_Did]]:
    """Return the outcomes of each node's visits, by superstep: in parallel, any may begin first."""
    steps: dict[str, dict[tuple[int, str | None], int]] = {}
    began: dict[str | None, _Did] = {}
    made: dict[tuple[str, int], list[_Did]] = {}
    for place, entry in enumerate(views.timeline.entries):
        if entry.what == "node.enter" and entry.node is not None:
            known = steps.setdefault(entry.node, {})
            step = known.setdefault((entry.run, entry.checkpoint), len(known))
            began[entry.task] = did = _Did(views, entry.call_id)
            made.setdefault((entry.node, step), []).append(did)
        elif entry.what in ("node.exit", "node.error") and entry.task in began:
            began[entry.task].place = place
    return made


def _differ(one: Any, other: Callable[[], Any]) -> bool:
    """Return whether two known values differ."""
    two = None if one is None else other()
    return two is not None and bool(one != two)


def _did(views: ViewCache, place: int) -> str:
    entry = views.timeline.entries[place]
    wanted = _WANTED.get(entry.node or "")
    for found in views.timeline.of_task(place) if wanted else ():
        if found.what == wanted:
            at = views.timeline.place(found.seq)
            return _said(views.view(place if at is None else at))
    if entry.is_left:
        return "waits"
    if entry.error:
        return entry.error
    return "wrote " + ", ".join(
        sorted({str(write.get("channel")) for write in views.view(place).writes} - {"usage"})
    )


def _asked(views: ViewCache, place: int) -> Any:
    """Return the model requests of a visit."""
    asked = []
    for entry in views.timeline.of_task(place):
        if entry.kind != "model" or entry.phase not in REQUESTS:
            continue
        try:
            sent = views.view(views.timeline.place(entry.seq) or 0).request
        except (DebugError, StorageError):  # its data is gone
            return None
        if sent is None:
            return None
        asked.append(lines_of(sent.messages, sent.tools, sent.settings))
    return asked


def _wrote(views: ViewCache, place: int) -> Any:
    """Return a visit's writes without ids and token counts, which always differ."""
    end = views.view(place)
    try:
        wrote = [(c, v) for ended, c, v in end.pending if ended.seq == end.entry.seq]
        state = views.json.state(overlaid({}, wrote))
    except (DebugError, StorageError):
        return None
    if "messages" in state:
        state["messages"] = [_without_id(message) for message in state["messages"]]
    names = {channel for channel, _ in wrote} - _UNLIKE  # a schema adds the empty ones
    return {name: value for name, value in state.items() if name in names}


def _without_id(message: Any) -> Any:
    return {k: v for k, v in message.items() if k != "id"} if isinstance(message, dict) else message


def _said(view: View) -> str:
    if view.entry.kind == "tool":
        return f"{view.entry.name}({view.args}) → {view.output}"
    if view.reply is None:
        return "a reply that was not kept"
    wick = to_wick(view.reply)
    calls = [f"{call['name']}({call['args']})" for call in wick.get("tool_calls") or ()]
    return " ".join([str(wick["content"]), *calls]).strip() or "nothing"


def _rows(
    one: dict[tuple[str, int], list[_Did]], other: dict[tuple[str, int], list[_Did]]
) -> Iterator[Row]:
    visits: Counter[str] = Counter()
    for key in [*one, *(key for key in other if key not in one)]:
        node = key[0]
        for a, b in _pairs(one.get(key, []), other.get(key, [])):
            visits[node] += 1
            part = a.parts_from(b) if a is not None and b is not None else "text"
            shared = a if a is not None and b is not None and a.is_(b) else b
            yield Row(
                node=node,
                visit=visits[node],
                a=None if a is None else a.text,
                b=None if shared is None else shared.text,
                same=not part,
                part=part,
            )


_ALIKE: Final[tuple[Callable[[_Did, _Did], bool], ...]] = (
    lambda one, other: one.call is not None and one.call == other.call,
    lambda one, other: one.text == other.text,
    lambda one, other: True,
)
"""What makes two of parallel visits a pair, the surest first."""


def _pairs(one: list[_Did], other: list[_Did]) -> Iterator[tuple[_Did | None, _Did | None]]:
    """Pair the visits of a node in one superstep: by call, else by outcome, else in order."""
    left, found = list(other), dict[int, _Did]()
    for alike in _ALIKE if len(one) > 1 or len(other) > 1 else _ALIKE[-1:]:
        for at, a in enumerate(one):
            b = None if at in found else next((b for b in left if alike(a, b)), None)
            if b is not None:
                found[at] = b
                left.remove(b)
    for at, a in enumerate(one):
        yield a, found.get(at)
    for b in left:
        yield None, b


def _tokens(views: ViewCache) -> int:
    used = (views.view(at).usage for at in range(len(views.timeline)))
    return sum(one.get("total_tokens", 0) for one in used if one)


def _seconds(views: ViewCache) -> float:
    last: dict[int, int] = {}
    for entry in views.timeline.entries:
        last[entry.run] = max(last.get(entry.run, 0), entry.at_us)
    return sum(last.values()) / 1e6
