"""Policies for the calls of a fork or a replay: recordings, edits, mocks, people."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from langchain_core.messages import AIMessage, BaseMessage, RemoveMessage

from wick_graph.core.moments import Directive, Moment, Replace, Skip
from wick_graph.core.request import ModelRequest, Section
from wick_graph.core.state import REMOVE_ALL
from wick_graph.debug.edits import (
    listed_messages,
    messages_of,
    object_of,
    reply_of,
    result_of,
    text_of,
)
from wick_graph.debug.gate import Question
from wick_graph.debug.values import at_path
from wick_graph.errors import DebugError, ReplayError, StorageError
from wick_graph.expressions import glob_match
from wick_graph.journal.entry import Entry
from wick_graph.journal.journal import Journal
from wick_graph.journal.reader import body_of
from wick_graph.journal.replay import Ask, Tape
from wick_graph.messages import ToolCall, from_wick, to_wick
from wick_graph.store.journal_rows import RunRow
from wick_graph.store.row_format import unpack_id

FORK: Final = "fork"
"""Key of a fork's record in the row of its run."""


@dataclass(frozen=True, slots=True)
class Mock:
    """An answer that replaces the call."""

    value: Any


Choice = Literal["recorded", "live", "ask"] | Mock

Missing = Literal["live", "ask", "stop"]

_CHOICES = ("recorded", "live", "ask")


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Policy for the model and tool calls of a fork or a replay.

    Raises:
        DebugError: A choice is none of `recorded`, `live`, `ask`, or a `Mock`.
    """

    model: Choice = "recorded"
    tools: Mapping[str, Choice] = field(default_factory=dict)
    """By tool name or pattern; the first match applies."""
    other: Choice = "recorded"
    """For all other tools."""
    missing: Missing = "ask"
    """Policy for a `recorded` tool call without a recording. Under `ask`, calls that are safe to
    repeat still run."""
    missing_model: Missing = "live"
    """The same for a model's request."""

    def __post_init__(self) -> None:
        for choice in (self.model, self.other, *self.tools.values()):
            if not isinstance(choice, Mock) and choice not in _CHOICES:
                raise DebugError(
                    f"{choice!r:.40} is no policy; write {', '.join(_CHOICES)}, or a Mock"
                )

    @classmethod
    def of_replay(cls) -> Policy:
        """Return the policy that executes nothing, and stops at any unrecorded call."""
        return cls(missing="stop", missing_model="stop")

    def tool(self, name: str) -> Choice:
        """Return the choice for a tool."""
        for pattern, choice in self.tools.items():
            if pattern == name or glob_match(name, pattern):
                return choice
        return self.other

    def with_tool(self, name: str, choice: Choice) -> Policy:
        """Return a policy with this choice for one tool."""
        return replace(
            self, tools={name: choice, **{k: v for k, v in self.tools.items() if k != name}}
        )


@dataclass(slots=True)
class Edit:
    """One manual answer, used once."""

    fits: Callable[[Moment], bool]
    make: Callable[[Moment], Directive]
    spec: Mapping[str, Any] = field(default_factory=dict)
    """Its data; `edit_of` makes it again from this."""
    used: bool = False


class Decider:
    """Decides about each call of a fork or a replay."""

    def __init__(
        self,
        policy: Policy,
        tape: Tape | None,
        edits: Sequence[Edit] = (),
        origin: str | None = None,
    ) -> None:
        """Set the fork's first run as origin, if another run continues the fork."""
        self.policy = policy
        self._origin = origin
        self.tape = tape
        self._edits = list(edits)
        self.live_models = 0
        """Number of real requests."""
        self.live_tools = 0
        """Number of real calls."""

    def __call__(self, moment: Moment) -> Directive | Ask | Question:
        """Return the answer of a call, None to make it, or a question."""
        for edit in self._edits:
            if not edit.used and edit.fits(moment):
                edit.used = True
                made = edit.make(moment)
                self._count(moment, made)
                return made
        decided: Directive | Ask | Question
        if moment.kind == "model" and moment.phase == "request":
            decided = self._model(moment)
        elif moment.is_call:
            decided = self._tool(moment)
        else:
            return None
        self._count(moment, decided)
        return decided

    def _count(self, moment: Moment, decided: Directive | Ask | Question) -> None:
        if isinstance(decided, Skip | Ask | Question):
            return
        if moment.kind == "model":
            self.live_models += moment.phase == "request"
        else:
            self.live_tools += moment.is_call

    def _model(self, moment: Moment) -> Directive | Question:
        choice = self.policy.model
        if isinstance(choice, Mock):
            return Skip(reply_of(choice.value))
        if choice == "live":
            return None
        try:
            recorded = Skip(self._taped().reply(moment))
        except ReplayError as error:
            if choice == "ask":
                return Question("ask", "the model is asked something that was not recorded")
            return _missed(self.policy.missing_model, str(error))
        return Question("ask", "the model is asked", recorded) if choice == "ask" else recorded

    def _tool(self, moment: Moment) -> Directive | Ask | Question:
        choice, asked = self.policy.tool(moment.name), f"{moment.name}({moment.data['args']})"
        if isinstance(choice, Mock):
            return Skip(result_of(moment, choice.value))
        if choice == "live":
            return self.anew(moment)
        try:
            found = self._taped().result(moment)
        except ReplayError as error:
            if choice == "ask":
                return Question("ask", f"{asked} was not recorded")
            if self.policy.missing == "ask" and moment.data.get("replay") == "safe":
                return None
            return _missed(self.policy.missing, str(error))
        recorded = found if isinstance(found, Ask) else Skip(found)
        return Question("ask", asked, recorded) if choice == "ask" else recorded

    def anew(self, moment: Moment) -> Directive:
        """Repeat a call although the ledger has its result."""
        call = moment.data.get("call")  # none without a ledger
        return Replace(once_more(call, self._origin)) if isinstance(call, ToolCall) else None

    def _taped(self) -> Tape:
        if self.tape is None:
            raise ReplayError("nothing is recorded")
        return self.tape


def once_more(call: ToolCall, origin: str | None = None) -> ToolCall:
    """Return a copy of a call under a new ledger key.

    With a fork's first run as the origin it is the fork's own call, which the ledger recognises in
    later runs of the fork.
    """
    key = f"again-{origin or call.ctx.run_id}:{call.ctx.key}"
    return call.replace(ctx=replace(call.ctx, key=key))


def _missed(missing: Missing, text: str) -> Directive | Question:
    if missing == "live":
        return None
    return Question("divergence" if missing == "stop" else "ask", text)


class Nth:
    """Matches the n-th moment of its kind."""

    def __init__(self, n: int, kind: str, phase: str) -> None:
        self._left, self._what = n, (kind, phase)

    def __call__(self, moment: Moment) -> bool:
        """Count the moment, and return whether it is the n-th."""
        if (moment.kind, moment.phase) == self._what:
            self._left -= 1
            return self._left == 0
        return False


def tool_edits(entry: Entry, args: Mapping[str, Any] | None, result: Any) -> Iterator[Edit]:
    """Make an edit of a moment's call: other arguments, or a result.

    Raises:
        DebugError: There is no call, or both were given.
    """
    if args is None and result is None:
        return
    if args is not None and result is not None:
        raise DebugError("a call with a given result is not made; give the arguments or the result")
    if entry.call_id is None:
        raise DebugError("this moment has no tool call; choose a moment tool:NAME")
    given = {"result": result} if args is None else {"args": dict(object_of(args, "arguments"))}
    yield edit_of({"call": entry.call_id, **given})


def edit_of(spec: Mapping[str, Any], origin: str | None = None) -> Edit:
    """Make an edit from data: `call` with `args` or `result`, `nth` with `request` or `response`.

    Raises:
        DebugError: The request or the reply is invalid.
        MessageError: A message is invalid.
    """
    if "call" in spec:
        return _call_edit(spec, origin)
    asks = Nth(spec["nth"], "model", "request")
    if "response" in spec:
        reply = reply_of(spec["response"])
        return Edit(asks, lambda moment: Skip(reply), spec=spec)
    request = _checked(spec["request"])
    return Edit(asks, lambda moment: Replace(changed(moment.data["request"], request)), spec=spec)


def _call_edit(spec: Mapping[str, Any], origin: str | None) -> Edit:
    call_id = spec["call"]

    def fits(moment: Moment) -> bool:
        return moment.is_call and moment.call_id == call_id

    def make(moment: Moment) -> Directive:
        if "args" not in spec:
            return Skip(result_of(moment, spec["result"]))
        if "call" not in moment.data:
            return Replace(dict(spec["args"]))
        return Replace(once_more(moment.data["call"], origin).replace(args=dict(spec["args"])))

    return Edit(fits, make, spec=spec)


def _checked(wanted: Mapping[str, Any]) -> Mapping[str, Any]:
    """Check a change of a request now, and not in its run."""
    unknown = sorted(set(wanted) - {"system", "messages", "settings"})
    if unknown:
        raise DebugError(f"a request has no {unknown[0]}; change system, messages or settings")
    for message in listed_messages(wanted.get("messages", ())):
        from_wick(message)
    object_of(wanted.get("settings", {}), "settings")
    return wanted


def changed(request: ModelRequest, wanted: Mapping[str, Any]) -> ModelRequest:
    """Return a request with another system prompt, other messages or settings."""
    if "system" in wanted:
        request = request.replace_system(Section(text_of(wanted["system"]), "debugger"))
    if "messages" in wanted:
        request = request.with_messages(messages_of(request, wanted["messages"]))
    if "settings" in wanted:
        request = request.with_settings(**wanted["settings"])
    return request


def put(value: Any, path: tuple[str | int, ...], new: Any, text: str) -> Any:
    """Return a copy of JSON-like data with another value at a path.

    Raises:
        DebugError: There is no such path.
    """
    if not path:
        return new
    head, rest = path[0], path[1:]
    try:
        inner = at_path(value, (head,)) if rest else None
    except LookupError:
        raise DebugError(f"there is nothing at {text}") from None
    made = put(inner, rest, new, text)
    if isinstance(value, Mapping):
        return {**value, str(head): made}
    if isinstance(value, list) and isinstance(head, int) and -len(value) <= head < len(value):
        copied = list(value)
        copied[head] = made
        return copied
    raise DebugError(f"there is nothing at {text}")


def written(state: Mapping[str, Any]) -> dict[str, Any]:
    """Turn channels of JSON-like data into writes."""
    made = dict(state)
    if "messages" in made:
        kept = [_message(message) for message in made["messages"]]
        made["messages"] = [RemoveMessage(REMOVE_ALL), *kept]
    return made


def _message(wick: Mapping[str, Any]) -> BaseMessage:
    message = from_wick({key: value for key, value in wick.items() if key != "id"})
    return message.model_copy(update={"id": wick["id"]}) if wick.get("id") else message


# --- the stored record of a fork ----------------------------------------------------------------


ForkRecord = dict[str, Any]
"""The policy and edits of a fork, as data."""


def record_of_fork(policy: Policy, edits: Sequence[Edit]) -> ForkRecord:
    """Return the policy and edits of a fork as data."""
    return {
        "model": _choice(policy.model),
        "tools": [[name, _choice(choice)] for name, choice in policy.tools.items()],
        "other": _choice(policy.other),
        "missing": policy.missing,
        "missing_model": policy.missing_model,
        "edits": [{name: _plain(value) for name, value in edit.spec.items()} for edit in edits],
    }


def kept_decider(journal: Journal) -> tuple[Decider, ForkRecord] | None:
    """Return the decider and record of the thread's unfinished fork; None if it is not in one.

    Raises:
        DebugError: The fork has no stored edits and policy.
    """
    found = _found(journal)
    return None if found is None else (_decider(journal, *found), found[0])


def kept_policy(journal: Journal) -> Policy | None:
    """Return the policy of the thread's unfinished fork; see `kept_decider`.

    Raises:
        DebugError: The fork has no stored edits and policy.
    """
    found = _found(journal)
    return None if found is None else _policy(found[0])


def _found(journal: Journal) -> tuple[ForkRecord, RunRow] | None:
    """Return the record of the thread's fork, and the fork's first run."""
    with journal.reading() as db:
        rows = journal.rows.run_rows(db, journal.rows.thread(db))
    branch = rows[-1].branch if rows else 0
    for row in reversed(rows):
        body = body_of(row)
        if row.branch != branch:
            return None
        if FORK in body:
            record = _read(journal, body[FORK])
            return record, next(one for one in rows if one.branch == branch)
        if body.get("mode") == "input":
            return None
    return None


def _read(journal: Journal, reference: bytes) -> ForkRecord:
    try:
        record = journal.value(reference) if reference else None
    except StorageError:
        record = None
    if not isinstance(record, dict) or "edits" not in record:
        raise DebugError(
            f"thread {journal.thread_id} is in a fork without stored edits and policy, since they "
            "hold a secret or are too large; fork again from its moment, or call agent.resume to "
            "continue without them: every call is then really made"
        )
    return record


def _decider(journal: Journal, record: ForkRecord, began: RunRow) -> Decider:
    """Make the decider of a fork again; `began` is the fork's first run."""
    first, origin, branch = body_of(began)["first"], unpack_id(began.run), began.branch
    own = [entry for entry in journal.moments(after=first - 1) if entry.branch == branch]
    edits = [edit_of(one, origin) for one in record["edits"] if not _is_done(one, own)]
    before = Journal(
        journal.saver, journal.thread_id, upto=first - 1
    )  # the recording when the fork was made
    return Decider(_policy(record), Tape(before), edits, origin)


def _policy(record: ForkRecord) -> Policy:
    return Policy(
        model=_chosen(record["model"]),
        tools={name: _chosen(choice) for name, choice in record["tools"]},
        other=_chosen(record["other"]),
        missing=record["missing"],
        missing_model=record["missing_model"],
    )


def _is_done(edit: Mapping[str, Any], own: Sequence[Entry]) -> bool:
    """Return whether the visit of an edit has ended, so that the edit is not applied again."""
    ended = {entry.task for entry in own if entry.what == "node.exit"}
    if "call" in edit:
        calls = (e for e in own if e.what == "tool.exit" and e.call_id == edit["call"])
        return any(True for _ in calls)
    asked = [entry.task for entry in own if entry.what == "model.request"]
    return any(task in ended for task in asked[edit["nth"] - 1 :])


def _choice(choice: Any) -> Any:
    return {"mock": _plain(choice.value)} if isinstance(choice, Mock) else choice


def _chosen(kept: Any) -> Any:
    return Mock(kept["mock"]) if isinstance(kept, dict) else kept


def _plain(value: Any) -> Any:
    return to_wick(value) if isinstance(value, AIMessage) else value
