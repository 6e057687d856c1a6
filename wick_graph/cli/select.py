"""Find the agent, the store and the trust that a command needs."""

from __future__ import annotations

import shlex
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from wick_graph.cli import output
from wick_graph.cli.watch import can_ask, line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from wick_graph.config import AgentsFile
    from wick_graph.engine.agent import Agent
    from wick_graph.loading import Agents
    from wick_graph.store import SqlSaver, ThreadInfo


# --- The agent that a command uses.


DEFAULT_FILE: Final = Path("agents.yaml")

AgentArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[AGENT]",
        help="The agent's id.  [default: `default`, or the only one]",
        show_default=False,
    ),
]


def pick(agent_id: str | None, file: AgentsFile) -> str:
    """Return the id of an agent: the named one, `default`, or the only one.

    Raises:
        ConfigError: There is no such agent, or several and none is named.
    """
    from wick_graph.errors import ConfigError

    if agent_id is not None:
        file.agent(agent_id)
        return agent_id
    if "default" not in file.agents and len(file.agents) > 1:
        known = ", ".join(file.agents)
        raise ConfigError(f"{file.source}: no agent is called default; name one of {known}")
    return file.default_id


def take_target(agent: str | None) -> str | None:
    """Take the agents of a target such as `app:agents#billing` instead of those of a file.

    Returns:
        The id of the agent; the argument itself if it is not a target.
    """
    from wick_graph.targets import parse_target

    found = None if agent is None else parse_target(agent)
    if found is None:
        return agent
    output.NAMED.get().target = found.source
    return found.agent_id


def target() -> str | None:
    """Return the agents in Python that the command names, as `module:name`; None for a file's."""
    named = output.NAMED.get(None)  # a test may look outside of any command
    return None if named is None else named.target


def read(config: Path) -> AgentsFile:
    """Read the configuration that a command is about: a file, or the one of agents in Python.

    Raises:
        ConfigError: It is refused.
    """
    from wick_graph.config import load_config

    if target() is None:
        return load_config(config)
    return from_code().config


def with_threads(config: Path, thread_id: str | None) -> AgentsFile:
    """Return the configuration that names a thread's store: the target's, else the file.

    Raises:
        ConfigError: It is refused.
    """
    from wick_graph.config import load_config

    if target() is None:
        return load_config(config)
    own = from_code(with_file=True).config
    if not config.is_file():
        return own
    with opened(own) as store:
        if store is not None and (thread_id is None or find(store, thread_id) is not None):
            return own
    return load_config(config)


def looked_at(
    agent: str | None,
    config: Path,
    *,
    recorded: str | None = None,
    trust: bool = False,
    with_file: bool = False,
) -> tuple[str, Agent]:
    """Return an agent for inspection, with its id; this opens no store and asks no model.

    Args:
        agent: The id that the command names.
        config: The file.
        recorded: The agent's name in the thread; it counts if the command names none.
        trust: Whether the command line trusts the file.
        with_file: As for `from_code`.

    Raises:
        ConfigError: There is no such agent.
    """
    from wick_graph.loading import outline

    if target() is not None:
        agents = from_code(trust=trust, with_file=with_file)
        agent_id = pick(agent or (recorded if recorded in agents else None), agents.config)
        made = agents.given.get(agent_id)
        if made is not None:
            return agent_id, made.copy_with(made.store, name=agent_id)
        return agent_id, outline(agent_id, agents.config)
    output.settle()
    file = trusted_file(config, trust=trust, looks=True)
    agent_id = pick(agent or recorded, file)
    return agent_id, outline(agent_id, file)


def from_code(model: str | None = None, *, trust: bool = False, with_file: bool = False) -> Agents:
    """Return the agents of the command's target, which are made once.

    Args:
        model: A model to use instead of those of the agents.
        trust: Whether the command line trusts a file.
        with_file: Whether the command looks for threads in the file's store too.

    Raises:
        ConfigError: They cannot be made, or the command line names a file besides.
    """
    from wick_graph.errors import ConfigError
    from wick_graph.targets import load_target

    output.settle()
    named = output.NAMED.get()
    assert named.target is not None
    if named.file and not with_file:
        raise ConfigError(f"--config names a file, and {named.target} agents in Python; name one")
    if trust:
        raise ConfigError(f"--trust is for a file; {named.target} runs without it, leave it out")
    if named.agents is None:
        named.agents = load_target(named.target)
    made: Agents = named.agents
    made.model = made.model if model is None else model
    return made


def refuse_graphs(command: str, agent_id: str | None = None) -> None:
    """Refuse a command that needs a recording if the target names a LangGraph graph.

    Args:
        command: The command.
        agent_id: The agent that it is about; by default any of the target's.

    Raises:
        ConfigError: There is no recording of its runs.
    """
    from wick_graph.errors import ConfigError

    if (source := target()) is None:
        return
    given = from_code(with_file=True).given
    about = [key for key in given if key == agent_id] or [*given]
    if about and all(given[key].spec.guest for key in about):
        raise ConfigError(
            f"{about[0]} of {source} is a LangGraph graph, not a wick agent; wick {command} needs "
            "an agent's hooks or recorded runs, and a graph has none"
        )


# --- The store of a configuration, opened only if it exists.


@contextmanager
def opened(
    config: Path | AgentsFile, *, make: bool = False, tenant: str = "local"
) -> Iterator[SqlSaver | None]:
    """Open the store of a configuration; give None if it does not exist yet.

    With `make`, a missing store is created. `config` is the file's path, or the parsed file.
    """
    from wick_graph.store import SqlSaver
    from wick_graph.store.saver import dialect_of

    output.settle()
    file = read(config) if isinstance(config, Path) else config
    if not make and not dialect_of(file.store_url).exists():
        yield None
        return
    with SqlSaver.from_url(file.store_url, keys=file.keys_source, tenant=tenant) as store:
        yield store


_CANDIDATES: Final = 5
"""Threads that are named if a shortened id fits several."""


def find(store: SqlSaver | None, thread_id: str, *, exact: bool = False) -> ThreadInfo | None:
    """Find a thread by its id, or by a beginning of its id that fits no other thread.

    Args:
        store: The store; None if it does not exist yet.
        thread_id: What a person has written; an exact id wins.
        exact: Whether only an exact id counts.

    Raises:
        ConfigError: The text is no id, or fits several threads.
    """
    from wick_graph.engine.result import checked_thread_id
    from wick_graph.errors import ConfigError

    info = None if store is None else store.threads.look(thread_id)
    if info is not None:  # another graph's thread may have any id
        return info
    checked_thread_id(thread_id)
    if store is None or exact:
        return None
    found = store.threads.ids_from(thread_id, _CANDIDATES + 1)
    if len(found) > 1:
        shown = ", ".join(found[:_CANDIDATES]) + (", …" if len(found) > _CANDIDATES else "")
        raise ConfigError(f"the thread id {thread_id} fits {shown}; write more of it")
    return store.threads.get(found[0]) if found else None


def known(
    store: SqlSaver | None, thread_id: str, *, exact: bool = False
) -> tuple[SqlSaver, ThreadInfo]:
    """Find a thread as `find` does, and say which one if its id was shortened.

    Raises:
        ThreadNotFoundError: There is no such thread.
    """
    from wick_graph.errors import ThreadNotFoundError

    info = find(store, thread_id, exact=exact)
    if store is None or info is None:
        raise ThreadNotFoundError(
            f"there is no thread {thread_id}; `wick threads list` shows the threads"
        )
    if info.thread_id != thread_id:
        output.say(f"thread {info.thread_id}", dim=True)
    return store, info


# --- Read a configuration; start its programs and code only after a person has trusted it.


_YES = frozenset({"y", "yes"})


def trusted_file(config: Path, *, trust: bool = False, looks: bool = False) -> AgentsFile:
    """Read a configuration and check that the user trusts what it starts.

    At a terminal, ask the user once. Elsewhere `wick trust`, WICK_TRUST or `--trust` must say so.

    Args:
        config: The file.
        trust: Whether the command line trusts it.
        looks: Whether the command only inspects the agents and starts no program.

    Raises:
        ConfigError: The file is refused, or what it starts is not trusted.
    """
    from wick_graph.config import digest_of, is_trusted
    from wick_graph.config import trust as keep
    from wick_graph.errors import ConfigError

    file = read(config)
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
        f"{file.source} starts programs or code that is not trusted in its present state "
        f"({file.starts.lines()[0]}); review it and run {command}, or, without a terminal, set "
        f"WICK_TRUST={digest}{'' if looks else ' or pass --trust'}"
    )


def load_trusted(
    config: Path, *, model: str | None = None, trust: bool = False, with_file: bool = False
) -> Any:
    """Read a trusted configuration as `wick_graph.loading.load` does; `with_file` as `from_code`.

    Raises:
        ConfigError: As `trusted_file`.
    """
    from wick_graph.loading import Agents

    if target() is not None:
        return from_code(model, trust=trust, with_file=with_file)
    output.settle()
    return Agents(trusted_file(config, trust=trust), model=model)


def shown(file: AgentsFile) -> list[str]:
    """Describe each thing that a file starts, and where it may run code from, in a line each."""
    from wick_graph.config.trusted import hashed

    every = [(Path(one), one) for one in hashed(file)]
    folders = [f"with {'everything in ' * path.is_dir()}{one}" for path, one in every]
    return [*file.starts.lines(), *folders]


def _agrees(file: AgentsFile) -> bool:
    output.say(f"{file.source} starts programs or code with your rights:")
    for said in shown(file):
        output.say(f"  {said}")
    try:
        return line("trust them? [y/N] ").strip().lower() in _YES
    except (EOFError, KeyboardInterrupt):
        return False
