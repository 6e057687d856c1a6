"""JSON text that is always valid, and copies of JSON-like data."""

from __future__ import annotations

import json
import re
from typing import Any, Final, NoReturn

from pydantic import ValidationError

from wick_graph.errors import MessageError

_LONE_SURROGATE: Final = re.compile("[\\ud800-\\udfff]")

_SIGNS: Final = (b",", b":", b"[", b"{")


def json_text(value: Any, *, indent: int | None = None) -> str:
    """Write a value as JSON: compact, or indented; letters as they are, no NaN.

    The text can always be encoded: half a surrogate pair is written as its escape.

    Raises:
        MessageError: the value holds something that JSON has no form for.
    """
    separators = (",", ":") if indent is None else (",", ": ")
    try:
        text = json.dumps(
            value, ensure_ascii=False, allow_nan=False, indent=indent, separators=separators
        )
    except (TypeError, ValueError, RecursionError) as error:
        raise MessageError(
            f"a message cannot be written as JSON ({error}); "
            "use texts, finite numbers, true, false, null, lists and objects"
        ) from error
    if text.isascii():
        return text
    return _LONE_SURROGATE.sub(lambda half: f"\\u{ord(half.group()):04x}", text)


def json_parts(body: bytes, enough: int) -> int:
    """Count keys, items and containers of a JSON text before any of it is made into objects.

    Each step is one pass over the bytes, which costs a part of what parsing does. Texts may hold
    the same signs and count only once there are more than `enough` of all; then the count may
    itself end at `enough + 1`.
    """
    if sum(map(body.count, _SIGNS)) <= enough:
        return 0
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    if plain.count(b'"') > 4 * enough:  # each text is a key or an item
        return enough + 1
    outside = b"".join(plain.split(b'"')[::2])
    return sum(map(outside.count, _SIGNS))


def parse_json(text: str | bytes) -> Any:
    """Read JSON text strictly: no NaN, no Infinity.

    Raises:
        MessageError: the text is not JSON, or nested deeper than Python can read.
    """
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise MessageError("the JSON is nested too deeply; send a flatter value") from error
    except ValueError as error:
        raise MessageError(f"not valid JSON ({error}); send a JSON text") from error


def fresh(value: Any) -> Any:
    """Copy JSON-like data through all its levels, so that a change of the copy stays there.

    Raises:
        MessageError: the data is nested deeper than Python can walk.
    """
    try:
        return _copied(value)
    except RecursionError as error:
        raise MessageError("the data is nested too deeply; give a flatter value") from error


def reason_of(error: Exception) -> str:
    """Return what is wrong first, of all that a validation found, in one line."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return str(error)


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copied(item) for item in value]
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")
