"""Models: from a name in a configuration to a chat model, with retries and fallbacks.

`resolve_model` builds the model; `RetryPolicy`, `retry_delay` and `classify` decide what to do
when a call fails. A provider's package is imported only when one of its models is built.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wick_graph.lazy import load_when_used

if TYPE_CHECKING:
    from wick_graph.models.resolve import ModelChoice, resolve_model
    from wick_graph.models.retry import RetryPolicy, classify, retry_delay
    from wick_graph.models.structured import NativeOutput, PromptedOutput, ToolOutput

__all__ = [
    "ModelChoice",
    "NativeOutput",
    "PromptedOutput",
    "RetryPolicy",
    "ToolOutput",
    "classify",
    "resolve_model",
    "retry_delay",
]

if not TYPE_CHECKING:
    __getattr__ = load_when_used(
        __name__,
        {
            "wick_graph.models.resolve": ("ModelChoice", "resolve_model"),
            "wick_graph.models.retry": ("RetryPolicy", "classify", "retry_delay"),
            "wick_graph.models.structured": ("NativeOutput", "PromptedOutput", "ToolOutput"),
        },
    )
