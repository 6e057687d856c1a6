"""The picture as data, as Mermaid and for Graphviz; and how it is read off a graph."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.picture import graphs
from tests.picture.samples import NAMES, RUN, picture
from wick_graph import Agent, BaseHook, FuncTool
from wick_graph.picture import (
    Arrow,
    Box,
    Picture,
    as_dot,
    as_html,
    as_json,
    as_mermaid,
    as_svg,
    picture_of,
)
from wick_graph.picture import as_text as text_of
from wick_graph.picture.formats import escaped
from wick_graph.picture.model import cells, clean, pixels, span, wrapped

EVIL = 'x"] --> y\\\n<script>&%%{init}%%\x1b[0m'


class Around(BaseHook):
    def __init__(self, name: str) -> None:
        self.name = name

    def wrap_model_call(self, request: Any, next: Any) -> Any:
        return next(request)

    def wrap_tool_call(self, call: Any, next: Any) -> Any:
        return next(call)


@pytest.fixture
def drawn() -> Picture:
    def look(where: str) -> str:
        """Look."""
        return where

    hooks = [Around("outer"), Around(EVIL)]
    agent = Agent("mine", "scripted:demo", hooks=hooks, tools=[look], store=False)
    return picture_of(agent.graph)


def test_the_data_have_the_nodes_the_route_and_the_layers(drawn: Picture) -> None:
    told = json.loads(as_json(drawn))
    assert told["agent"] == "mine"
    nodes = {node["id"]: node for node in told["nodes"]}
    assert list(nodes) == ["START", "before_agent", "modify_request", "model", "tools", "END"]
    assert nodes["tools"]["hooks"]["wrap_tool_call"][0] == "outer"
    assert nodes["model"]["facts"] == {"model": "scripted:demo", "max_iterations": 25}
    assert nodes["tools"]["facts"] == {"tool_timeout": 300.0, "max_concurrency": 32}
    assert nodes["tools"]["tools"] == [{"name": "look", "replay": "never"}]
    edges = [(edge["source"], edge["target"], edge["label"]) for edge in told["edges"]]
    assert edges == [
        ("START", "before_agent", ""),
        ("before_agent", "modify_request", ""),
        ("modify_request", "model", ""),
        ("model", "tools", "route: tools"),
        ("model", "END", "route: end"),
        ("tools", "modify_request", ""),
    ]
    assert "run" not in told
    assert "layout" not in told


def test_the_data_have_places_and_a_run_on_demand(drawn: Picture) -> None:
    told = json.loads(as_json(drawn.with_run(RUN), places=True))
    assert list(told["layout"]["boxes"]) == [node["id"] for node in told["nodes"]]
    assert len(told["layout"]["edges"]) == len(told["edges"])
    x, y, width, height = told["layout"]["boxes"]["tools"]
    assert x + width <= told["layout"]["width"]
    assert y + height <= told["layout"]["height"]
    assert told["layout"]["edges"][3]["label"] is not None
    assert told["run"]["nodes"]["tools"]["visits"] == 5
    assert told["run"]["at"] == ["tools"]
    assert {"source": "model", "target": "tools", "visits": 4}.items() <= told["run"]["edges"][
        3
    ].items()


NODE = re.compile(
    r'    n_\w+(\["[^"\]<>&\\]*(<br/>[^"\]<>&\\]*)*"\]|\[\["[^"<>\]]*(<br/>[^"<>\]]*)*"\]\]'
    r'|\(\["(START|END|#?\w+;?)*"\]\))'
)
EDGE = re.compile(r'    n_\w+ -->(\|"[^"|<>\]]*"\|)? n_\w+')


@pytest.mark.parametrize("name", NAMES)
def test_mermaid_has_one_line_for_each_node_and_edge(name: str) -> None:
    made = picture(name)
    lines = as_mermaid(made).splitlines()
    assert lines[0] == "flowchart TD"
    assert lines[1].startswith("    %% ")
    nodes, edges = lines[2 : 2 + len(made.boxes)], lines[2 + len(made.boxes) :]
    assert [line for line in nodes if not NODE.fullmatch(line)] == []
    assert [line for line in edges if not EDGE.fullmatch(line)] == []
    assert len(edges) == len(made.arrows)
    ids = [re.match(r"    (n_\w+)", line) for line in nodes]
    known = {match[1] for match in ids if match}
    assert len(known) == len(made.boxes)
    assert {part for line in edges for part in re.findall(r"n_\w+(?= -->|$)", line)} <= known


def test_mermaid_takes_no_order_from_a_name(drawn: Picture) -> None:
    text = as_mermaid(drawn)
    assert "    %% mine\n" in text
    assert "wrap_model_call: outer → x#34;#93;" in text
    assert "modify_request<br/>modify_request: no hooks" in text
    assert "<script" not in text
    assert "%%{" not in text


@given(st.text(max_size=40))
def test_mermaid_text_is_letters_and_numbers_of_characters(text: str) -> None:
    made = escaped(clean(text))
    assert re.fullmatch(r"(?:[^\W]|[ ,:()→×·+.\-]|#\d+;)*", made)
    back = re.sub(r"#(\d+);", lambda found: chr(int(found[1])), made)
    assert back == clean(text)
    assert not re.match(r"\d+\.|[-+*#>_ ](?!\d+;)", made)


@pytest.mark.parametrize("name", NAMES)
def test_dot_quotes_its_names(name: str) -> None:
    made = picture(name)
    text = as_dot(made.with_run(RUN) if name == "full_agent" else made)
    lines = text.splitlines()
    assert lines[0].startswith("digraph ")
    assert lines[-1] == "}"
    for line in lines[3:-1]:
        bare = re.sub(r'"(\\.|[^"\\])*"', "Q", line).strip(" ;")
        assert re.fullmatch(r"(label=)?Q( -> Q)?( \[[a-z=Q, 0-9]*\])?", bare), line


def test_dot_has_the_decisions(drawn: Picture) -> None:
    text = as_dot(drawn)
    assert text.startswith('digraph "mine" {\n')
    assert '    "model" -> "tools" [label="route: tools", style=dashed];' in text
    assert '    "tools" -> "modify_request";' in text


# --- reading a graph ------------------------------------------------------------------------------


def test_all_decisions_that_lead_to_a_node_are_named() -> None:
    labels = {(a.source, a.target): a.label for a in picture("parallel_labels").arrows}
    assert labels["grade", "fix"] == "wrong | ugly | slow"
    assert labels["grade", "END"] == "good"


def test_breakpoints_metadata_and_subgraphs_are_told() -> None:
    boxes = {box.id: box for box in picture("subgraph_of").boxes}
    assert boxes["write"].kind == "graph"
    assert boxes["write"].lines() == ["a graph of 2 nodes"]
    assert boxes["publish"].lines() == [
        "interrupt before and after",
        "runs when all else is done",
        "owner: news",
        "retries: 2",
    ]
    opened = {box.id for box in picture("subgraph_of_opened").boxes}
    assert {"write:draft", "write:critique"} <= opened


def test_an_agent_inside_a_graph_is_named() -> None:
    boxes = {box.id: box for box in picture("agent_in_a_graph").boxes}
    assert boxes["assistant"].lines() == ["the agent bare"]


def test_tools_of_langgraphs_own_node_are_listed() -> None:
    boxes = {box.id: box for box in picture("chat_with_tools").boxes}
    assert [tool.name for tool in boxes["tools"].tools] == ["search", "open_page"]


def test_tools_of_hooks_say_where_they_come_from() -> None:
    boxes = {box.id: box for box in picture("full_agent").boxes}
    remember = next(tool for tool in boxes["tools"].tools if tool.name == "remember")
    assert remember.line() == "remember (from memory)"
    assert boxes["tools"].unknown_tools == ("skills",)


def test_how_a_tool_may_be_called_is_told() -> None:
    def look(where: str) -> str:
        """Look."""
        return where

    tools = [
        FuncTool.from_function(look, replay="safe", timeout=5, retries=2),
        FuncTool.from_function(look, name="ship", replay="key", timeout=None, concurrency=1),
    ]
    agent = Agent("mine", "scripted:demo", tools=tools, tool_timeout=None, store=False)
    box = next(box for box in picture_of(agent.graph).boxes if box.id == "tools")
    assert box.lines()[-1] == (
        "tools: look (repeatable, 5 s, 2 retries), "
        "ship (repeatable by key, no time limit, 1 at once)"
    )
    assert box.lines()[0] == "no time limit"
    assert box.tools[0].facts[2].value == 2


def test_mermaid_tells_nodes_apart_whose_ids_would_be_the_same() -> None:
    boxes = tuple(Box(name, name) for name in ("1", "a b", "1_"))
    lines = as_mermaid(Picture("x", boxes, (Arrow("a b", "1_"),))).splitlines()
    nodes = ['    n_1["1"]', '    n_1_["a b"]', '    n_1__["1#95;"]']
    assert lines[2:] == [*nodes, "    n_1_ --> n_1__"]


def test_a_node_that_is_called_start_is_not_the_start() -> None:
    ids = [box.id for box in picture("strange_names").boxes]
    assert len(ids) == len(set(ids))
    assert {"START", "__start__", "END"} <= set(ids)


@pytest.mark.sisters(10)
@pytest.mark.parametrize("write", [as_svg, as_html, as_mermaid, as_dot, as_json, text_of])
@pytest.mark.parametrize("made", [graphs.strange_names, graphs.full_agent, graphs.dense])
def test_the_same_graph_gives_the_same_bytes(
    write: Callable[[Picture], str], made: Callable[[], Any]
) -> None:
    assert write(picture_of(made())) == write(picture_of(made()))


@given(name=st.text(max_size=60), label=st.text(max_size=60), title=st.text(max_size=60))
def test_any_name_can_be_drawn(name: str, label: str, title: str) -> None:
    boxes = (Box("START", "START", "start"), Box(name + "x", clean(name)))
    arrows = (Arrow("START", name + "x", clean(label)), Arrow(name + "x", name + "x", clean(label)))
    made = Picture(clean(title), boxes, arrows)
    for write in (as_svg, as_html, as_mermaid, as_dot, as_json, text_of):
        assert write(made)
    assert text_of(made, ascii_only=True).isascii()


# --- words ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_", "shown"),
    [
        ("a\tb\nc\r\nd", "a b c d"),
        ("\x00\x1b[31m\x7f", "␀␛[31m␡"),
        ("\u202eabc\u202c\u2066\u200f", r"\u202eabc\u202c\u2066\u200f"),
        ("\ud800\uffff\x9b", "���"),
        ("x" * 120, "x" * 99 + "…"),
        ("", ""),
    ],
)
def test_a_name_is_made_harmless(given_: str, shown: str) -> None:
    assert clean(given_) == shown


@given(st.text(max_size=80), st.integers(1, 30))
def test_wrapping_loses_nothing_and_keeps_to_the_room(text: str, room: int) -> None:
    line = clean(text)
    parts = wrapped(line, room, cells)
    assert "".join(parts).replace(" ", "") == line.replace(" ", "")
    assert all(cells(part) <= room or len(part) == 1 for part in parts)


@given(st.text(max_size=40), st.text(max_size=40))
def test_widths_add_up(a: str, b: str) -> None:
    assert abs(pixels(a + b, 1000) - pixels(a, 1000) - pixels(b, 1000)) <= 2
    assert pixels(a, 12) <= pixels(a + b, 12)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0 ms"),
        (0.0004, "<1 ms"),
        (0.25, "250 ms"),
        (1.04, "1 s"),
        (12.34, "12.3 s"),
        (59.97, "1 min"),
        (60, "1 min"),
        (300, "5 min"),
        (95, "1 min 35 s"),
        (3599.6, "1 h"),
        (3660, "1 h 1 min"),
    ],
)
def test_durations_are_written_for_people(seconds: float, said: str) -> None:
    assert span(seconds) == said
