"""Take apart a docstring in Google's style: what a tool does, and what its arguments mean."""

from __future__ import annotations

import inspect
import re
from typing import Final

_SECTION: Final = re.compile(
    r"(Args|Arguments|Parameters|Returns|Return|Yields|Raises|Examples?|Attributes|See Also):\s*"
)
_ARGUMENTS: Final = frozenset({"Args", "Arguments", "Parameters"})
_PARAMETER: Final = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")


def parse(docstring: str | None) -> tuple[str, dict[str, str]]:
    """Return the text before the first section, and the descriptions of the arguments by name."""
    about: list[str] = []
    arguments: list[str] = []
    section = ""
    for line in inspect.cleandoc(docstring or "").splitlines():
        heading = _SECTION.fullmatch(line)
        if heading:
            section = heading[1]
        elif not section:
            about.append(line)
        elif section in _ARGUMENTS:
            arguments.append(line)
    return "\n".join(about).strip(), _descriptions(arguments)


def _descriptions(lines: list[str]) -> dict[str, str]:
    """Read `name (type): text` at the least indent; deeper lines go on with the text."""
    filled = [line for line in lines if line.strip()]
    indent = min((len(line) - len(line.lstrip()) for line in filled), default=0)
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in filled:
        text = line[indent:]
        match = _PARAMETER.fullmatch(text)
        if match and not text[0].isspace():
            current = found.setdefault(match[1], [])
            current.append(match[2])
        else:
            current.append(text.strip())
    return {name: " ".join(filter(None, parts)) for name, parts in found.items()}
