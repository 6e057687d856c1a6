"""The history of delta channels: one walk up the parents for all channels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from langgraph.checkpoint.base import DeltaChannelHistory, PendingWrite

from wick_graph.store.checkpoints.reading import Reader, Row, ancestors


def delta_history(
    reader: Reader | None, row: Row | None, channels: Sequence[str]
) -> Mapping[str, DeltaChannelHistory]:
    """Return per channel the writes on the path to a checkpoint, and the value they start from.

    The walk ends for each channel at the nearest ancestor that stores a value of it; the writes
    filed under that ancestor still count, they led to its child.
    """
    steps: dict[str, list[list[PendingWrite]]] = {channel: [] for channel in channels}
    result: dict[str, DeltaChannelHistory] = {channel: {"writes": []} for channel in channels}
    left = set(channels)
    if reader is None or row is None:
        return result
    for ancestor in ancestors(reader.db, row):
        if not left:
            break
        found: dict[str, list[PendingWrite]] = {}
        for write in reader.writes(ancestor.ns, ancestor.id, frozenset(left)):
            found.setdefault(write[1], []).append(write)
        for channel, written in found.items():
            steps[channel].append(written)
        for channel, value in reader.stored(ancestor, left).items():
            result[channel]["seed"] = value
            left.discard(channel)
    for channel, backwards in steps.items():
        for written in reversed(backwards):
            result[channel]["writes"] += written
    return result
