"""Protected paths: files that tools must not change, and files that other programs obey."""

from __future__ import annotations

import fnmatch
import os
import re
import stat
import time
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Final

from wick_graph.backends.protocol import MAX_PART_MOUNTS, MAX_WATCHED, WATCH_SECONDS
from wick_graph.backends.root import Root, shown
from wick_graph.errors import ConfigError, ToolError
from wick_graph.sandbox import Bind

# --- Files that other programs run or obey later: the list, and how to compare a path with it.


OBEYED: Final = (
    # version control, and what it runs
    *(".git", ".gitattributes", ".gitconfig", ".gitmodules", ".hg", ".svn", ".husky"),
    ".pre-commit-config.yaml",
    # build, test and packaging programs
    *("Makefile", "*.mk", "GNUmakefile", "justfile", ".justfile", "*.just"),
    *("Taskfile.y*ml", "Rakefile", "CMakeLists.txt", "*.gradle", "*.gradle.kts", "pom.xml"),
    *("setup.py", "setup.cfg", "pyproject.toml", "tox.ini", "noxfile.py", "pytest.ini"),
    *("conftest.py", "sitecustomize.py", "usercustomize.py", "*.pth", "uv.toml"),
    *("package.json", "deno.json", "deno.jsonc", "bunfig.toml", "Gruntfile.*", "Gulpfile.*"),
    *("*.config.js", "*.config.cjs", "*.config.mjs", "*.config.ts", ".eslintrc*", ".babelrc*"),
    *("Cargo.toml", "build.rs", ".cargo", "Gemfile", "composer.json", "mix.exs"),
    *("lefthook.y*ml", ".lefthook.y*ml", ".mise.toml", "mise.toml", ".tool-versions"),
    # servers that build, and containers
    *(".github/workflows", ".github/actions", ".gitlab-ci.yml", ".circleci", ".travis.yml"),
    *("azure-pipelines.yml", "bitbucket-pipelines.yml", ".buildkite", ".drone.yml", ".gitea"),
    *(".forgejo", ".woodpecker*", "Jenkinsfile", "Procfile", ".devcontainer", ".devcontainer.json"),
    *("Dockerfile*", "*.Dockerfile", "Containerfile", "compose.y*ml", "docker-compose*.y*ml"),
    # editors and other agents
    *(".vscode", "*.code-workspace", ".idea", ".exrc", ".nvim.lua", ".vimrc", ".dir-locals.el"),
    *(".mcp.json", ".claude", ".cursor", ".cursorrules", ".windsurf", ".windsurfrules", ".codex"),
    *(".clinerules", ".aider*", ".gemini", "GEMINI.md", "CLAUDE.md", "CLAUDE.local.md"),
    *("AGENTS.md", "SKILL.md", "agents.yaml", "agents.yml"),
    *(".github/copilot-instructions.md", ".github/instructions", ".github/prompts"),
    # variables, keys and shells
    *(".env*", ".netrc", ".npmrc", ".pypirc", ".ssh"),
    *(".bash_login", ".bash_logout", ".bash_profile", ".bashrc", ".profile"),
    *(".zlogin", ".zprofile", ".zshenv", ".zshrc"),
)
"""Whole files and folders. A name matches anywhere below the working directory, with everything
below it; a pattern with a `/` matches consecutive parts of a path."""

_WILD: Final = frozenset("*?[")


class Patterns:
    """Names and patterns for paths, without regard to case.

    Args:
        patterns: As in `OBEYED`; a `/**` or `/` at the end has no effect.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        names: set[str] = set()
        wild: list[re.Pattern[str]] = []
        long: list[list[re.Pattern[str]]] = []
        for pattern in patterns:
            parts = [folded(part) for part in pattern.split("/") if part not in ("", ".")]
            while len(parts) > 1 and parts[-1] == "**":
                parts.pop()
            if len(parts) > 1:
                long.append([_compiled(part) for part in parts])
            elif parts and not _WILD & set(parts[0]):
                names.add(parts[0])
            elif parts:
                wild.append(_compiled(parts[0]))
        self._names: Final = frozenset(names)
        self._wild: Final = tuple(wild)
        self._long: Final = tuple(long)

    def ends_at(self, parts: Sequence[str]) -> bool:
        """Say whether a pattern matches the end of a path, given as folded names."""
        last = parts[-1]
        if last in self._names or any(one.fullmatch(last) for one in self._wild):
            return True
        return any(
            len(parts) >= len(one)
            and all(p.fullmatch(n) for p, n in zip(one, parts[-len(one) :], strict=True))
            for one in self._long
        )

    def first_in(self, path: str) -> str:
        """Return the shortest beginning of a relative path that matches; empty if none does."""
        names = [name for name in path.split("/") if name]
        parts = [folded(name) for name in names]
        for end in range(1, len(parts) + 1):
            if self.ends_at(parts[:end]):
                return "/".join(names[:end])
        return ""


@lru_cache(maxsize=8_192)
def folded(name: str) -> str:
    """Return one form for all names that a file system may treat as the same."""
    if name.isascii():
        return name.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _compiled(part: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(part))


# --- What tools must not change in and around a working directory: two lists, and how they hold.
#
# The control plane governs agents: tools never write it. File tools change files that other
# programs obey later (`obeyed`) only after a person has allowed it. A sandbox with separate mounts
# shows both read-only; if a command can change them, its result names them.


OWN_FOLDER: Final = ".wick"
"""The folder of a backend's results and notes; tools read it but never write it."""

GOVERNS: Final = "is protected: it governs agents, and tools never write it"

OWN: Final = "is protected: tools do not write there"

_OF_A_DATABASE: Final = ("", "-wal", "-shm", "-journal")
"""SQLite treats an empty file as absent, so each can exist, read-only, before it is needed."""

_NOT_ENTERED: Final = frozenset({"node_modules", "__pycache__"})

_NOT_ENTERED_BELOW: Final = "site-packages/"
"""Installed packages have thousands of files with such names, which no program obeys."""

Key = tuple[tuple[int, int], tuple[str, ...]]
"""A path as an existing folder, by device and number, and the names below it."""

Stamp = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Rules:
    """What tools must not change.

    Args:
        control: Absolute paths of files that govern agents, and of folders, which end in `/`.
        memory: Absolute paths of files that file tools may change but commands never.
        protect: More names and patterns that other programs obey, besides `OBEYED`.
        writable: Names and patterns of those that tools may change without asking.
        code: Absolute paths of code folders that this program loads; they govern agents too.
        stores: Absolute paths of SQLite databases; SQLite's files next to one belong to it.
        hidden: Absolute paths of folders, which end in `/`, that tools neither see nor write.
    """

    control: tuple[str, ...] = ()
    memory: tuple[str, ...] = ()
    protect: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    code: tuple[str, ...] = ()
    stores: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()

    def joined(self, more: Rules) -> Rules:
        """Return these rules and more."""
        names = (one.name for one in fields(self))
        return Rules(**{name: (*getattr(self, name), *getattr(more, name)) for name in names})


@dataclass(frozen=True, slots=True)
class Seen:
    """The files of a working directory that other programs obey, at one time."""

    files: dict[str, Stamp] = field(default_factory=dict)
    """By path below the directory: a stamp that differs after a change."""
    tops: tuple[str, ...] = ()
    """Paths to show read-only; paths below them are not listed."""
    cut: bool = False
    """The directory was too large for a complete look."""


class Guard:
    """The rules for one working directory.

    Args:
        root: The directory.
        rules: What tools must not change.
    """

    def __init__(self, root: Root, rules: Rules) -> None:
        self._root: Final = root
        self._work: Final = os.path.realpath(root.path)
        self._memory: Final = _forms(rules.memory)
        self._named: tuple[str, ...] = ()
        self._code: tuple[str, ...] = ()
        self._databases: tuple[str, ...] = ()
        self.hidden: tuple[str, ...] = ()
        """Folders that tools never see, folded."""
        self.keep_from(rules)
        self._obeyed: Final = Patterns((*OBEYED, *rules.protect))
        self._writable: Final = Patterns(rules.writable)
        self._loosened: Final = rules.writable

    def keep_from(self, rules: Rules) -> None:
        """Add files and folders that govern agents; it never loosens a rule."""
        files = _forms(f"{one}{end}" for one in rules.stores for end in _OF_A_DATABASE)
        # a folder in a hidden one was given on purpose: it is not hidden from itself
        held = [one.rstrip("/") for one in _forms(rules.hidden)]
        hidden = [one for one in held if not _is_below(self._work, one)]
        self.hidden = _joined(self.hidden, map(folded, hidden))
        control = (*_forms(rules.control), *(f"{one}/" for one in hidden))
        self._named = _joined(self._named, control)
        folders = tuple(one.rstrip("/") for one in self._named if one.endswith("/"))
        apart = [one for one in files if not any(_is_below(one, folder) for folder in folders)]
        self._databases = _joined(self._databases, apart)
        self._named = _joined(self._named, apart)
        self._code = _joined(self._code, _forms(f"{one}/" for one in rules.code))
        self._control = (*self._named, *self._code)
        self._spelt = tuple(folded(one.rstrip("/")) for one in self._control)

    @property
    def notices(self) -> tuple[str, ...]:
        """List the obeyed files that tools may change without asking."""
        if not self._loosened:
            return ()
        listed = ", ".join(map(shown, self._loosened))
        return (f"tools may change {listed}, which other programs run or obey (writable:)",)

    def hides(self, path: str) -> bool:
        """Say whether an absolute path without links is one that tools never see."""
        name = folded(path)
        return any(_is_below(name, one) for one in self.hidden)

    def never(self, path: str, rel: str) -> str:
        """Say why no tool may write here, as the rest of a sentence; empty if tools may.

        Args:
            path: Absolute, without links below its root.
            rel: Its path below the root that it belongs to.
        """
        if OWN_FOLDER in (folded(part) for part in rel.split("/")):
            return OWN
        if not self._control:
            return ""
        folder, _, name = path.rpartition("/")
        try:
            real = os.path.realpath(folder or "/")
            ways = [*_ways(real, name)]
        except ValueError:  # not a valid path; the error comes on use
            return ""
        written = folded(f"{real.rstrip('/')}/{name}")
        if any(_is_below(written, one) or _is_below(one, written) for one in self._spelt):
            return GOVERNS
        held = [_key(one) for one in self._control]
        return GOVERNS if any(_meet(way, one) for one in held for way in ways) else ""

    def asks(self, rel: str) -> str:
        """Say why a person must allow a change of this file; empty if no approval is needed.

        Args:
            rel: Its path below the root that it belongs to.
        """
        found = self._obeyed.first_in(rel)
        if not found or self._writable.first_in(rel):
            return ""
        return f"other programs run or obey {shown(found)}"

    def held(self) -> list[str]:
        """List the paths at or below the directory that commands may never change.

        They need not exist yet. The directory itself is in the list if it lies in a folder that
        governs agents.
        """
        found = dict.fromkeys(
            self._work if _is_below(self._work, one.rstrip("/")) and one.endswith("/") else one
            for one in (*self._control, *self._memory)
            if _is_below(one.rstrip("/"), self._work)
            or (one.endswith("/") and _is_below(self._work, one.rstrip("/")))
        )
        return [*found, *self._links()]

    def must_be_apart(self, level: str) -> None:
        """Refuse a level that cannot show parts of the directory read-only.

        Raises:
            ConfigError: the directory holds files that commands may never change.
        """
        if found := self.held():
            raise ConfigError(
                f"the working directory {self._root.path} holds {found[0].rstrip('/')}, which "
                f"commands at the level {level} could change; give the agent a folder of its own, "
                "such as workdir: ./workspace with skills and memory outside it by absolute "
                "paths, or write execute: 'off'"
            )

    def prepare(self) -> None:
        """Make the missing paths that must be shown read-only.

        Raises:
            ConfigError: one cannot be made, or cannot be shown read-only.
        """
        for path in self.held():
            if path == self._work:
                continue
            rel = path[len(self._work) + 1 :].rstrip("/")
            try:
                self._make(rel, path)
                os.close(self._root.handle(rel))
            except (ToolError, OSError) as error:
                raise ConfigError(
                    f"{path.rstrip('/')} lies in the working directory of commands and cannot be "
                    f"shown to them read-only ({error}); give it a folder of its own outside"
                ) from None

    def look(self, *, inside: bool = True, skip: Collection[str] = ()) -> Seen:
        """Find the files that other programs obey, in their present state.

        Args:
            inside: Whether to look into folders that are obeyed as a whole, such as `.git`.
            skip: Folders to leave out, since nothing could change in them.
        """
        enter = {*skip}.isdisjoint if inside else None
        return _Scan(self._root.path, self._obeyed, self._writable, enter).seen()

    def mounts(self, seen: Seen) -> list[tuple[str, bool]]:
        """List the paths below the directory that get their own mount, and whether read-only.

        A folder above a read-only path gets its own mount too, so that it cannot be renamed. An
        empty path is the directory itself.

        Raises:
            ToolError: there are too many, or a path cannot be mounted.
        """
        try:
            self.prepare()  # a file may have been removed since
        except ConfigError as error:
            raise ToolError(str(error)) from error
        held = self.held()
        if self._work in held:
            return [("", True)]
        wanted = {path[len(self._work) + 1 :].rstrip("/") for path in held} | {*seen.tops}
        if len(wanted) > MAX_PART_MOUNTS:
            raise ToolError(
                f"there are {len(wanted):,} files that other programs obey, and at most "
                f"{MAX_PART_MOUNTS:,} can be shown read-only; ask the user to list those that "
                "commands may change under writable: in agents.yaml"
            )
        tops = {one for one in wanted if not any(above in wanted for above in _above(one))}
        pins = {above for one in tops for above in _above(one)}
        return sorted([(one, True) for one in tops] + [(one, False) for one in pins])

    def binds(self, seen: Seen) -> list[Bind]:
        """Open the paths that get their own mount; the descriptors belong to the caller.

        Raises:
            ToolError: there are too many, or a path cannot be opened.
        """
        made: list[Bind] = []
        try:
            for rel, read_only in self.mounts(seen):
                if self.hides(path := f"{self._work}/{rel}".rstrip("/")):
                    made.append(Bind(-1, path, read_only=True))
                    continue
                try:
                    fd = self._root.handle(rel or ".")
                except ToolError:
                    if rel in seen.tops or not read_only:  # it was removed meanwhile
                        continue
                    raise
                made.append(Bind(fd, path, read_only))
        except BaseException:
            close_binds(made)
            raise
        return made

    def note(self, before: Seen, *, apart: bool) -> str:
        """Say which obeyed files were created or changed since; empty if none were.

        Args:
            before: What `look` found then.
            apart: Whether those files were shown read-only.
        """
        after = self.look(skip=before.tops if apart else ())
        names = [rel for rel, is_now in after.files.items() if before.files.get(rel) != is_now]
        names += [f"{rel} (removed)" for rel in before.files.keys() - after.files.keys()]
        said = []
        if names:
            more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
            listed = ", ".join(shown(name) for name in sorted(names)[:_NAMED])
            said.append(
                f"files that other programs run or obey were created or changed: {listed}{more}; "
                "tell the user to check them"
            )
        if after.cut or before.cut:
            said.append("the directory is too large to check for such files")
        return "; ".join(said)

    def _make(self, rel: str, path: str) -> None:
        try:
            self._root.stat(rel)
        except ToolError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            if path.endswith("/"):
                self._root.make_dir(rel)
            elif path in self._memory or path in self._databases:
                self._root.replace(rel, b"")
            else:
                raise

    def _links(self) -> Iterator[str]:
        """Find hard links below the directory to files that govern agents."""
        wanted = {*_linked(self._named)}
        if not wanted:
            return
        for folder, _, names in os.walk(self._work):
            for name in names:
                path = f"{folder}/{name}"
                if _identity(path) in wanted and not any(
                    _is_below(path, one.rstrip("/")) for one in self._control
                ):
                    yield path


_NAMED: Final = 20
"""Files that a result names."""


class _Scan:
    """One walk through a directory for files that other programs obey."""

    def __init__(
        self,
        folder: str,
        obeyed: Patterns,
        writable: Patterns,
        enter: Callable[[Iterable[str]], bool] | None,
    ) -> None:
        self._folder = folder
        self._enter = enter
        self._obeyed = obeyed
        self._writable = writable
        self._files: dict[str, Stamp] = {}
        self._tops: list[str] = []
        self._left = MAX_WATCHED
        self._until = time.monotonic() + WATCH_SECONDS

    def seen(self) -> Seen:
        """Walk without following links."""
        pending: list[tuple[str, tuple[str, ...], bool]] = [("", (), False)]
        while pending and not self._is_over():
            rel, parts, inside = pending.pop()
            try:
                with os.scandir(f"{self._folder}/{rel}") as entries:
                    for entry in entries:
                        self._entry(entry, rel, parts, inside, pending)
            except OSError:  # it was removed, or is unreadable
                continue
        return Seen(self._files, tuple(self._tops), cut=bool(pending))

    def _entry(
        self,
        entry: os.DirEntry[str],
        rel: str,
        parts: tuple[str, ...],
        inside: bool,
        pending: list[tuple[str, tuple[str, ...], bool]],
    ) -> None:
        self._left -= 1
        if not parts and entry.name == OWN_FOLDER:
            return
        mine = (*parts, folded(entry.name))
        path = f"{rel}{entry.name}"
        top = not inside and self._obeyed.ends_at(mine)
        if top and self._writable.first_in(path):
            return
        is_dir = entry.is_dir(follow_symlinks=False)
        if top or (inside and not is_dir):
            try:
                self._files[path] = _stamp(entry.stat(follow_symlinks=False))
            except OSError:
                return
            if top and not entry.is_symlink():
                self._tops.append(path)
        if rel.endswith(_NOT_ENTERED_BELOW) or entry.name in _NOT_ENTERED:
            return
        if is_dir and (not top or (self._enter is not None and self._enter((path,)))):
            pending.append((f"{path}/", mine, inside or top))

    def _is_over(self) -> bool:
        return self._left <= 0 or time.monotonic() > self._until


def close_binds(binds: Iterable[Bind]) -> None:
    """Close the descriptors of binds that no launch has taken."""
    for one in binds:
        if one.fd >= 0:
            os.close(one.fd)


def _stamp(status: os.stat_result) -> Stamp:
    """Return what differs after a change; for a folder, only its identity."""
    if stat.S_ISDIR(status.st_mode):
        return status.st_ino, status.st_mode
    return status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _joined(known: tuple[str, ...], more: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*known, *more)))


def _forms(paths: Iterable[str]) -> tuple[str, ...]:
    """Return each path in two forms: with its folder resolved, and fully resolved."""
    found: dict[str, None] = {}
    for path in paths:
        end = "/" if path.endswith("/") else ""
        folder, _, name = os.path.abspath(path).rpartition("/")  # noqa: PTH100  (as text)
        for one in (f"{os.path.realpath(folder or '/')}/{name}", os.path.realpath(path)):
            found[(one.replace("//", "/").rstrip("/") or "/") + (end if one != "/" else "")] = None
    return tuple(found)


def _key(path: str) -> Key:
    """Identify a path by its deepest existing folder."""
    return next(_ways(path.rstrip("/"), ""))


def _ways(path: str, name: str) -> Iterator[Key]:
    """Identify a path by each of its existing folders, deepest first."""
    tail = (folded(name),) if name else ()
    while True:
        try:
            status = os.stat(path or "/")  # noqa: PTH116  (a path as text, like all here)
            if stat.S_ISDIR(status.st_mode):
                yield (status.st_dev, status.st_ino), tail
        except OSError:
            pass
        if path in ("", "/"):
            return
        path, _, last = path.rpartition("/")
        tail = (folded(last), *tail)


def _meet(way: Key, held: Key) -> bool:
    """Say whether one of two paths below the same folder is at or above the other."""
    shorter = min(len(way[1]), len(held[1]))
    return way[0] == held[0] and way[1][:shorter] == held[1][:shorter]


def _linked(paths: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the files of the control plane with more than one name."""
    for path in paths:
        inner = (f"{f}/{n}" for f, _, names in os.walk(path) for n in names)
        for one in inner if path.endswith("/") else (path,):
            if (found := _identity(one)) is not None:
                yield found


def _identity(path: str) -> tuple[int, int] | None:
    """Identify a file with more than one name; None for others."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode) or status.st_nlink < 2:
        return None
    return status.st_dev, status.st_ino


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(root if root == "/" else f"{root}/")


def _above(rel: str) -> list[str]:
    """List the folders above a path, without the directory itself."""
    return [str(one) for one in Path(rel).parents][:-1]
