"""One run of a child: begun or found again, its questions asked, its events passed on."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from langchain_core.runnables.config import var_child_runnable_config
from langgraph.types import interrupt

from wick_graph import keys
from wick_graph.drive import THREADS
from wick_graph.errors import RunError, ThreadNotFoundError
from wick_graph.events import Done, Event, Failed, Interrupted, SubagentEvent
from wick_graph.runtime import run_of
from wick_graph.store import SqlSaver
from wick_graph.streaming import QueuePort
from wick_graph.tools.protocol import ToolContext

if TYPE_CHECKING:
    from wick_graph.agent import Agent
    from wick_graph.result import Result

_ASKED: Final = "asked"
"""The name under which the ledger keeps how many questions of a call have had an answer."""


async def adopted(store: Any, thread_id: str, parent: str | None) -> None:
    """Note in the store whose child a thread is, if there is that thread."""
    if isinstance(store, SqlSaver) and parent is not None:
        with suppress(ThreadNotFoundError):
            await store.threads.aadopt(thread_id, parent)


@dataclass(frozen=True, slots=True)
class Child:
    """A child's thread, on behalf of one call of its parent."""

    agent: Agent
    name: str
    thread_id: str
    ctx: ToolContext
    path: tuple[str, ...]
    """The agents from the one below the user's down to this one."""
    rules: Mapping[str, Any]
    """The rules of approval that bind it, as a part of its config."""

    async def answer(self, task: str) -> Result:
        """Return the end of the child's work, asking the user what it asks.

        Raises:
            WickError: The child's run failed.
            GraphBubbleUp: The child waits for the user.
        """
        key = self.ctx.key[:255]
        if run_of(self.ctx.config).resumed:  # what the child gets done counts as its parent's
            await adopted(self.agent.store, self.thread_id, self.ctx.thread_id)
        result = await self._run(
            lambda config: self.agent.ainvoke(
                task, thread_id=self.thread_id, config=config, idempotency_key=key
            ),
            lambda config: self.agent.astream(
                task, thread_id=self.thread_id, config=config, idempotency_key=key
            ),
        )
        await adopted(self.agent.store, self.thread_id, self.ctx.thread_id)
        asked = 0
        if result.stopped_because == "interrupted" and result.interrupts:
            asked = await self._pass_over(result.interrupts[0].value)
        while result.stopped_because == "interrupted" and result.interrupts:
            answers, asked = await self._ask(result, asked)
            result = await self._resume(answers)
        return result

    async def _resume(self, answers: dict[str, Any]) -> Result:
        return await self._run(
            lambda config: self.agent.aresume(self.thread_id, answers, config=config),
            lambda config: self.agent.astream_resume(self.thread_id, answers, config=config),
        )

    async def _ask(self, result: Result, asked: int) -> tuple[dict[str, Any], int]:
        """Ask the user what the child asks; raises an interrupt until there is an answer."""
        questions = result.interrupts
        answers = {one.id: interrupt(self._question(one.value)) for one in questions}
        for _ in questions:
            await self._note(asked)
            asked += 1
        return answers, asked

    def _question(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        inner = value.get("agents") or ()
        return {**value, "agents": [self.name, *inner], "call_id": self.ctx.call_id}

    async def _pass_over(self, question: Any) -> int:
        """Pass over the answers that the child has had before this process; return how many.

        LangGraph tells the answers of a task apart by their order alone. So those that the child
        was given are counted in the ledger: an answer goes to the question that it was the answer
        of, or the question is asked again.
        """
        ledger = run_of(self.ctx.config).ledger
        count = 0
        if ledger is not None:
            while await ledger.arecorded(self._key(count), _ASKED, {}) is not None:
                interrupt(self._question(question))
                count += 1
        return count

    async def _note(self, count: int) -> None:
        ledger = run_of(self.ctx.config).ledger
        if ledger is None:
            raise RunError(
                f"{self.name} asks something, and its caller's store cannot keep the answer; "
                "give the agents a database URL as their store"
            )
        await ledger.afinish(self._key(count), _ASKED, {}, {"output": ""})

    def _key(self, count: int) -> str:
        return f"{self.ctx.key}/{count}"

    async def _run(
        self,
        invoke: Callable[[Any], Awaitable[Result]],
        stream: Callable[[Any], AsyncIterator[Event]],
    ) -> Result:
        """Run outside of the parent's graph, and end with it."""
        config = keys.with_configurable(None, **{keys.PATH: self.path}, **self.rules)
        put = self._reader()

        async def work() -> Result:
            if put is None:
                return await invoke(config)
            return await self._told(stream(config), put)

        context = contextvars.copy_context()
        context.run(var_child_runnable_config.set, None)  # a child is no part of the parent's graph
        return await asyncio.create_task(work(), context=context)

    def _reader(self) -> Callable[[Event], Awaitable[None]] | None:
        """Say how the parent's reader is told of something, if there is one."""
        port = run_of(self.ctx.config).reader
        if port is None:
            return None

        async def put(event: Event) -> None:
            if isinstance(port, QueuePort):  # it waits for its reader, who has a thread of its own
                await asyncio.wrap_future(THREADS.submit(port.put, event))
            else:
                port.put(event)

        return put

    async def _told(
        self, events: AsyncIterator[Event], put: Callable[[Event], Awaitable[None]]
    ) -> Result:
        async for event in events:
            if isinstance(event, Failed) and event.result is not None:  # it was cancelled
                return event.result  # type: ignore[no-any-return]  # the facade's own result
            if isinstance(event, Failed):
                raise event.exception or RunError(event.error)
            if isinstance(event, Done):
                return event.result  # type: ignore[no-any-return]  # the facade's own result
            if not isinstance(event, Interrupted):  # the parent asks in its own name
                await put(self._from_below(event))
        raise RunError(f"the run of {self.name} came to no end")

    def _from_below(self, event: Event) -> SubagentEvent:
        ids: dict[str, Any] = {"run_id": self.ctx.call_id, "thread_id": self.ctx.thread_id}
        if isinstance(event, SubagentEvent):
            path = (self.name, *event.path)
            return SubagentEvent(path=path, cause=event.cause, inner=event.inner, **ids)
        return SubagentEvent(path=(self.name,), cause=self.ctx.call_id, inner=event, **ids)
