"""Expressions over JSON-like data that look like Python and can do nothing: no code, no objects.

    glob(args.command, "*rm -rf*") or len(messages) > 80

There are names, keys (`a.b` is `a["b"]`), indices, slices, literals, comparisons, `in`, `and`,
`or`, `not`, `+ - * / // %`, and the functions of `FUNCTIONS`. An own interpreter walks the syntax
tree: it never touches an attribute of a Python object, and every evaluation has a budget.
"""

from __future__ import annotations

from wick_graph.expressions.evaluate import Expression
from wick_graph.expressions.functions import FUNCTIONS
from wick_graph.expressions.glob import glob_match
from wick_graph.expressions.parse import compile_expression

__all__ = ["FUNCTIONS", "Expression", "compile_expression", "glob_match"]
