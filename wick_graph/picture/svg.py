"""The picture as SVG: one file without scripts, fonts or anything to load.

It follows the reader's colour scheme, and says nothing by colour alone: ways that a run took are
thick, decisions are dashed, errors are written out.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from typing import Final

from wick_graph.picture.inside import TEXT_SIZE, Frame, Inside, inside, of_small
from wick_graph.picture.layout import Layout, Metrics, Rect, Size, arrange
from wick_graph.picture.model import Arrow, Box, Picture
from wick_graph.picture.ways import Ways, head
from wick_graph.picture.words import pixels, wrapped

METRICS: Final = Metrics(
    box_gap=32,
    line_gap=18,
    track_gap=14,
    tail=18,
    head=26,
    row_gap=44,
    port_gap=22,
    side_gap=16,
    inset=14,
    loop=24,
    wrap=1400,
)
MARGIN: Final = 24
_LABEL_ROOM: Final = 200
_LABEL_LINE: Final = 15
_TITLE_SIZE: Final = 17
STYLE: Final = """\
.wick{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
.wick text{font-size:12px;fill:#1f2328;white-space:pre;direction:ltr;unicode-bidi:isolate}
.wick .paper{fill:#fff}
.wick .title{font-size:17px;font-weight:600}
.wick .name{font-size:14px;font-weight:600}
.wick .fact{font-size:11px;fill:#59636e}
.wick .stat{font-size:11px;fill:#0550ae}
.wick .place{font-size:11px;font-weight:600;fill:#0550ae}
.wick .bad{font-size:11px;fill:#b31d28}
.wick .label text{font-size:11px}
.wick .box{fill:#f6f8fa;stroke:#59636e;stroke-width:1.25}
.wick .end .box{fill:#e7ebf0}
.wick .idle .box{stroke-dasharray:2 3}
.wick .ran .box{stroke:#0550ae;stroke-width:2.5}
.wick .broke .box{stroke:#b31d28;stroke-width:2.5}
.wick .layer{fill:#fff;stroke:#8c959f;stroke-width:1}
.wick .core{fill:#e7ebf0;stroke:none}
.wick .way{fill:none;stroke:#59636e;stroke-width:1.5;stroke-linejoin:round}
.wick .head{fill:#59636e}
.wick .maybe .way{stroke-dasharray:6 4}
.wick .taken .way{stroke:#0550ae;stroke-width:3.25}
.wick .taken .head{fill:#0550ae}
@media (prefers-color-scheme:dark){
.wick text{fill:#e6edf3}
.wick .paper{fill:#0d1117}
.wick .fact{fill:#9ba5b0}
.wick .stat,.wick .place{fill:#79b8ff}
.wick .bad{fill:#ff8a80}
.wick .box{fill:#161b22;stroke:#9ba5b0}
.wick .end .box,.wick .core{fill:#262d36}
.wick .ran .box{stroke:#79b8ff}
.wick .broke .box{stroke:#ff8a80}
.wick .layer{fill:#0d1117;stroke:#6b7683}
.wick .way{stroke:#9ba5b0}
.wick .head{fill:#9ba5b0}
.wick .taken .way{stroke:#79b8ff}
.wick .taken .head{fill:#79b8ff}
}
"""


def as_svg(picture: Picture, *, heading: bool = True) -> str:
    """Draw the picture as an SVG document.

    Args:
        picture: What to draw.
        heading: Write the title, and what run it is, over the drawing.
    """
    return _Drawing(picture, heading).document()


def placed(picture: Picture) -> Layout:
    """Give the places of boxes and edges as the SVG has them, without its margin."""
    return _Drawing(picture).layout


class _Drawing:
    def __init__(self, picture: Picture, heading: bool = True) -> None:
        self.picture = picture
        self.insides = [inside(box, picture.run) for box in picture.boxes]
        self.labels = [label_lines(picture.label_of(arrow)) for arrow in picture.arrows]
        sizes = [Size(content.width, content.height) for content in self.insides]
        links = picture.links([label_size(lines) for lines in self.labels])
        self.layout: Layout = arrange(sizes, links, METRICS)
        self.head = self._headings() if heading else []
        self.key = self._legend()
        widest = max([self.layout.width, *(width for _, width in self.head), self.key[1]])
        self.width = widest + 2 * MARGIN
        self.left = MARGIN + (widest - self.layout.width) // 2
        self.top = MARGIN + 24 * len(self.head) + (8 if self.head else 0)
        self.bottom = self.top + self.layout.height + (34 if self.key[0] else 0)
        self.height = self.bottom + MARGIN

    def document(self) -> str:
        """Write everything; what lies on top comes later."""
        title, about = _text(self.picture.title), _text(described(self.picture))
        size = f'width="{self.width}" height="{self.height}"'
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" class="wick" role="img" {size} '
                f'viewBox="0 0 {self.width} {self.height}" '
                'aria-labelledby="wick-title" aria-describedby="wick-about">',
                f'<title id="wick-title">{title}</title>',
                f'<desc id="wick-about">{about}</desc>',
                f"<style>\n{STYLE}</style>",
                f'<rect class="paper" {size}/>',
                *self._head_lines(),
                f'<g transform="translate({self.left} {self.top})">',
                *self._ways(),
                *self._boxes(),
                *self._labels(),
                "</g>",
                *self._legend_lines(),
                "</svg>",
                "",
            ]
        )

    def _headings(self) -> list[tuple[str, int]]:
        title = self.picture.title
        made = [(title, pixels(title, _TITLE_SIZE, bold=True))]
        if self.picture.run is not None:
            text = " · ".join(self.picture.run.headline())
            made.append((text, pixels(text, TEXT_SIZE)))
        return made

    def _head_lines(self) -> Iterator[str]:
        for number, (text, _) in enumerate(self.head):
            style = "" if number else ' class="title"'
            y = MARGIN + 14 + 24 * number
            yield f'<text{style} x="{MARGIN}" y="{y}">{_text(text)}</text>'

    def _legend(self) -> tuple[list[tuple[str, str]], int]:
        """List the kinds of lines that need a word: its look and the word."""
        found = []
        if any(arrow.conditional for arrow in self.picture.arrows):
            found.append(("maybe", "where a decision leads"))
        if self.picture.run is not None:
            found.append(("taken", "taken in this thread"))
        return found, sum(of_small(text) + 64 for _, text in found)

    def _legend_lines(self) -> Iterator[str]:
        x, y = MARGIN, self.bottom - 4
        for style, text in self.key[0]:
            yield (
                f'<g class="{style}"><path class="way" d="M{x} {y - 4}h32"/>'
                f'<text class="fact" x="{x + 40}" y="{y}">{_text(text)}</text></g>'
            )
            x += of_small(text) + 64

    def _ways(self) -> Iterator[str]:
        """Draw the edges, those that were taken above the others."""
        found = []
        for arrow, route in zip(self.picture.arrows, self.layout.routes, strict=True):
            styles = ["edge", *(["maybe"] if arrow.conditional else [])]
            found.append((self._taken(arrow), [*styles, "taken"], styles, arrow, route))
        pens: dict[str, Ways] = {}
        for taken, thick, thin, arrow, route in sorted(found, key=lambda each: each[0]):
            style = " ".join(thick if taken else thin)
            path = pens.setdefault(style, Ways()).path(route.points)
            yield (
                f'<g class="{style}"><title>{_text(_said(arrow, self.picture))}</title>'
                f'<path class="way" d="{path}"/><path class="head" d="{head(route.points)}"/></g>'
            )

    def _taken(self, arrow: Arrow) -> bool:
        run = self.picture.run
        return run is not None and run.edge(arrow.source, arrow.target).visits > 0

    def _boxes(self) -> Iterator[str]:
        for box, rect, content in zip(
            self.picture.boxes, self.layout.boxes, self.insides, strict=True
        ):
            styles = " ".join(["node", *self._styles(box)])
            round_ = 16 if box.is_end else 8
            said = _text("; ".join([box.name, *box.lines()]))
            yield f'<g class="{styles}" transform="translate({rect.x} {rect.y})">'
            yield f"<title>{said}</title>"
            size = f'width="{rect.width}" height="{rect.height}"'
            yield f'<rect class="box" {size} rx="{round_}"/>'
            if box.is_nested:
                inner = f'x="4" y="4" width="{rect.width - 8}" height="{rect.height - 8}"'
                yield f'<rect class="box" {inner} rx="5"/>'
            down = (rect.height - content.height) // 2 if content.centred else 0
            yield from _pieces(content, down)
            yield "</g>"

    def _styles(self, box: Box) -> list[str]:
        styles = ["end"] if box.is_end else []
        if self.picture.run is not None:
            tally = self.picture.run.node(box.id)
            reached = tally.visits or box.id in self.picture.run.at
            styles.append("broke" if tally.errors else "ran" if reached else "idle")
        return styles

    def _labels(self) -> Iterator[str]:
        for lines, route in zip(self.labels, self.layout.routes, strict=True):
            if route.label is not None:
                yield from _label(lines, route.label)


def described(picture: Picture) -> str:
    """Tell the whole picture in sentences, for those who do not see it."""
    said = [f"{box.name}: {', '.join(box.lines())}." for box in picture.boxes if box.lines()]
    said += [f"{_said(arrow, picture)}." for arrow in picture.arrows]
    if picture.run is not None:
        said.insert(0, f"{', '.join(picture.run.headline())}.")
        said += [
            f"{box.name}: {', '.join(parts)}."
            for box in picture.boxes
            if (parts := picture.run.node(box.id).parts())
        ]
    return " ".join(said)


def _said(arrow: Arrow, picture: Picture) -> str:
    names = {box.id: box.name for box in picture.boxes}
    label = f" ({picture.label_of(arrow)})" if picture.label_of(arrow) else ""
    return f"{names[arrow.source]} to {names[arrow.target]}{label}"


def label_lines(text: str) -> list[str]:
    """Break a label into lines."""
    return wrapped(text, _LABEL_ROOM, of_small) if text else []


def label_size(lines: Sequence[str]) -> Size | None:
    """Measure a label in pixels; without lines there is none."""
    if not lines:
        return None
    return Size(max(map(of_small, lines)) + 10, _LABEL_LINE * len(lines) + 5)


def _label(lines: Sequence[str], rect: Rect) -> Iterator[str]:
    place = f'x="{rect.x}" y="{rect.y}" width="{rect.width}" height="{rect.height}"'
    yield f'<g class="label"><rect class="paper" {place} rx="4"/>'
    for number, text in enumerate(lines):
        x, y = rect.x + rect.width // 2, rect.y + 14 + number * _LABEL_LINE
        yield f'<text x="{x}" y="{y}" text-anchor="middle">{_text(text)}</text>'
    yield "</g>"


def _pieces(content: Inside, down: int) -> Iterator[str]:
    for piece in content.pieces:
        y = piece.y + down
        if isinstance(piece, Frame):
            size = f'width="{piece.width}" height="{piece.height}"'
            yield f'<rect class="{piece.style}" x="{piece.x}" y="{y}" {size} rx="5"/>'
        else:
            end = f' text-anchor="{piece.anchor}"' if piece.anchor else ""
            place = f'x="{piece.x}" y="{y}"{end}'
            yield f'<text class="{piece.style}" {place}>{_text(piece.text)}</text>'


def _text(text: str) -> str:
    return html.escape(text, quote=True)
