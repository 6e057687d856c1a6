"""Which hooks an agent's configuration switches on, and in which order."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

from wick_graph.backends import ExtraRoot, FileSystem, LocalBackend
from wick_graph.config import AgentConfig, BudgetConfig
from wick_graph.hooks.approvals import approval_hook
from wick_graph.hooks.budget import Budget, BudgetHook
from wick_graph.hooks.filesystem import FilesystemHook
from wick_graph.hooks.memory import MemoryHook
from wick_graph.hooks.protocol import BaseHook
from wick_graph.hooks.reading import BackendReader
from wick_graph.hooks.skills import SkillsHook
from wick_graph.hooks.summarization import SummarizationHook
from wick_graph.hooks.todolist import TodoListHook
from wick_graph.hooks.tracing import TracingHook
from wick_graph.redact import Redactor


def activate(config: AgentConfig, backend: FileSystem | None = None) -> list[BaseHook]:
    """List an agent's hooks, outermost first.

    `tracing`, `todolist` and `summarization` belong to every agent; `approvals` to one that has
    rules for them; `filesystem` to one with a
    backend; `skills` and `memory` to one that names their paths and has a backend; `budget`, the
    innermost, to one that has a budget.

    Raises:
        ConfigError: The budget is in dollars and there are no prices.
    """
    redactor = Redactor(secrets_of(config))
    hooks: list[BaseHook] = [TracingHook(redactor=redactor)]
    if (approvals := approval_hook(config)) is not None:
        hooks.append(approvals)
    hooks.append(TodoListHook())
    if backend is not None:
        hooks.append(FilesystemHook(backend))
        reader = BackendReader(backend)
        if config.skills is not None and config.skills.paths:
            hooks.append(SkillsHook(reader, config.skills.paths))
        if config.memory is not None and config.memory.paths:
            hooks.append(MemoryHook(reader, config.memory.paths, redactor=redactor))
    hooks.append(SummarizationHook())  # the window is the model's, as configured
    if config.budget is not None:
        hooks.append(BudgetHook(budget_of(config.budget)))
    return hooks


def backend_of(config: AgentConfig, workdir: Path) -> LocalBackend | None:
    """Open an agent's backend in a folder; None where it has none that this version knows.

    Tools read the folders of its skills and write its memory files, also outside of the folder
    where the configuration gives an absolute path; a relative one never leads out of it.

    Raises:
        ConfigError: The folder cannot be opened.
    """
    backend = config.backend
    if backend is None or backend.type != "local":
        return None
    return LocalBackend(
        workdir, execute=backend.execute, extra_roots=tuple(_extra_roots(config, str(workdir)))
    )


def _extra_roots(config: AgentConfig, workdir: str) -> Iterator[ExtraRoot]:
    for block, writable in ((config.skills, False), (config.memory, True)):
        for path in block.paths if block is not None else ():
            absolute = posixpath.normpath(posixpath.join(workdir, path))
            escapes = not path.startswith("/") and not absolute.startswith(f"{workdir}/")
            # Where there is no folder, there is nothing to read; it may come later.
            if not escapes and Path(absolute).parent.is_dir():
                yield ExtraRoot(absolute, writable=writable)


def budget_of(budget: float | BudgetConfig) -> Budget:
    """Return the budget that a configuration means; a number is dollars for a run."""
    if isinstance(budget, BudgetConfig):
        dollars = None if budget.usd is None else Decimal(str(budget.usd))
        return Budget(usd=dollars, tokens=budget.tokens, per=budget.per)
    return Budget(usd=Decimal(str(budget)))


def secrets_of(config: AgentConfig) -> list[str]:
    """List the keys that a configuration holds, its fallbacks' too."""
    if isinstance(config.model, str):
        return []
    targets = [config.model, *(t for t in config.model.fallbacks if not isinstance(t, str))]
    return [t.api_key.get_secret_value() for t in targets if t.api_key is not None]
