"""`wick run`, `wick chat`, `wick resume`: run an agent from the terminal."""

from __future__ import annotations

import asyncio
import json
import secrets
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from wick_graph import langgraph_config
from wick_graph.cli import output, watch
from wick_graph.cli.gateway import SESSION, converse
from wick_graph.cli.output import terminable
from wick_graph.cli.recorded import graph_named, json_of, run_to_end
from wick_graph.cli.select import (
    DEFAULT_FILE,
    known,
    load_trusted,
    pick,
    take_target,
    target,
)
from wick_graph.cli.watch import (
    JsonLines,
    JsonResult,
    Live,
    View,
    ask,
    can_ask,
    how_to_answer,
    in_order,
    program,
)
from wick_graph.errors import ConfigError, ThreadNotFoundError

if TYPE_CHECKING:
    from wick_graph.config import AgentsFile
    from wick_graph.engine.agent import Agent
    from wick_graph.loading import Agents
    from wick_graph.store import SqlSaver, ThreadInfo


# --- One run at the command line: its events, its questions, and why it stopped.


GO_ON: Final = "Go on."
"""The message that continues a run which ended without an answer."""


@dataclass(frozen=True, kw_only=True)
class Where:
    """A thread, and the arguments of a command line that continue it."""

    thread_id: str
    agent_id: str
    config: Path
    model: str | None
    kept: bool
    """Whether the thread outlives the process."""
    among_several: bool = False
    """Whether the agent is one of several made in Python."""
    own: bool = False
    """Whether the thread is in a checkpointer of the agent's own, unknown to `wick resume`."""
    context: dict[str, Any] | None = None
    """The context of the runs."""

    def point(self, *, waits: bool = False) -> None:
        """Print the thread and the command that continues it."""
        if not self.kept:
            output.say(f"thread {self.thread_id} (in memory: it ends with this process)", dim=True)
            return
        shared = []
        if self.config != DEFAULT_FILE:
            shared += ["-c", str(self.config)]
        if self.model is not None:
            shared += ["-m", self.model]
        source = target()
        agent = [] if self.agent_id == "default" else [self.agent_id]
        if source:
            agent = [f"{source}#{self.agent_id}" if self.among_several else source]
        if waits and not self.own:
            shared += ["--app", source] if source else []
            go_on = shlex.join([*program(), "resume", self.thread_id, *shared])
        else:
            command = "chat" if waits else "run"
            words = [*program(), command, "-t", self.thread_id, *shared, *agent]
            go_on = shlex.join(words) if waits else f'{shlex.join(words)} "…"'
        output.say(f"thread {self.thread_id} (continue: {go_on})", dim=True)


@dataclass(frozen=True, kw_only=True)
class Turns:
    """Runs of an agent in one thread and one event loop, shown by a view."""

    agent: Agent
    thread_id: str
    view: View
    runner: asyncio.Runner
    """One for all runs: clients of models remember their event loop."""
    asks: bool
    """Whether to ask the person at the terminal as soon as a run has questions."""
    tokens: bool = True
    context: dict[str, Any] | None = None

    def say(self, text: str) -> None:
        """Send a message to the agent.

        Raises:
            KeyboardInterrupt: The person cancelled the run.
        """
        more: dict[str, Any] = {"tokens": self.tokens, "context": self.context}
        self._watch(self.agent.astream(text, thread_id=self.thread_id, **more))

    def go_on(
        self, stopped_because: str | None, answers: dict[str, Any], *, force: bool = False
    ) -> None:
        """Continue the thread; if its last run has ended, with a short message. Raises as `say`."""
        if stopped_because in ("limit", "empty") and not self._has_step_left():
            self.say(GO_ON)
            return
        given = (answers,) if answers else ()
        more: dict[str, Any] = {"tokens": self.tokens, "context": self.context, "force": force}
        self._watch(self.agent.astream_resume(self.thread_id, *given, **more))

    def _has_step_left(self) -> bool:
        """Return whether a step is left, as after a deadline."""
        config: Any = langgraph_config.with_configurable(
            None, **{langgraph_config.THREAD_ID: self.thread_id}
        )
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
            answers = ask(result.interrupts)
            if not answers:
                return
            self.view.begin()
            again = self.agent.astream_resume(
                self.thread_id, answers, context=self.context, tokens=self.tokens
            )
            self.runner.run(watch(again))
            if len(answers) < len(result.interrupts):  # the person left before the others
                return
            result = self.view.result

    def say_why(self) -> None:
        """Print why the last run gave no whole answer, and how to answer its questions."""
        result = self.view.result
        if result is None:
            return
        if result.stopped_because == "done":
            if result.reason:
                output.say(f"note: {result.reason}", dim=True)
            return
        questions = len(result.interrupts)
        output.say(f"stopped: {why(result.stopped_because, result.reason, questions)}")
        if not self.asks:
            show_flags(result.interrupts)

    @property
    def waits(self) -> bool:
        """Whether the last run waits for an answer."""
        result = self.view.result
        return result is not None and result.stopped_because == "interrupted"


def watched(
    agents: Agents, where: Where, work: Callable[[Turns], None], as_json: bool, tokens: bool
) -> int:
    """Run some work in a thread, show it and how it ended, and return the exit code."""
    for notice in agents.config.notices:
        output.say(f"note: {notice}")
    agent = agents[where.agent_id]
    if agent.spec.model.notice:
        output.say(agent.spec.model.notice)
    say_notices(agent)
    asks = not as_json and can_ask()
    view = view_of(as_json=as_json, tokens=tokens, asks=asks)
    with terminable() as ended, asyncio.Runner() as runner:
        turns = Turns(
            agent=agent,
            thread_id=where.thread_id,
            view=view,
            runner=runner,
            asks=asks,
            tokens=tokens,
            context=where.context,
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


def context_of(path: Path | None) -> dict[str, Any] | None:
    """Read the context of a run from a file; a command line would show it to other users.

    Raises:
        ConfigError: The file cannot be read, or is no JSON object.
    """
    if path is None:
        return None
    try:
        made = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"--context: {path} cannot be read: {type(error).__name__}") from None
    if not isinstance(made, dict):
        raise ConfigError(f"--context: {path} holds no JSON object; write the fields as one")
    return made


def say_notices(agent: Agent) -> None:
    """Print what a person must know before a run, such as the sandbox level of commands."""
    for notice in agent.spec.hooks.notices:
        output.say(notice, dim=True)


def view_of(*, as_json: bool, tokens: bool, asks: bool) -> View:
    """Return the view for the requested output format."""
    if as_json:
        return JsonLines() if tokens else JsonResult()
    return Live(tokens=tokens, asks=asks)


def show_flags(asked: Any) -> None:
    """Print the flags of `wick resume` that answer the questions."""
    if asked:
        output.say("answer with `wick resume` and these flags; without flags it asks you:")
        for question in in_order(asked):
            output.say(how_to_answer(question))


def why(because: str, reason: str | None = None, questions: int = 0) -> str:
    """Describe in a few words why a run stopped.

    Args:
        because: As in a result.
        reason: Which limit ended it, if it is known.
        questions: The number of open questions.
    """
    waits = f"the run waits for {questions} answer{'s' * (questions != 1)}"
    return {
        "limit": f"limit: {reason or 'a limit of the agent ended the run'}",
        "guardrail": f"guardrail: {reason or 'a guardrail ended the run'}",
        "empty": "empty: the model gave no answer",
        "interrupted": f"interrupted: {waits if questions else 'the run is at a breakpoint'}",
    }.get(because, because)


# --- `wick run`: send a message to an agent and watch its run.


_STDIN: Final = "-"

_TEXT: Final[Any] = typer.Argument(
    metavar="TEXT",
    help="The message; - reads standard input. Put the agent's id in front of it, unless you mean "
    "the agent `default` or the only one.",
    show_default=False,
)

_THREAD_ID: Final[Any] = typer.Argument(
    metavar="THREAD", help="The thread's id.", show_default=False
)

_RECORD: Final[Any] = typer.Option(
    "--record", help="Record the run of a LangGraph graph, for `wick debug --thread`."
)

THREAD: Final[Any] = typer.Option("--thread", "-t", metavar="ID", help="Continue this thread.")


def run(
    words: Annotated[list[str], _TEXT],
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    thread: Annotated[str | None, THREAD] = None,
    session: Annotated[str | None, SESSION] = None,
    model: Annotated[str | None, output.MODEL] = None,
    as_json: Annotated[bool, output.RESULT_AS_JSON] = False,
    stream: Annotated[bool | None, output.STREAM] = None,
    context: Annotated[Path | None, output.CONTEXT] = None,
    record: Annotated[bool, _RECORD] = False,
    trust: Annotated[bool, output.TRUST] = False,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Send a message to an agent.

    The answer goes to standard output, everything else to standard error. If the run has a
    question, it asks at a terminal; elsewhere it stops, and `wick resume` answers it.

    Exit codes: 0 answered or waiting, 1 the run failed, 2 the command or the configuration is
    wrong, 130 cancelled, 143 ended by SIGTERM.
    """
    from wick_graph.engine.guest import lacks_messages
    from wick_graph.engine.result import checked_thread_id

    thread_id = checked_thread_id(thread)
    named, words = _target(words)
    if session is not None:
        beside = {"an agent": named, "--thread": thread, "--json": as_json}
        said = _read(" ".join(words))
        converse(config, session, said, model=model, trust=trust, beside=beside)
        return
    if record and (graph := graph_named(named)) is not None and lacks_messages(graph):
        _run_any(graph, " ".join(words), thread_id)
        return
    with load_trusted(config, model=model, trust=trust) as agents:
        if target() is None:
            agent_id, text = _split(words, agents.config)
        else:
            agent_id, text = pick(named, agents.config), " ".join(words)
        text = _read(text)
        agents[agent_id]  # a refusal of the file comes before all else
        where = Where(
            thread_id=thread_id,
            agent_id=agent_id,
            config=config,
            model=model,
            kept=lasts(agents, agent_id),
            among_several=len(agents) > 1,
            own=has_own_store(agents, agent_id),
            context=context_of(context),
        )
        tokens = not as_json if stream is None else stream
        with recorded(agents, agent_id) if record else nullcontext():
            code = watched(agents, where, lambda turns: turns.say(text), as_json, tokens)
    raise typer.Exit(code)


@contextmanager
def recorded(agents: Agents, agent_id: str) -> Iterator[None]:
    """Record the runs of a LangGraph graph in the block.

    Raises:
        ConfigError: It is an agent, which keeps a journal by itself.
    """
    if not agents[agent_id].spec.guest:
        raise ConfigError(f"--record is for LangGraph graphs; {agent_id} keeps a journal by itself")
    with _recorded():
        yield


@contextmanager
def _recorded() -> Iterator[None]:
    from wick_graph.debug import record

    block = record()
    try:
        with block as recording:
            yield
    finally:
        recording.close()
        for problem in recording.problems:
            output.say(problem)


def _run_any(graph: Any, text: str, thread_id: str | None) -> None:
    """Run and record a graph without messages, and print what it gives.

    Raises:
        ConfigError: Its input is no JSON.
        RunError: It failed.
    """
    from wick_graph.errors import RunError
    from wick_graph.journal.tracebacks import message_of

    given = json_of(text, "this graph has no channel messages, and its input")
    name = thread_id or f"rec_{secrets.token_hex(6)}"
    output.say(f"thread {name}", dim=True)
    with _recorded():
        try:
            made = run_to_end(graph, given, name)
        except Exception as error:  # whatever the graph's code raises
            said = f"{type(error).__name__}: {message_of(error)}"
            raise RunError(f"the graph {graph.get_name()} failed: {said}") from error
    output.print_json(made)


def has_own_store(agents: Agents, agent_id: str) -> bool:
    """Return whether an agent brings its store, instead of naming one."""
    given = agents.given.get(agent_id)
    return given is not None and not isinstance(given.given_store, str | None)


def lasts(agents: Agents, agent_id: str) -> bool:
    """Return whether an agent's threads outlive the process."""
    from langgraph.checkpoint.memory import InMemorySaver

    from wick_graph.store.saver import dialect_of

    if has_own_store(agents, agent_id):
        own = agents.given[agent_id].given_store
        return own is not False and not isinstance(own, InMemorySaver)
    return dialect_of(agents.config.store_url).lasts


def _target(words: list[str]) -> tuple[str | None, list[str]]:
    """Take a target before the text, such as `app:agent`; a text alone is never a target."""
    if len(words) != 2:  # more are a text that lacks its quotes
        return None, words
    agent = take_target(words[0])
    return (None, words) if target() is None else (agent, words[1:])


def _split(words: list[str], file: AgentsFile) -> tuple[str, str]:
    """Separate the agent's id from the text."""
    if len(words) > 1:
        if words[0] not in file.agents:
            known = ", ".join(file.agents)
            raise ConfigError(
                f"{file.source}: no agent {words[0]!r}, only {known}; "
                "put a text of several words in quotes"
            )
        return words[0], " ".join(words[1:])
    if words[0] in file.agents:
        raise ConfigError(
            f"{words[0]} is an agent, but there is no text for it; "
            f'write {shlex.join([*program(), "run", words[0]])} "…"'
        )
    return pick(None, file), words[0]


def _read(text: str) -> str:
    """Return the text; read `-` from standard input.

    Raises:
        MessageError: It is empty or not Unicode text.
    """
    from wick_graph.errors import MessageError
    from wick_graph.messages.validation import read_input

    text = output.unicode(text)
    if text == _STDIN:
        try:
            text = sys.stdin.buffer.read().decode("utf-8-sig")
        except (UnicodeDecodeError, AttributeError, OSError):
            raise MessageError("standard input is not UTF-8 text; send text") from None
    if not text.strip():
        raise MessageError("the text is empty; say what the agent should do")
    read_input(text)
    return text


# --- `wick resume`: continue a thread from where it stopped.


_APPROVE: Final[Any] = typer.Option("--approve", metavar="ID", help="Approve this tool call.")

_REJECT: Final[Any] = typer.Option(
    "--reject", metavar="ID[=WHY]", help="Reject this tool call; the model sees WHY."
)

_ANSWER: Final[Any] = typer.Option(
    "--answer", metavar="ID=TEXT", help="Answer a question, or replace a tool call's result."
)

_EDIT: Final[Any] = typer.Option(
    "--edit", metavar="ID=JSON", help="Approve this tool call with these arguments."
)

_ALL: Final[Any] = typer.Option("--all-approve", help="Approve every waiting tool call.")


def resume(
    thread_id: Annotated[str, _THREAD_ID],
    approve: Annotated[list[str] | None, _APPROVE] = None,
    reject: Annotated[list[str] | None, _REJECT] = None,
    answer: Annotated[list[str] | None, _ANSWER] = None,
    edit: Annotated[list[str] | None, _EDIT] = None,
    all_approve: Annotated[bool, _ALL] = False,
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    app: Annotated[str | None, output.APP] = None,
    model: Annotated[str | None, output.MODEL] = None,
    as_json: Annotated[bool, output.RESULT_AS_JSON] = False,
    stream: Annotated[bool | None, output.STREAM] = None,
    context: Annotated[Path | None, output.CONTEXT] = None,
    trust: Annotated[bool, output.TRUST] = False,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Continue a thread from where it stopped.

    Works after a crash, a failure or a cancelled run. Open questions are asked at a terminal, or
    answered with the options below; the first characters of an ID suffice.

    Exit codes: 0 answered or waiting, 1 the run failed, 2 the command or the configuration is
    wrong, 130 cancelled, 143 ended by SIGTERM.
    """
    flags: dict[str, Any] = {"approve": approve, "reject": reject, "answer": answer, "edit": edit}
    wanted = Wanted(thread_id, config, model, as_json, stream, trust, context)
    _go_on(wanted, lambda asked: watch.from_flags(asked, **flags, all_approve=all_approve))


def retry(
    thread_id: Annotated[str, _THREAD_ID],
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    model: Annotated[str | None, output.MODEL] = None,
    as_json: Annotated[bool, output.RESULT_AS_JSON] = False,
    stream: Annotated[bool | None, output.STREAM] = None,
    context: Annotated[Path | None, output.CONTEXT] = None,
    trust: Annotated[bool, output.TRUST] = False,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Retry the last step of a poisoned thread.

    A thread is poisoned after its runs have crashed the process too often. This clears the mark.

    Exit codes: as for `wick resume`.
    """
    wanted = Wanted(thread_id, config, model, as_json, stream, trust, context)
    _go_on(wanted, lambda _: {}, force=True)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The options of both commands."""

    thread_id: str
    config: Path
    model: str | None
    as_json: bool
    stream: bool | None
    trust: bool
    context: Path | None = None


def _go_on(wanted: Wanted, answered: Callable[..., dict[str, Any]], *, force: bool = False) -> None:
    from wick_graph.store.saver import dialect_of

    with load_trusted(wanted.config, model=wanted.model, trust=wanted.trust) as agents:
        there = dialect_of(agents.config.store_url).exists()  # never create a store
        store, info = _known(agents, agents.store if there else None, wanted.thread_id)
        asked = watch.in_order(_waiting(store, info.thread_id))
        answers = answered(asked)
        where = Where(
            thread_id=info.thread_id,
            agent_id=_agent_of(info, agents),
            config=wanted.config,
            model=wanted.model,
            kept=True,
            among_several=len(agents) > 1,
            context=context_of(wanted.context),
        )
        tokens = not wanted.as_json if wanted.stream is None else wanted.stream
        code = _resume(agents, where, info, asked, answers, wanted.as_json, tokens, force=force)
    raise typer.Exit(code)


def _known(agents: Agents, store: SqlSaver | None, thread_id: str) -> tuple[SqlSaver, ThreadInfo]:
    try:
        return known(store, thread_id)
    except ThreadNotFoundError:
        if not any(has_own_store(agents, agent_id) for agent_id in agents):
            raise
    raise ConfigError(
        f"{target()} keeps its threads in its own checkpointer, where wick resume cannot look "
        f"for {thread_id}; continue it with wick chat -t {thread_id}"
    )


def _resume(
    agents: Agents,
    where: Where,
    info: ThreadInfo,
    asked: list[Any],
    answers: dict[str, Any],
    as_json: bool,
    tokens: bool,
    *,
    force: bool = False,
) -> int:
    """Print why the thread stopped; continue it, or list its questions. Return the exit code."""
    if not as_json:
        goes_on = answers or not (asked or info.stopped_because == "done")
        _say_why(info, len(asked), "resuming; it had " if goes_on else "")
    if asked and not answers and not as_json and watch.can_ask():
        answers = watch.ask(asked)
    if info.status == "waiting" and asked and not answers:
        _leave(where, info, asked, as_json)
        return 0
    if info.stopped_because == "done" and not as_json:
        output.say("there is nothing to resume; send a new message")
        where.point()
        return 0

    def work(turns: Turns) -> None:
        turns.go_on(info.stopped_because, answers, force=force)

    return watched(agents, where, work, as_json, tokens)


def _waiting(store: SqlSaver, thread_id: str) -> list[Any]:
    from wick_graph import langgraph_config
    from wick_graph.engine.answers import waiting

    config: Any = langgraph_config.with_configurable(
        None, **{langgraph_config.THREAD_ID: thread_id}
    )
    return list(waiting(store.get_tuple(config)))


def _agent_of(info: ThreadInfo, agents: Agents) -> str:

    if info.agent not in agents.config.agents:
        raise ConfigError(
            f"{agents.config.source}: thread {info.thread_id} belongs to the agent {info.agent}, "
            f"which the file lacks; it has {', '.join(agents.config.agents)}"
        )
    return info.agent or ""


def _say_why(info: ThreadInfo, questions: int, first: str) -> None:
    """Print why a thread stopped, as far as is known, after some words for a run that goes on."""
    if info.status == "running":
        output.say("resuming; its last run has no end: its process died, or is still running")
        return
    if info.status == "failed":
        text = f"failed: {info.last_error or 'no reason recorded'}"
    else:
        reason = "interrupted" if info.status == "waiting" else info.stopped_because or "done"
        text = why(reason, info.last_error, questions)
    output.say(f"{first}stopped: {text}")


def _leave(where: Where, info: ThreadInfo, asked: list[Any], as_json: bool) -> None:
    """Show the open questions."""
    if as_json:
        shown = [{"id": question.id, "value": question.value} for question in asked]
        facts = {"thread_id": info.thread_id, "stopped_because": "interrupted"}
        output.print_json({**facts, "interrupts": shown})
        return
    for question in asked:
        for line in watch.describe(question.id, question.value):
            output.say(line)
    show_flags(asked)
    where.point(waits=True)
