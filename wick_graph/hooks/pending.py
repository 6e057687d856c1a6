"""Hooks that a configuration would switch on and that this version does not have yet."""

from __future__ import annotations

from wick_graph.config import AgentConfig


def pending(config: AgentConfig) -> tuple[str, ...]:
    """List the hooks that an agent's configuration asks for and that are not active.

    `tracing`, `todolist` and `summarization` belong to every agent, `filesystem` to one with a
    backend, `skills` and `memory` to one that names their paths and has a backend.
    """
    names = ["tracing", "todolist", "summarization"]
    if config.backend is not None:
        names.append("filesystem")
        names += [
            name
            for name, block in (("skills", config.skills), ("memory", config.memory))
            if block is not None and block.paths
        ]
    return tuple(names)
