"""Read an expression and check every part of it, before any value is known."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator
from typing import Any, Final

from wick_graph.errors import ExpressionError
from wick_graph.expressions.evaluator import ARITHMETIC, EVALUATED, WORDS, Expression, column
from wick_graph.expressions.functions import FUNCTIONS, MAX_BITS

MAX_CHARS: Final = 2_000
"""Characters of an expression's own text."""

MAX_DEPTH: Final = 60

_TEXTS_AND_NUMBERS: Final = re.compile(
    r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|(?<![\w.])(?P<number>\.?\d[\w.]*)"""
)

_NUMBER: Final = re.compile(r"(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE]\d*)?")

_FOREIGN: Final = {"&&": "and", "||": "or", "=>": ">=", "=<": "<="}
"""Signs of other languages, and what to write instead."""

_ESCAPE: Final = re.compile(r"\\(.)")

_KNOWN_ESCAPES: Final = frozenset("\\'\"nrtxuU")


def compile_expression(text: str) -> Expression:
    """Check an expression's text.

    Raises:
        ExpressionError: it is not an expression, or uses something that expressions lack.
    """
    line = re.sub(r"[\r\n\f]", " ", text).strip()
    if not line:
        raise ExpressionError("the expression is empty; write one such as len(path) > 3")
    if len(line) > MAX_CHARS:
        raise ExpressionError(f"the expression has more than {MAX_CHARS:,} characters")
    _refuse_oddities(line)
    try:
        body = ast.parse(line, mode="eval").body
    except SyntaxError as error:
        at = min(error.offset or len(line), len(line))  # 0 if the end came too early
        raise ExpressionError(_hint(line, at), at) from None
    except (ValueError, RecursionError, MemoryError):
        raise ExpressionError("this is not an expression, or is nested too deeply", 1) from None
    _check(body, 1, line)
    return Expression(line, body)


def _hint(line: str, at: int) -> str:
    """Say what is wrong at the column at which Python's parser stopped."""
    for sign, word in _FOREIGN.items():
        if sign in line[max(at - 2, 0) : at + 1]:
            return f"{sign.strip()} is not known here; write {word}"
    if "=" in line[max(at - 2, 0) : at + 1] and "==" not in line[max(at - 3, 0) : at + 2]:
        return "= is not allowed here; write == to compare"
    return "this is not an expression; write it as in Python"


def _refuse_oddities(line: str) -> None:
    """Refuse what Python's parser only warns about: `1or 2`, and invalid escapes."""
    for found in _TEXTS_AND_NUMBERS.finditer(line):
        number = found["number"]
        if number is not None and not _NUMBER.fullmatch(number):
            raise ExpressionError("this is not a number", found.start() + 1)
        for escape in _ESCAPE.finditer(found[0]):
            if escape[1] not in _KNOWN_ESCAPES:
                at = found.start() + escape.start() + 1
                raise ExpressionError("this escape is not known; write \\\\ for a \\", at)


def _check(node: ast.expr, depth: int, line: str) -> None:
    if depth > MAX_DEPTH:
        raise ExpressionError("the expression is nested too deeply", column(node, line))
    if problem := _problem(node):
        raise ExpressionError(problem, column(node, line))
    for part in _parts(node):
        _check(part, depth + 1, line)


def _parts(node: ast.expr) -> Iterator[ast.expr]:
    """Yield the parts with values; the name of a called function has none."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Slice):
            yield from (part for part in (child.lower, child.upper, child.step) if part is not None)
        elif isinstance(child, ast.expr) and not (
            isinstance(node, ast.Call) and child is node.func
        ):
            yield child


def _problem(node: ast.expr) -> str:
    """Say why an expression cannot hold a part; empty if it can."""
    match node:
        case ast.Constant(value=value):
            return _bad_constant(value)
        case ast.Name(id=name) | ast.Attribute(attr=name) if name.startswith("__"):
            return "no name begins with two underscores"
        case ast.Call():
            return _bad_call(node)
        case ast.Compare():
            pairs = zip(node.ops, node.comparators, strict=True)
            against = [other for op, other in pairs if isinstance(op, ast.Is | ast.IsNot)]
            fine = all(map(_is_singleton, against))
            return "" if fine else "is compares with None, True and False only; write =="
        case ast.BinOp(op=op) if type(op) not in ARITHMETIC:
            return "this operator is not known here; the operators are + - * / // %"
        case ast.UnaryOp(op=ast.Invert()):
            return "~ is not known here; the operators before a value are + - and not"
        case ast.Dict(keys=keys) if None in keys:
            return "** is not known here"
    return "" if type(node) in EVALUATED else "this cannot be part of an expression here"


def _bad_constant(value: Any) -> str:
    if isinstance(value, bytes | complex) or value is ...:
        return "the only literals are texts, numbers, True, False and None"
    big = isinstance(value, int) and value.bit_length() > MAX_BITS
    endless = isinstance(value, float) and not math.isfinite(value)
    return "the number is too large" if big or endless else ""


def _bad_call(node: ast.Call) -> str:
    if not isinstance(node.func, ast.Name) or node.func.id not in FUNCTIONS:
        return f"only these can be called: {', '.join(FUNCTIONS)}"
    if node.keywords or any(isinstance(argument, ast.Starred) for argument in node.args):
        return f"{node.func.id} takes its arguments without names and stars"
    _, least, most = FUNCTIONS[node.func.id]
    given = len(node.args)
    if least <= given <= most:
        return ""
    return f"{node.func.id} does not take {given} argument{'s' * (given != 1)}"


def _is_singleton(node: ast.expr) -> bool:
    if isinstance(node, ast.Name):
        return node.id in WORDS
    return isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, bool))
