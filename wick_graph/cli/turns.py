"""One turn of a conversation at the command line: the run, its questions, and why it stopped."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from wick_graph import keys
from wick_graph.cli import asking, output
from wick_graph.cli.agents import DEFAULT_FILE
from wick_graph.cli.live import JsonLines, JsonResult, Live, View, program
from wick_graph.cli.signals import terminable

if TYPE_CHECKING:
    from wick_graph.agent import Agent
    from wick_graph.loading import Agents

GO_ON: Final = "Go on."
"""What is said where a run came to its end without an answer, and is to go on all the same."""


@dataclass(frozen=True, kw_only=True)
class Where:
    """A thread, and the words of a command line that lead to it."""

    thread_id: str
    agent_id: str
    config: Path
    model: str | None
    kept: bool
    """Whether the thread outlives the process."""

    def point(self, *, waits: bool = False) -> None:
        """Say which thread it was, and the command that goes on in it."""
        if not self.kept:
            output.say(f"thread {self.thread_id} (in memory: it ends here)", dim=True)
            return
        shared = []
        if self.config != DEFAULT_FILE:
            shared += ["-c", str(self.config)]
        if self.model is not None:
            shared += ["-m", self.model]
        if waits:
            go_on = shlex.join([*program(), "resume", self.thread_id, *shared])
        else:
            agent = [] if self.agent_id == "default" else [self.agent_id]
            words = [*program(), "run", "-t", self.thread_id, *shared, *agent]
            go_on = f'{shlex.join(words)} "…"'
        output.say(f"thread {self.thread_id} (continue: {go_on})", dim=True)


@dataclass(frozen=True, kw_only=True)
class Turns:
    """Runs of an agent in one thread, in one loop, and what a view shows of them."""

    agent: Agent
    thread_id: str
    view: View
    runner: asyncio.Runner
    """One for all turns: clients of models remember their loop."""
    asks: bool
    """Whether a person is asked at once what a run wants to know."""
    tokens: bool = True

    def say(self, text: str) -> None:
        """Put a text to the agent.

        Raises:
            KeyboardInterrupt: The person cancelled the run.
        """
        self._watch(self.agent.astream(text, thread_id=self.thread_id, tokens=self.tokens))

    def go_on(
        self, stopped_because: str | None, answers: dict[str, Any], *, force: bool = False
    ) -> None:
        """Go on where the thread stands; where its last run ended, with a word; raises as `say`."""
        if stopped_because in ("limit", "empty") and not self._stands():
            self.say(GO_ON)
            return
        given = (answers,) if answers else ()
        more: dict[str, Any] = {"tokens": self.tokens, "force": force}
        self._watch(self.agent.astream_resume(self.thread_id, *given, **more))

    def _stands(self) -> bool:
        """Whether a step is left to do, as after a deadline."""
        config: Any = keys.with_configurable(None, **{keys.THREAD_ID: self.thread_id})
        return bool(self.agent.graph.get_state(config).next)

    def _watch(self, events: Any) -> None:
        async def watch(events: Any) -> None:
            async with aclosing(events):
                async for event in events:
                    self.view(event)

        self.view.begin()
        self.runner.run(watch(events))
        result = self.view.result
        while self.asks and result is not None and result.interrupts:
            answers = asking.ask(result.interrupts)
            if not answers:
                return
            self.view.begin()
            again = self.agent.astream_resume(self.thread_id, answers, tokens=self.tokens)
            self.runner.run(watch(again))
            if len(answers) < len(result.interrupts):  # the person has left the others
                return
            result = self.view.result

    def say_why(self) -> None:
        """Say why the last run stopped without an answer, and what can be answered how."""
        result = self.view.result
        if result is None or result.stopped_because == "done":
            return
        output.say(f"stopped: {why(result.stopped_because, self.agent, len(result.interrupts))}")
        if not self.asks:
            show_flags(result.interrupts)

    @property
    def waits(self) -> bool:
        """Whether the last run waits for somebody."""
        result = self.view.result
        return result is not None and result.stopped_because == "interrupted"


def watched(
    agents: Agents, where: Where, work: Callable[[Turns], None], as_json: bool, tokens: bool
) -> int:
    """Do one piece of work in a thread, show it, say how it ended, and return the exit code."""
    for notice in agents.config.notices:
        output.say(f"note: {notice}")
    agent = agents[where.agent_id]
    if agent.spec.model.notice:
        output.say(agent.spec.model.notice)
    say_notices(agent)
    asks = not as_json and asking.can_ask()
    view = view_of(as_json=as_json, tokens=tokens, asks=asks)
    with terminable() as ended, asyncio.Runner() as runner:
        turns = Turns(
            agent=agent,
            thread_id=where.thread_id,
            view=view,
            runner=runner,
            asks=asks,
            tokens=tokens,
        )
        try:
            work(turns)
        except KeyboardInterrupt:
            view.end_line()
            output.say("stopped: cancelled")
            where.point()
            return ended.code
    if view.failed is not None:
        output.report(view.failed)
    if not as_json:
        turns.say_why()
        where.point(waits=turns.waits)
    if view.result is not None and view.result.stopped_because == "cancelled":
        return output.CANCELLED
    return 0 if view.failed is None else output.FAILED


def say_notices(agent: Agent) -> None:
    """Say what a person must know before a run, such as the level at which commands run."""
    for notice in agent.spec.hooks.notices:
        output.say(notice, dim=True)


def view_of(*, as_json: bool, tokens: bool, asks: bool) -> View:
    """Return what shows a run in the form that was asked for."""
    if as_json:
        return JsonLines() if tokens else JsonResult()
    return Live(tokens=tokens, asks=asks)


def show_flags(asked: Any) -> None:
    """Say with which flags of `wick resume` questions are answered."""
    if asked:
        output.say("answer with `wick resume` and these, or without any to be asked:")
        for question in asking.in_order(asked):
            output.say(asking.how_to_answer(question))


def why(reason: str, agent: Agent, questions: int = 0) -> str:
    """Say in a few words why a run stopped."""
    steps = agent.spec.max_iterations
    waits = f"the run waits for {questions} answer{'s' * (questions != 1)}"
    return {
        "limit": f"limit: the agent may make {steps} model call{'s' * (steps != 1)} in one run",
        "empty": "empty: the model gave no answer",
        "interrupted": f"interrupted: {waits if questions else 'the run stands at a breakpoint'}",
    }.get(reason, reason)
