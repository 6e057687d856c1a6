"""ApprovalHook: calls that a person must allow, and what the person may decide.

A call that needs approval stops with an interrupt, each of a reply's calls for itself; the others
go on. The question and the decision are in the store, so both outlive the process.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, TypeAlias

from langgraph.types import interrupt

from wick_graph.config import AgentConfig
from wick_graph.errors import ConfigError, ExpressionError, ToolError
from wick_graph.expressions import Expression, compile_expression, glob_match
from wick_graph.hooks.protocol import BaseHook, in_place
from wick_graph.messages import ToolCall
from wick_graph.tools.result import failure, normalise
from wick_graph.tracing import audit

KIND: Final = "approval"
"""The `kind` of the question that an interrupt carries."""
REJECTED: Final = "the user rejected this call; it was not run"

Rule: TypeAlias = bool | str | Expression
"""True asks always, False never, an expression on the arguments where it is true."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decision:
    decision: ClassVar[str]
    hash: str | None = None
    """The hash of the call that was decided on; without one it is that of the question."""

    def to_dict(self) -> dict[str, Any]:
        """Return the decision as plain data, as the store keeps it."""
        given = {name: getattr(self, name) for name in _FIELDS[self.decision]}
        found = {"decision": self.decision, **given}
        return found if self.hash is None else {**found, "hash": self.hash}


@dataclass(frozen=True, slots=True)
class Approve(_Decision):
    """Run the call as it was asked for."""

    decision: ClassVar[str] = "approve"


@dataclass(frozen=True, slots=True)
class Edit(_Decision):
    """Run the call with these arguments, and with no others."""

    decision: ClassVar[str] = "edit"
    args: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reject(_Decision):
    """Do not run the call; the model reads that it failed, and why."""

    decision: ClassVar[str] = "reject"
    message: str = ""


@dataclass(frozen=True, slots=True)
class Respond(_Decision):
    """Do not run the call; the model reads this text as its result."""

    decision: ClassVar[str] = "respond"
    message: str = ""


Decision: TypeAlias = Approve | Edit | Reject | Respond
_DECISIONS: Final[Mapping[str, type[Decision]]] = {
    made.decision: made for made in (Approve, Edit, Reject, Respond)
}
_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "approve": (),
    "edit": ("args",),
    "reject": ("message",),
    "respond": ("message",),
}
_NEARLY: Final = 0.85
_OPTIONAL: Final = frozenset({"reject"})
"""Decisions that can do without their field."""
DECISIONS: Final = tuple(_DECISIONS)


class ApprovalHook(BaseHook):
    """Ask a person before a tool is called.

    Stand it outside of the hooks that act before `next`: they and the ledger then see only calls
    that were allowed. A hook inside of it that changes a call changes what was allowed.

    Args:
        rules: By tool name or pattern (`*`, `?`, `[…]`). The rule of a tool's own name counts
            alone; without one, every pattern that fits counts, and one that asks is enough. An
            expression sees the arguments by name, all of them as `args`, and the tool's name as
            `tool`; one that fails asks.

    Raises:
        ConfigError: A rule is neither a truth value nor an expression.
    """

    name = "approvals"
    phases = ("wrap_tool_call",)

    def __init__(self, rules: Mapping[str, Rule]) -> None:
        self.rules: Final = {name: _rule(name, rule) for name, rule in rules.items()}

    @in_place
    async def wrap_tool_call(self, call: ToolCall, next: Any) -> Any:
        """Run the call, or what became of it; stop here until somebody has decided."""
        why = self.why(call)
        return await next(call) if why is None else await approved(call, why, next)

    def why(self, call: ToolCall) -> str | None:
        """Say why a call needs approval; None if it needs none."""
        if call.name in self.rules:
            return _asks(call.name, self.rules[call.name], call)
        for name, rule in self.rules.items():
            if glob_match(call.name, name) and (why := _asks(name, rule, call)) is not None:
                return why
        return None


async def approved(call: ToolCall, why: str, next: Any) -> Any:
    """Run a call, or what became of it, once a person has decided; stop here until then.

    Args:
        call: The call.
        why: Why it needs approval, in a few words.
        next: Runs it.
    """
    problem = call.ctx.check(call.args)
    if problem:  # it would fail whatever a person says; nothing inside may mend it unseen
        return failure(call, ToolError(problem))
    match _decided(call, why):
        case Edit(args=args):
            call = call.replace(args=dict(args), raw_args="")
        case Reject(message=message):
            return failure(call, ToolError(f"{REJECTED}: {message}" if message else REJECTED))
        case Respond(message=message):
            return normalise(message, call)
    return await next(call.replace(ctx=replace(call.ctx, allowed=call.args)))


def _decided(call: ToolCall, why: str) -> Decision:
    """Ask until there is a decision that fits this very call."""
    question: dict[str, Any] = {
        "kind": KIND,
        "tool": call.name,
        "args": call.args,
        "call_id": call.id,
        "index": call.ctx.index,
        "hash": call_hash(call),
        "decisions": list(DECISIONS),
        "why": why,
    }
    asked = question
    while True:
        decision = read_decision(interrupt(asked))
        problem = decision if isinstance(decision, str) else _misfit(decision, call, question)
        if not isinstance(decision, str) and problem is None:
            _note(call, decision)
            return decision
        asked = {**question, "problem": problem}


def approval_hook(config: AgentConfig) -> ApprovalHook | None:
    """Make the hook that an agent's configuration asks for; None if it asks for none."""
    return ApprovalHook(config.approvals) if config.approvals else None


def misspelt(rules: Iterable[str], tools: Collection[str]) -> tuple[str, str] | None:
    """Find a rule that protects nothing because its name is nearly a tool's; give both names.

    A name that is like none is no mistake: rules may stand for tools that other agents have.
    """
    for name in rules:
        near = difflib.get_close_matches(name, tools, n=1, cutoff=_NEARLY)
        if near and name not in tools and not set(name) & set("*?["):
            return name, near[0]
    return None


def read_decision(answer: Any) -> Decision | str:
    """Read an answer as a decision, or say why it is none; a bare text or `True` is none."""
    if isinstance(answer, _Decision):
        answer = answer.to_dict()
    if not isinstance(answer, Mapping) or answer.get("decision") not in _DECISIONS:
        return f"the answer is no decision; give decision as one of {', '.join(DECISIONS)}"
    name = answer["decision"]
    needed = _FIELDS[name]
    unknown = [str(key) for key in answer if key not in ("decision", "hash", *needed)]
    if unknown:
        return f"{name} takes no {unknown[0]}; leave it out"
    missing = [key for key in needed if key not in answer and name not in _OPTIONAL]
    if missing:
        return f"{name} needs {missing[0]}"
    kinds: tuple[tuple[str, Any], ...] = (("hash", str | None), ("message", str), ("args", Mapping))
    for key, kind in kinds:
        if key in answer and not isinstance(answer[key], kind):
            return f"{key} must be {'an object' if kind is Mapping else 'a text'}"
    given = {key: answer[key] for key in ("hash", *needed) if key in answer}
    return _DECISIONS[name](**given)


def plain_decision(answer: Any) -> Any:
    """Return a decision as the plain data that any store can keep; all else as it is."""
    return answer.to_dict() if isinstance(answer, _Decision) else answer


def call_hash(call: ToolCall) -> str:
    """Identify exactly this call: its place in the thread, its id, its arguments and its tool.

    A tool that has come to say something else of itself is another tool: what a person approved
    before the server of a remote tool changed it, is asked again.
    """
    parts = [call.ctx.key, call.id, call.name, call.args, call.ctx.told()]
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _rule(name: str, rule: Rule) -> bool | Expression:
    if isinstance(rule, bool | Expression):
        return rule
    if not isinstance(rule, str):
        raise ConfigError(f"approvals of {name}: write true, false or an expression in quotes")
    try:
        return compile_expression(rule)
    except ExpressionError as error:
        raise ConfigError(f"approvals of {name}: {error}") from error


def _asks(name: str, rule: bool | Expression, call: ToolCall) -> str | None:
    """Say why a rule asks, in a few words; None if it does not."""
    if isinstance(rule, bool):
        return f"every call of {name} needs approval" if rule else None
    try:
        asks = rule.evaluate({**call.args, "tool": call.name, "args": call.args})
    except ExpressionError as error:
        return f"the rule {rule.text} failed ({error})"
    return f"the rule {rule.text} holds" if asks else None


def _note(call: ToolCall, decision: Decision) -> None:
    audit(
        f"approval.{decision.decision}",
        tool_name=call.name,
        tool_call_id=call.id,
        thread_id=call.ctx.thread_id,
        hash=call_hash(call),
    )


def _misfit(decision: Decision, call: ToolCall, question: Mapping[str, Any]) -> str | None:
    """Say why a decision does not fit the call; None if it does."""
    if decision.hash is not None and decision.hash != question["hash"]:
        return "the decision was made for another call; decide on this one"
    if isinstance(decision, Edit):
        problem: str | None = call.ctx.check(dict(decision.args))
        return problem
    return None
