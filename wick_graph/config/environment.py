"""`${NAME}` in the few fields that may take a value from the environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

ENV_FIELDS: Final = frozenset({"store", "model", "base_url", "api_key", "url", "workdir", "image"})
"""The fields in which `${NAME}` is replaced; in every other one it stays the text that it is.

Their values are left out of every `repr` and every error.
"""

_REFERENCE: Final = re.compile(
    r"\$\$\{|\$\{(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\})?"
)


def expand(text: str, env: Mapping[str, str]) -> str:
    """Replace `${NAME}` and `${NAME:-default}`; `$${` stands for a literal `${`.

    The default counts when the variable is unset or empty, as in a shell. What comes out of a
    variable is not expanded again.

    Raises:
        ValueError: naming the variable that is not set, never a value.
    """

    def value(found: re.Match[str]) -> str:
        name, default = found["name"], found["default"]
        if found[0] == "$${":
            return "${"
        if name is None:
            raise ValueError("has a ${ that is no ${NAME} or ${NAME:-default}; write $${ for a ${")
        if default is not None:
            return env.get(name) or default
        if name not in env:
            raise ValueError(
                f"the environment variable {name} is not set; set it or write a default"
            )
        return env[name]

    return _REFERENCE.sub(value, text)


def is_literal(text: str) -> bool:
    """Say whether any part of a value stands in the file itself, not in a variable."""
    return bool(_REFERENCE.sub(lambda found: found["default"] or "", text).strip())
