"""The ledger between hooks and tools: no call runs twice, or while a question about it is open."""

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
from wick_graph.store.ledger import Ledger, Recorded, Unknown
from wick_graph.tools.bound import BoundTool
from wick_graph.tools.execute import execute
from wick_graph.tools.result import failure
from wick_graph.tracing import audit

# --- What a thread waits for binds every agent: no call runs while a question about it is open.
#
# A question is a row beside the call in the ledger, made before anybody is asked, and so is the
# decision. A resumed run looks for the row before it runs a call, whether its agent has a rule or
# not. On a store that is not ours the interrupt that waits stands for the row.


ASKED: Final = "asked"

DECIDED: Final = "decided"

LEFT: Final = "left"
"""Nobody decided: a new message went on without the call."""

_WHAT: Final = "approval"

_RUNS: Final = frozenset({"approve", "edit"})

_BOUND: Final = "a rule of the agent that gave the task"

CANNOT_ASK: Final = (
    "this call needs approval, and nobody can be asked here; give the agent a store that keeps "
    "its threads"
)

_Row = tuple[str, str, dict[str, Any]]
"""A question's key in the ledger, its state, and the rest."""

Next = Callable[[ToolCall], Awaitable[Any]]


def key_of(key: str) -> str:
    """Return the key in the ledger of the question about a call."""
    return f"{key}/{_WHAT}"


@dataclass(frozen=True, slots=True)
class Gate:
    """What a call's context offers to those who must ask before it: the thread's memory of it."""

    ctx: NodeContext

    @property
    def rules(self) -> list[dict[str, Any]]:
        """The rules that a task of this call brings along: those of this agent, and its own."""
        hooks = (*self.ctx.run.bound, *self.ctx.spec.hooks.approvals)
        return [rules_data(hook) for hook in hooks]

    @property
    def own_rules(self) -> list[dict[str, Any]]:
        """Those that this agent is bound by itself, without its own."""
        return [rules_data(hook) for hook in self.ctx.run.bound]

    async def decide(self, call: ToolCall, why: str) -> Decision:
        """Ask until there is a decision that fits this very call, and note it.

        Raises:
            GraphInterrupt: Nobody has decided yet.
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
        """Note who decided what, and when; a decision that was noted keeps its time."""
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
        """File a question or a decision, unless it is there; say whether it is new."""
        ledger = self.ctx.run.ledger
        if ledger is None:
            return True
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
        await self.ctx.bridge.call(
            lambda: ledger.note(key, _WHAT, state, dated),
            lambda: ledger.anote(key, _WHAT, state, dated),
        )


def _without_time(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name != "at"}


async def noted(ctx: NodeContext, key: str) -> tuple[str, Any] | None:
    """Return what the ledger knows of a question about a call: its state, and the rest."""
    ledger, beside = ctx.run.ledger, key_of(key)
    if ledger is None:
        return None
    found: tuple[str, Any] | None = await ctx.bridge.call(
        lambda: ledger.noted(beside), lambda: ledger.anoted(beside)
    )
    return found


async def leave(ctx: NodeContext, key: str) -> None:
    """Note that nobody decided about a call that a new message leaves behind."""
    known = await noted(ctx, key) if ctx.run.waited else None
    if known is not None and known[0] == ASKED:
        await Gate(ctx)._write(key_of(key), LEFT, _without_time(known[1]))


async def unless_it_waits(call: ToolCall, ctx: NodeContext, next: Next) -> Any:
    """Run a call of a resumed run, unless its thread waits for a decision about it.

    Whatever the agent's own rules say, such a call is asked about again, with its own arguments.
    """
    why = await _open_question(call, ctx)
    return await next(call) if why is None else await decided(call, why, next)


async def _open_question(call: ToolCall, ctx: NodeContext) -> str | None:
    """Say why a call was to be asked about, if no decision lets exactly this call run."""
    run, key = ctx.run, call.ctx.key
    if key in run.cleared:
        allows = run.cleared[key] == call_hash(call)
        return None if allows else "it is not the call that was allowed"
    known = await noted(ctx, key)
    if known is not None:  # a decision, too, is taken as an answer: the next one is another's
        return str(known[1]["question"]["why"])
    if call.id in run.pending:
        return str(run.pending[call.id].get("why", ""))
    if run.model:  # it was asked in this run, and made the call
        return None
    for _, state, row in (await _rows(ctx)).get(call.id, ()):
        if state == ASKED or row["reply"] == _reply_of(call):
            return str(row["question"]["why"])
    return None


async def _rows(ctx: NodeContext) -> dict[str, list[_Row]]:
    """Return the thread's questions by call id, decided or not; read once a run.

    Who edits a reply by hand may give its calls other keys.
    """
    run, ledger = ctx.run, ctx.run.ledger
    if run.asked is not None:
        return run.asked
    found: list[_Row] = []
    if ledger is not None:
        for state in (ASKED, DECIDED, LEFT):
            rows = await ctx.bridge.call(
                partial(ledger.noted_as, state), partial(ledger.anoted_as, state)
            )
            found += [(key, state, row) for key, row in rows.items()]
    elif langgraph_config.is_resuming(ctx.config):
        found = [("", ASKED, {"question": one}) for one in await _nested(ctx)]
    run.asked = {}
    for one in found:
        run.asked.setdefault(one[2]["question"]["call_id"], []).append(one)
    return run.asked


def _reply_of(call: ToolCall) -> str | None:
    """Return the id of the reply that makes a call."""
    for message in reversed(peek(call.ctx.state, "messages") or ()):
        if isinstance(message, AIMessage) and any(c["id"] == call.id for c in message.tool_calls):
            return message.id
    return None


async def _nested(ctx: NodeContext) -> list[Mapping[str, Any]]:
    """Return the questions that wait where the graph runs inside of another one.

    Its run has no ledger; the interrupts are in the outer graph's checkpointer.
    """
    saver = langgraph_config.configurable(ctx.config).get(langgraph_config.CHECKPOINTER)
    if not isinstance(saver, BaseCheckpointSaver):
        return []
    at: Any = langgraph_config.place_of_graph(ctx.config)
    saved: Any = await ctx.bridge.call(lambda: saver.get_tuple(at), lambda: saver.aget_tuple(at))
    writes = (saved.pending_writes if saved is not None else None) or ()
    asked = [value for _, channel, value in writes if channel == INTERRUPT]
    flat = [
        one for value in asked for one in (value if isinstance(value, list | tuple) else [value])
    ]
    values = [one.value for one in flat if isinstance(one, Interrupt)]
    return [value for value in values if is_own(value)]


def bound_by(rules: Sequence[ApprovalHook], ctx: NodeContext, next: Next) -> Next:
    """Put the rules of the agents that gave the task around a call."""

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
    """Say why the first rule asks that does; None if none does."""
    return next((why for hook in rules if (why := hook.why(call)) is not None), None)


# --- What stands between the hooks and a tool: the ledger, so that nothing finished is run
# twice.


UNKNOWN: Final = (
    "interrupted, outcome unknown: the call was under way when its run ended; "
    "it may or may not have had its effect"
)


async def execute_once(call: ToolCall, tool: BoundTool | None, ctx: NodeContext) -> ToolResult:
    """Run a call once, whatever happens: a finished one gives its recorded result.

    In a resumed run no call runs while the thread waits for a decision about it. A call that may
    be repeated needs no intent: a crash runs it again. Any other has its intent committed before it
    starts. The result is committed before anybody is told of it.

    Raises:
        ThreadBusyError: The run lost its thread; the call was not started.
    """
    if ctx.run.resumed or langgraph_config.is_resuming(ctx.config):
        result: ToolResult = await unless_it_waits(
            call, ctx, lambda allowed: _through(allowed, tool, ctx)
        )
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
    verdict = await ctx.bridge.call(
        lambda: ledger.begin(key, name, args, tool.replay),
        lambda: ledger.abegin(key, name, args, tool.replay),
    )
    if isinstance(verdict, Recorded):
        return recorded(call, verdict.fields)
    if isinstance(verdict, Unknown):
        return failure(call, ToolError(UNKNOWN))
    return await _executed(again(call) if verdict.again else call, tool, ctx, ledger)


async def _repeatable(
    call: ToolCall, tool: BoundTool, ctx: NodeContext, ledger: Ledger
) -> ToolResult:
    """Run a call that may be repeated; only what somebody was told of is looked up and kept."""
    key, name, args = call.ctx.key, call.name, call.args
    if ctx.run.resumed:
        known = await ctx.bridge.call(
            lambda: ledger.begun(key, name, args), lambda: ledger.abegun(key, name, args)
        )
        if isinstance(known, Recorded):
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
        await ctx.bridge.call(
            lambda: ledger.wait(key, name, args), lambda: ledger.await_(key, name, args)
        )
        raise
    result = drop_unstorable(result, ledger)
    if must_record_result(observed=ctx.run.observed, replay=tool.replay):
        await _finish(call, result, ctx, ledger)
    return result


def again(call: ToolCall) -> ToolCall:
    """Let a call's tool know that it may have been run before."""
    return call.replace(ctx=replace(call.ctx, replayed=True))


def _may_repeat(ctx: NodeContext) -> bool:
    """Say whether an earlier run may have begun this run's calls, and left no note of it.

    Where the model was asked in this run, the call is its own; where a run waited for an answer,
    whatever it had begun had ended, or has left a note.
    """
    run = ctx.run
    return run.resumed and not run.waited and not run.usage.calls


async def _finish(call: ToolCall, result: ToolResult, ctx: NodeContext, ledger: Ledger) -> None:
    key, name, args, fields = call.ctx.key, call.name, call.args, written(result)
    await ctx.bridge.call(
        lambda: ledger.finish(key, name, args, fields),
        lambda: ledger.afinish(key, name, args, fields),
    )


def written(result: ToolResult) -> dict[str, Any]:
    """Write down a call's whole result."""
    return {
        "output": result.output,
        "error": result.error,
        "content": result.content,
        "update": None if result.update is None else dict(result.update),
        "artifact": result.artifact,
    }


def recorded(call: ToolCall, fields: Mapping[str, Any]) -> ToolResult:
    """Read a call's result back."""
    return ToolResult(tool_call_id=call.id, name=call.name, **fields)


def _deep(value: Any) -> str | None:
    """Say why a foreign store, or anybody who copies it, cannot hold a value, or None."""
    return TOO_DEEP if is_deep(value) else None


def drop_unstorable(result: ToolResult, ledger: Ledger | None) -> ToolResult:
    """Replace what no store can hold, at the tool's edge, where it can still be said.

    An artifact becomes a note of what it was; a state update makes the call fail.
    """
    refusal = _deep if ledger is None else ledger.refusal
    if result.artifact is not None and (why := refusal(result.artifact)) is not None:
        kind = type(result.artifact).__name__
        result = result.replace(artifact={"not_stored": kind, "why": why})
    if result.update and (why := refusal(dict(result.update))) is not None:
        return result.replace(update=None, output="", error=f"its state update is refused: {why}")
    return result
