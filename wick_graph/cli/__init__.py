"""The command `wick`: thin wrappers of the Python API. Each command imports only what it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wick_graph.lazy import load_when_used

if TYPE_CHECKING:
    from wick_graph.cli.app import main

__all__ = ["main"]

if not TYPE_CHECKING:
    __getattr__ = load_when_used(__name__, {"wick_graph.cli.app": ("main",)})
