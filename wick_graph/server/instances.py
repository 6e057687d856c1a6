"""A tenant's own agents: made from the file's templates, changed for this tenant alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from wick_graph.agent import Agent
from wick_graph.backends import FileSystem
from wick_graph.config import AgentConfig, AgentsFile
from wick_graph.errors import ConfigError, WickError
from wick_graph.hooks.filesystem import FilesystemHook
from wick_graph.hooks.protocol import BaseHook
from wick_graph.loading import Agents, build_agent, hooks_of
from wick_graph.server.problems import Problem, log
from wick_graph.store import SqlSaver


class Instances(Mapping[str, Agent]):
    """The agents of one tenant.

    Templates are never changed: a tenant that switches a hook off, or adds an agent, gets an agent
    of its own.
    """

    def __init__(self, agents: Agents) -> None:
        self._agents = agents
        self._own: dict[str, AgentConfig] = {}
        self._off: dict[str, frozenset[str]] = {}
        self._made: dict[str, Agent] = {}
        self._backends: dict[str, FileSystem | None] = {}

    @property
    def store(self) -> SqlSaver:
        """Where the tenant's threads are."""
        return self._agents.store

    @property
    def tools(self) -> Any:
        """The tools that come and go."""
        return self._agents.tools

    @property
    def changed(self) -> bool:
        """Whether the tenant has agents, hooks or tools of its own, kept in memory alone."""
        scopes = [None, *self]
        return bool(self._own or self._off or any(self.tools.list(key) for key in scopes))

    def build_all(self) -> None:
        """Build every agent of the file, so that a mistake is told before anybody asks.

        Raises:
            ConfigError: An agent cannot be built.
            ModelError: Its model cannot.
        """
        for agent_id in self._agents:
            self._made[agent_id] = self._build(agent_id)

    @property
    def default_id(self) -> str:
        """The agent that is meant where none is named."""
        return self._agents.config.default_id

    def __getitem__(self, agent_id: str) -> Agent:
        if agent_id not in self:
            raise Problem(404, "agent not found")
        if agent_id not in self._made:
            try:
                self._made[agent_id] = self._build(agent_id)
            except WickError as error:  # it may name files and addresses of this machine
                log.error("the agent %s cannot be built: %s", agent_id, error)
                raise Problem(500, "the agent cannot be built") from None
        return self._made[agent_id]

    def __contains__(self, agent_id: object) -> bool:
        return agent_id in self._own or agent_id in self._agents

    def __iter__(self) -> Iterator[str]:
        yield from self._agents
        yield from (key for key in self._own if key not in self._agents)

    def __len__(self) -> int:
        return len({*self._agents, *self._own})

    def config(self, agent_id: str) -> AgentConfig:
        """Return an agent's configuration.

        Raises:
            Problem: There is no such agent.
        """
        if agent_id not in self:
            raise Problem(404, "agent not found")
        return self.file.agents[agent_id]

    def backend(self, agent_id: str) -> FileSystem | None:
        """Return where an agent's files are; None where it has no backend.

        Raises:
            Problem: There is no such agent.
        """
        if agent_id not in self._backends:
            hooks = self._hooks(agent_id)
            found = (hook.backend for hook in hooks if isinstance(hook, FilesystemHook))
            self._backends[agent_id] = next(found, None)
        return self._backends[agent_id]

    def add(self, agent_id: str, config: AgentConfig) -> Agent:
        """Add an agent for this tenant.

        Raises:
            Problem: The id is taken, or the agent cannot be built; nothing is added.
        """
        if agent_id in self:
            raise Problem(409, "agent exists")
        self._own[agent_id] = config
        try:
            made = self._made[agent_id] = self._build(agent_id)
        except WickError as error:
            del self._own[agent_id]
            raise Problem(409, f"the agent cannot be built: {error}") from None
        return made

    def remove(self, agent_id: str) -> None:
        """Remove an agent that this tenant added; those of the file stay.

        Raises:
            Problem: There is none such.
        """
        if agent_id not in self:
            raise Problem(404, "agent not found")
        if agent_id not in self._own:
            raise Problem(409, "the agent is a template of the file; remove it there")
        del self._own[agent_id]
        self._made.pop(agent_id, None)
        self._off.pop(agent_id, None)

    def switch(self, agent_id: str, *, on: Sequence[str], off: Sequence[str]) -> list[str]:
        """Switch hooks of an agent on and off for this tenant; return the names that are on.

        Raises:
            Problem: There is no such agent, or it has no such hook to switch on.
        """
        names = [hook.name for hook in self._hooks(agent_id)]
        for name in on:
            if name not in names:
                raise Problem(409, f"the agent has no hook {name} to switch on; configure it")
        self._off[agent_id] = (self._off.get(agent_id, frozenset()) | {*off}) - {*on}
        self._made.pop(agent_id, None)
        return [name for name in names if name not in self._off[agent_id]]

    def replace(self, file: AgentsFile) -> None:
        """Take other templates; agents that are at work end their runs as they began them."""
        self._agents.replace(file)
        self._made.clear()
        self._backends.clear()

    def close(self) -> None:
        """Close the store."""
        self._agents.close()

    @property
    def file(self) -> AgentsFile:
        """The tenant's view of the file: the templates, and what is its own."""
        file = self._agents.config
        agents = {**file.agents, **self._own}
        return file.model_copy(update={"agents": agents}) if self._own else file

    def _hooks(self, agent_id: str) -> list[BaseHook]:
        self.config(agent_id)
        return hooks_of(agent_id, self.file)

    def _build(self, agent_id: str) -> Agent:
        off, own = self._off.get(agent_id, frozenset()), agent_id in self._own
        if not own and not off:
            return self._agents[agent_id]
        hooks = [hook for hook in self._hooks(agent_id) if hook.name not in off]
        try:
            return build_agent(
                agent_id,
                self.file,
                store=lambda: self.store,
                model=self._agents.model,
                hooks=hooks,
                tool_store=self.tools,
                mcp_servers=() if own else self._agents.servers_of(agent_id),
                agents=None if own else self._agents,
            )
        except ConfigError as error:
            if own:
                raise ConfigError(str(error).split(": ", 1)[-1]) from None
            raise
