"""Named levels of confinement for commands on this machine; the runner is in `backends`."""

from __future__ import annotations

from wick_graph.sandbox.levels import HOLDS, PROBE, choose
from wick_graph.sandbox.plan import Bind, Launch, Level, Sandbox, Setting

__all__ = ["HOLDS", "PROBE", "Bind", "Launch", "Level", "Sandbox", "Setting", "choose"]
