"""Expressions over JSON-like data in Python's syntax, without side effects, code or objects.

    glob(args.command, "*rm -rf*") or len(messages) > 80

They have names, keys (`a.b` is `a["b"]`), indices, slices, literals, comparisons, `in`, `and`,
`or`, `not`, `+ - * / // %`, and the functions of `FUNCTIONS`. The interpreter walks the syntax
tree: it never touches an attribute of a Python object, and every evaluation has a budget.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wick_graph.lazy import load_when_used

if TYPE_CHECKING:
    from wick_graph.expressions.evaluator import Expression
    from wick_graph.expressions.functions import FUNCTIONS, glob_match
    from wick_graph.expressions.parser import compile_expression

__all__ = ["FUNCTIONS", "Expression", "compile_expression", "glob_match"]

if not TYPE_CHECKING:
    __getattr__ = load_when_used(
        __name__,
        {
            "wick_graph.expressions.evaluator": ("Expression",),
            "wick_graph.expressions.functions": ("FUNCTIONS", "glob_match"),
            "wick_graph.expressions.parser": ("compile_expression",),
        },
    )
