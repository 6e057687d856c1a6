"""`wick graph`: the loop of an agent with its hook layers, and a thread laid over it."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from wick_graph.cli import output
from wick_graph.cli.agents import DEFAULT_FILE, from_code, pick
from wick_graph.cli.stores import known, opened
from wick_graph.cli.trusting import trusted_file

if TYPE_CHECKING:
    from wick_graph.config import AgentsFile
    from wick_graph.picture import Picture
    from wick_graph.store import ThreadInfo

Form = Literal["text", "svg", "mermaid", "dot", "json", "html"]
_SUFFIXES: Final[dict[str, Form]] = {
    ".svg": "svg",
    ".mmd": "mermaid",
    ".mermaid": "mermaid",
    ".dot": "dot",
    ".gv": "dot",
    ".json": "json",
    ".html": "html",
    ".htm": "html",
    ".txt": "text",
    "": "text",
}
"""The form that a file's name asks for."""
_AGENT: Final[Any] = typer.Argument(
    metavar="[AGENT]",
    help="An agent (of the file, or module:name): default, or the only one.",
    show_default=False,
)
_DRAWN: Final = "┌│▼"


def graph(
    agent: Annotated[str | None, _AGENT] = None,
    form: Annotated[
        Form | None,
        typer.Option(
            "--format",
            "-f",
            help="How to write it: text, or what the name after --output ends in.",
            show_default=False,
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write to this file."),
    ] = None,
    thread: Annotated[
        str | None,
        typer.Option("--thread", "-t", metavar="ID", help="Lay this thread's runs over it."),
    ] = None,
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Show the graph of an agent.

    Its nodes with the hook layers, tools and limits in them, and the ways between. Needs no model
    and no key.
    """
    chosen = form or _form_of(file)
    picture = _picture(agent, config) if thread is None else _run(agent, config, thread)
    text = _written(picture, chosen, in_file=file is not None)
    if file is None:
        output.print_line(text)
    else:
        _save(file, text)


def _form_of(file: Path | None) -> Form:
    """Say which form a file's name asks for.

    Raises:
        ConfigError: None that is known.
    """
    from wick_graph.errors import ConfigError

    suffix = "" if file is None else file.suffix.lower()
    if suffix not in _SUFFIXES:
        known = ", ".join(end for end in _SUFFIXES if end)
        raise ConfigError(f"{file} names no form; end it in one of {known}, or give --format")
    return _SUFFIXES[suffix]


def _picture(agent: str | None, config: Path) -> Picture:
    from wick_graph.loading import outline
    from wick_graph.picture import picture_of

    if agent is not None and ":" in agent:
        return picture_of(from_code(agent).graph)
    file = trusted_file(config, looks=True)
    return picture_of(outline(pick(agent, file), file).graph)


def _of_thread(agent: str | None, file: AgentsFile, info: ThreadInfo) -> Any:
    """Make the agent that is drawn under a thread: the named one, else the thread's own.

    Raises:
        ConfigError: There is none of this name, or the thread's own is not known here.
    """
    from wick_graph.errors import ConfigError
    from wick_graph.loading import outline

    if agent is None and info.agent is not None and info.agent not in file.agents:
        raise ConfigError(
            f"this thread belongs to the agent {info.agent}, which is not in {file.source}; "
            "name it as module:name, or name another one to be drawn"
        )
    if agent is not None and ":" in agent:
        made = from_code(agent)
    else:
        made = outline(pick(agent or info.agent, file), file)
    if info.agent not in (None, made.name):
        output.say(f"this thread belongs to the agent {info.agent}, and {made.name} is drawn")
    return made


def _run(agent: str | None, config: Path, thread_id: str) -> Picture:
    """Draw the agent of a thread, with what the thread's checkpoints tell.

    Raises:
        ConfigError: The agent is not known.
        ThreadNotFoundError: The store has no such thread; nothing is created.
    """
    from wick_graph.graph import build_graph
    from wick_graph.picture import overlay_of, picture_of

    file = trusted_file(config, looks=True)
    with opened(file) as found:
        store, info = known(found, thread_id)
        built = build_graph(_of_thread(agent, file, info).spec, store)
        return picture_of(built).with_run(overlay_of(built, thread_id))


def _written(picture: Picture, form: Form, *, in_file: bool) -> str:
    from wick_graph import picture as forms

    if form == "text":
        terminal = output.is_terminal(sys.stdout) and not in_file
        width = shutil.get_terminal_size().columns if terminal else None
        return forms.as_text(picture, ascii_only=terminal and not _draws_boxes(), width=width)
    write = {
        "svg": forms.as_svg,
        "mermaid": forms.as_mermaid,
        "dot": forms.as_dot,
        "json": forms.as_json,
        "html": forms.as_html,
    }
    return write[form](picture).rstrip("\n")


def _draws_boxes() -> bool:
    """Say whether the terminal's encoding has box characters."""
    try:
        _DRAWN.encode(sys.stdout.encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return False
    return True


def _save(file: Path, text: str) -> None:
    """Write the file.

    Raises:
        ConfigError: It cannot be written.
    """
    from wick_graph.errors import ConfigError

    try:
        file.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise ConfigError(f"{file} cannot be written: {why}; name another file") from error
