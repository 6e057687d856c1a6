"""`wick graph`: the loop of an agent, with the hook layers in its nodes."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from wick_graph.cli import output
from wick_graph.cli.agents import DEFAULT_FILE, AgentArgument, pick


class Format(StrEnum):
    """How the graph is written."""

    TEXT = "text"
    MERMAID = "mermaid"
    JSON = "json"
    DOT = "dot"


def graph(
    agent: AgentArgument = None,
    form: Annotated[Format, typer.Option("--format", "-f", help="How to write it.")] = Format.TEXT,
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Show an agent's graph: four nodes, the router's two labelled edges, and the hook layers.

    Needs no model and no key.
    """
    from wick_graph.cli import picture
    from wick_graph.config import load_config
    from wick_graph.loading import outline

    file = load_config(config)
    drawn = picture.picture_of(outline(pick(agent, file), file))
    if form is Format.JSON:
        output.print_json(drawn.to_dict())
        return
    write = {
        Format.TEXT: picture.as_text,
        Format.MERMAID: picture.as_mermaid,
        Format.DOT: picture.as_dot,
    }[form]
    output.print_line(write(drawn))
