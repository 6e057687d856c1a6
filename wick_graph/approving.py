"""What a thread waits for binds every agent: no call runs while a question about it is open.

A question is a row beside the call in the ledger, made before anybody is asked, and so is the
decision. A resumed run looks for the row before it runs a call, whether its agent has a rule or
not. On a store that is not ours the interrupt that waits stands for the row.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from langchain_core.messages import AIMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.types import INTERRUPT
from langgraph.errors import GraphInterrupt
from langgraph.types import Interrupt, interrupt

from wick_graph import keys
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
from wick_graph.tools.result import failure
from wick_graph.tracing import audit
from wick_graph.views import peek

if TYPE_CHECKING:
    from wick_graph.runtime import NodeContext

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
        await self.ctx.io.either(
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
    found: tuple[str, Any] | None = await ctx.io.either(
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
            rows = await ctx.io.either(
                partial(ledger.noted_as, state), partial(ledger.anoted_as, state)
            )
            found += [(key, state, row) for key, row in rows.items()]
    elif keys.is_resuming(ctx.config):
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
    saver = keys.configurable(ctx.config).get(keys.CHECKPOINTER)
    if not isinstance(saver, BaseCheckpointSaver):
        return []
    at: Any = keys.place_of_graph(ctx.config)
    saved: Any = await ctx.io.either(lambda: saver.get_tuple(at), lambda: saver.aget_tuple(at))
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
        if not keys.configurable(ctx.config).get(keys.CHECKPOINTER):
            return failure(call, ToolError(CANNOT_ASK))
        result: ToolResult = await approved(call, f"{why}: {_BOUND}", next)
        return result

    return asks


def next_why(rules: Sequence[ApprovalHook], call: ToolCall) -> str | None:
    """Say why the first rule asks that does; None if none does."""
    return next((why for hook in rules if (why := hook.why(call)) is not None), None)
