"""One turn of a scripted model: from the step to the draft of a reply, in both worlds."""

from __future__ import annotations

import asyncio
import inspect
import re
import time
from collections.abc import Awaitable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

from wick_graph.errors import ConfigError
from wick_graph.testing.draft import Draft, estimate_usage
from wick_graph.testing.failures import ScriptedCut, ScriptedOverflow
from wick_graph.testing.lanes import MAIN, MARK, mark
from wick_graph.testing.log import Log
from wick_graph.testing.record import ModelCall
from wick_graph.testing.steps import Delay, Overflow, Raise, Reply, Respond, Step, as_step

DEFAULT_NAME: Final = "scripted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A call and the step that answers it."""

    call: ModelCall
    step: Step
    messages: Sequence[BaseMessage]
    script: str
    """The script's name."""
    model: str
    """The model's name as the reply gives it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A draft, and after how many chunks the connection breaks."""

    draft: Draft
    cut_after: int | None = None

    def whole(self) -> ChatResult:
        """Return the reply in one piece; raises `ScriptedCut` if it is to be cut."""
        if self.cut_after is not None:
            raise _cut(0)
        return ChatResult(generations=[ChatGeneration(message=self.draft.message())])

    def chunks(self) -> Iterator[ChatGenerationChunk]:
        """Return the reply in chunks; raises `ScriptedCut`, at the latest before the last one."""
        for sent, chunk in enumerate(self.draft.chunks()):
            if self.cut_after is not None and (
                sent >= self.cut_after or chunk.chunk_position == "last"
            ):
                raise _cut(sent)
            yield ChatGenerationChunk(message=chunk)


Waits: TypeAlias = Generator[float | Awaitable[Any], Any, Outcome]
"""A turn that hands out what it waits for: seconds, or an awaitable whose value it wants."""


def play(turn: Turn, log: Log) -> Waits:
    """Do the step, down to the draft of a reply.

    Raises what the step raises, and `ScriptMismatch` for calls that the tools do not accept.
    """
    step = turn.step
    while not isinstance(step, Reply):
        if isinstance(step, Delay):
            yield step.seconds
            step = step.step
        elif isinstance(step, Respond):
            chosen = step.function(turn.call)
            step = as_step((yield chosen) if inspect.isawaitable(chosen) else chosen)
        elif isinstance(step, Raise):
            raise step.make()
        elif isinstance(step, Overflow):
            raise ScriptedOverflow(
                f"the prompt is longer than {step.above_tokens} tokens (scripted)"
            )
        else:
            raise ConfigError("a function of a script returns one step, not attempts()")
    log.check(turn.step, step, turn.call.tools)
    return Outcome(_draft(turn, step), step.cut_after)


def drive(waits: Waits) -> Outcome:
    """Carry a turn to its end in this thread."""
    value: Any = None
    while True:
        try:
            wanted = waits.send(value)
        except StopIteration as end:
            outcome: Outcome = end.value
            return outcome
        if not isinstance(wanted, int | float):
            if inspect.iscoroutine(wanted):
                wanted.close()
            raise ConfigError(
                "this step of the script is a coroutine function: call the model with "
                "ainvoke or astream, or make it a plain function"
            )
        time.sleep(wanted)


async def adrive(waits: Waits) -> Outcome:
    """Carry a turn to its end in this task."""
    value: Any = None
    while True:
        try:
            wanted = waits.send(value)
        except StopIteration as end:
            outcome: Outcome = end.value
            return outcome
        if isinstance(wanted, int | float):
            await asyncio.sleep(wanted)
        else:
            value = await wanted


def _draft(turn: Turn, reply: Reply) -> Draft:
    names = [turn.script] if turn.script != DEFAULT_NAME else []
    names += [turn.call.lane] if turn.call.lane != MAIN else []
    place = "_".join([*map(_slug, names), str(turn.call.step + 1)])
    calls = tuple(
        made if made.id else replace(made, id=f"call_{place}_{number}")
        for number, made in enumerate(reply.calls, 1)
    )
    return Draft(
        id=reply.id or f"msg_{place}",
        content=reply.content,
        pieces=reply.pieces,
        calls=calls,
        usage=reply.usage or estimate_usage(turn.messages, reply.content, calls),
        metadata={
            "model_name": turn.model,
            MARK: mark(turn.script, turn.call.lane, turn.call.step),
        },
    )


def _slug(name: str) -> str:
    """Shorten `scripted:path/to/weather.yaml` to `weather`."""
    return re.sub(r"[^A-Za-z0-9-]+", "_", name.rpartition("/")[2].rpartition(":")[2].split(".")[0])


def _cut(sent: int) -> ScriptedCut:
    return ScriptedCut(f"the connection was closed after {sent} chunks (scripted)")
