"""Turn a run's moments into events, and drive the calls of an agent's streams."""

from __future__ import annotations

import asyncio
import atexit
import math
import queue
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

from langchain_core.messages import AIMessage
from langgraph.types import Command, Interrupt

from wick_graph import langgraph_config
from wick_graph.constants import EVENT_QUEUE_SIZE
from wick_graph.core.bridge import THREADS
from wick_graph.core.moments import Directive, Moment, Place, Take, moment_of
from wick_graph.core.redaction import REDACTOR
from wick_graph.core.request import AGENT
from wick_graph.core.state import read_input
from wick_graph.core.usage import usage_of
from wick_graph.engine.keys import thread_id_of
from wick_graph.engine.lifecycle import CANCELLED as CANCELLATIONS
from wick_graph.engine.lifecycle import RunOptions, apply_options
from wick_graph.engine.result import Result, checked_thread_id
from wick_graph.errors import ConfigError, RunCancelled, describe
from wick_graph.events import (
    CANCELLED,
    ChatModelEnd,
    ChatModelRetry,
    ChatModelStart,
    ChatModelStream,
    Done,
    Event,
    Failed,
    Interrupted,
    OutputDelta,
    ToolEnd,
    ToolStart,
)
from wick_graph.machine import at_fork
from wick_graph.messages.validation import read_history, with_channels
from wick_graph.models.structured import Output
from wick_graph.runtime.context import Run
from wick_graph.tools.bound import BoundTool

# --- A bounded queue of events between a run and its reader.
#
# The run waits for its reader: at most `EVENT_QUEUE_SIZE` events are queued, and none is lost.


def to_event(moment: Moment, run_id: str, thread_id: str | None) -> Event | None:
    """Turn a moment into an event; None if readers do not get it."""
    make = _MAKERS.get((moment.kind, moment.phase))
    if make is None or moment.data.get("purpose", AGENT) != AGENT:
        return None
    ids = {"run_id": moment.call_id or run_id, "thread_id": thread_id}
    event: Event = make(moment, ids)
    return event


def _chunk(moment: Moment, ids: dict[str, Any]) -> Event:
    chunk = moment.data["chunk"]  # a run may have thousands of these
    plain = type(chunk.content) is str
    pieces = getattr(chunk, "tool_call_chunks", None)
    return ChatModelStream(
        name=moment.name,
        delta=chunk.content if plain else chunk.text,
        reasoning=reasoning_of(chunk) if not plain or chunk.additional_kwargs else "",
        calls=tuple({key: one.get(key) for key in _PIECE} for one in pieces) if pieces else (),
        message_id=chunk.id or "",
        **ids,
    )


_PIECE: Final = ("index", "id", "name", "args")


def text_piece(
    name: str, delta: str, message_id: str, run_id: str, thread_id: str | None
) -> ChatModelStream:
    """Make the event of a piece that is text alone; a run makes thousands of these.

    A frozen class assigns each field by its name; its slots take less than half of that time.
    """
    made = _new(ChatModelStream)
    _NAME(made, name)
    _DELTA(made, delta)
    _REASONING(made, "")
    _CALLS(made, ())
    _MESSAGE_ID(made, message_id)
    _RUN_ID(made, run_id)
    _THREAD_ID(made, thread_id)
    return made


_new: Final = object.__new__

_FIELDS: Final = ("name", "delta", "reasoning", "calls", "message_id", "run_id", "thread_id")

_NAME, _DELTA, _REASONING, _CALLS, _MESSAGE_ID, _RUN_ID, _THREAD_ID = (
    getattr(ChatModelStream, field).__set__ for field in _FIELDS
)


def reasoning_of(chunk: AIMessage) -> str:
    """Return the reasoning in a piece, which each provider writes in its own form."""
    said = [chunk.additional_kwargs.get("reasoning_content")]
    blocks = chunk.content if isinstance(chunk.content, list) else []
    if isinstance(apart := chunk.additional_kwargs.get("reasoning"), dict):
        blocks = [*blocks, {**apart, "type": "reasoning"}]
    for block in blocks:
        if isinstance(block, dict) and block.get("type") in _THOUGHTS:
            said += [block.get("thinking"), block.get("reasoning")]
            said += [part.get("text") for part in block.get("summary") or ()]
    return "".join(text for text in said if isinstance(text, str))


_THOUGHTS: Final = frozenset({"thinking", "reasoning"})


def _reply(moment: Moment, ids: dict[str, Any]) -> Event:
    reply = moment.data["reply"]
    calls = tuple({"id": c["id"], "name": c["name"], "args": c["args"]} for c in reply.tool_calls)
    usage = usage_of(reply).to_dict()
    return ChatModelEnd(
        name=moment.name,
        content=reply.text,
        tool_calls=calls,
        usage=usage,
        message_id=reply.id or "",
        **ids,
    )


def _again(moment: Moment, ids: dict[str, Any]) -> Event:
    error = moment.data["error"]
    text = REDACTOR.text(str(error) or type(error).__name__)
    return ChatModelRetry(name=moment.name, error=text, delay=moment.data["delay"], **ids)


def _tool_start(moment: Moment, ids: dict[str, Any]) -> Event:
    return ToolStart(name=moment.name, args=moment.data["args"], **ids)


def _tool_end(moment: Moment, ids: dict[str, Any]) -> Event:
    result = moment.data["result"]
    output = result.to_message().text
    return ToolEnd(name=moment.name, output=output, error=result.error, **ids)


_MAKERS: dict[tuple[str, str], Any] = {
    ("model", "request"): lambda moment, ids: ChatModelStart(name=moment.name, **ids),
    ("model", "chunk"): _chunk,
    ("model", "response"): _reply,
    ("model", "retry"): _again,
    ("model", "fallback"): _again,
    ("tool", "enter"): _tool_start,
    ("tool", "exit"): _tool_end,
}


class OutputReader:
    """Reads the output of a typed agent from the pieces of its replies, as they come.

    Args:
        output: What the agent gives.
    """

    def __init__(self, output: Output) -> None:
        self._output, self._by_tool = output, False
        self.attempt = 0
        self.last: Any = None
        """What the reader of the run has got."""
        self._texts: dict[Any, list[str]] = {}
        self._names: dict[Any, str] = {}
        self._told = -math.inf
        self._new = True

    def begin(self, tools: Sequence[BoundTool] | None = None) -> None:
        """Drop the pieces so far: a new reply begins.

        Args:
            tools: What its request offers. An output tool among them gives the output, else the
                text does; None for a repeated request.
        """
        self._texts, self._names, self._new = {}, {}, True
        if tools is not None:
            self._by_tool = any(tool.name in self._output.by_name for tool in tools)

    def take(self, chunk: AIMessage) -> bool:
        """Add a piece of a reply; return whether there is more to tell, and it is time to."""
        at = self._added(chunk)
        now = time.monotonic()
        if at is None or now - self._told < _OUTPUT_SECONDS:
            return False
        found = self._output.partial("".join(self._texts[at]), self._names.get(at))
        if found is None or (found == self.last and not self._new):
            return False
        self.attempt, self._new = self.attempt + self._new, False
        self._told, self.last = now, found
        return True

    def _added(self, chunk: AIMessage) -> Any:
        """Add a piece, and return the key of its text; None if it is no part of the output."""
        if not self._by_tool and chunk.content:
            self._texts.setdefault("", []).append(chunk.text)
            return ""
        at = None
        for one in getattr(chunk, "tool_call_chunks", ()) if self._by_tool else ():
            key = one.get("index")
            if (name := one.get("name")) in self._output.by_name:
                self._names[key] = str(name)
            if key in self._names:
                self._texts.setdefault(key, []).append(one.get("args") or "")
                at = key
        return at


_OUTPUT_SECONDS: Final = 0.125
"""Between two partial outputs: with the whole one they are at most ten a second."""


class _EventListener:
    """A listener that turns moments into events; its subclasses deliver them.

    The event of a whole reply waits until its step is durable: the next node begins, or the run
    ends.
    """

    active = True
    holds = False
    """Whether the reader is behind, so that the run waits in `at`."""

    def __init__(self, run_id: str, thread_id: str | None, tokens: bool) -> None:
        self.run_id, self.thread_id, self.tokens = run_id, thread_id, tokens
        self.output: OutputReader | None = None
        """Reads the output of a typed agent."""
        self._calls: dict[str | None, Event] = {}
        """Starts of calls that a hook, such as an approval, may still keep from running."""
        self._reply: ChatModelEnd | None = None
        self._begun: Event | None = None
        """The start of a call until its reply is stored; the reader may be behind."""
        self._reached: Event | None = None
        self._got: list[str] = []
        self.told: ChatModelEnd | None = None
        """The last reply that the reader was told of."""
        self.withheld = False
        """Whether a reply's text is delivered in one piece, after the hooks."""

    @property
    def partial(self) -> str:
        """The text that the reader has got of a reply that is not known to be stored."""
        return "".join(self._got) if self._reached is self._begun else ""

    def got(self, event: Event) -> Event:
        """Note what the reader gets."""
        if type(event) is ChatModelStream:
            self._got.append(event.delta)
        elif isinstance(event, ChatModelStart | ChatModelRetry | ChatModelEnd):
            self._got.clear()
            self._reached = event if type(event) is ChatModelStart else self._reached
        return event

    def pieces(self, name: str, place: Place | None) -> Take:
        """Return what delivers the pieces of a reply, without a moment for each."""
        put, run_id, thread_id, output = self.put, self.run_id, self.thread_id, self.output

        def take(chunk: AIMessage, text: str | None, reply: str) -> Moment | None:
            if text and self._reply is None and output is None:
                put(text_piece(name, text, reply, run_id, thread_id))
            else:
                self.record(moment_of(chunk, name, reply, place))
            return _BEHIND if self.holds else None

        return take

    def record(self, moment: Moment) -> None:
        """Deliver the event of a moment, if it has one."""
        if moment.phase == "chunk" and self._reply is None and moment.kind == "model":
            ids: dict[str, Any] = {
                "run_id": moment.call_id or self.run_id,
                "thread_id": self.thread_id,
            }
            self.put(_chunk(moment, ids))
            output = self.output
            if output is not None and output.take(moment.data["chunk"]):
                self.put(OutputDelta(attempt=output.attempt, output=output.last, **ids))
            return
        event = to_event(moment, self.run_id, self.thread_id)
        if self._reply is not None:
            self._reply = _passed(self._reply, moment, event, withheld=self.withheld)
        reply = self._reply
        if reply is not None and (event is not None or _is_later(moment)):
            self._reply = self._begun = None
            self._notify(reply, moment)
        if type(event) is ChatModelStart:
            self._begun = event
        if self.output is not None and isinstance(event, ChatModelStart | ChatModelRetry):
            self.output.begin(moment.data.get("tools"))
        if moment.kind == "tool":
            self._start(moment, event)
        if type(event) is ChatModelEnd:
            self._reply = event
        elif event is not None and type(event) is not ToolStart:
            self.put(event)

    def _start(self, moment: Moment, event: Event | None) -> None:
        """Deliver a call's start when the call runs, once, also if an answer starts it again."""
        if type(event) is ToolStart:
            self._calls[moment.call_id] = event
        elif moment.phase in ("call", "exit", "error"):
            begun = self._calls.pop(moment.call_id, None)
            if begun is not None and moment.phase != "error" and not moment.data.get("begun"):
                self.put(begun)

    def _notify(self, reply: ChatModelEnd, moment: Moment) -> None:
        self.told = reply
        if self.withheld and reply.content:
            ids: dict[str, Any] = {"run_id": reply.run_id, "thread_id": reply.thread_id}
            self._deliver(ChatModelStream(name=reply.name, delta=reply.content, **ids), moment)
        self._deliver(reply, moment)

    def _deliver(self, reply: Event, moment: Moment) -> None:
        if moment.kind != "run":
            self.put(reply)
        elif moment.phase != "error":  # else it may not be stored
            with suppress(RunCancelled):  # the run is closed even if the reader has left
                self.put(reply)

    async def at(self, moment: Moment) -> Directive:
        """Continue."""
        return None

    def put(self, event: Any) -> None:
        """Deliver an event to the reader."""
        raise NotImplementedError


_BEHIND: Final = Moment("model", "chunk")
"""The moment at which a run waits for its reader."""


def _passed(
    reply: ChatModelEnd, moment: Moment, event: Event | None, *, withheld: bool
) -> ChatModelEnd:
    """Return the event of a reply with what its step has made of it, once it has."""
    if withheld and type(event) is ChatModelStart:  # the same step asks again: no reader gets it
        return replace(reply, content="", tool_calls=())
    if moment.kind != "node" or moment.phase != "exit":
        return reply
    writes = moment.data["writes"]
    written = [one for name, value in writes if name == "messages" for one in value]
    stored = next((one for one in written if isinstance(one, AIMessage)), AIMessage(""))
    reply = replace(reply, message_id=reply.message_id or stored.id or "")
    calls = reply.tool_calls if stored.tool_calls else ()
    return replace(reply, content=stored.text, tool_calls=calls) if withheld else reply


def _is_later(moment: Moment) -> bool:
    """Return whether the step before this moment has ended and is durable."""
    return moment.kind == "run" or (moment.kind == "node" and moment.phase == "enter")


class QueueListener(_EventListener):
    """Events for a reader in another thread; `put` blocks while the queue is full."""

    def __init__(self, run_id: str, thread_id: str | None, tokens: bool) -> None:
        super().__init__(run_id, thread_id, tokens)
        self.events: queue.Queue[Any] = queue.Queue(EVENT_QUEUE_SIZE)
        self.closed = False

    def put(self, event: Any) -> None:
        """Wait for room.

        Raises:
            RunCancelled: The reader has left.
        """
        while not self.closed:
            try:
                self.events.put(event, timeout=0.2)
            except queue.Full:
                continue
            return
        raise RunCancelled


class Pause:
    """Holds the work of a run that is read in its own loop; what it has said still comes."""

    def __init__(self) -> None:
        self.holds = False
        self.listener: LoopListener | None = None
        """The run's, while it is read."""

    def hold(self) -> None:
        """Let the run begin nothing more."""
        self.holds = True
        if self.listener is not None:
            self.listener.hold()

    def go(self) -> None:
        """Let it go on."""
        self.holds = False
        if self.listener is not None:
            self.listener.go()


PAUSE: Final[ContextVar[Pause | None]] = ContextVar("wick_pause", default=None)
"""What may hold the next run that is read in this context."""


class LoopListener(_EventListener):
    """Events for a reader in the same loop; the run waits at each piece of text for room."""

    def __init__(self, run_id: str, thread_id: str | None, tokens: bool) -> None:
        super().__init__(run_id, thread_id, tokens)
        self._events: deque[Any] = deque()
        self._pause = PAUSE.get()
        self._reader: asyncio.Future[None] | None = None
        self._closed = False
        self._room = asyncio.Event()
        self._room.set()
        if self._pause is not None:
            self._pause.listener = self
            PAUSE.set(None)  # a run that is read within this one may be in another loop

    def put(self, event: Any) -> None:
        """Deliver at once; the run waits in `at`."""
        if self._closed:
            return
        self._events.append(event)
        if len(self._events) >= EVENT_QUEUE_SIZE and not self.holds:
            self.hold()
        if self._reader is not None:
            if not self._reader.done():
                self._reader.set_result(None)
            self._reader = None

    async def at(self, moment: Moment) -> Directive:
        """Wait while the reader is behind."""
        if self.holds:
            await self._room.wait()
        return None

    def close(self) -> None:
        """Mark the reader as gone: drop its events, and no longer wait for it."""
        self._closed = True
        if self._pause is not None:
            self._pause.listener = None
        self.go()

    async def get(self) -> Any:
        """Return the next event, and make room."""
        while not self._events:
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        return self.take()

    def take(self) -> Any:
        """Return the next event, as its reader gets it, and make room; None if there is none."""
        if not self._events:
            return None
        event = self._events.popleft()
        if self.holds and len(self._events) < EVENT_QUEUE_SIZE and not self._is_paused():
            self.go()
        if type(event) is ChatModelStream:
            self._got.append(event.delta)
            return event
        return self.got(event)

    def _is_paused(self) -> bool:
        return self._pause is not None and self._pause.holds

    def hold(self) -> None:
        """Let the run wait at its next moment."""
        self.holds = True
        self._room.clear()

    def go(self) -> None:
        """Let the run go on, also if its reader is behind: it waits again then."""
        self.holds = False
        self._room.set()


# --- One call of an agent's method, in the graph's terms, and its events.


CONTINUE: Final = object()
"""Placeholder for a missing input or answer: the thread continues from its head."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an agent's method, in the graph's terms."""

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
    own: Sequence[str] = (),
) -> Call:
    """Read a caller's arguments; `own` are the channels of the agent.

    Raises:
        ConfigError: The config, the thread id or an option is invalid.
        MessageError: The input is invalid.
    """
    _check_config(config)
    named = langgraph_config.thread_of(config)
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
        value = with_channels(given, messages)
        value = read_input(value, own) if len(value) > 1 else value
    elif answer is not CONTINUE:
        value = Command(resume=answer)
    made = langgraph_config.with_configurable(
        langgraph_config.without_task(config),
        **{langgraph_config.THREAD_ID: thread, langgraph_config.RUN: run},
    )
    return Call(value, apply_options(run, options, value, made), run, thread)


_EXIT_SECONDS: Final = 10.0
"""How long the end of a process waits for the runs of its streams."""

_open: Final[dict[Future[None], Callable[[], None]]] = {}
"""The threads of streams that are read, with what tells each that its reader has left."""

at_fork(after_in_child=_open.clear)  # the threads are the parent's


def _end_all() -> None:
    """End the runs of streams that were read in part: Python stops their threads next."""
    for leave in [*_open.values()]:
        leave()
    wait([*_open], _EXIT_SECONDS)
    _open.clear()


@cache
def _watch_exit() -> None:
    """End them while pools of threads still take work, which `atexit` is too late for."""
    getattr(threading, "_register_atexit", atexit.register)(_end_all)


def read(
    call: Call,
    tokens: bool,
    run: Callable[[], Result],
    output: OutputReader | None = None,
    *,
    withheld: bool = False,
) -> Iterator[Event]:
    """Run in a separate thread, and yield the events."""
    listener = QueueListener(call.run.run_id, call.thread_id, tokens)
    listener.output, listener.withheld = output, withheld
    call.run.listener = call.run.reader = listener

    def work() -> None:
        try:
            last = _last(call, run(), output)
        except BaseException as error:  # the reader gets any error; a tool may raise RunCancelled
            last = [_failed(call, error)]
        with suppress(RunCancelled):  # the reader left after the last event
            for event in last:
                listener.put(event)

    def leave() -> None:
        listener.closed = True
        call.run.stop.ask("cancelled", "its reader has left")

    _watch_exit()
    future = THREADS.submit(work)
    _open[future] = leave
    try:
        while True:
            event = listener.got(listener.events.get())
            yield event
            if type(event) in _LAST:
                return
    finally:
        leave()
        if _open.pop(future, None) is not None:
            future.exception()  # the run is closed before the reader goes on


async def aread(
    call: Call,
    tokens: bool,
    run: Callable[[], Awaitable[Result]],
    output: OutputReader | None = None,
    *,
    withheld: bool = False,
) -> AsyncIterator[Event]:
    """Run in a separate task, and yield the events."""
    listener = LoopListener(call.run.run_id, call.thread_id, tokens)
    listener.output, listener.withheld = output, withheld
    call.run.listener = call.run.reader = listener

    async def work() -> None:
        try:
            last = _last(call, await run(), output)
        except (asyncio.CancelledError, KeyboardInterrupt, SystemExit) as error:
            listener.put(_failed(call, error))
            raise
        except BaseException as error:  # as above
            last = [_failed(call, error)]
        for event in last:
            listener.put(event)

    task, take = asyncio.create_task(work()), listener.take
    try:
        while True:
            event = take() or await listener.get()
            yield event
            if type(event) in _LAST:
                return
    finally:
        listener.close()
        task.cancel()
        await asyncio.wait([task])


_LAST: Final = frozenset({Done, Failed})


def _last(call: Call, result: Result, output: OutputReader | None) -> list[Event]:
    ids: dict[str, Any] = {"run_id": call.run.run_id, "thread_id": call.thread_id}
    asked: list[Event] = [asked_event(i, ids) for i in result.interrupts]
    if result.stopped_because == "interrupted" and not asked:
        asked = [Interrupted(**ids)]
    if result.stopped_because == "cancelled":
        return [Failed(error=CANCELLED, stopped_because="cancelled", result=result, **ids)]
    spent = int((time.monotonic() - call.run.started) * 1000)
    why = result.stopped_because
    asked += _untold(call.run, result, ids)
    if output is not None and result.structured not in (None, output.last):
        attempt = max(1, output.attempt)
        asked.append(OutputDelta(attempt=attempt, output=result.structured, **ids))
    told: dict[str, Any] = {"reason": result.reason, "result": result, **ids}
    return [*asked, Done(stopped_because=why, duration_ms=spent, **told)]


def _untold(run: Run, result: Result, ids: Mapping[str, Any]) -> Iterator[Event]:
    """Tell the run's last words if no model said them: those of a guardrail, a hook, a limit."""
    last, told = result.messages[-1] if result.messages else None, run.reader.told
    if not run.ended or not isinstance(last, AIMessage) or not last.text:
        return
    if (
        told is None
        or not told.content
        or (told.message_id != last.id and told.content != last.text)
    ):
        yield ChatModelStream(name=result.model, delta=last.text, message_id=last.id or "", **ids)


def _failed(call: Call, error: BaseException) -> Failed:
    cancelled = isinstance(error, CANCELLATIONS)
    return Failed(
        error=CANCELLED if cancelled else describe(error),
        stopped_because="cancelled" if cancelled else "failed",
        exception=error,
        run_id=call.run.run_id,
        thread_id=call.thread_id,
    )


def asked_event(asked: Interrupt, ids: Mapping[str, Any]) -> Interrupted:
    """Make the event of a question; that of a tool call has the call's id."""
    call = asked.value.get("call_id") if isinstance(asked.value, Mapping) else None
    of_call = {"run_id": call} if isinstance(call, str) and call else {}
    return Interrupted(interrupt_id=asked.id, value=asked.value, **{**ids, **of_call})


def _check_config(config: Any) -> None:
    inner = config.get(langgraph_config.CONFIGURABLE) if isinstance(config, Mapping) else None
    if not isinstance(config, Mapping | None) or not isinstance(inner, Mapping | None):
        raise ConfigError(
            f"config is a dictionary such as LangChain's RunnableConfig, not {config!r:.80}"
        )
