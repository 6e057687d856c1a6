"""Which root a path belongs to, whether it may be written, and the one name that it has."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, Literal

from wick_graph.backends.beneath import Mechanism
from wick_graph.backends.names import shown
from wick_graph.backends.root import Root
from wick_graph.errors import ConfigError, RefusedError, ToolError

OWN_FOLDER: Final = ".wick"
"""Where a backend keeps whole results and notes; tools read it and do not write it."""

PROTECTED: Final = frozenset(
    {
        ".git",
        ".gitattributes",
        ".gitconfig",
        ".gitmodules",
        ".hg",
        ".svn",
        OWN_FOLDER,
        ".env",
        ".envrc",
        ".netrc",
        ".npmrc",
        ".pypirc",
        ".ssh",
        ".bash_login",
        ".bash_logout",
        ".bash_profile",
        ".bashrc",
        ".profile",
        ".zlogin",
        ".zprofile",
        ".zshenv",
        ".zshrc",
        "AGENTS.md",
        "SKILL.md",
    }
)
"""Names that tools do not write, nor anything below them: what would be obeyed or run later.

A file that is an extra root of its own may be written whatever it is called.
"""


@dataclass(frozen=True, slots=True)
class ExtraRoot:
    """A folder or a file beside the working directory that tools may reach."""

    path: str
    """Absolute. A file need not exist; the folder that it is in must."""
    writable: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """Where a path leads."""

    root: Root
    rel: str
    """As the root takes it."""
    path: str
    """The one absolute path, without `.`, `..` and doubled slashes."""
    refusal: str = ""
    """Why it may not be written; empty if it may."""

    def must_be_writable(self) -> None:
        """Refuse what is protected.

        Raises:
            RefusedError: Nobody may write here.
        """
        if self.refusal:
            raise RefusedError(f"{shown(self.path)} {self.refusal}")


class Places:
    """The working directory and the extra roots.

    A path belongs to the longest root that it is below; a relative one starts at the working
    directory.

    Raises:
        ConfigError: A root cannot be opened.
    """

    def __init__(
        self,
        workdir: str | os.PathLike[str],
        extra: Iterable[ExtraRoot],
        *,
        protected: Collection[str] = PROTECTED,
        symlinks: Literal["deny", "inside"] = "deny",
        mechanism: Mechanism = "auto",
    ) -> None:
        self.work: Final = Root(workdir, symlinks=symlinks, mechanism=mechanism)
        self._real: Final = os.path.realpath(workdir)
        self._protected: Final = frozenset(_folded(name) for name in protected)
        self._extra: list[_Extra] = []
        for one in extra:
            path = _normal(one.path)
            if not os.path.isabs(one.path):  # noqa: PTH117  (a path as text, like all here)
                self.close()
                raise ConfigError(f"the extra root {shown(one.path)} is not absolute; make it so")
            is_dir = os.path.isdir(path)  # noqa: PTH112  (a path as text, like all here)
            folder = path if is_dir else path.rpartition("/")[0] or "/"
            try:
                root = Root(folder, symlinks=symlinks, mechanism=mechanism)
            except ConfigError:
                self.close()
                raise
            self._extra.append(_Extra(path, root, one.writable, is_dir))
        self._extra.sort(key=lambda one: len(one.path), reverse=True)

    def find(self, path: str) -> Place:
        """Return the place of a path, as a model wrote it.

        Raises:
            ToolError: It is empty. Everything else is refused when it is used.
        """
        absolute = path if path.startswith("/") else f"{self.work.path}/{path}"
        name = _normal(absolute)
        if _is_below(name, self._real) and not _is_below(name, self.work.path):
            name = _normal(self.work.path + name[len(self._real) :])
        for one in self._extra:
            if _is_below(name, one.path) and (one.is_dir or name == one.path):
                refusal = "" if one.writable else "is read-only for tools"
                if one.writable and one.is_dir:
                    refusal = self._refusal(name, one.path)
                return Place(one.root, absolute, name, refusal)
        if not path:
            raise ToolError("the path is empty; write '.' for the working directory")
        return Place(self.work, path, name, self._refusal(name, self.work.path))

    def close(self) -> None:
        """Close all roots."""
        self.work.close()
        for one in self._extra:
            one.root.close()

    def _refusal(self, path: str, root: str) -> str:
        rest = path[len(root) :] if _is_below(path, root) else path
        for part in rest.split("/"):
            if part and _folded(part) in self._protected:
                return f"is protected: tools do not write {shown(part)}; ask the user to do it"
        return ""


@dataclass(frozen=True, slots=True)
class _Extra:
    path: str
    root: Root
    writable: bool
    is_dir: bool


def _normal(path: str) -> str:
    """Take `.`, `..` and doubled slashes out of an absolute path."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return "/" + "/".join(parts)


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(root if root == "/" else f"{root}/")


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())
