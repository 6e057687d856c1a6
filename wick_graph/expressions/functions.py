"""The functions of expressions: a fixed list, each with a bound on what it costs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from wick_graph.errors import ExpressionError
from wick_graph.expressions.glob import glob_match
from wick_graph.expressions.values import (
    MAX_RESULT,
    Budget,
    fits,
    have_order,
    item,
    kind,
    number,
    plain,
    size_of,
    whole,
)

_MAX_DIGITS: Final = 300
_MAX_ROUND: Final = 15
_MANY: Final = 100


class Scope(Protocol):
    """What a function may know of the evaluation that it is called in."""

    names: Mapping[str, Any]
    budget: Budget


def _len(scope: Scope, value: Any) -> int:
    if not isinstance(value, str | list | tuple | Mapping):
        raise ExpressionError(f"{kind(value)} has no length")
    return len(value)


def _items(scope: Scope, value: Any) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise ExpressionError(f"{kind(value)} is no list")
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
        raise ExpressionError("the text is no whole number")
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
"""Each with the least and the most arguments that it takes."""
