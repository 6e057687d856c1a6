"""The picture as JSON: what there is, and on demand where it is drawn."""

from __future__ import annotations

import json
from typing import Any

from wick_graph.picture.layout import Rect
from wick_graph.picture.model import Picture
from wick_graph.picture.svg import placed


def as_json(picture: Picture, *, places: bool = False) -> str:
    """Write the picture as JSON.

    Args:
        picture: What to write.
        places: Add where the SVG has its boxes and edges, in pixels, for a page that draws itself.
    """
    made = picture.to_dict()
    if places:
        made["layout"] = layout_of(picture)
    return json.dumps(made, ensure_ascii=False, indent=2, default=str)


def layout_of(picture: Picture) -> dict[str, Any]:
    """Give the places of boxes by id, and those of edges in their order."""
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
