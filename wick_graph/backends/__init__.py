"""Backends for files and commands; the engine reaches both through these objects alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wick_graph.lazy import load_when_used

if TYPE_CHECKING:
    from wick_graph.backends.guard import OBEYED, Rules
    from wick_graph.backends.local import LocalBackend
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

if not TYPE_CHECKING:
    __getattr__ = load_when_used(
        __name__,
        {
            "wick_graph.backends.guard": ("OBEYED", "Rules"),
            "wick_graph.backends.local": ("LocalBackend",),
            "wick_graph.backends.places": ("ExtraRoot",),
            "wick_graph.backends.protocol": (
                "Edited",
                "Entry",
                "Executed",
                "FileSystem",
                "Found",
                "Listing",
                "Match",
                "Matches",
                "Stop",
                "Text",
                "Written",
            ),
            "wick_graph.backends.root": ("Root",),
        },
    )
