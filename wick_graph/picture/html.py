"""The picture as one HTML page: the drawing and the same in words; loads nothing, runs nothing."""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterator
from typing import Final

from wick_graph.picture.model import Box, Picture
from wick_graph.picture.svg import STYLE, as_svg

STEPS_SHOWN: Final = 200
"""Steps of a run's path that are written out, the last ones."""
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
    """Write a page that opens from a file, without a network."""
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
    """Forbid everything but the two style sheets that the page holds, by their digests."""
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
