"""The steps of a script: what the model does when its turn comes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from langchain_core.messages import AIMessage
from langchain_core.messages.ai import UsageMetadata

from wick_graph.errors import ConfigError
from wick_graph.testing.draft import Content, DraftCall
from wick_graph.testing.failures import ScriptedRateLimit, ScriptedTimeout

if TYPE_CHECKING:
    from wick_graph.testing.record import ModelCall

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
    """Let a function see the call and choose the step."""

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
) -> Reply:
    """Answer with text, streamed word by word or in the given chunks.

    `usage` is (input, output) tokens or LangChain's mapping; without it the model estimates.
    Raises `ConfigError` when `chunks` do not add up to `content`.
    """
    pieces = None if chunks is None else tuple(chunks)
    whole = content or "".join(pieces or ())
    if pieces is not None and "".join(pieces) != whole:
        raise ConfigError("the chunks of a text step do not add up to its text: give one of them")
    return Reply(content=whole, pieces=pieces, usage=_usage(usage), id=id)


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
    """Call several tools in one reply, with a text before them if you like.

    Each is `(tool, args)` or `(tool, args, call id)`. The arguments must fit the schemas that
    are bound when the step is taken, unless `unchecked`. Raises `ConfigError` for arguments
    that JSON cannot say.
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
    """Wait before a step, in the way of the caller: sleeping the thread, or the task.

    Raises `ConfigError` for `attempts()` and `context_overflow()`: delay what is in or after them.
    """
    made = as_step(step)
    if isinstance(made, Attempts | Overflow):
        raise ConfigError("delay() takes one answer or fault: put it inside attempts()")
    return Delay(seconds, made)


def respond(function: Callable[[ModelCall], StepLike | Awaitable[StepLike]]) -> Respond:
    """Choose the step when the call comes; a coroutine function needs an async caller."""
    return Respond(function)


def attempts(*steps: StepLike) -> Attempts:
    """Give several attempts one place: faults first, the answer last.

    Raises `ConfigError` when an attempt before the last would leave an answer behind, since the
    next call would then be another place.
    """
    made = tuple(as_step(one) for one in steps)
    if not made or not all(leaves_nothing(one) for one in made[:-1]):
        raise ConfigError("attempts() takes faults, and one answer as its last: move the rest out")
    return Attempts(made)


def rate_limit(retry_after: float | None = None) -> Raise:
    """Refuse with a 429, and `Retry-After` in seconds if given."""
    return Raise(lambda: ScriptedRateLimit(retry_after), f"rate_limit({retry_after})")


def timeout() -> Raise:
    """Fail as a provider does that did not answer in time."""
    return Raise(lambda: ScriptedTimeout("no answer in time (scripted)"), "timeout()")


def cut_stream(after_chunks: int = 1, step: StepLike = "This reply is cut off.") -> Reply:
    """Break the connection after so many chunks of a reply; without streaming, at once."""
    reply = as_step(step)
    if not isinstance(reply, Reply):
        raise ConfigError("cut_stream() can only cut a text or calls")
    return replace(reply, cut_after=after_chunks)


def malformed_args(tool: str, raw: str = '{"broken": }', *, id: str | None = None) -> Reply:
    """Call a tool with arguments that are this text.

    What LangChain makes of it is what providers' classes make of it: an invalid tool call; but
    a stream that stops in the middle of an object is completed by LangChain, not refused.
    """
    return Reply(calls=(DraftCall(tool, raw, None, id),), unchecked=True)


def unknown_tool(name: str = "no_such_tool", args: Mapping[str, Any] | None = None) -> Reply:
    """Call a tool that nobody offered."""
    return calls((name, args or {}), unchecked=True)


def empty() -> Reply:
    """Answer with nothing at all."""
    return Reply()


def context_overflow(above_tokens: int) -> Overflow:
    """Refuse every prompt above this estimate (four characters to a token).

    A shorter prompt goes on to the next step, so what follows is the answer after the history
    was made to fit.
    """
    return Overflow(above_tokens)


def as_step(value: StepLike) -> Step:
    """Accept a text or an `AIMessage` where a step is due; raises `ConfigError` for the rest."""
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
    """List the steps with every group of attempts laid open."""
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
