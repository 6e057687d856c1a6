"""Resolve a path: its root, its single absolute name, and whether tools may write it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from wick_graph.backends.guard import Guard, Rules
from wick_graph.backends.root import Mechanism, Root, plain, shown
from wick_graph.errors import ConfigError, RefusedError, ToolError


@dataclass(frozen=True, slots=True)
class ExtraRoot:
    """A folder or a file besides the working directory that tools may reach."""

    path: str
    """Absolute. A file need not exist; its folder must."""
    writable: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """Where a path leads."""

    root: Root
    rel: str
    """As `root` takes it."""
    path: str
    """The single absolute path, without `.`, `..` and doubled slashes."""
    below: str
    """The path below the working directory or the extra root; empty for an extra file itself."""
    guard: Guard | None
    """The rules for writing; None if the root is read-only."""

    def must_be_writable(self, *, allowed: bool = False) -> None:
        """Refuse a protected path.

        Args:
            allowed: Whether a person has allowed this change.

        Raises:
            RefusedError: no tool may write here, or a person must allow it first.
        """
        if refusal := self.refusal():
            raise RefusedError(f"{shown(self.path)} {refusal}")
        if not allowed and (why := self.asks()):
            raise RefusedError(f"{shown(self.path)} is protected: {why}; ask the user to do it")

    def refusal(self) -> str:
        """Say why no tool may write here; empty if tools may."""
        if self.guard is None:
            return "is read-only for tools"
        forms = dict.fromkeys([(self.path, self.below), (_meant(self.path), _meant(self.below))])
        return next((why for form in forms if (why := self.guard.never(*form))), "")

    def asks(self) -> str:
        """Say why a person must allow a write here; empty if no approval is needed."""
        if self.guard is None:
            return ""
        return self.guard.asks(self.below) or self.guard.asks(_meant(self.below))


class Places:
    """The working directory and the extra roots.

    A path belongs to the longest root that it is below; a relative one starts at the working
    directory.

    Raises:
        ConfigError: a root cannot be opened.
    """

    def __init__(
        self,
        workdir: str | os.PathLike[str],
        extra: Iterable[ExtraRoot],
        *,
        rules: Rules | None = None,
        symlinks: Literal["deny", "inside"] = "deny",
        mechanism: Mechanism = "auto",
    ) -> None:
        self.work: Final = Root(workdir, symlinks=symlinks, mechanism=mechanism)
        self._real: Final = os.path.realpath(workdir)
        self.guard: Final = Guard(self.work, rules or Rules())
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
        """Return the place of a path that a model wrote.

        Raises:
            ToolError: the path is empty. Other faults show when the place is used.
        """
        absolute = path if path.startswith("/") else f"{self.work.path}/{path}"
        name = _normal(absolute)
        if _is_below(name, self._real) and not _is_below(name, self.work.path):
            name = _normal(self.work.path + name[len(self._real) :])
        for one in self._extra:
            if _is_below(name, one.path) and (one.is_dir or name == one.path):
                return self._place(one.root, absolute, name, one)
        if not path:
            raise ToolError("the path is empty; write '.' for the working directory")
        return self._place(self.work, path, name, None)

    def close(self) -> None:
        """Close all roots."""
        self.work.close()
        for one in self._extra:
            one.root.close()

    def _place(self, root: Root, rel: str, name: str, extra: _Extra | None) -> Place:
        base = self.work.path if extra is None else extra.path
        below = name[len(base) :].lstrip("/") if _is_below(name, base) else name
        guard = self.guard if extra is None or extra.writable else None
        if self.guard.hidden:
            root = root.hiding(self.guard.hides)
        return Place(root, rel, name, below, guard)


@dataclass(frozen=True, slots=True)
class _Extra:
    path: str
    root: Root
    writable: bool
    is_dir: bool


def _normal(path: str) -> str:
    """Remove `.`, `..` and doubled slashes from an absolute path."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return "/" + "/".join(parts)


def _meant(path: str) -> str:
    """Return a path with its escaped bytes replaced by the bytes."""
    if "\\x" not in path:
        return path
    try:
        return os.fsdecode(plain(os.fsencode(path)))
    except UnicodeEncodeError:  # refused on use
        return path


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(root if root == "/" else f"{root}/")
