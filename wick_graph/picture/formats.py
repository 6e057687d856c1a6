"""The picture as JSON, HTML, Mermaid and Graphviz text."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from wick_graph.picture.layout_rows import Rect
from wick_graph.picture.model import Box, Picture
from wick_graph.picture.svg import STYLE, as_svg, placed

# --- The picture as JSON: its content, and on demand its positions.


def as_json(picture: Picture, *, places: bool = False) -> str:
    """Write the picture as JSON.

    Args:
        picture: The picture.
        places: Add the SVG's positions of boxes and edges, in pixels, for a page that draws itself.
    """
    made = picture.to_dict()
    if places:
        made["layout"] = layout_of(picture)
    return json.dumps(made, ensure_ascii=False, indent=2, default=str)


def drawn(picture: Picture) -> dict[str, Any]:
    """Return a picture as data, with its layout and its texts, for a page that draws itself."""
    made = {**picture.to_dict(), "layout": layout_of(picture)}
    for node, box in zip(made["nodes"], picture.boxes, strict=True):
        node["lines"] = picture.lines_of(box)
    for edge, arrow in zip(made["edges"], picture.arrows, strict=True):
        edge["text"] = picture.label_of(arrow)
    # It grows with the thread, and the list of moments has it.
    made.get("run", {}).pop("path", None)
    return made


def layout_of(picture: Picture) -> dict[str, Any]:
    """Return the positions of boxes by id, and of edges in order."""
    layout = placed(picture)
    return {
        "width": layout.width,
        "height": layout.height,
        "boxes": {
            box.id: _rect(rect) for box, rect in zip(picture.boxes, layout.boxes, strict=True)
        },
        "edges": [
            {
                "points": [list(point) for point in route.points],
                "label": None if route.label is None else _rect(route.label),
            }
            for route in layout.routes
        ],
    }


def _rect(rect: Rect) -> list[int]:
    return [rect.x, rect.y, rect.width, rect.height]


# --- The picture as one HTML page: the drawing and its text; loads nothing, runs nothing.


STEPS_SHOWN: Final = 200
"""Limit of the listed steps of a run's path, the last ones."""

PAGE_STYLE: Final = """\
:root{color-scheme:light dark}
body{margin:0;padding:24px;background:#fff;color:#1f2328;font:14px/1.5 system-ui,-apple-system,\
"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
figure{margin:0 0 24px;overflow-x:auto}
h1{font-size:18px;margin:0}
td:first-child{white-space:nowrap}
h2{font-size:15px;margin:24px 0 8px}
svg{display:block}
table{border-collapse:collapse}
th,td{padding:4px 12px 4px 0;text-align:left;vertical-align:top;border-bottom:1px solid #8c959f}
ul{margin:0;padding-left:18px}
code{overflow-wrap:anywhere}
@media (prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}}
"""


def as_html(picture: Picture) -> str:
    """Return a page that opens from a file, without a network."""
    title = _text(picture.title)
    lines = [
        "<!doctype html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy()}">',
        '<meta name="viewport" content="width=device-width">',
        f"<title>{title}</title>",
        f"<style>{PAGE_STYLE}</style>",
        "</head>",
        "<body>",
        f"<main>\n<h1>{title}</h1>",
        *_headline(picture),
        f'<figure tabindex="0">\n{as_svg(picture, heading=False)}</figure>',
        *_words(picture),
        "</main>\n</body>",
        "</html>",
        "",
    ]
    return "\n".join(lines)


def policy() -> str:
    """Forbid everything but the page's own two style sheets, by their digests."""
    allowed = " ".join(_digest(style) for style in (PAGE_STYLE, f"\n{STYLE}"))
    return f"default-src 'none'; style-src {allowed}; base-uri 'none'; form-action 'none'"


def _digest(style: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()}'"


def _headline(picture: Picture) -> Iterator[str]:
    if picture.run is not None:
        yield f"<p>{_text(' · '.join(picture.run.headline()))}</p>"


def _words(picture: Picture) -> Iterator[str]:
    """Write the whole picture as tables and lists."""
    names = {box.id: box.name for box in picture.boxes}
    yield "<h2>Nodes</h2>\n<table>"
    heads = ["Node", "Inside", *(["In this thread"] if picture.run else [])]
    yield f"<tr>{''.join(f'<th>{head}</th>' for head in heads)}</tr>"
    for box in picture.boxes:
        cells = [f"<code>{_text(box.name)}</code>", _list(box.lines())]
        if picture.run is not None:
            cells.append(_list(_numbers(box, picture)))
        yield f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
    yield "</table>\n<h2>Edges</h2>\n<ul>"
    for arrow in picture.arrows:
        label = picture.label_of(arrow)
        said = f": {_text(label)}" if label else ""
        ends = [f"<code>{_text(names[end])}</code>" for end in (arrow.source, arrow.target)]
        yield f"<li>{' → '.join(ends)}{said}</li>"
    yield "</ul>"
    if picture.run is not None:
        yield from _run(picture)


def _numbers(box: Box, picture: Picture) -> list[str]:
    run = picture.run
    if run is None:
        return []
    said = [run.place(box.id), *run.node(box.id).parts()]
    inside = [(h, run.layer(x.phase, h)) for x in box.layers for h in x.hooks]
    inside += [(tool.name, run.tool(tool.name)) for tool in box.tools]
    return [*filter(None, said), *(f"{n}: {t.short()}" for n, t in inside if t.short())]


def _run(picture: Picture) -> Iterator[str]:
    assert picture.run is not None
    path = picture.path()
    yield "<h2>Path</h2>"
    if len(path) > STEPS_SHOWN:
        yield f"<p>The last {STEPS_SHOWN} of {len(path):,} steps.</p>"
    steps = " → ".join(_text(step) for step in path[-STEPS_SHOWN:])
    yield f"<p>{steps}</p>"
    for note in picture.run.notes:
        yield f"<p>{_text(note)}</p>"


def _list(lines: list[str]) -> str:
    return f"<ul>{''.join(f'<li>{_text(line)}</li>' for line in lines)}</ul>" if lines else ""


def _text(text: str) -> str:
    return html.escape(text, quote=True)


# --- The picture as Mermaid text: a strict subset of the language, without HTML but line breaks.


_PLAIN: Final = re.compile(
    r"[^\W_]"  # letters and digits, of every script
    r"|(?<=[^\W_])[_.-](?=[^\W_])"  # inside a word, where they mean nothing to Markdown
    r"|(?<!^)[ ,:()→×·+]"
)

_LIST: Final = re.compile(r"^(\d+)\.")
"""Matches what Markdown reads as a list at the beginning of a line."""

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
    """Escape characters with a meaning in Mermaid, Markdown or HTML, by number."""
    kept = {match.start() for match in _PLAIN.finditer(text)}
    if listed := _LIST.match(text):
        kept.discard(listed.end() - 1)
    return "".join(c if i in kept else f"#{ord(c)};" for i, c in enumerate(text))


def _ids(picture: Picture) -> Mapping[str, str]:
    """Return an id of letters and digits for each box, its own name if possible."""
    taken: set[str] = set()
    made = {}
    for number, box in enumerate(picture.boxes):
        name = box.id if re.fullmatch(r"[A-Za-z0-9_]{1,64}", box.id) else f"{number}"
        while name in taken:
            name += "_"
        taken.add(name)
        made[box.id] = f"n_{name}"
    return made


# --- The picture as a graph for Graphviz.


def as_dot(picture: Picture) -> str:
    """Write a directed graph in Graphviz's language; every name is quoted."""
    lines = [f"digraph {quoted(picture.title)} {{", "    rankdir=TB;", "    node [shape=box];"]
    if picture.run is not None:
        lines.append(f"    label={quoted(', '.join(picture.run.headline()))};")
    for box in picture.boxes:
        label = r"\n".join(_escaped(line) for line in [box.name, *picture.lines_of(box)])
        shape = " shape=oval" if box.is_end else ""
        more = " peripheries=2" if box.is_nested else ""
        lines.append(f'    {quoted(box.id)} [label="{label}"{shape}{more}];')
    for arrow in picture.arrows:
        wants = []
        if text := picture.label_of(arrow):
            wants.append(f"label={quoted(text)}")
        if arrow.conditional:
            wants.append("style=dashed")
        if picture.run is not None and picture.run.edge(arrow.source, arrow.target).visits:
            wants.append("penwidth=3")
        said = f" [{', '.join(wants)}]" if wants else ""
        lines.append(f"    {quoted(arrow.source)} -> {quoted(arrow.target)}{said};")
    return "\n".join([*lines, "}"])


def quoted(text: str) -> str:
    """Write a text as one quoted word."""
    return f'"{_escaped(text)}"'


def _escaped(text: str) -> str:
    line = text.translate(dict.fromkeys(range(0x20), " "))
    return line.replace("\\", "\\\\").replace('"', '\\"')
