"""Models for tests: one records another's answers, one replays recorded answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    BaseMessageChunk,
    message_chunk_to_message,
)
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from pydantic import PrivateAttr

from wick_graph.journal.cassette import Cassette, CassetteWriter
from wick_graph.journal.journal import Journal
from wick_graph.messages.content import json_text
from wick_graph.models.scripted.model import BindsTools

_OURS = ("wick_purpose", "wick_agent")


class ReplayModel(BindsTools):
    """Replay recorded answers from a thread's journal or a file of a `RecordingModel`.

    An unrecorded request raises `ReplayError`, which shows the nearest recorded request and the
    difference. No other model is ever called.
    """

    _cassette: Cassette = PrivateAttr()

    def __init__(
        self, source: Journal | str | Path, run: int | str | None = None, **settings: Any
    ) -> None:
        """Read a recording; `run` chooses one run of a journal."""
        super().__init__(**settings)
        self._cassette = Cassette.of(source, run)

    @property
    def cassette(self) -> Cassette:
        """The recorded answers."""
        return self._cassette

    @property
    def _llm_type(self) -> str:
        return "replay"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        tools, settings = _asked(stop, kwargs)
        reply = self._cassette.answer(messages, tools, settings)
        return ChatResult(generations=[ChatGeneration(message=reply)])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        tools, settings = _asked(stop, kwargs)
        for chunk in _pieces(self._cassette.answer(messages, tools, settings)):
            yield ChatGenerationChunk(message=chunk)


class RecordingModel(BindsTools):
    """Pass requests on to another model, and record its answers in a file."""

    inner: BaseChatModel

    _writer: CassetteWriter = PrivateAttr()

    def __init__(
        self, inner: BaseChatModel, path: str | Path, *, redact: Sequence[str] = ()
    ) -> None:
        """Record `inner` into a file, which the first answer overwrites.

        The file hides secrets known to this process, and matches of the patterns in `redact`;
        replay still finds the requests.
        """
        super().__init__(inner=inner)  # type: ignore[call-arg]  # a field of this class
        self._writer = CassetteWriter(Path(path), redact)

    def close(self) -> None:
        """Close the file."""
        self._writer.close()

    @property
    def _llm_type(self) -> str:
        return self.inner._llm_type

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        bound, config = self._bound(stop, kwargs), _config(run_manager)
        return self._kept(messages, stop, kwargs, bound.invoke(messages, config))

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        bound, config = self._bound(stop, kwargs), _config(run_manager)
        return self._kept(messages, stop, kwargs, await bound.ainvoke(messages, config))

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        whole: Any = None
        for chunk in self._bound(stop, kwargs).stream(messages, _config(run_manager)):
            whole = chunk if whole is None else whole + chunk
            yield ChatGenerationChunk(message=_chunk(chunk))
        if whole is not None:
            self._kept(messages, stop, kwargs, whole)

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        whole: Any = None
        async for chunk in self._bound(stop, kwargs).astream(messages, _config(run_manager)):
            whole = chunk if whole is None else whole + chunk
            yield ChatGenerationChunk(message=_chunk(chunk))
        if whole is not None:
            self._kept(messages, stop, kwargs, whole)

    def _bound(self, stop: list[str] | None, kwargs: Mapping[str, Any]) -> Runnable[Any, Any]:
        asked = {key: value for key, value in kwargs.items() if key not in _OURS}
        tools = asked.pop("tools", ())
        if stop is not None:
            asked["stop"] = stop
        if tools:
            return self.inner.bind_tools(list(tools), **asked)
        return self.inner.bind(**asked) if asked else self.inner

    def _kept(
        self,
        messages: Sequence[BaseMessage],
        stop: list[str] | None,
        kwargs: Mapping[str, Any],
        reply: Any,
    ) -> ChatResult:
        if isinstance(reply, BaseMessageChunk):
            reply = message_chunk_to_message(reply)
        tools, settings = _asked(stop, kwargs)
        self._writer.add(messages, tools, settings, reply)
        return ChatResult(generations=[ChatGeneration(message=reply)])


def _asked(
    stop: list[str] | None, kwargs: Mapping[str, Any]
) -> tuple[Sequence[Mapping[str, Any]], dict[str, Any]]:
    """Separate bound arguments into tools and request settings."""
    settings = {
        key: value
        for key, value in kwargs.items()
        if key != "tools" and key not in _OURS and not key.startswith("ls_")
    }
    if stop is not None:
        settings["stop"] = stop
    return kwargs.get("tools") or (), settings


def _config(run_manager: Any) -> Any:
    """Return a config for the inner model; only the outer model calls the handlers."""
    return {"callbacks": [], "metadata": dict(getattr(run_manager, "metadata", None) or {})}


def _chunk(message: Any) -> AIMessageChunk:
    if isinstance(message, AIMessageChunk):
        return message
    return next(iter(_pieces(message)))


def _pieces(reply: AIMessage) -> Iterator[AIMessageChunk]:
    """Stream a reply: its text word by word, then the rest."""
    content: Any = reply.content
    if isinstance(content, str):
        *words, content = content.split(" ")
        for word in words:
            yield AIMessageChunk(content=word + " ", id=reply.id)
    chunks = [
        tool_call_chunk(name=c["name"], args=json_text(c["args"]), id=c["id"], index=at)
        for at, c in enumerate(reply.tool_calls)
    ]
    yield AIMessageChunk(
        content=content,
        id=reply.id,
        tool_call_chunks=chunks,
        additional_kwargs=reply.additional_kwargs,
        response_metadata=reply.response_metadata,
        usage_metadata=reply.usage_metadata,
        chunk_position="last",
    )
