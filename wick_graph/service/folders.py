"""The configuration of a tenant: its own folders, isolated from those of the others.

The tenant `local`, which is the operator of the server and the command line, has the folders that
the file names. The agents of other tenants write beside them, in `<folder>.tenants/<tenant>`.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from wick_graph.config import AgentConfig, AgentsFile, BackendConfig, folder_of
from wick_graph.config.trusted import TENANTS, skills_folder
from wick_graph.service.options import LOCAL, log

_PLAIN: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


def folder_name(tenant: str) -> str:
    """Return the name of a tenant's folder; no two tenants share one on any file system.

    A name that a file system may confuse with another (`Anna` and `anna`) or that is special to it
    (`..`) gets a hash.
    """
    if _PLAIN.fullmatch(tenant):
        return tenant
    kept = re.sub(r"[^a-z0-9_-]+", "-", tenant.lower()).strip("-")[:32]
    hashed = hashlib.sha256(tenant.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return f"{kept or 'tenant'}.{hashed}"


def config_for(file: AgentsFile, tenant: str) -> AgentsFile:
    """Return the configuration for a tenant.

    Skills are shared and read-only. Memory files and the folder of the built-in tools are the
    tenant's own. Commands without a sandbox are switched off, since they could read everything.
    """
    if tenant == LOCAL:
        return file
    mapped = _FolderMap(file, folder_name(tenant))
    agents = {key: mapped.agent(key, config) for key, config in file.agents.items()}
    return file.model_copy(update={"agents": agents}).seeing(mapped.tools_dir)


class _FolderMap:
    """Maps the folders of a configuration to those of one tenant."""

    def __init__(self, file: AgentsFile, name: str) -> None:
        self._base, self._name = _joined(file.base_dir.absolute(), "."), name
        folders = {
            self._folder(config.backend)
            for config in file.agents.values()
            if config.backend is not None
        }
        self._outer = [one for one in folders if not any(o in one.parents for o in folders)]
        """Folders of backends that are not inside another one; none contains its neighbours."""
        beside = {_beside(one) for one in (*self._outer, self._base)}
        self._private = folders | beside | {*_of_all(file), skills_folder(file.base_dir)}

    @property
    def tools_dir(self) -> Path:
        """The tenant's folder for the built-in tools."""
        return self._own(self._base, alone=self._base)

    def agent(self, agent_id: str, config: AgentConfig) -> AgentConfig:
        """Return an agent's configuration for the tenant."""
        backend = config.backend
        if backend is None:  # then there are no skills and no memory
            return config
        folder = self._folder(backend)
        made: dict[str, Any] = {"backend": self._backend(agent_id, backend, folder)}
        if config.skills is not None:
            found = self._shared(agent_id, folder, config.skills.paths, inside=True)
            made["skills"] = config.skills.model_copy(update={"paths": tuple(found)})
        if config.memory is not None:
            own = map(self._own_memory, config.memory.paths)
            made["memory"] = config.memory.model_copy(update={"paths": tuple(own)})
        return config.model_copy(update=made)

    def _backend(self, agent_id: str, backend: BackendConfig, folder: Path) -> BackendConfig:
        own = str(self._own(folder, alone=folder))
        if backend.type == "docker":
            return backend.model_copy(update={"folder": own})
        execute = backend.execute
        if execute == "local":
            log.warning("agents.%s: no sandbox, so no commands for %s", agent_id, self._name)
            execute = "off"
        readable = tuple(self._shared(agent_id, folder, backend.readable, inside=False))
        made = {"workdir": own, "execute": execute, "readable": readable}
        return backend.model_copy(update=made)

    def _folder(self, backend: BackendConfig) -> Path:
        return folder_of(backend, self._base)

    def _own(self, path: Path, *, alone: Path) -> Path:
        """Map a path to the tenant's folders; paths in one folder stay together.

        Args:
            path: The path.
            alone: The folder to map if the path is in no backend's folder.
        """
        holders = (one for one in self._outer if one == path or one in path.parents)
        outer = next(holders, alone)
        return _beside(outer) / self._name / path.relative_to(outer)

    def _own_memory(self, path: str) -> str:
        if not path.startswith("/"):
            return path
        whole = Path(os.path.normpath(path))
        own = self._own(whole, alone=whole.parent)
        if whole.parent.is_dir():
            with suppress(OSError):  # without the folder there is no memory
                own.parent.mkdir(parents=True, exist_ok=True)
        return str(own)

    def _shared(
        self, agent_id: str, folder: Path, paths: tuple[str, ...], *, inside: bool
    ) -> Iterator[str]:
        """Yield paths that all tenants may read; `inside` keeps relative ones in the folder."""
        for path in paths:
            found = _joined(folder, path)
            if any(found == one or found in one.parents for one in self._private):
                log.warning("agents.%s: %s holds files of tenants; not shared", agent_id, path)
            elif path.startswith("/") or not inside or folder in found.parents:
                yield str(found)


def _of_all(file: AgentsFile) -> Iterator[Path]:
    """Yield the files with data of all tenants: the store and its keys."""
    scheme, _, store = file.store_url.partition(":///")
    if scheme.startswith("sqlite"):
        yield _joined(Path(), store.partition("?")[0])
    kind, _, keys = (file.keys_source or "").partition(":")
    if kind == "file":
        yield _joined(Path(), keys)


def _beside(folder: Path) -> Path:
    return folder.parent / f"{folder.name}{TENANTS}"  # the root has no name and is its own parent


def _joined(base: Path, path: str) -> Path:
    return Path(os.path.normpath(base / path))
