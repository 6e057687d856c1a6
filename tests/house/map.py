"""The map of the move: targets with their old modules, moved symbols, new names, packages."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent


@dataclass
class Target:
    """A module to be made: of which old ones, and under which heading."""

    name: str
    old: list[str]
    title: str = ""


@dataclass
class Map:
    """All of `map.txt`."""

    targets: dict[str, Target] = field(default_factory=dict)
    optional: set[str] = field(default_factory=set)
    moved: dict[tuple[str, str], str] = field(default_factory=dict)
    renamed: dict[tuple[str, str], str] = field(default_factory=dict)
    aliases: dict[tuple[str, str], str] = field(default_factory=dict)
    packages: dict[str, str] = field(default_factory=dict)
    added: dict[str, list[str]] = field(default_factory=dict)
    doors: dict[tuple[str, str], str] = field(default_factory=dict)
    same: dict[str, str] = field(default_factory=dict)
    tests: dict[str, str] = field(default_factory=dict)

    @property
    def home(self) -> dict[str, str]:
        """Which target an old module goes to."""
        return {old: target.name for target in self.targets.values() for old in target.old}


def read(path: Path = HERE / "map.txt") -> Map:
    """Read the map.

    TARGET <- OLD OLD … | title     modules; `~OLD` may be missing
    TARGET += OLD: NAME NAME        symbols that move alone
    rename OLD: NAME -> NEW         a name that collides
    alias TARGET: OLD.NAME -> NEW   an import under another name
    package NAME | docstring        a new package
    export PACKAGE: OLD.NAME        a name that a package offers from now on
    test PATH -> PATH               a file of tests
    same NAME -> NAME               one thing under two names of a library
    """
    made = Map()
    for line in path.read_text(encoding="utf-8").splitlines():
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        word, _, rest = text.partition(" ")
        if word == "rename":
            old, _, names = rest.partition(": ")
            name, _, new = names.partition(" -> ")
            made.renamed[old, name] = new
        elif word == "alias":
            target, _, names = rest.partition(": ")
            name, _, new = names.partition(" -> ")
            made.aliases[target, name] = new
        elif word == "test":
            name, _, new = rest.partition(" -> ")
            made.tests[name] = new
        elif word == "same":
            name, _, new = rest.partition(" -> ")
            made.same[name] = new
        elif word == "package":
            name, _, title = rest.partition(" | ")
            made.packages[name] = title
        elif word == "export":
            package, _, symbol = rest.partition(": ")
            old, _, name = symbol.rpartition(".")
            made.added.setdefault(package, []).append(symbol)
            made.doors[old, name] = package
        elif rest.startswith("+= "):
            old, _, symbols = rest[3:].partition(": ")
            for name in symbols.split():
                made.moved[old, name] = word
        else:
            olds, _, title = rest.removeprefix("<- ").partition(" | ")
            made.optional |= {o[1:] for o in olds.split() if o.startswith("~")}
            modules = [o.removeprefix("~") for o in olds.split()]
            made.targets[word] = Target(word, modules, title.strip())
    return made
