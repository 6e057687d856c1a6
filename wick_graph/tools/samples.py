"""The smallest tool there is, as an example and for tests."""

from __future__ import annotations

from wick_graph.tools.func import tool


@tool(replay="safe")
def add(a: float, b: float) -> str:
    """Add two numbers.

    Args:
        a: First number
        b: Second number
    """
    return f"{a + b:g}"
