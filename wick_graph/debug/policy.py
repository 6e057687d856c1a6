"""What may be executed when something is run again: the recording answers, the call, or nobody."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from wick_graph.debug.edits import reply_of, result_of
from wick_graph.debug.gate import Question
from wick_graph.errors import DebugError, ReplayError
from wick_graph.expressions import glob_match
from wick_graph.journal.replay import Tape
from wick_graph.messages import ToolCall
from wick_graph.moments import Directive, Moment, Replace, Skip


@dataclass(frozen=True, slots=True)
class Mock:
    """Take this as the answer, and call nothing."""

    value: Any


Choice = Literal["recorded", "live", "ask"] | Mock
Missing = Literal["live", "ask", "stop"]
_CHOICES = ("recorded", "live", "ask")


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What answers a model's request and a tool's call when a run is forked or replayed.

    Raises:
        DebugError: A choice is none of `recorded`, `live`, `ask`, or a `Mock`.
    """

    model: Choice = "recorded"
    tools: Mapping[str, Choice] = field(default_factory=dict)
    """By tool name or pattern; the first that fits."""
    other: Choice = "recorded"
    """For the tools that are not named."""
    missing: Missing = "ask"
    """What becomes of a tool's call that is to be `recorded` and is not. Calls that may be repeated
    without harm are run under `ask` too."""
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
        """Return the policy that executes nothing, and stops where it would have to."""
        return cls(missing="stop", missing_model="stop")

    def tool(self, name: str) -> Choice:
        """Return what is to be done about a tool."""
        for pattern, choice in self.tools.items():
            if pattern == name or glob_match(name, pattern):
                return choice
        return self.other

    def with_tool(self, name: str, choice: Choice) -> Policy:
        """Return a policy that treats one tool so."""
        return replace(
            self, tools={name: choice, **{k: v for k, v in self.tools.items() if k != name}}
        )


@dataclass(slots=True)
class Edit:
    """One answer that is given by hand, once."""

    fits: Callable[[Moment], bool]
    make: Callable[[Moment], Directive]
    told: Mapping[str, Any] = field(default_factory=dict)
    """What it is made of; `edit_of` makes it again."""
    used: bool = False


class Decider:
    """Decides about each call of a run that goes over recorded ground again."""

    def __init__(
        self,
        policy: Policy,
        tape: Tape | None,
        edits: Sequence[Edit] = (),
        origin: str | None = None,
    ) -> None:
        """Take the run that a fork began with, where it is another one than goes on."""
        self.policy = policy
        self._origin = origin
        self.tape = tape
        self._edits = list(edits)
        self.live_models = 0
        """Requests that really were sent."""
        self.live_tools = 0
        """Calls that really were made."""

    def __call__(self, moment: Moment) -> Directive | Question:
        """Return what answers a call in its place, None to make it, or a question."""
        for edit in self._edits:
            if not edit.used and edit.fits(moment):
                edit.used = True
                made = edit.make(moment)
                self._count(moment, made)
                return made
        if moment.kind == "model" and moment.phase == "request":
            decided = self._model(moment)
        elif moment.kind == "tool" and moment.phase == "call":
            decided = self._tool(moment)
        else:
            return None
        self._count(moment, decided)
        return decided

    def _count(self, moment: Moment, decided: Directive | Question) -> None:
        if isinstance(decided, Skip | Question):
            return
        if moment.kind == "model":
            self.live_models += moment.phase == "request"
        else:
            self.live_tools += moment.phase == "call"

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

    def _tool(self, moment: Moment) -> Directive | Question:
        choice, asked = self.policy.tool(moment.name), f"{moment.name}({moment.data['args']})"
        if isinstance(choice, Mock):
            return Skip(result_of(moment, choice.value))
        if choice == "live":
            return self.anew(moment)
        try:
            recorded = Skip(self._taped().result(moment))
        except ReplayError as error:
            if choice == "ask":
                return Question("ask", f"{asked} was not recorded")
            if self.policy.missing == "ask" and moment.data["replay"] == "safe":
                return None
            return _missed(self.policy.missing, str(error))
        return Question("ask", asked, recorded) if choice == "ask" else recorded

    def anew(self, moment: Moment) -> Directive:
        """Have a call made once more, though the ledger knows its result."""
        call = moment.data["call"]
        return Replace(once_more(call, self._origin)) if isinstance(call, ToolCall) else None

    def _taped(self) -> Tape:
        if self.tape is None:
            raise ReplayError("nothing is recorded")
        return self.tape


def once_more(call: ToolCall, origin: str | None = None) -> ToolCall:
    """Return a call that the ledger does not know, whatever it knows of the recorded one.

    With the run that a fork began with as its origin it is the fork's own call, and the ledger
    knows what became of that.
    """
    key = f"again-{origin or call.ctx.run_id}:{call.ctx.key}"
    return call.replace(ctx=replace(call.ctx, key=key))


def _missed(missing: Missing, text: str) -> Directive | Question:
    if missing == "live":
        return None
    return Question("divergence" if missing == "stop" else "ask", text)
