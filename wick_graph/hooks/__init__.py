"""Hooks: code that takes part in the loop, compiled into the nodes' wrappers."""

from wick_graph.hooks.compile import Hooks, Layer, compile_hooks
from wick_graph.hooks.protocol import (
    PHASES,
    BaseHook,
    HookContext,
    ModelCallNext,
    ToolCallNext,
    Verdict,
    in_place,
)

__all__ = (
    "PHASES",
    "BaseHook",
    "HookContext",
    "Hooks",
    "Layer",
    "ModelCallNext",
    "ToolCallNext",
    "Verdict",
    "compile_hooks",
    "in_place",
)
