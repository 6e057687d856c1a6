"""The agents of a configuration for conversations: with the gateway's hooks, tools and folders."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from wick_graph.config import folder_of
from wick_graph.engine.agent import Agent
from wick_graph.gateway.memory import who_of
from wick_graph.loading import Agents
from wick_graph.service.tenants import config_for
from wick_graph.store.mailbox import hashed

_MOST_VIEWS: Final = 256
"""How many conversations keep their agents built."""


class OriginAgents:
    """The agents of a file by the place of a conversation.

    The owner's agents work in the folders that the file names. Each other sender, and each group,
    gets the same agents with folders of their own beside these.
    """

    def __init__(self, root: Agents) -> None:
        self._root, self._file, self._model = root, root.config, root.model
        self._view = lru_cache(_MOST_VIEWS)(self._viewed)
        self._made: dict[tuple[str, str | None, str], Agent] = {}
        self._building = asyncio.Lock()

    def check(self) -> None:
        """Build the owner's agents, so that mistakes show at the start.

        Raises:
            ConfigError: One cannot be built.
        """
        for agent_id in self._file.agents:
            self._made["", self._model, agent_id] = self._root[agent_id]

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
        if (known := self._made.get(key)) is not None:
            return known
        async with self._building:  # one at a time: they share servers and backends
            view = await asyncio.to_thread(self._view, *key[:2])
            made = self._made[key] = await asyncio.to_thread(view.__getitem__, agent_id)
        while len(self._made) > _MOST_VIEWS:
            del self._made[next(iter(self._made))]
        return made

    def workdir(self, agent_id: str, origin: Mapping[str, Any]) -> Path | None:
        """Return the folder in which an agent works for a conversation; None if it has none."""
        file = self._view(_folder_of(origin), self._model).config
        backend = file.agent(agent_id).backend
        return None if backend is None else folder_of(backend, file.base_dir)

    def _viewed(self, folder: str, model: str | None) -> Agents:
        if not folder and model == self._model:
            return self._root
        view = self._root.of(config_for(self._file, folder) if folder else self._file)
        view.model = model
        return view


def _folder_of(origin: Mapping[str, Any]) -> str:
    """Return the name of a conversation's own folders; empty for the owner's."""
    if origin.get("owner") and origin.get("group") is False:
        return ""
    return f"chat-{hashed(*who_of(origin))[:32]}"
