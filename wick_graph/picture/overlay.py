"""What a run adds to the picture of its graph: counts, times, tokens and errors, as plain data.

Whoever recorded the run fills it in. Boxes are named as in `Picture`: START and END for the ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from wick_graph.picture.words import clean, count, span

Edge = tuple[str, str]
"""Source and target; edges between the same two boxes share their numbers."""
LayerKey = tuple[str, str]
"""Phase and hook."""


@dataclass(frozen=True, slots=True)
class Tally:
    """What went on at one place."""

    visits: int = 0
    seconds: float | None = None
    """Added up over all visits; None where nothing measured it."""
    input_tokens: int = 0
    output_tokens: int = 0
    errors: int = 0

    def __add__(self, other: Tally) -> Tally:
        """Add two counts; a time that is unknown adds nothing."""
        times = [t for t in (self.seconds, other.seconds) if t is not None]
        return Tally(
            self.visits + other.visits,
            sum(times) if times else None,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.errors + other.errors,
        )

    def to_dict(self) -> dict[str, Any]:
        """Give plain data."""
        seconds = None if self.seconds is None else round(self.seconds, 6)
        return {
            "visits": self.visits,
            "seconds": seconds,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "errors": self.errors,
        }

    def parts(self, word: str = "visit") -> list[str]:
        """Say it in short pieces, the errors last; nothing where nothing happened."""
        said = [count(self.visits, word)] if self.visits and word else []
        if self.seconds is not None:
            said.append(span(self.seconds))
        if self.input_tokens or self.output_tokens:
            said.append(f"{self.input_tokens:,} tokens in, {self.output_tokens:,} out")
        if self.errors:
            said.append(count(self.errors, "error"))
        return said

    def short(self) -> str:
        """Say it beside a name: how often, how long, how many errors."""
        said = [f"×{self.visits:,}"] if self.visits else []
        return " · ".join([*said, *self.parts("")])


NOTHING: Final = Tally()


@dataclass(frozen=True, slots=True)
class RunOverlay:
    """A run, or all runs of a thread, laid over the graph."""

    thread_id: str
    status: str = ""
    """Why it stopped, or where it stands: `done`, `limit`, `interrupted`, `failed`, …"""
    total: Tally = NOTHING
    """The whole; `visits` counts supersteps."""
    nodes: Mapping[str, Tally] = field(default_factory=dict)
    """By box; `visits` counts tasks, so each of several parallel calls."""
    edges: Mapping[Edge, Tally] = field(default_factory=dict)
    """By edge; `visits` counts how often the way was taken, once for parallel tasks."""
    layers: Mapping[LayerKey, Tally] = field(default_factory=dict)
    """By phase and hook."""
    tools: Mapping[str, Tally] = field(default_factory=dict)
    """By tool name; `visits` counts calls."""
    path: tuple[str, ...] = ()
    """The boxes in the order in which they ran; tasks of one superstep stand behind each other."""
    at: tuple[str, ...] = ()
    """The boxes that come next, if the thread has not reached its end."""
    notes: tuple[str, ...] = ()
    """What the numbers do not say, one sentence each."""

    def cleaned(self) -> RunOverlay:
        """Return it with every name of a hook, tool or thread made safe to draw."""
        return replace(
            self,
            thread_id=clean(self.thread_id, 128),
            status=clean(self.status),
            layers={(phase, clean(hook)): tally for (phase, hook), tally in self.layers.items()},
            tools={clean(name): tally for name, tally in self.tools.items()},
            notes=tuple(clean(note, 300) for note in self.notes),
        )

    def node(self, name: str) -> Tally:
        """Return the numbers of a box."""
        return self.nodes.get(name, NOTHING)

    def edge(self, source: str, target: str) -> Tally:
        """Return the numbers of an edge."""
        return self.edges.get((source, target), NOTHING)

    def layer(self, phase: str, hook: str) -> Tally:
        """Return the numbers of a hook in a phase."""
        return self.layers.get((phase, hook), NOTHING)

    def tool(self, name: str) -> Tally:
        """Return the numbers of a tool."""
        return self.tools.get(name, NOTHING)

    def place(self, box: str) -> str:
        """Say what holds the thread at a box, if it stands there."""
        if box not in self.at:
            return ""
        return {"interrupted": "waits here", "failed": "failed here"}.get(self.status, "comes next")

    def headline(self) -> list[str]:
        """Say what run this is, in short pieces."""
        return [f"thread {self.thread_id}", *filter(None, [self.status]), *self.total.parts("step")]

    def to_dict(self) -> dict[str, Any]:
        """Give plain data; pairs become lists of objects, in order."""
        return {
            "thread_id": self.thread_id,
            "status": self.status,
            "total": self.total.to_dict(),
            "nodes": {name: tally.to_dict() for name, tally in self.nodes.items()},
            "edges": [
                {"source": source, "target": target, **tally.to_dict()}
                for (source, target), tally in self.edges.items()
            ],
            "layers": [
                {"phase": phase, "hook": hook, **tally.to_dict()}
                for (phase, hook), tally in self.layers.items()
            ],
            "tools": {name: tally.to_dict() for name, tally in self.tools.items()},
            "path": list(self.path),
            "at": list(self.at),
            "notes": list(self.notes),
        }
