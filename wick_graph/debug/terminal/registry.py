"""Commands by name and abbreviation, with their help."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from wick_graph.debug.terminal.reply import Reply
from wick_graph.errors import DebugError

if TYPE_CHECKING:
    from wick_graph.debug.terminal.shell import Shell

Work = Callable[["Shell", str], Reply]
GROUPS: Final = ("run", "back", "stops", "look", "change", "compare", "files")


@dataclass(frozen=True, slots=True)
class Command:
    """One command."""

    names: tuple[str, ...]
    """The name, then its abbreviations."""
    group: str
    usage: str
    help: str
    work: Work
    repeats: bool = False
    """Whether an empty line does it again."""


class Commands:
    """All commands; a name may be cut short as long as it fits one of them alone."""

    def __init__(self, commands: Iterable[Command]) -> None:
        self.all = tuple(commands)
        self._by_name: dict[str, Command] = {}
        for command in self.all:
            for name in command.names:
                assert name not in self._by_name, name
                self._by_name[name] = command

    def names(self) -> list[str]:
        """Return every name, abbreviations too."""
        return sorted(self._by_name)

    def find(self, name: str, aliases: Mapping[str, str]) -> Command:
        """Return a command by its name, an abbreviation, or the beginning of its name.

        Raises:
            DebugError: There is none, or the beginning fits several.
        """
        found = self._by_name.get(name)
        if found is not None:
            return found
        begun = {c.names[0] for c in self.all if c.names[0].startswith(name)} if name else set()
        if len(begun) == 1:
            return self._by_name[begun.pop()]
        if begun:
            raise DebugError(f"{name} may be {', '.join(sorted(begun))}; write more of it")
        near = difflib.get_close_matches(name, [*self._by_name, *aliases], 1, 0.7)
        hint = f"did you mean {near[0]}?" if near else "`help` lists the commands"
        raise DebugError(f"there is no command {name[:40]!r}; {hint}")

    def overview(self) -> list[str]:
        """List the commands by group."""
        lines: list[str] = []
        for group in GROUPS:
            names = ["/".join(c.names[:2]) for c in self.all if c.group == group]
            lines += _wrapped(f"{group:<8}", names)
        lines.append("`help NAME` tells of one, `help positions` and `help expressions` of these;")
        lines.append("an empty line repeats the last step")
        return lines


def _wrapped(head: str, names: list[str], width: int = 96) -> list[str]:
    lines, line = [], head
    for name in names:
        if len(line) + len(name) + 2 > width:
            lines.append(line)
            line = " " * len(head)
        line += f"  {name}"
    return [*lines, line]
