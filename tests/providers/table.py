"""The matrix as a table in the docs: `python -m tests.providers.table` writes it.

Each cell is held by the test of its shape and provider; another test compares table and page.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

from tests.providers.shapes import SHAPES, Shape
from tests.providers.world import COLUMNS

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "providers.md"
BEGIN, END = "<!-- matrix: begin -->\n", "<!-- matrix: end -->\n"


def section() -> str:
    """Write the table."""
    head = ["Shape", *COLUMNS, "What the model reads"]
    rows = [head, ["---"] * len(head)]
    for shape in SHAPES:
        cells = ["refused" if shape.refused else "200"] * len(COLUMNS)
        sentence = f"`… {shape.refused} …`" if shape.refused else shape.reads
        rows.append([shape.name, *cells, sentence])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


@cache
def written() -> str:
    """Return the table that the page holds."""
    text = PAGE.read_text("utf-8")
    return text[text.index(BEGIN) + len(BEGIN) : text.index(END)]


def outcome(shape: Shape, provider: str) -> str:
    """Return what the page says of a shape with a provider."""
    rows = [line.strip("| ").split(" | ") for line in written().splitlines()]
    return next(row[rows[0].index(provider)] for row in rows if row[0] == shape.name)


if __name__ == "__main__":
    page = PAGE.read_text("utf-8")
    old = page[page.index(BEGIN) : page.index(END)]
    PAGE.write_text(page.replace(old, BEGIN + section()), "utf-8")
