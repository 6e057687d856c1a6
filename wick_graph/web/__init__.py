"""HTTP to addresses that others may have chosen: nothing private is reached unless allowed."""

from __future__ import annotations

from wick_graph.web.addresses import refusal
from wick_graph.web.client import Answer, Client, check_headers
from wick_graph.web.target import Target

__all__ = ["Answer", "Client", "Target", "check_headers", "refusal"]
