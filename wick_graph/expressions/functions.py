"""The functions and values of expressions, with a bound on the cost of each."""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice
from posixpath import join, normpath
from typing import Any, Final, Protocol

from wick_graph.errors import ExpressionError

# --- The values of expressions, their largest sizes, and the budget of an evaluation.


MAX_OPERATIONS: Final = 10_000
"""Steps of one evaluation; work on long values takes several."""

MAX_RESULT: Final = 64 * 1024
"""Characters of a text that an expression makes, and of its whole result."""

MAX_BITS: Final = 1_024
"""Of a whole number."""

_VALUE_SIZE: Final = 8
"""The size of a value besides its characters."""

_SIZE_PER_STEP: Final = 256

_NAMED: Final = 10

_LOOKED_AT: Final = 50
"""Names to search for one like a missing name."""


class Budget:
    """The steps that an evaluation has left."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = MAX_OPERATIONS

    def spend(self, steps: int = 1) -> None:
        """Count steps.

        Raises:
            ExpressionError: too few are left.
        """
        self.left -= steps
        if self.left < 0:
            raise ExpressionError(f"it takes more than {MAX_OPERATIONS:,} steps")

    def spend_on(self, *values: Any) -> None:
        """Count the steps of one pass over values; raises as `spend`."""
        for value in values:
            self.spend(size_of(value, (self.left + 1) * _SIZE_PER_STEP) // _SIZE_PER_STEP)

    def made(self, value: Any) -> Any:
        """Return a new text or list, after counting its cost.

        Raises:
            ExpressionError: it is too long.
        """
        fits(len(value))
        self.spend(len(value) // _SIZE_PER_STEP)
        return value


def fits(length: int) -> None:
    """Refuse a text or list that would be too long.

    Raises:
        ExpressionError: it would be.
    """
    if length > MAX_RESULT:
        raise ExpressionError(f"a value in it is larger than {MAX_RESULT // 1024} kB")


def size_of(value: Any, enough: int) -> int:
    """Count a value's characters and parts; stop above `enough`.

    Raises:
        ExpressionError: a part of it is not JSON-like data.
    """
    size, waiting = 0, [value]
    while waiting and size <= enough:
        item = plain(waiting.pop())
        size += _VALUE_SIZE
        if isinstance(item, str):
            size += len(item)
        elif isinstance(item, Mapping):
            size += _VALUE_SIZE * len(item)
            if size <= enough:
                waiting += [*item.keys(), *item.values()]
        elif isinstance(item, list | tuple):
            size += len(item)
            if size <= enough:
                waiting += item
    return size


def plain(value: Any) -> Any:
    """Return a value if it is JSON-like data; its parts are not checked.

    Raises:
        ExpressionError: it is another object, or a number that is too large.
    """
    if value is None or isinstance(value, bool | str | list | tuple | Mapping):
        return value
    return number(value)


def number(value: Any) -> int | float:
    """Return a value if it is a number.

    Raises:
        ExpressionError: it is not a number, is not finite, or has too many digits.
    """
    if isinstance(value, int):
        few_bits(value.bit_length())
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ExpressionError("a number in it is too large")
        return value
    raise ExpressionError(f"{kind(value)} is not a number")


def whole(value: Any) -> int:
    """Return a value if it is a whole number.

    Raises:
        ExpressionError: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise ExpressionError(f"{kind(value)} is not a whole number")
    return value


def few_bits(bits: int) -> None:
    """Refuse a whole number that would have too many bits.

    Raises:
        ExpressionError: it would.
    """
    if bits > MAX_BITS:
        raise ExpressionError("a number in it is too large")


def have_order(values: Sequence[Any]) -> bool:
    """Say whether values can be sorted: numbers, or texts."""
    return all(isinstance(v, str) for v in values) or all(
        isinstance(v, int | float) for v in values
    )


def item(base: Any, key: Any) -> Any:
    """Look up a key or an index in a value.

    Raises:
        ExpressionError: the value does not have it.
    """
    if isinstance(base, Mapping):
        if isinstance(key, str) and key in base:
            return base[key]
        raise ExpressionError(f"there is no {str(key)[:40]}{there_is(base, str(key))}")
    if not isinstance(base, str | list | tuple):
        raise ExpressionError(f"{kind(base)} has no keys")
    if isinstance(key, str):
        raise ExpressionError(f"{kind(base)} has no key {key[:40]}")
    index = whole(key)
    if not -len(base) <= index < len(base):
        raise ExpressionError(f"there is no index {index}; the length is {len(base)}")
    return base[index]


def there_is(names: Mapping[str, Any], missed: str) -> str:
    """Phrase the nearest name, or the known names, as the end of an error about a missing one."""
    near = get_close_matches(missed[:40], [str(name)[:40] for name in islice(names, _LOOKED_AT)], 1)
    if near:
        return f"; did you mean {near[0]}"
    known = [str(name)[:40] for name in list(names)[:_NAMED]]
    return f"; there is {', '.join(known)}{', …' * (len(names) > _NAMED)}" if known else ""


def kind(value: Any) -> str:
    """Name a value's kind."""
    if value is None:
        return "None"
    kinds = ((bool, "a truth value"), (str, "a text"), (int | float, "a number"))
    more = ((list | tuple, "a list"), (Mapping, "an object"))
    for types, name in (*kinds, *more):
        if isinstance(value, types):
            return name
    return f"a {type(value).__name__}"


# --- Match a text against a pattern of `*`, `?` and `[…]`, in bounded time and without regex.


MAX_PATTERN: Final = 1_000
"""Characters of a pattern."""

_PER_STEP: Final = 64
"""Characters compared for one step of a budget."""

_Fits = Callable[[str], bool]

Spend = Callable[[int], None]


def glob_match(text: str, pattern: str, spend: Spend | None = None) -> bool:
    """Say whether a whole text fits a pattern; upper and lower case differ.

    `*` matches any characters, `/` included, `?` matches one, `[a-z]` one of these and `[!a-z]`
    one of all others. A `[` that is never closed matches itself.

    Args:
        text: The text to match.
        pattern: At most `MAX_PATTERN` characters.
        spend: Called with the steps taken; may raise.

    Raises:
        ExpressionError: the pattern is too long.
    """
    parts = _parts(pattern)
    at, part, after_star, resume, steps = 0, 0, -1, 0, 0
    while at < len(text):
        steps += 1
        if spend is not None and steps % _PER_STEP == 0:
            spend(1)
        step = parts[part] if part < len(parts) else None
        if part < len(parts) and step is None:
            part += 1
            if part == len(parts):
                return True
            after_star, resume = part, at
        elif step is not None and step(text[at]):
            at, part = at + 1, part + 1
        elif after_star >= 0:  # the last star takes one more character
            resume += 1
            at, part = resume, after_star
        else:
            return False
    return all(step is None for step in parts[part:])


@lru_cache(256)
def _parts(pattern: str) -> Sequence[_Fits | None]:
    """Parse a pattern into tests for one character each; None is a star."""
    if len(pattern) > MAX_PATTERN:
        raise ExpressionError(f"the pattern has more than {MAX_PATTERN:,} characters")
    parts: list[_Fits | None] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        end = pattern.find("]", at + 2 + (pattern[at + 1 : at + 2] == "!")) if char == "[" else -1
        if end > 0:
            parts.append(_one_of(pattern[at + 1 : end]))
            at = end
        elif char != "*":
            parts.append(_any_char if char == "?" else char.__eq__)
        elif not parts or parts[-1] is not None:
            parts.append(None)
        at += 1
    return parts


def _any_char(char: str) -> bool:
    return True


def _one_of(listed: str) -> _Fits:
    wanted = not listed.startswith("!")
    listed = listed if wanted else listed[1:]
    ranges: list[tuple[str, str]] = []
    while listed:
        if len(listed) >= 3 and listed[1] == "-":
            ranges.append((listed[0], listed[2]))
            listed = listed[3:]
        else:
            ranges.append((listed[0], listed[0]))
            listed = listed[1:]
    return lambda char: any(low <= char <= high for low, high in ranges) is wanted


# --- Paths in `glob(path, …)`: a file is compared by its plain names, however it is written.


_PATH: Final = re.compile(r"(?:\w*[_-])?(?:path|file|filename|folder|dir|directory)s?")
"""Names of arguments that hold paths: `path`, `file_path`, `paths`, `source_dir`."""

_PLACE: Final = re.compile(r"source|src|destination|dest|dst|target|cwd|workdir")
"""Names of arguments that hold paths, or addresses."""

_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")

_NEEDLESS: Final = re.compile(r"/(?:\.?/)+")


def names_a_path(node: ast.expr, value: str) -> bool:
    """Say whether a part of an expression takes its value from a path argument."""
    found = (
        part.id
        if isinstance(part, ast.Name)
        else part.attr
        if isinstance(part, ast.Attribute)
        else part.value
        if isinstance(part, ast.Constant)
        else None
        for part in ast.walk(node)
    )
    names = [name for name in found if isinstance(name, str)]
    if any(map(_PATH.fullmatch, names)):
        return True
    return any(map(_PLACE.fullmatch, names)) and not _ADDRESS.match(value)


def forms(path: str, folders: Sequence[str] = ()) -> list[str]:
    """Return the plain names of a path's file, each without `.`, `..` and `//`.

    Args:
        path: As it was written.
        folders: Absolute names of the folder at which a relative path starts; the first is the
            usual one. A file below it has two names: relative to the folder, and absolute.
    """
    if not folders:
        return [_plain(path)]
    full = _plain(join(folders[0], path))
    for folder in map(_plain, folders):
        if full == folder:
            return [".", full]
        if full.startswith(folder.rstrip("/") + "/"):
            below = full[len(folder.rstrip("/")) + 1 :]
            return [below, *(f"{_plain(one).rstrip('/')}/{below}" for one in folders)]
    return [full]


def plain_pattern(pattern: Any) -> Any:
    """Return a pattern of paths without a leading `./` and `//`, which no plain name has."""
    return _NEEDLESS.sub("/", pattern).removeprefix("./") if isinstance(pattern, str) else pattern


def _plain(path: str) -> str:
    plain = normpath(path)
    return "/" + plain.lstrip("/") if plain.startswith("/") else plain


# --- The functions of expressions: a fixed list, each with a bound on its cost.


_MAX_DIGITS: Final = 300

_MAX_ROUND: Final = 15

_MANY: Final = 100


class Scope(Protocol):
    """What a function may know of its evaluation."""

    names: Mapping[str, Any]
    budget: Budget


def _len(scope: Scope, value: Any) -> int:
    if not isinstance(value, str | list | tuple | Mapping):
        raise ExpressionError(f"{kind(value)} has no length")
    return len(value)


def _items(scope: Scope, value: Any) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise ExpressionError(f"{kind(value)} is not a list")
    scope.budget.spend(len(value) // 16)
    return list(value)


def _sum(scope: Scope, values: Any) -> int | float:
    total: int | float = 0
    for value in _items(scope, values):
        total = number(total + number(value))
    return total


def _ordered(scope: Scope, values: tuple[Any, ...]) -> list[Any]:
    found = _items(scope, values[0]) if len(values) == 1 else list(values)
    if not have_order(found):
        raise ExpressionError("only numbers, or only texts, have an order")
    scope.budget.spend_on(found)
    return found


def _least(scope: Scope, *values: Any) -> Any:
    return min(_not_empty(_ordered(scope, values)))


def _most(scope: Scope, *values: Any) -> Any:
    return max(_not_empty(_ordered(scope, values)))


def _not_empty(values: list[Any]) -> list[Any]:
    if not values:
        raise ExpressionError("the list is empty")
    return values


def _str(scope: Scope, value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, bool | int | float):
        return str(value)
    fits(size_of(value, MAX_RESULT))
    text = json.dumps(value, ensure_ascii=False, default=dict)
    made: str = scope.budget.made(text)
    return made


def _int(scope: Scope, value: Any) -> int:
    if not isinstance(value, str):
        return int(number(value))
    digits = value.strip().removeprefix("-").removeprefix("+")
    if len(digits) > _MAX_DIGITS or not (digits.isascii() and digits.isdigit()):
        raise ExpressionError("the text is not a whole number")
    return int(value)


def _round(scope: Scope, value: Any, digits: Any = 0) -> int | float:
    if abs(whole(digits)) > _MAX_ROUND:
        raise ExpressionError(f"round takes at most {_MAX_ROUND} digits")
    return round(number(value), digits) if digits else round(number(value))


def _keys(scope: Scope, value: Any) -> list[Any]:
    if not isinstance(value, Mapping):
        raise ExpressionError(f"{kind(value)} has no keys")
    scope.budget.spend(len(value) // 16)
    return list(value)


def _last(scope: Scope, value: Any, count: Any = None) -> Any:
    if not isinstance(value, str | list | tuple):
        raise ExpressionError(f"{kind(value)} has no last part")
    if count is None:
        return item(value, -1)
    if whole(count) < 0:
        raise ExpressionError("last takes a count of 0 or more")
    return scope.budget.made(value[max(len(value) - count, 0) :])


def _changed(scope: Scope, channel: Any) -> bool:
    if not isinstance(channel, str):
        raise ExpressionError('changed takes the name of a channel in quotes, as changed("todos")')
    now, before = item(scope.names, channel), item(scope.names, "prev")
    then = before.get(channel) if isinstance(before, Mapping) else None
    scope.budget.spend_on(now, then)
    return bool(now != then)


def _glob(scope: Scope, text: Any, pattern: Any) -> bool:
    for value in (text, pattern):
        if not isinstance(value, str):
            raise ExpressionError(f"glob takes a text and a pattern, not {kind(value)}")
    return glob_match(text, pattern, scope.budget.spend)


def _text(scope: Scope, message: Any) -> str:
    content = item(message, "content") if isinstance(message, Mapping) else message
    if isinstance(content, str):
        return content
    if not isinstance(content, list | tuple):
        raise ExpressionError(f"text takes a message or its content, not {kind(content)}")
    blocks = [
        block if isinstance(block, str) else block.get("text")
        for block in _items(scope, content)
        if isinstance(block, str | Mapping)
    ]
    texts = [text for text in blocks if isinstance(text, str)]
    fits(sum(map(len, texts)))
    made: str = scope.budget.made("".join(texts))
    return made


FUNCTIONS: Final[Mapping[str, tuple[Callable[..., Any], int, int]]] = {
    "len": (_len, 1, 1),
    "any": (lambda scope, values: any(map(plain, _items(scope, values))), 1, 1),
    "all": (lambda scope, values: all(map(plain, _items(scope, values))), 1, 1),
    "sum": (_sum, 1, 1),
    "min": (_least, 1, _MANY),
    "max": (_most, 1, _MANY),
    "abs": (lambda scope, value: abs(number(value)), 1, 1),
    "str": (_str, 1, 1),
    "int": (_int, 1, 1),
    "round": (_round, 1, 2),
    "sorted": (lambda scope, values: sorted(_ordered(scope, (values,))), 1, 1),
    "keys": (_keys, 1, 1),
    "last": (_last, 1, 2),
    "changed": (_changed, 1, 1),
    "glob": (_glob, 2, 2),
    "text": (_text, 1, 1),
}
"""Each function with its least and most arguments."""
