"""The command `wick`: thin faces over the Python door; each command imports what it needs."""

from wick_graph.cli.app import main

__all__ = ("main",)
