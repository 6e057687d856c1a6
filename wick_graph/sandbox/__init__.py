"""Levels of confinement for commands on the host; `backends` runs the commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wick_graph.lazy import load_when_used

if TYPE_CHECKING:
    from wick_graph.sandbox.levels import HOLDS, PROBE, choose
    from wick_graph.sandbox.plan import Bind, Launch, Level, Sandbox, Setting

__all__ = ["HOLDS", "PROBE", "Bind", "Launch", "Level", "Sandbox", "Setting", "choose"]

if not TYPE_CHECKING:
    __getattr__ = load_when_used(
        __name__,
        {
            "wick_graph.sandbox.levels": ("HOLDS", "PROBE", "choose"),
            "wick_graph.sandbox.plan": ("Bind", "Launch", "Level", "Sandbox", "Setting"),
        },
    )
