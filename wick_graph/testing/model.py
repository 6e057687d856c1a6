"""The scripted model: strict, streaming, and at home in any process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from pydantic import ConfigDict, PrivateAttr, SecretStr

from wick_graph.errors import ConfigError
from wick_graph.testing.caller import TellsCaller, take_caller
from wick_graph.testing.draft import copy_tree
from wick_graph.testing.lanes import MAIN, Cursor, Lane, When
from wick_graph.testing.log import Log
from wick_graph.testing.record import ModelCall
from wick_graph.testing.steps import StepLike
from wick_graph.testing.turn import DEFAULT_NAME, Turn, adrive, drive, play
from wick_graph.testing.yaml_script import read_script, script_from

_SETTINGS: Final = ("temperature", "max_tokens", "timeout", "max_retries", "stop")


class ScriptedModel(TellsCaller):
    """Play a script, exactly.

    A call takes the step that its prompt has come to (see `wick_graph.testing.lanes.place`), so
    the same script serves many threads, a resumed one, a fork and another process. A step that
    leaves no assistant message behind (a fault, an empty reply) is taken once per conversation
    and process, so that the retry gets the next step; as the last of its lane it is taken each
    time. With `cursor="fifo"` the steps are taken in the order of the calls instead.

    Raises `UnexpectedModelCall` beyond the script and `ScriptMismatch` for a scripted call that
    the bound tools do not accept.
    """

    model_config = ConfigDict(extra="forbid")

    model_name: str = DEFAULT_NAME
    """Also tells scripts apart that speak in one thread; ids carry it when it is set."""
    cursor: Cursor = "prompt"
    record_calls: bool = True
    """Whether `calls` are kept; long benchmarks switch it off."""
    chunk_delay: float | None = None
    """Seconds before each chunk of a stream; 0 only gives other tasks their turn."""
    streaming: bool = False
    temperature: float | None = None
    max_tokens: int | None = None
    timeout: float | None = None
    max_retries: int | None = None
    stop: list[str] | None = None
    api_key: SecretStr | None = None
    """Accepted so that the model can stand in for others, and never used."""

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
        """Read a script from a file; `settings` win over what the file says.

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
        """Return what was asked so far, oldest first; raises `ConfigError` if not recorded."""
        if not self.record_calls:
            raise ConfigError("this scripted model keeps no calls: leave record_calls on")
        return self._log.calls

    def assert_complete(self) -> None:
        """Check that every step was taken and no call was left without one.

        Raises `UnconsumedSteps`, or the first `UnexpectedModelCall` even if it was swallowed.
        Steps that a prompt shows as past count as taken.
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
