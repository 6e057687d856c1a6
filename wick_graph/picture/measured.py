"""What a thread's journal adds to its picture: the time of each node, tool and hook by itself."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any, Final

from wick_graph.errors import StorageError
from wick_graph.journal import Entry, Journal
from wick_graph.picture.overlay import NOTHING, LayerKey, RunOverlay, Tally
from wick_graph.runtime import engine_store

WHOLE_STEPS: Final = "times are those of whole steps"
_PARALLEL: Final = "times of parallel calls are added up"


def measured(overlay: RunOverlay, saver: Any, steps: Collection[str]) -> RunOverlay:
    """Fill in what the journal measured, where it recorded all of the steps.

    Args:
        overlay: What the checkpoints tell.
        saver: The store of the thread; only ours keeps journals.
        steps: The checkpoints from which steps began that are on the thread's way.
    """
    if engine_store(saver) is None or not steps:
        return overlay
    try:
        entries = [e for e in Journal(saver, overlay.thread_id).moments() if e.checkpoint in steps]
    except StorageError:
        return overlay
    if {entry.checkpoint for entry in entries if entry.what == "node.exit"} != set(steps):
        return overlay
    nodes = _added(overlay.nodes, _seconds(entries, "node"))
    notes = [_PARALLEL if note == WHOLE_STEPS else note for note in overlay.notes]
    seconds = sum(tally.seconds or 0.0 for tally in nodes.values())
    return replace(
        overlay,
        total=replace(overlay.total, seconds=seconds),
        nodes=nodes,
        tools=_added(overlay.tools, _seconds(entries, "tool")),
        layers=_layers(entries),
        notes=tuple(notes),
    )


def _seconds(entries: list[Entry], kind: str) -> dict[str, float]:
    """Add up what the visits of each node, or the calls of each tool, took."""
    found: dict[str, float] = {}
    for entry in entries:
        if entry.kind == kind and entry.phase == "exit" and entry.duration_us is not None:
            found[entry.name] = found.get(entry.name, 0.0) + entry.duration_us / 1e6
    return found


def _added(tallies: Any, seconds: dict[str, float]) -> dict[str, Tally]:
    return {name: replace(tally, seconds=seconds.get(name)) for name, tally in tallies.items()}


def _layers(entries: list[Entry]) -> dict[LayerKey, Tally]:
    found: dict[LayerKey, Tally] = {}
    for entry in entries:
        if entry.kind != "hook" or not entry.is_end or entry.hook_phase is None:
            continue
        key = (entry.hook_phase, entry.name)
        took = None if entry.duration_us is None else entry.duration_us / 1e6
        tally = Tally(1, took, errors=int(entry.phase == "error"))
        found[key] = found.get(key, NOTHING) + tally
    return found
