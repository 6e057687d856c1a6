"""Read a request's JSON so that it means one thing only, and fits."""

from __future__ import annotations

import json
import math
from typing import Any, Final, NoReturn

from wick_graph.messages.jsontext import json_parts
from wick_graph.server.problems import Problem

_DIGITS: Final = 400


def parse(body: bytes, depth: int, values: int) -> Any:
    """Parse JSON: no duplicate keys, no NaN, no lone surrogates, no size or depth without end.

    Args:
        body: The JSON.
        depth: Containers inside containers that it may have.
        values: Keys, items and containers that it may have together.

    Raises:
        Problem: 400, with the first reason.
    """
    if not body:
        raise Problem(400, "the body is empty; send JSON")
    if json_parts(body, values) > values:
        raise Problem(400, f"the JSON has more than {values} keys and items; send less at once")
    try:
        text = body.decode("utf-8")
        value = json.loads(
            text, object_pairs_hook=_once, parse_constant=_no_number, parse_int=_whole
        )
    except UnicodeDecodeError:
        raise Problem(400, "the body is no UTF-8") from None
    except RecursionError:
        raise Problem(400, f"the JSON is nested more than {depth} deep") from None
    except ValueError as error:
        raise Problem(400, f"invalid JSON: {error}") from None
    _check(value, depth)
    return value


def _check(value: Any, depth: int) -> None:
    """Walk the value level by level."""
    level = [value]
    for _ in range(depth):
        below: list[Any] = []
        for item in level:
            if isinstance(item, str):
                _check_text(item)
            elif isinstance(item, float) and math.isinf(item):
                raise Problem(400, "invalid JSON: a number is too large")
            elif isinstance(item, dict):
                for key in item:
                    _check_text(key)
                below += item.values()
            elif isinstance(item, list):
                below += item
        if not below:
            return
        level = below
    raise Problem(400, f"the JSON is nested more than {depth} deep")


def _check_text(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise Problem(400, "invalid JSON: half of a surrogate pair is no character") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a key stands twice in one object")
    return made


def _whole(digits: str) -> int:
    if len(digits) > _DIGITS:  # reading it takes time with the square of its length
        raise ValueError(f"a number has more than {_DIGITS} digits")
    return int(digits)


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")
