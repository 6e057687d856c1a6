"""Who is calling: the purpose and the agent, carried in the metadata of the call's config.

LangChain hands a call's metadata to `_generate` (through the run manager) but not to `_stream`;
there it travels as a keyword argument, which the class below adds where it is missing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Final

from langchain_core.callbacks import (
    AsyncCallbackManagerForLLMRun,
    BaseCallbackManager,
    CallbackManagerForLLMRun,
)
from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatResult
from langchain_core.runnables.config import RunnableConfig, ensure_config

from wick_graph.testing.binding import BindsTools

PURPOSE: Final = "wick_purpose"
"""The metadata key of what a call is for; `agent` where it is missing."""
AGENT: Final = "wick_agent"
"""The metadata key of the agent's name."""

_KEYS: Final = (PURPOSE, AGENT)


def take_caller(
    run_manager: CallbackManagerForLLMRun | AsyncCallbackManagerForLLMRun | None,
    kwargs: dict[str, Any],
) -> tuple[str, str]:
    """Return purpose and agent, and take them out of the keyword arguments."""
    known = dict(run_manager.metadata) if run_manager and run_manager.metadata else {}
    for key in _KEYS:
        if key in kwargs:
            known[key] = kwargs.pop(key)
    return str(known.get(PURPOSE) or "agent"), str(known.get(AGENT) or "")


class TellsCaller(BindsTools):
    """A chat model whose streams know who is calling."""

    def stream(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        *,
        stop: list[str] | None = None,
        **kwargs: Any,
    ) -> Iterator[AIMessageChunk]:
        """Stream a reply; see `BaseChatModel`."""
        told = {**_told_by_config(config), **kwargs}
        return super().stream(input, config, stop=stop, **told)

    def astream(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        *,
        stop: list[str] | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[AIMessageChunk]:
        """Stream a reply; see `BaseChatModel`."""
        told = {**_told_by_config(config), **kwargs}
        return super().astream(input, config, stop=stop, **told)

    def _generate_with_cache(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        told = {**_told_by(run_manager.metadata if run_manager else None), **kwargs}
        return super()._generate_with_cache(messages, stop, run_manager, **told)

    async def _agenerate_with_cache(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        told = {**_told_by(run_manager.metadata if run_manager else None), **kwargs}
        return await super()._agenerate_with_cache(messages, stop, run_manager, **told)


def _told_by(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    return {key: metadata[key] for key in _KEYS if key in metadata} if metadata else {}


def _told_by_config(config: RunnableConfig | None) -> dict[str, Any]:
    known = ensure_config(config)
    callbacks = known.get("callbacks")
    inherited = callbacks.metadata if isinstance(callbacks, BaseCallbackManager) else None
    return {**_told_by(inherited), **_told_by(known.get("metadata"))}
