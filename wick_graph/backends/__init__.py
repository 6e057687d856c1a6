"""Where files and commands live; the engine reaches them through these objects alone."""

from __future__ import annotations

from wick_graph.backends.root import Entry, Root

__all__ = ["Entry", "Root"]
