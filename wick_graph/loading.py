"""From agents.yaml to agents that run."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from langchain_core.language_models import FakeListChatModel

from wick_graph.agent import Agent
from wick_graph.config import AgentConfig, AgentsFile, load_config
from wick_graph.errors import ConfigError
from wick_graph.hooks.activation import activate, backend_of
from wick_graph.hooks.approvals import misspelt
from wick_graph.hooks.protocol import BaseHook
from wick_graph.models.resolve import ModelChoice, resolve_model
from wick_graph.moments import JournalOptions
from wick_graph.store import SqlSaver
from wick_graph.tools.builtin import builtin


class Agents(Mapping[str, Agent]):
    """The agents of a file, by id; each is built when it is first asked for.

    They share the file's store, which `close` (or a `with` block) closes.
    """

    def __init__(self, config: AgentsFile, *, model: str | None = None) -> None:
        self.config = config
        self._model = model
        self._made: dict[str, Agent] = {}
        self._saver: SqlSaver | None = None

    @property
    def store(self) -> SqlSaver:
        """The file's store, opened when it is first asked for."""
        if self._saver is None:
            self._saver = SqlSaver.from_url(self.config.store_url)
        return self._saver

    def __getitem__(self, agent_id: str) -> Agent:
        if agent_id not in self._made:
            self._made[agent_id] = self._build(agent_id)
        return self._made[agent_id]

    def __contains__(self, agent_id: object) -> bool:
        return agent_id in self.config.agents

    def get(self, agent_id: str, default: Any = None) -> Any:
        """Return an agent, or the default if the file has none of this id."""
        return self[agent_id] if agent_id in self.config.agents else default

    def __iter__(self) -> Iterator[str]:
        return iter(self.config.agents)

    def __len__(self) -> int:
        return len(self.config.agents)

    def close(self) -> None:
        """Close the store."""
        if self._saver is not None:
            self._saver.close()
            self._saver = None
            self._made.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _build(self, agent_id: str) -> Agent:
        return build_agent(agent_id, self.config, store=lambda: self.store, model=self._model)


def load(path: str | Path = "agents.yaml", *, model: str | None = None) -> Agents:
    """Read a file of agents.

    Args:
        path: The YAML file; relative paths in it are relative to its folder.
        model: A model to use instead of the ones that the file names.

    Raises:
        ConfigError: The file is refused; the text names file, line and key path.
    """
    return Agents(load_config(path), model=model)


def build_agent(
    agent_id: str,
    file: AgentsFile,
    *,
    store: Any = None,
    model: str | ModelChoice | None = None,
    hooks: Sequence[BaseHook] | None = None,
) -> Agent:
    """Make an agent of its configuration.

    Args:
        agent_id: Which of the file's agents.
        file: The configuration.
        store: As `Agent` takes it, or a function that opens it. It is called last, so that a
            refused configuration leaves no database behind.
        model: A model to use instead of the one that the file names.
        hooks: Hooks to use instead of those that the configuration switches on.

    Raises:
        ConfigError: There is no such agent, or it names a tool that does not exist.
        ModelError: Its model cannot be built.
    """
    config = file.agent(agent_id)
    try:
        tools = builtin(config.tools, file.base_dir, search=config.search)
    except ConfigError as error:
        raise file.error(("agents", agent_id, "tools"), str(error)) from None
    if not isinstance(model, ModelChoice):
        model = resolve_model(model or config.model_spec(), base_dir=file.base_dir)
    hooks = hooks_of(agent_id, file) if hooks is None else hooks
    _check_approvals(agent_id, file, [*tools, *(tool for hook in hooks for tool in hook.tools({}))])
    return Agent(
        agent_id,
        model,
        system_prompt=config.system_prompt,
        tools=tools,
        hooks=hooks,
        store=store() if callable(store) else store,
        max_iterations=config.max_iterations,
        ttl=config.ttl,
        tool_timeout=config.tool_timeout,
        journal=journal_of(config),
        allow_client_system=config.allow_client_system,
        base_dir=file.base_dir,
    )


def hooks_of(agent_id: str, file: AgentsFile, *, to_look_at: bool = False) -> list[BaseHook]:
    """Make the hooks that an agent's configuration switches on.

    The folder of its backend is made if it is not there; not if the agent is only looked at.

    Raises:
        ConfigError: The folder cannot be opened, or a hook cannot work as it is configured.
    """
    config = file.agent(agent_id)
    key = "backend"
    try:
        backend = backend_of(config, _workdir(config, file.base_dir, to_look_at))
        key = "budget"
        return activate(config, backend)
    except (ConfigError, OSError) as error:
        raise file.error(("agents", agent_id, key), str(error)) from None


def _check_approvals(agent_id: str, file: AgentsFile, tools: Sequence[Any]) -> None:
    names = [str(getattr(tool, "name", "")) for tool in tools]
    if (found := misspelt(file.agent(agent_id).approvals, names)) is not None:
        rule, near = found
        key = ("agents", agent_id, "approvals", rule)
        raise file.error(key, f"there is no tool {rule}; did you mean {near}?")


def _workdir(config: AgentConfig, base_dir: Path, to_look_at: bool) -> Path:
    backend = config.backend
    if backend is None or backend.type != "local":
        return base_dir
    workdir = Path(os.path.normpath(base_dir.absolute() / (backend.workdir or ".")))
    if to_look_at and not workdir.is_dir():
        return base_dir.absolute()  # nothing is read from it
    workdir.mkdir(parents=True, exist_ok=True)
    return workdir


def journal_of(config: AgentConfig) -> JournalOptions:
    """Say how an agent's runs are recorded."""
    journal = config.journal
    if isinstance(journal, str):
        return JournalOptions(journal)
    return JournalOptions(journal.level, journal.redact)


def outline(agent_id: str, file: AgentsFile) -> Agent:
    """Make an agent to look at: its graph and hooks are real, its model answers nothing.

    Needs no key, and opens no store.

    Raises:
        ConfigError: There is no such agent, or it names a tool that does not exist.
    """
    named = file.agent(agent_id).model
    name = named if isinstance(named, str) else named.model
    stand_in = ModelChoice(model=FakeListChatModel(responses=[]), name=name)
    hooks = hooks_of(agent_id, file, to_look_at=True)
    return build_agent(agent_id, file, store=False, model=stand_in, hooks=hooks)
