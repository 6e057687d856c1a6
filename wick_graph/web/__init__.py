"""HTTP to untrusted addresses: private ones are refused unless allowed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wick_graph.lazy import load_when_used

if TYPE_CHECKING:
    from wick_graph.web.addresses import Target, refusal
    from wick_graph.web.client import Answer, Client, check_headers

__all__ = ["Answer", "Client", "Target", "check_headers", "refusal"]

if not TYPE_CHECKING:
    __getattr__ = load_when_used(
        __name__,
        {
            "wick_graph.web.addresses": ("Target", "refusal"),
            "wick_graph.web.client": ("Answer", "Client", "check_headers"),
        },
    )
