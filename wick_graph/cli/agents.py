"""Which agent of which file a command is about."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    from wick_graph.config import AgentsFile

DEFAULT_FILE: Final = Path("agents.yaml")
AgentArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[AGENT]", help="The agent's id: default, or the only one.", show_default=False
    ),
]


def pick(agent_id: str | None, file: AgentsFile) -> str:
    """Return the agent that is meant: the named one, `default`, or the only one.

    Raises:
        ConfigError: There is no such agent, or none is named and there are several.
    """
    from wick_graph.errors import ConfigError

    if agent_id is not None:
        file.agent(agent_id)
        return agent_id
    if "default" not in file.agents and len(file.agents) > 1:
        known = ", ".join(file.agents)
        raise ConfigError(f"{file.source}: no agent is called default; name one of {known}")
    return file.default_id
