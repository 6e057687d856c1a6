"""The agents of a tenant: built from the configuration, and those that the tenant added."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any, Final

from wick_graph.backends import LocalBackend, Rules
from wick_graph.backends.docker import DockerBackend
from wick_graph.backends.docker.container import Status
from wick_graph.config import (
    AgentConfig,
    AgentsFile,
    ModelConfig,
    ModelTarget,
    place_of,
)
from wick_graph.config.schema import OwnCode
from wick_graph.config.trusted import skills_folder
from wick_graph.engine.agent import Agent
from wick_graph.engine.guest import GuestAgent
from wick_graph.errors import ConfigError, ModelError, ToolError, WickError
from wick_graph.hooks.protocol import BaseHook
from wick_graph.loading import Agents, backends_in, build_agent, has_files, hooks_of
from wick_graph.machine import identity, must_confine
from wick_graph.models.resolve import DEMO, ModelChoice, resolve_model
from wick_graph.models.spec import AUTO, PROVIDERS, ModelSpec, parse
from wick_graph.service.folders import config_for, folder_name
from wick_graph.service.options import Problem, log
from wick_graph.service.skills import UploadedSkills
from wick_graph.store import SqlSaver
from wick_graph.store.notices import topic
from wick_graph.subagents import Background
from wick_graph.tools import FuncTool
from wick_graph.tools.http import HTTPTool
from wick_graph.web import Client
from wick_graph.web.transport import clients

# --- A tenant's agents: built from the configuration, changed for this tenant only.


class TenantAgents(Mapping[str, Agent]):
    """The agents of one tenant.

    The configuration never changes: a tenant that switches a hook off, or adds an agent, gets its
    own agent.
    """

    def __init__(
        self,
        agents: Agents,
        *,
        whole: Callable[[], AgentsFile],
        rules: Callable[[], Client],
        tell: Callable[..., None],
        protect: Callable[[], None],
    ) -> None:
        self._agents = agents
        self._whole = whole
        """Returns the configuration as it is for the tenant `local`."""
        self._rules = rules
        """Returns what sends requests to addresses of callers."""
        self.tell = tell
        """Puts an event on the tenant's bus."""
        self.skills = UploadedSkills(
            skills_folder(agents.config.base_dir) / folder_name(agents.tenant), protect
        )
        self._own: dict[str, AgentConfig] = {}
        self._off: dict[str, frozenset[str]] = {}
        self._made: dict[str, Agent] = {}
        self._kits: dict[str, list[BaseHook]] = {}
        """The hooks of agents with served files or switched hooks."""
        self._building = threading.RLock()
        self._awaited: dict[tuple[asyncio.AbstractEventLoop, str], asyncio.Task[Agent]] = {}
        """Agents that are being built; a thread of the loop's for each reader would leave none."""
        self._version = 0
        """The version of what is stored of this tenant, as it is taken over here."""
        self._stored: dict[str, Any] = {}
        """The tenant's own agents as they are stored."""
        self._served: dict[tuple[str | None, str], Any] = {}
        """The tools of other servers as they are stored, by agent and name."""
        self._opened: dict[LocalBackend | DockerBackend, str] = {}

    @property
    def store(self) -> SqlSaver:
        """The store with the tenant's threads."""
        return self._agents.store

    @property
    def tools(self) -> Any:
        """The tools registered at run time."""
        return self._agents.tools

    @property
    def changed(self) -> bool:
        """Whether the tenant has agents that are only in memory."""
        return bool(self._own.keys() - self._stored)

    @property
    def busy(self) -> bool:
        """Whether an agent has a background task, which closing would cancel."""
        return any(tasks.busy for tasks in self._agents.background)

    @property
    def levels(self) -> list[str]:
        """The sandbox levels at which the built agents may run commands; empty for none."""
        given = (backends_in(agent.hooks) for agent in self._agents.given.values())
        every = [*self._agents.backends, *chain.from_iterable(given)]
        return [str(getattr(backend, "level", "")) for backend in every]

    def build_all(self) -> None:
        """Build every agent of the file, so that mistakes show at the start.

        Raises:
            ConfigError: An agent cannot be built.
            ModelError: A model cannot be built.
        """
        for agent_id in self._agents:
            self._made[agent_id] = self._build(agent_id)

    async def ready(self, agent_id: str) -> Agent:
        """Return an agent; build it in a thread if needed, in one for all that wait for it.

        Raises:
            Problem: There is no such agent, or it cannot be built.
        """
        if (made := self._made.get(agent_id)) is not None:
            return made
        key = asyncio.get_running_loop(), agent_id
        if (found := self._awaited.get(key)) is None:
            found = asyncio.create_task(asyncio.to_thread(self.__getitem__, agent_id))
            self._awaited[key] = found
            found.add_done_callback(lambda _: self._awaited.pop(key, None))
        return await asyncio.shield(found)

    @property
    def default_id(self) -> str:
        """The id of the default agent."""
        return self._agents.config.default_id

    def __getitem__(self, agent_id: str) -> Agent:
        if agent_id not in self:
            raise Problem(404, "agent not found")
        if (known := self._made.get(agent_id)) is not None:
            return known
        with self._building:
            if agent_id not in self:  # it was removed meanwhile
                raise Problem(404, "agent not found")
            if agent_id not in self._made:
                try:
                    self._made[agent_id] = self._build(agent_id)
                except WickError as error:  # its text may name files and addresses of the host
                    raise self._unbuilt(agent_id, error) from None
            return self._made[agent_id]

    def __contains__(self, agent_id: object) -> bool:
        return agent_id in self._own or agent_id in self._agents

    def __iter__(self) -> Iterator[str]:
        yield from self._agents
        yield from (key for key in [*self._own] if key not in self._agents)  # others change it

    def __len__(self) -> int:
        return len({*self._agents, *self._own})

    def config(self, agent_id: str) -> AgentConfig:
        """Return an agent's configuration.

        Raises:
            Problem: There is no such agent.
        """
        found = self.file.agents.get(agent_id)
        if found is None:
            raise Problem(404, "agent not found")
        return found

    def backend(self, agent_id: str) -> LocalBackend | DockerBackend | None:
        """Return an agent's backend, or None.

        Raises:
            Problem: There is no such agent.
        """
        return next(iter(backends_in(self._hooks(agent_id))), None)

    def machine(self, agent_id: str) -> str:
        """Return the machine that has the files of an agent, or of those that work for it.

        It is empty if there are none, or all machines share them, or the agent was removed.
        """
        file, given = self.file, self._agents.given
        if not self.store.has_machines or agent_id in given or agent_id not in file.agents:
            return ""
        every = [file.agents[key] for key in (agent_id, *below_in(file, agent_id))]
        alone = any(one.backend is not None and not one.backend.shared for one in every)
        return identity() if alone else ""

    async def check(self, config: AgentConfig, seconds: float) -> None:
        """Refuse what a caller may not configure: models, addresses, paths, sub-agents.

        Args:
            config: An agent of the caller.
            seconds: Time limit for looking up a host.

        Raises:
            Problem: It is refused; the text says what.
        """
        self._check_model(config)
        check_parts(config)
        _check_below(config.subagents, self)
        for target in models_of(config):
            if not isinstance(target, str) and target.base_url is not None:
                try:
                    await self._rules().check(target.base_url, seconds)
                except ToolError as error:
                    raise Problem(409, f"model.base_url: {error}") from None

    def add(self, agent_id: str, config: AgentConfig) -> Agent:
        """Add an agent for this tenant that `check` has passed.

        Raises:
            Problem: The id is taken, or the agent cannot be built.
        """
        with self._building:
            if agent_id in self:
                raise Problem(409, "agent exists")
            if len(self._own) >= _MOST_OWN:
                raise Problem(409, f"there are {_MOST_OWN} agents of your own; remove one first")
            _check_below(config.subagents, self)  # `check` was a while ago
            kept = self._may_keep(config)
            self._own[agent_id] = self._placed(agent_id, config)
            try:
                made = self._made[agent_id] = self._build(agent_id)
                self.bind_backends()
                if kept:
                    self._keep(agent_id, _as_data(config))
            except Exception as error:
                self._forget(agent_id)
                if isinstance(error, ModelError):
                    raise Problem(409, f"the agent cannot be built: {error}") from None
                if isinstance(error, WickError):  # its text may name files and their contents
                    raise self._unbuilt(agent_id, error, 409) from None
                raise
            self._tell_of(agent_id, "added")
            return made

    def _check_model(self, config: AgentConfig) -> None:
        """Refuse a model that reads files of the server, such as scripts, or gets its secrets.

        Raises:
            Problem: A tenant may not use this model.
        """
        every = self._agents.config.agents.values()
        named = [one for one in every if not isinstance(one.model, OwnCode)]
        known = {parse(one.model_spec()).provider for one in named}
        for target in models_of(config):
            try:
                spec = parse(target if isinstance(target, str) else target.spec())
            except WickError as error:
                raise Problem(409, f"model: {error}") from None
            if spec.provider == "scripted":
                if spec.name != DEMO:
                    raise Problem(409, "model: a script is a file of the server; name a model")
            elif spec.provider not in {AUTO, *PROVIDERS, *known}:
                names = ", ".join(name for name in PROVIDERS if name != "scripted")
                raise Problem(409, f"model: use one of {names}, or a provider of agents.yaml")
            if (why := _refusal(spec)) is not None:
                raise Problem(409, f"model{why}")

    def _unbuilt(self, agent_id: str, error: Exception, status: int = 500) -> Problem:
        log.error("the agent %s cannot be built: %s", agent_id, error)
        return Problem(status, "the agent cannot be built")

    def remove(self, agent_id: str) -> None:
        """Remove an agent that this tenant added.

        Raises:
            Problem: There is no such agent, or the file defines it.
        """

        def drop(kept: dict[str, Any]) -> None:
            here = {k: one.subagents for k, one in self._own.items() if k not in self._stored}
            kept_ones = {k: one.get("subagents", ()) for k, one in kept["agents"].items()}
            for key, below in {**here, **kept_ones}.items():
                if agent_id in below and key != agent_id:
                    raise Problem(409, f"the agent {key} gives it tasks; remove that one first")
            kept["agents"].pop(agent_id, None)
            kept["off"].pop(agent_id, None)
            kept["tools"] = [one for one in kept["tools"] if one["agent"] != agent_id]

        with self._building:
            if agent_id not in self:
                raise Problem(404, "agent not found")
            if agent_id not in self._own:
                raise Problem(
                    409, "the agent is defined in the configuration file; remove it there"
                )
            self._change(drop)
            if agent_id in self._own:  # it was only in memory
                self._forget(agent_id)
                self._tell_of(agent_id, "removed")

    # --- What is stored of a tenant: its agents, tools and switched hooks, under one version.

    def _may_keep(self, config: AgentConfig) -> bool:
        """Return whether an agent may be stored: its keys are stored encrypted only.

        Raises:
            Problem: It may not, and other servers of the database would not know it.
        """
        keys = (one.api_key for one in models_of(config) if not isinstance(one, str))
        if not any(keys) or self.store.is_encrypted:
            return True
        if not self.store.files:
            raise Problem(409, "model.api_key: needs an encrypted store; the server has none")
        log.warning("the agent %s is kept in memory: the store is not encrypted", config.name)
        return False

    def _keep(self, agent_id: str, data: Any) -> None:
        def put(kept: dict[str, Any]) -> None:
            if agent_id in kept["agents"]:  # another server was faster
                raise Problem(409, "agent exists")
            _check_below(
                (one for one in data.get("subagents", ()) if one in self._stored), kept["agents"]
            )
            kept["agents"][agent_id] = data

        self._stored[agent_id] = data  # what is taken over is what was built
        self._change(put)

    def _must_be_kept(self, agent_id: str, kept: Mapping[str, Any]) -> None:
        """Check that no server has removed an agent of the tenant's own meanwhile.

        Raises:
            Problem: One has: what is kept for it would be for a later agent of that id.
        """
        if agent_id not in self or (agent_id in self._stored and agent_id not in kept["agents"]):
            raise Problem(404, "agent not found")

    def _change(self, change: Callable[[dict[str, Any]], None]) -> None:
        """Change what is stored of this tenant, take it over, and tell the other processes."""

        def changed(kept: Any) -> dict[str, Any]:
            made = {"version": 0, "agents": {}, "off": {}, "tools": [], **(kept or {})}
            change(made)
            if len(json.dumps(made)) > _MOST_STORED:
                raise Problem(409, "the agents and tools of your own are too large; remove some")
            return {**made, "version": max(made["version"], self._version) + 1}

        self.take_over(self.store.mailbox.change_fact(CHANGES, changed))
        self.store.notices.tell(topic(CHANGES, self._agents.tenant))

    def take_over(self, kept: Mapping[str, Any] | None) -> None:
        """Do here what the tenant has changed at any server."""
        if kept is None or kept["version"] <= self._version:
            return
        with self._building:
            if kept["version"] <= self._version:
                return
            self._version = kept["version"]
            self._take_agents(kept["agents"])
            for agent_id in self._off.keys() | kept["off"].keys():
                off = frozenset(kept["off"].get(agent_id, ()))
                if off != self._off.get(agent_id, frozenset()):
                    self._off[agent_id] = off
                    self._made.pop(agent_id, None)
                    self._tell_of(agent_id, "changed")
            self._take_tools({(one["agent"], one["name"]): one for one in kept["tools"]})

    def _take_agents(self, kept: Mapping[str, Any]) -> None:
        for agent_id, known in [*self._stored.items()]:
            if kept.get(agent_id) != known:
                self._forget(agent_id)
                self._tell_of(agent_id, "removed")
        for agent_id in [key for key in kept if key not in self._stored and key not in self]:
            self._stored[agent_id] = kept[agent_id]
            try:
                config = AgentConfig.model_validate(kept[agent_id], strict=False)
                self._check_model(config)
                check_parts(config)
                self._own[agent_id] = self._placed(agent_id, config)
                self.bind_backends()
            except (Problem, WickError, ValueError) as error:  # as if it were not there
                log.error("the stored agent %s is left out: %s", agent_id, error)
                self._own.pop(agent_id, None)
            else:
                self._tell_of(agent_id, "added")

    def _take_tools(self, kept: Mapping[tuple[str | None, str], Any]) -> None:
        tell = partial(self.tell, "config_changed")
        for agent_id, name in self._served.keys() - kept.keys():
            self.tools.deregister(name, agent=agent_id)
            tell(agent_id=agent_id, tool=name, change="removed")
        for (agent_id, name), one in kept.items():
            if self._served.get((agent_id, name)) == one:
                continue
            parts = {key: value for key, value in one.items() if key != "agent"}
            try:
                tool = HTTPTool(**parts, client=self._rules())
                self.tools.register(tool, agent=agent_id, override=True)
            except (WickError, TypeError) as error:
                log.error("the stored tool %s is left out: %s", name, error)
            else:
                tell(agent_id=agent_id, tool=name, change="added")
        self._served = {**kept}

    def register(self, tool: HTTPTool, agent_id: str | None) -> None:
        """Register a tool of another server for one agent, or for all of the tenant.

        Raises:
            Problem: There is too much of the tenant's own.
        """
        parts = ("name", "description", "parameters", "callback_url")
        one = {"agent": agent_id, **{name: getattr(tool, name) for name in parts}}

        def put(kept: dict[str, Any]) -> None:
            if agent_id is not None:
                self._must_be_kept(agent_id, kept)
            tools = {(known["agent"], known["name"]): known for known in kept["tools"]}
            kept["tools"] = [*{**tools, (agent_id, tool.name): one}.values()]

        self._change(put)

    def deregister(self, name: str, agent_id: str | None) -> bool:
        """Remove a tool; return False if it was not there."""
        if (agent_id, name) not in self._served:
            return bool(self.tools.deregister(name, agent=agent_id))

        def drop(kept: dict[str, Any]) -> None:
            left = (one for one in kept["tools"] if (one["agent"], one["name"]) != (agent_id, name))
            kept["tools"] = [*left]

        self._change(drop)
        return True

    def _forget(self, agent_id: str) -> None:
        """Drop an agent of the tenant's own, and close its files."""
        self._own.pop(agent_id, None)
        self._stored.pop(agent_id, None)
        self._made.pop(agent_id, None)
        self._off.pop(agent_id, None)
        self._kits.pop(agent_id, None)
        for backend in [one for one, key in self._opened.items() if key == agent_id]:
            del self._opened[backend]  # also those from before a reload of the file
            backend.close()

    def _placed(self, agent_id: str, config: AgentConfig) -> AgentConfig:
        """Return an agent of the tenant's own with its files in the tenant's folder."""
        file = self._whole()
        file = file.model_copy(update={"agents": {**file.agents, agent_id: config}})
        backend = config_for(file, self._agents.tenant).agents[agent_id].backend
        made: dict[str, Any] = {"backend": backend}
        if config.skills is not None and backend is not None:
            with suppress(Problem):  # then it sees no uploaded skills; the log says why
                self.skills.open()
                uploaded = str(self.skills.folder)
                paths = (uploaded, *config.skills.paths)
                made["skills"] = config.skills.model_copy(update={"paths": paths})
                if backend.type == "local":  # a container sees it anyway
                    readable = (*backend.readable, uploaded)
                    made["backend"] = backend.model_copy(update={"readable": readable})
        placed: AgentConfig = config.model_copy(update=made)
        return placed

    def bind_backends(self) -> None:
        """Keep all tools from the skills of the tenant's own agents, and follow the containers.

        Raises:
            ConfigError: Commands of another agent could write them.
        """
        file = self.file
        paths = [
            f"{place_of(config, file.base_dir, path)}/"
            for config in [*self._own.values()]
            for path in (config.skills.paths if config.skills and config.backend else ())
        ]
        uploads = Rules(control=(f"{skills_folder(file.base_dir)}/",))
        for backend, agent_id in self._backends():
            if self.skills.has_any or _can_keep(backend, uploads):
                backend.keep_from(uploads)
            if paths:
                backend.keep_from(Rules(control=tuple(paths)))
            if isinstance(backend, DockerBackend):
                backend.on_status(partial(self._container_is, agent_id))

    def _container_is(self, agent_id: str, status: Status) -> None:
        self.tell("container_status", agent_id=agent_id, container_status=status)

    def _tell_of(self, agent_id: str, change: str) -> None:
        self.tell("config_changed", agent_id=agent_id, change=change)

    def _backends(self) -> Iterator[tuple[LocalBackend | DockerBackend, str]]:
        """Yield each open backend with the id of its agent, also those of earlier versions."""
        yield from (*self._agents.backends.items(), *self._opened.items())
        for agent_id, agent in self._agents.given.items():
            yield from ((backend, agent_id) for backend in backends_in(agent.hooks))

    def containers(self) -> dict[str, list[DockerBackend]]:
        """Return the backends with containers of each agent that was built."""
        found: dict[str, list[DockerBackend]] = {}
        for backend, agent_id in self._backends():
            if isinstance(backend, DockerBackend) and agent_id in self:
                found.setdefault(agent_id, []).append(backend)
        return found

    def stop_containers(self, agent_id: str, *, restart: bool = False) -> Status:
        """Stop an agent's containers, and launch one if asked; return the state afterwards.

        Raises:
            Problem: There is no such agent, it has no containers, or the engine refuses.
        """
        hooks = self[agent_id].hooks
        used = [one for one in backends_in(hooks) if isinstance(one, DockerBackend)]
        if not used:
            raise Problem(
                409, f"the agent {agent_id} has no container; give it a backend of type docker"
            )
        try:
            for backend in dict.fromkeys((*self.containers().get(agent_id, ()), *used)):
                backend.stop()
            if restart:
                used[0].launch()
        except (ConfigError, ToolError, OSError) as error:  # its text may name files of the host
            log.error("a container of the agent %s: %s", agent_id, error)
            raise Problem(503, "the container engine refused; the server's log says why") from None
        return used[0].status

    def switch(self, agent_id: str, *, on: Sequence[str], off: Sequence[str]) -> list[str]:
        """Switch hooks of an agent on and off for this tenant; return the names that are on.

        Raises:
            Problem: There is no such agent, or it has no such hook to switch on.
        """

        def change(kept: dict[str, Any]) -> None:
            self._must_be_kept(agent_id, kept)
            kept["off"][agent_id] = sorted({*kept["off"].get(agent_id, ()), *off} - {*on})

        with self._building:
            names = [hook.name for hook in self._hooks(agent_id)]
            for name in on:
                if name not in names:
                    raise Problem(409, f"the agent has no hook {name} to switch on; configure it")
            self._change(change)
            self._made.pop(agent_id, None)
            return [name for name in names if name not in self._off.get(agent_id, ())]

    def of(self, file: AgentsFile, *, built: bool = False) -> Agents:
        """Return the agents of another configuration, for `replace`.

        With `built`, all of them are built.

        Raises:
            ConfigError: An agent cannot be built.
            ModelError: A model cannot be built.
        """
        agents = self._agents.of(file)
        for agent_id in agents if built else ():
            agents[agent_id]
        return agents

    def replace(self, agents: Agents) -> None:
        """Switch to the agents of another configuration; running runs keep theirs.

        It waits for an agent that is being built, so it is not for the event loop.
        """
        with self._building:  # else what is being built by the old one would stay
            before, self._agents = self._agents.config, agents
            self._made.clear()
            self._kits.clear()
        now = agents.config
        for agent_id in before.agents.keys() - now.agents.keys():
            self._tell_of(agent_id, "removed")
        for agent_id, config in now.agents.items():
            known = before.agents.get(agent_id)
            if known is None:
                self._tell_of(agent_id, "added")
            elif known != config or any(now.code(agent_id)):
                self._tell_of(agent_id, "changed")

    def close(self) -> None:
        """Stop the containers; close the files and the store."""
        while self._opened:
            self._opened.popitem()[0].close()
        self._agents.close()

    @property
    def file(self) -> AgentsFile:
        """The configuration with the tenant's own agents."""
        file = self._agents.config
        agents = {**file.agents, **self._own}
        return file.model_copy(update={"agents": agents}) if self._own else file

    def _hooks(self, agent_id: str) -> Sequence[BaseHook]:
        with self._building:  # one that is removed meanwhile would leave its hooks to the next one
            self.config(agent_id)
            given = self._agents.given.get(agent_id)
            if given is not None:
                return given.hooks
            if agent_id not in self._kits:
                try:
                    own = agent_id in self._own
                    made = self._kits[agent_id] = hooks_of(agent_id, self.file, inside=own)
                except WickError as error:
                    raise self._unbuilt(agent_id, error) from None
                self._opened |= dict.fromkeys(backends_in(made), agent_id)
                self.bind_backends()
            return self._kits[agent_id]

    def _build(self, agent_id: str) -> Agent:
        for below in below_in(self.file, agent_id):
            if below not in self._made:  # else its first task would build it, on the event loop
                self._made[below] = self._build_one(below)
        return self._build_one(agent_id)

    def _build_one(self, agent_id: str) -> Agent:
        off, own = self._off.get(agent_id, frozenset()), agent_id in self._own
        if not own and not off:
            made = self._agents[agent_id]
            self.bind_backends()
            return made
        if agent_id in self._agents.given:
            return self._agents.copy_of(agent_id, without=off)
        hooks = [hook for hook in self._hooks(agent_id) if hook.name not in off]
        model: str | ModelChoice | None = self._agents.model
        if own and model is None:
            model = self._model_of(self._own[agent_id])
        try:
            made = build_agent(
                agent_id,
                self.file,
                store=lambda: self.store,
                model=model,
                hooks=hooks,
                tool_store=self.tools,
                mcp_servers=() if own else self._agents.servers_of(agent_id),
                agents=self if own else self._agents,
            )
            if own:
                self._agents.background += (
                    one for one in made.hooks if isinstance(one, Background)
                )
            return made
        except ConfigError as error:
            if own:
                raise ConfigError(str(error).split(": ", 1)[-1]) from None
            raise

    def _model_of(self, config: AgentConfig) -> ModelChoice:
        """Build the model of a tenant's own agent; its requests pass the rules for addresses."""
        spec = _guarded(config.model_spec(), self._rules())
        return resolve_model(spec, base_dir=self.file.base_dir)


def _check_below(names: Iterable[str], known: Container[str]) -> None:
    for name in names:
        if name not in known:
            raise Problem(409, f"subagents: there is no agent {name}")


def _can_keep(backend: LocalBackend | DockerBackend, rules: Rules) -> bool:
    """Return whether commands can be kept from what governs agents."""
    try:
        if isinstance(backend, LocalBackend):
            backend.must_keep(rules)
    except ConfigError:
        return False
    return True


def _guarded(spec: Any, rules: Client) -> Any:
    """Return a model's settings with clients that send its own key alone, to allowed addresses."""
    if not isinstance(spec, Mapping):
        return spec
    made = {**spec, "fallbacks": [_guarded(one, rules) for one in spec.get("fallbacks", ())]}
    if "base_url" in spec:
        plain, async_ = clients(rules, {"Authorization": f"Bearer {spec['api_key'].strip()}"})
        made["params"] = {
            "http_client": plain,
            "http_async_client": async_,
            "openai_proxy": None,  # the clients use none
        }
    return made


def models_of(config: AgentConfig) -> list[str | ModelTarget]:
    """List an agent's model and its fallbacks."""
    model = config.model
    if isinstance(model, ModelConfig):
        return [model, *model.fallbacks]
    return [model] if isinstance(model, str) else []


def _refusal(spec: ModelSpec) -> str | None:
    """Say why a caller may not use a model, as the rest of a sentence."""
    if spec.params:
        return ".params: settings of the model's class are the server's; leave them out"
    if any("${" in text for text in (spec.api_key or "", spec.base_url or "", spec.model)):
        return ": variables are the server's; write the value itself"
    if spec.api_key is not None and not (spec.api_key.isascii() and spec.api_key.isprintable()):
        return ".api_key: has characters that no key has"
    if spec.base_url is None:
        return None
    if spec.provider != "openai":
        return ".base_url: is for provider openai, and servers compatible with it"
    if not spec.api_key:
        return ".base_url: needs an api_key of its own beside it; the server's keys never go there"
    return None


def check_parts(config: AgentConfig) -> None:
    """Refuse paths outside the folder of a caller's agent, and parts that need a backend.

    Raises:
        Problem: Something is refused.
    """
    backend = config.backend
    if backend is not None or "ls" in config.tools:
        try:
            must_confine()
        except ConfigError as error:
            raise Problem(409, str(error)) from None
    if backend is not None and backend.type == "docker" and "execute" in backend.model_fields_set:
        raise Problem(400, "backend.execute: is for type: local; leave it out")
    for key, block in (("skills", config.skills), ("memory", config.memory)):
        if block is not None and backend is None:
            raise Problem(400, f"{key}: needs a backend; add backend: {{type: local}}")
        for path in block.paths if block is not None else ():
            if not _INSIDE.fullmatch(path):
                raise Problem(
                    400, f"{key}.paths: {path!r:.80} is not a plain path below the agent's folder"
                )
            if key == "memory" and not path.endswith((".md", ".txt")):
                raise Problem(400, f"memory.paths: {path!r:.80} is not a .md or .txt file")


_INSIDE: Final = re.compile(r"\w[\w. -]{0,100}(/\w[\w. -]{0,100}){0,8}")
"""A path without `.`, `..`, hidden names and roots."""

_MOST_OWN: Final = 100
"""Agents that a tenant may add."""

_MOST_STORED: Final = 4_000_000
"""Bytes of all agents, tools and switched hooks of a tenant."""

CHANGES: Final = "agents"
"""The key of the fact with what a tenant has changed, and the kind of notices about it."""


def _as_data(config: AgentConfig) -> Any:
    """Return a configuration as JSON has it, with its keys."""
    given = config.model_dump(exclude_unset=True)
    return json.loads(json.dumps(given, default=lambda one: one.get_secret_value()))


def shared_by(agent: Agent) -> str:
    """Name what the copies of an agent made in Python share; empty if it is nothing of tenants."""
    if isinstance(agent, GuestAgent):
        return next((part for part in ("store", "cache") if getattr(agent.source, part)), "")
    if any(map(has_files, agent.hooks)):
        return "files"
    if agent.spec.long_term is not None:
        return "long-term store"
    tools = [*agent.tools, *(one for other in agent.handoffs.values() for one in other.agent.tools)]
    below = any(isinstance(tool, FuncTool) and tool.agents for tool in tools)
    if below or any(isinstance(hook, Background) for hook in agent.hooks):
        return "sub-agents"
    return ""


def below_in(file: AgentsFile, agent_id: str) -> list[str]:
    """List the agents that an agent works with, and theirs in turn."""
    found, left = [agent_id], [agent_id]
    while left:
        for name in file.agents[left.pop()].others:
            if name not in found and name in file.agents:
                found.append(name)
                left.append(name)
    return found[1:]
