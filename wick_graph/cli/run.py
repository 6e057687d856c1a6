"""`wick run`: put a text to an agent and watch it answer."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from wick_graph.cli import output
from wick_graph.cli.agents import DEFAULT_FILE, pick
from wick_graph.cli.live import program
from wick_graph.cli.trusting import load_trusted
from wick_graph.cli.turns import Where, watched

if TYPE_CHECKING:
    from wick_graph.config import AgentsFile

_STDIN: Final = "-"

_TEXT: Final[Any] = typer.Argument(
    metavar="TEXT",
    help="What to say; - reads standard input. Before it the agent's id, which may be left out "
    "for the agent default, or for the only one.",
    show_default=False,
)
_THREAD: Final[Any] = typer.Option("--thread", "-t", metavar="ID", help="Go on in this thread.")


def run(
    words: Annotated[list[str], _TEXT],
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    thread: Annotated[str | None, _THREAD] = None,
    model: Annotated[str | None, output.MODEL] = None,
    as_json: Annotated[bool, output.RESULT_AS_JSON] = False,
    stream: Annotated[bool | None, output.STREAM] = None,
    trust: Annotated[bool, output.TRUST] = False,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Put a text to an agent.

    The answer goes to standard output, all else to standard error. What the run wants to know
    it asks at a terminal; elsewhere it waits, and `wick resume` brings the answer.

    Exit codes: 0 answered or waiting, 1 the run failed, 2 the command or the configuration is
    wrong, 130 cancelled, 143 ended by SIGTERM.
    """
    from wick_graph.result import checked_thread_id
    from wick_graph.store.database.opening import dialect_of

    thread_id = checked_thread_id(thread)
    with load_trusted(config, model=model, trust=trust) as agents:
        agent_id, text = _split(words, agents.config)
        text = _read(text)
        kept = dialect_of(agents.config.store_url).lasts
        where = Where(thread_id=thread_id, agent_id=agent_id, config=config, model=model, kept=kept)
        tokens = not as_json if stream is None else stream
        code = watched(agents, where, lambda turns: turns.say(text), as_json, tokens)
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
    from wick_graph.messages.inputs import read_input

    if text == _STDIN:
        try:
            text = sys.stdin.buffer.read().decode("utf-8-sig")
        except (UnicodeDecodeError, AttributeError, OSError):
            raise MessageError("standard input is no UTF-8 text; send a text") from None
    if not text.strip():
        raise MessageError("the text is empty; say what the agent is to do")
    read_input(text)
    return text
