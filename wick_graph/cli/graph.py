"""`wick graph`: the loop of an agent, with the hook layers in its nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from wick_graph.cli import output
from wick_graph.cli.agents import DEFAULT_FILE, AgentArgument, pick


def graph(
    agent: AgentArgument = None,
    form: Annotated[
        Literal["text", "mermaid", "json", "dot"],
        typer.Option("--format", "-f", help="How to write it."),
    ] = "text",
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Show the graph of an agent.

    Its four nodes with the hook layers in them, and the router's two labelled edges. Needs no
    model and no key.
    """
    from wick_graph.cli import picture
    from wick_graph.config import load_config
    from wick_graph.loading import outline

    file = load_config(config)
    drawn = picture.picture_of(outline(pick(agent, file), file))
    if form == "json":
        output.print_json(drawn.to_dict())
        return
    write = {"text": picture.as_text, "mermaid": picture.as_mermaid, "dot": picture.as_dot}
    output.print_line(write[form](drawn))
