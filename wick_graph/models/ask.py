"""Call a model: streamed when somebody listens to tokens, with retries, then the fallbacks."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage

from wick_graph import keys
from wick_graph.drive import run_to_end
from wick_graph.models.call import ensure_whole, merge_chunks
from wick_graph.models.fitting import Fitting, provider_of
from wick_graph.models.merge import Pieces
from wick_graph.models.retry import classify, retry_delay
from wick_graph.models.shortcut import (
    agenerate,
    apieces,
    as_key,
    generate,
    is_cached,
    pieces,
    shorter_stream,
    shorter_way,
)
from wick_graph.moments import Moment, holds
from wick_graph.request import AGENT, ModelRequest

if TYPE_CHECKING:
    from langchain_core.runnables import Runnable

    from wick_graph.drive import Leaves
    from wick_graph.models.binder import Binder
    from wick_graph.models.resolve import ModelChoice
    from wick_graph.moments import Port
    from wick_graph.stopping import Stop
    from wick_graph.tools.bound import BoundTool


class ModelOwner(Protocol):
    """The agent that calls a model."""

    @property
    def name(self) -> str:
        """The agent's name."""
        ...

    @property
    def model(self) -> ModelChoice:
        """The model of requests that name none."""
        ...

    @property
    def binder(self) -> Binder:
        """Remembers bound models."""
        ...


class ModelUse(Protocol):
    """The run that calls a model."""

    model: str
    """The model that gave the last reply; set here."""
    fittings: dict[int, Any]
    """Remembers what was fitted to each model's provider; filled here."""
    stop: Stop


class ModelCaller(Protocol):
    """What a call needs of the node that makes it."""

    @property
    def spec(self) -> ModelOwner:
        """The agent."""
        ...

    @property
    def run(self) -> ModelUse:
        """The run."""
        ...

    @property
    def io(self) -> Leaves:
        """The driver's leaves."""
        ...

    @property
    def config(self) -> Mapping[str, Any]:
        """The node's `RunnableConfig`."""
        ...

    @property
    def port(self) -> Port:
        """What listens to the node."""
        ...


async def ask(
    ctx: ModelCaller,
    request: ModelRequest,
    messages: list[BaseMessage],
    tools: Sequence[BoundTool],
) -> AIMessage:
    """Return the reply of the request's model, or of the first of its fallbacks that answers.

    `messages` and `tools` are what the request comes to for a model.

    Raises:
        Exception: What the last model raised, once retries and fallbacks are used up.
    """
    first: ModelChoice = request.model or ctx.spec.model
    options = (first, *first.fallbacks)
    for position, option in enumerate(options):
        bound = ctx.spec.binder.bind(option, tools, request.settings, request.withheld)
        fitted = _fitted(ctx, option, messages, bool(tools))
        call = _Call(ctx, option, bound, fitted, request.purpose)
        try:
            reply = await call.with_retries()
        except Exception as error:
            if position + 1 == len(options) or classify(error) == "overflow":
                raise
            call.tell("fallback", error, 0.0)
            continue
        if request.purpose == AGENT:
            ctx.run.model = option.name
        return reply
    raise AssertionError("an agent has at least one model")


def _fitted(
    ctx: ModelCaller, option: ModelChoice, messages: list[BaseMessage], tools: bool
) -> list[BaseMessage]:
    """Return the messages as the provider of a model takes them."""
    provider = provider_of(option.model, tools)
    if provider is None:
        return messages
    known: Fitting | None = ctx.run.fittings.get(id(option.model))
    if known is None or known.model is not option.model or known.provider is not provider:
        known = ctx.run.fittings[id(option.model)] = Fitting(option.model, provider)
    return known.fit(messages)


@dataclass(frozen=True, slots=True)
class _Call:
    """One model, bound, and what it is asked; tried as often as its policy says."""

    ctx: ModelCaller
    option: ModelChoice
    bound: Runnable[Any, Any]
    messages: list[BaseMessage]
    purpose: str

    async def with_retries(self) -> AIMessage:
        started = time.monotonic()
        attempt = 1
        while True:
            try:
                return await self.once()
            except Exception as error:
                elapsed = time.monotonic() - started
                delay = retry_delay(error, attempt, self.option.retry, elapsed, random.random)
                if delay is None:
                    raise
                self.tell("retry", error, delay)
            await self.ctx.io.sleep(delay)
            attempt += 1

    async def once(self) -> AIMessage:
        ctx, bound, messages = self.ctx, self.bound, self.messages
        config: Any = keys.with_metadata(
            ctx.config, wick_agent=ctx.spec.name, wick_purpose=self.purpose
        )
        if self.purpose != AGENT:  # nobody who reads the answer is to read this
            config = keys.with_tag(config, keys.NOSTREAM)
        elif ctx.port.tokens:
            return await self.streamed(config)
        if is_cached(self.option.model):
            messages = as_key(messages)
        way = shorter_way(bound, self.messages, config)
        if way is not None:
            quick: AIMessage = await ctx.io.long(
                lambda: generate(way, messages), lambda: agenerate(way, messages)
            )
            return ensure_whole(quick)
        reply: AIMessage = await ctx.io.long(
            lambda: bound.invoke(messages, config), lambda: bound.ainvoke(messages, config)
        )
        return ensure_whole(reply)

    async def streamed(self, config: Any) -> AIMessage:
        heard = Pieces()
        port, stop, name = self.ctx.port, self.ctx.run.stop, self.option.name

        def take(chunk: AIMessage) -> Moment | None:
            """Return where to wait: a slow reader holds the model back, and loses nothing."""
            stop.check()  # a model that was left in its thread is not heard any more
            heard.take(chunk)
            if not chunk.content:
                return None
            moment = Moment("model", "chunk", name, {"chunk": chunk})
            port.record(moment)
            return moment if holds(port) else None

        bound, messages = self.bound, self.messages

        def read() -> None:
            way = shorter_stream(bound, self.messages, config, is_async=False)
            stream: Any = bound.stream(messages, config) if way is None else pieces(way, messages)
            for chunk in stream:
                if (moment := take(chunk)) is not None:
                    run_to_end(port.at(moment))

        async def aread() -> None:
            way = shorter_stream(bound, self.messages, config, is_async=True)
            stream: Any = bound.astream(messages, config) if way is None else apieces(way, messages)
            async for chunk in stream:
                if (moment := take(chunk)) is not None:
                    await port.at(moment)

        await self.ctx.io.long(read, aread)
        chunks = heard.chunks()
        if len(chunks) == 1 and not isinstance(chunks[0], AIMessageChunk):
            return ensure_whole(chunks[0])  # a model that cannot stream gives its reply at once
        return ensure_whole(merge_chunks([c for c in chunks if isinstance(c, AIMessageChunk)]))

    def tell(self, phase: str, error: Exception, delay: float) -> None:
        if self.ctx.port.active:
            data = {"error": error, "delay": delay, "purpose": self.purpose}
            self.ctx.port.record(Moment("model", phase, self.option.name, data))
