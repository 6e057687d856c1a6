"""The agents of a configuration for conversations: with the gateway's hooks, tools and folders."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from wick_graph.config import AgentsFile
from wick_graph.config.schema import Additions
from wick_graph.engine.agent import Agent
from wick_graph.gateway.memory import who_of
from wick_graph.loading import Agents
from wick_graph.service.tenants import config_for
from wick_graph.store import SqlSaver
from wick_graph.store.mailbox import hashed
from wick_graph.subagents.background import Watcher

_MOST_VIEWS: Final = 256
"""How many conversations keep their agents built."""


class OriginAgents:
    """The agents of a file by the place of a conversation.

    The owner's agents work in the folders that the file names. Each other sender, and each group,
    gets the same agents with folders of their own beside these.

    Args:
        file: The configuration.
        additions: The gateway's hooks, tools and rules.
        model: A model to use instead of those in the file.
    """

    def __init__(self, file: AgentsFile, additions: Additions, *, model: str | None = None) -> None:
        self._file = file.adding(additions)
        self._root = Agents(self._file, model=model)
        self._model = model
        self._views: dict[tuple[str, str | None], Agents] = {("", model): self._root}
        self._made: dict[tuple[str, str | None, str], Agent] = {}
        self._building = asyncio.Lock()

    @property
    def store(self) -> SqlSaver:
        """The store, opened when first needed."""
        return self._root.store

    def watch(self, watcher: Watcher) -> None:
        """Let background tasks of all agents be told; call it before the first agent is built."""
        self._root.watcher = watcher

    def name_of(self, agent_id: str | None) -> str:
        """Return the id of an agent; without one, that of the file's default agent.

        Raises:
            ConfigError: There is no such agent.
        """
        name = agent_id or ("default" if "default" in self._file.agents else "")
        name = name or next(iter(self._file.agents), "")
        self._file.agent(name)
        return name

    async def get(
        self, agent_id: str, origin: Mapping[str, Any], model: str | None = None
    ) -> Agent:
        """Return an agent for a conversation; it is built when first needed.

        Raises:
            ConfigError: There is no such agent, or it cannot be built.
        """
        key = (_folder_of(origin), model or self._model, agent_id)
        if key not in self._made:
            async with self._building:  # one at a time: they share servers and backends
                self._made[key] = await asyncio.to_thread(self._build, *key)
        return self._made[key]

    def _build(self, folder: str, model: str | None, agent_id: str) -> Agent:
        view = self._views.get((folder, model))
        if view is None:
            view = self._root.of(config_for(self._file, folder) if folder else self._file)
            view.model = model
            while len(self._views) >= _MOST_VIEWS:  # the first is the root
                gone = list(self._views)[1]
                del self._views[gone]
                for key in [key for key in self._made if key[:2] == gone]:
                    del self._made[key]
            self._views[folder, model] = view
        return view[agent_id]

    def close(self) -> None:
        """Cancel background tasks, stop containers, close the store."""
        self._root.close()


def _folder_of(origin: Mapping[str, Any]) -> str:
    """Return the name of a conversation's own folders; empty for the owner's."""
    if origin.get("owner") and origin.get("group") is False:
        return ""
    return f"chat-{hashed(*who_of(origin))[:32]}"
