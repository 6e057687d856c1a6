"""ApprovalHook: tool calls that a person must approve, and the possible decisions.

Each call of a reply that needs approval stops with its own interrupt; the other calls continue. The
question and the decision are in the store, so both outlive the process. They belong to the thread:
`wick_graph.runtime.tool_ledger` lets no agent run a call with an open question.
"""

from __future__ import annotations

import difflib
import getpass
import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

from wick_graph.errors import ConfigError, ExpressionError, ToolError
from wick_graph.expressions import Expression, compile_expression, glob_match
from wick_graph.hooks.protocol import BaseHook, in_place
from wick_graph.machine import user_id
from wick_graph.messages import ToolCall
from wick_graph.tools.result import failure, normalise
from wick_graph.types import PlainInStore

if TYPE_CHECKING:
    from wick_graph.config import AgentConfig

KIND: Final = "approval"
"""The `kind` of the question that an interrupt carries."""

REJECTED: Final = "the user rejected this call; it was not run"

_THREAD_CHARS: Final = 32
"""Characters of a call's hash that bind it to its thread."""

Rule: TypeAlias = bool | str | Expression
"""True always asks, False never; an expression on the arguments asks if it is true."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decision(PlainInStore):
    decision: ClassVar[str]
    hash: str | None = None
    """The hash of the decided call; the question's hash if it is missing."""
    by: str | None = None
    """Who decided; by default the user of this process."""

    def to_dict(self) -> dict[str, Any]:
        """Return the decision as plain data for the store."""
        given = {name: getattr(self, name) for name in _FIELDS[self.decision]}
        more = {"hash": self.hash, "by": self.by}
        kept = {name: value for name, value in more.items() if value is not None}
        return {"decision": self.decision, **given, **kept}


@dataclass(frozen=True, slots=True)
class Approve(_Decision):
    """Run the call unchanged."""

    decision: ClassVar[str] = "approve"


@dataclass(frozen=True, slots=True)
class Edit(_Decision):
    """Run the call with exactly these arguments."""

    decision: ClassVar[str] = "edit"
    args: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reject(_Decision):
    """Do not run the call; the model reads that it was rejected, and why."""

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
"""Decisions with an optional field."""

DECISIONS: Final = tuple(_DECISIONS)


class ApprovalHook(BaseHook):
    """Ask a person before a tool is called.

    Place it outside the hooks that act before `next`: they and the ledger then see only approved
    calls. A hook inside it that changes a call changes what was approved.

    Args:
        rules: Rules by tool name or pattern (`*`, `?`, `[…]`). If a tool's own name has a rule,
            only that rule applies; otherwise all matching patterns do, and one that asks is
            enough. An expression sees the arguments by name, all of them as `args`, and the
            tool's name as `tool`. It also asks if it fails, or if the call has an argument that
            the tool's schema does not name.

    Raises:
        ConfigError: A rule is neither a truth value nor an expression.
    """

    name = "approvals"
    phases = ("wrap_tool_call",)
    joins = True

    def __init__(self, rules: Mapping[str, Rule]) -> None:
        self.rules: Final = {name: _rule(name, rule) for name, rule in rules.items()}

    @in_place
    async def wrap_tool_call(self, call: ToolCall, next: Any) -> Any:
        """Run the call as decided; stop here until there is a decision."""
        if call.ctx.allowed == call.args:  # by a rule of the delegating agent
            return await next(call)
        why = self.why(call)
        return await next(call) if why is None else await approved(call, why, next)

    @property
    def may_ask(self) -> bool:
        """Whether any rule may ask."""
        return any(rule is not False for rule in self.rules.values())

    def why(self, call: ToolCall) -> str | None:
        """Return why a call needs approval; None if it does not."""
        if call.name in self.rules:
            return _asks(call.name, self.rules[call.name], call)
        for name, rule in self.rules.items():
            if glob_match(call.name, name) and (why := _asks(name, rule, call)) is not None:
                return why
        return None


async def approved(call: ToolCall, why: str, next: Any) -> Any:
    """Run a call as a person decided; stop here until there is a decision.

    Args:
        call: The call.
        why: Why it needs approval, in a few words.
        next: Runs it.
    """
    problem = call.ctx.check(call.args)
    if problem:  # it would fail whatever the decision; no inner layer may repair it unseen
        return failure(call, ToolError(problem))
    return await decided(call, why, next)


async def decided(call: ToolCall, why: str, next: Any) -> Any:
    """Do what `approved` does, without checking the arguments first."""
    match await call.ctx.gate.decide(call, why):
        case Edit(args=args):
            call = call.replace(args=dict(args), raw_args="")
        case Reject(message=message):
            return failure(call, ToolError(f"{REJECTED}: {message}" if message else REJECTED))
        case Respond(message=message):
            return normalise(message, call)
    return await next(call.replace(ctx=replace(call.ctx, allowed=call.args)))


def question_of(call: ToolCall, why: str) -> dict[str, Any]:
    """Build the question about a call."""
    return {
        "kind": KIND,
        "tool": call.name,
        "args": call.args,
        "call_id": call.id,
        "index": call.ctx.index,
        "hash": call_hash(call),
        "decisions": list(DECISIONS),
        "why": why,
    }


def is_own(question: Any) -> bool:
    """Return whether a question is about a call of the thread itself, not of a child."""
    own = isinstance(question, Mapping) and question.get("kind") == KIND
    return own and not question.get("agents")


def rules_data(hook: ApprovalHook) -> dict[str, Any]:
    """Return a hook's rules as data, which `ApprovalHook` accepts."""
    return {
        name: rule.text if isinstance(rule, Expression) else rule
        for name, rule in hook.rules.items()
    }


def approval_hook(config: AgentConfig) -> ApprovalHook | None:
    """Build the hook for an agent's configuration; None if it has no rules."""
    return ApprovalHook(config.approvals) if config.approvals else None


def misspelt(rules: Iterable[str], tools: Collection[str]) -> tuple[str, str] | None:
    """Find a rule with a misspelt tool name; return both names.

    A name that resembles no tool is not a mistake: other agents may have that tool.
    """
    for name in rules:
        near = difflib.get_close_matches(name, tools, n=1, cutoff=_NEARLY)
        if near and name not in tools and not set(name) & set("*?["):
            return name, near[0]
    return None


def read_decision(answer: Any) -> Decision | str:
    """Read an answer as a decision, or return why it is not one; plain text or `True` is not."""
    if isinstance(answer, _Decision):
        answer = answer.to_dict()
    if not isinstance(answer, Mapping) or answer.get("decision") not in DECISIONS:
        return f"the answer is not a decision; set decision to one of {', '.join(DECISIONS)}"
    name = answer["decision"]
    needed = _FIELDS[name]
    unknown = [str(key) for key in answer if key not in ("decision", "hash", "by", *needed)]
    if unknown:
        return f"{name} takes no {unknown[0]}; leave it out"
    missing = [key for key in needed if key not in answer and name not in _OPTIONAL]
    if missing:
        return f"{name} needs {missing[0]}"
    kinds: tuple[tuple[str, Any], ...] = (
        *(("hash", str | None), ("by", str | None)),
        *(("message", str), ("args", Mapping)),
    )
    for key, kind in kinds:
        if key in answer and not isinstance(answer[key], kind):
            return f"{key} must be {'an object' if kind is Mapping else 'a text'}"
    given = {key: answer[key] for key in ("hash", "by", *needed) if key in answer}
    return _DECISIONS[name](**given)


def plain_decision(answer: Any) -> Any:
    """Return a decision as plain data for any store; anything else unchanged."""
    return answer.to_dict() if isinstance(answer, _Decision) else answer


def decides(answer: Any) -> bool:
    """Return whether an answer is a decision about a call."""
    answer = plain_decision(answer)
    return isinstance(answer, Mapping) and "decision" in answer


def holds_decision(answer: Any) -> bool:
    """Return whether an answer is or contains a decision."""
    several = isinstance(answer, Mapping) and any(map(decides, answer.values()))
    return decides(answer) or several


def plain_answers(answer: Any) -> Any:
    """Return an answer, or answers by the ids of their questions, with decisions as plain data."""
    if isinstance(answer, Mapping):
        return {key: plain_decision(one) for key, one in answer.items()}
    return plain_decision(answer)


def signed(answer: Any, by: str | None = None) -> Any:
    """Return an answer with the author added to its decisions.

    Args:
        answer: A decision, or answers by the ids of their questions; anything else is unchanged.
        by: Overrides the author; by default the decision's own, else the user of this process.
    """
    answer = plain_answers(answer)
    if not isinstance(answer, Mapping):
        return answer
    if answer.get("decision") in DECISIONS:
        return {**answer, "by": by or answer.get("by") or _user()}
    return {key: signed(one, by) if decides(one) else one for key, one in answer.items()}


def _user() -> str:
    try:
        return f"user {getpass.getuser()}"
    except (KeyError, OSError, ImportError):
        return f"user {user_id()}"


def call_hash(call: ToolCall) -> str:
    """Return a hash of this call: its thread, place, id, arguments and tool.

    If the description of a tool changes, the hash changes: a call that was approved before a remote
    server changed its tool needs a new approval. So does a call in a fork of its thread.
    """
    parts = [call.ctx.key, call.id, call.name, call.args, call.ctx.told()]
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True, default=str)
    return _in_thread(hashlib.sha256(text.encode()).hexdigest(), call.ctx.thread_id)


def shown_in(thread_id: str | None, question: Any) -> Any:
    """Return a question with its thread's hash: a fork copies the questions of its source."""
    hashed = question.get("hash") if is_own(question) else None
    if not isinstance(hashed, str) or "-" not in hashed:
        return question
    return {**question, "hash": _in_thread(hashed.partition("-")[0], thread_id)}


def _in_thread(call: str, thread_id: str | None) -> str:
    """Bind the hash of a call to a thread."""
    own = f"{thread_id or ''}\0{call}".encode("utf-8", "surrogatepass")
    return f"{call}-{hashlib.sha256(own).hexdigest()[:_THREAD_CHARS]}"


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
    """Return why a rule asks, in a few words; None if it does not."""
    if isinstance(rule, bool):
        return f"every call of {name} needs approval" if rule else None
    try:
        names = {**call.args, "tool": call.name, "args": call.args}
        asks = rule.evaluate(names, call.ctx.folders)
    except ExpressionError as error:
        return f"the rule {rule.text} failed ({error})"
    if asks:
        return f"the rule {rule.text} holds"
    unknown = next(iter(_unknown(call)), None)
    return None if unknown is None else f"the tool's schema has no argument {unknown}"


def _unknown(call: ToolCall) -> Sequence[str]:
    """List arguments that the tool's schema does not name; no rule can cover them."""
    told = call.ctx.told() or {}
    schema = told.get("function", told).get("parameters") or {}
    known = schema.get("properties") or {}
    return [name for name in call.args if name not in known]


def misfit(decision: Decision, call: ToolCall, question: Mapping[str, Any]) -> str | None:
    """Return why a decision does not fit the call; None if it does."""
    if decision.hash is not None and decision.hash != question["hash"]:
        return "the decision was made for another call; decide on this one"
    if isinstance(decision, Edit):
        problem: str | None = call.ctx.check(dict(decision.args))
        return problem
    return None
