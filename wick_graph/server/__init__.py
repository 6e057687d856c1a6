"""The agents over HTTP.

options   limits and addresses          guard     what stands before every route
service   tenants, their going up and down      asking    who asks, and what is theirs
runs live log    detached runs, their numbered events    sse       events on the wire
routes/   the paths                     forms answers completions problems    in and out
app       all of it as one application  serving   the process around it
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wick_graph.lazy import load_when_used

if TYPE_CHECKING:
    from wick_graph.server.app import create_app
    from wick_graph.service.options import Limits, ServerOptions
    from wick_graph.service.service import Service

__all__ = ["Limits", "ServerOptions", "Service", "create_app"]

if not TYPE_CHECKING:
    __getattr__ = load_when_used(
        __name__,
        {
            "wick_graph.server.app": ("create_app",),
            "wick_graph.service.options": ("Limits", "ServerOptions"),
            "wick_graph.service.service": ("Service",),
        },
    )
