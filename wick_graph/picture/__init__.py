"""The picture of a graph: nodes, edges, hook layers, tools, limits, and a run laid over them.

    read      a compiled LangGraph graph → Picture      history   a thread → RunOverlay
    model     what there is to draw                     overlay   what a run adds to it
    layout    where it goes, in pixels or cells         words     safe names, widths of text
    svg text mermaid dot json html                      the forms: functions of a Picture

Every form is written by this package alone: no browser, no network, no Graphviz. The same graph
always gives the same bytes.
"""

from wick_graph.picture.dot import as_dot
from wick_graph.picture.history import overlay_of
from wick_graph.picture.html import as_html
from wick_graph.picture.json import as_json
from wick_graph.picture.mermaid import as_mermaid
from wick_graph.picture.model import Arrow, Box, Fact, Layers, Picture, ToolMark
from wick_graph.picture.overlay import RunOverlay, Tally
from wick_graph.picture.read import picture_of
from wick_graph.picture.svg import as_svg
from wick_graph.picture.text import as_text

__all__ = [
    "Arrow",
    "Box",
    "Fact",
    "Layers",
    "Picture",
    "RunOverlay",
    "Tally",
    "ToolMark",
    "as_dot",
    "as_html",
    "as_json",
    "as_mermaid",
    "as_svg",
    "as_text",
    "overlay_of",
    "picture_of",
]
