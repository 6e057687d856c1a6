"""Find the agent, the store and the trust that a command needs."""

from __future__ import annotations

import shlex
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from wick_graph.cli import output
from wick_graph.cli.watch import can_ask, line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from wick_graph.config import AgentsFile
    from wick_graph.store import SqlSaver, ThreadInfo


# --- Which agent of which file a command is about.


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

    from wick_graph.engine.agent import Agent
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


# --- The store that a configuration names, opened only where there is one.


@contextmanager
def opened(config: Path | AgentsFile, *, make: bool = False) -> Iterator[SqlSaver | None]:
    """Open a file's store, or give None where no thread was ever stored: nothing is created.

    With `make` it is created where it is not there. The file is given as its path, or as read.
    """
    from wick_graph.config import load_config
    from wick_graph.store import SqlSaver
    from wick_graph.store.saver import dialect_of

    file = load_config(config) if isinstance(config, Path) else config
    if not make and not dialect_of(file.store_url).exists():
        yield None
        return
    with SqlSaver.from_url(file.store_url, keys=file.keys_source) as store:
        yield store


def known(store: SqlSaver | None, thread_id: str) -> tuple[SqlSaver, ThreadInfo]:
    """Find a thread.

    Raises:
        ThreadNotFoundError: There is no such thread.
    """
    check_ids([thread_id])
    info = None if store is None else store.threads.get(thread_id)
    if store is None or info is None:
        raise unknown(thread_id)
    return store, info


def check_ids(thread_ids: list[str]) -> None:
    """Refuse what no thread can be called.

    Raises:
        ConfigError: One of them.
    """
    from wick_graph.engine.result import checked_thread_id

    for thread_id in thread_ids:
        checked_thread_id(thread_id)


def unknown(thread_id: str) -> Exception:
    """Make the error of a thread that is not there."""
    from wick_graph.errors import ThreadNotFoundError

    return ThreadNotFoundError(
        f"there is no thread {thread_id}; `wick threads list` shows those there are"
    )


# --- A file of agents is read, and what it starts is started only after a person has trusted
# it.


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
    from wick_graph.config.trusted import hashed_folders

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
