"""LangChain's agent middleware as hooks: used as it is, not rewritten."""

from __future__ import annotations

from wick_graph.middleware.adapter import MiddlewareHook
from wick_graph.middleware.named import make
from wick_graph.middleware.roots import must_hold_nothing

__all__ = ["MiddlewareHook", "make", "must_hold_nothing"]
