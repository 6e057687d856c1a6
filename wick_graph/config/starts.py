"""What a file of agents starts: programs, and code that it names; and its hash."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

_PASSED_OVER: Final = frozenset({".git", ".venv", "__pycache__", "node_modules"})
_MOST_FILES: Final = 2_000
"""Of one folder that a command names."""


@dataclass(frozen=True, slots=True)
class Starts:
    """The sections of a file that start programs or load code, as they are written.

    Variables stand in them by name: another value of one is no other file.
    """

    sections: Mapping[str, Any] = field(default_factory=dict)
    """By key path, such as `agents.default.mcp_servers.files`."""
    modules: tuple[str, ...] = ()
    """Absolute paths of the local files that they name, and of folders, which end in `/`."""

    def __bool__(self) -> bool:
        return bool(self.sections)

    @property
    def loads_code(self) -> bool:
        """Whether code is loaded also where an agent is only looked at."""
        return any(".middleware." in key for key in self.sections)

    def digest(self, base_dir: Path) -> str:
        """Hash the sections, and the local files that they name as they are now."""
        made = hashlib.sha256()
        text = json.dumps(self.sections, sort_keys=True, ensure_ascii=True, default=str)
        made.update(text.encode())
        for module in self.modules:
            for path in _files(module):
                name = os.path.relpath(path, base_dir)
                made.update(f"\0{name}\0".encode("utf-8", "surrogateescape"))
                made.update(_content(path))
        return made.hexdigest()

    def lines(self) -> list[str]:
        """Say in one line each what is started."""
        return [f"{key}: {_shown(section)}" for key, section in self.sections.items()]


def starts_of(agents: Any, base_dir: Path) -> Starts:
    """Find what the agents of a file start.

    Args:
        agents: The block `agents:` with the defaults merged in, before it is checked.
        base_dir: The file's folder.
    """
    sections = dict(_sections(agents))
    modules = {
        module: None
        for section in sections.values()
        if "command" in section
        for module in _modules(section, base_dir)
    }
    return Starts(sections, tuple(modules))


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


def _modules(server: Mapping[str, Any], base_dir: Path) -> Iterator[str]:
    """Yield the local files and folders that a command names."""
    base = os.path.realpath(base_dir)
    folder = os.path.realpath(Path(base, str(server.get("cwd") or ".")))
    words = server["command"] if isinstance(server["command"], list) else []
    for before, word in zip(["", *words], words, strict=False):
        given = str(word).rpartition("=")[2]
        if before == "-m":
            given = given.replace(".", "/")
        for name in (given, f"{given}.py") if before == "-m" else (given,):
            path = os.path.realpath(Path(folder, name))
            local = not os.path.isabs(name) or path.startswith(f"{base}/")  # noqa: PTH117  (as text)
            if not name or not local or f"{base}/".startswith(f"{path}/"):
                continue
            if Path(path).is_file():
                yield path
            elif Path(path).is_dir():
                yield f"{path}/"


def _files(module: str) -> list[str]:
    if not module.endswith("/"):
        return [module]
    found: list[str] = []
    for folder, below, names in os.walk(module):
        below[:] = sorted(name for name in below if name not in _PASSED_OVER)
        found += [str(Path(folder, name)) for name in sorted(names)]
        if len(found) > _MOST_FILES:
            break
    return found[:_MOST_FILES]


def _content(path: str) -> bytes:
    try:
        return hashlib.sha256(Path(path).read_bytes()).digest()
    except OSError:
        return b"missing"


def _shown(section: Mapping[str, Any]) -> str:
    if "command" in section:
        words = section["command"]
        return " ".join(map(str, words)) if isinstance(words, list) else str(words)
    return str(section.get("use", ""))
