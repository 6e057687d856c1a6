"""Call a model: streamed when somebody listens to tokens, with retries, then the fallbacks."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage

from wick_graph import keys
from wick_graph.drive import run_to_end
from wick_graph.models.call import ensure_whole, merge_chunks
from wick_graph.models.retry import classify, retry_delay
from wick_graph.models.shortcut import agenerate, generate, shorter_way
from wick_graph.moments import Moment

if TYPE_CHECKING:
    from langchain_core.runnables import Runnable

    from wick_graph.models.resolve import ModelChoice
    from wick_graph.runtime import NodeContext
    from wick_graph.tools.bound import BoundTool


async def ask(
    ctx: NodeContext,
    messages: list[BaseMessage],
    tools: Sequence[BoundTool],
    settings: Mapping[str, Any],
    withheld: bool,
) -> AIMessage:
    """Return the reply of the agent's model, or of the first of its fallbacks that answers.

    Raises:
        Exception: What the last model raised, once retries and fallbacks are used up.
    """
    options = (ctx.spec.model, *ctx.spec.model.fallbacks)
    for position, option in enumerate(options):
        bound = ctx.spec.binder.bind(option, tools, settings, withheld)
        try:
            reply = await _with_retries(ctx, option, bound, messages)
        except Exception as error:
            if position + 1 == len(options) or classify(error) == "overflow":
                raise
            _tell(ctx, "fallback", option, error, 0.0)
            continue
        ctx.run.model = option.name
        return reply
    raise AssertionError("an agent has at least one model")


async def _with_retries(
    ctx: NodeContext, option: ModelChoice, bound: Runnable[Any, Any], messages: list[BaseMessage]
) -> AIMessage:
    started = time.monotonic()
    attempt = 1
    while True:
        try:
            return await _once(ctx, option, bound, messages)
        except Exception as error:
            elapsed = time.monotonic() - started
            delay = retry_delay(error, attempt, option.retry, elapsed, random.random)
            if delay is None:
                raise
            _tell(ctx, "retry", option, error, delay)
        await ctx.io.sleep(delay)
        attempt += 1


async def _once(
    ctx: NodeContext, option: ModelChoice, bound: Runnable[Any, Any], messages: list[BaseMessage]
) -> AIMessage:
    config: Any = keys.with_metadata(ctx.config, wick_agent=ctx.spec.name, wick_purpose="agent")
    if ctx.run.port.tokens:
        return await _streamed(ctx, option, bound, messages, config)
    way = shorter_way(bound, messages, config)
    if way is not None:
        quick: AIMessage = await ctx.io.either(
            lambda: generate(way, messages), lambda: agenerate(way, messages)
        )
        return ensure_whole(quick)
    reply: AIMessage = await ctx.io.either(
        lambda: bound.invoke(messages, config), lambda: bound.ainvoke(messages, config)
    )
    return ensure_whole(reply)


async def _streamed(
    ctx: NodeContext,
    option: ModelChoice,
    bound: Runnable[Any, Any],
    messages: list[BaseMessage],
    config: Any,
) -> AIMessage:
    chunks: list[AIMessageChunk] = []
    port = ctx.run.port

    async def take(chunk: AIMessageChunk) -> None:
        chunks.append(chunk)
        if chunk.content:
            moment = Moment("model", "chunk", option.name, {"chunk": chunk})
            port.record(moment)
            await port.at(moment)  # a slow reader holds the model back, and loses nothing

    def read() -> None:
        for chunk in bound.stream(messages, config):
            run_to_end(take(chunk))

    async def aread() -> None:
        async for chunk in bound.astream(messages, config):
            await take(chunk)

    await ctx.io.either(read, aread)
    return ensure_whole(merge_chunks(chunks))


def _tell(
    ctx: NodeContext, phase: str, option: ModelChoice, error: Exception, delay: float
) -> None:
    if ctx.run.port.active:
        data = {"error": error, "delay": delay}
        ctx.run.port.record(Moment("model", phase, option.name, data))
