"""Functions with all sorts of type hints; a test loads them once as objects and once as text."""

import datetime
import enum
from typing import Annotated, Any, Literal, Optional

from pydantic import BaseModel, Field

from wick_graph.tools import ToolContext


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    x: int
    y: int = 0


class Tree(BaseModel):
    name: str
    children: list["Tree"] = []


def simple(text: str, count: int, ratio: float, flag: bool) -> str:
    """Do it."""
    return f"{text!r} {count!r} {ratio!r} {flag!r}"


def optional(a: Optional[int], b: int | None = None, c: str = "x") -> Any:  # noqa: UP045  (the case)
    """Do it."""
    return [a, b, c]


def lists(names: list[str], pairs: dict[str, int], any_of: list[Point]) -> Any:
    """Do it."""
    return [names, pairs, any_of]


def choice(mode: Literal["r", "w"], colour: Colour = Colour.RED) -> Any:
    """Do it."""
    return [mode, colour]


def nested(point: Point, tree: Tree) -> Any:
    """Do it."""
    return [point, tree]


def moment(at: datetime.datetime, day: datetime.date = datetime.date(2024, 1, 2)) -> Any:
    """Do it."""
    return [at, day]


def limited(
    n: Annotated[int, Field(ge=1, le=3, description="Small")], m: int = Field(2, ge=0)
) -> Any:
    """Do it."""
    return [n, m]


def names(schema: str, json: str, copy: str, _private: int, model_config: int = 1) -> Any:
    """Do it."""
    return [schema, json, copy, _private, model_config]


def context(a: int, ctx: ToolContext, other: ToolContext | None = None) -> Any:
    """Do it."""
    return [a, ctx, other]


def bare(anything, other=3):  # type: ignore[no-untyped-def]  # a user's function may be like this
    """Do it."""
    return [anything, other]


def keywords(*, a: int, b: int = 2) -> Any:
    """Do it."""
    return [a, b]


def nothing() -> str:
    """Do it."""
    return "done"
