"""The scripted model: it plays a script strictly, streams, and runs in any process.

The purpose and the agent of a call come in the metadata of its config. LangChain passes that to
`_generate` (through the run manager) but not to `_stream`; there it travels as a keyword argument,
which `TellsCaller` adds if it is missing.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import threading
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from langchain_core.callbacks import (
    AsyncCallbackManagerForLLMRun,
    BaseCallbackManager,
    CallbackManagerForLLMRun,
)
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.runnables.config import RunnableConfig, ensure_config
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import ConfigDict, PrivateAttr, SecretStr

from wick_graph.errors import ConfigError
from wick_graph.models.scripted.reply import (
    Draft,
    ModelCall,
    ScriptedCut,
    ScriptedOverflow,
    UnconsumedSteps,
    UnexpectedModelCall,
    copy_tree,
    estimate_tokens,
    estimate_usage,
    freeze,
    tail,
)
from wick_graph.models.scripted.script import (
    MAIN,
    MARK,
    Cursor,
    Delay,
    Lane,
    Overflow,
    Raise,
    Reply,
    Respond,
    Step,
    StepLike,
    When,
    as_step,
    check_call,
    conversation,
    describe,
    leaves_nothing,
    mark,
    place,
)
from wick_graph.models.scripted.yaml_script import read_script, script_from


class BindsTools(BaseChatModel):
    """A chat model that binds tools in OpenAI's form, so that requests have one form everywhere."""

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | dict[str, Any] | bool | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Bind tools of any kind."""
        if tool_choice is not None:
            kwargs["tool_choice"] = tool_choice
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)


PURPOSE: Final = "wick_purpose"
"""The metadata key of a call's purpose; `agent` if it is missing."""

AGENT: Final = "wick_agent"
"""The metadata key of the agent's name."""

_KEYS: Final = (PURPOSE, AGENT)


def take_caller(
    run_manager: CallbackManagerForLLMRun | AsyncCallbackManagerForLLMRun | None,
    kwargs: dict[str, Any],
) -> tuple[str, str]:
    """Return purpose and agent, and remove them from the keyword arguments."""
    known = dict(run_manager.metadata) if run_manager and run_manager.metadata else {}
    for key in _KEYS:
        if key in kwargs:
            known[key] = kwargs.pop(key)
    return str(known.get(PURPOSE) or "agent"), str(known.get(AGENT) or "")


class TellsCaller(BindsTools):
    """A chat model with streams that know the purpose and the agent of a call."""

    def stream(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        *,
        stop: list[str] | None = None,
        **kwargs: Any,
    ) -> Iterator[AIMessageChunk]:
        """Stream a reply; see `BaseChatModel`."""
        caller = {**_caller_in_config(config), **kwargs}
        return super().stream(input, config, stop=stop, **caller)

    def astream(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        *,
        stop: list[str] | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[AIMessageChunk]:
        """Stream a reply; see `BaseChatModel`."""
        caller = {**_caller_in_config(config), **kwargs}
        return super().astream(input, config, stop=stop, **caller)

    def _generate_with_cache(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        caller = {**_caller_in(run_manager.metadata if run_manager else None), **kwargs}
        return super()._generate_with_cache(messages, stop, run_manager, **caller)

    async def _agenerate_with_cache(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        caller = {**_caller_in(run_manager.metadata if run_manager else None), **kwargs}
        return await super()._agenerate_with_cache(messages, stop, run_manager, **caller)


def _caller_in(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    return {key: metadata[key] for key in _KEYS if key in metadata} if metadata else {}


def _caller_in_config(config: RunnableConfig | None) -> dict[str, Any]:
    known = ensure_config(config)
    callbacks = known.get("callbacks")
    inherited = callbacks.metadata if isinstance(callbacks, BaseCallbackManager) else None
    return {**_caller_in(inherited), **_caller_in(known.get("metadata"))}


Tools = tuple[dict[str, Any], ...]


class Log:
    """Calls, attempts and cursors of this process; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: list[ModelCall] = []
        self._count = 0
        self._fifo: dict[str, int] = {}
        self._failed: set[tuple[str, int, str]] = set()
        self._done: set[tuple[str, int]] = set()
        self._passed: dict[str, int] = {}
        self._unexpected: list[UnexpectedModelCall] = []
        self._tools: Tools = ()
        self._prompt: tuple[BaseMessage, ...] = ()
        self._checked: dict[int, tuple[Step, Tools]] = {}

    def __deepcopy__(self, memo: object) -> Log:
        return self

    @property
    def calls(self) -> tuple[ModelCall, ...]:
        """The calls recorded so far."""
        with self._lock:
            return tuple(self._calls)

    def keep_messages(self, messages: Sequence[BaseMessage]) -> tuple[BaseMessage, ...]:
        """Copy a prompt; a message equal to the last prompt's at its place is not copied again."""
        last = self._prompt
        kept = [
            last[at] if at < len(last) and _same(last[at], message) else freeze(message)
            for at, message in enumerate(messages)
        ]
        self._prompt = tuple(kept)
        return self._prompt

    def keep_tools(self, tools: Sequence[dict[str, Any]]) -> Tools:
        """Copy the bound tools; tools equal to the last ones are not copied again."""
        kept = self._tools
        if len(kept) != len(tools) or any(a != b for a, b in zip(kept, tools, strict=True)):
            kept = self._tools = tuple(copy_tree(tool) for tool in tools)
        return kept

    def take(
        self, lane: Lane, script: str, cursor: Cursor, call: ModelCall, record: bool
    ) -> ModelCall:
        """Log the call with the step that it takes.

        Raises `UnexpectedModelCall` when the lane has no step left.
        """
        with self._lock:
            if cursor == "fifo":
                start = self._fifo.get(lane.name, 0)
            else:
                start = place(lane, script, call.messages)
                self._pass(lane, start)
            at = start
            while at < len(lane.steps) and self._steps_aside(lane, at, call.messages):
                at += 1
            found = at < len(lane.steps)
            taken = self._add(replace(call, lane=lane.name, step=at if found else -1), record)
            if not found:
                raise self._beyond(lane, start, cursor, taken)
            self._done.add((lane.name, at))
            self._fifo[lane.name] = at + (not isinstance(lane.steps[at], Overflow))
            return taken

    def no_lane(self, lanes: Sequence[Lane], call: ModelCall, record: bool) -> UnexpectedModelCall:
        """Log a call that no lane takes, and make the error to raise for it."""
        with self._lock:
            self._add(call, record)
            names = ", ".join(lane.name for lane in lanes) or "none"
            return self._unforeseen(f"no lane of the script takes this call (lanes: {names})", call)

    def check(self, step: Step, reply: Reply, tools: Tools) -> None:
        """Raise `ScriptMismatch` unless the reply's calls fit the tools.

        A step of the script is checked once per set of tools; a function's reply, always.
        """
        if reply.unchecked or not reply.calls:
            return
        known = self._checked.get(id(step))
        if step is reply and known and known[1] is tools:
            return
        for call in reply.calls:
            check_call(call, tools)
        if step is reply:
            self._checked[id(step)] = step, tools

    def assert_complete(self, lanes: Sequence[Lane]) -> None:
        """Raise the first unexpected call again, else `UnconsumedSteps` if steps are left."""
        with self._lock:
            if self._unexpected:
                raise self._unexpected[0]
            left = [
                f"  {lane.name} {at + 1}: {describe(step)}"
                for lane in lanes
                for at, step in enumerate(lane.steps)
                if (lane.name, at) not in self._done
            ]
        if left:
            raise UnconsumedSteps("these steps were never taken:\n" + "\n".join(left))

    def _pass(self, lane: Lane, start: int) -> None:
        # The steps before a prompt were taken, perhaps in another process. An overflow may have
        # stepped aside without a refusal, so the prompt does not prove it.
        for at in range(self._passed.get(lane.name, 0), min(start, len(lane.steps))):
            if not isinstance(lane.steps[at], Overflow):
                self._done.add((lane.name, at))
            self._passed[lane.name] = at + 1

    def _steps_aside(self, lane: Lane, at: int, messages: Sequence[BaseMessage]) -> bool:
        step = lane.steps[at]
        if isinstance(step, Overflow):
            return estimate_tokens(messages) <= step.above_tokens
        if not leaves_nothing(step) or at + 1 == len(lane.steps):
            return False
        attempt = (lane.name, at, conversation(messages))
        if attempt in self._failed:
            return True
        self._failed.add(attempt)
        return False

    def _add(self, call: ModelCall, record: bool) -> ModelCall:
        call = replace(call, number=self._count)
        self._count += 1
        if record:
            self._calls.append(call)
        return call

    def _beyond(
        self, lane: Lane, start: int, cursor: Cursor, call: ModelCall
    ) -> UnexpectedModelCall:
        nearest = f"{len(lane.steps)}: {describe(lane.steps[-1])}" if lane.steps else "none"
        return self._unforeseen(
            f"the script has no step for this call\n"
            f"  lane: {lane.name}, cursor: {start} of {len(lane.steps)} ({cursor})\n"
            f"  nearest step: {nearest}",
            call,
        )

    def _unforeseen(self, what: str, call: ModelCall) -> UnexpectedModelCall:
        failure = UnexpectedModelCall(
            f"{what}\n"
            f"  purpose: {call.purpose}, agent: {call.agent or '-'}, "
            f"tools: {', '.join(call.tool_names) or 'none'}\n"
            f"  last messages:\n{tail(call.messages)}"
        )
        self._unexpected.append(failure)
        return failure


def _same(kept: BaseMessage, message: BaseMessage) -> bool:
    return type(kept) is type(message) and kept.__dict__ == message.__dict__


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
    """A draft, and the number of chunks after which the connection breaks."""

    draft: Draft
    cut_after: int | None = None

    def whole(self) -> ChatResult:
        """Return the reply in one piece; raises `ScriptedCut` if it must be cut."""
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
"""A turn that yields what it waits for: seconds, or an awaitable, and gets its value back."""


def play(turn: Turn, log: Log) -> Waits:
    """Run the step, down to the draft of a reply.

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
    """Run a turn to its end in this thread."""
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
    """Run a turn to its end in this task."""
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
        finish=reply.finish,
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


_SETTINGS: Final = ("temperature", "max_tokens", "timeout", "max_retries", "stop")


class ScriptedModel(TellsCaller):
    """Play a script exactly.

    A call takes the step that its prompt has reached (see `place`), so the same script serves
    many threads, a resumed one, a fork and another process. A step that leaves no assistant
    message (a fault, an empty reply) is taken once per conversation and process, so that the
    retry gets the next step; as the last of its lane it is taken each time. With
    `cursor="fifo"` the steps are taken in the order of the calls instead.

    Raises `UnexpectedModelCall` beyond the script and `ScriptMismatch` for a scripted call that
    the bound tools do not accept.
    """

    model_config = ConfigDict(extra="forbid")

    model_name: str = DEFAULT_NAME
    """Also distinguishes several scripts in one thread; ids include it if it is set."""
    cursor: Cursor = "prompt"
    record_calls: bool = True
    """Whether `calls` are kept; long benchmarks turn it off."""
    chunk_delay: float | None = None
    """Seconds before each chunk of a stream; 0 only lets other tasks run."""
    streaming: bool = False
    temperature: float | None = None
    max_tokens: int | None = None
    timeout: float | None = None
    max_retries: int | None = None
    stop: list[str] | None = None
    api_key: SecretStr | None = None
    """Accepted so that the model can replace others, and never used."""

    _lanes: tuple[Lane, ...] = PrivateAttr(default=())
    _log: Log = PrivateAttr(default_factory=Log)

    def __init__(
        self,
        steps: Iterable[StepLike] = (),
        *,
        lanes: Iterable[Lane] = (),
        **settings: Any,
    ) -> None:
        """Make a model from steps and lanes; `settings` are the fields of the class.

        The first lane that matches takes the call. The plain steps are the last lane, `main`,
        and answer calls of purpose `agent` only. Raises `ConfigError` for a malformed script.
        """
        super().__init__(**settings)
        main = Lane(MAIN, steps, when=When(purpose="agent"))
        every = (*lanes, main) if main.steps else tuple(lanes)
        names = [lane.name for lane in every]
        if len(set(names)) < len(names):
            raise ConfigError(f"each lane needs its own name, these do not: {', '.join(names)}")
        self._lanes = every

    @classmethod
    def from_yaml(cls, path: str | Path, **settings: Any) -> ScriptedModel:
        """Read a script from a file; `settings` override the file's.

        Raises `ConfigError` that names file, line and step.
        """
        steps, lanes, found = read_script(Path(path))
        return cls(steps, lanes=lanes, **{**found, **settings})

    @classmethod
    def from_mapping(
        cls, script: Mapping[str, Any], source: str = "script", **settings: Any
    ) -> ScriptedModel:
        """Take a script in the form of the YAML file; `source` names it in errors."""
        steps, lanes, found = script_from(script, source)
        return cls(steps, lanes=lanes, **{**found, **settings})

    @property
    def calls(self) -> tuple[ModelCall, ...]:
        """Return the calls so far, oldest first; raises `ConfigError` if not recorded."""
        if not self.record_calls:
            raise ConfigError("this scripted model keeps no calls: leave record_calls on")
        return self._log.calls

    def assert_complete(self) -> None:
        """Check that every step was taken and that every call had one.

        Raises `UnconsumedSteps`, or the first `UnexpectedModelCall` even if it was swallowed.
        Steps that a prompt shows as done count as taken.
        """
        self._log.assert_complete(self._lanes)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model_name": self.model_name}

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        turn = self._turn(messages, stop, take_caller(run_manager, kwargs), kwargs)
        return drive(play(turn, self._log)).whole()

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        turn = self._turn(messages, stop, take_caller(run_manager, kwargs), kwargs)
        return (await adrive(play(turn, self._log))).whole()

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        turn = self._turn(messages, stop, take_caller(run_manager, kwargs), kwargs, streamed=True)
        for chunk in drive(play(turn, self._log)).chunks():
            if self.chunk_delay is not None:
                time.sleep(self.chunk_delay)
            yield chunk

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        turn = self._turn(messages, stop, take_caller(run_manager, kwargs), kwargs, streamed=True)
        for chunk in (await adrive(play(turn, self._log))).chunks():
            if self.chunk_delay is not None:
                await asyncio.sleep(self.chunk_delay)
            yield chunk

    def _turn(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None,
        caller: tuple[str, str],
        asked: dict[str, Any],
        *,
        streamed: bool = False,
    ) -> Turn:
        record, log = self.record_calls, self._log
        tools, choice = asked.pop("tools", None) or (), asked.pop("tool_choice", None)
        call = ModelCall(
            messages=log.keep_messages(messages) if record else tuple(messages),
            tools=log.keep_tools(tools),
            tool_choice=choice,
            settings=self._settings(stop, asked),
            purpose=caller[0],
            agent=caller[1],
            streamed=streamed,
        )
        lane = next((lane for lane in self._lanes if lane.matches(call)), None)
        if lane is None:
            raise log.no_lane(self._lanes, call, record)
        call = log.take(lane, self.model_name, lane.cursor or self.cursor, call, record)
        return Turn(
            call=call,
            step=lane.steps[call.step],
            messages=messages,
            script=self.model_name,
            model=str(asked.get("model") or self.model_name),
        )

    def _settings(self, stop: list[str] | None, asked: dict[str, Any]) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in _SETTINGS}
        settings = {name: value for name, value in own.items() if value is not None}
        settings.update(copy_tree(asked))
        if stop is not None:
            settings["stop"] = list(stop)
        return settings
