"""The picture as Mermaid text: a strict part of the language, no HTML but line breaks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from wick_graph.picture.model import Picture

_PLAIN: Final = re.compile(
    r"[^\W_]"  # letters and digits, of every script
    r"|(?<=[^\W_])[_.-](?=[^\W_])"  # inside of a word, where Markdown reads nothing into them
    r"|(?<!^)[ ,:()→×·+]"
)
_LIST: Final = re.compile(r"^(\d+)\.")
"""At the beginning of a line, Markdown takes this for a list."""
_SHAPES: Final = {
    "start": ('(["', '"])'),
    "end": ('(["', '"])'),
    "graph": ('[["', '"]]'),
    "agent": ('[["', '"]]'),
    "node": ('["', '"]'),
}


def as_mermaid(picture: Picture) -> str:
    """Write a Mermaid flowchart."""
    ids = _ids(picture)
    lines = ["flowchart TD", f"    %% {escaped(picture.title)}"]
    if picture.run is not None:
        lines += [f"    %% {escaped(part)}" for part in picture.run.headline()]
    for box in picture.boxes:
        begin, end = _SHAPES[box.kind]
        label = "<br/>".join(escaped(line) for line in [box.name, *picture.lines_of(box)])
        lines.append(f"    {ids[box.id]}{begin}{label}{end}")
    for arrow in picture.arrows:
        text = picture.label_of(arrow)
        label = f'|"{escaped(text)}"|' if text else ""
        lines.append(f"    {ids[arrow.source]} -->{label} {ids[arrow.target]}")
    return "\n".join(lines)


def escaped(text: str) -> str:
    """Write by number what Mermaid, Markdown or HTML might read as more than a letter."""
    kept = {match.start() for match in _PLAIN.finditer(text)}
    if listed := _LIST.match(text):
        kept.discard(listed.end() - 1)
    return "".join(c if i in kept else f"#{ord(c)};" for i, c in enumerate(text))


def _ids(picture: Picture) -> Mapping[str, str]:
    """Give each box an id of letters and digits, its own name where that is one."""
    taken: set[str] = set()
    made = {}
    for number, box in enumerate(picture.boxes):
        name = box.id if re.fullmatch(r"[A-Za-z0-9_]{1,64}", box.id) else f"{number}"
        while name in taken:
            name += "_"
        taken.add(name)
        made[box.id] = f"n_{name}"
    return made
