"""A shorter way to call a chat model, taken only if the result is the same.

`BaseChatModel.invoke` builds a callback manager, formats the prompt for tracers and opens a run.
Without a handler, tracer or context hook all of that is wasted. The short way calls the method
that `invoke` ends in, with its cache, rate limiter and streaming switches; if none of these is in
use either, it calls the model's own method.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Final

from langchain_core.globals import get_debug, get_llm_cache
from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.chat_models import _gen_info_and_msg_metadata
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.runnables import Runnable
from langchain_core.runnables.base import RunnableBinding
from langchain_core.tracers.context import _configure_hooks

from wick_graph import langgraph_config
from wick_graph.messages.base import MARK_KEY, TIMESTAMP_KEY, PrefixTexts, changed_copy

_METHODS: Final = (
    *("invoke", "ainvoke", "generate", "agenerate", "generate_prompt", "agenerate_prompt"),
    *("_generate_with_cache", "_agenerate_with_cache"),
)
"""A model that overrides one of these may do something that the short way would miss."""

_STREAMING: Final = ("stream", "astream")

_FOR_TRACERS: Final = ("ls_structured_output_format", "structured_output_format")
"""Arguments that `stream` removes before it calls the model."""

Way = tuple[BaseChatModel, dict[str, Any]]


def shorter_way(
    bound: Runnable[Any, Any],
    messages: list[BaseMessage],
    config: Mapping[str, Any],
    texts: PrefixTexts,
) -> Way | None:
    """Return the model and its arguments if the short way gives the same result, else None."""
    model, arguments = _unbound(bound)
    if model is None or not _is_plain(model) or _has_listeners(model, config):
        return None
    if not texts.hold(messages):
        return None  # only the long way converts content blocks into the provider's form
    return model, arguments


def generate(way: Way, messages: list[BaseMessage]) -> AIMessage:
    """Call the model."""
    model, arguments = way
    if _is_bare(model, arguments, "_generate"):
        return _with_metadata(model._generate(messages, **arguments))
    return _message(model._generate_with_cache(messages, **arguments))


async def agenerate(way: Way, messages: list[BaseMessage]) -> AIMessage:
    """Await the model."""
    model, arguments = way
    if _is_bare(model, arguments, "_agenerate"):
        return _with_metadata(await model._agenerate(messages, **arguments))
    return _message(await model._agenerate_with_cache(messages, **arguments))


def shorter_stream(
    bound: Runnable[Any, Any],
    messages: list[BaseMessage],
    config: dict[str, Any],
    texts: PrefixTexts,
    *,
    is_async: bool,
) -> Way | None:
    """Return the model and its arguments if it can stream the short way, else None."""
    way = shorter_way(bound, messages, config, texts)
    if way is None or not _is_plain(way[0], _STREAMING) or way[0].output_version == "v1":
        return None
    model, arguments = way
    if any(name in arguments for name in _FOR_TRACERS):
        return None
    streams = model._should_stream(async_api=is_async, **{**arguments, "stream": True})
    return way if streams else None


def pieces(way: Way, messages: list[BaseMessage]) -> Iterator[ChatGenerationChunk]:
    """Begin the model's reply; `message_of` makes messages of its pieces."""
    model, arguments = way
    if model.rate_limiter:
        model.rate_limiter.acquire(blocking=True)
    return model._stream(messages, **arguments)


async def apieces(way: Way, messages: list[BaseMessage]) -> AsyncIterator[ChatGenerationChunk]:
    """Begin the model's reply; see `pieces`."""
    model, arguments = way
    if model.rate_limiter:
        await model.rate_limiter.aacquire(blocking=True)
    return model._astream(messages, **arguments)


def message_of(piece: ChatGenerationChunk) -> Any:
    """Return the message of a piece, with the provider's metadata."""
    held = piece.__dict__
    if held["generation_info"]:
        held["message"].response_metadata = _gen_info_and_msg_metadata(piece)
    return held["message"]


def is_cached(model: BaseChatModel) -> bool:
    """Say whether LangChain looks requests up in a cache, with whole messages as the key."""
    return bool(model.cache is not False and (model.cache or get_llm_cache() is not None))


def as_key(messages: list[BaseMessage]) -> list[BaseMessage]:
    """Return messages without the engine's notes, so that equal requests have one cache key."""
    return [
        changed_copy(
            message,
            additional_kwargs=_without(message.additional_kwargs, TIMESTAMP_KEY),
            response_metadata=_without(message.response_metadata, MARK_KEY),
        )
        for message in messages
    ]


def _without(notes: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in notes.items() if key != name}


def _is_bare(model: BaseChatModel, arguments: dict[str, Any], method: str) -> bool:
    """Say whether the call can go straight to the model's own method."""
    if is_cached(model) or model.rate_limiter or model.output_version == "v1":
        return False
    if model._should_stream(async_api=method == "_agenerate", **arguments):
        return False
    key = (type(model), method)
    known = _MANAGED.get(key)
    if known is None:
        manager = inspect.signature(getattr(model, method)).parameters.get("run_manager")
        known = _MANAGED[key] = manager is not None and manager.default is manager.empty
    return not known


_MANAGED: Final[dict[tuple[type, str], bool]] = {}
"""Whether a model's method cannot be called without a callback manager."""


def _with_metadata(result: Any) -> AIMessage:
    """Return the reply with the provider's metadata, as LangChain does."""
    generation = result.generations[0]
    message: AIMessage = generation.message
    if generation.generation_info:
        message.response_metadata = _gen_info_and_msg_metadata(generation)
    if len(result.generations) == 1 and result.llm_output is not None:
        message.response_metadata = {**result.llm_output, **message.response_metadata}
    return message


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


def _is_plain(model: BaseChatModel, methods: tuple[str, ...] = _METHODS) -> bool:
    key = (type(model), methods)
    known = _PLAIN.get(key)
    if known is None:
        own = all(getattr(key[0], name) is getattr(BaseChatModel, name) for name in methods)
        known = _PLAIN[key] = own
    return known


_PLAIN: Final[dict[tuple[type, tuple[str, ...]], bool]] = {}


def _has_listeners(model: BaseChatModel, config: Mapping[str, Any]) -> bool:
    if model.callbacks or model.verbose or get_debug():
        return True
    # Inside a graph a manager holds them, and LangGraph has added the run's tracers to it.
    handlers = langgraph_config.handlers_of(config)
    if handlers is None or handlers:
        return True
    return any(variable.get() is not None for variable, *_ in _configure_hooks)
