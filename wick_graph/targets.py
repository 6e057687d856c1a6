"""Agents made in Python, found by name: `module:name` or `path/file.py:name`."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from wick_graph.config import AgentsFile
from wick_graph.config.code import MODULE, called, imported, named, one_only
from wick_graph.engine.agent import Agent
from wick_graph.errors import ConfigError
from wick_graph.loading import Agents
from wick_graph.store import SqlSaver

_TARGET: Final = re.compile(r"(?P<place>[^\s:#]+):(?P<name>[^\W\d]\w*)(?:#(?P<agent_id>\S+))?")


@dataclass(frozen=True, slots=True)
class Target:
    """A name in a module, such as `app:agents#billing`."""

    place: str
    """A module, or a file that ends in `.py`."""
    name: str
    agent_id: str | None = None
    """Which agent of a mapping."""

    @property
    def source(self) -> str:
        """The target without the agent."""
        return f"{self.place}:{self.name}"


def parse_target(text: str) -> Target | None:
    """Read a target; return None if the text is none."""
    found = _TARGET.fullmatch(text)
    if found is None or not (found["place"].endswith(".py") or MODULE.fullmatch(found["place"])):
        return None
    return Target(found["place"], found["name"], found["agent_id"])


def load_target(source: str, *, model: str | None = None) -> Agents:
    """Import the agents that a target names: an agent, a mapping of agents, or a factory of either.

    An agent without a store of its own keeps its threads in `checkpoints/wick.db`.

    Args:
        source: `module:name`, or `path/file.py:name`.
        model: A model to use instead of those of the agents.

    Raises:
        ConfigError: The target cannot be imported, or names something else.
    """
    target = parse_target(source)
    if target is None:
        raise ConfigError(f"{source!r:.80} is not a target; write module:name or file.py:name")
    module = load_module(target.place)
    found = _made(named(module, target.name, target.place), target.source)
    return agents_of(found, source=target.source, model=model)


def agents_of(found: Any, *, source: str, model: str | None = None) -> Agents:
    """Collect agents made in Python as the agents of a file are.

    Args:
        found: An agent, or a mapping of ids to agents.
        source: Their name in errors.
        model: A model to use instead of those of the agents.

    Raises:
        ConfigError: It is neither, an id is refused, or the agents have different stores.
    """
    if isinstance(found, Agents):
        if model is not None:
            found.model = model
        return found
    given = {found.name: found} if isinstance(found, Agent) else found
    if not isinstance(given, Mapping) or not given:
        raise ConfigError(f"{source} is {_kind(found)}; name an agent, or a mapping of agents")
    for agent_id, agent in given.items():
        if not isinstance(agent, Agent):
            raise ConfigError(f"{source}: {agent_id!r:.80} is {_kind(agent)}, not an agent")
        if isinstance(agent.given_store, SqlSaver):
            raise ConfigError(
                f"{source}: the agent {agent_id} has an open store; pass the URL of the database "
                "as store=, or leave it out"
            )
    stores = {agent.given_store for agent in given.values() if isinstance(agent.given_store, str)}
    if len(stores) > 1:
        raise ConfigError(f"{source}: its agents have different stores; give all of them one URL")
    names = {str(key): agent.name for key, agent in given.items()}
    file = AgentsFile.of_code(source, names, next(iter(stores), None))
    # threads know an agent by its id, as those of a file do
    own = {str(key): agent.copy_with(agent.store, name=str(key)) for key, agent in given.items()}
    return Agents(file, model=model, given=own)


def load_module(place: str) -> ModuleType:
    """Import a module by its name, or by its file; the folder is appended to `sys.path`.

    Raises:
        ConfigError: It does not exist, another module has its name, or it cannot be loaded.
    """
    path = Path(place)
    if path.suffix == ".py":
        if not path.is_file():
            raise ConfigError(f"there is no file {place}")
        folder, name = path.resolve().parent, path.stem
    else:
        folder, name = Path.cwd().resolve(), place
    one_only(name.partition(".")[0], folder)
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    return imported(name, place, folder)


def _made(found: Any, source: str) -> Any:
    """Call a factory."""
    if isinstance(found, type | Agent) or not callable(found):
        return found
    return called(found, source)


def _kind(found: Any) -> str:
    if isinstance(found, type):
        return f"the class {found.__name__}"
    name = type(found).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"
