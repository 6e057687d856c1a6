"""`wick trust`: say that what a file of agents starts may be started."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import typer

from wick_graph.cli import output
from wick_graph.cli.agents import DEFAULT_FILE
from wick_graph.cli.trusting import shown

_SHOW: Final[Any] = typer.Option("--show", help="Only show what would be trusted, and its hash.")


def trust(
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    show: Annotated[bool, _SHOW] = False,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Trust what a file of agents starts: the programs and the code that it names.

    The trust holds for exactly these sections, and for the folders that their commands may run
    something of. It is kept for this user, outside of every project. WICK_TRUST=HASH says the same
    for one process.
    """
    from wick_graph.config import digest_of, load_config
    from wick_graph.config import trust as keep

    file = load_config(config)
    digest = digest_of(file)
    if not digest:
        output.say(f"{file.source} starts no program and no code; there is nothing to trust")
        return
    for said in shown(file):
        output.say(f"  {said}")
    if not show:
        output.say(f"trusted; kept in {keep(file, digest)}")
    output.print_line(digest)
