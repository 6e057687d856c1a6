"""Hooks: code that takes part in the loop, compiled into the nodes' wrappers.

The built-in hooks are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

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

if TYPE_CHECKING:
    from wick_graph.hooks.approvals import ApprovalHook, Approve, Edit, Reject, Respond
    from wick_graph.hooks.budget import Budget, BudgetHook
    from wick_graph.hooks.filesystem import FilesystemHook
    from wick_graph.hooks.lazy_skills import LazySkillsHook
    from wick_graph.hooks.memory import MemoryHook
    from wick_graph.hooks.skills import SkillsHook
    from wick_graph.hooks.summarization import SummarizationHook
    from wick_graph.hooks.todolist import TodoListHook
    from wick_graph.hooks.tracing import TracingHook

__all__ = (
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
    "Layer",
    "LazySkillsHook",
    "MemoryHook",
    "ModelCallNext",
    "Reject",
    "Respond",
    "SkillsHook",
    "SummarizationHook",
    "TodoListHook",
    "ToolCallNext",
    "TracingHook",
    "Verdict",
    "compile_hooks",
    "in_place",
)

_HOME: Final = {
    "ApprovalHook": "approvals",
    "Approve": "approvals",
    "Budget": "budget",
    "BudgetHook": "budget",
    "Edit": "approvals",
    "FilesystemHook": "filesystem",
    "LazySkillsHook": "lazy_skills",
    "MemoryHook": "memory",
    "Reject": "approvals",
    "Respond": "approvals",
    "SkillsHook": "skills",
    "SummarizationHook": "summarization",
    "TodoListHook": "todolist",
    "TracingHook": "tracing",
}


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'wick_graph.hooks' has no attribute {name!r}")
    value = getattr(import_module(f"wick_graph.hooks.{home}"), name)
    globals()[name] = value
    return value
