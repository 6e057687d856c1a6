"""The debugger: step through an agent's run, live or recorded, forwards and backwards.

    from wick_graph.debug import DebugSession

    with DebugSession.open(agent, "th_…") as session:
        session.add("break tool:* if error")
        stop = session.cont()
        print(stop.text, session.why("messages[-1].content"))

Moving over a recording executes nothing. Running live, forking and replaying are separate methods,
and `will_execute` lists in advance what they would do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wick_graph.lazy import load_when_used

if TYPE_CHECKING:
    from wick_graph.debug.breakpoints import Breakpoint, BreakpointSet
    from wick_graph.debug.comparison import Comparison
    from wick_graph.debug.cursor import VERBS
    from wick_graph.debug.fork import Plan, Planned
    from wick_graph.debug.inspector import Inspector, RequestView, RouteView
    from wick_graph.debug.policy import Mock, Policy
    from wick_graph.debug.provenance import Cause
    from wick_graph.debug.recording import Recording, record
    from wick_graph.debug.session import DebugSession, hears
    from wick_graph.debug.timeline import Branch, Position
    from wick_graph.debug.types import Frame, Output, Stop
    from wick_graph.debug.values import Change

__all__ = [
    "VERBS",
    "Branch",
    "Breakpoint",
    "BreakpointSet",
    "Cause",
    "Change",
    "Comparison",
    "DebugSession",
    "Frame",
    "Inspector",
    "Mock",
    "Output",
    "Plan",
    "Planned",
    "Policy",
    "Position",
    "Recording",
    "RequestView",
    "RouteView",
    "Stop",
    "hears",
    "record",
]

if not TYPE_CHECKING:
    __getattr__ = load_when_used(
        __name__,
        {
            "wick_graph.debug.breakpoints": ("Breakpoint", "BreakpointSet"),
            "wick_graph.debug.comparison": ("Comparison",),
            "wick_graph.debug.cursor": ("VERBS",),
            "wick_graph.debug.fork": ("Plan", "Planned"),
            "wick_graph.debug.inspector": ("Inspector", "RequestView", "RouteView"),
            "wick_graph.debug.policy": ("Mock", "Policy"),
            "wick_graph.debug.provenance": ("Cause",),
            "wick_graph.debug.recording": ("Recording", "record"),
            "wick_graph.debug.session": ("DebugSession", "hears"),
            "wick_graph.debug.timeline": ("Branch", "Position"),
            "wick_graph.debug.types": ("Frame", "Output", "Stop"),
            "wick_graph.debug.values": ("Change",),
        },
    )
