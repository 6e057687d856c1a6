"""Read a request's JSON so that it means one thing only, and fits."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from wick_graph.server.problems import Problem


def parse(body: bytes, depth: int) -> Any:
    """Parse JSON: no duplicate keys, no NaN, no lone surrogates, no depth without end.

    Raises:
        Problem: 400, with the reason.
    """
    if not body:
        raise Problem(400, "the body is empty; send JSON")
    try:
        value = json.loads(body.decode("utf-8"), object_pairs_hook=_once, parse_constant=_no_number)
    except UnicodeDecodeError:
        raise Problem(400, "the body is no UTF-8") from None
    except RecursionError:
        raise Problem(400, f"the JSON is nested more than {depth} deep") from None
    except ValueError as error:  # also a number of thousands of digits
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


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")
