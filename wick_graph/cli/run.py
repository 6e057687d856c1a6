"""`wick run`: put a text to an agent and watch it answer."""

from __future__ import annotations

import asyncio
import shlex
import sys
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from wick_graph.cli import output
from wick_graph.cli.agents import DEFAULT_FILE, pick
from wick_graph.cli.live import JsonLines, JsonResult, Live, View, program

if TYPE_CHECKING:
    from wick_graph.agent import Agent
    from wick_graph.config import AgentsFile
    from wick_graph.loading import Agents

_STDIN: Final = "-"

_TEXT: Final[Any] = typer.Argument(
    metavar="TEXT",
    help="What to say; - reads standard input. Before it the agent's id, which may be left out "
    "for the agent default, or for the only one.",
    show_default=False,
)
_THREAD: Final[Any] = typer.Option("--thread", "-t", metavar="ID", help="Go on in this thread.")
_MODEL: Final[Any] = typer.Option(
    "--model", "-m", metavar="SPEC", help="Use this model: provider:model."
)
_JSON: Final[Any] = typer.Option(
    "--json", help="Print the result as JSON; with --stream, each event a line."
)
_STREAM: Final[Any] = typer.Option(
    "--stream/--no-stream", help="Show the answer as it comes (unless --json is given)."
)


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """What the command line says, checked."""

    agent_id: str
    text: str
    thread_id: str
    model: str | None
    config: Path
    as_json: bool
    stream: bool
    kept: bool
    """Whether the thread outlives the process."""


def run(
    words: Annotated[list[str], _TEXT],
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    thread: Annotated[str | None, _THREAD] = None,
    model: Annotated[str | None, _MODEL] = None,
    as_json: Annotated[bool, _JSON] = False,
    stream: Annotated[bool | None, _STREAM] = None,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Put a text to an agent.

    The answer goes to standard output, all else to standard error.

    Exit codes: 0 answered, 1 the run failed, 2 the command or the configuration is wrong,
    130 cancelled.
    """
    from wick_graph.loading import load
    from wick_graph.result import checked_thread_id
    from wick_graph.store.sqlite import path_of

    thread_id = checked_thread_id(thread)
    with load(config, model=model) as agents:
        agent_id, text = _split(words, agents.config)
        asked = _Asked(
            agent_id=agent_id,
            text=_read(text),
            thread_id=thread_id,
            model=model,
            config=config,
            as_json=as_json,
            stream=not as_json if stream is None else stream,
            kept=path_of(agents.config.store_url) is not None,
        )
        code = _run(agents, asked)
    raise typer.Exit(code)


def _split(words: list[str], file: AgentsFile) -> tuple[str, str]:
    """Tell the agent's id from the text."""
    from wick_graph.errors import ConfigError

    if len(words) > 1:
        if words[0] not in file.agents:
            known = ", ".join(file.agents)
            raise ConfigError(
                f"{file.source}: no agent {words[0]!r}, it has {known}; "
                "a text of several words stands in quotes"
            )
        return words[0], " ".join(words[1:])
    if words[0] in file.agents:
        raise ConfigError(
            f"{words[0]} is an agent, and there is no text for it; "
            f'write {shlex.join([*program(), "run", words[0]])} "…"'
        )
    return pick(None, file), words[0]


def _read(text: str) -> str:
    """Return the text, read from standard input if it says so, or refuse it.

    Raises:
        MessageError: It is empty or no Unicode text.
    """
    from wick_graph.errors import MessageError
    from wick_graph.result import read_input

    if text == _STDIN:
        try:
            text = sys.stdin.buffer.read().decode("utf-8-sig")
        except (UnicodeDecodeError, AttributeError, OSError):
            raise MessageError("standard input is no UTF-8 text; send a text") from None
    if not text.strip():
        raise MessageError("the text is empty; say what the agent is to do")
    read_input(text)
    return text


def _run(agents: Agents, asked: _Asked) -> int:
    for notice in agents.config.notices:
        output.say(f"note: {notice}")
    agent = agents[asked.agent_id]
    if agent.spec.model.notice:
        output.say(agent.spec.model.notice)
    view = _view(asked)
    try:
        asyncio.run(_watch(agent, asked, view))
    except KeyboardInterrupt:
        view.end_line()
        output.say("stopped: cancelled")
        _point_to_thread(asked)
        return output.CANCELLED
    if view.failed is not None:
        output.report(view.failed)
    if not asked.as_json:
        if view.result is not None and view.result.stopped_because != "done":
            output.say(f"stopped: {_why(view.result.stopped_because, agent)}")
        _point_to_thread(asked)
    return 0 if view.failed is None else output.FAILED


async def _watch(agent: Agent, asked: _Asked, view: View) -> None:
    events: Any = agent.astream(asked.text, thread_id=asked.thread_id, tokens=asked.stream)
    async with aclosing(events):
        async for event in events:
            view(event)


def _view(asked: _Asked) -> View:
    if asked.as_json:
        return JsonLines() if asked.stream else JsonResult()
    return Live(tokens=asked.stream)


def _why(reason: str, agent: Agent) -> str:
    steps = agent.spec.max_iterations
    return {
        "limit": f"limit: the agent may make {steps} model call{'s' * (steps != 1)} in one run",
        "empty": "empty: the model gave no answer",
        "interrupted": "interrupted: the run waits; a new text goes on without an answer",
    }.get(reason, reason)


def _point_to_thread(asked: _Asked) -> None:
    """Say which thread it was, and the command that goes on in it."""
    if not asked.kept:
        output.say(f"thread {asked.thread_id} (in memory: it ends here)", dim=True)
        return
    words = [*program(), "run", "-t", asked.thread_id]
    if asked.config != DEFAULT_FILE:
        words += ["-c", str(asked.config)]
    if asked.model is not None:
        words += ["-m", asked.model]
    if asked.agent_id != "default":
        words.append(asked.agent_id)
    output.say(f'thread {asked.thread_id} (continue: {shlex.join(words)} "…")', dim=True)
