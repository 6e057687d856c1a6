"""The picture of a graph: nodes, edges, hook layers, tools, limits, and an overlaid run.

    read      a compiled LangGraph graph → Picture      history   a thread → RunOverlay
    model     the content, a run's numbers, safe names  layout    positions, in pixels or cells
    svg text formats (json, html, mermaid, dot)         the forms: functions of a Picture

This package writes every form itself: no browser, no network, no Graphviz. The same graph always
gives the same bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wick_graph.lazy import load_when_used

if TYPE_CHECKING:
    from wick_graph.picture.formats import as_dot, as_html, as_json, as_mermaid
    from wick_graph.picture.history import overlay_of, recorded_overlay
    from wick_graph.picture.model import (
        Arrow,
        Box,
        Fact,
        Layers,
        Picture,
        RunOverlay,
        Tally,
        ToolMark,
    )
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
    "recorded_overlay",
]

if not TYPE_CHECKING:
    __getattr__ = load_when_used(
        __name__,
        {
            "wick_graph.picture.formats": ("as_dot", "as_html", "as_json", "as_mermaid"),
            "wick_graph.picture.history": ("overlay_of", "recorded_overlay"),
            "wick_graph.picture.model": (
                "Arrow",
                "Box",
                "Fact",
                "Layers",
                "Picture",
                "RunOverlay",
                "Tally",
                "ToolMark",
            ),
            "wick_graph.picture.read": ("picture_of",),
            "wick_graph.picture.svg": ("as_svg",),
            "wick_graph.picture.text": ("as_text",),
        },
    )
