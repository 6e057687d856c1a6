"""`wick graph` and `wick hooks`: an agent's loop, its hook layers, a thread over them."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from wick_graph.cli import output
from wick_graph.cli.recorded import graph_named, picture_alone, picture_with
from wick_graph.cli.select import (
    DEFAULT_FILE,
    AgentArgument,
    known,
    looked_at,
    opened,
    read,
    refuse_graphs,
    take_target,
    target,
    with_threads,
)

if TYPE_CHECKING:
    from wick_graph.hooks import Hooks
    from wick_graph.picture import Picture
    from wick_graph.store import ThreadInfo
    from wick_graph.types import Phase


# --- `wick hooks`: the resolved onion of an agent, phase by phase.


_BASE: Final[dict[Phase, str]] = {"wrap_model_call": "model call", "wrap_tool_call": "tool call"}
"""The innermost layer of the phases that wrap something."""

_NAME: Final = 100
"""Characters of a hook's name that are shown."""


def hooks(
    agent: AgentArgument = None,
    as_json: Annotated[bool, output.AS_JSON] = False,
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Show an agent's hooks, phase by phase.

    Lists the hooks outermost first, with the tools that each adds.
    """
    agent_id, made = looked_at(take_target(agent), config)
    refuse_graphs("hooks", agent_id)
    described = describe(made.spec.hooks)
    if as_json:
        output.print_json({"agent": agent_id, **described})
        return
    output.print_line(f"{agent_id}: {_count(len(described['hooks']))}")
    for line in as_lines(described):
        output.print_line(line)


def describe(compiled: Hooks) -> dict[str, Any]:
    """Return the onion as plain data: hooks with their phases and tools, and each phase's order."""
    from wick_graph.hooks import PHASES

    brought = {name: _tools(source) for name, source in compiled.tool_sources}
    phases = {phase: [layer.hook for layer in compiled.layers(phase)] for phase in PHASES}
    return {
        "hooks": [
            {
                "name": name,
                "phases": [phase for phase, names in phases.items() if name in names],
                "tools": brought.get(name, []),
            }
            for name in compiled.names
        ],
        "phases": phases,
    }


def as_lines(described: dict[str, Any]) -> list[str]:
    """Return the onion as lines: one for each phase, and one for each hook that adds tools."""
    width = max(map(len, described["phases"]))
    lines = []
    for phase, names in described["phases"].items():
        steps = [output.shorten(name, _NAME) for name in names]
        if steps and phase in _BASE:
            steps.append(_BASE[phase])
        lines.append(f"  {phase:<{width}}  {' → '.join(steps) or '-'}")
    for hook in described["hooks"]:
        name, tools = output.shorten(hook["name"], _NAME), hook["tools"]
        if tools is None:
            lines.append(f"  {name} brings tools that depend on the thread")
        elif tools:
            lines.append(f"  {name} brings the tools {', '.join(tools)}")
    return lines


def _tools(source: Any) -> list[str] | None:
    """Name a hook's tools in an empty thread; None if they depend on the thread."""
    try:
        return [getattr(tool, "name", None) or tool.__name__ for tool in source({})]
    except Exception:  # a user's function that needs a thread
        return None


def _count(number: int) -> str:
    if number == 0:
        return "no hooks"
    return "1 hook" if number == 1 else f"{number} hooks, outermost first"


# --- `wick graph`: the loop of an agent with its hook layers, and a thread laid over it.


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
"""Format by file suffix."""

_AGENT: Final[Any] = typer.Argument(
    metavar="[AGENT]",
    help="An agent: an id in the file, or module:name.  [default: `default`, or the only one]",
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
            help="Output format.  [default: by the suffix of --output, else text]",
            show_default=False,
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write to this file.", callback=output.no_dash
        ),
    ] = None,
    thread: Annotated[
        str | None,
        typer.Option("--thread", "-t", metavar="ID", help="Lay this thread's runs over the graph."),
    ] = None,
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Show the graph of an agent.

    Shows its nodes with their hook layers, tools and limits, and the edges between them. Needs no
    model and no key.
    """
    chosen, agent = form or _form_of(file), take_target(agent)
    picture = _picture(agent, config) if thread is None else _run(agent, config, thread)
    text = _written(picture, chosen, in_file=file is not None)
    if file is None:
        output.print_line(text)
    else:
        _save(file, text)


def _form_of(file: Path | None) -> Form:
    """Return the format for a file's suffix.

    Raises:
        ConfigError: The suffix is unknown.
    """
    from wick_graph.errors import ConfigError

    suffix = "" if file is None else file.suffix.lower()
    if suffix not in _SUFFIXES:
        known = ", ".join(end for end in _SUFFIXES if end)
        raise ConfigError(f"{file} has no known suffix; end it in one of {known}, or pass --format")
    return _SUFFIXES[suffix]


def _picture(agent: str | None, config: Path) -> Picture:
    from wick_graph.picture import picture_of

    if (graph := graph_named(agent)) is not None:
        return picture_alone(graph, agent)
    return picture_of(looked_at(agent, config)[1].graph)


def _of_thread(agent: str | None, config: Path, info: ThreadInfo) -> Any:
    """Make the agent to draw under a thread: the named one, else the thread's own.

    Raises:
        ConfigError: No agent has this name, or the configuration lacks the thread's own.
    """
    from wick_graph.errors import ConfigError

    if agent is None and info.agent is not None and target() is None:
        described = read(config)
        if info.agent not in described.agents:
            raise ConfigError(
                f"this thread belongs to the agent {info.agent}, which is not in "
                f"{described.source}; name it as module:name, or name another agent to draw"
            )
    _, made = looked_at(agent, config, recorded=info.agent, with_file=True)
    if info.agent not in (None, made.name):
        output.say(f"this thread belongs to the agent {info.agent}, but {made.name} is drawn")
    return made


def _run(agent: str | None, config: Path, thread_id: str) -> Picture:
    """Draw the agent of a thread, with the data of the thread's checkpoints.

    Raises:
        ConfigError: The agent is not known.
        ThreadNotFoundError: The store has no such thread; nothing is created.
    """
    from wick_graph.engine.guest import lacks_messages
    from wick_graph.errors import ThreadNotFoundError
    from wick_graph.picture import overlay_of, picture_of

    if (graph := graph_named(agent)) is not None:
        try:
            return picture_with(graph, agent, thread_id)
        except ThreadNotFoundError:  # the file may name its store
            if lacks_messages(graph):
                raise
    file = with_threads(config, thread_id)
    with opened(file) as found:
        store, info = known(found, thread_id)
        built = _of_thread(agent, config, info).graph_over(store)
        return picture_of(built).with_run(overlay_of(built, info.thread_id))


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
    """Return whether the terminal's encoding has box characters."""
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
