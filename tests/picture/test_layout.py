"""The layout: nothing overlaps, nothing is crossed, the same graph gives the same places."""

from __future__ import annotations

import random
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.picture.geometry import faults
from tests.picture.samples import NAMES, RUN, picture
from tests.support.often import often
from wick_graph.picture import svg, text
from wick_graph.picture.layout import arrange
from wick_graph.picture.layout_rows import Layout, Link, Metrics, Rect, Route, Size
from wick_graph.picture.svg import inside

FORMS = {"pixels": svg.METRICS, "cells": text.METRICS}


def sizes_of(name: str, form: str) -> tuple[list[Size], list[Link]]:
    """Measure a picture as the drawings do."""
    drawn = picture(name)
    if form == "pixels":
        contents = [inside(box, None) for box in drawn.boxes]
        boxes = [Size(content.width, content.height) for content in contents]
        labels = [svg.label_size(svg.label_lines(arrow.label)) for arrow in drawn.arrows]
    else:
        boxes = [text.size_of(text.content_of(box, drawn)) for box in drawn.boxes]
        labels = [Size(len(a.label) - 1, 0) if a.label else None for a in drawn.arrows]
    return boxes, drawn.links(labels)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_crossed_or_covered(name: str, form: str) -> None:
    boxes, links = sizes_of(name, form)
    layout = arrange(boxes, links, FORMS[form])
    assert faults(layout, links) == []
    asked = [(size.width, size.height) for size in boxes]
    looped = {link.source for link in links if link.source == link.target}
    for i, (rect, (width, height)) in enumerate(zip(layout.boxes, asked, strict=True)):
        assert rect.width == width
        assert rect.height == height or (i in looped and rect.height > height)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[Size], list[Link], Metrics]:
    """Any graph up to 12 boxes: loops, parallel edges, islands, labels, all sizes."""
    form = draw(st.sampled_from(sorted(FORMS)))
    cells = form == "cells"
    count = draw(st.integers(1, 12))
    box = st.builds(Size, st.integers(4, 30), st.integers(2, 7))
    if not cells:
        box = st.builds(Size, st.integers(60, 300), st.integers(32, 200))
    label = st.builds(Size, st.integers(0, 24), st.integers(0, 2))
    if not cells:
        label = st.builds(Size, st.integers(20, 200), st.sampled_from((20, 35)))
    node = st.integers(0, count - 1)
    link = st.builds(Link, node, node, st.none() | label)
    boxes = draw(st.lists(box, min_size=count, max_size=count))
    links = draw(st.lists(link, max_size=30))
    wrap = draw(st.sampled_from((40, 120, 1400)))
    return boxes, links, replace(FORMS[form], wrap=wrap)


@settings(max_examples=often(300), deadline=None)
@given(graphs())
def test_any_graph_is_laid_out_well_and_always_alike(
    graph: tuple[list[Size], list[Link], Metrics],
) -> None:
    boxes, links, metrics = graph
    layout = arrange(boxes, links, metrics)
    assert faults(layout, links) == []
    assert arrange(boxes, links, metrics) == layout


def big(count: int, edges: int, seed: int) -> tuple[list[Size], list[Link]]:
    """Make a program-like graph: mostly forwards and near, some edges back, some labelled."""
    rng = random.Random(seed)
    boxes = [Size(rng.randint(60, 200), rng.randint(36, 100)) for _ in range(count)]
    links = [Link(i, min(count - 1, i + rng.randint(1, 8))) for i in range(count - 1)]
    while len(links) < edges:
        source = rng.randrange(count)
        target = min(max(source + rng.randint(-3, 8), 0), count - 1)
        links.append(Link(source, target, Size(60, 20) if rng.random() < 0.2 else None))
    return boxes, links


def test_sixty_nodes_take_no_time() -> None:
    """The promise is 20 ms; what grows out of hand takes seconds, on any machine."""
    spent = []
    for seed in range(5):
        boxes, links = big(60, 119, seed)
        begin = time.process_time()
        layout = arrange(boxes, links, svg.METRICS)
        spent.append(time.process_time() - begin)
        assert faults(layout, links) == []
    assert min(spent) < 0.5


def test_hundreds_of_nodes_are_possible() -> None:
    boxes, links = big(300, 420, 1)
    assert faults(arrange(boxes, links, svg.METRICS), links) == []


def test_a_long_chain_needs_no_recursion() -> None:
    links = [Link(i, i + 1) for i in range(1499)]
    layout = arrange([Size(60, 32)] * 1500, links, svg.METRICS)
    assert {route.points[0][0] for route in layout.routes} == {30}


def test_nothing_gives_nothing() -> None:
    assert arrange([], [], svg.METRICS) == Layout(0, 0, (), ())


def test_a_chain_is_straight_beside_a_long_edge() -> None:
    links = [*(Link(i, i + 1) for i in range(4)), Link(0, 4)]
    layout = arrange([Size(100, 40)] * 5, links, svg.METRICS)
    assert [len(route.points) for route in layout.routes[:4]] == [2] * 4
    assert len(layout.routes[4].points) <= 6


def test_many_edges_from_one_box_share_a_line() -> None:
    links = [Link(0, i) for i in range(1, 51)]
    layout = arrange([Size(100, 40)] * 51, links, svg.METRICS)
    assert len({route.points[0] for route in layout.routes}) == 1
    assert layout.width <= svg.METRICS.wrap + 100
    assert len({rect.y for rect in layout.boxes}) > 3


def test_edges_back_to_one_box_share_a_lane_and_enter_at_the_side() -> None:
    links = [*(Link(0, i) for i in (1, 2, 3)), *(Link(i, 0) for i in (1, 2, 3))]
    layout = arrange([Size(100, 40)] * 4, links, svg.METRICS)
    ends = {route.points[-1] for route in layout.routes[3:]}
    assert len(ends) == 1
    x, y = ends.pop()
    box = layout.boxes[0]
    assert x in (box.x, box.right)
    assert box.y < y < box.bottom


def test_groups_without_a_link_stand_apart() -> None:
    links = [Link(0, 1), Link(2, 3)]
    layout = arrange([Size(100, 40)] * 5, links, svg.METRICS)
    assert len({rect.x for rect in layout.boxes}) == 3
    assert [rect.y for rect in layout.boxes].count(0) == 3


GOOD = Layout(
    300,
    200,
    (Rect(0, 0, 100, 40), Rect(0, 100, 100, 40), Rect(200, 0, 100, 40)),
    (Route(((50, 40), (50, 100)), Rect(30, 60, 40, 20)),),
)
LINKS = [Link(0, 1, Size(40, 20))]


@pytest.mark.parametrize(
    ("layout", "links"),
    [
        pytest.param(
            replace(GOOD, boxes=(*GOOD.boxes[:2], Rect(90, 30, 100, 40))), LINKS, id="boxes"
        ),
        pytest.param(
            replace(GOOD, boxes=(*GOOD.boxes[:2], Rect(45, 85, 9, 9))), LINKS, id="edge in box"
        ),
        pytest.param(
            replace(GOOD, routes=(Route(((50, 40), (60, 100)), Rect(30, 60, 40, 20)),)),
            LINKS,
            id="slanting",
        ),
        pytest.param(
            replace(GOOD, routes=(Route(((50, 41), (50, 100)), Rect(30, 60, 40, 20)),)),
            LINKS,
            id="loose end",
        ),
        pytest.param(
            replace(GOOD, routes=(Route(((50, 40), (50, 100)), Rect(30, 35, 40, 20)),)),
            LINKS,
            id="label on box",
        ),
        pytest.param(
            replace(GOOD, routes=(Route(((50, 40), (50, 100)), Rect(130, 60, 40, 20)),)),
            LINKS,
            id="label elsewhere",
        ),
        pytest.param(replace(GOOD, width=299), LINKS, id="outside"),
        pytest.param(
            replace(GOOD, routes=(*GOOD.routes, Route(((50, 100), (50, 40))))),
            [*LINKS, Link(1, 0)],
            id="on top of each other",
        ),
        pytest.param(
            replace(GOOD, routes=(Route(((0, 20), (50, 20), (50, 100)), Rect(30, 60, 40, 20)),)),
            LINKS,
            id="through its own box",
        ),
    ],
)
def test_the_checks_find_what_is_wrong(layout: Layout, links: list[Link]) -> None:
    assert faults(GOOD, LINKS) == []
    assert faults(layout, links) != []


def test_a_run_moves_no_box_of_an_agent_to_another_row() -> None:
    plain = svg.placed(picture("full_agent"))
    laid = svg.placed(picture("full_agent").with_run(RUN))
    assert sorted(range(6), key=lambda i: plain.boxes[i].y) == sorted(
        range(6), key=lambda i: laid.boxes[i].y
    )
