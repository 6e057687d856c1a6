"""Build agents from agents.yaml."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from copy import copy
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from langchain_core.language_models import FakeListChatModel
from langgraph.checkpoint.memory import InMemorySaver

from wick_graph.backends import LocalBackend, Rules
from wick_graph.backends.docker import DockerBackend
from wick_graph.backends.docker.backend import make_folder
from wick_graph.backends.docker.engine import MISSING as DOCKER_MISSING
from wick_graph.config import (
    AgentConfig,
    AgentsFile,
    McpServerConfig,
    code_folders,
    control_plane,
    folder_of,
    held_in,
    load_config,
    memory_files,
    must_be_unchanged,
    store_of,
    trust_folder,
)
from wick_graph.config.trusted import PYCACHE
from wick_graph.config.yaml_reader import KeyPath, one_line
from wick_graph.core.moments import JournalOptions
from wick_graph.engine.agent import Agent
from wick_graph.errors import ConfigError, ModelError, WickError, did_you_mean
from wick_graph.hooks.approvals import misspelt
from wick_graph.hooks.filesystem import FilesystemHook
from wick_graph.hooks.from_config import activate, backend_of
from wick_graph.hooks.protocol import BaseHook
from wick_graph.middleware import make, must_exist, must_hold_nothing
from wick_graph.models.resolve import ModelChoice, resolve_model
from wick_graph.store import SqlSaver
from wick_graph.store.encryption import check_keys
from wick_graph.store.saver import dialect_of
from wick_graph.store.sqlite import Sqlite, check_file_header
from wick_graph.subagents import Background, Subagent, delegation
from wick_graph.tools.builtin_tools import BUILTINS, builtin
from wick_graph.tools.mcp import MISSING as MCP_MISSING
from wick_graph.tools.mcp import McpServer, Target
from wick_graph.tools.toolsets import ToolStore, Unasked


class Agents(Mapping[str, Agent]):
    """The agents of a configuration by id; each is built when first needed.

    They share the file's store, which `close` (or a `with` block) closes.
    """

    def __init__(
        self,
        config: AgentsFile,
        *,
        model: str | None = None,
        tenant: str = "local",
        given: Mapping[str, Agent] | None = None,
        common: ToolStore | None = None,
    ) -> None:
        self.config = config
        self.tenant = tenant
        """The tenant that owns the threads; those of others cannot be reached."""
        self.tools = ToolStore()
        """Tools to add and remove at run time, for all agents or for one id."""
        self.model = model
        """A model to use instead of those in the file."""
        self.given: Mapping[str, Agent] = given or {}
        """Agents made in Python, by id."""
        self.common = common
        """Tools that a program gives to the agents of all tenants."""
        self._made: dict[str, Agent] = {}
        self.background: list[Background] = []
        """Background tasks that agents of this file have started in this process."""
        self._servers: list[tuple[str, McpServerConfig, McpServer, _Unchanged]] = []
        self.backends: list[LocalBackend | DockerBackend] = []
        """Backends of the built agents."""
        self._saver: SqlSaver | None = None

    @property
    def store(self) -> SqlSaver:
        """The file's store, opened when first needed."""
        if self._saver is None:
            file = self.config
            self._saver = SqlSaver.from_url(
                file.store_url, tenant=self.tenant, keys=file.keys_source
            )
        return self._saver

    def __getitem__(self, agent_id: str) -> Agent:
        if agent_id not in self._made:
            self._made[agent_id] = self._build(agent_id)
        return self._made[agent_id]

    def __contains__(self, agent_id: object) -> bool:
        return agent_id in self.config.agents

    def get(self, agent_id: str, default: Any = None) -> Any:
        """Return an agent, or the default if the file has no such id."""
        return self[agent_id] if agent_id in self.config.agents else default

    def __iter__(self) -> Iterator[str]:
        return iter(self.config.agents)

    def __len__(self) -> int:
        return len(self.config.agents)

    def of(self, config: AgentsFile) -> Agents:
        """Return the agents of another configuration over the same store; closing one closes both.

        Running runs keep their configuration.
        """
        _ = self.store
        made = copy(self)
        made.config, made._made = config, {}
        return made

    def close(self) -> None:
        """Cancel background tasks, stop containers, close everything that is open."""
        while self.background:
            self.background.pop().close()
        while self.backends:
            self.backends.pop().close()
        while self._servers:
            self._servers.pop()[2].close()
        if self._saver is not None:
            self._saver.close()
            self._saver = None
            self._made.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def servers_of(self, agent_id: str) -> list[McpServer]:
        """Return the MCP servers of an agent; agents with the same settings share a session."""
        found = []
        for name, config in self.config.agent(agent_id).mcp_servers.items():
            at = (entry for entry in self._servers if entry[:2] == (name, config))
            known = next(at, None)
            if known is None:
                check = _Unchanged(self.config)
                server = server_of(name, config, self.config.base_dir, check)
                known = (name, config, server, check)
                self._servers.append(known)
            known[3].file = self.config  # a reloaded file was trusted again
            found.append(known[2])
        return found

    def copy_of(self, agent: Agent, *, without: Collection[str] = ()) -> Agent:
        """Return an agent made in Python with its threads in this store, if it names no other."""
        own = agent.given_store
        store = self.store if own is None or isinstance(own, str) else own
        made = agent.copy_with(store, model=self.model, without=without, tool_store=self.tools)
        return self.with_common(made)

    def with_common(self, agent: Agent) -> Agent:
        """Return an agent with the tools for all tenants."""
        if self.common is None:
            return agent
        return agent.copy_with(agent.store, tool_store=self.common)

    def _build(self, agent_id: str) -> Agent:
        if agent_id in self.given:
            return self.copy_of(self.given[agent_id])
        models = check_agents(self.config, [agent_id], model=self.model)
        hooks = hooks_of(agent_id, self.config)
        self.backends += backends_in(hooks)
        made = build_agent(
            agent_id,
            self.config,
            store=lambda: self.store,
            model=models[agent_id],
            hooks=hooks,
            tool_store=self.tools,
            mcp_servers=self.servers_of(agent_id),
            agents=self,
        )
        return self.with_common(made)


class _Unchanged:
    """A check before each start of a command of a file."""

    def __init__(self, file: AgentsFile) -> None:
        self.file = file

    def __call__(self) -> None:
        """Check that the file's programs and code are unchanged since they were trusted.

        Raises:
            ConfigError: They have changed.
        """
        must_be_unchanged(self.file)


def load(path: str | Path = "agents.yaml", *, model: str | None = None) -> Agents:
    """Load the agents of a configuration file.

    Args:
        path: The YAML file; relative paths in it are relative to its folder.
        model: A model to use instead of those in the file.

    Raises:
        ConfigError: The file is invalid; the text names file, line and key path.
    """
    return Agents(load_config(path), model=model)


def build_agent(
    agent_id: str,
    file: AgentsFile,
    *,
    store: Any = None,
    model: str | ModelChoice | None = None,
    hooks: Sequence[BaseHook] | None = None,
    tool_store: ToolStore | None = None,
    mcp_servers: Sequence[McpServer] = (),
    agents: Mapping[str, Agent] | None = None,
) -> Agent:
    """Build an agent from its configuration.

    Args:
        agent_id: The agent's id in the file.
        file: The configuration.
        store: A store as for `Agent`, or a function that opens it, which is called last.
        model: A model to use instead of the one in the file.
        hooks: Hooks to use instead of those that the configuration enables.
        tool_store: Tools that are added and removed at run time.
        mcp_servers: Made with `server_of`; the caller must close them.
        agents: The file's agents; without them the agent has no sub-agents.

    Raises:
        ConfigError: There is no such agent, or it names a tool that does not exist.
        ModelError: Its model cannot be built.
    """
    config = file.agent(agent_id)
    tools = _tools_of(agent_id, file, agents)
    if not isinstance(model, ModelChoice):
        model = resolve_model(model or config.model_spec(), base_dir=file.base_dir)
    hooks = hooks_of(agent_id, file) if hooks is None else hooks
    hooks = _with_background(hooks, config, agents)
    _check_approvals(agent_id, file, [*tools, *(tool for hook in hooks for tool in hook.tools({}))])
    return Agent(
        agent_id,
        model,
        system_prompt=config.system_prompt,
        tools=tools,
        hooks=hooks,
        store=store() if callable(store) else store,  # a refused agent must not create a database
        **_limits(config),
        journal=journal_of(config),
        tool_store=tool_store,
        mcp_servers=mcp_servers,
        allow_client_system=config.allow_client_system,
        base_dir=file.base_dir,
    )


def _limits(config: AgentConfig) -> dict[str, Any]:
    """Return an agent's time limits and retention settings."""
    return {
        "max_iterations": config.max_iterations,
        "ttl": config.ttl,
        "tool_timeout": config.tool_timeout,
        "deadline": config.deadline,
        "keep_latest": None if config.retention is None else config.retention.keep_latest,
    }


def _tools_of(agent_id: str, file: AgentsFile, agents: Mapping[str, Agent] | None) -> list[Any]:
    config = file.agent(agent_id)
    try:
        if "ls" in config.tools and file.tools_dir != file.base_dir:
            _make_for_tools(file.tools_dir)
        tools: list[Any] = builtin(config.tools, file.tools_dir, search=config.search)
    except ConfigError as error:
        raise file.error(("agents", agent_id, "tools"), str(error)) from None
    unknown = next((name for name in config.subagents if name not in file.agents), None)
    if unknown is not None:
        hint = did_you_mean(unknown, file.agents)
        key = ("agents", agent_id, "subagents", unknown)
        raise file.error(key, f"there is no agent {unknown}{hint}")
    waits = _below(config, agents, background=False)
    return [*tools, delegation(waits)] if waits else tools


def _make_for_tools(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:  # a tenant may see the text, so it omits the path
        raise ConfigError(
            f"the folder for ls cannot be created ({error.strerror}); let this process "
            "write beside the folder of agents.yaml"
        ) from None


def _below(
    config: AgentConfig, agents: Mapping[str, Agent] | None, *, background: bool
) -> dict[str, Subagent]:
    """Return the sub-agents of an agent: for the background, or to be waited for."""
    if agents is None:
        return {}
    return {
        name: Subagent(partial(agents.__getitem__, name), one.description, one.inherit_approvals)
        for name, one in config.subagents.items()
        if one.background is background
    }


def _with_background(
    hooks: Sequence[BaseHook], config: AgentConfig, agents: Mapping[str, Agent] | None
) -> list[BaseHook]:
    """Add the hook for background tasks, if there are agents for them."""
    below = _below(config, agents, background=True)
    if not below:
        return [*hooks]
    tasks = Background(below)
    if isinstance(agents, Agents):
        agents.background.append(tasks)
    return _inside(hooks, [tasks])


def _inside(hooks: Sequence[BaseHook], more: Sequence[BaseHook]) -> list[BaseHook]:
    """Insert hooks before those that must see the whole request."""
    places = (i for i, hook in enumerate(hooks) if hook.name in ("summarization", "budget"))
    at = next(places, len(hooks))
    return [*hooks[:at], *more, *hooks[at:]]


def server_of(
    name: str,
    config: McpServerConfig,
    base_dir: Path,
    check: Callable[[], None] = lambda: None,
) -> McpServer:
    """Make an MCP server from its configuration without starting it.

    Args:
        name: Its name.
        config: Its configuration.
        base_dir: The folder of the file.
        check: Called before each start of its command; an exception prevents the start.
    """
    # Python runs what is in __pycache__ beside a module, but trust covers only the modules
    cache = {PYCACHE: str(trust_folder() / "pycache")} if config.command else {}
    target = Target(
        command=config.command,
        url=config.url or "",
        env={**cache, **config.env},
        check=check if config.command else None,
        cwd=str(base_dir / (config.cwd or ".")),
        headers=config.headers,
    )
    return McpServer(name, target, timeout=config.timeout, idle=config.idle, only=config.tools)


def hooks_of(agent_id: str, file: AgentsFile, *, to_look_at: bool = False) -> list[BaseHook]:
    """Make the hooks that an agent's configuration enables.

    Creates the folder of its backend if it is missing, unless the agent is only inspected.

    Raises:
        ConfigError: The folder cannot be opened, or a hook cannot work as configured.
    """
    config = file.agent(agent_id)
    rules = Rules() if to_look_at else rules_of(config, file)
    key = "backend"
    try:
        backend = backend_of(config, _workdir(config, file.base_dir, to_look_at), rules)
        key = "middleware"
        for entry in config.middleware:
            must_hold_nothing({"use": entry.use, "args": entry.args}, rules)
        more = [make(entry.use, entry.args, file.base_dir) for entry in config.middleware]
        key = "budget"
        hooks = activate(config, backend)
    except (ConfigError, OSError) as error:
        raise file.error(("agents", agent_id, key), str(error)) from None
    return _inside(hooks, more)


def rules_of(config: AgentConfig, file: AgentsFile) -> Rules:
    """Return the rules for what an agent's tools must not touch.

    Raises:
        ConfigError: A command may run code from the agent's folder.
    """
    return Rules(
        control=(*control_plane(file), *held_in(config, file)),
        stores=store_of(file)[1],
        memory=memory_files(file),
        protect=config.protect,
        writable=config.writable,
        code=code_folders(),
    )


def backends_in(hooks: Sequence[BaseHook]) -> list[LocalBackend | DockerBackend]:
    """List the backends that hooks have opened; the caller must close them."""
    found = (hook.backend for hook in hooks if isinstance(hook, FilesystemHook))
    return [one for one in found if isinstance(one, LocalBackend | DockerBackend)]


def _check_approvals(agent_id: str, file: AgentsFile, tools: Sequence[Any]) -> None:
    names = [str(getattr(tool, "name", "")) for tool in tools]
    if (found := misspelt(file.agent(agent_id).approvals, names)) is not None:
        rule, near = found
        key = ("agents", agent_id, "approvals", rule)
        raise file.error(key, f"there is no tool {rule}; did you mean {near}?")


def _workdir(config: AgentConfig, base_dir: Path, to_look_at: bool) -> Path:
    backend = config.backend
    if backend is None:
        return base_dir
    workdir = folder_of(backend, base_dir)
    if to_look_at and not workdir.is_dir():
        return base_dir.absolute()  # nothing is read from it
    make_folder(workdir)
    return workdir


def journal_of(config: AgentConfig) -> JournalOptions:
    """Return an agent's recording options."""
    journal = config.journal
    if isinstance(journal, str):
        return JournalOptions(journal)
    return JournalOptions(journal.level, journal.redact)


def outline(agent_id: str, file: AgentsFile) -> Agent:
    """Make an agent for inspection: its graph and hooks are real, its model never answers.

    Needs no key and opens no store.

    Raises:
        ConfigError: There is no such agent, or it names a tool that does not exist.
    """
    named = file.agent(agent_id).model
    stand_in = _stand_in(named if isinstance(named, str) else named.model)
    hooks = hooks_of(agent_id, file, to_look_at=True)
    nobody: Mapping[str, Any] = dict.fromkeys(file.agents)  # they get no tasks
    store = InMemorySaver()  # without one, an agent with approvals would be refused
    made = build_agent(agent_id, file, store=store, model=stand_in, hooks=hooks, agents=nobody)
    servers = tuple(Unasked(name) for name in file.agent(agent_id).mcp_servers)
    made.spec = replace(made.spec, beside=servers)
    return made


def _stand_in(name: str) -> ModelChoice:
    """Return a model that never answers."""
    return ModelChoice(model=FakeListChatModel(responses=[]), name=name)


# --- Whether agents can be made: the checks of `wick validate`, and of each start of an agent.


class _Faults:
    """The faults of a file, each a line with its place."""

    def __init__(self, file: AgentsFile) -> None:
        self.file = file
        self.lines: list[str] = []
        self.kinds: set[type[WickError]] = set()

    def add(self, key: KeyPath, text: str, kind: type[WickError] = ConfigError) -> None:
        """Add a fault; a text with a place keeps it."""
        has_place = text.startswith(f"{one_line(self.file.source)}:")
        self.lines += text.splitlines() if has_place else [str(self.file.error(key, text))]
        self.kinds.add(kind)

    @contextmanager
    def at(self, *key: str | int) -> Iterator[None]:
        """Take a refusal within the block as the fault of a key."""
        try:
            yield
        except WickError as error:
            kind = ModelError if isinstance(error, ModelError) else ConfigError
            self.add(key, str(error), kind)
        except OSError as error:
            self.add(key, str(error))

    def refuse(self) -> None:
        """Raise what was found."""
        if self.lines:
            kind = self.kinds.pop() if len(self.kinds) == 1 else ConfigError
            raise kind("\n".join(dict.fromkeys(self.lines)))


def check_agents(
    file: AgentsFile,
    ids: Collection[str] | None = None,
    *,
    model: str | ModelChoice | None = None,
    loads_code: bool = True,
) -> dict[str, ModelChoice]:
    """Check that agents of a file can be made, with the agents below them; make and start nothing.

    Args:
        file: The configuration.
        ids: The agents; None for all.
        model: A model to use instead of those in the file.
        loads_code: Whether to make the middleware that the file names, since it is trusted.

    Returns:
        The models by agent.

    Raises:
        ConfigError: A line for each fault, with file, line and key.
        ModelError: The same, if every fault is of a model.
    """
    faults = _Faults(file)
    with faults.at("store"):
        dialect = dialect_of(file.store_url)
        if isinstance(dialect, Sqlite) and dialect.path is not None:
            check_file_header(dialect.path)
    with faults.at("store_keys"):
        check_keys(file.keys_source)
    wanted = [*(file.agents if ids is None else ids)]
    models: dict[str, ModelChoice] = {}
    given = resolve_model(model, base_dir=file.base_dir) if isinstance(model, str) else model
    for agent_id in wanted:
        choice = _check_agent(agent_id, file, faults, given, loads_code)
        if choice is not None:
            models[agent_id] = choice
        below = file.agents[agent_id].subagents
        wanted += [name for name in below if name in file.agents and name not in wanted]
    faults.refuse()
    return models


def _check_agent(
    agent_id: str, file: AgentsFile, faults: _Faults, model: ModelChoice | None, loads_code: bool
) -> ModelChoice | None:
    """Find the faults of one agent; return its model, if it has one."""
    config, known = file.agent(agent_id), len(faults.lines)
    at = partial(faults.at, "agents", agent_id)
    with at("model"):
        model = model or resolve_model(config.model_spec(), base_dir=file.base_dir)
    with at("tools"):
        file.check_tools(BUILTINS, agent_id)
        builtin(config.tools, file.base_dir, search=config.search)
    _check_names(agent_id, file, faults)
    more: list[BaseHook] = []
    for i, entry in enumerate(config.middleware):
        with at("middleware", i):
            must_hold_nothing({"use": entry.use, "args": entry.args}, rules_of(config, file))
            if loads_code:
                more.append(make(entry.use, entry.args, file.base_dir))
            else:
                must_exist(entry.use, entry.args)
    with ExitStack() as stack:
        backend = None
        with at("backend"):
            backend = _looked_backend(config, file, stack)
        with at("budget"):
            hooks = _inside(activate(config, backend), more)
            if len(faults.lines) == known:
                nobody: Mapping[str, Any] = dict.fromkeys(file.agents)
                stand_in: dict[str, Any] = {
                    "store": InMemorySaver(),
                    "model": _stand_in("model"),
                    "agents": nobody,
                }
                with at():
                    build_agent(agent_id, file, hooks=hooks, **stand_in)
    return model


def _check_names(agent_id: str, file: AgentsFile, faults: _Faults) -> None:
    """Find what an agent names and the file, or this machine, does not have."""
    config, key = file.agent(agent_id), ("agents", agent_id)
    for name in config.subagents:
        if name not in file.agents:
            hint = did_you_mean(name, file.agents)
            faults.add((*key, "subagents", name), f"there is no agent {name}{hint}")
    for block in ("skills", "memory"):
        if getattr(config, block) is not None and config.backend is None:
            text = "needs a backend, which reads its files; add backend: {type: local}"
            faults.add((*key, block), text)
    if config.mcp_servers and find_spec("mcp") is None:
        faults.add((*key, "mcp_servers"), MCP_MISSING)
    if config.backend is not None and config.backend.type == "docker" and not find_spec("docker"):
        faults.add((*key, "backend"), DOCKER_MISSING)


def _looked_backend(
    config: AgentConfig, file: AgentsFile, stack: ExitStack
) -> LocalBackend | DockerBackend | None:
    """Open an agent's backend to check it, in a stand-in for its folder if that is missing."""
    rules, settings = rules_of(config, file), config.backend
    if settings is None:
        return None
    folder = folder_of(settings, file.base_dir)
    place = folder
    if not os.path.isdir(folder):  # noqa: PTH112  # a name that is too long is no error here
        place = _beside(folder)
        stack.callback(shutil.rmtree, place, ignore_errors=True)
        readable = tuple(str(folder / one) for one in settings.readable)
        settings = settings.model_copy(update={"readable": readable})
        config = config.model_copy(update={"backend": settings})
    try:
        backend = backend_of(config, place, Rules())
        assert backend is not None
        stack.callback(backend.close)
        if isinstance(backend, LocalBackend):
            backend.must_keep(_moved(rules, str(folder), str(place)))
    except ConfigError as error:
        raise ConfigError(str(error).replace(str(place), str(folder))) from None
    return backend


def _beside(folder: Path) -> Path:
    """Make a stand-in for a missing folder, where the folder would be made.

    Only there it has the same file system, and the same way for the user of a sandbox.

    Raises:
        ConfigError: The folder could not be made.
    """
    try:
        if os.path.lexists(folder):
            raise FileExistsError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        with suppress(FileNotFoundError):
            folder.lstat()  # fails for a name that no folder can have
        above = next(one for one in folder.parents if os.path.lexists(one))
        place = above / f".wick-check-{secrets.token_hex(4)}"
        make_folder(place)
    except OSError as error:
        raise ConfigError(
            f"the folder {folder} cannot be made ({error.strerror}); name another one"
        ) from None
    return place


def _moved(rules: Rules, old: str, new: str) -> Rules:
    """Return the rules for another place of a folder."""

    def moved(path: str) -> str:
        return new + path[len(old) :] if path == old or path.startswith(f"{old}/") else path

    named = ("control", "memory", "stores")
    return replace(rules, **{name: tuple(map(moved, getattr(rules, name))) for name in named})
