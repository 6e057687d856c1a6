"""The values of expressions, how large they may be, and what an evaluation may spend on them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from itertools import islice
from typing import Any, Final

from wick_graph.errors import ExpressionError

MAX_OPERATIONS: Final = 10_000
"""Steps of one evaluation; what goes through long values costs more than one."""
MAX_RESULT: Final = 64 * 1024
"""Characters of a text that an expression makes, and of its result as a whole."""
MAX_BITS: Final = 1_024
"""Of a whole number."""

_VALUE_SIZE: Final = 8
"""What a value counts for in a size, beside its characters."""
_SIZE_PER_STEP: Final = 256
_NAMED: Final = 10
_LOOKED_AT: Final = 50
"""Names among which one that is like a missed one is looked for."""


class Budget:
    """The steps that an evaluation has left."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = MAX_OPERATIONS

    def spend(self, steps: int = 1) -> None:
        """Count steps.

        Raises:
            ExpressionError: There are not so many left.
        """
        self.left -= steps
        if self.left < 0:
            raise ExpressionError(f"it takes more than {MAX_OPERATIONS:,} steps")

    def spend_on(self, *values: Any) -> None:
        """Count what it takes to go through values once; raises as `spend`."""
        for value in values:
            self.spend(size_of(value, (self.left + 1) * _SIZE_PER_STEP) // _SIZE_PER_STEP)

    def made(self, value: Any) -> Any:
        """Return a text or list that was just made.

        Raises:
            ExpressionError: It is too long.
        """
        fits(len(value))
        self.spend(len(value) // _SIZE_PER_STEP)
        return value


def fits(length: int) -> None:
    """Refuse a text or list that would be too long.

    Raises:
        ExpressionError: It would.
    """
    if length > MAX_RESULT:
        raise ExpressionError(f"a value in it is larger than {MAX_RESULT // 1024} kB")


def size_of(value: Any, enough: int) -> int:
    """Count a value's characters and parts; stop where it is more than enough.

    Raises:
        ExpressionError: Something in it is no JSON-like data.
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
    """Return a value that is JSON-like data, looked at from outside.

    Raises:
        ExpressionError: It is another object, or a number beyond all bounds.
    """
    if value is None or isinstance(value, bool | str | list | tuple | Mapping):
        return value
    return number(value)


def number(value: Any) -> int | float:
    """Return a number.

    Raises:
        ExpressionError: It is none, is no finite one, or has too many digits.
    """
    if isinstance(value, int):
        few_bits(value.bit_length())
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ExpressionError("a number in it is too large")
        return value
    raise ExpressionError(f"{kind(value)} is no number")


def whole(value: Any) -> int:
    """Return a whole number.

    Raises:
        ExpressionError: It is none.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise ExpressionError(f"{kind(value)} is no whole number")
    return value


def few_bits(bits: int) -> None:
    """Refuse a whole number that would have too many bits.

    Raises:
        ExpressionError: It would.
    """
    if bits > MAX_BITS:
        raise ExpressionError("a number in it is too large")


def have_order(values: Sequence[Any]) -> bool:
    """Say whether values can be sorted: numbers, or texts."""
    return all(isinstance(v, str) for v in values) or all(
        isinstance(v, int | float) for v in values
    )


def item(base: Any, key: Any) -> Any:
    """Look up what stands in a value under a key or index.

    Raises:
        ExpressionError: Nothing does.
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
        raise ExpressionError(f"there is no index {index} where there are {len(base)}")
    return base[index]


def there_is(names: Mapping[str, Any], missed: str) -> str:
    """Say which names there are, at the end of a sentence that misses one."""
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
