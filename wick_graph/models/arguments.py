"""A tool call's arguments, as the model wrote them, read strictly."""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn

from wick_graph.constants import TOO_DEEP

_SHOWN_CHARS: Final = 200


class BadArgumentsError(ValueError):
    """Say why a text is not the arguments of a call; the model is to read it and to mend it."""


def read_arguments(raw: str) -> dict[str, Any]:
    """Read the arguments of a call; no text at all means none, as for a tool without parameters.

    Raises:
        BadArgumentsError: if it is not one whole JSON object.
    """
    if not raw.strip():
        return {}
    try:
        # not strict about line breaks inside texts: models write them, and the meaning is plain
        value = json.loads(raw, strict=False, parse_constant=_refuse)
    except RecursionError:
        raise BadArgumentsError(TOO_DEEP) from None
    except ValueError as error:
        raise BadArgumentsError(f"{error}, in {_shown(raw)}") from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadArgumentsError(f"an object is needed, not a {type(value).__name__}")
    return value


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")


def _shown(raw: str) -> str:
    return raw if len(raw) <= _SHOWN_CHARS else f"{raw[:_SHOWN_CHARS]}…"
