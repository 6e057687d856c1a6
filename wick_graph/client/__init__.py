"""Use a `wick serve` from Python: `Client` blocks, `AsyncClient` awaits.

    with Client("http://127.0.0.1:8000", token="wk_…") as wick:
        for event in wick.stream("What is 21*2?"):
            print(event)

A broken stream reconnects automatically after the last event received, even if the server was
killed and restarted: every event arrives exactly once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wick_graph.lazy import load_when_used

if TYPE_CHECKING:
    from wick_graph.client.client import AsyncClient, Client
    from wick_graph.client.wire import Answer
    from wick_graph.errors import ServerError

__all__ = ["Answer", "AsyncClient", "Client", "ServerError"]

if not TYPE_CHECKING:
    __getattr__ = load_when_used(
        __name__,
        {
            "wick_graph.client.client": ("AsyncClient", "Client"),
            "wick_graph.client.wire": ("Answer",),
            "wick_graph.errors": ("ServerError",),
        },
    )
