"""Trust in a configuration: files that govern agents, folders of commands, trusted hashes."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from wick_graph.config.code import Modules, hashed_modules, installed_code, load_object, split
from wick_graph.errors import ConfigError
from wick_graph.machine import lock, user_id

if TYPE_CHECKING:
    from wick_graph.config.schema import AgentConfig, AgentsFile, BackendConfig, McpServerConfig

# --- The paths that govern the agents of a file: tools never write to them.


IN_CONTAINER: Final = "/workspace"
"""Where a container mounts its folder by default."""

TENANTS: Final = ".tenants"
"""Suffix of the folder next to another one that holds the tenants' counterparts of it."""


def folder_of(backend: BackendConfig, base_dir: Path) -> Path:
    """Return the host's folder of a backend; `./workspace` by default."""
    named = backend.folder if backend.type == "docker" else backend.workdir
    return _joined(base_dir, str(_at_home(named or "workspace")))


def place_of(config: AgentConfig, base_dir: Path, path: str, *, folder: Path | None = None) -> str:
    """Return where a path of `skills:` or `memory:` is on this host.

    Args:
        config: The agent's configuration.
        base_dir: The folder of the file.
        path: The path, as it is written.
        folder: The folder of its backend, if it is known.
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


def misplaced(agent_id: str, config: AgentConfig, base_dir: Path) -> Iterator[str]:
    """Yield a warning for each path of `skills:` or `memory:` that is only beside the file.

    Every other relative path of the file starts there, so it is where a person puts them.
    """
    for name, block in (("skills", config.skills), ("memory", config.memory)):
        for path in block.paths if block is not None and config.backend is not None else ():
            here, there = _joined(base_dir, path), Path(place_of(config, base_dir, path))
            if _holds(here) and not _holds(there):
                yield (
                    f"agents.{agent_id}.{name}: a relative path starts at the backend's folder, "
                    f"where {there} holds nothing; move {here} there, or write its absolute path"
                )


def _holds(path: Path) -> bool:
    """Return whether there is something in a file or a folder: a sandbox makes empty ones."""
    try:
        return any(path.iterdir()) if path.is_dir() else path.stat().st_size > 0
    except OSError:
        return False


def control_plane(file: AgentsFile) -> tuple[str, ...]:
    """List the files that govern the agents, and the folders, which end in `/`."""
    folder, _ = store_of(file)
    found = [*folder, f"{trust_folder()}/", *code_of(file).hashes]
    found += installed_code(file.base_dir, (split(one)[0] for _, one in file.code()))
    if file.path is not None:
        found.append(str(file.path))
    found += _keys(file)
    for config in file.agents.values():
        if config.output is not None and isinstance(config.output.form, str):
            found.append(str(_joined(file.base_dir, config.output.form)))
        if config.skills is not None and config.backend is not None:
            paths = (place_of(config, file.base_dir, path) for path in config.skills.paths)
            found += (f"{path}/" for path in paths)
    found.append(f"{skills_folder(file.base_dir)}/")  # before it exists: none can be put into it
    return tuple(dict.fromkeys(found))


def skills_folder(base_dir: Path) -> Path:
    """Return the folder of the skills that tenants of a server have uploaded."""
    return _joined(base_dir, ".wick/skills")


def store_of(file: AgentsFile) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the folder of an SQLite database, or the database alone if the folder holds more."""
    database = _database(file)
    if database is None:
        return (), ()
    backends = [config.backend for config in file.agents.values() if config.backend is not None]
    used = [file.base_dir.absolute(), *(folder_of(one, file.base_dir) for one in backends)]
    if any(database.parent == one or database.parent in one.parents for one in used):
        return (), (str(database),)
    return (f"{database.parent}/",), ()


def writable_folders(config: AgentConfig, base_dir: Path) -> tuple[str, ...]:
    """List the folders that an agent's tools write, for all tenants."""
    if config.backend is None:
        return ()
    folder = os.path.realpath(folder_of(config.backend, base_dir))
    return folder, f"{folder}{TENANTS}"


def data_of(file: AgentsFile) -> tuple[str, ...]:
    """List the files and folders with data that change while agents run."""
    folder, database = store_of(file)
    data = [*(one.rstrip("/") for one in folder), *_keys(file), *memory_files(file)]
    data += (f"{one}{end}" for one in database for end in ("", "-wal", "-shm", "-journal"))
    data += (f"{one}{TENANTS}" for one in (*data, str(file.base_dir.absolute())))
    data.append(str(skills_folder(file.base_dir)))
    if file.path is not None:
        data.append(str(file.path))
    for config in file.agents.values():
        for server in config.mcp_servers.values():
            start = _joined(file.base_dir, server.cwd or ".")
            data += (str(_joined(start, one)) for one in server.data)
    return tuple({form for one in data for form in (one, os.path.realpath(one))})


def memory_files(file: AgentsFile) -> tuple[str, ...]:
    """List the memory files of all agents."""
    found = (
        place_of(config, file.base_dir, path)
        for config in file.agents.values()
        if config.memory is not None and config.backend is not None
        for path in config.memory.paths
    )
    return tuple(dict.fromkeys(found))


def trust_folder(env: Mapping[str, str] | None = None) -> Path:
    """Return the user's folder for trusted hashes."""
    env = os.environ if env is None else env
    state = env.get("XDG_STATE_HOME", "")
    base = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
    return base / "wick_graph"


def code_of(file: AgentsFile) -> Modules:
    """Hash the modules beside a file that its agents name, and those that they import.

    Raises:
        ConfigError: A name means two modules, or there is too much to read.
    """
    found = Modules()
    for key, reference in file.code():
        try:
            one = hashed_modules(file.base_dir, [split(reference)[0]])
        except ConfigError as error:
            raise file.error(key, str(error)) from None
        found = Modules(
            {**found.hashes, **one.hashes}, tuple(dict.fromkeys((*found.roots, *one.roots)))
        )
    return found


class CodeLoader:
    """Load what a file names as `module:name`.

    Raises:
        ConfigError: It has changed since it was trusted.
    """

    def __init__(self, file: AgentsFile) -> None:
        self._base, self._modules = file.base_dir, code_of(file)
        must_be_unchanged(file)

    def __call__(self, reference: str) -> Any:
        """Return an object by its name.

        Raises:
            ConfigError: It does not exist, or its module cannot be loaded.
        """
        from wick_graph.config.fields import check_code  # noqa: PLC0415  # slow, and seldom used

        try:
            check_code(reference)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        return load_object(reference, self._base, self._modules)


def code_folders() -> tuple[str, ...]:
    """List the folders of this program's code, besides the system's own."""
    package = Path(__file__).resolve().parents[1]
    own = [package, (package / "nodes").resolve(), Path(sysconfig.get_paths()["purelib"])]
    if sys.prefix != sys.base_prefix:
        own.append(Path(sys.prefix))
    return tuple(dict.fromkeys(map(str, own)))


def _database(file: AgentsFile) -> Path | None:
    scheme, _, rest = file.store_url.partition(":///")
    name = rest.partition("?")[0]
    if scheme.split("+")[0] != "sqlite" or not Path(name).is_absolute():
        return None
    return _joined(Path("/"), name)


def _keys(file: AgentsFile) -> list[str]:
    kind, _, keys = (file.keys_source or "").partition(":")
    return [str(_joined(file.base_dir, keys))] if kind == "file" else []


def _joined(base: Path, path: str) -> Path:
    return Path(os.path.normpath(base.absolute() / path))


# --- What the commands of a file may run: whole folders, hashed for trust, and closed to tools.
#
# A command line does not show what a program loads: a script imports its neighbours, `make` and
# `npx .` read the folder that they start in, a variable names one more folder. So every folder
# counts that a command starts in, or that a word of the command or of its variables leads into,
# with all its content.


MOST_FILES: Final = 20_000

MOST_BYTES: Final = 512 * 2**20

PYCACHE: Final = "PYTHONPYCACHEPREFIX"
"""The variable that makes Python ignore `__pycache__` next to the modules."""

_NOT_RUN: Final = frozenset({".git", ".hg", ".svn", ".mypy_cache", ".pytest_cache", ".ruff_cache"})

_ENVIRONMENT: Final = "pyvenv.cfg"
"""Marks a virtual environment: a program loads it only if a word leads into it."""

_BREAK: Final = re.compile(r"[\s'\"`;|&<>(){}\[\]$,:=!#*?@\\]+")

_VARIABLE: Final = re.compile(r"\$\w+|\$\{[^}]*\}")

_FLAG: Final = re.compile(r"-[A-Za-z]\w")

_ISOLATED: Final = re.compile(r"-[A-Za-z]*[EI][A-Za-z]*")
"""A flag that makes Python ignore its variables."""


@dataclass(frozen=True, slots=True)
class Reach:
    """A folder that holds what a command may run."""

    server: tuple[str, str, str, str]
    """The key path of the command's server."""
    folder: str
    """Absolute, without links."""
    hashed: bool
    """Whether it belongs to the project; an absolute path elsewhere belongs to the host."""


def reach_of(file: AgentsFile) -> list[Reach]:
    """List the folders that hold what the commands of a file may run."""
    found: dict[tuple[str, bool], Reach] = {}
    base = os.path.realpath(file.base_dir)
    for agent_id, config in file.agents.items():
        for name, server in config.mcp_servers.items():
            key = ("agents", agent_id, "mcp_servers", name)
            for folder, hashed in _folders(server, base) if server.command else ():
                found.setdefault((folder, hashed), Reach(key, folder, hashed))
    return [*found.values()]


def held_in(config: AgentConfig, file: AgentsFile) -> tuple[str, ...]:
    """List the folders that an agent's tools must not write, since commands may run their content.

    Raises:
        ConfigError: one of them is the agent's whole folder.
    """
    held: list[str] = []
    works = writable_folders(config, file.base_dir)
    for one in reach_of(file) if works else ():
        if one.folder in works:
            raise file.error(one.server, _refusal(one.folder))
        if any(_is_below(one.folder, work) for work in works):
            held.append(f"{one.folder}/")
    return tuple(held)


def hashed_entries(file: AgentsFile) -> dict[str, bytes]:
    """Return the state of each module and each entry of the hashed folders, by relative path.

    Raises:
        ConfigError: the folders hold too much, or a link leads to a folder that tools write.
    """
    base = os.path.realpath(file.base_dir)
    every = chain(code_of(file).hashes.items(), _Walk(file).entries())
    return {os.path.relpath(path, base): kind for path, kind in every}


def digest_of_found(file: AgentsFile, found: Mapping[str, bytes]) -> str:
    """Hash what a file starts: the sections as written, and the content of the folders."""
    made = hashlib.sha256()
    text = json.dumps(file.starts.sections, sort_keys=True, ensure_ascii=True, default=str)
    made.update(text.encode())
    for name, kind in found.items():
        made.update(f"\0{name}\0".encode("utf-8", "surrogateescape"))
        made.update(kind)
    return made.hexdigest()


def first_change(before: Mapping[str, bytes], now: Mapping[str, bytes]) -> str:
    """Return the first entry that has changed; empty if there is none."""
    names = (*before, *(name for name in now if name not in before))
    return next((name for name in names if before.get(name) != now.get(name)), "")


def hashed(file: AgentsFile) -> list[str]:
    """List the folders and modules that the hash covers."""
    return sorted({*(one.folder for one in reach_of(file) if one.hashed), *code_of(file).hashes})


def _refusal(folder: str) -> str:
    return (
        f"the command starts in {folder} or reads from it, and tools write there; give the server "
        "a folder of its own with cwd:, list what it never runs under data:, or give the agent "
        "another workdir:"
    )


def _folders(server: McpServerConfig, base: str) -> Iterator[tuple[str, bool]]:
    start = os.path.realpath(Path(base, server.cwd or "."))
    yield start, _is_below(start, base) or not _is_absolute(server.cwd or "")
    data = {os.path.normpath(Path(start, one)) for one in server.data}
    for text in (*server.command, *server.env.values()):
        for word in _words(text):
            path = os.path.normpath(Path(start, _at_home(word)))
            if path in data or _is_below(base, path):
                continue
            inside = _is_below(path, base) or not _is_absolute(word)
            for folder in _led_to(Path(path)):
                yield folder, inside or _is_below(folder, base)


def _at_home(word: str) -> Path:
    try:
        return Path(word).expanduser()
    except RuntimeError:  # there is no such user
        return Path(word)


def _is_absolute(word: str) -> bool:
    return word.startswith("~") or Path(word).is_absolute()


def _words(text: str) -> Iterator[str]:
    """Yield the words of a text that may be paths or Python modules; one too many does no harm."""
    for word in dict.fromkeys([text, *_BREAK.split(_VARIABLE.sub(" ", text))]):
        behind = [word[2:]] if _FLAG.match(word) else []  # as in -Ifolder
        for one in (word, word.lstrip("/"), *behind):  # a variable may have preceded the slash
            if one and "\0" not in one:
                yield one
                if "/" not in one and "." in one.strip("."):
                    yield one.replace(".", "/")


def _led_to(path: Path) -> Iterator[str]:
    """Yield a folder itself, or the folders of a file and of its link's target."""
    if _is_dir(path):
        yield os.path.realpath(path)
        return
    yield os.path.realpath(path.parent)
    yield str(Path(os.path.realpath(path)).parent)


def _is_dir(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # unreadable here, and for a command too
        return False


class _Walk:
    """Walk the entries of the hashed folders in a fixed order."""

    def __init__(self, file: AgentsFile) -> None:
        self._file = file
        self._reach = [one for one in reach_of(file) if one.hashed]
        self._works = [
            work
            for config in file.agents.values()
            for work in writable_folders(config, file.base_dir)
        ]
        self._apart = {*data_of(file), *self._works}
        self._cached = _reads_caches(file)
        self._seen: set[str] = set()
        self._files = self._bytes = 0

    def entries(self) -> Iterator[tuple[str, bytes]]:
        for one in sorted(self._reach, key=lambda one: one.folder):
            yield from self._below(one, one.folder)

    def _below(self, one: Reach, top: str) -> Iterator[tuple[str, bytes]]:
        left = [top]
        while left:
            folder = left.pop()
            if folder in self._seen:
                continue
            self._seen.add(folder)
            for path in _listed(folder):
                inner, is_dir = os.path.realpath(path), _is_dir(path)
                if self._passed(path, Path(inner), is_dir):
                    continue
                self._count(one)
                yield str(path), self._kind(one, path, inner)
                if is_dir and inner not in self._apart:
                    left.append(inner)

    def _passed(self, path: Path, inner: Path, is_dir: bool) -> bool:
        if str(path) in self._apart or path.name in _NOT_RUN:
            return True
        if not is_dir:
            return False
        if path.name == "__pycache__" and not self._cached:
            return True
        return os.access(inner / _ENVIRONMENT, os.F_OK)

    def _kind(self, one: Reach, path: Path, inner: str) -> bytes:
        """Return an entry's state: a folder, a link and its target, or the hash of a file."""
        if not path.is_symlink():
            return self._content(one, path)
        if work := next((work for work in self._works if _is_below(inner, work)), None):
            raise self._file.error(
                one.server, f"{path} is a link to a folder that tools write ({work}); remove it"
            )
        return b"link " + os.fsencode(path.readlink()) + self._content(one, path)

    def _content(self, one: Reach, path: Path) -> bytes:
        try:
            if not stat.S_ISREG(path.stat().st_mode):
                return b"none"
            with path.open("rb") as file:
                self._bytes += os.fstat(file.fileno()).st_size
                self._count(one, files=0)
                return hashlib.file_digest(file, "sha256").digest()
        except OSError:
            return b"missing"

    def _count(self, one: Reach, *, files: int = 1) -> None:
        self._files += files
        if self._files > MOST_FILES or self._bytes > MOST_BYTES:
            raise self._file.error(
                one.server,
                f"what the command may run is too much to check: {one.folder} holds more than "
                f"{MOST_FILES:,} files or {MOST_BYTES // 2**20} MiB; give the server a folder of "
                "its own with cwd:, or list what it never runs under data:",
            )


def _listed(folder: str) -> list[Path]:
    try:
        return sorted(Path(folder).iterdir())
    except OSError:
        return []


def _reads_caches(file: AgentsFile) -> bool:
    """Say whether a command may run the files that Python keeps in `__pycache__`."""
    servers = (server for config in file.agents.values() for server in config.mcp_servers.values())
    return any(
        PYCACHE in server.env or any(_ISOLATED.fullmatch(word) for word in server.command)
        for server in servers
    )


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder if folder == os.sep else f"{folder}{os.sep}")


# --- Hashes of the files that a person trusts to start programs, kept for each user.
#
# The list lies outside every project, so that no project can declare itself trusted.


VARIABLE: Final = "WICK_TRUST"
"""Hashes that are trusted wherever the file lies; for machines without a user."""

_MOST_BYTES: Final = 2**20

_LOCK_SECONDS: Final = 5.0


def digest_of(file: AgentsFile) -> str:
    """Return the hash of what a file starts; empty if it starts nothing.

    The file keeps the first hash: a later start is refused if the hash has changed by then.

    Raises:
        ConfigError: there is too much to hash, or tools can write a part of it.
    """
    if not file.starts:
        return ""
    found = hashed_entries(file)
    digest = digest_of_found(file, found)
    if file.vouched is None:
        file.vouch(digest, found)
    return digest


def is_trusted(file: AgentsFile, digest: str) -> bool:
    """Say whether a person has trusted what the file starts, in exactly this state."""
    if not digest or digest in re.split(r"[\s,]+", os.environ.get(VARIABLE, "")):
        return True
    return file.path is not None and _read().get(_name(file.path)) == digest


def must_be_unchanged(file: AgentsFile) -> None:
    """Refuse to restart what has changed since a person trusted it.

    Raises:
        ConfigError: it has changed, and its present state is not trusted.
    """
    from wick_graph.config.yaml_reader import one_line  # noqa: PLC0415  # slow, and seldom used

    if (known := file.vouched) is None:
        return
    found = hashed_entries(known.file)
    now = digest_of_found(known.file, found)
    if now != known.digest and not is_trusted(known.file, now):
        changed = first_change(known.found, found)
        raise ConfigError(
            f"what {file.source} starts is not what was trusted ({one_line(changed)} has changed "
            "since); check it, run wick trust and start again, or list what the server writes "
            "under data:"
        )


def trust(file: AgentsFile, digest: str) -> Path:
    """Record that a person trusts what the file starts; return the record's path.

    Raises:
        ConfigError: it cannot be recorded.
    """
    if file.path is None:
        raise ConfigError("a configuration without a file cannot be trusted; save it in one")
    folder = trust_folder()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _alone(folder):  # others may trust their files meanwhile
            known = {**_read(), _name(file.path): digest}
            fd, made = tempfile.mkstemp(dir=folder)  # only its owner may read it
            with os.fdopen(fd, "w", encoding="utf-8") as out:
                json.dump(known, out, indent=1, sort_keys=True)
            Path(made).replace(folder / "trusted.json")
    except OSError as error:
        raise ConfigError(
            f"trust cannot be saved in {folder} ({error.strerror}); set {VARIABLE}={digest}"
        ) from error
    return folder / "trusted.json"


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep others from the list for a moment; a lock that cannot be had does not matter."""
    file: int | None = None
    with suppress(OSError):  # such as another user's
        file = os.open(folder / "trusted.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        until = time.monotonic() + _LOCK_SECONDS
        while file is not None and not lock(file, wait=False) and time.monotonic() < until:
            time.sleep(0.01)
        yield
    finally:
        if file is not None:
            os.close(file)


def _name(path: Path) -> str:
    return os.path.realpath(path)


def _read() -> dict[str, str]:
    """Read the trusted hashes; ignore a file that others could have written."""
    with suppress(OSError, ValueError), (trust_folder() / "trusted.json").open("rb") as file:
        status = os.fstat(file.fileno())
        others = stat.S_IWGRP | stat.S_IWOTH
        user = user_id()  # where it has no number, the user's profile is closed to others
        if user is not None and (status.st_uid != user or status.st_mode & others):
            return {}
        found = json.loads(file.read(_MOST_BYTES))
        if isinstance(found, dict):
            return {str(key): str(value) for key, value in found.items()}
    return {}
