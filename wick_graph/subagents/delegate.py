"""The tool that delegates a task to another agent and waits for its answer.

The other agent, the child, works in its own thread; the thread's id derives from the call's ledger
key. So the same call always means the same thread: repeated after a crash it continues the child,
and repeated after the child's end it returns the same answer. The child knows only the task.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from langchain_core.messages import AIMessage, BaseMessage, ChatMessage, HumanMessage
from langchain_core.runnables.config import var_child_runnable_config
from langgraph.errors import GraphBubbleUp
from langgraph.runtime import Runtime
from langgraph.types import interrupt

from wick_graph import langgraph_config
from wick_graph.core.bridge import THREADS
from wick_graph.core.context import ContextSchema, check_child
from wick_graph.core.moments import Moment, NodeListener
from wick_graph.core.redaction import REDACTOR
from wick_graph.core.request import peek
from wick_graph.core.state import add_numbers
from wick_graph.engine.graph import ChainStep
from wick_graph.engine.streaming import QueueListener
from wick_graph.errors import (
    ConfigError,
    RunCancelled,
    RunError,
    ThreadNotFoundError,
    ToolError,
    WickError,
)
from wick_graph.events import Done, Event, Failed, Interrupted, SubagentEvent
from wick_graph.messages import (
    ToolCall,
    ToolResult,
    agent_call,
    agent_response,
    error_message,
    timestamp_of,
)
from wick_graph.runtime.context import place_of, run_of
from wick_graph.store import SqlSaver
from wick_graph.tools.function_tool import FuncTool
from wick_graph.tools.langchain_tool import runtime_of
from wick_graph.tools.protocol import ToolContext
from wick_graph.tools.result import failure

if TYPE_CHECKING:
    from wick_graph.engine.agent import Agent
    from wick_graph.engine.result import Result


# --- The records that a thread keeps of a delegated task: the request and its outcome.
#
# Each record has the id of its tool call. The model reads the call and its result instead of the
# records, so it sees nothing twice.


def request(
    ctx: ToolContext, name: str, task: str, task_id: str, at: datetime | None = None
) -> ChatMessage:
    """Build the record of a task for the agent `name`; its id derives from the task's."""
    return agent_call(
        task,
        name,
        caller=ctx.agent,
        task_id=task_id,
        tool_call_id=ctx.call_id,
        message_id=f"{task_id}/call",
        timestamp=at,
    )


def response(ctx: ToolContext, name: str, text: str, task_id: str, result: Result) -> ChatMessage:
    """Build the record of a task's answer, with the seconds from the task to the answer.

    Both times come from the child's thread, so a call that is repeated after a crash records the
    same.
    """
    began, ended = began_at(result), _ended_at(result.messages)
    spent = None if began is None or ended is None else max((ended - began).total_seconds(), 0.0)
    return agent_response(
        text,
        name,
        task_id=task_id,
        completion_time=spent,
        tool_call_id=ctx.call_id,
        message_id=response_id(task_id),
        timestamp=ended,
    )


def failure_record(
    ctx: ToolContext, name: str, error: BaseException | str, task_id: str
) -> ChatMessage:
    """Build the record of a failed task."""
    kind = {"error_type": type(error).__name__} if isinstance(error, BaseException) else {}
    return error_message(
        REDACTOR.text(str(error)),
        name,
        tool_call_id=ctx.call_id,
        metadata={**kind, "caller": ctx.agent, "task_id": task_id},
        message_id=response_id(task_id),
    )


def response_id(task_id: str) -> str:
    """Return the id of the record of a task's outcome."""
    return f"{task_id}/response"


def began_at(result: Result) -> datetime | None:
    """Return when the child received its task."""
    return next((timestamp_of(m) for m in result.messages if m.type == "human"), None)


def _ended_at(messages: Sequence[BaseMessage]) -> datetime | None:
    return timestamp_of(messages[-1]) if messages else None


# --- One run of a child: start or continue it, ask its questions, pass its events on.


_ASKED: Final = "asked"
"""Name of the ledger entry that counts the answered questions of a call."""


async def adopted(store: Any, thread_id: str, parent: str | None) -> None:
    """Record the parent of a thread in the store, if the thread exists."""
    if isinstance(store, SqlSaver) and parent is not None:
        with suppress(ThreadNotFoundError):
            await store.threads.aadopt(thread_id, parent)


def input_of(task: str, origin: Mapping[str, Any]) -> Any:
    """Return a child's input: the task, and where its parent's conversation is held."""
    if not origin:
        return task
    return {"messages": [HumanMessage(task)], "origin": dict(origin)}


def handed(agent: Agent, ctx: ToolContext) -> Any:
    """Return the parent's context for a child of the same schema; None for any other child."""
    wanted, given = agent.spec.context, ctx.context
    known = run_of(ctx.config).context_schema
    if agent.spec.guest and known is not None:  # the graph itself knows what it takes
        return given if agent.graph.context_schema is known.schema else None
    if wanted is None or given is None:
        return None
    same = known is not None and known.schema is wanted.schema
    return given if same or wanted.fits(given) else None


def tell_of_child(ctx: ToolContext, phase: str, name: str, data: Mapping[str, Any]) -> None:
    """Record that a sub-agent begins or returns, with its thread."""
    if (listener := run_of(ctx.config).listener).active:
        visit = NodeListener(listener, place_of("tools", ctx.config))
        visit.record(Moment("agent", phase, name, data, ctx.call_id))


@dataclass(frozen=True, slots=True)
class Child:
    """A child's thread, for one call of its parent."""

    agent: Agent
    name: str
    thread_id: str
    ctx: ToolContext
    path: tuple[str, ...]
    """The agents from the user's own (exclusive) down to this one."""
    rules: Mapping[str, Any]
    """The approval rules that bind the child, as part of its config."""

    async def answer(self, task: str) -> Result:
        """Return the child's result; ask the user its questions.

        Raises:
            WickError: The child's run failed.
            GraphBubbleUp: The child waits for the user.
        """
        tell_of_child(self.ctx, "spawn", self.name, {"thread": self.thread_id})
        try:
            result = await self._answer(task)
        except Exception as error:
            if not isinstance(error, GraphBubbleUp):  # it only waits
                data = {"thread": self.thread_id, "error": error}
                tell_of_child(self.ctx, "return", self.name, data)
            raise
        data = {"thread": self.thread_id, "stopped_because": result.stopped_because}
        tell_of_child(self.ctx, "return", self.name, data)
        return result

    async def _answer(self, task: str) -> Result:
        key, given = self.ctx.key[:255], input_of(task, self.ctx.origin)
        if run_of(self.ctx.config).resumed:  # a child's progress counts as its parent's
            await adopted(self.agent.store, self.thread_id, self.ctx.thread_id)
        result = await self._run(
            lambda **more: self.agent.ainvoke(
                given, thread_id=self.thread_id, idempotency_key=key, **more
            ),
            lambda **more: self.agent.astream(
                given, thread_id=self.thread_id, idempotency_key=key, **more
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
            lambda **more: self.agent.aresume(self.thread_id, answers, **more),
            lambda **more: self.agent.astream_resume(self.thread_id, answers, **more),
        )

    async def _ask(self, result: Result, asked: int) -> tuple[dict[str, Any], int]:
        """Ask the user the child's questions; raise an interrupt until there is an answer."""
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
        """Skip the answers that the child got before this process; return how many.

        LangGraph tells the answers of a task apart by their order only. So the ledger counts the
        answers that the child got: each answer reaches its own question, or the question is asked
        again.
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
                f"{self.name} has a question, but its caller's store cannot keep the answer; "
                "give the agents a database URL as their store"
            )
        await ledger.afinish(self._key(count), _ASKED, {}, {"output": ""})

    def _key(self, count: int) -> str:
        return f"{self.ctx.key}/{count}"

    async def _run(
        self,
        invoke: Callable[..., Awaitable[Result]],
        stream: Callable[..., AsyncIterator[Event]],
    ) -> Result:
        """Run the child outside the parent's graph, but end with it."""
        config = langgraph_config.with_configurable(
            None, **{langgraph_config.PATH: self.path}, **self.rules
        )
        put, more = self._reader(), {"config": config, "context": handed(self.agent, self.ctx)}

        async def work() -> Result:
            if put is None:
                return await invoke(**more)
            return await self._follow(stream(**more), put)

        context = contextvars.copy_context()
        context.run(
            var_child_runnable_config.set, None
        )  # a child is not part of the parent's graph
        result = await asyncio.create_task(work(), context=context)
        if result.stopped_because in ("cancelled", "limit"):
            run_of(self.ctx.config).stop.check()  # it ended with its parent: that is no answer
        return result

    def _reader(self) -> Callable[[Event], Awaitable[None]] | None:
        """Return how to pass an event to the parent's reader, if there is one."""
        listener = run_of(self.ctx.config).reader
        if listener is None:
            return None

        async def put(event: Event) -> None:
            if isinstance(
                listener, QueueListener
            ):  # it waits for its reader, which has its own thread
                await asyncio.wrap_future(THREADS.submit(listener.put, event))
            else:
                listener.put(event)

        return put

    async def _follow(
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
        raise RunError(f"the run of {self.name} ended without a result")

    def _from_below(self, event: Event) -> SubagentEvent:
        ids: dict[str, Any] = {"run_id": self.ctx.call_id, "thread_id": self.ctx.thread_id}
        if isinstance(event, SubagentEvent):
            path = (self.name, *event.path)
            return SubagentEvent(path=path, cause=event.cause, inner=event.inner, **ids)
        return SubagentEvent(path=(self.name,), cause=self.ctx.call_id, inner=event, **ids)


NAME: Final = "delegate_to_agent"

MAX_DEPTH: Final = 3
"""Levels of agents below the user's own."""

MAX_CALLS: Final = 16
"""Tasks that one run may delegate."""


@dataclass(frozen=True, slots=True)
class Subagent:
    """An agent that can be given tasks."""

    agent: Agent | Callable[[], Agent]
    """The agent, or a function that returns it when needed; its store is a database."""
    description: str
    """What it is good for, in words for the model."""
    inherit_approvals: bool = True
    """Whether the approval rules of the delegating agent also bind this agent. Its own rules
    always do."""


def delegation(
    agents: Mapping[str, Subagent], *, max_depth: int = MAX_DEPTH, max_calls: int = MAX_CALLS
) -> FuncTool[..., Any]:
    """Make the tool `delegate_to_agent`.

    The child's questions and approvals are the parent's: they come to the user under the parent's
    thread, and are answered there. Its tokens and its cost count for the parent too; what happens
    in it comes to a reader as `SubagentEvent`. It is cancelled with the parent.

    Args:
        agents: Sub-agents by the names that the model sees.
        max_depth: How many levels deep tasks may be delegated, counted from the user's run.
        max_calls: Tasks that one run may delegate.

    Raises:
        ConfigError: There is no agent, one has no description, or a limit is less than 1.
    """
    _check(agents, max_depth, max_calls)

    async def delegate_to_agent(args: dict[str, Any], ctx: ToolContext) -> ToolResult:
        name = args["agent"]
        path = langgraph_config.path_of(ctx.config)
        if len(path) >= max_depth:
            raise ToolError(
                f"this agent cannot delegate further: {' > '.join(path)} is the depth limit"
            )
        if _before(ctx) >= max_calls:
            raise ToolError(f"this run has delegated {max_calls} tasks, which is the limit")
        given = agents[name].agent
        agent = given if isinstance(given, ChainStep) else given()
        child = Child(agent, name, thread_of(ctx), ctx, (*path, name), brought(agents[name], ctx))
        try:
            result = await child.answer(args["task"])
        except RunCancelled:
            run_of(ctx.config).stop.check()
            raise ToolError(f"{name} was stopped") from None
        except WickError as error:
            return _failed(error, child, args["task"])
        return _result(result, child, args["task"])

    listed = "\n".join(f"- {name}: {one.description.strip()}" for name, one in agents.items())
    return _Delegation(
        NAME,
        "Give a task to another agent and wait for its answer. It knows nothing of this "
        f"conversation: say all that it needs.\n{listed}",
        _parameters(list(agents)),
        delegate_to_agent,
        replay="safe",  # a repeated call finds its child
        timeout=None,
        agents={name: one.description for name, one in agents.items()},
        children=agents,
    )


class _Delegation(FuncTool[..., Any]):
    """The tool, which knows its agents."""

    def __init__(self, *given: Any, children: Mapping[str, Subagent], **more: Any) -> None:
        super().__init__(*given, **more)
        self._children = children

    def check_caller(self, context: ContextSchema | None) -> None:
        """Refuse an agent that has no context for one of these."""
        check_contexts(self._children, context)


def check_contexts(agents: Mapping[str, Subagent], context: ContextSchema | None) -> None:
    """Check that sub-agents get their contexts from an agent with this one.

    Those that are made later are not known yet.

    Raises:
        ConfigError: One does not.
    """
    for name, one in agents.items():
        if isinstance(one.agent, ChainStep):
            check_child(name, one.agent.spec.context, context)


def brought(one: Subagent, ctx: ToolContext) -> dict[str, Any]:
    """Return what a task gets as keys of its config: approval rules, and the long-term store."""
    made: dict[str, Any] = {}
    if (store := runtime_of(ctx.config).store) is not None:
        made[langgraph_config.LONG_TERM] = Runtime(store=store)
    if ctx.gate is not None:
        rules = ctx.gate.rules if one.inherit_approvals else ctx.gate.own_rules
        if rules:
            made[langgraph_config.RULES] = {"parent": ctx.thread_id, "rules": rules}
    return made


def _check(agents: Mapping[str, Subagent], max_depth: int, max_calls: int) -> None:
    if not agents:
        raise ConfigError("delegation needs at least one agent")
    if max_depth < 1 or max_calls < 1:
        raise ConfigError("max_depth and max_calls must be at least 1")
    for name, one in agents.items():
        if not one.description.strip():
            raise ConfigError(f"the sub-agent {name} needs a description, for the model")


def thread_of(ctx: ToolContext) -> str:
    """Return the id of the child's thread: the same for the same call."""
    made = blake2b(f"{ctx.thread_id}\0{ctx.key}".encode("utf-8", "surrogatepass"), digest_size=12)
    return f"th_{made.hexdigest()}"


def _parameters(names: Sequence[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "agent": {"type": "string", "enum": list(names), "description": "Who is to do it"},
            "task": {
                "type": "string",
                "minLength": 1,
                "description": "The whole task, with all that is needed to do it",
            },
        },
        "required": ["agent", "task"],
    }


def _before(ctx: ToolContext) -> int:
    """Count the tasks that this run has delegated before this call."""
    messages: Sequence[BaseMessage] = peek(ctx.state, "messages") or ()
    made = 0
    for message in reversed(messages):
        if message.type == "human":
            break
        if isinstance(message, AIMessage):
            calls = message.tool_calls
            if any(call["id"] == ctx.call_id for call in calls):
                calls = calls[: ctx.index]
            made += sum(call["name"] == ctx.name for call in calls)
    return made


def counted(result: Result, ctx: ToolContext, update: Mapping[str, Any]) -> dict[str, Any]:
    """Add a child's usage to its parent's, and to an update of the parent's state."""
    run_of(ctx.config).count(result.thread_usage)
    made = {**update, "usage": add_numbers(update.get("usage"), result.thread_usage.to_dict())}
    if result.thread_cost is not None:
        spent = {k: v for k, v in result.thread_cost.to_dict().items() if type(v) is int and v}
        both = {**spent, **{f"run_{key}": value for key, value in spent.items()}}
        made["cost"] = add_numbers(update.get("cost"), both)
    return made


def _failed(error: WickError, child: Child, task: str) -> ToolResult:
    """Return the child's failure; record request and error."""
    ctx, name, task_id = child.ctx, child.name, child.thread_id
    call = ToolCall(id=ctx.call_id, name=ctx.name)
    failed = failure(call, ToolError(f"{name} failed: {error}"))
    pair = [
        request(ctx, name, task, task_id),
        failure_record(ctx, name, error, task_id),
    ]
    return failed.replace(update={"messages": pair})


def _result(result: Result, child: Child, task: str) -> ToolResult:
    """Return the child's answer; add its usage to its parent's; record request and answer."""
    ctx, name, task_id = child.ctx, child.name, child.thread_id
    text = result.text or f"{name} gave no answer: it stopped because of {result.stopped_because}"
    pair = [
        request(ctx, name, task, task_id, began_at(result)),
        response(ctx, name, text, task_id, result),
    ]
    update = counted(result, ctx, {"messages": pair})
    return ToolResult(tool_call_id=ctx.call_id, name=ctx.name, output=text, update=update)
