"""The agents of a configuration for conversations: with the gateway's hooks, tools and folders."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from wick_graph.config import folder_of
from wick_graph.engine.agent import Agent
from wick_graph.gateway.memory import who_of
from wick_graph.hooks.from_config import check_context
from wick_graph.loading import Agents
from wick_graph.service.folders import config_for
from wick_graph.store.mailbox import hashed

_MOST_VIEWS: Final = 64
"""How many conversations keep their agents built; each keeps files open."""


_Key = tuple[str, str | None]


class OriginAgents:
    """The agents of a file by the place of a conversation.

    The owner's agents work in the folders that the file names. Each other sender, and each group,
    gets the same agents with folders of their own beside these.
    """

    def __init__(self, root: Agents) -> None:
        self._root, self._file, self._model = root, root.config, root.model
        self._views: OrderedDict[_Key, Agents] = OrderedDict()
        """By folder and model, the least recently used first."""
        self._made: dict[tuple[_Key, str], Agent] = {}
        self._building = asyncio.Lock()

    def check(self) -> None:
        """Build the owner's agents, so that mistakes show at the start.

        Raises:
            ConfigError: One cannot be built.
        """
        for agent_id in self._file.agents:
            check_context(agent_id, self._root[agent_id].spec.context, self._file)

    def name_of(self, agent_id: str | None) -> str:
        """Return the id of an agent; without one, that of the file's default agent.

        Raises:
            ConfigError: There is no such agent.
        """
        self._file.agent(agent_id)
        return agent_id or self._file.default_id

    async def get(
        self, agent_id: str, origin: Mapping[str, Any], model: str | None = None
    ) -> Agent:
        """Return an agent for a conversation; it is built when first needed.

        Raises:
            ConfigError: There is no such agent, or it cannot be built.
        """
        key = (_folder_of(origin), model or self._model)
        view = self._view(*key)
        if (known := self._made.get((key, agent_id))) is not None:
            return known
        async with self._building:  # one at a time: they share servers and backends
            made = self._made[key, agent_id] = await asyncio.to_thread(view.__getitem__, agent_id)
        while len(self._views) > _MOST_VIEWS:
            old, view = self._views.popitem(last=False)
            view.forget()
            for one in view:
                self._made.pop((old, one), None)
        return made

    def workdir(self, agent_id: str, origin: Mapping[str, Any]) -> Path | None:
        """Return the folder in which an agent works for a conversation; None if it has none."""
        file = self._view(_folder_of(origin), self._model).config
        backend = file.agent(agent_id).backend
        return None if backend is None else folder_of(backend, file.base_dir)

    def _view(self, folder: str, model: str | None) -> Agents:
        key = (folder, model)
        if key == ("", self._model):
            return self._root
        if key not in self._views:
            self._views[key] = self._root.of(
                config_for(self._file, folder) if folder else self._file
            )
            self._views[key].model = model
        self._views.move_to_end(key)
        return self._views[key]


def context_of(agent: Agent, origin: Mapping[str, Any]) -> Any:
    """Return the context of a turn; None if the agent takes none."""
    schema = agent.spec.context
    return None if schema is None else schema.of_chat(agent.name, origin)


def _folder_of(origin: Mapping[str, Any]) -> str:
    """Return the name of a conversation's own folders; empty for the owner's."""
    if origin.get("owner") and origin.get("group") is False:
        return ""
    return f"chat-{hashed(*who_of(origin))[:32]}"
