"""What governs the agents of a file, as paths: tools never write any of it."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from wick_graph.config.schema import AgentConfig, AgentsFile, BackendConfig
from wick_graph.config.trusted import trust_folder

IN_CONTAINER: Final = "/workspace"
"""Where a container shows its folder, unless the configuration says."""
_BESIDE_A_DATABASE: Final = ("", "-wal", "-shm", "-journal")


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
    found = [*_store(file), *file.starts.modules, f"{trust_folder()}/"]
    if file.path is not None:
        found.append(str(file.path))
    kind, _, keys = (file.keys_source or "").partition(":")
    if kind == "file":
        found.append(str(_joined(file.base_dir, keys)))
    for config in file.agents.values():
        if config.skills is not None and config.backend is not None:
            paths = (place_of(config, file.base_dir, path) for path in config.skills.paths)
            found += (f"{path}/" for path in paths)
    return tuple(dict.fromkeys(found))


def memory_files(file: AgentsFile) -> tuple[str, ...]:
    """List the files that agents remember by."""
    found = (
        place_of(config, file.base_dir, path)
        for config in file.agents.values()
        if config.memory is not None and config.backend is not None
        for path in config.memory.paths
    )
    return tuple(dict.fromkeys(found))


def code_folders() -> tuple[str, ...]:
    """List the folders of the code that this program is made of, beside the system's own."""
    package = Path(__file__).resolve().parents[1]
    own = [package, (package / "nodes").resolve(), Path(sysconfig.get_paths()["purelib"])]
    if sys.prefix != sys.base_prefix:
        own.append(Path(sys.prefix))
    return tuple(dict.fromkeys(map(str, own)))


def _store(file: AgentsFile) -> Iterator[str]:
    """Yield the folder of a database in a file; its files alone where the folder holds more."""
    scheme, _, rest = file.store_url.partition(":///")
    name = rest.partition("?")[0]
    if scheme.split("+")[0] != "sqlite" or not name.startswith("/"):
        return
    database = _joined(Path("/"), name)
    folder = database.parent
    backends = [config.backend for config in file.agents.values() if config.backend is not None]
    used = [file.base_dir.absolute(), *(folder_of(one, file.base_dir) for one in backends)]
    if any(folder == one or folder in one.parents for one in used):
        yield from (f"{database}{end}" for end in _BESIDE_A_DATABASE)
    else:
        yield f"{folder}/"


def _joined(base: Path, path: str) -> Path:
    return Path(os.path.normpath(base.absolute() / path))
