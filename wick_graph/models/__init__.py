"""Models: from a name in a configuration to a chat model that is called with care.

`resolve_model` builds the model; `RetryPolicy`, `retry_delay` and `classify` decide what to do
when a call of it fails. No provider's package is imported before a model of it is built.
"""

from wick_graph.models.resolve import ModelChoice, resolve_model
from wick_graph.models.retry import RetryPolicy, classify, retry_delay

__all__ = ["ModelChoice", "RetryPolicy", "classify", "resolve_model", "retry_delay"]
