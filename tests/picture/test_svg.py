"""The SVG and the page around it: whole, safe, readable without colours and without eyes."""

from __future__ import annotations

import base64
import hashlib
import itertools
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from tests.picture.graphs import HOSTILE
from tests.picture.samples import NAMES, RUN, picture
from wick_graph.picture import Arrow, Box, Picture, RunOverlay, Tally, as_html, as_svg
from wick_graph.picture.model import clean, pixels
from wick_graph.picture.svg import Ways, placed

SVG = "{http://www.w3.org/2000/svg}"
SIZES = {"name": (14, True), "title": (17, True), "hook": (12, False), "": (12, False)}
EVERY = [(name, run) for name in NAMES for run in (None, RUN) if run is None or "agent" in name]


def root_of(drawn: Picture) -> ElementTree.Element:
    return ElementTree.fromstring(as_svg(drawn))


def texts(root: ElementTree.Element) -> Iterator[tuple[float, float, float, str]]:
    """Give left end, right end and base line of every text, in the picture's coordinates."""

    def walk(
        node: ElementTree.Element, dx: float, dy: float, look: str
    ) -> Iterator[tuple[float, float, float, str]]:
        moved = re.fullmatch(r"translate\((\S+) (\S+)\)", node.get("transform", ""))
        if moved:
            dx, dy = dx + float(moved[1]), dy + float(moved[2])
        look = node.get("class", "") if node.get("class") in ("label",) else look
        if node.tag == f"{SVG}text":
            style = node.get("class", "")
            size, bold = SIZES.get(style, (11, False)) if look != "label" else (11, False)
            wide = pixels(node.text or "", size, bold=bold)
            x = float(node.get("x", 0)) + dx
            anchor = node.get("text-anchor", "start")
            left = x - {"start": 0, "middle": wide / 2, "end": wide}[anchor]
            yield left, left + wide, float(node.get("y", 0)) + dy, node.text or ""
        for child in node:
            yield from walk(child, dx, dy, look)

    return walk(root, 0, 0, "")


@pytest.mark.parametrize(("name", "run"), EVERY)
def test_every_text_lies_inside_and_within_its_box(name: str, run: RunOverlay | None) -> None:
    drawn = picture(name).with_run(run)
    root = root_of(drawn)
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    assert root.get("viewBox") == f"0 0 {width:.0f} {height:.0f}"
    for left, right, y, text in texts(root):
        assert 0 <= left < right <= width, text
        assert 10 <= y <= height, text
    for node in root.iter(f"{SVG}g"):
        if "node" not in node.get("class", ""):
            continue
        frames = {child: child for child in node.findall(f"{SVG}rect")}
        box = next(iter(frames))
        wide, high = float(box.get("width", 0)), float(box.get("height", 0))
        alone = ElementTree.Element("g")
        alone.extend(node.findall(f"{SVG}text"))
        for left, right, y, text in texts(alone):
            assert 4 <= left < right <= wide - 4, text
            assert 10 <= y <= high - 4, text
        for frame in frames:
            x, w = float(frame.get("x", 0)), float(frame.get("width", 0))
            assert 0 <= x < x + w <= wide


@pytest.mark.parametrize("name", NAMES)
def test_every_name_and_label_is_drawn_whole(name: str) -> None:
    drawn = picture(name)
    shown = "".join(text for *_, text in texts(root_of(drawn))).replace(" ", "")
    for box in drawn.boxes:
        assert box.name.replace(" ", "") in shown
    for arrow in drawn.arrows:
        assert arrow.label.replace(" ", "") in shown


@pytest.mark.parametrize("name", NAMES)
def test_it_loads_and_runs_nothing(name: str) -> None:
    root = root_of(picture(name))
    tags = {node.tag.removeprefix(SVG) for node in root.iter()}
    assert tags <= {"svg", "title", "desc", "style", "rect", "g", "path", "text"}
    for node in root.iter():
        assert not [key for key in node.attrib if key.startswith("on") or "href" in key]
    assert not re.search(r"url\(|@import|//(?!www\.w3\.org/2000/svg)", as_svg(picture(name)))


def test_hostile_names_stay_names() -> None:
    drawn = picture("strange_names")
    assert "<script" not in as_svg(drawn)
    assert "<script" not in as_html(drawn)
    bad = "\x1b\x07\u202e\u202c\ud800\ufffe"
    boxes = (Box("a", clean(HOSTILE + bad)), Box("b", clean(bad)))
    made = Picture(clean(bad + HOSTILE), boxes, (Arrow("a", "b", clean(HOSTILE)),))
    run = RunOverlay(f"th{bad}", bad, notes=(HOSTILE + bad,), tools={HOSTILE + bad: Tally(1)})
    root = ElementTree.fromstring(as_svg(made.with_run(run)))
    assert HOSTILE in (root.findtext(f"{SVG}title") or "")
    whole = as_html(made.with_run(run))
    assert not set(bad) & set(whole)
    assert "<script" not in whole


def test_it_speaks_to_those_who_do_not_see_it() -> None:
    root = root_of(picture("full_agent").with_run(RUN))
    assert root.get("role") == "img"
    told = {node.get("id"): node.text or "" for node in root if node.get("id")}
    assert told[root.get("aria-labelledby")] == "full_agent"
    about = told[root.get("aria-describedby")]
    for part in (
        "wrap_model_call: tracing → memory",
        "model to tools (route: tools ×4)",
        "2 errors",
    ):
        assert part in about


def test_both_colour_schemes_have_the_same_looks() -> None:
    style = root_of(picture("full_agent")).findtext(f"{SVG}style") or ""
    light, dark = style.split("@media (prefers-color-scheme:dark){")
    coloured = re.compile(r"^\.wick ([^{]+)\{[^}]*(?:fill|stroke):#", re.MULTILINE)
    dark_parts = {part.strip() for found in coloured.findall(dark) for part in found.split(",")}
    light_parts = {part.strip() for found in coloured.findall(light) for part in found.split(",")}
    assert {part.removeprefix(".wick ") for part in dark_parts} == light_parts


def _luminance(colour: str) -> float:
    full = colour * 2 if len(colour) == 3 else colour
    parts = [int(full[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    lin = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * lin[0] + 0.7152 * lin[1] + 0.0722 * lin[2]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_and_lines_stand_out(dark: bool) -> None:
    style = root_of(picture("full_agent")).findtext(f"{SVG}style") or ""
    light_part, dark_part = style.split("@media (prefers-color-scheme:dark){")
    part = dark_part if dark else light_part
    inks = re.findall(r"(?:text|fact|stat|place|bad)[^{}]*\{[^}]*fill:#(\w+)", part)
    lines = re.findall(r"(?:\.way|\.box)\{[^}]*stroke:#(\w+)", part)
    grounds = re.findall(r"\.(?:paper|box|layer|core)\{fill:#(\w+)", part)
    assert len(inks) >= 4
    assert len(grounds) >= 3
    for ink, least in [(i, 4.5) for i in inks] + [(i, 3.0) for i in lines]:
        for ground in grounds:
            high, low = sorted((_luminance(ink), _luminance(ground)), reverse=True)
            assert (high + 0.05) / (low + 0.05) >= least, (ink, ground)


def test_a_run_is_told_without_colours() -> None:
    root = root_of(picture("full_agent").with_run(RUN))
    shown = [text for *_, text in texts(root)]
    for text in (
        *("▶ waits here", "5 visits · 3.2 s", "✕ 2 errors", "route: tools ×4", "×3 · 400 ms"),
        *(
            "×5 · 2 s · 1 error",
            "×4 · <1 ms · 1 error",
            "4 visits · 9.1 s · 5,200 tokens in, 830 out",
        ),
    ):
        assert text in shown
    looks = {
        group.findtext(f"{SVG}title"): group.get("class", "").split()
        for group in root.iter(f"{SVG}g")
        if "edge" in group.get("class", "")
    }
    assert looks["model to tools (route: tools ×4)"] == ["edge", "maybe", "taken"]
    assert looks["model to END (route: end)"] == ["edge", "maybe"]
    assert looks["START to before_agent"] == ["edge", "taken"]
    nodes = [g.get("class") for g in root.iter(f"{SVG}g") if "node" in g.get("class", "")]
    assert nodes == ["node end ran", *["node ran"] * 3, "node broke", "node end idle"]


def test_edges_that_share_a_line_draw_it_once() -> None:
    root = root_of(picture("fan_out_50"))
    seen: list[tuple[str, str]] = []
    for path in root.iter(f"{SVG}path"):
        if path.get("class") == "way":
            numbers = re.findall(r"([MLQ])([\d -]+)", path.get("d", ""))
            ends = [(kind, place) for kind, place in numbers]
            seen += [
                (one[1], other[1]) for one, other in itertools.pairwise(ends) if other[0] == "L"
            ]
    assert len(seen) == len(set(seen))
    assert len(as_svg(picture("fan_out_50"))) < 60_000


def test_a_line_drawn_again_leaves_out_what_is_there() -> None:
    ways = Ways()
    assert ways.path([(0, 0), (0, 100)]) == "M0 0L0 93"
    assert ways.path([(0, 0), (0, 50), (60, 50)]) == "M0 42Q0 50 8 50L53 50"
    assert ways.path([(0, 0), (0, 100)]) == ""
    assert ways.path([(0, 200), (0, 20)]) == "M0 200L0 93"


class _Page(HTMLParser):
    """Reads a page: its tags, its style sheets, its policy."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.styles: list[str] = []
        self.policy = ""
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        found = dict(attrs)
        assert not [key for key in found if key.startswith("on") or key in ("style", "href", "src")]
        if found.get("http-equiv"):
            self.policy = found.get("content") or ""

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1] == "style":
            self.styles.append(data)
            self.tags.append("")
        else:
            self.words.append(data)


def test_the_page_is_whole_and_its_policy_lets_in_its_own_styles_only() -> None:
    page = _Page(as_html(picture("full_agent").with_run(RUN)))
    assert page.tags[:3] == ["html", "head", "meta"]
    assert {"main", "h1", "svg", "table"} <= set(page.tags)
    assert not {"script", "link", "img", "iframe", "form"} & set(page.tags)
    rules = dict(rule.split(" ", 1) for rule in page.policy.split("; "))
    assert rules["default-src"] == "'none'"
    digests = [hashlib.sha256(style.encode()).digest() for style in page.styles]
    wanted = {f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests}
    assert set(rules["style-src"].split()) == wanted
    assert len(wanted) == 2


def test_the_page_says_everything_in_words_too() -> None:
    words = "".join(_Page(as_html(picture("full_agent").with_run(RUN))).words)
    for part in (
        *("at most 25 calls in a run", "wrap_tool_call: tracing → memory → retry", "route: end"),
        *("execute: ×1 · 2.6 s · 1 error", "permission: ×5 · 2 s · 1 error", "waits here"),
        *("START → before_agent → modify_request → model → tools", "the last step is not over"),
    ):
        assert part in words


def test_a_long_path_is_shortened_and_says_so() -> None:
    path = ("modify_request", "model", "tools") * 100
    words = as_html(picture("bare_agent").with_run(RunOverlay("t", path=path)))
    assert "The last 200 of 300 steps." in words


def test_the_same_picture_gives_the_same_bytes() -> None:
    drawn = picture("dense")
    assert as_svg(drawn) == as_svg(drawn)
    assert placed(drawn) == placed(drawn)
