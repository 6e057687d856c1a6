"""Hooks that a configuration would switch on and that this version does not have yet."""

from __future__ import annotations

from wick_graph.config import AgentConfig


def pending(config: AgentConfig) -> tuple[str, ...]:
    """List the hooks that an agent's configuration asks for and that are not active.

    No hook of this version reaches a backend of type `docker`.
    """
    backend = config.backend
    if backend is None or backend.type != "docker":
        return ()
    wanted = (("skills", config.skills), ("memory", config.memory))
    return ("filesystem", *(name for name, block in wanted if block is not None and block.paths))
