"""The agents over HTTP.

options   limits and addresses          guard     what stands before every route
service   tenants, their going up and down      asking    who asks, and what is theirs
runs live log    detached runs, their numbered events    sse       events on the wire
routes/   the paths                     forms answers completions problems    in and out
app       all of it as one application  serving   the process around it
"""

from wick_graph.server.app import create_app
from wick_graph.server.options import Limits, ServerOptions
from wick_graph.server.service import Service

__all__ = ["Limits", "ServerOptions", "Service", "create_app"]
