"""A file of agents is read, and what it starts is started only after a person has trusted it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wick_graph.cli import output
from wick_graph.cli.asking import can_ask, line

if TYPE_CHECKING:
    from wick_graph.config import AgentsFile

_YES = frozenset({"y", "yes"})


def trusted_file(config: Path, *, trust: bool = False, looks: bool = False) -> AgentsFile:
    """Read a file of agents that may start what it names.

    At a terminal a person is asked once; elsewhere `wick trust`, WICK_TRUST or `--trust` says so.

    Args:
        config: The file.
        trust: Whether the command line trusts it.
        looks: Whether the agents are only looked at: no program is started then.

    Raises:
        ConfigError: The file is refused, or nobody has trusted what it starts.
    """
    from wick_graph.config import digest_of, is_trusted, load_config
    from wick_graph.config import trust as keep
    from wick_graph.errors import ConfigError

    file = load_config(config)
    if not file.starts or (looks and not file.starts.loads_code):
        return file
    digest = digest_of(file)
    if trust or is_trusted(file, digest):
        return file
    if can_ask() and _agrees(file):
        keep(file, digest)
        return file
    command = shlex.join(["wick", "trust", "--config", str(config)])
    raise ConfigError(
        f"{file.source} starts programs or code that nobody has trusted as they are now "
        f"({file.starts.lines()[0]}); look at it and say {command}, or, where nobody sits, set "
        f"WICK_TRUST={digest}{'' if looks else ' or pass --trust'}"
    )


def load_trusted(config: Path, *, model: str | None = None, trust: bool = False) -> Any:
    """Read a file of agents as `wick_graph.loading.load` does, once it is trusted.

    Raises:
        ConfigError: As `trusted_file`.
    """
    from wick_graph.loading import Agents

    return Agents(trusted_file(config, trust=trust), model=model)


def shown(file: AgentsFile) -> list[str]:
    """Say in one line each what a file starts, and what lies where that may run it."""
    from wick_graph.config.reach import hashed_folders

    folders = [f"with all that lies in {folder}" for folder in hashed_folders(file)]
    return [*file.starts.lines(), *folders]


def _agrees(file: AgentsFile) -> bool:
    output.say(f"{file.source} starts programs or code, with the rights that you have:")
    for said in shown(file):
        output.say(f"  {said}")
    try:
        return line("trust them? [y/N] ").strip().lower() in _YES
    except (EOFError, KeyboardInterrupt):
        return False
