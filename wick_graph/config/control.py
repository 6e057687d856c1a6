"""What governs the agents of a file, as paths: tools never write any of it."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from wick_graph.config.schema import AgentConfig, AgentsFile, BackendConfig

IN_CONTAINER: Final = "/workspace"
"""Where a container shows its folder, unless the configuration says."""
TENANTS: Final = ".tenants"
"""Ends the name of the folder beside another one that holds its counterparts of all tenants."""


def folder_of(backend: BackendConfig, base_dir: Path) -> Path:
    """Return the folder of this machine on which a backend works; `./workspace` by default."""
    named = backend.folder if backend.type == "docker" else backend.workdir
    return _joined(base_dir, named or "workspace")


def place_of(config: AgentConfig, base_dir: Path, path: str, *, folder: Path | None = None) -> str:
    """Return where a path of `skills:` or `memory:` is on this machine.

    Args:
        config: The agent's configuration.
        base_dir: The folder of the file.
        path: The path, as it is written.
        folder: The folder of its backend, where that is known.
    """
    backend = config.backend
    if backend is None:
        return str(_joined(base_dir, path))
    folder = folder or folder_of(backend, base_dir)
    if backend.type == "docker":
        shown = os.path.normpath(backend.workdir or IN_CONTAINER)
        inner = os.path.normpath(path)
        if inner.startswith(f"{shown}/"):
            return str(folder / inner[len(shown) + 1 :])
    return str(_joined(folder, path))


def control_plane(file: AgentsFile) -> tuple[str, ...]:
    """List the files that govern the agents, and the folders, which end in `/`."""
    folder, _ = store_of(file)
    found = [*folder, f"{trust_folder()}/"]
    if file.path is not None:
        found.append(str(file.path))
    found += _keys(file)
    for config in file.agents.values():
        if config.skills is not None and config.backend is not None:
            paths = (place_of(config, file.base_dir, path) for path in config.skills.paths)
            found += (f"{path}/" for path in paths)
    return tuple(dict.fromkeys(found))


def store_of(file: AgentsFile) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the folder of a database in a file, or the database alone where that holds more."""
    database = _database(file)
    if database is None:
        return (), ()
    backends = [config.backend for config in file.agents.values() if config.backend is not None]
    used = [file.base_dir.absolute(), *(folder_of(one, file.base_dir) for one in backends)]
    if any(database.parent == one or database.parent in one.parents for one in used):
        return (), (str(database),)
    return (f"{database.parent}/",), ()


def writable_folders(config: AgentConfig, base_dir: Path) -> tuple[str, ...]:
    """List the folders that an agent's tools write, for whichever tenant."""
    if config.backend is None:
        return ()
    folder = os.path.realpath(folder_of(config.backend, base_dir))
    return folder, f"{folder}{TENANTS}"


def data_of(file: AgentsFile) -> tuple[str, ...]:
    """List the files and folders in which data stand that change while agents run."""
    folder, database = store_of(file)
    data = [*(one.rstrip("/") for one in folder), *_keys(file), *memory_files(file)]
    data += (f"{one}{end}" for one in database for end in ("", "-wal", "-shm", "-journal"))
    data += (f"{one}{TENANTS}" for one in (*data, str(file.base_dir.absolute())))
    if file.path is not None:
        data.append(str(file.path))
    for config in file.agents.values():
        for server in config.mcp_servers.values():
            start = _joined(file.base_dir, server.cwd or ".")
            data += (str(_joined(start, one)) for one in server.data)
    return tuple({form for one in data for form in (one, os.path.realpath(one))})


def memory_files(file: AgentsFile) -> tuple[str, ...]:
    """List the files that agents remember by."""
    found = (
        place_of(config, file.base_dir, path)
        for config in file.agents.values()
        if config.memory is not None and config.backend is not None
        for path in config.memory.paths
    )
    return tuple(dict.fromkeys(found))


def trust_folder(env: Mapping[str, str] | None = None) -> Path:
    """Return the user's folder in which trust is kept."""
    env = os.environ if env is None else env
    state = env.get("XDG_STATE_HOME", "")
    base = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
    return base / "wick_graph"


def code_folders() -> tuple[str, ...]:
    """List the folders of the code that this program is made of, beside the system's own."""
    package = Path(__file__).resolve().parents[1]
    own = [package, (package / "nodes").resolve(), Path(sysconfig.get_paths()["purelib"])]
    if sys.prefix != sys.base_prefix:
        own.append(Path(sys.prefix))
    return tuple(dict.fromkeys(map(str, own)))


def _database(file: AgentsFile) -> Path | None:
    scheme, _, rest = file.store_url.partition(":///")
    name = rest.partition("?")[0]
    if scheme.split("+")[0] != "sqlite" or not name.startswith("/"):
        return None
    return _joined(Path("/"), name)


def _keys(file: AgentsFile) -> list[str]:
    kind, _, keys = (file.keys_source or "").partition(":")
    return [str(_joined(file.base_dir, keys))] if kind == "file" else []


def _joined(base: Path, path: str) -> Path:
    return Path(os.path.normpath(base.absolute() / path))
