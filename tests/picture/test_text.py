"""The drawing for terminals: aligned, connected, and readable where there is only ASCII."""

from __future__ import annotations

import re

import pytest

from tests.picture.samples import NAMES, RUN, picture
from wick_graph.picture import Picture, as_text
from wick_graph.picture.model import cells

LEADS = {
    "up": set("│┃┆┇╵╹└┗┘┛├┣┤┫┴┻┼╋║╚╝╰╯"),
    "down": set("│┃┆┇╷╻┌┏┐┓├┣┤┫┬┳┼╋║╔╗╭╮"),
    "left": set("─━┄┅╴╸┘┛┐┓┤┫┬┳┴┻┼╋═╗╝╮╯"),
    "right": set("─━┄┅╶╺└┗┌┏├┣┬┳┴┻┼╋═╔╚╭╰"),
}
HEADS = set("▼▲◄►")


def board(drawn: Picture) -> list[list[str]]:
    """Give the drawing cell by cell; the second cell of a wide character is empty."""
    rows = []
    for line in as_text(drawn).split("\n"):
        row: list[str] = []
        for char in line:
            if cells(char) == 0:
                row[-1] += char
            else:
                row += [char, *([""] * (cells(char) - 1))]
        rows.append(row)
    width = max(map(len, rows))
    return [row + [" "] * (width - len(row)) for row in rows]


def names_of_lines(drawn: Picture) -> set[str]:
    return set("".join(box.name + "".join(box.lines()) for box in drawn.boxes))


@pytest.mark.parametrize("name", NAMES)
def test_every_line_goes_on_in_the_next_cell(name: str) -> None:
    """A corner or a line never ends in the air: frames are closed, edges reach a box or a head."""
    drawn = picture(name)
    rows = board(drawn)
    words = names_of_lines(drawn) | {char for arrow in drawn.arrows for char in arrow.label}
    words.discard(" ")
    loose = []
    for y, row in enumerate(rows):
        for x, sign in enumerate(row):
            for way, (dx, dy) in {"down": (0, 1), "right": (1, 0)}.items():
                if sign not in LEADS[way]:
                    continue
                back = {"down": "up", "right": "left"}[way]
                next_ = rows[y + dy][x + dx] if y + dy < len(rows) and x + dx < len(row) else " "
                crossed = way == "right" and next_ in "│┃┆┇" and rows[y][x + 2] in LEADS["left"]
                goes_on = next_ in LEADS[back] or next_ in HEADS or next_ in words or crossed
                if not goes_on and not (sign in "│┃┆┇║" and way == "down" and next_ == " "):
                    loose.append((x, y, sign, next_))
    assert loose == []


@pytest.mark.parametrize("name", NAMES)
def test_every_edge_has_a_head_and_every_box_a_frame(name: str) -> None:
    drawn = picture(name)
    text = as_text(drawn)
    targets = {arrow.target for arrow in drawn.arrows}
    assert len(re.findall("[▼▲◄►]", text)) >= len(targets)
    corners = sum(text.count(corner) for corner in "┌╔╭")
    assert corners >= len(drawn.boxes)
    for box in drawn.boxes:
        for word in box.name.split("_")[0].split():
            assert word[:20] in text


def test_the_loop_of_an_agent() -> None:
    lines = as_text(picture("full_agent")).splitlines()
    text = "\n".join(lines)
    assert re.search(r"│   before_agent: memory +│", text)
    assert re.search(r"[│├]   wrap_tool_call: tracing → memory → ", text)
    assert "route: tools" in text
    assert "route: end" in text
    assert re.search(r"│   at most 25 calls in a run +│", text)
    assert "execute" in text
    assert "more tools, by thread: skills" in text
    entered = next(line for line in lines if "◄" in line)
    rail = len(entered) - 1
    first = lines.index(entered)
    last = max(i for i, line in enumerate(lines) if len(line) > rail and line[rail] == "┘")
    assert all(line[rail] == "│" for line in lines[first + 1 : last])


@pytest.mark.parametrize("name", NAMES)
def test_ascii_is_ascii_and_has_the_same_boxes(name: str) -> None:
    text = as_text(picture(name), ascii_only=True)
    assert text.isascii()
    assert text.count("START") >= 1
    assert "+--" in text
    widths = {len(line) for line in text.splitlines()}
    assert max(widths) <= max(cells(line) for line in as_text(picture(name)).splitlines()) + 40


def test_a_run_is_drawn_heavy_and_counted() -> None:
    text = as_text(picture("full_agent").with_run(RUN))
    first = text.splitlines()[0]
    assert first.startswith("thread th_0123456789abcdef · interrupted · 14 steps · 12.4 s")
    assert "▶ waits here" in text
    assert "5 visits, 3.2 s, 2 errors" in text
    assert "route: tools ×4" in text
    assert "tracing (×4, 9 s)" in text
    assert "(the last step is not over)" in text
    assert "┃" in text
    assert "┃" not in as_text(picture("full_agent"))


def test_too_wide_a_drawing_becomes_a_list() -> None:
    drawn = picture("full_agent").with_run(RUN)
    assert as_text(drawn, width=200) == as_text(drawn)
    text = as_text(drawn, width=60)
    assert "┌" not in text
    assert all(cells(line) < 60 for line in text.splitlines())
    for part in (
        "START\n  → before_agent",
        "  → tools  (route: tools ×4)",
        "  → END  (route: end)",
    ):
        assert part in text
    assert "  wrap_model_call: tracing" in text


def test_an_edge_that_crosses_another_one_passes_over_it() -> None:
    assert re.search("[─┄]│[─┄]", as_text(picture("bipartite"))) or "─┆─" in as_text(
        picture("swarm")
    )
