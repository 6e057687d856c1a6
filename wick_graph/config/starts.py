"""What a file of agents starts: programs, and code that it names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Starts:
    """The sections of a file that start programs or load code, as they are written.

    Variables stand in them by name: another value of one is no other file.
    """

    sections: Mapping[str, Any] = field(default_factory=dict)
    """By key path, such as `agents.default.mcp_servers.files`."""

    def __bool__(self) -> bool:
        return bool(self.sections)

    @property
    def loads_code(self) -> bool:
        """Whether code is loaded also where an agent is only looked at."""
        return any(".middleware." in key for key in self.sections)

    def lines(self) -> list[str]:
        """Say in one line each what is started."""
        return [f"{key}: {_shown(section)}" for key, section in self.sections.items()]


def starts_of(agents: Any) -> Starts:
    """Find what the agents of a file start.

    Args:
        agents: The block `agents:` with the defaults merged in, before it is checked.
    """
    return Starts(dict(_sections(agents)))


def _sections(agents: Any) -> Iterator[tuple[str, Any]]:
    for agent_id, agent in agents.items() if isinstance(agents, dict) else ():
        if not isinstance(agent, dict):
            continue
        servers = agent.get("mcp_servers")
        for name, server in servers.items() if isinstance(servers, dict) else ():
            if isinstance(server, dict) and server.get("command"):
                yield f"agents.{agent_id}.mcp_servers.{name}", server
        middleware = agent.get("middleware")
        for index, entry in enumerate(middleware if isinstance(middleware, list) else ()):
            if isinstance(entry, dict):
                yield f"agents.{agent_id}.middleware.{index}", entry


def _shown(section: Mapping[str, Any]) -> str:
    if "command" in section:
        words = section["command"]
        return " ".join(map(str, words)) if isinstance(words, list) else str(words)
    return str(section.get("use", ""))
