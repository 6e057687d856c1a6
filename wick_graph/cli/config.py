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
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Check a configuration file.

    Reports every mistake with its file, line and key path.

    Exit codes: 0 the file is valid, 2 it is not.
    """
    from wick_graph.config import load_config

    try:
        file = load_config(config)
        found = _problems(file)
    except WickError as error:
        if not as_json:
            raise
        found = str(error).splitlines()
    if found:
        _refuse(found, as_json)
    if as_json:
        output.print_json({"ok": True, **_summary(file)})
        return
    for line in _lines(file):
        output.print_line(line)


def _problems(file: AgentsFile) -> list[str]:
    """Find mistakes in names: of tools, of models, of code, and the store's address."""
    from wick_graph.config import held_in
    from wick_graph.models.spec import parse
    from wick_graph.store.encryption import check_keys
    from wick_graph.store.saver import dialect_of
    from wick_graph.tools.builtin_tools import BUILTINS, SEARCH_NEEDED

    found: list[str] = []
    try:
        file.check_tools(BUILTINS)
    except WickError as error:
        found += str(error).splitlines()
    for agent_id, agent in file.agents.items():
        if "internet_search" in agent.tools and agent.search is None:
            found.append(str(file.error(("agents", agent_id, "tools"), SEARCH_NEEDED)))
        try:
            held_in(agent, file)
        except WickError as error:
            found.append(str(error))
        try:
            parse(agent.model_spec())
        except WickError as error:
            found.append(str(file.error(("agents", agent_id, "model"), str(error))))
    try:
        found += _code_problems(file) if any(file.code()) else []
    except WickError as error:
        found += str(error).splitlines()
    try:
        dialect_of(file.store_url)
    except WickError as error:
        found.append(str(file.error(("store",), str(error))))
    try:
        check_keys(file.keys_source)
    except WickError as error:
        found.append(str(file.error(("store_keys",), str(error))))
    return list(dict.fromkeys(found))


def _code_problems(file: AgentsFile) -> list[str]:
    """Load the code that a trusted file names; read the source of any other."""
    from wick_graph.config import digest_of, is_trusted
    from wick_graph.loading import code_problems

    trusted = is_trusted(file, digest_of(file))
    return [*map(str, code_problems(file, trusted=trusted))]


def _refuse(found: list[str], as_json: bool) -> None:
    if as_json:
        output.print_json({"ok": False, "errors": found})
    else:
        output.complain("\n".join(found))
    raise typer.Exit(output.REFUSED)


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
