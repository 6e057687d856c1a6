"""Agents made in Python, found by name: `module:name`, `file.py:name` or `langgraph.json:name`."""

from __future__ import annotations

import inspect
import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from langgraph.graph import StateGraph

from wick_graph.config import AgentsFile
from wick_graph.config.code import MODULE, called, imported, named, one_only
from wick_graph.engine.agent import Agent
from wick_graph.engine.guest import GuestAgent, is_graph
from wick_graph.errors import ConfigError
from wick_graph.loading import Agents
from wick_graph.store import SqlSaver

_TARGET: Final = re.compile(
    r"(?P<place>(?:[A-Za-z]:[\\/])?[^\s:#]+):(?P<name>[^\W\d]\w*)(?:#(?P<agent_id>\S+))?"
)
_GRAPHS: Final = re.compile(r"(?P<place>\S*?langgraph\.json)(?:[:#](?P<name>\S+))?")

_SURROGATE: Final = re.compile("[\ud800-\udfff]")

_SETTING: Final = re.compile(r"(?:export\s+)?(?P<name>[A-Za-z_]\w*)\s*=\s*(?P<value>.*)")


@dataclass(frozen=True, slots=True)
class Target:
    """A name in a module, such as `app:agents#billing`."""

    place: str
    """A module, a file that ends in `.py`, or a `langgraph.json`."""
    name: str
    """Empty for all graphs of a `langgraph.json`."""
    agent_id: str | None = None
    """Which agent of a mapping."""

    @property
    def source(self) -> str:
        """The target without the agent."""
        return f"{self.place}:{self.name}" if self.name else self.place


def parse_target(text: str) -> Target | None:
    """Read a target; return None if the text is none."""
    if graphs := _GRAPHS.fullmatch(text):
        return Target(graphs["place"], graphs["name"] or "")
    found = _TARGET.fullmatch(text)
    if found is None or not (found["place"].endswith(".py") or MODULE.fullmatch(found["place"])):
        return None
    return Target(found["place"], found["name"], found["agent_id"])


def load_target(source: str, *, model: str | None = None) -> Agents:
    """Import the agents that a target names: an agent, a mapping of agents, or a factory of either.

    A compiled LangGraph graph counts as an agent. An agent without a store of its own keeps its
    threads in `checkpoints/wick.db`.

    Args:
        source: `module:name`, `path/file.py:name`, or `path/langgraph.json:name`.
        model: A model to use instead of those of the agents.

    Raises:
        ConfigError: The target cannot be imported, or names something else.
    """
    target = parse_target(source)
    if target is None:
        raise ConfigError(f"{source!r:.80} is not a target; write module:name or file.py:name")
    if _GRAPHS.fullmatch(target.place):
        return agents_of(_graphs_in(target), source=target.source, model=model)
    found = _found(target)
    if is_graph(found):
        found = GuestAgent(found, target.name)
    return agents_of(found, source=target.source, model=model)


def graph_of(source: str, agent_id: str | None) -> Any:
    """Return the compiled LangGraph graph, of any state, that a target names; None if it is none.

    Raises:
        ConfigError: The target cannot be imported.
    """
    target = parse_target(source)
    if target is None:
        return None
    found = _graphs_in(target) if _GRAPHS.fullmatch(target.place) else _found(target)
    if isinstance(found, Mapping):
        found = found.get(agent_id) if agent_id else next(iter(found.values()), None)
    return found if is_graph(found) else None


def _found(target: Target) -> Any:
    module = load_module(target.place)
    return _made(named(module, target.name, target.place), target.source)


def agents_of(found: Any, *, source: str, model: str | None = None) -> Agents:
    """Collect agents made in Python as the agents of a file are.

    Args:
        found: An agent or a compiled LangGraph graph, or a mapping of ids to these.
        source: Their name in errors.
        model: A model to use instead of those of the agents.

    Raises:
        ConfigError: It is neither, an id is refused, or the agents have different stores.
    """
    if isinstance(found, Agents):
        if model is not None:
            found.model = model
        return found
    if is_graph(found):
        found = GuestAgent(found)
    given = {found.name: found} if isinstance(found, Agent) else found
    if not isinstance(given, Mapping) or not given:
        raise ConfigError(f"{source} is {_kind(found)}; name an agent, or a mapping of agents")
    own = {str(key): as_agent(str(key), agent, source) for key, agent in given.items()}
    if len(own) < len(given):
        raise ConfigError(f"{source}: two of its keys are one id as a text; rename one")
    stores = {agent.given_store for agent in own.values() if isinstance(agent.given_store, str)}
    if len(stores) > 1:
        raise ConfigError(f"{source}: its agents have different stores; give all of them one URL")
    names = {key: agent.name for key, agent in own.items()}
    return Agents(
        AgentsFile.of_code(source, names, next(iter(stores), None)), model=model, given=own
    )


def as_agent(agent_id: str, found: Any, source: str) -> Agent:
    """Return what has an id as an agent.

    Raises:
        ConfigError: It is neither an agent nor a compiled LangGraph graph, or its store is open.
    """
    if is_graph(found):
        return GuestAgent(found, agent_id)
    if not isinstance(found, Agent):
        raise ConfigError(f"{source}: {agent_id!r:.80} is {_kind(found)}, not an agent")
    if isinstance(found.given_store, SqlSaver) and not found.spec.guest:
        raise ConfigError(
            f"{source}: the agent {agent_id} has an open store; pass the URL of the database "
            "as store=, or leave it out"
        )
    return found


# --- A `langgraph.json`: read only when it is named.


def _graphs_in(target: Target) -> dict[str, Any]:
    """Import the graphs of a `langgraph.json`: the one that is named, or all.

    Raises:
        ConfigError: The file cannot be read, or lacks the graph.
    """
    path = Path(target.place)
    try:
        given = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read ({error}); name a langgraph.json") from None
    graphs = given.get("graphs") if isinstance(given, dict) else None
    if not isinstance(graphs, dict) or not graphs:
        raise ConfigError(
            f'{path} names no graphs; write {{"graphs": {{"agent": "./app.py:graph"}}}}'
        )
    if target.name and target.name not in graphs:
        known = ", ".join(graphs)
        raise ConfigError(f"{path} has no graph {target.name}, only {known}")
    folder = path.resolve().parent
    _set_up(given, path, folder)
    return {
        key: _found(_place_of(where, path, folder))
        for key, where in graphs.items()
        if target.name in ("", key)
    }


def _place_of(where: Any, path: Path, folder: Path) -> Target:
    """Read where a graph is: `./file.py:name` or `module:name`, also below the key `path`."""
    text = where.get("path") if isinstance(where, dict) else where
    found = parse_target(text) if isinstance(text, str) else None
    if found is None or not found.name:
        raise ConfigError(f"{path}: {text!r:.80} names no graph; write ./file.py:name")
    if found.place.endswith(".py"):
        return Target(str(folder / found.place), found.name)
    return Target(found.place, found.name)


def _set_up(given: Mapping[str, Any], path: Path, folder: Path) -> None:
    """Append the local `dependencies` to `sys.path`, and set the variables of `env`.

    A variable that the environment has already keeps its value. Packages are not installed.

    Raises:
        ConfigError: One of the two keys is of another form.
    """
    entries, env = given.get("dependencies") or [], given.get("env") or {}
    if not isinstance(entries, list) or not all(_plain(entry) for entry in entries):
        raise ConfigError(f'{path}: dependencies is not a list of texts; write ["."]')
    for entry in entries:
        local = str((folder / entry).resolve()) if entry.startswith(".") else ""
        if local and local not in sys.path:
            sys.path.append(local)
    if not isinstance(env, dict) and not _plain(env):
        raise ConfigError(f'{path}: env is neither a file nor variables; write ".env"')
    for name, given_value in (env if isinstance(env, dict) else _settings(folder / env)).items():
        value = str(given_value) if type(given_value) in (int, float) else given_value
        if not (_plain(value) and _plain(name) and name) or "=" in name:
            raise ConfigError(f"{path}: env: {name!r:.80} cannot be set; write NAME and a text")
        os.environ.setdefault(name, value)


def _plain(found: Any) -> bool:
    """Return whether the system takes a text."""
    return isinstance(found, str) and "\0" not in found and not _SURROGATE.search(found)


def _settings(path: Path) -> dict[str, str]:
    """Read a file of lines `NAME=value`.

    Raises:
        ConfigError: It cannot be read, or a line is of another form.
    """
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read ({error}); langgraph.json names it") from None
    made = {}
    for number, line in enumerate(map(str.strip, lines), 1):
        if not line or line.startswith("#"):
            continue
        if (found := _SETTING.fullmatch(line)) is None:
            raise ConfigError(f"{path}:{number}: write NAME=value")
        value = found["value"]
        quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
        made[found["name"]] = value[1:-1] if quoted else value.partition(" #")[0].rstrip()
    return made


# --- Import a module, and call a factory.


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
    try:
        inspect.signature(found).bind()
    except TypeError as error:
        raise ConfigError(
            f"{source} needs arguments ({error}); name a factory that takes none, such as a "
            "function that calls it"
        ) from None
    except ValueError:  # it does not say what it takes
        pass
    return called(found, source)


def _kind(found: Any) -> str:
    if isinstance(found, type):
        return f"the class {found.__name__}"
    name = type(found).__name__
    if isinstance(found, StateGraph):
        return f"a {name} that is not compiled"
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"
