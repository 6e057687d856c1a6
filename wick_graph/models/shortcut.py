"""A shorter way to a chat model, taken only when nobody could tell the difference.

`BaseChatModel.invoke` builds a callback manager, formats the prompt for tracers and opens a run.
Where no handler, tracer or context hook listens, all of that is for nobody. What remains is the
very method that `invoke` ends in, with its cache, rate limiter and streaming switches.
"""

from __future__ import annotations

from typing import Any, Final

from langchain_core.globals import get_debug
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import Runnable
from langchain_core.runnables.base import RunnableBinding
from langchain_core.tracers.context import _configure_hooks

_METHODS: Final = (
    *("invoke", "ainvoke", "generate", "agenerate", "generate_prompt", "agenerate_prompt"),
    *("_generate_with_cache", "_agenerate_with_cache"),
)
"""A model that overrides one of these does something there that the shorter way would miss."""

Way = tuple[BaseChatModel, dict[str, Any]]


def shorter_way(
    bound: Runnable[Any, Any], messages: list[BaseMessage], config: dict[str, Any]
) -> Way | None:
    """Return the model and its arguments where the short way is the same, else None."""
    model, arguments = _unbound(bound)
    if model is None or not _is_plain(model) or _somebody_listens(model, config):
        return None
    if any(type(message.content) is not str for message in messages):
        return None  # content blocks are brought into the provider's form on the long way
    return model, arguments


def generate(way: Way, messages: list[BaseMessage]) -> AIMessage:
    """Call the model."""
    model, arguments = way
    return _message(model._generate_with_cache(messages, **arguments))


async def agenerate(way: Way, messages: list[BaseMessage]) -> AIMessage:
    """Await the model."""
    model, arguments = way
    return _message(await model._agenerate_with_cache(messages, **arguments))


def _message(result: Any) -> AIMessage:
    message: AIMessage = result.generations[0].message
    return message


def _unbound(bound: Runnable[Any, Any]) -> tuple[BaseChatModel | None, dict[str, Any]]:
    if isinstance(bound, BaseChatModel):
        return bound, {}
    if isinstance(bound, RunnableBinding) and not bound.config and not bound.config_factories:
        model, plain = bound.bound, type(bound).ainvoke is RunnableBinding.ainvoke
        if plain and isinstance(model, BaseChatModel):
            return model, dict(bound.kwargs)
    return None, {}


def _is_plain(model: BaseChatModel) -> bool:
    kind = type(model)
    known = _PLAIN.get(kind)
    if known is None:
        own = all(getattr(kind, name) is getattr(BaseChatModel, name) for name in _METHODS)
        known = _PLAIN[kind] = own
    return known


_PLAIN: Final[dict[type, bool]] = {}


def _somebody_listens(model: BaseChatModel, config: dict[str, Any]) -> bool:
    if model.callbacks or model.verbose or get_debug():
        return True
    callbacks = config.get("callbacks")
    # Inside a graph this is a manager, to which LangGraph has added whatever traces the run.
    handlers = callbacks if isinstance(callbacks, list) else getattr(callbacks, "handlers", None)
    if handlers is None or handlers:
        return True
    return any(variable.get() is not None for variable, *_ in _configure_hooks)
