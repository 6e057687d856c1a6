"""Evaluate a checked expression: an interpreter for its syntax tree, with a budget."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from wick_graph.errors import ExpressionError
from wick_graph.expressions.functions import (
    FUNCTIONS,
    MAX_RESULT,
    Budget,
    few_bits,
    fits,
    forms,
    have_order,
    item,
    kind,
    names_a_path,
    number,
    plain,
    plain_pattern,
    size_of,
    there_is,
    whole,
)

WORDS: Final[Mapping[str, Any]] = {"true": True, "false": False, "null": None}
"""JSON's words; no name overrides them."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A checked expression; it can be evaluated any number of times, in any thread."""

    text: str
    body: ast.expr = field(repr=False, compare=False)

    def evaluate(self, names: Mapping[str, Any], folders: Sequence[str] = ()) -> Any:
        """Return the expression's value for these names.

        Args:
            names: The values, by name.
            folders: Absolute names of the folder at which relative paths start, for `glob`.

        Raises:
            ExpressionError: it has no value, takes too many steps, or its value is too large.
        """
        value = _Evaluation(self.text, names, folders).value(self.body)
        try:
            fits(size_of(value, MAX_RESULT))
        except ExpressionError as error:
            raise ExpressionError(error.problem, 1) from None
        return value


def column(node: ast.expr, text: str) -> int:
    """Convert the parser's offset in bytes into a column in characters, from 1."""
    return len(text.encode(errors="replace")[: node.col_offset].decode(errors="ignore")) + 1


class _Evaluation:
    """One evaluation: its names and its budget."""

    def __init__(self, text: str, names: Mapping[str, Any], folders: Sequence[str]) -> None:
        self.text = text
        self.names = names
        self.folders = folders
        self.budget = Budget()

    def value(self, node: ast.expr) -> Any:
        """Return a part's value.

        Raises:
            ExpressionError: it has none; the error names the column of the innermost part.
        """
        try:
            self.budget.spend()
            return plain(EVALUATED[type(node)](self, node))
        except ExpressionError as error:
            if error.position is not None:
                raise
            problem = error.problem
        except ZeroDivisionError:
            problem = "division by zero"
        except RecursionError:
            problem = "the values are nested too deeply"
        except (TypeError, ValueError, OverflowError, LookupError) as error:
            problem = f"it has no value ({type(error).__name__})"
        raise ExpressionError(problem, column(node, self.text))

    def name(self, node: ast.Name) -> Any:
        """Look a name up."""
        if node.id in WORDS:  # before the names: an argument called `true` must not decide
            return WORDS[node.id]
        if node.id in self.names:
            return self.names[node.id]
        raise ExpressionError(f"there is no {node.id}{there_is(self.names, node.id)}")

    def subscript(self, node: ast.Subscript) -> Any:
        """Look a key or an index up, or take a slice."""
        base = self.value(node.value)
        if not isinstance(node.slice, ast.Slice):
            return item(base, self.value(node.slice))
        if not isinstance(base, str | list | tuple):
            raise ExpressionError(f"{kind(base)} has no slices; only a text and a list have")
        bounds = (node.slice.lower, node.slice.upper, node.slice.step)
        cut = slice(*(None if part is None else whole(self.value(part)) for part in bounds))
        if cut.step == 0:
            raise ExpressionError("a step must not be 0")
        fits(len(range(*cut.indices(len(base)))))
        return self.budget.made(base[cut])

    def logic(self, node: ast.BoolOp) -> Any:
        """Evaluate from the left, as far as needed."""
        ends_at = isinstance(node.op, ast.Or)
        value: Any = None
        for part in node.values:
            value = self.value(part)
            if bool(value) is ends_at:
                break
        return value

    def unary(self, node: ast.UnaryOp) -> Any:
        """Negate."""
        value = self.value(node.operand)
        if isinstance(node.op, ast.Not):
            return not value
        return -number(value) if isinstance(node.op, ast.USub) else +number(value)

    def binary(self, node: ast.BinOp) -> Any:
        """Calculate, or join two texts or two lists."""
        a, b = self.value(node.left), self.value(node.right)
        if isinstance(node.op, ast.Add):
            if isinstance(a, str) and isinstance(b, str):
                fits(len(a) + len(b))
                return self.budget.made(a + b)
            if isinstance(a, list | tuple) and isinstance(b, list | tuple):
                fits(len(a) + len(b))
                return self.budget.made([*a, *b])
            if isinstance(a, str) or isinstance(b, str):
                raise ExpressionError(f"+ joins two texts, not {kind(a)} and {kind(b)}; use str(…)")
        a, b = number(a), number(b)
        if isinstance(node.op, ast.Mult) and isinstance(a, int) and isinstance(b, int):
            few_bits(a.bit_length() + b.bit_length())
        return ARITHMETIC[type(node.op)](a, b)

    def compare(self, node: ast.Compare) -> bool:
        """Compare pair by pair, as Python does."""
        left = self.value(node.left)
        for op, other in zip(node.ops, node.comparators, strict=True):
            right = self.value(other)
            if not self.holds(op, left, right):
                return False
            left = right
        return True

    def holds(self, op: ast.cmpop, a: Any, b: Any) -> bool:
        """Say whether one comparison holds."""
        if isinstance(op, ast.Is | ast.IsNot):
            same = a is None if b is None else isinstance(a, bool) and a == b
            return same is isinstance(op, ast.Is)
        if isinstance(op, ast.In | ast.NotIn):
            return self.contains(b, a) is isinstance(op, ast.In)
        self.budget.spend_on(a, b)
        if isinstance(op, ast.Eq | ast.NotEq):
            return bool(a == b) is isinstance(op, ast.Eq)
        if not have_order([a, b]):
            raise ExpressionError(f"{kind(a)} and {kind(b)} have no order")
        return bool(_ORDER[type(op)](a, b))

    def contains(self, container: Any, part: Any) -> bool:
        """Say whether a text, a list, or an object's keys contain something."""
        if isinstance(container, Mapping):
            return isinstance(part, str) and part in container
        if isinstance(container, str) and not isinstance(part, str):
            raise ExpressionError(f"{kind(part)} cannot be in a text")
        if not isinstance(container, str | list | tuple):
            raise ExpressionError(f"nothing can be in {kind(container)}")
        self.budget.spend_on(container, part)
        return part in container

    def mapped(self, node: ast.Dict) -> dict[Any, Any]:
        """Make an object."""
        keys = [self.value(key) for key in node.keys if key is not None]
        if not all(isinstance(key, str) for key in keys):
            raise ExpressionError("the keys of an object must be texts")
        return dict(zip(keys, map(self.value, node.values), strict=True))

    def call(self, node: ast.Call) -> Any:
        """Call one of the functions."""
        assert isinstance(node.func, ast.Name)
        function = FUNCTIONS[node.func.id][0]
        given = [self.value(argument) for argument in node.args]
        if (
            node.func.id == "glob"
            and isinstance(given[0], str)
            and names_a_path(node.args[0], given[0])
        ):
            self.budget.spend_on(given[0])
            found = forms(given[0], self.folders)
            return any(function(self, form, plain_pattern(given[1])) for form in found)
        return function(self, *given)


ARITHMETIC: Final[Mapping[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}

_ORDER: Final[Mapping[type[ast.cmpop], Callable[[Any, Any], Any]]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}

EVALUATED: Final[Mapping[type[ast.expr], Callable[[_Evaluation, Any], Any]]] = {
    ast.Constant: lambda evaluation, node: node.value,
    ast.Name: _Evaluation.name,
    ast.Attribute: lambda evaluation, node: item(evaluation.value(node.value), node.attr),
    ast.Subscript: _Evaluation.subscript,
    ast.BoolOp: _Evaluation.logic,
    ast.UnaryOp: _Evaluation.unary,
    ast.BinOp: _Evaluation.binary,
    ast.Compare: _Evaluation.compare,
    ast.List: lambda evaluation, node: [evaluation.value(part) for part in node.elts],
    ast.Tuple: lambda evaluation, node: [evaluation.value(part) for part in node.elts],
    ast.Dict: _Evaluation.mapped,
    ast.Call: _Evaluation.call,
}
"""How to evaluate each part of an expression."""
