"""Hooks: code that takes part in the loop, compiled into the nodes' wrappers.

The built-in hooks are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wick_graph.lazy import load_when_used

if TYPE_CHECKING:
    from wick_graph.hooks.approvals import ApprovalHook, Approve, Edit, Reject, Respond
    from wick_graph.hooks.budget import Budget, BudgetHook
    from wick_graph.hooks.filesystem import FilesystemHook
    from wick_graph.hooks.guardrails import InputGuardrail, OutputGuardrail
    from wick_graph.hooks.memory import MemoryHook
    from wick_graph.hooks.onion import Hooks, Layer, compile_hooks
    from wick_graph.hooks.protocol import (
        PHASES,
        BaseHook,
        HookContext,
        ModelCallNext,
        ToolCallNext,
        Tripwire,
        Verdict,
        in_place,
    )
    from wick_graph.hooks.recall import Recall
    from wick_graph.hooks.skills import LazySkillsHook, SkillsHook
    from wick_graph.hooks.summarization import SummarizationHook
    from wick_graph.hooks.todolist import TodoListHook
    from wick_graph.hooks.tracing import TracingHook

__all__ = [
    "PHASES",
    "ApprovalHook",
    "Approve",
    "BaseHook",
    "Budget",
    "BudgetHook",
    "Edit",
    "FilesystemHook",
    "HookContext",
    "Hooks",
    "InputGuardrail",
    "Layer",
    "LazySkillsHook",
    "MemoryHook",
    "ModelCallNext",
    "OutputGuardrail",
    "Recall",
    "Reject",
    "Respond",
    "SkillsHook",
    "SummarizationHook",
    "TodoListHook",
    "ToolCallNext",
    "TracingHook",
    "Tripwire",
    "Verdict",
    "compile_hooks",
    "in_place",
]

if not TYPE_CHECKING:
    __getattr__ = load_when_used(
        __name__,
        {
            "wick_graph.hooks.approvals": ("ApprovalHook", "Approve", "Edit", "Reject", "Respond"),
            "wick_graph.hooks.budget": ("Budget", "BudgetHook"),
            "wick_graph.hooks.filesystem": ("FilesystemHook",),
            "wick_graph.hooks.guardrails": ("InputGuardrail", "OutputGuardrail"),
            "wick_graph.hooks.memory": ("MemoryHook",),
            "wick_graph.hooks.onion": ("Hooks", "Layer", "compile_hooks"),
            "wick_graph.hooks.protocol": (
                "BaseHook",
                "HookContext",
                "ModelCallNext",
                "PHASES",
                "ToolCallNext",
                "Tripwire",
                "Verdict",
                "in_place",
            ),
            "wick_graph.hooks.recall": ("Recall",),
            "wick_graph.hooks.skills": ("LazySkillsHook", "SkillsHook"),
            "wick_graph.hooks.summarization": ("SummarizationHook",),
            "wick_graph.hooks.todolist": ("TodoListHook",),
            "wick_graph.hooks.tracing": ("TracingHook",),
        },
    )
