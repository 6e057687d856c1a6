"""The agents over HTTP.

app          the application, of all of the below
guard        checks before every route, and the caller's context
routes/      the paths
protocols/   OpenAI's API
schemas      bodies of requests and answers
sse          events on the wire
process      the process around the application: its socket, its signals, its log
embedded     a server inside your own program: in the background, or mounted
tool_server  Python functions as HTTP tools

Tenants, runs and their event logs are in `wick_graph.service`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wick_graph.lazy import load_when_used

if TYPE_CHECKING:
    from wick_graph.server.app import create_app
    from wick_graph.server.embedded import Server
    from wick_graph.service.options import Limits, ServerOptions
    from wick_graph.service.service import Service

__all__ = ["Limits", "Server", "ServerOptions", "Service", "create_app"]

if not TYPE_CHECKING:
    __getattr__ = load_when_used(
        __name__,
        {
            "wick_graph.server.app": ("create_app",),
            "wick_graph.server.embedded": ("Server",),
            "wick_graph.service.options": ("Limits", "ServerOptions"),
            "wick_graph.service.service": ("Service",),
        },
    )
