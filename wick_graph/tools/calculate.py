"""A calculator for models: arithmetic by a syntax tree, bounded in every way, never `eval`."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import Final

from wick_graph.errors import ToolError
from wick_graph.tools.func import tool

MAX_CHARS: Final = 1_000
MAX_NODES: Final = 500
MAX_DEPTH: Final = 60
MAX_DIGITS: Final = 1_000
"""Digits of a whole number, at every step and not only at the end."""

Number = int | float

_MAX_BITS: Final = int(MAX_DIGITS * math.log2(10))
_MAX_FACTORIAL: Final = 449  # the last whose result stays within the digits
_MAX_ROUND: Final = 30
_EXACT_WHOLE: Final = 1e15
_TOO_LARGE: Final = f"a number in it has more than {MAX_DIGITS} digits; use smaller numbers"
# Texts, and numbers that run into a word: the parser warns of some of these on stderr.
_NO_ARITHMETIC: Final = re.compile(r"""['"\\]|[\d.](?![eE][+-]?\d|_\d)[^\W\d]""")
_LOOKALIKES: Final = str.maketrans("\u00d7\u00b7\u00f7\u2212\u2013", "**/--")


def _multiply(a: Number, b: Number) -> Number:
    if (
        isinstance(a, int)
        and isinstance(b, int)
        and a.bit_length() + b.bit_length() > _MAX_BITS + 1
    ):
        raise ToolError(_TOO_LARGE)
    return a * b


def _power(a: Number, b: Number) -> Number:
    whole = isinstance(a, int) and isinstance(b, int)
    # |a| >= 2 ** (bits - 1), so the result has at least that many bits times b
    if whole and abs(a) > 1 and b > 0 and (int(abs(a)).bit_length() - 1) * b > _MAX_BITS:
        raise ToolError(_TOO_LARGE)
    result = a**b
    if isinstance(result, complex):
        raise ToolError("a negative number to a fractional power has no real result")
    return result


def _factorial(n: Number) -> int:
    if n != int(n) or not 0 <= n <= _MAX_FACTORIAL:
        raise ToolError(f"factorial takes whole numbers from 0 to {_MAX_FACTORIAL}")
    return math.factorial(int(n))


def _round(x: Number, digits: Number = 0) -> Number:
    if digits != int(digits) or abs(digits) > _MAX_ROUND:
        raise ToolError(f"round takes at most {_MAX_ROUND} digits")
    return round(x, int(digits)) if digits else round(x)


def _log(x: Number, base: Number | None = None) -> float:
    return math.log(x) if base is None else math.log(x, base)


_BINARY: Final[Mapping[type[ast.operator], Callable[[Number, Number], Number]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: _multiply,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}
_UNARY: Final[Mapping[type[ast.unaryop], Callable[[Number], Number]]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}
_CONSTANTS: Final[Mapping[str, float]] = {"pi": math.pi, "e": math.e, "tau": math.tau}
_MANY: Final = 1_000
_FUNCTIONS: Final[Mapping[str, tuple[Callable[..., Number], int, int]]] = {
    "sqrt": (math.sqrt, 1, 1),
    "abs": (abs, 1, 1),
    "round": (_round, 1, 2),
    "min": (lambda *numbers: min(numbers), 1, _MANY),
    "max": (lambda *numbers: max(numbers), 1, _MANY),
    "floor": (math.floor, 1, 1),
    "ceil": (math.ceil, 1, 1),
    "log": (_log, 1, 2),
    "log10": (math.log10, 1, 1),
    "log2": (math.log2, 1, 1),
    "exp": (math.exp, 1, 1),
    "sin": (math.sin, 1, 1),
    "cos": (math.cos, 1, 1),
    "tan": (math.tan, 1, 1),
    "factorial": (_factorial, 1, 1),
}


@tool(replay="safe", aliases={"expr": "expression"})
def calculate(expression: str) -> str:
    """Calculate an arithmetic expression and return the number.

    Operators: + - * / // % ** and parentheses. Constants: pi, e, tau. Functions: sqrt, abs,
    round, min, max, floor, ceil, log, log10, log2, exp, sin, cos, tan, factorial.

    Args:
        expression: Such as (3 + 4) * 2 ** 10 or sqrt(2) / 3
    """
    return show(evaluate(expression))


def evaluate(expression: str) -> Number:
    """Return the value of an arithmetic expression.

    Raises:
        ToolError: It is no such expression, has no value, or is too large.
    """
    text = expression.strip().translate(_LOOKALIKES)
    if not text:
        raise ToolError("the expression is empty; write one such as 2 * (3 + 4)")
    if len(text) > MAX_CHARS:
        raise ToolError(f"the expression has more than {MAX_CHARS} characters; split it")
    if _NO_ARITHMETIC.search(text):
        raise ToolError(f"{_quoted(text)} is not arithmetic; use numbers, operators and functions")
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ToolError(
            f"{_quoted(text)} is not an arithmetic expression; write one such as 2 * (3 + 4)"
        ) from error
    if sum(1 for _ in ast.walk(tree)) > MAX_NODES:
        raise ToolError("the expression has too many parts; split it")
    try:
        return _value(tree.body, 1)
    except ZeroDivisionError as error:
        raise ToolError("division by zero; the expression has no value") from error
    except OverflowError as error:
        raise ToolError("a number in it is too large; use smaller numbers") from error
    except ValueError as error:
        raise ToolError("a function in it has no value there, as the root of -1") from error


def show(value: Number) -> str:
    """Write a number: whole ones without a point, others with twelve significant digits."""
    if isinstance(value, float):
        if value.is_integer() and abs(value) < _EXACT_WHOLE:
            return str(int(value))
        return f"{value:.12g}"
    return str(value)


def _value(node: ast.expr, depth: int) -> Number:
    if depth > MAX_DEPTH:
        raise ToolError("the expression is nested too deeply; split it")
    value = _raw(node, depth + 1)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ToolError("a number in it is too large; use smaller numbers")
    elif value.bit_length() > _MAX_BITS + 1:
        raise ToolError(_TOO_LARGE)
    return value


def _raw(node: ast.expr, depth: int) -> Number:
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return value
        case ast.Name(id=name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
            return _UNARY[type(op)](_value(operand, depth))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](_value(left, depth), _value(right, depth))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            function, least, most = _FUNCTIONS[name]
            if not least <= len(args) <= most:
                raise ToolError(f"{name} takes {_count(least, most)}, not {len(args)}")
            return function(*(_value(arg, depth) for arg in args))
    raise ToolError(_refusal(node))


def _refusal(node: ast.expr) -> str:
    match node:
        case ast.BinOp(op=ast.BitXor()):
            return "^ is not the power here; write **"
        case ast.Tuple():
            return "a comma separates nothing here; write numbers without commas, as 1000000"
        case ast.Name(id=name) if name in _FUNCTIONS:
            return f"{name} is a function; write {name}(…)"
        case ast.Call(func=ast.Name(id=name)) if name in _FUNCTIONS:
            return f"{name} takes its values without names; write {name}(…)"
        case ast.Name(id=name) | ast.Call(func=ast.Name(id=name)):
            known = ", ".join([*_CONSTANTS, *_FUNCTIONS])
            return f"{_quoted(name)} is not known here; known are {known}"
    return f"{_quoted(ast.unparse(node))} is not arithmetic; use numbers, operators and functions"


def _count(least: int, most: int) -> str:
    if most == _MANY:
        return "one or more values"
    return f"{least} value{'s' * (least > 1)}" if least == most else f"{least} or {most} values"


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:60] + "…")
