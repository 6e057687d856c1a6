"""The picture as a graph for Graphviz."""

from __future__ import annotations

from wick_graph.picture.model import Picture


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
