"""What a hook changed: from a request, a call or a result to the next one, as small data.

A request's change names only what differs: `s` sections (a number is the place of one that was
there before), `k` sections taken away, `g` the messages' segments, `t` the tools, `r` tools taken
away, `o` settings, `x` settings taken away, `w` withheld, `p` purpose, `m` model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wick_graph.journal.shelf import Shelf
from wick_graph.messages import ToolResult
from wick_graph.request import ModelRequest, Section


def segments(request: ModelRequest, shelf: Shelf) -> Any:
    """Write down which messages a request shows: a number is the whole thread up to there."""
    parts = request.segments
    if len(parts) == 1 and isinstance(parts[0], tuple) and parts[0][0] == 0:
        return parts[0][1]
    return [list(part) if isinstance(part, tuple) else shelf.keep(part) for part in parts]


def model_name(request: ModelRequest) -> str | None:
    """Return the name of the model that a hook chose; None for the agent's own."""
    return None if request.model is None else str(getattr(request.model, "name", request.model))


def request_change(before: ModelRequest, after: ModelRequest, shelf: Shelf) -> dict[str, Any]:
    """Return what is different in `after`; empty if nothing is."""
    change: dict[str, Any] = {}
    if after is before:
        return change
    if after.system != before.system:
        change |= _system(before.system, after.system, shelf)
    if after.segments != before.segments:
        change["g"] = segments(after, shelf)
    if after.tools != before.tools:
        change["t"] = list(after.tools)
        if gone := [name for name in before.tools if name not in after.tools]:
            change["r"] = gone
    if after.settings != before.settings:
        change |= _settings(before.settings, after.settings, shelf)
    if after.withheld != before.withheld:
        change["w"] = after.withheld
    if after.purpose != before.purpose:
        change["p"] = after.purpose
    if after.model is not before.model:
        change["m"] = model_name(after)
    return change


def _system(
    before: tuple[Section, ...], after: tuple[Section, ...], shelf: Shelf
) -> dict[str, Any]:
    parts, gone = _sections(before, after)
    made = [part if isinstance(part, int) else _kept(part, shelf) for part in parts]
    lost = [[at, *_kept(before[at], shelf)] for at in gone]
    return {"s": made, **({"k": lost} if lost else {})}


def _settings(before: Mapping[str, Any], after: Mapping[str, Any], shelf: Shelf) -> dict[str, Any]:
    changed = {key: value for key, value in after.items() if before.get(key, before) != value}
    gone = [key for key in before if key not in after]
    return {"o": shelf.keep(changed), **({"x": gone} if gone else {})}


def _sections(
    before: tuple[Section, ...], after: tuple[Section, ...]
) -> tuple[list[int | Section], list[int]]:
    """Return each section or its place before, and the places of those that are gone."""
    places: dict[Section, list[int]] = {}
    for at, section in enumerate(before):
        places.setdefault(section, []).append(at)
    made: list[int | Section] = []
    for section in after:
        held = places.get(section)
        made.append(held.pop(0) if held else section)
    return made, sorted(at for held in places.values() for at in held)


def _kept(section: Section, shelf: Shelf) -> list[Any]:
    return [section.source, shelf.keep(section.text)]


def result_parts(result: ToolResult) -> dict[str, Any]:
    """Return what a result holds that is not empty."""
    parts = {
        "output": result.output,
        "error": result.error,
        "content": result.content,
        "update": None if result.update is None else dict(result.update),
        "artifact": result.artifact,
    }
    return {key: value for key, value in parts.items() if value is not None}


def is_same_result(one: ToolResult, other: ToolResult) -> bool:
    """Say whether two results say the same, whatever call they answer."""
    return one is other or (
        one.output is other.output
        and one.error is other.error
        and one.content is other.content
        and one.update is other.update
        and one.artifact is other.artifact
    )
