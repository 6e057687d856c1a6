"""Models: from a name in a configuration to a chat model that is called with care.

`resolve_model` builds the model; `RetryPolicy`, `retry_delay` and `classify` decide what to do
when a call of it fails. No provider's package is imported before a model of it is built.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from wick_graph.models.resolve import ModelChoice, resolve_model
    from wick_graph.models.retry import RetryPolicy, classify, retry_delay

__all__ = ["ModelChoice", "RetryPolicy", "classify", "resolve_model", "retry_delay"]

_HOME: Final = {
    "ModelChoice": "resolve",
    "RetryPolicy": "retry",
    "classify": "retry",
    "resolve_model": "resolve",
    "retry_delay": "retry",
}


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'wick_graph.models' has no attribute {name!r}")
    value = getattr(import_module(f"wick_graph.models.{home}"), name)
    globals()[name] = value
    return value
