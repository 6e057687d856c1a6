"""The verbs: from where a cursor stands, which moment is the next one to stop at. Pure functions.

`depth` is how deep a moment lies in the frames of its visit of a node. Of parallel visits, `next`
and `finish` stay in their own until it ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from wick_graph.journal.entry import GAP, Entry

_BACK: Final[dict[str, str]] = {
    "step": "reverse_step",
    "next": "reverse_next",
    "finish": "reverse_finish",
    "nextnode": "prevnode",
    "turn": "prevturn",
    "cont": "reverse_cont",
    "until": "reverse_until",
    "next_error": "prev_error",
}
INVERSE: Final = {**_BACK, **{back: there for there, back in _BACK.items()}}
"""Each verb, and the one that undoes it."""
BACKWARDS: Final = frozenset(_BACK.values())

VERBS: Final[dict[str, str]] = {
    **{name: name for name in INVERSE},
    **{name.replace("_", "-"): name for name in INVERSE},
    **{"s": "step", "n": "next", "fin": "finish", "f": "finish", "nn": "nextnode", "tu": "turn"},
    **{"t": "turn", "c": "cont", "continue": "cont", "pn": "prevnode", "pt": "prevturn"},
    **{"rs": "reverse_step", "rn": "reverse_next", "rf": "reverse_finish", "rc": "reverse_cont"},
    **{"reverse-continue": "reverse_cont", "reverse_continue": "reverse_cont"},
    **{"first": "first", "last": "last", "pause": "pause", "out": "finish", "over": "next"},
    **{"ru": "reverse_until", "u": "until"},
}
"""gdb's names and abbreviations, and the methods of `DebugSession` that they stand for."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What a verb looks for."""

    verb: str
    fits: Callable[[Entry], bool]
    stops: bool = True
    """Whether breakpoints on the way stop too."""
    test: Callable[[Any], bool] | None = None
    """Tried on the view of a moment, where `fits` alone cannot say."""
    text: str = ""

    @property
    def backwards(self) -> bool:
        """Whether it looks towards the beginning."""
        return self.verb in BACKWARDS


def goal_of(verb: str, here: Entry | None) -> Goal:
    """Return what a verb looks for from a moment; None is before the first one."""
    return Goal(verb, _MAKERS[verb](verb, here))


def _any(verb: str, here: Entry | None) -> Callable[[Entry], bool]:
    return lambda entry: True


def _never(verb: str, here: Entry | None) -> Callable[[Entry], bool]:
    return lambda entry: False


def _over(verb: str, here: Entry | None) -> Callable[[Entry], bool]:
    return _within(here, 0, backwards=verb in BACKWARDS)


def _out(verb: str, here: Entry | None) -> Callable[[Entry], bool]:
    return _within(here, -1, backwards=verb in BACKWARDS)


def _within(here: Entry | None, more: int, *, backwards: bool) -> Callable[[Entry], bool]:
    """Fit what lies no deeper: in the same visit while that goes on, anywhere afterwards."""
    if here is None:
        return lambda entry: True
    # What a run says of itself stands beside its nodes: `next` there goes to the first of them.
    depth = max(here.depth, 1) + more
    task, checkpoint = here.task, here.checkpoint
    edges = ("node.enter",) if backwards else ("node.exit", "node.error")
    outside = task is None or here.what in edges or depth < 1

    def fits(entry: Entry) -> bool:
        if entry.kind == GAP:
            return True
        if outside or entry.task == task or entry.checkpoint != checkpoint:
            return entry.depth <= depth
        return False

    return fits


def _node(verb: str, here: Entry | None) -> Callable[[Entry], bool]:
    return lambda entry: entry.what == "node.enter" or entry.kind == "checkpoint"


def _turn(verb: str, here: Entry | None) -> Callable[[Entry], bool]:
    return lambda entry: entry.what == "model.request"


def _error(verb: str, here: Entry | None) -> Callable[[Entry], bool]:
    return lambda entry: entry.is_bad


_MAKERS: Final[dict[str, Callable[[str, Entry | None], Callable[[Entry], bool]]]] = {
    **dict.fromkeys(("step", "reverse_step"), _any),
    **dict.fromkeys(("next", "reverse_next"), _over),
    **dict.fromkeys(("finish", "reverse_finish"), _out),
    **dict.fromkeys(("nextnode", "prevnode"), _node),
    **dict.fromkeys(("turn", "prevturn"), _turn),
    **dict.fromkeys(("cont", "reverse_cont", "until", "reverse_until"), _never),
    **dict.fromkeys(("next_error", "prev_error"), _error),
}
