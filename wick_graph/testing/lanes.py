"""Lanes: which part of a script answers a call, and where in it the cursor stands."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from typing import Any, Final, Literal

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from wick_graph.errors import ConfigError
from wick_graph.testing.record import ModelCall
from wick_graph.testing.steps import Step, StepLike, flatten, leaves_nothing

Cursor = Literal["prompt", "fifo"]
CURSORS: Final = ("prompt", "fifo")
MAIN: Final = "main"
"""The lane of the steps that are given without one; it takes calls of purpose `agent` only."""
MARK: Final = "script"
"""The key in a reply's `response_metadata` that says which step it came from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """Conditions on a call, all of which must hold."""

    agent: str | None = None
    """The agent's name; `*` and `?` are wildcards."""
    purpose: str | None = None
    """What the call is for, such as `agent`, `summarize`, `subagent:*`; wildcards as above."""
    last: str | None = None
    """A regular expression to be found in the text of the last message."""
    system: str | None = None
    """A regular expression to be found in the system text."""
    tools: Iterable[str] | None = None
    """Names that must all be bound; an empty list means that nothing may be bound."""

    def __post_init__(self) -> None:
        for name in ("last", "system"):
            try:
                re.compile(getattr(self, name) or "")
            except re.error as problem:
                raise ConfigError(
                    f"the {name!r} matcher of a lane is no regular expression: {problem}"
                ) from problem
        if isinstance(self.tools, str):
            raise ConfigError("the 'tools' matcher of a lane is a list of names, not a text")

    def matches(self, call: ModelCall) -> bool:
        """Say whether the call meets every condition."""
        return (
            (self.agent is None or fnmatchcase(call.agent, self.agent))
            and (self.purpose is None or fnmatchcase(call.purpose, self.purpose))
            and (self.tools is None or _offers(call, frozenset(self.tools)))
            and (self.last is None or _found(self.last, call.last.text if call.last else ""))
            and (self.system is None or _found(self.system, call.system))
        )


WhenLike = When | Mapping[str, Any] | Callable[[ModelCall], bool] | None


@dataclass(frozen=True, slots=True, init=False)
class Lane:
    """A named part of a script with steps of its own."""

    name: str
    steps: tuple[Step, ...]
    matches: Callable[[ModelCall], bool]
    cursor: Cursor | None

    def __init__(
        self,
        name: str,
        steps: Iterable[StepLike],
        *,
        when: WhenLike = None,
        cursor: Cursor | None = None,
    ) -> None:
        """Make a lane; without `when` it takes every call, without `cursor` the script's.

        Raises `ConfigError` for an unusable name, matcher or step.
        """
        if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
            raise ConfigError(f"{name!r} is no name for a lane: use letters, digits, _ and -")
        if cursor not in (None, *CURSORS):
            raise ConfigError(f"the cursor of lane {name} is 'prompt' or 'fifo', not {cursor!r}")
        if isinstance(steps, str):
            raise ConfigError(f"the steps of lane {name} are a list, not a text: put it in [ ]")
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "steps", flatten(steps))
        object.__setattr__(self, "matches", _matcher(when))
        object.__setattr__(self, "cursor", cursor)


def mark(script: str, lane: str, step: int) -> dict[str, Any]:
    """Make the value of `MARK` for a reply."""
    return {"name": script, "lane": lane, "step": step}


def place(lane: Lane, script: str, messages: Sequence[BaseMessage]) -> int:
    """Find the step that a prompt has come to, from the prompt alone.

    The last reply in the prompt that carries this lane's mark is step `s`, so the next is
    `s + 1`: wherever the thread was continued, forked or cut short in the meantime. Assistant
    messages after it that carry no mark (an edit by hand, another model, a format that drops
    metadata) count for one answering step each; without any mark, all from the first user
    message on are counted. Replies marked by other lanes or scripts, empty unmarked ones, what
    the engine said in the model's place, and all that is no assistant message do not count.
    """
    unmarked = counted = at = 0
    for message in reversed(messages):
        if isinstance(message, HumanMessage):
            counted = unmarked
        elif isinstance(message, AIMessage):
            mark = message.response_metadata.get(MARK)
            if not isinstance(mark, dict):
                unmarked += _counts(message)
            elif mark.get("name") == script and mark.get("lane") == lane.name:
                at, counted = int(mark.get("step", -1)) + 1, unmarked
                break
    for _ in range(counted):
        while at < len(lane.steps) and leaves_nothing(lane.steps[at]):
            at += 1
        at += 1
    return at


def _counts(message: AIMessage) -> bool:
    own = message.response_metadata.get("wick")
    if isinstance(own, dict) and own.get("own"):
        return False
    return bool(message.content or message.tool_calls or message.invalid_tool_calls)


def conversation(messages: Sequence[BaseMessage]) -> str:
    """Tell conversations apart by their first user message."""
    first = next((m for m in messages if isinstance(m, HumanMessage)), None)
    return "" if first is None else first.id or first.text


def _matcher(when: WhenLike) -> Callable[[ModelCall], bool]:
    if when is None:
        return lambda call: True
    if isinstance(when, When):
        return when.matches
    if callable(when):
        return when
    known = [one.name for one in fields(When)]
    for key in when:
        if key not in known:
            raise ConfigError(f"a lane cannot match on {key!r}: it can on {', '.join(known)}")
    return When(**when).matches


def _offers(call: ModelCall, wanted: frozenset[str]) -> bool:
    return wanted <= set(call.tool_names) if wanted else not call.tools


def _found(pattern: str, text: str) -> bool:
    return re.search(pattern, text) is not None
