"""Pictures and runs that several tests draw."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Final

from tests.picture.graphs import GRAPHS, XRAYED
from wick_graph.picture import Picture, RunOverlay, Tally, picture_of

GOLDEN: Final = Path(__file__).parent / "golden"
UPDATE: Final = "WICK_UPDATE_GOLDEN"
"""Set this variable to write the golden files anew; look at what has changed."""
NAMES: Final = (*GRAPHS, *(f"{name}_opened" for name in XRAYED))


@cache
def picture(name: str) -> Picture:
    """Draw a graph by name."""
    opened = name.endswith("_opened")
    plain = name.removesuffix("_opened")
    return picture_of(GRAPHS[plain](), xray=opened, title=name)


RUN: Final = RunOverlay(
    thread_id="th_0123456789abcdef",
    status="interrupted",
    total=Tally(14, 12.4, 5200, 830, 2),
    nodes={
        "START": Tally(1),
        "before_agent": Tally(1, 0.004),
        "modify_request": Tally(4, 0.02),
        "model": Tally(4, 9.1, 5200, 830),
        "tools": Tally(5, 3.2, errors=2),
    },
    edges={
        ("START", "before_agent"): Tally(1),
        ("before_agent", "modify_request"): Tally(1),
        ("modify_request", "model"): Tally(4),
        ("model", "tools"): Tally(4),
        ("tools", "modify_request"): Tally(3),
    },
    layers={
        ("modify_request", "memory"): Tally(4, 0.0002, errors=1),
        ("wrap_model_call", "tracing"): Tally(4, 9.0),
        ("wrap_tool_call", "permission"): Tally(5, 2.0, errors=1),
    },
    tools={"grep": Tally(3, 0.4), "execute": Tally(1, 2.6, errors=1), "glob": Tally(1, 0.2)},
    path=("START", "before_agent", *("modify_request", "model", "tools") * 3),
    at=("tools",),
    notes=("the last step is not over",),
)
"""A run of the full agent that waits for a permission."""


def same_as_golden(name: str, text: str) -> None:
    """Compare with a golden file, or write it if the environment says so."""
    path = GOLDEN / name
    if os.environ.get(UPDATE):
        path.write_text(text, encoding="utf-8")
    assert path.exists(), f"no golden file {name}; write it with {UPDATE}=1 and look at it"
    assert text == path.read_text(encoding="utf-8"), f"{name} differs; see {UPDATE}"
