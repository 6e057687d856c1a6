"""The product speaks plainly: docstrings, comments, errors, help and docs avoid odd words."""

from __future__ import annotations

import io
import re
import tokenize
from pathlib import Path

import pytest

from tests.source import ROOT

ODD = re.compile(
    r"\b(nobody(?!:x:)|somebody|whoever|whose|of which|of the very|stands|(?:is|are) told|takes? up"
    r"|becomes of)\b",
    re.IGNORECASE,
)
"""Each has a plain form: name the actor, say "if", use an active verb."""

DOCS = ("README.md", "AGENTS.md", "CHANGELOG.md", "SECURITY.md", "agents.yaml", "docs/**/*.md",
        "wick_graph/cli/starter/*.txt")  # fmt: skip


def said_in(source: str) -> list[tuple[int, str]]:
    """List the texts and comments of a module with their lines."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    kinds = (tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", -1))
    return [(token.start[0], token.string) for token in tokens if token.type in kinds]


def odd_in(path: Path) -> list[str]:
    """Name each odd word of a file with its place."""
    text = path.read_text("utf-8")
    if not ODD.search(text):
        return []
    parts = said_in(text) if path.suffix == ".py" else [(1, text)]
    return [
        f"{path.relative_to(ROOT)}:{line + part.count(chr(10), 0, found.start())}: {found[0]}"
        for line, part in parts
        for found in ODD.finditer(part)
    ]


def written() -> list[Path]:
    """List what the product says to people."""
    modules = [*(ROOT / "wick_graph").rglob("*.py"), *(ROOT / "nodes").rglob("*.py")]
    return sorted({*modules, *(path for glob in DOCS for path in ROOT.glob(glob))})


def test_no_odd_word_is_written() -> None:
    assert [odd for path in written() for odd in odd_in(path)] == []


@pytest.mark.parametrize(
    "text", ["# Nobody knows.\n", '"""A run, of\nwhich"""\nx = f"whose {1}"\n']
)
def test_an_odd_word_is_seen(tmp_path: Path, text: str) -> None:
    assert any(ODD.search(said) for _, said in said_in(text))
