"""LangChain's agent middleware as hooks, without rewriting it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wick_graph.lazy import load_when_used

if TYPE_CHECKING:
    from wick_graph.middleware.adapter import (
        MiddlewareHook,
        make,
        make_object,
        must_exist,
        must_hold_nothing,
        own_hook,
    )

__all__ = ["MiddlewareHook", "make", "make_object", "must_exist", "must_hold_nothing", "own_hook"]

if not TYPE_CHECKING:
    __getattr__ = load_when_used(__name__, {"wick_graph.middleware.adapter": (*__all__,)})
