"""Where files and commands live; the engine reaches them through these objects alone."""

from __future__ import annotations

from wick_graph.backends.guard import Rules
from wick_graph.backends.local import LocalBackend
from wick_graph.backends.obeyed import OBEYED
from wick_graph.backends.places import ExtraRoot
from wick_graph.backends.protocol import (
    Edited,
    Entry,
    Executed,
    FileSystem,
    Found,
    Listing,
    Match,
    Matches,
    Stop,
    Text,
    Written,
)
from wick_graph.backends.root import Root

__all__ = [
    "OBEYED",
    "Edited",
    "Entry",
    "Executed",
    "ExtraRoot",
    "FileSystem",
    "Found",
    "Listing",
    "LocalBackend",
    "Match",
    "Matches",
    "Root",
    "Rules",
    "Stop",
    "Text",
    "Written",
]
