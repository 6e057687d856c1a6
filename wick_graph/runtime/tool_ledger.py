"""The ledger between hooks and tools: no call runs twice, or with an open question about it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from langchain_core.messages import AIMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.types import INTERRUPT
from langgraph.errors import GraphBubbleUp, GraphInterrupt
from langgraph.types import Interrupt, interrupt

from wick_graph import langgraph_config
from wick_graph.constants import TOO_DEEP
from wick_graph.core.request import peek
from wick_graph.errors import ToolError
from wick_graph.hooks.approvals import (
    ApprovalHook,
    Decision,
    Edit,
    approved,
    call_hash,
    decided,
    is_own,
    misfit,
    question_of,
    read_decision,
    rules_data,
)
from wick_graph.messages import ToolCall, ToolResult
from wick_graph.messages.content import is_deep
from wick_graph.runtime.context import NodeContext
from wick_graph.runtime.durability import must_record_result
from wick_graph.store.ledger import Finished, Ledger, OutcomeUnknown
from wick_graph.tools.bound import BoundTool
from wick_graph.tools.execute import execute
from wick_graph.tools.result import failure
from wick_graph.tracing import audit

# --- Open questions bind every agent: no call runs while a question about it is open.
#
# A question is a row beside the call in the ledger, written before it is asked, and so is the
# decision. A resumed run looks for the row before it runs a call, whether its agent has a rule or
# not. With a foreign store, the waiting interrupt takes the place of the row.


ASKED: Final = "asked"

DECIDED: Final = "decided"

LEFT: Final = "left"
"""Left without a decision: a new message continued without the call."""

_WHAT: Final = "approval"

_DEPTH: Final = "depth"
"""Field of a question in a graph inside a call: calls of another graph may have the same ids."""

_RUNS: Final = frozenset({"approve", "edit"})

_BOUND: Final = "a rule of the agent that gave the task"

CANNOT_ASK: Final = (
    "this call needs approval, and no question can be kept here; give the agent a store that "
    "keeps its threads"
)

_Row = tuple[str, str, dict[str, Any]]
"""A question's ledger key, its state, and its fields."""

Next = Callable[[ToolCall], Awaitable[Any]]


def key_of(key: str) -> str:
    """Return the ledger key of the question about a call."""
    return f"{key}/{_WHAT}"


@dataclass(frozen=True, slots=True)
class Gate:
    """Asks for approval of a call, and keeps questions and decisions in the thread's ledger."""

    ctx: NodeContext

    @property
    def rules(self) -> list[dict[str, Any]]:
        """The rules for a task of this call: those that bind this agent, and its own."""
        hooks = (*self.ctx.run.bound, *self.ctx.spec.hooks.approvals)
        return [rules_data(hook) for hook in hooks]

    @property
    def own_rules(self) -> list[dict[str, Any]]:
        """The rules that bind this agent, without its own."""
        return [rules_data(hook) for hook in self.ctx.run.bound]

    async def decide(self, call: ToolCall, why: str) -> Decision:
        """Ask until a decision fits this call, and record it.

        Raises:
            GraphInterrupt: There is no decision yet.
            StorageError: The question or the decision cannot be stored.
        """
        question = question_of(call, why)
        asked = question
        while True:
            try:
                answer = interrupt(asked)
            except GraphInterrupt:
                fields = {"reply": _reply_of(call), "question": question}
                await self._note(call, ASKED, fields)
                raise
            decision = read_decision(answer)
            problem = decision if isinstance(decision, str) else misfit(decision, call, question)
            if not isinstance(decision, str) and problem is None:
                await self._decided(call, question, decision)
                return decision
            asked = {**question, "problem": problem}

    async def _decided(
        self, call: ToolCall, question: Mapping[str, Any], decision: Decision
    ) -> None:
        """Record a decision with its author and time; a known decision keeps its time."""
        runs = call.replace(args=dict(decision.args)) if isinstance(decision, Edit) else call
        hashed = call_hash(runs) if decision.decision in _RUNS else ""
        fields = {
            "reply": _reply_of(call),
            "question": dict(question),
            "decision": decision.to_dict(),
            "runs": hashed,
        }
        if await self._note(call, DECIDED, fields):
            audit(
                f"approval.{decision.decision}",
                tool_name=call.name,
                tool_call_id=call.id,
                thread_id=call.ctx.thread_id,
                hash=question["hash"],
                by=decision.by,
            )
        run = self.ctx.run
        run.cleared[call.ctx.key] = hashed
        run.pending.pop(call.id, None)
        for key, state, row in (run.asked or {}).pop(call.id, ()):
            if state == ASKED and key not in ("", key_of(call.ctx.key)):
                await self._write(key, LEFT, _without_time(row))  # the reply was edited

    async def _note(self, call: ToolCall, state: str, fields: dict[str, Any]) -> bool:
        """Record a question or a decision, unless known; return whether it is new."""
        ledger = self.ctx.run.ledger
        if ledger is None:
            return True
        if depth := langgraph_config.depth_of(self.ctx.config):
            fields[_DEPTH] = depth
        known = await noted(self.ctx, call.ctx.key)
        if known is not None and known[0] == state and _without_time(known[1]) == fields:
            return False
        await self._write(key_of(call.ctx.key), state, fields)
        return True

    async def _write(self, key: str, state: str, fields: Mapping[str, Any]) -> None:
        ledger = self.ctx.run.ledger
        if ledger is None:
            return
        dated = {**fields, "at": datetime.now(UTC).isoformat()}
        await self.ctx.bridge.call(ledger.note, ledger.anote, key, _WHAT, state, dated)


def _without_time(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name != "at"}


async def noted(ctx: NodeContext, key: str) -> tuple[str, Any] | None:
    """Return the state and fields of the question about a call; None if the ledger has none."""
    ledger, beside = ctx.run.ledger, key_of(key)
    if ledger is None:
        return None
    found: tuple[str, Any] | None = await ctx.bridge.call(ledger.noted, ledger.anoted, beside)
    return found


async def leave(ctx: NodeContext, key: str) -> None:
    """Mark a call's question as left: a new message continued without a decision."""
    known = await noted(ctx, key) if ctx.run.waited else None
    if known is not None and known[0] == ASKED:
        await Gate(ctx)._write(key_of(key), LEFT, _without_time(known[1]))


async def unless_it_waits(call: ToolCall, ctx: NodeContext, next: Next) -> Any:
    """Run a call of a resumed run, unless its thread waits for a decision about it.

    Such a call is asked about again with its own arguments, whatever the agent's own rules are.
    """
    why = await _open_question(call, ctx)
    return await next(call) if why is None else await decided(call, why, next)


async def _open_question(call: ToolCall, ctx: NodeContext) -> str | None:
    """Return why a call needed approval; None if a decision allows exactly this call."""
    run, key = ctx.run, call.ctx.key
    if key in run.cleared:
        allows = run.cleared[key] == call_hash(call)
        return None if allows else "it is not the call that was allowed"
    known = await noted(ctx, key)
    if known is not None:  # even if decided: that decision was used up by another run
        return str(known[1]["question"]["why"])
    if call.id in run.pending:
        return str(run.pending[call.id].get("why", ""))
    if run.model:  # the model made the call in this run
        return None
    for _, state, row in (await _rows(ctx)).get(call.id, ()):
        if state == ASKED or row["reply"] == _reply_of(call):
            return str(row["question"]["why"])
    return None


async def _rows(ctx: NodeContext) -> dict[str, list[_Row]]:
    """Return the thread's questions by call id, decided or not; read once a run.

    A manually edited reply may have other keys for its calls.
    """
    run, ledger = ctx.run, ctx.run.ledger
    if run.asked is not None:
        return run.asked
    found: list[_Row] = []
    depth = langgraph_config.depth_of(ctx.config)
    if ledger is not None:
        for state in (ASKED, DECIDED, LEFT):
            rows = await ctx.bridge.call(
                partial(ledger.noted_as, state), partial(ledger.anoted_as, state)
            )
            own = {key: row for key, row in rows.items() if row.get(_DEPTH, 0) == depth}
            found += [(key, state, row) for key, row in own.items()]
    elif depth and langgraph_config.is_resuming(ctx.config):
        found = [("", ASKED, {"question": one}) for one in await _nested(ctx)]
    run.asked = {}
    for one in found:
        run.asked.setdefault(one[2]["question"]["call_id"], []).append(one)
    return run.asked


def _reply_of(call: ToolCall) -> str | None:
    """Return the id of the reply that contains a call."""
    for message in reversed(peek(call.ctx.state, "messages") or ()):
        if isinstance(message, AIMessage) and any(c["id"] == call.id for c in message.tool_calls):
            return message.id
    return None


async def _nested(ctx: NodeContext) -> list[Mapping[str, Any]]:
    """Return the open questions of a graph inside another graph.

    Its run has no ledger; the interrupts are in the outer graph's checkpointer.
    """
    saver = langgraph_config.configurable(ctx.config).get(langgraph_config.CHECKPOINTER)
    if not isinstance(saver, BaseCheckpointSaver):
        return []
    at: Any = langgraph_config.place_of_graph(ctx.config)
    saved: Any = await ctx.bridge.call(saver.get_tuple, saver.aget_tuple, at)
    writes = (saved.pending_writes if saved is not None else None) or ()
    asked = [value for _, channel, value in writes if channel == INTERRUPT]
    flat = [
        one for value in asked for one in (value if isinstance(value, list | tuple) else [value])
    ]
    values = [one.value for one in flat if isinstance(one, Interrupt)]
    return [value for value in values if is_own(value)]


def bound_by(rules: Sequence[ApprovalHook], ctx: NodeContext, next: Next) -> Next:
    """Wrap a call in the rules of the delegating agents."""

    async def asks(call: ToolCall) -> Any:
        why = next_why(rules, call)
        if why is None:
            return await next(call)
        if not langgraph_config.configurable(ctx.config).get(langgraph_config.CHECKPOINTER):
            return failure(call, ToolError(CANNOT_ASK))
        result: ToolResult = await approved(call, f"{why}: {_BOUND}", next)
        return result

    return asks


def next_why(rules: Sequence[ApprovalHook], call: ToolCall) -> str | None:
    """Return the reason of the first rule that needs approval; None if none does."""
    return next((why for hook in rules if (why := hook.why(call)) is not None), None)


# --- The ledger between the hooks and a tool, so that no finished call runs twice.


UNKNOWN: Final = (
    "interrupted, outcome unknown: the call was under way when its run ended; "
    "it may or may not have had its effect"
)


async def execute_once(call: ToolCall, tool: BoundTool | None, ctx: NodeContext) -> ToolResult:
    """Run a call at most once; a finished call returns its recorded result.

    In a resumed run no call runs while the thread waits for a decision about it. A call that may
    be repeated needs no intent: a crash runs it again. For any other call the intent is committed
    before the start. The result is committed before any observer sees it.

    Raises:
        ThreadBusyError: The run lost its thread; the call was not started.
    """
    if ctx.run.resumed or langgraph_config.is_resuming(ctx.config):
        next = partial(_through, tool=tool, ctx=ctx)
        result: ToolResult = await unless_it_waits(call, ctx, next)
        return result
    return await _through(call, tool, ctx)


async def _through(call: ToolCall, tool: BoundTool | None, ctx: NodeContext) -> ToolResult:
    ledger = ctx.run.ledger
    if ledger is None or tool is None or tool.check(call.args):
        call = again(call) if _may_repeat(ctx) else call
        return drop_unstorable(await execute(call, tool, ctx.bridge, ctx.spec.tool_timeout), ledger)
    if tool.replay == "safe":
        return await _repeatable(call, tool, ctx, ledger)
    key, name, args = call.ctx.key, call.name, call.args
    verdict = await ctx.bridge.call(ledger.begin, ledger.abegin, key, name, args, tool.replay)
    if isinstance(verdict, Finished):
        return recorded(call, verdict.fields)
    if isinstance(verdict, OutcomeUnknown):
        return failure(call, ToolError(UNKNOWN))
    return await _executed(again(call) if verdict.again else call, tool, ctx, ledger)


async def _repeatable(
    call: ToolCall, tool: BoundTool, ctx: NodeContext, ledger: Ledger
) -> ToolResult:
    """Run a repeatable call; the ledger keeps its result only if the run is observed."""
    key, name, args = call.ctx.key, call.name, call.args
    if ctx.run.resumed:
        known = await ctx.bridge.call(ledger.begun, ledger.abegun, key, name, args)
        if isinstance(known, Finished):
            return recorded(call, known.fields)
        call = again(call) if known is not None or _may_repeat(ctx) else call
    if must_record_result(observed=ctx.run.observed, replay=tool.replay):
        ledger.identify(key, name, args)
    return await _executed(call, tool, ctx, ledger)


async def _executed(
    call: ToolCall, tool: BoundTool, ctx: NodeContext, ledger: Ledger
) -> ToolResult:
    key, name, args = call.ctx.key, call.name, call.args
    try:
        result = await execute(call, tool, ctx.bridge, ctx.spec.tool_timeout, checked=True)
    except GraphBubbleUp:
        await ctx.bridge.call(ledger.mark_waiting, ledger.amark_waiting, key, name, args)
        raise
    result = drop_unstorable(result, ledger)
    if must_record_result(observed=ctx.run.observed, replay=tool.replay):
        await _finish(call, result, ctx, ledger)
    return result


async def has_begun(call: ToolCall, ctx: NodeContext) -> bool:
    """Return whether a call had begun before the run waited for an answer to its question."""
    ledger, look = ctx.run.ledger, (call.ctx.key, call.name, call.args)
    if ledger is None or not ctx.run.waited:
        return False
    known = await ctx.bridge.call(ledger.begun, ledger.abegun, *look)
    return known is not None


def again(call: ToolCall) -> ToolCall:
    """Mark a call as one that may have run before."""
    return call.replace(ctx=replace(call.ctx, replayed=True))


def _may_repeat(ctx: NodeContext) -> bool:
    """Return whether an earlier run may have begun this run's calls without a record.

    If this run called the model, its calls are its own. If the earlier run waited for an answer,
    all its calls had ended or left a record.
    """
    run = ctx.run
    return run.resumed and not run.waited and not run.usage.calls


async def _finish(call: ToolCall, result: ToolResult, ctx: NodeContext, ledger: Ledger) -> None:
    key, name, args, fields = call.ctx.key, call.name, call.args, written(result)
    await ctx.bridge.call(ledger.finish, ledger.afinish, key, name, args, fields)


def written(result: ToolResult) -> dict[str, Any]:
    """Return a call's whole result as fields."""
    return {
        "output": result.output,
        "error": result.error,
        "content": result.content,
        "update": None if result.update is None else dict(result.update),
        "artifact": result.artifact,
    }


def recorded(call: ToolCall, fields: Mapping[str, Any]) -> ToolResult:
    """Make a call's result from its recorded fields."""
    return ToolResult(tool_call_id=call.id, name=call.name, **fields)


def _deep(value: Any) -> str | None:
    """Return why no store or copy can hold a value, or None."""
    return TOO_DEEP if is_deep(value) else None


def drop_unstorable(result: ToolResult, ledger: Ledger | None) -> ToolResult:
    """Remove data from a result that the store cannot hold, while it can still be reported.

    An artifact becomes a note of its type; a state update makes the call fail.
    """
    refusal = _deep if ledger is None else ledger.refusal
    if result.artifact is not None and (why := refusal(result.artifact)) is not None:
        kind = type(result.artifact).__name__
        result = result.replace(artifact={"not_stored": kind, "why": why})
    if result.update and (why := refusal(dict(result.update))) is not None:
        return result.replace(update=None, output="", error=f"its state update is refused: {why}")
    return result
