"""Build agents from agents.yaml."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self

from langchain_core.language_models import FakeListChatModel
from langgraph.checkpoint.memory import InMemorySaver

from wick_graph.backends import LocalBackend, Rules
from wick_graph.backends.docker import DockerBackend
from wick_graph.backends.docker.backend import make_folder
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
from wick_graph.config.code import look_up
from wick_graph.config.fields import is_code
from wick_graph.config.schema import Additions, OwnCode
from wick_graph.config.trusted import PYCACHE, CodeLoader
from wick_graph.core.moments import JournalOptions
from wick_graph.engine.agent import Agent
from wick_graph.errors import ConfigError, WickError, did_you_mean
from wick_graph.hooks import FilesystemHook, MemoryHook, SkillsHook, compile_hooks
from wick_graph.hooks.approvals import misspelt
from wick_graph.hooks.from_config import activate, backend_of
from wick_graph.hooks.protocol import BaseHook
from wick_graph.middleware import make, make_object, must_hold_nothing, own_hook
from wick_graph.models.resolve import ModelChoice, resolve_model
from wick_graph.store import SqlSaver
from wick_graph.subagents import Background, Subagent, delegation
from wick_graph.tools import tool as make_tool
from wick_graph.tools.bound import bind_tool, bind_tools
from wick_graph.tools.builtin_tools import builtin
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
        self.tools = ToolStore(common)
        """Tools to add and remove at run time, for all agents or for one id."""
        self.model = model
        """A model to use instead of those in the file."""
        self.given: Mapping[str, Agent] = given or {}
        """Agents made in Python, by id."""
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

    def _build(self, agent_id: str) -> Agent:
        if agent_id in self.given:
            return self.copy_of(agent_id)
        hooks = hooks_of(agent_id, self.config)
        self.backends += backends_in(hooks)
        return build_agent(
            agent_id,
            self.config,
            store=lambda: self.store,
            model=self.model,
            hooks=hooks,
            tool_store=self.tools,
            mcp_servers=self.servers_of(agent_id),
            agents=self,
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
        own = isinstance(config.model, OwnCode) and model is None
        model = (
            _own_model(agent_id, file)
            if own
            else resolve_model(model or config.model_spec(), base_dir=file.base_dir)
        )
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
        names = [name for name in config.tools if not is_code(name)]
        tools: list[Any] = builtin(names, file.tools_dir, search=config.search)
    except ConfigError as error:
        raise file.error(("agents", agent_id, "tools"), str(error)) from None
    if more := [*_own_tools(agent_id, file), *file.additions.tools]:
        tools += more
        try:
            bind_tools(tools)
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


def _own_model(agent_id: str, file: AgentsFile) -> ModelChoice:
    """Make the model of one's own that an agent names.

    Raises:
        ConfigError: It cannot be made, or is no chat model.
    """
    config = file.agent(agent_id)
    assert isinstance(config.model, OwnCode)
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


def code_problems(file: AgentsFile, *, trusted: bool) -> Iterator[ConfigError]:
    """Yield what is wrong with the code of one's own that a file names.

    Args:
        file: The configuration.
        trusted: Whether to load the code; otherwise its source is read.
    """
    sound = True
    for key, reference in file.code():
        try:
            look_up(reference, file.base_dir)
        except ConfigError as error:
            sound = False
            yield file.error(key, str(error))
    for agent_id, config in file.agents.items() if sound and trusted else ():
        checks: list[Callable[[], Any]] = [partial(_tools_of, agent_id, file, None)]
        if config.hooks or config.middleware:
            checks.append(partial(hooks_of, agent_id, file, to_look_at=True))
        if isinstance(config.model, OwnCode):
            checks.append(partial(_own_model, agent_id, file))
        for check in checks if any(file.code(agent_id)) else ():
            try:
                check()
            except WickError as error:
                yield ConfigError(str(error))


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


def hooks_of(
    agent_id: str, file: AgentsFile, *, to_look_at: bool = False, inside: bool = False
) -> list[BaseHook]:
    """Make the hooks that an agent's configuration enables.

    Creates the folder of its backend if it is missing, unless the agent is only inspected.

    Args:
        agent_id: The agent's id in the file.
        file: The configuration.
        to_look_at: Whether the agent is only inspected.
        inside: Whether all its files are below the folder of its backend, whatever links say.

    Raises:
        ConfigError: The folder cannot be opened, or a hook cannot work as configured.
    """
    config = file.agent(agent_id)
    rules = Rules() if to_look_at else rules_of(config, file)
    load = code_loader(agent_id, file)
    more: list[Any] = []
    key: tuple[str | int, ...] = ("backend",)
    try:
        workdir = _workdir(config, file.base_dir, to_look_at)
        backend = backend_of(config, workdir, rules, inside=inside)
        entries: list[tuple[str, int, OwnCode]] = [
            *(("hooks", index, entry) for index, entry in enumerate(config.hooks)),
            *(("middleware", index, entry) for index, entry in enumerate(config.middleware)),
        ]
        for name, index, entry in entries:
            key = (name, index)
            must_hold_nothing({"use": entry.use, "args": entry.args}, rules)
            maker = own_hook if name == "hooks" else make
            more.append(maker(entry.use, entry.args, file.base_dir, load))
        key = ("hooks",)
        more += file.additions.hooks
        _check_own(more, file, rules)
        key = ("budget",)
        hooks = _inside(activate(config, backend), more)
        key = ("hooks",)
        compile_hooks(hooks)
    except (ConfigError, OSError) as error:
        raise file.error(("agents", agent_id, *key), str(error)) from None
    return hooks


def _check_own(hooks: Sequence[Any], file: AgentsFile, rules: Rules) -> None:
    """Keep the files of hooks made in Python from what governs agents, and tenants apart.

    Raises:
        ConfigError: Tenants would share the files of a hook.
    """
    for hook in hooks:
        if isinstance(hook, FilesystemHook):
            hook.keep_from(rules)
        if has_files(hook) and file.tools_dir != file.base_dir:
            raise ConfigError(
                f"the tenants of the server would share the files of the hook {hook.name}; "
                "declare backend:, skills: or memory: instead"
            )


def has_files(hook: Any) -> bool:
    """Say whether a hook reads or writes files of its own."""
    return isinstance(hook, FilesystemHook | MemoryHook | SkillsHook)


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
    name = (
        named
        if isinstance(named, str)
        else named.use
        if isinstance(named, OwnCode)
        else named.model
    )
    stand_in = ModelChoice(model=FakeListChatModel(responses=[]), name=name)
    hooks = hooks_of(agent_id, file, to_look_at=True)
    nobody: Mapping[str, Any] = dict.fromkeys(file.agents)  # they get no tasks
    store = InMemorySaver()  # without one, an agent with approvals would be refused
    made = build_agent(agent_id, file, store=store, model=stand_in, hooks=hooks, agents=nobody)
    servers = tuple(Unasked(name) for name in file.agent(agent_id).mcp_servers)
    made.spec = replace(made.spec, beside=servers)
    return made
