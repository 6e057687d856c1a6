"""Build agents from agents.yaml."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Self

from langchain_core.language_models import FakeListChatModel
from langgraph.checkpoint.memory import InMemorySaver

from wick_graph.backends import LocalBackend, Rules
from wick_graph.backends.docker import DockerBackend
from wick_graph.backends.docker.engine import MISSING as DOCKER_MISSING
from wick_graph.config import (
    AgentConfig,
    AgentsFile,
    McpServerConfig,
    code_folders,
    control_plane,
    held_in,
    load_config,
    memory_files,
    must_be_unchanged,
    store_of,
)
from wick_graph.config.code import look_up
from wick_graph.config.fields import code_in, is_code
from wick_graph.config.schema import Additions, OwnCode
from wick_graph.config.trusted import CodeLoader
from wick_graph.config.yaml_reader import KeyPath, one_line
from wick_graph.engine.agent import Agent
from wick_graph.errors import ConfigError, ModelError, WickError, did_you_mean
from wick_graph.hooks import FilesystemHook, MemoryHook, SkillsHook, compile_hooks
from wick_graph.hooks.from_config import (
    activate,
    added_hooks,
    backend_of,
    check_approvals,
    check_context,
    checked_backend,
    close_checked,
    context_of,
    journal_of,
    output_of,
    server_of,
    workdir_of,
)
from wick_graph.hooks.protocol import BaseHook
from wick_graph.lazy import Later
from wick_graph.middleware import make, make_object, must_exist, must_hold_nothing, own_hook
from wick_graph.models.resolve import ModelChoice, resolve_model
from wick_graph.store import SqlSaver
from wick_graph.store.connection import STORES
from wick_graph.store.encryption import check_keys
from wick_graph.store.saver import dialect_of
from wick_graph.store.sqlite import Sqlite, check_file_header
from wick_graph.store.vectors import VectorIndex
from wick_graph.subagents import Background, Handoff, Subagent, delegation
from wick_graph.subagents.background import Watcher
from wick_graph.tools import FuncTool
from wick_graph.tools import tool as make_tool
from wick_graph.tools.bound import bind_tool, bind_tools
from wick_graph.tools.builtin_tools import BUILTINS, builtin
from wick_graph.tools.mcp import MISSING as MCP_MISSING
from wick_graph.tools.mcp import McpServer
from wick_graph.tools.toolsets import ToolStore, Unasked

_MEMORIES: Final = Later("wick_graph.store.memories")  # which loads SQLAlchemy


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
        self.tools = ToolStore(common)
        """Tools to add and remove at run time, for all agents or for one id."""
        self.model = model
        """A model to use instead of those in the file."""
        self.given: Mapping[str, Agent] = given or {}
        """Agents made in Python, by id."""
        self._made: dict[str, Agent] = {}
        self._models: dict[str, ModelChoice] = {}
        """Models of agents that were checked and are not made yet: a model may be costly."""
        self.background: list[Background] = []
        """Background tasks that agents of this file have started in this process."""
        self.watcher: Watcher | None = None
        """Hears of background tasks of agents that are made later."""
        self._servers: list[tuple[str, McpServerConfig, McpServer, _Unchanged]] = []
        self.backends: dict[LocalBackend | DockerBackend, str] = {}
        """Backends of the built agents, each with the id of its agent."""
        self._saver: SqlSaver | None = None

    @property
    def store(self) -> SqlSaver:
        """The file's store, opened when first needed."""
        if self._saver is None:
            file = self.config
            ttl = file.additions.ttl or "1h"
            self._saver = SqlSaver.from_url(
                file.store_url,
                ttl=ttl,
                tenant=self.tenant,
                keys=file.keys_source,
                warm_bytes=file.store_warm_bytes,
                pool_size=file.pool.size,
                lease=file.workers.lease if "lease" in file.workers.model_fields_set else None,
            )
        return self._saver

    def __getitem__(self, agent_id: str) -> Agent:
        if agent_id not in self._made:
            self._made[agent_id] = self.build(agent_id)
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
        made.config, made._made, made._models = config, {}, {}
        return made

    def forget(self) -> None:
        """Let go of the built agents' files and containers; they close when no run uses them."""
        for one in backends_in([hook for agent in self._made.values() for hook in agent.hooks]):
            self.backends.pop(one, None)

    def close(self) -> None:
        """Cancel background tasks, stop containers, close everything that is open."""
        while self.background:
            self.background.pop().close()
        while self.backends:
            self.backends.popitem()[0].close()
        while self._servers:
            self._servers.pop()[2].close()
        if self._saver is not None:
            self._saver.close()
            self._saver = None
            self._made.clear()
            self._models.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def servers_of(self, agent_id: str) -> list[McpServer]:
        """Return the MCP servers of an agent; agents with the same settings share a session."""
        found = []
        for name, config in self.config.agent(agent_id).mcp_servers.items():
            known = next((one for one in self._servers if one[:2] == (name, config)), None)
            if known is None:
                check = _Unchanged(self.config)
                known = (name, config, server_of(name, config, self.config.base_dir, check), check)
                self._servers.append(known)
            known[3].file = self.config  # a reloaded file was trusted again
            found.append(known[2])
        return found

    def copy_of(self, agent_id: str, *, without: Collection[str] = ()) -> Agent:
        """Return an agent made in Python under its id, with its threads in this store.

        An agent with a store of its own keeps that.
        """
        agent = self.given[agent_id]
        own = agent.given_store
        return agent.copy_with(
            self.store if own is None or isinstance(own, str) else own,
            name=agent_id,  # threads know an agent by its id, as those of a file do
            model=self.model,
            without=without,
            tool_store=self.tools,
        )

    def build(self, agent_id: str, *, alone: bool = False) -> Agent:
        """Make an agent; `alone` it has no handoffs, as one that takes over from another."""
        if agent_id in self.given:
            return self.copy_of(agent_id)
        if agent_id not in self._models:
            self._models |= check_agents(
                self.config, [agent_id], model=self.model, made_next=agent_id
            )
        hooks = hooks_of(agent_id, self.config)
        self.backends |= dict.fromkeys(backends_in(hooks), agent_id)
        return build_agent(
            agent_id,
            self.config,
            store=lambda: self.store,
            model=self._models.pop(agent_id),
            hooks=hooks,
            tool_store=self.tools,
            mcp_servers=self.servers_of(agent_id),
            agents=self,
            alone=alone,
        )


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


def load(
    path: str | Path = "agents.yaml",
    *,
    model: str | None = None,
    hooks: Sequence[Any] = (),
    tools: Sequence[Any] = (),
) -> Agents:
    """Load the agents of a configuration file.

    Args:
        path: The YAML file; relative paths in it are relative to its folder.
        model: A model to use instead of those in the file.
        hooks: Hooks for all agents, inside those that the file names.
        tools: Tools for all agents, besides those that the file names.

    Raises:
        ConfigError: The file is invalid; the text names file, line and key path.
    """
    compile_hooks(hooks)
    bind_tools(tools)
    return Agents(load_config(path).adding(Additions((*hooks,), (*tools,))), model=model)


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
    alone: bool = False,
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
        agents: The file's agents; without them the agent has no sub-agents and no handoffs.
        alone: Whether it takes over from another agent: it has no handoffs and no store of items.

    Raises:
        ConfigError: There is no such agent, or it names a tool that does not exist.
        ModelError: Its model cannot be built.
    """
    config, tools = file.agent(agent_id), _tools_of(agent_id, file, agents)
    model = model or _model_of(agent_id, file)
    own = config.model_fields_set if file.additions.ttl is None else ()
    hooks = _with_background(hooks_of(agent_id, file) if hooks is None else hooks, config, agents)
    offered = [*tools, *(tool for hook in hooks for tool in hook.tools({}))]
    check_approvals(agent_id, file, [str(getattr(tool, "name", "")) for tool in offered])
    context = context_of(agent_id, file, code_loader, agents is not None)
    opened = store() if callable(store) else store  # a refused agent must not create a database
    kept = file.long_term if isinstance(opened, SqlSaver) and not alone else None
    return Agent(
        agent_id,
        model,
        system_prompt=config.system_prompt,
        tools=tools,
        hooks=hooks,
        store=opened,
        long_term=None if kept is None else _MEMORIES.SqlStore.of(opened, **kept.options()),
        max_iterations=config.max_iterations,
        **output_of(agent_id, file),
        handoffs={} if alone else _team(config, file, agents),
        ttl=config.ttl if "ttl" in own else STORES,
        tool_timeout=config.tool_timeout,
        deadline=config.deadline,
        keep_latest=None if config.retention is None else config.retention.keep_latest,
        journal=journal_of(config),
        tool_store=tool_store,
        mcp_servers=mcp_servers,
        allow_client_system=config.allow_client_system,
        base_dir=file.base_dir,
        **context,
    )


def _tools_of(agent_id: str, file: AgentsFile, agents: Mapping[str, Agent] | None) -> list[Any]:
    config = file.agent(agent_id)
    try:
        if "ls" in config.tools and file.tools_dir != file.base_dir:
            _make_for_tools(file.tools_dir)
        names = [name for name in config.tools if not is_code(name)]
        rules = added(()) if (added := file.additions.rules) else None
        tools: list[Any] = builtin(names, file.tools_dir, search=config.search, rules=rules)
    except ConfigError as error:
        raise file.error(("agents", agent_id, "tools"), str(error)) from None
    if more := [*_own_tools(agent_id, file), *file.additions.tools]:
        tools += more
        try:
            bind_tools(tools)
            above = (one for one in tools if isinstance(one, FuncTool) and one.agents)
            if file.tools_dir != file.base_dir and (tool := next(above, None)) is not None:
                raise ConfigError(_shared_agents(f"the tool {tool.name}"))
        except ConfigError as error:
            raise file.error(("agents", agent_id, "tools"), str(error)) from None
    unknown = next((name for name in config.subagents if name not in file.agents), None)
    if unknown is not None:
        hint = did_you_mean(unknown, file.agents)
        key = ("agents", agent_id, "subagents", unknown)
        raise file.error(key, f"there is no agent {unknown}{hint}")
    waits = _below(config, agents, background=False)
    return [*tools, delegation(waits)] if waits else tools


def _own_tools(agent_id: str, file: AgentsFile) -> Iterator[Any]:
    """Yield the tools of one's own that an agent names.

    Raises:
        ConfigError: One cannot be loaded, or is none.
    """
    load = code_loader(agent_id, file)
    for index, name in enumerate(file.agent(agent_id).tools):
        if not is_code(name):
            continue
        try:
            found = load(name)
            for one in found if isinstance(found, list | tuple) else (found,):
                yield bind_tool(one).source if not inspect.isfunction(one) else make_tool(one)
        except ConfigError as error:
            raise file.error(("agents", agent_id, "tools", index), f"{name}: {error}") from None


def _model_of(agent_id: str, file: AgentsFile) -> ModelChoice:
    """Make the model that an agent names, which may be one's own.

    Raises:
        ConfigError: One's own cannot be made, or is no chat model.
        ModelError: The model cannot be built.
    """
    config = file.agent(agent_id)
    if not isinstance(config.model, OwnCode):
        return resolve_model(config.model_spec(), base_dir=file.base_dir)
    use, args = config.model.use, config.model.args
    load = code_loader(agent_id, file)
    try:
        made = make_object(use, args, file.base_dir, load)
        if isinstance(made, str | Mapping):
            raise ConfigError("it is a name, not a chat model; write the name under model:")
        choice = resolve_model(made, base_dir=file.base_dir)
    except ConfigError as error:
        raise file.error(("agents", agent_id, "model"), f"{use}: {error}") from None
    window = config.context_window
    return choice if window is None else replace(choice, context_window=window)


def code_loader(agent_id: str, file: AgentsFile) -> Callable[[str], Any]:
    """Return what loads the code of one's own that an agent names.

    Raises:
        ConfigError: The code has changed since it was trusted.
    """
    if any(file.code(agent_id)):
        return CodeLoader(file)
    return lambda name: None  # it is never called


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


def _team(
    config: AgentConfig, file: AgentsFile, agents: Mapping[str, Agent] | None
) -> dict[str, Handoff]:
    """Return the agents that can take over from an agent, made for it alone."""

    def made(name: str) -> Agent:
        if isinstance(agents, Agents):
            return agents.build(name, alone=True)
        return outline(name, file, alone=True)

    known = config.handoffs if agents is not None else {}
    return {name: Handoff(made(name), text) for name, text in known.items() if name in file.agents}


def _with_background(
    hooks: Sequence[BaseHook], config: AgentConfig, agents: Mapping[str, Agent] | None
) -> list[BaseHook]:
    """Add the hook for background tasks, if there are agents for them."""
    below = _below(config, agents, background=True)
    if not below:
        return [*hooks]
    tasks = Background(below)
    if isinstance(agents, Agents):
        tasks.watcher = agents.watcher
        agents.background.append(tasks)
    return _inside(hooks, [tasks])


def _inside(hooks: Sequence[BaseHook], more: Sequence[BaseHook]) -> list[BaseHook]:
    """Insert hooks before those that must see the whole request."""
    places = (i for i, hook in enumerate(hooks) if hook.name in ("summarization", "budget"))
    at = next(places, len(hooks))
    return [*hooks[:at], *more, *hooks[at:]]


def hooks_of(
    agent_id: str, file: AgentsFile, *, to_look_at: bool = False, inside: bool = False
) -> list[BaseHook]:
    """Make the hooks that an agent's configuration enables.

    Creates the folder of its backend if it is missing, unless the agent is only inspected.

    Args:
        agent_id: The agent's id in the file.
        file: The configuration.
        to_look_at: Whether the agent is only inspected.
        inside: Whether its relative paths name nothing outside the folder of its backend.

    Raises:
        ConfigError: The folder cannot be opened, or a hook cannot work as configured.
    """
    config = file.agent(agent_id)
    rules = Rules() if to_look_at else rules_of(config, file)
    load = code_loader(agent_id, file)
    more: list[Any] = []
    key: tuple[str | int, ...] = ("backend",)
    try:
        workdir = workdir_of(config, file.base_dir, to_look_at)
        backend = backend_of(config, workdir, rules, inside=inside)
        for name, index, entry in _named_hooks(config):
            key = (name, index)
            must_hold_nothing({"use": entry.use, "args": entry.args}, rules)
            more.append(_named_hook(name, entry, file, load))
        key = ("hooks",)
        more += added_hooks(file)
        _check_own(more, file, rules)
        key = ("budget",)
        hooks = _inside(activate(config, backend), more)
        key = ("hooks",)
        compile_hooks(hooks)
    except (ConfigError, OSError) as error:
        raise file.error(("agents", agent_id, *key), str(error)) from None
    return hooks


def _named_hooks(config: AgentConfig) -> Iterator[tuple[str, int, OwnCode]]:
    """Yield the hooks and the middleware that an agent names, each with its key and index."""
    for name, entries in (("hooks", config.hooks), ("middleware", config.middleware)):
        yield from ((name, index, entry) for index, entry in enumerate(entries))


def _named_hook(
    name: str, entry: OwnCode, file: AgentsFile, load: Callable[[str], Any]
) -> BaseHook:
    maker = own_hook if name == "hooks" else make
    made: BaseHook = maker(entry.use, entry.args, file.base_dir, load)
    return made


def _check_own(hooks: Sequence[Any], file: AgentsFile, rules: Rules) -> None:
    """Keep the files of hooks made in Python from what governs agents, and tenants apart.

    Raises:
        ConfigError: Tenants would share the files or the sub-agents of a hook.
    """
    for hook in hooks:
        if isinstance(hook, FilesystemHook):
            hook.keep_from(rules)
        if file.tools_dir == file.base_dir:
            continue
        if has_files(hook):
            raise ConfigError(
                f"the tenants of the server would share the files of the hook {hook.name}; "
                "declare backend:, skills: or memory: instead"
            )
        if isinstance(hook, Background):
            raise ConfigError(_shared_agents(f"the hook {hook.name}"))


def _shared_agents(what: str) -> str:
    return (
        f"the tenants of the server would share the sub-agents of {what}; "
        "declare subagents: instead"
    )


def has_files(hook: Any) -> bool:
    """Say whether a hook reads or writes files of its own."""
    return isinstance(hook, FilesystemHook | MemoryHook | SkillsHook)


def rules_of(config: AgentConfig, file: AgentsFile) -> Rules:
    """Return the rules for what an agent's tools must not touch.

    Raises:
        ConfigError: A command may run code from the agent's folder.
    """
    added = file.additions.rules
    return (Rules() if added is None else added(config.writable)).joined(
        Rules(
            control=(*control_plane(file), *held_in(config, file)),
            stores=store_of(file)[1],
            memory=memory_files(file),
            protect=config.protect,
            writable=config.writable,
            code=code_folders(),
        )
    )


def backends_in(hooks: Sequence[BaseHook]) -> list[LocalBackend | DockerBackend]:
    """List the backends that hooks have opened; the caller must close them."""
    found = (hook.backend for hook in hooks if isinstance(hook, FilesystemHook))
    return [one for one in found if isinstance(one, LocalBackend | DockerBackend)]


def outline(agent_id: str, file: AgentsFile, *, alone: bool = False) -> Agent:
    """Make an agent for inspection: its graph and hooks are real, its model never answers.

    Needs no key and opens no store.

    Raises:
        ConfigError: There is no such agent, or it names a tool that does not exist.
    """
    named = file.agent(agent_id).model
    if isinstance(named, OwnCode):
        stand_in = _stand_in(named.use)
    else:
        stand_in = _stand_in(named if isinstance(named, str) else named.model)
    hooks = hooks_of(agent_id, file, to_look_at=True)
    nobody: Mapping[str, Any] = dict.fromkeys(file.agents)  # they get no tasks
    store = InMemorySaver()  # without one, an agent with approvals would be refused
    how: dict[str, Any] = {"store": store, "model": stand_in, "hooks": hooks, "agents": nobody}
    made = build_agent(agent_id, file, **how, alone=alone)
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
    made_next: str | None = None,
) -> dict[str, ModelChoice]:
    """Check that agents of a file can be made, with the agents below them; make and start nothing.

    Args:
        file: The configuration.
        ids: The agents; None for all.
        model: A model to use instead of those in the file.
        loads_code: Whether to make the hooks and tools that the file names, since it is trusted.
        made_next: The agent that is made right after this, and with it hooks of one's own; they
            are not made twice.

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
    with faults.at("long_term", "index"):
        if file.long_term is not None:
            VectorIndex.of(file.long_term.options()["index"])
    wanted = [*(file.agents if ids is None else ids)]
    models: dict[str, ModelChoice] = {}
    given = resolve_model(model, base_dir=file.base_dir) if isinstance(model, str) else model
    for agent_id in wanted:
        loads = loads_code and agent_id != made_next
        choice = _check_agent(agent_id, file, faults, given, loads_code, loads_own=loads)
        if choice is not None:
            models[agent_id] = choice
        others = file.agents[agent_id].others
        wanted += [name for name in others if name in file.agents and name not in wanted]
    faults.refuse()
    return models


def _check_agent(
    agent_id: str,
    file: AgentsFile,
    faults: _Faults,
    model: ModelChoice | None,
    loads_code: bool,
    *,
    loads_own: bool,
) -> ModelChoice | None:
    """Find the faults of one agent; return its model, if it has one."""
    config, known = file.agent(agent_id), len(faults.lines)
    at = partial(faults.at, "agents", agent_id)
    own = [*file.code(agent_id)]
    for key, reference in own:
        with faults.at(*key):
            look_up(reference, file.base_dir)
    sound = len(faults.lines) == known
    with at("model"):
        if model is None and (not isinstance(config.model, OwnCode) or (loads_code and sound)):
            model = _model_of(agent_id, file)
    with at("tools"):
        file.check_tools(BUILTINS, agent_id)
        names = [name for name in config.tools if not is_code(name)]
        builtin(names, file.base_dir, search=config.search)
    _check_names(agent_id, file, faults)
    with ExitStack() as stack:
        more = _checked_hooks(agent_id, file, faults, loads_code, loads_own and sound, stack)
        backend = None
        with at("backend"):
            rules = rules_of(config, file)
            backend = checked_backend(config, file.base_dir, rules, stack)
        with at("budget"):
            hooks = _inside(activate(config, backend), more)
            with at("hooks"):
                compile_hooks(hooks)
            # the code of the others is loaded too: with handoffs, and their contexts
            below = any(file.agent(one).context for one in config.subagents if one in file.agents)
            if len(faults.lines) == known and (loads_own or not (own or config.handoffs or below)):
                nobody: Mapping[str, Any] = dict.fromkeys(file.agents)
                stand_in: dict[str, Any] = {
                    "store": InMemorySaver(),
                    "model": _stand_in("model"),
                    "agents": nobody,
                }
                with at():
                    made = build_agent(agent_id, file, hooks=hooks, **stand_in)
                    check_context(agent_id, made.spec.context, file)
    return model


def _checked_hooks(
    agent_id: str,
    file: AgentsFile,
    faults: _Faults,
    loads_code: bool,
    loads_own: bool,
    stack: ExitStack,
) -> list[BaseHook]:
    """Find the faults of the hooks and the middleware that an agent names; return the hooks.

    The stack closes those that were made here.
    """
    config, more = file.agent(agent_id), []
    rules = Rules()
    with faults.at("agents", agent_id, "backend"):
        rules = rules_of(config, file)
    for name, index, entry in _named_hooks(config):
        with faults.at("agents", agent_id, name, index):
            must_hold_nothing({"use": entry.use, "args": entry.args}, rules)
            if loads_own if any(code_in({"use": entry.use, "args": entry.args})) else loads_code:
                load = code_loader(agent_id, file)
                more.append(_named_hook(name, entry, file, load))
                if not (is_code(entry.use) and load(entry.use) is more[-1]):
                    stack.callback(close_checked, more[-1])
            elif name == "middleware":
                must_exist(entry.use, entry.args)
    with faults.at("agents", agent_id, "hooks"):
        more += added_hooks(file)
        _check_own(more, file, rules)
    return more


def _check_names(agent_id: str, file: AgentsFile, faults: _Faults) -> None:
    """Find what an agent names and the file, or this machine, does not have."""
    config, key = file.agent(agent_id), ("agents", agent_id)
    for kind, names in (("subagents", config.subagents), ("handoffs", config.handoffs)):
        for name in names:
            if name not in file.agents:
                hint = did_you_mean(name, file.agents)
                faults.add((*key, kind, name), f"there is no agent {name}{hint}")
    for block in ("skills", "memory"):
        if getattr(config, block) is not None and config.backend is None:
            text = "needs a backend, which reads its files; add backend: {type: local}"
            faults.add((*key, block), text)
    if config.recall and file.long_term is None:
        faults.add((*key, "recall"), "needs the long-term store; add long_term: {} to the file")
    if config.mcp_servers and find_spec("mcp") is None:
        faults.add((*key, "mcp_servers"), MCP_MISSING)
    if config.backend is not None and config.backend.type == "docker" and not find_spec("docker"):
        faults.add((*key, "backend"), DOCKER_MISSING)
