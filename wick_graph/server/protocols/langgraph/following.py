"""The events and steps of runs, in order, after a place that a client has reached.

A place is the number of an event and that of a step: the log of events and the checkpoints are two
stores of one run. Each entry moves one of the two, so a client that returns with its place gets
what it has not seen, and nothing else, whatever was written meanwhile.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.types import StateSnapshot

from wick_graph.engine.agent import Agent
from wick_graph.errors import ThreadNotFoundError
from wick_graph.server.guard import RequestContext
from wick_graph.server.protocols.langgraph import shapes
from wick_graph.service.event_log import TERMINAL, Wire, changes, events_after, set_within
from wick_graph.store.server_rows import QUEUED, StreamRow

STEP_BITS: Final = 22
"""Bits of a step's number in a place that is one number; a thread has fewer steps."""

_PLACE: Final = re.compile(r"([0-9]{1,10})-([0-9]{1,10})")

_CHECK: Final = 5.0
"""Seconds between two looks whether the thread and the token are still there."""

_POLL: Final = 0.25
"""Seconds between two looks for the next run of a thread."""

_FEW: Final = 8


class Place(NamedTuple):
    """How far a reader has come in a thread."""

    event: int = 0
    step: int = 0

    @classmethod
    def read(cls, text: str | None) -> Place:
        """Read what `str` writes; anything else is the beginning."""
        found = _PLACE.fullmatch(text or "")
        return cls(int(found[1]), int(found[2])) if found else cls()

    @classmethod
    def of(cls, number: int) -> Place:
        """Undo `number`."""
        return cls(number >> STEP_BITS, number & ((1 << STEP_BITS) - 1))

    def __str__(self) -> str:
        return f"{self.event}-{self.step}"

    @property
    def number(self) -> int:
        """The place as one number, which grows with it."""
        return self.event << STEP_BITS | self.step


@dataclass(frozen=True, slots=True)
class Entry:
    """An event or a step of a run."""

    row: StreamRow
    place: Place
    is_new: bool
    """Whether it comes after the reader's place; older entries rebuild what a view needs."""
    event: Wire | None = None
    state: StateSnapshot | None = None


class _Steps:
    """The steps of a run as they are written, the oldest first.

    The log of events may be behind the checkpoints: a step waits until the events have told its
    last message, so that a client sees a message grow before it sees it in the state.
    """

    def __init__(self, context: RequestContext, row: StreamRow, agent: Agent, after: int) -> None:
        self._threads, self._row, self._graph = context.saver.threads, row, agent.graph
        self._after, self._read_to = after, 0
        self._ready: deque[tuple[int, str]] = deque()
        self._next: StateSnapshot | None = None
        self._told: set[str | None] = set()

    def note(self, event: Wire) -> None:
        """Note a message that an event tells."""
        if event["event"] == "on_chat_model_end":
            self._told.add(event["data"].get("message_id", ""))
        elif event["event"] == "on_tool_end":
            self._told.add(event["run_id"])

    async def new(self, *, all: bool) -> AsyncIterator[tuple[int, StateSnapshot]]:
        """Yield the steps since the last call that the events have reached; or all."""
        await self._read()
        while self._ready:
            number, key = self._ready[0]
            state = self._next = self._next or await self._graph.aget_state(
                shapes.at(self._row.thread_id, key)
            )
            if not (all or self._is_told(state)):
                return
            self._ready.popleft()
            self._next = None
            yield number, state

    def _is_told(self, state: StateSnapshot) -> bool:
        messages = messages_in(state)
        last = messages[-1] if messages else None
        if not isinstance(last, AIMessage | ToolMessage) or "" in self._told:
            return True
        key = last.id if isinstance(last, AIMessage) else last.tool_call_id
        return last.id in self._known or key in self._told

    async def _read(self) -> None:
        found = await self._listed(_FEW)
        if len(found) == _FEW:  # there may be more
            found = await self._listed(None)
        if not found:
            return
        if not self._read_to:  # what the run began with
            first = await self._graph.aget_state(shapes.at(self._row.thread_id, found[-1][1]))
            self._known = {message.id for message in messages_in(first)}
        self._read_to = found[0][0]
        self._ready.extend(step for step in reversed(found) if step[0] >= self._after)

    async def _listed(self, limit: int | None) -> list[tuple[int, str]]:
        found: list[tuple[int, str]] = []
        try:
            async for step in self._threads.history(self._row.thread_id, limit):
                number = (step.step or 0) + 2  # LangGraph counts from -1, and 0 is none
                if step.run_id != self._row.run_id:
                    if found:
                        break
                elif number <= self._read_to:
                    break
                else:
                    found.append((number, step.checkpoint_id))
        except ThreadNotFoundError:
            return []
        return found


def messages_in(state: StateSnapshot) -> list[BaseMessage]:
    """Return the messages of a state; a guest may hold anything."""
    found = state.values.get("messages") if isinstance(state.values, Mapping) else None
    return [m for m in found if isinstance(m, BaseMessage)] if isinstance(found, list) else []


async def entries(
    context: RequestContext, row: StreamRow, agent: Agent, after: Place, *, steps: bool
) -> AsyncIterator[Entry | None]:
    """Yield a run's events and, if they are wanted, its steps; None is a pause.

    Args:
        context: The request's.
        row: The run.
        agent: Its agent.
        after: Where the reader is.
        steps: Whether to read checkpoints; each one is a copy of the whole state.
    """
    live = context.tenant.runs.find(row)
    log = None if live is None else live.event_log
    place = Place(max(row.first - 1, 0), after.step if after.event >= row.first else 0)
    written = _Steps(context, row, agent, place.step)
    async for found in events_after(context.saver, row, row.first - 1, log):
        if found is None:
            yield None
            continue
        number, event = found
        ends = event["event"] in TERMINAL
        written.note(event)
        place = Place(number, place.step)
        entry = Entry(row, place, number > after.event, event=event)
        if not ends:
            yield entry
        if steps and number >= after.event and _follows_a_step(event):
            async for step, state in written.new(all=ends):
                is_new = step > after.step or after.event < row.first
                place = Place(number - ends, step)
                yield Entry(row, place, is_new, state=state)
        if ends:  # it is the last of all
            yield replace(entry, place=Place(number, place.step))
            return


def _follows_a_step(event: Wire) -> bool:
    return event["event"] not in ("on_chat_model_stream", "on_output", "on_subagent")


async def runs_after(
    context: RequestContext, thread_id: str, after: int
) -> AsyncIterator[StreamRow | None]:
    """Yield the runs of a thread that have events after a number, also later ones; None is a pause.

    It ends when the thread, the caller's token or the server does.
    """
    streams, first = context.streams, 0
    due = time.monotonic() + _CHECK
    with changes(context.saver, thread_id) as changed:
        while not context.service.draining:
            changed.clear()
            rows = await streams.run(streams.of_thread, thread_id, _FEW)
            current = next((row.first for row in rows if row.first <= after + 1), 0)
            for row in reversed(rows):
                if row.status != QUEUED and row.first > first and row.first >= current:
                    first = row.first
                    yield row
            yield None
            await set_within(changed, _CHECK if context.saver.notices.works else _POLL)
            if time.monotonic() >= due:
                due = time.monotonic() + _CHECK
                if not await context.is_admitted():
                    return
                if await context.saver.threads.aget(thread_id) is None:
                    return


def agent_name(row: StreamRow) -> str:
    """Return the id of a run's agent."""
    name: Any = row.asked["agent"]
    return str(name)


async def waiting(agent: Agent, row: StreamRow, event: Wire) -> Any:
    """Return the thread's state if the run ends with a question; else None."""
    if event["data"].get("stopped_because") != "interrupted":
        return None
    found = await agent.graph.aget_state(shapes.at(row.thread_id))
    ours = (found.metadata or {}).get("run_id") in (None, row.run_id)
    return found if found.interrupts and ours else None
