"""The graph's nodes: one file each, and each file one `async def body(state, ctx) -> update`.

    START → before_agent → modify_request → model ─ route: tools → tools → modify_request …
                                                  └ route: end → END

A body awaits only the leaves of `ctx.io` (`wick_graph.drive`), so the same body serves `invoke`
and `ainvoke`. The files are installed as `wick_graph.nodes`; they hold functions only.
"""

from wick_graph.nodes.before_agent import before_agent
from wick_graph.nodes.model import model
from wick_graph.nodes.modify_request import modify_request
from wick_graph.nodes.route import Decision, decide, route
from wick_graph.nodes.tools import tools

__all__ = ("Decision", "before_agent", "decide", "model", "modify_request", "route", "tools")
