"""Which agent of which file a command is about."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

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


def from_code(name: str) -> Any:
    """Import an agent, or call the function that makes one: `module:name`.

    Raises:
        ConfigError: There is none of this name.
    """
    import importlib
    import os

    from wick_graph.agent import Agent
    from wick_graph.errors import ConfigError

    module, _, attribute = name.partition(":")
    sys.path.insert(0, os.getcwd())  # noqa: PTH109  # as text, as the other entries are
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"there is no {name}: {error}; name an agent as module:name") from error
    finally:
        sys.path.remove(os.getcwd())  # noqa: PTH109  # as above
    made = found() if callable(found) else found
    if not isinstance(made, Agent):
        raise ConfigError(f"{name} is no Agent, but {type(made).__name__}; name an agent")
    return made
