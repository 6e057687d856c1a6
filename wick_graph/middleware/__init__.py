"""LangChain's agent middleware as hooks, without rewriting it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wick_graph.lazy import load_when_used

if TYPE_CHECKING:
    from wick_graph.middleware.adapter import MiddlewareHook, make, must_exist, must_hold_nothing

__all__ = ["MiddlewareHook", "make", "must_exist", "must_hold_nothing"]

if not TYPE_CHECKING:
    __getattr__ = load_when_used(
        __name__,
        {
            "wick_graph.middleware.adapter": (
                "MiddlewareHook",
                "make",
                "must_exist",
                "must_hold_nothing",
            )
        },
    )
