"""Agent: the door for programs. It turns inputs and outputs; the graph does the work."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from langchain_core.language_models import BaseChatModel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.types import Command, Interrupt

from wick_graph import keys
from wick_graph.config.durations import seconds
from wick_graph.constants import (
    DEFAULT_TOOL_TIMEOUT_SECONDS,
    MAX_ITERATIONS,
    THREAD_TTL_SECONDS,
)
from wick_graph.drive import THREADS
from wick_graph.errors import ConfigError, RunCancelled, WickError
from wick_graph.events import Done, Event, Failed, Interrupted
from wick_graph.graph import AgentGraph, build_graph
from wick_graph.hooks import compile_hooks
from wick_graph.models.resolve import ModelChoice, resolve_model
from wick_graph.moments import JournalLevel, JournalOptions
from wick_graph.result import Result, checked_thread_id, read_input, result_of
from wick_graph.runtime import AgentSpec, Run
from wick_graph.store import SqlSaver
from wick_graph.streaming import LoopPort, QueuePort
from wick_graph.tools.registry import ToolRegistry

_CONTINUE: Final = object()


@dataclass(frozen=True, slots=True)
class _Call:
    """One call of the door, in the graph's terms."""

    input: Any
    config: Any
    run: Run
    thread_id: str


class Agent:
    """An agent: a model, a prompt, tools and hooks, and where its threads are kept.

    Args:
        name: Shown in listings and traces.
        model: `provider:model`, a mapping with `base_url` and the like, `auto`, or any LangChain
            chat model.
        system_prompt: Stands before every model call; never stored in a thread.
        tools: Plain functions, `@tool` functions, LangChain tools, or objects with `name`,
            `description`, `parameters` and `execute`.
        hooks: Outermost first.
        store: A SQLAlchemy URL, any LangGraph checkpointer, None for memory, False for no store.
        max_iterations: Model calls in one run.
        ttl: How long an idle thread is kept: seconds, `30m`, `7d`, or `never`.
        tool_timeout: Seconds for a tool that says nothing of its own; None for no limit.
        journal: What is recorded of runs in a store of ours: `off`, `steps`, or `full`, which keeps
            the pieces of streamed replies too; with patterns of secrets as `JournalOptions`.
        allow_client_system: Whether inputs may carry messages of the role `system`.
        base_dir: What relative paths in `model` are relative to.

    Raises:
        ConfigError: An argument is refused, with the reason.
        ModelError: The model cannot be found or built.
    """

    def __init__(
        self,
        name: str = "agent",
        model: str | Mapping[str, Any] | BaseChatModel | ModelChoice = "auto",
        *,
        system_prompt: str = "",
        tools: Sequence[Any] = (),
        hooks: Sequence[Any] = (),
        store: str | BaseCheckpointSaver[Any] | bool | None = None,
        max_iterations: int = MAX_ITERATIONS,
        ttl: str | float | None = THREAD_TTL_SECONDS,
        tool_timeout: float | None = DEFAULT_TOOL_TIMEOUT_SECONDS,
        journal: JournalLevel | JournalOptions = "off",
        allow_client_system: bool = True,
        base_dir: Path | None = None,
    ) -> None:
        if not isinstance(max_iterations, int) or max_iterations < 1:
            raise ConfigError(f"max_iterations must be 1 or more, not {max_iterations!r}")
        choice = (
            model if isinstance(model, ModelChoice) else resolve_model(model, base_dir=base_dir)
        )
        self.spec = AgentSpec(
            name=name,
            model=choice,
            hooks=compile_hooks(hooks),
            system_prompt=system_prompt,
            tools=ToolRegistry(tools).all(),
            max_iterations=max_iterations,
            tool_timeout=tool_timeout,
            journal=JournalOptions.of(journal),
        )
        self.name = name
        self.allow_client_system = allow_client_system
        self._ttl = None if ttl is None else seconds(ttl)
        self._store, self._owns_store = _open_store(store)

    @cached_property
    def graph(self) -> AgentGraph:
        """The compiled LangGraph graph: everything that LangGraph can do works on it."""
        graph = build_graph(self.spec, self._store)
        graph.ttl = self._ttl
        return graph

    @property
    def store(self) -> BaseCheckpointSaver[Any] | None:
        """The checkpointer that holds the threads."""
        return self._store

    @property
    def threads(self) -> Any:
        """The list of threads: `list`, `get`, `delete`, `pin`.

        Raises:
            ConfigError: The store is not ours and keeps no such list.
        """
        threads = getattr(self._store, "threads", None)
        if threads is None:
            raise ConfigError("this agent's store keeps no list of threads; give it a database URL")
        return threads

    def invoke(self, input: Any, *, thread_id: str | None = None, config: Any = None) -> Result:
        """Answer an input and return the end of the run.

        Args:
            input: A text, a message, a dict with role and content, or a list of these.
            thread_id: The conversation to go on with; a new one by default.
            config: More of LangChain's `RunnableConfig` (callbacks, tags, metadata, …).

        Raises:
            MessageError: The input is refused; nothing is stored.
            WickError: The run failed; the thread can go on with the next message.
        """
        call = self._call(input, thread_id, config)
        return self._result(call, self.graph.invoke(call.input, call.config))

    async def ainvoke(
        self, input: Any, *, thread_id: str | None = None, config: Any = None
    ) -> Result:
        """Answer an input; see `invoke`."""
        call = self._call(input, thread_id, config)
        return self._result(call, await self.graph.ainvoke(call.input, call.config))

    def stream(
        self, input: Any, *, thread_id: str | None = None, config: Any = None, tokens: bool = True
    ) -> Iterator[Event]:
        """Answer an input and yield what happens; the last event is `Done` or `Failed`.

        A refused input raises here; what fails later comes as `Failed`. The run waits for a slow
        reader, and is cancelled when the reader leaves.

        Raises:
            MessageError: The input is refused; nothing is stored.
        """
        return self._stream(self._call(input, thread_id, config), tokens)

    def astream(
        self, input: Any, *, thread_id: str | None = None, config: Any = None, tokens: bool = True
    ) -> AsyncIterator[Event]:
        """Answer an input and yield what happens; see `stream`."""
        return self._astream(self._call(input, thread_id, config), tokens)

    def resume(self, thread_id: str, answer: Any = _CONTINUE, *, config: Any = None) -> Result:
        """Go on where a thread stands: after a crash, a breakpoint, or with an answer.

        Args:
            thread_id: The conversation.
            answer: What an interrupt asked for; a mapping of interrupt ids where several wait.
            config: More of LangChain's `RunnableConfig`.
        """
        call = self._call(_CONTINUE, thread_id, config, answer)
        return self._result(call, self.graph.invoke(call.input, call.config))

    async def aresume(
        self, thread_id: str, answer: Any = _CONTINUE, *, config: Any = None
    ) -> Result:
        """Go on where a thread stands; see `resume`."""
        call = self._call(_CONTINUE, thread_id, config, answer)
        return self._result(call, await self.graph.ainvoke(call.input, call.config))

    def stream_resume(
        self, thread_id: str, answer: Any = _CONTINUE, *, config: Any = None, tokens: bool = True
    ) -> Iterator[Event]:
        """Go on where a thread stands, as `resume` does, and yield what happens."""
        return self._stream(self._call(_CONTINUE, thread_id, config, answer), tokens)

    def astream_resume(
        self, thread_id: str, answer: Any = _CONTINUE, *, config: Any = None, tokens: bool = True
    ) -> AsyncIterator[Event]:
        """Go on where a thread stands, as `aresume` does, and yield what happens."""
        return self._astream(self._call(_CONTINUE, thread_id, config, answer), tokens)

    def close(self) -> None:
        """Close the store, if this agent opened it."""
        if self._owns_store and isinstance(self._store, SqlSaver):
            self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.close)

    def _call(
        self, given: Any, thread_id: str | None, config: Any, answer: Any = _CONTINUE
    ) -> _Call:
        named = keys.thread_of(config)
        if named is not None and thread_id not in (None, named):
            raise ConfigError(
                f"two thread ids: thread_id={thread_id!r}, and {named!r} in the config"
            )
        thread = checked_thread_id(named if thread_id is None else thread_id)
        run = Run(thread_id=thread)
        value: Any = None
        if given is not _CONTINUE:
            value = {"messages": read_input(given, allow_system=self.allow_client_system)}
        elif answer is not _CONTINUE:
            value = Command(resume=answer)
        made = keys.with_configurable(
            keys.without_task(config), **{keys.THREAD_ID: thread, keys.RUN: run}
        )
        return _Call(value, made, run, thread)

    def _result(self, call: _Call, values: Any) -> Result:
        return result_of(values or {}, call.run, call.thread_id, self.spec.model.name)

    def _stream(self, call: _Call, tokens: bool) -> Iterator[Event]:
        port = QueuePort(call.run.run_id, call.thread_id, tokens)
        call.run.port = port

        def work() -> None:
            try:
                last = self._last(call, self.graph.invoke(call.input, call.config))
            except RunCancelled:
                return
            except BaseException as error:  # the reader is told, whatever it was
                last = [self._failed(call, error)]
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
            future.exception()  # the run is closed before the reader goes on

    async def _astream(self, call: _Call, tokens: bool) -> AsyncIterator[Event]:
        port = LoopPort(call.run.run_id, call.thread_id, tokens)
        call.run.port = port

        async def work() -> None:
            try:
                last = self._last(call, await self.graph.ainvoke(call.input, call.config))
            except asyncio.CancelledError as error:
                port.put(self._failed(call, error))
                raise
            except Exception as error:
                last = [self._failed(call, error)]
            for event in last:
                port.put(event)

        task = asyncio.create_task(work())
        try:
            while True:
                event = await port.get()
                yield event
                if isinstance(event, Done | Failed):
                    return
        finally:
            port.close()
            task.cancel()
            await asyncio.wait([task])

    def _last(self, call: _Call, values: Any) -> list[Event]:
        result = self._result(call, values)
        ids: dict[str, Any] = {"run_id": call.run.run_id, "thread_id": call.thread_id}
        asked: list[Event] = [asked_event(i, ids) for i in result.interrupts]
        if result.stopped_because == "interrupted" and not asked:
            asked = [Interrupted(**ids)]
        spent = int((time.monotonic() - call.run.started) * 1000)
        why = result.stopped_because
        return [*asked, Done(stopped_because=why, duration_ms=spent, result=result, **ids)]

    def _failed(self, call: _Call, error: BaseException) -> Failed:
        cancelled = isinstance(error, asyncio.CancelledError | KeyboardInterrupt)
        return Failed(
            error="run cancelled" if cancelled else failure_text(error),
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


def failure_text(error: BaseException) -> str:
    """Say in one sentence why a run failed."""
    text = str(error)
    if isinstance(error, WickError) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _open_store(store: Any) -> tuple[BaseCheckpointSaver[Any] | None, bool]:
    if store is False:
        return None, False
    if store is None:
        return SqlSaver.from_url("sqlite://"), True
    if isinstance(store, str):
        return SqlSaver.from_url(store), True
    if isinstance(store, BaseCheckpointSaver):
        return store, False
    raise ConfigError(
        f"store takes a URL, a LangGraph checkpointer, None or False, not a {type(store).__name__}"
    )
