"""One call of an agent's door: what it asks for in the graph's terms, and its events."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from langgraph.types import Command, Interrupt

from wick_graph import keys
from wick_graph.drive import THREADS
from wick_graph.errors import ConfigError, RunCancelled, describe
from wick_graph.events import CANCELLED, Done, Event, Failed, Interrupted
from wick_graph.graph.lifecycle import RunOptions, apply_options, thread_id_of
from wick_graph.messages.inputs import read_history
from wick_graph.result import Result, checked_thread_id
from wick_graph.runtime import Run
from wick_graph.streaming import LoopPort, QueuePort

CONTINUE: Final = object()
"""In place of an input or of an answer: there is none, and the thread goes on where it stands."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the door, in the graph's terms."""

    input: Any
    config: Any
    run: Run
    thread_id: str


def call_of(
    given: Any,
    thread_id: str | None,
    config: Any,
    options: RunOptions,
    answer: Any,
    agent: str,
    allow_system: bool,
) -> Call:
    """Read what a caller asks for.

    Raises:
        ConfigError: The config, the thread id or an option is refused.
        MessageError: The input is refused.
    """
    _check_config(config)
    named = keys.thread_of(config)
    if named is not None and thread_id not in (None, named):
        raise ConfigError(f"two thread ids: thread_id={thread_id!r}, and {named!r} in the config")
    thread_id = named if thread_id is None else thread_id
    if thread_id is None and (key := options.get("idempotency_key")) is not None:
        thread_id = thread_id_of(agent, str(key))
    thread = checked_thread_id(thread_id)
    run = Run(thread_id=thread)
    run.run_id = str(((config or {}).get("metadata") or {}).get("run_id") or run.run_id)
    value: Any = None
    if given is not CONTINUE:
        messages, run.answers = read_history(given, allow_system=allow_system)
        run.named = any(message.id is not None for message in messages)
        value = {"messages": messages}
    elif answer is not CONTINUE:
        value = Command(resume=answer)
    made = keys.with_configurable(
        keys.without_task(config), **{keys.THREAD_ID: thread, keys.RUN: run}
    )
    return Call(value, apply_options(run, options, value, made), run, thread)


def read(call: Call, tokens: bool, run: Callable[[], Result]) -> Iterator[Event]:
    """Run in a thread of its own, and yield what happens."""
    port = QueuePort(call.run.run_id, call.thread_id, tokens)
    call.run.port = call.run.reader = port

    def work() -> None:
        try:
            last = _last(call, run())
        except RunCancelled:
            return
        except BaseException as error:  # the reader is told, whatever it was
            last = [_failed(call, error)]
        with suppress(RunCancelled):  # the reader has left at the very end
            for event in last:
                port.put(event)

    future = THREADS.submit(work)
    try:
        while True:
            event = port.events.get()
            yield event
            if isinstance(event, Done | Failed):
                return
    finally:
        port.closed = True
        call.run.stop.ask("cancelled", "its reader has left")
        future.exception()  # the run is closed before the reader goes on


async def aread(
    call: Call, tokens: bool, run: Callable[[], Awaitable[Result]]
) -> AsyncIterator[Event]:
    """Run in a task of its own, and yield what happens."""
    port = LoopPort(call.run.run_id, call.thread_id, tokens)
    call.run.port = call.run.reader = port

    async def work() -> None:
        try:
            last = _last(call, await run())
        except asyncio.CancelledError as error:
            port.put(_failed(call, error))
            raise
        except Exception as error:
            last = [_failed(call, error)]
        for event in last:
            port.put(event)

    task = asyncio.create_task(work())
    try:
        while True:
            event = port.take() or await port.get()
            yield event
            if isinstance(event, Done | Failed):
                return
    finally:
        port.close()
        task.cancel()
        await asyncio.wait([task])


def _last(call: Call, result: Result) -> list[Event]:
    ids: dict[str, Any] = {"run_id": call.run.run_id, "thread_id": call.thread_id}
    asked: list[Event] = [asked_event(i, ids) for i in result.interrupts]
    if result.stopped_because == "interrupted" and not asked:
        asked = [Interrupted(**ids)]
    if result.stopped_because == "cancelled":
        return [Failed(error=CANCELLED, stopped_because="cancelled", result=result, **ids)]
    spent = int((time.monotonic() - call.run.started) * 1000)
    why = result.stopped_because
    return [*asked, Done(stopped_because=why, duration_ms=spent, result=result, **ids)]


def _failed(call: Call, error: BaseException) -> Failed:
    cancelled = isinstance(error, asyncio.CancelledError | KeyboardInterrupt)
    return Failed(
        error=CANCELLED if cancelled else describe(error),
        stopped_because="cancelled" if cancelled else "failed",
        exception=error,
        run_id=call.run.run_id,
        thread_id=call.thread_id,
    )


def asked_event(asked: Interrupt, ids: Mapping[str, Any]) -> Interrupted:
    """Make the event of a question; one that a tool call asks bears the call's id."""
    call = asked.value.get("call_id") if isinstance(asked.value, Mapping) else None
    of_call = {"run_id": call} if isinstance(call, str) and call else {}
    return Interrupted(interrupt_id=asked.id, value=asked.value, **{**ids, **of_call})


def _check_config(config: Any) -> None:
    inner = config.get(keys.CONFIGURABLE) if isinstance(config, Mapping) else None
    if not isinstance(config, Mapping | None) or not isinstance(inner, Mapping | None):
        raise ConfigError(
            f"config is a dictionary such as LangChain's RunnableConfig, not {config!r:.80}"
        )
