"""`wick validate`, `wick schema`, `wick trust`: check a configuration and trust it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from wick_graph.cli import output
from wick_graph.cli.select import DEFAULT_FILE, shown
from wick_graph.errors import WickError

if TYPE_CHECKING:
    from wick_graph.config import AgentsFile


# --- `wick schema`: the JSON schema of agents.yaml, for editors.


def schema(debug: Annotated[bool, output.DEBUG] = False) -> None:
    """Print the JSON schema of agents.yaml.

    Editors use it to complete and check the file. Make this the first line of the file:
    `# yaml-language-server: $schema=PATH`.
    """
    from wick_graph.config.schema import json_schema
    from wick_graph.tools.builtin_tools import BUILTINS

    output.settle()
    output.print_json(json_schema(BUILTINS))


# --- `wick trust`: allow what a configuration file starts.


_SHOW: Final[Any] = typer.Option("--show", help="Only show what would be trusted, and its hash.")


def trust(
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    show: Annotated[bool, _SHOW] = False,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Trust the programs and the code that a configuration file starts.

    The trust covers exactly these sections, and the folders from which their commands may run
    code. It is stored for your user, outside every project. WICK_TRUST=HASH trusts the file for
    one process.
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


# --- `wick validate`: check a configuration; what it names is loaded only if it is trusted.


def validate(
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    as_json: Annotated[bool, output.AS_JSON] = False,
    trust: Annotated[bool, output.TRUST] = False,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Check a configuration file, as a run does.

    Reports every mistake with its file, line and key path: also a missing package or key, and a
    folder in which commands cannot run. Starts and stores nothing.

    Exit codes: 0 the file is valid, 2 it is not.
    """
    from wick_graph.config import digest_of, is_trusted, load_config
    from wick_graph.loading import check_agents

    output.settle()
    try:
        file = load_config(config)
        known = trust or not file.starts.loads_code or is_trusted(file, digest_of(file))
        check_agents(file, loads_code=known)
    except WickError as error:
        if as_json:
            output.print_json({"ok": False, "errors": str(error).splitlines()})
        else:
            output.report(error)
        raise typer.Exit(output.REFUSED) from None
    if not known:
        output.say("note: the code that it names runs, and is checked, once the file is trusted")
    if as_json:
        output.print_json({"ok": True, **_summary(file)})
        return
    for line in _lines(file):
        output.print_line(line)


def _summary(file: AgentsFile) -> dict[str, Any]:
    from wick_graph.config import describe

    return {
        "agents": list(describe(file)),
        "notices": list(file.notices),
    }


def _lines(file: AgentsFile) -> list[str]:
    count = f"{len(file.agents)} agent{'s' * (len(file.agents) != 1)}"
    lines = [f"{file.source}: ok, {count}: {', '.join(file.agents)}"]
    return [*lines, *(f"note: {notice}" for notice in file.notices)]
