"""A script: the steps that a model takes, and the lanes that hold them.

The bound tools must accept scripted tool calls.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from typing import Any, Final, Literal, cast

from jsonschema import Draft202012Validator
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.messages.ai import UsageMetadata

from wick_graph.errors import ConfigError
from wick_graph.models.scripted.reply import (
    Content,
    DraftCall,
    ModelCall,
    ScriptedRateLimit,
    ScriptedTimeout,
    ScriptMismatch,
    tool_name,
)

CallLike = tuple[str, Mapping[str, Any]] | tuple[str, Mapping[str, Any], str]

UsageLike = tuple[int, int] | Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """Answer with text, tool calls, or both."""

    content: Content = ""
    calls: tuple[DraftCall, ...] = ()
    pieces: tuple[str, ...] | None = None
    usage: UsageMetadata | None = None
    id: str | None = None
    unchecked: bool = False
    cut_after: int | None = None
    """Break the connection after this many chunks."""
    finish: str | None = None
    """Why it ended, as a provider says it; by default as for a whole reply."""


@dataclass(frozen=True, slots=True)
class Raise:
    """Fail instead of answering."""

    make: Callable[[], BaseException]
    label: str


@dataclass(frozen=True, slots=True)
class Overflow:
    """Refuse prompts above a number of tokens; step aside for shorter ones."""

    above_tokens: int


@dataclass(frozen=True, slots=True)
class Delay:
    """Wait, then do another step."""

    seconds: float
    step: Step


@dataclass(frozen=True, slots=True)
class Respond:
    """Let a function choose the step from the call."""

    function: Callable[[ModelCall], StepLike | Awaitable[StepLike]]


@dataclass(frozen=True, slots=True)
class Attempts:
    """Several steps for one place in the script."""

    steps: tuple[Step, ...]


Step = Reply | Raise | Overflow | Delay | Respond | Attempts

StepLike = str | AIMessage | Step


def text(
    content: str = "",
    *,
    chunks: Sequence[str] | None = None,
    usage: UsageLike | None = None,
    id: str | None = None,
    finish: str | None = None,
) -> Reply:
    """Answer with text, streamed word by word or in the given chunks.

    `usage` is (input, output) tokens or LangChain's mapping; without it the model estimates.
    `finish="length"` ends the text as a provider that reached its length limit.
    Raises `ConfigError` if `chunks` do not add up to `content`.
    """
    pieces = None if chunks is None else tuple(chunks)
    whole = content or "".join(pieces or ())
    if pieces is not None and "".join(pieces) != whole:
        raise ConfigError("the chunks of a text step do not add up to its text: give one of them")
    return Reply(content=whole, pieces=pieces, usage=_usage(usage), id=id, finish=finish)


def call(tool: str, /, **args: Any) -> Reply:
    """Call one tool."""
    return calls((tool, args))


def calls(
    *wanted: CallLike,
    text: str = "",
    usage: UsageLike | None = None,
    id: str | None = None,
    unchecked: bool = False,
) -> Reply:
    """Call several tools in one reply, with an optional text before them.

    Each is `(tool, args)` or `(tool, args, call id)`. The arguments must fit the schemas bound
    when the step is taken, unless `unchecked`. Raises `ConfigError` for arguments that JSON
    cannot express.
    """
    if not wanted:
        raise ConfigError("calls() needs at least one (tool, args): use text() for a plain answer")
    made = tuple(_draft_call(*one) for one in wanted)
    return Reply(content=text, calls=made, usage=_usage(usage), id=id, unchecked=unchecked)


def error(exc: BaseException | type[BaseException] | str) -> Raise:
    """Fail with this exception; a text makes a `RuntimeError`."""
    if isinstance(exc, str):
        return Raise(lambda: RuntimeError(exc), f"error({exc!r})")
    if isinstance(exc, type):
        return Raise(exc, f"error({exc.__name__})")
    return Raise(lambda: exc, f"error({exc!r})")


def delay(seconds: float, step: StepLike) -> Delay:
    """Wait before a step; sleeps in the caller's thread or task.

    Raises `ConfigError` for `attempts()` and `context_overflow()`: delay what is in or after them.
    """
    made = as_step(step)
    if isinstance(made, Attempts | Overflow):
        raise ConfigError("delay() takes one answer or fault: put it inside attempts()")
    return Delay(seconds, made)


def respond(function: Callable[[ModelCall], StepLike | Awaitable[StepLike]]) -> Respond:
    """Choose the step at the time of the call; a coroutine function needs an async caller."""
    return Respond(function)


def attempts(*steps: StepLike) -> Attempts:
    """Put several attempts in one place: faults first, the answer last.

    Raises `ConfigError` if an attempt before the last would leave an answer, since the next call
    would then be another place.
    """
    made = tuple(as_step(one) for one in steps)
    if not made or not all(leaves_nothing(one) for one in made[:-1]):
        raise ConfigError("attempts() takes faults, and one answer as its last: move the rest out")
    return Attempts(made)


def rate_limit(retry_after: float | None = None) -> Raise:
    """Refuse with a 429, and `Retry-After` in seconds if given."""
    return Raise(lambda: ScriptedRateLimit(retry_after), f"rate_limit({retry_after})")


def timeout() -> Raise:
    """Fail as a provider that does not answer in time."""
    return Raise(lambda: ScriptedTimeout("no answer in time (scripted)"), "timeout()")


def cut_stream(after_chunks: int = 1, step: StepLike = "This reply is cut off.") -> Reply:
    """Break the connection after so many chunks of a reply; without streaming, at once."""
    reply = as_step(step)
    if not isinstance(reply, Reply):
        raise ConfigError("cut_stream() can only cut a text or calls")
    return replace(reply, cut_after=after_chunks)


def malformed_args(tool: str, raw: str = '{"broken": }', *, id: str | None = None) -> Reply:
    """Call a tool with arguments that are this text.

    LangChain turns it into an invalid tool call, as providers' classes do; but LangChain
    completes a stream that stops in the middle of an object, and does not refuse it.
    """
    return Reply(calls=(DraftCall(tool, raw, None, id),), unchecked=True)


def unknown_tool(name: str = "no_such_tool", args: Mapping[str, Any] | None = None) -> Reply:
    """Call a tool that is not bound."""
    return calls((name, args or {}), unchecked=True)


def empty() -> Reply:
    """Answer with nothing at all."""
    return Reply()


def context_overflow(above_tokens: int) -> Overflow:
    """Refuse every prompt above this estimate (four characters to a token).

    A shorter prompt goes on to the next step: the answer after the history was shortened.
    """
    return Overflow(above_tokens)


def as_step(value: StepLike) -> Step:
    """Accept a text or an `AIMessage` as a step; raises `ConfigError` for other types."""
    if isinstance(value, str):
        return Reply(content=value)
    if isinstance(value, AIMessage):
        made = tuple(_draft_call(c["name"], c["args"], c["id"]) for c in value.tool_calls)
        usage = _usage(value.usage_metadata)
        return Reply(content=value.content, calls=made, usage=usage, id=value.id)
    if isinstance(value, Reply | Raise | Overflow | Delay | Respond | Attempts):
        return value
    raise ConfigError(
        f"a step of a script is a text, a message or one of the step functions, "
        f"not {type(value).__name__}"
    )


def flatten(steps: Iterable[StepLike]) -> tuple[Step, ...]:
    """List the steps with each group of attempts expanded."""
    out: list[Step] = []
    for step in map(as_step, steps):
        out.extend(flatten(step.steps) if isinstance(step, Attempts) else (step,))
    return tuple(out)


def leaves_nothing(step: Step) -> bool:
    """Say whether the step puts no assistant message into the thread."""
    if isinstance(step, Delay):
        return leaves_nothing(step.step)
    if isinstance(step, Reply):
        return step.cut_after is not None or not (step.content or step.calls)
    return isinstance(step, Raise | Overflow)


def describe(step: Step) -> str:
    """Name a step in a few words, for error texts."""
    if isinstance(step, Delay):
        return f"delay({step.seconds}, {describe(step.step)})"
    if isinstance(step, Respond):
        return f"respond({getattr(step.function, '__name__', step.function)})"
    if isinstance(step, Overflow):
        return f"context_overflow(above_tokens={step.above_tokens})"
    if isinstance(step, Raise):
        return step.label
    return _describe_reply(step) if isinstance(step, Reply) else "attempts()"


def _describe_reply(reply: Reply) -> str:
    parts = [f"{c.name}({c.raw})" for c in reply.calls]
    if reply.content:
        parts.insert(0, repr(reply.content))
    label = " + ".join(parts) or "empty()"
    if len(label) > 120:
        label = label[:117] + "..."
    return label if reply.cut_after is None else f"cut_stream({reply.cut_after}, {label})"


def _draft_call(tool: str, args: Mapping[str, Any], id: str | None = None) -> DraftCall:
    try:
        return DraftCall.of(tool, dict(args), id)
    except (TypeError, ValueError) as problem:
        raise ConfigError(
            f"the arguments of the scripted call of {tool} cannot be written as JSON: {problem}"
        ) from problem


def _usage(usage: UsageLike | UsageMetadata | None) -> UsageMetadata | None:
    if usage is None:
        return None
    if isinstance(usage, tuple):
        read, written = usage
        return UsageMetadata(input_tokens=read, output_tokens=written, total_tokens=read + written)
    total = usage.get("input_tokens", 0) + usage.get("output_tokens", 0)
    return cast("UsageMetadata", {"total_tokens": total, **usage})


Cursor = Literal["prompt", "fifo"]

CURSORS: Final = ("prompt", "fifo")

MAIN: Final = "main"
"""The lane of the steps without one; it takes calls of purpose `agent` only."""

MARK: Final = "script"
"""The key in a reply's `response_metadata` that names its step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """Conditions on a call; all must hold."""

    agent: str | None = None
    """The agent's name; `*` and `?` are wildcards."""
    purpose: str | None = None
    """The call's purpose, such as `agent`, `summarize`, `subagent:*`; wildcards as above."""
    last: str | None = None
    """A regular expression to find in the text of the last message."""
    system: str | None = None
    """A regular expression to find in the system text."""
    tools: Iterable[str] | None = None
    """Tools that must all be bound; an empty list means that none may be bound."""

    def __post_init__(self) -> None:
        for name in ("last", "system"):
            try:
                re.compile(getattr(self, name) or "")
            except re.error as problem:
                raise ConfigError(
                    f"the {name!r} matcher of a lane is not a regular expression: {problem}"
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
    """A named part of a script with its own steps."""

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
            raise ConfigError(f"{name!r} is not a lane's name: use letters, digits, _ and -")
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
    """Find the step that a prompt has reached, from the prompt alone.

    The last reply in the prompt with this lane's mark is step `s`, so the next is `s + 1`,
    wherever the thread was continued, forked or cut short in the meantime. Assistant messages
    after it without a mark (an edit by hand, another model, a format that drops metadata) count
    for one answering step each; without any mark, all from the first user message on count.
    Replies marked by other lanes or scripts, empty unmarked ones, the engine's own replies, and
    messages of other roles do not count.
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
    """Identify a conversation by its first user message."""
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
            raise ConfigError(f"a lane cannot match on {key!r}: use one of {', '.join(known)}")
    return When(**when).matches


def _offers(call: ModelCall, wanted: frozenset[str]) -> bool:
    return wanted <= set(call.tool_names) if wanted else not call.tools


def _found(pattern: str, text: str) -> bool:
    return re.search(pattern, text) is not None


def check_call(call: DraftCall, tools: Sequence[Mapping[str, Any]]) -> None:
    """Raise `ScriptMismatch` unless the call names a bound tool and fits its schema."""
    tool = next((t for t in tools if tool_name(t) == call.name), None)
    if tool is None:
        bound = ", ".join(map(tool_name, tools)) or "none"
        raise ScriptMismatch(
            f"the script calls {call.name}, which is not bound (bound: {bound}): "
            "bind it, or mark the step unchecked=True"
        )
    schema = tool.get("function", {}).get("parameters")
    problem = _problem(call.args or {}, schema) if isinstance(schema, Mapping) else None
    if problem:
        raise ScriptMismatch(
            f"the script calls {call.name}({call.raw}), but {problem}: "
            "correct the arguments, or mark the step unchecked=True"
        )


def _problem(args: Mapping[str, Any], schema: Mapping[str, Any]) -> str | None:
    found = next(Draft202012Validator(schema).iter_errors(dict(args)), None)
    if found is not None:
        where = ".".join(map(str, found.absolute_path))
        return f"{where}: {found.message}" if where else str(found.message)
    known = schema.get("properties")
    # JSON Schema lets unknown names through; in a script they are typos
    if known and not schema.keys() & {"additionalProperties", "patternProperties"}:
        unknown = [name for name in args if name not in known]
        if unknown:
            return f"it has no argument {unknown[0]!r} (it has: {', '.join(known)})"
    return None
