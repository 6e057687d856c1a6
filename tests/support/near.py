"""The test files nearest to a module: `make near MODULE=store/leases`.

Tests are named by what they promise, not by the module that keeps the promise. So words decide: a
test file is near if it has the rare words of the module. `tests/test_guide.py` holds that to the
mutants, of which it is known who notices them.
"""

from __future__ import annotations

import math
import re
import sys
from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import Final

from tests.source import MODULES, ROOT

SHOWN: Final = 8
"""How many test files are printed for a module."""

Weights = Mapping[str, float]


def words_in(text: str) -> Counter[str]:
    """Count the words of a source, and the words that its names are made of."""
    found: Counter[str] = Counter()
    for name in re.findall(r"[A-Za-z_]\w+", text):
        inner = [part.lower() for part in re.findall(r"[A-Z]?[a-z]+", name)]
        found.update({name, *inner})
    return Counter({word.rstrip("s"): count for word, count in found.items() if len(word) > 3})


@cache
def sources() -> tuple[Mapping[str, Weights], Mapping[str, Weights]]:
    """Return the words of each module and of each test file, the rarer the heavier."""
    modules = {name: words_in(one.path.read_text("utf-8")) for name, one in MODULES.items()}
    tests = {
        str(path.relative_to(ROOT)): words_in(path.read_text("utf-8"))
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
    }
    both = [*modules.values(), *tests.values()]
    used = Counter(word for words in both for word in words)
    rare = {word: math.log(len(both) / count) ** 1.5 for word, count in used.items()}

    def weighed(words: Counter[str]) -> Weights:
        made = {word: (1 + math.log(count)) * rare[word] for word, count in words.items()}
        length = math.hypot(*made.values()) or 1.0
        return {word: weight / length for word, weight in made.items()}

    return (
        {name: weighed(words) for name, words in modules.items()},
        {path: weighed(words) for path, words in tests.items()},
    )


@cache
def near(name: str) -> tuple[str, ...]:
    """Return all test files, those nearest to a module first."""
    modules, tests = sources()
    mine = modules[name]

    def shared(path: str) -> float:
        theirs = tests[path]
        return sum(weight * theirs.get(word, 0.0) for word, weight in mine.items())

    return tuple(sorted(tests, key=shared, reverse=True))


def module_named(text: str) -> str:
    """Return the module that a path or a dotted name means; the nodes' folder is the package's.

    Raises:
        SystemExit: There is no such module.
    """
    dotted = text.removesuffix(".py").strip("./").replace("/", ".")
    for name in (dotted, f"wick_graph.{dotted}"):
        if name in MODULES:
            return name
    raise SystemExit(f"there is no module {text}; name one as store/leases or nodes/model.py")


def main(arguments: list[str]) -> None:
    """Print the test files nearest to each module that is named."""
    if not arguments:
        raise SystemExit("name a module: make near MODULE=store/leases")
    for name in map(module_named, arguments):
        print(f"{name}:", *near(name)[:SHOWN], sep="\n  ")


if __name__ == "__main__":
    main(sys.argv[1:])
