"""Expressions: what they can say, and what nobody can do with them."""

from __future__ import annotations

import fnmatch
import time
from collections import OrderedDict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.often import often
from wick_graph.errors import ExpressionError
from wick_graph.expressions import compile_expression, glob_match

NAMES: dict[str, Any] = {
    "args": {"command": "sudo rm -rf /", "n": 3, "flag": True, "a b": 1, "list": [1, 2, 3]},
    "messages": [{"role": "user", "content": "hello"}, {"role": "assistant", "content": ""}],
    "usage": {"total_tokens": 60_000},
    "todos": [{"id": "1"}],
    "prev": {"todos": [{"id": "1"}, {"id": "2"}], "messages": []},
    "name": "Zoë",
    "nothing": None,
    "blocks": {"content": [{"type": "text", "text": "a"}, {"type": "image"}, "b"]},
}


def value(text: str, **names: Any) -> Any:
    return compile_expression(text).evaluate({**NAMES, **names})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('glob(args.command, "*rm -rf*")', True),
        ("usage.total_tokens > 50000 or len(messages) > 80", True),
        ("len(todos) < len(prev.todos)", True),
        ("args['a b'] + args.n * 2 - 1", 6),
        ("7 // 2, 7 % 4, 7 / 2, -3, +2", [3, 3, 3.5, -3, 2]),
        ("0 < args.n <= 3 != 4", True),
        ("'rm' in args.command and 'x' not in args", True),
        ("2 in args.list and not 9 in args.list", True),
        ("nothing is None and args.flag is True and nothing is not False", True),
        ("null is None and true and not false", True),
        ("args.list[-1] + args.list[0]", 4),
        ("args.list[1:] + args.list[::2]", [2, 3, 1, 3]),
        ("name[1:]", "oë"),
        ("'a' + 'b' < 'b'", True),
        ("[1, 'x', None, {'k': (1.5, True)}]", [1, "x", None, {"k": [1.5, True]}]),
        ("any([0, 1]) and all([1, 2]) and not any([])", True),
        ("sum(args.list) + min(4, 2) + max(args.list) + abs(-1)", 12),
        ("str(1.5) + str(None) + str(true) + str([1, 'é'])", '1.5NoneTrue[1, "é"]'),
        ("int('-12') + int(3.9) + round(2.6) + round(2.25, 1)", -12 + 3 + 3 + 2.2),
        ("sorted([3, 1, 2]) == [1, 2, 3] and sorted(['b', 'a'])[0] == 'a'", True),
        ("keys(usage)", ["total_tokens"]),
        ("last(messages).role + last(name, 2) + str(last([1], 0))", "assistantoë[]"),
        ("changed('todos') and not changed('nothing')", True),
        ("text(messages[0]) + text(blocks) + text('x')", "helloabx"),
        ("missing == 1 and 1 or 2", ExpressionError),
        ("true or missing", True),
        ("(nothing\n is\r\nnone)", ExpressionError),
        ("(nothing\n is\r\nNone)", True),
        (r"'\n\t\\\'\x41\u00e9' == 'q'", False),
    ],
)
def test_what_can_be_said(text: str, expected: Any) -> None:
    if expected is ExpressionError:
        with pytest.raises(ExpressionError):
            value(text)
    else:
        assert value(text) == expected


@pytest.mark.parametrize(
    ("text", "position", "says"),
    [
        ("", None, "is empty"),
        ("  \n", None, "is empty"),
        ("1 +", 3, "not an expression"),
        ("a = 1", 3, "write == to compare"),
        ("a == 1 && b", 9, "&& is not known here; write and"),
        ("a => 1", 3, "=> is not known here; write >="),
        ("a == (", None, "not an expression"),
        ("import os", None, "not an expression"),
        ("a; b", None, "not an expression"),
        ("args.__class__", 1, "two underscores"),
        ("''.__class__.__mro__[1].__subclasses__()", 1, "only these can be called"),
        ("__import__('os')", 1, "only these can be called"),
        ("args.command.upper()", 1, "only these can be called"),
        ("open('/etc/passwd')", 1, "only these can be called"),
        ("(lambda: 1)()", 1, "only these can be called"),
        ("lambda: 1", 1, "cannot be part"),
        ("[x for x in args]", 1, "cannot be part"),
        ("{x for x in args}", 1, "cannot be part"),
        ("any(x for x in args)", 4, "cannot be part"),
        ("(x := 5)", 2, "cannot be part"),
        ("f'{args}'", 1, "cannot be part"),
        ("f'{args.__class__}'", 1, "cannot be part"),
        ("1 if 2 else 3", 1, "cannot be part"),
        ("{1, 2}", 1, "cannot be part"),
        ("[*args]", 2, "cannot be part"),
        ("{**args}", 1, "** is not known"),
        ("await x", 1, "cannot be part"),
        ("2 ** 9", 1, "the operators"),
        ("1 << 90", 1, "the operators"),
        ("args | args", 1, "the operators"),
        ("~1", 1, "the operators"),
        ("x is 3", 1, "is compares with"),
        ("b'x'", 1, "the only literals"),
        ("1j", 1, "not a number"),
        ("...", 1, "the only literals"),
        ("9" * 400, 1, "too large"),
        ("1e999", 1, "too large"),
        ("1or 2", 1, "not a number"),
        ("0x1for x", 1, "not a number"),
        (r"name == '\d'", 10, "escape"),
        ("len()", 1, "does not take 0 arguments"),
        ("len(1, 2)", 1, "does not take 2 arguments"),
        ("len(x=1)", 1, "without names"),
        ("len(*args)", 1, "without names"),
        ("'é' + lambda: 1", None, "not an expression"),
        ("'é', lambda: 1", 6, "cannot be part"),
        ("(" * 300 + ")" * 300, None, "not an expression"),
        ("-" * 1_900 + "1", None, "deep"),
        ("[" * 80 + "]" * 80, None, "deep"),
        ("1" + "+1" * 400, None, "deep"),
        ("a" * 2_001, None, "more than 2,000 characters"),
        ("a\0b", None, "not an expression"),
        ("'\ud800'", None, "not an expression"),
    ],
)
def test_what_is_refused_before_it_is_run(text: str, position: int | None, says: str) -> None:
    with pytest.raises(ExpressionError, match=None) as refused:
        compile_expression(text)
    assert says in str(refused.value)
    if position is not None:
        assert refused.value.position == position
        assert str(refused.value).startswith(f"column {position}: ")


class Trap:
    """An object whose every use would be noticed."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"touched {name}")

    def __eq__(self, other: object) -> bool:
        raise AssertionError("compared")

    def __hash__(self) -> int:
        raise AssertionError("hashed")

    def __bool__(self) -> bool:
        raise AssertionError("asked")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("missing", "there is no missing; there is args, messages"),
        ("usage.tokens", "there is no tokens; did you mean total_tokens"),
        ("mesages", "there is no mesages; did you mean messages"),
        ("'a' + 1", "+ joins two texts, not a text and a number"),
        ("[] + 'a'", "+ joins two texts, not a list and a text"),
        ("args.command.upper", "a text has no key upper"),
        ("args.n.real", "a number has no keys"),
        ("nothing.x", "None has no keys"),
        ("messages.append", "a list has no key append"),
        ("args.items", "there is no items"),
        ("messages[9]", "no index 9"),
        ("messages[true]", "a truth value is not a whole number"),
        ("messages['0']", "a list has no key 0"),
        ("args[{}]", "there is no {}"),
        ("args[1:]", "an object has no slices"),
        ("name[::0]", "a step must not be 0"),
        ("name['a':]", "a text is not a whole number"),
        ("1 / 0", "division by zero"),
        ("1 % 0", "division by zero"),
        ("1e308 * 10", "too large"),
        ("'a' * 9", "a text is not a number"),
        ("9 * 'a'", "a text is not a number"),
        ("'%999999999d' % 1", "a text is not a number"),
        ("[1] * 9", "a list is not a number"),
        ("1 < 'a'", "have no order"),
        ("args < args", "have no order"),
        ("1 in 'a'", "cannot be in a text"),
        ("1 in 2", "nothing can be in a number"),
        ("{1: 2}", "keys of an object must be texts"),
        ("len(3)", "has no length"),
        ("sum(['a'])", "a text is not a number"),
        ("sum('abc')", "a text is not a list"),
        ("min([])", "the list is empty"),
        ("max([1, 'a'])", "have an order"),
        ("sorted([{}, {}])", "have an order"),
        ("int('1_0')", "not a whole number"),
        ("int('9' + 'x')", "not a whole number"),
        ("int([])", "a list is not a number"),
        ("round(1, 99)", "at most 15 digits"),
        ("round(1, -999999999)", "at most 15 digits"),
        ("last([])", "no index -1"),
        ("last([1], -1)", "0 or more"),
        ("last(3)", "has no last part"),
        ("changed(3)", "name of a channel"),
        ("keys([])", "has no keys"),
        ("glob(1, '*')", "takes a text and a pattern"),
        ("text(3)", "text takes a message or its content, not a number"),
        ("text({'role': 'x'})", "there is no content"),
        ("trap", "a Trap is not a number"),
        ("[trap]", "a Trap is not a number"),
        ("deep == deep2", "nested too deeply"),
        ("traps == traps", "a Trap is not a number"),
        ("1 in traps", "a Trap is not a number"),
        ("any(traps)", "a Trap is not a number"),
        ("str(traps)", "a Trap is not a number"),
        ("traps", "a Trap is not a number"),
        ("traps[0]", "a Trap is not a number"),
        ("big", "too large"),
        ("big + 1", "too large"),
        ("nan", "too large"),
    ],
)
def test_what_has_no_value_is_an_error_with_its_place(text: str, says: str) -> None:
    more = {"trap": Trap(), "traps": [Trap()], "big": 1 << 5_000, "nan": float("nan")}
    if "deep" in text:
        more |= {"deep": nested(100_000), "deep2": nested(100_000)}
    with pytest.raises(ExpressionError) as failed:
        value(text, **more)
    assert says in str(failed.value)
    assert failed.value.position is not None


def nested(depth: int) -> list[Any]:
    made: list[Any] = []
    for _ in range(depth):
        made = [made]
    return made


def test_the_innermost_part_is_named() -> None:
    with pytest.raises(ExpressionError) as failed:
        value("len('é') + len(args.nope)")
    assert failed.value.position == len("len('é') + len(") + 1


LONG = "x" * 60_000


@pytest.mark.parametrize(
    "text",
    [
        "long + long",
        "str(many)",
        "many + many",
        "many[:]",
        "huge[:70000]",
        "last(huge, 70000)",
        "many",
        "huge",
        "[long, long]",
        "text({'content': [long, long]})",
        " + ".join(["long[:3000]"] * 30),
    ],
)
def test_no_value_grows_beyond_its_bound(text: str) -> None:
    with pytest.raises(ExpressionError, match="larger than 64 kB"):
        value(text, long=LONG, huge=LONG * 20, many=list(range(70_000)))


@pytest.mark.parametrize(
    "text",
    [
        "glob(huge, '*a*a*a*a*a*a*b')",
        " and ".join(["huge in huge"] * 5),
        " and ".join(["wide == wide2"] * 80),
        " and ".join(["sum(wide) >= 0"] * 80),
        " and ".join(["sorted(wide) != []"] * 80),
        " and ".join(["'y' not in huge"] * 20),
    ],
)
def test_a_budget_ends_what_takes_long(text: str) -> None:
    names = {"huge": "a" * 3_000_000, "wide": [*range(30_000)], "wide2": [*range(30_000)]}
    begun = time.process_time()
    with pytest.raises(ExpressionError, match="more than 10,000 steps"):
        value(text, **names)
    assert time.process_time() - begun < 3


def test_large_values_can_be_looked_at() -> None:
    names = {"huge": "a" * 3_000_000, "many": [{"role": "user"}] * 100_000}
    assert value("len(huge) > 5 and len(many) == 100000", **names) is True
    assert value("last(huge, 3) + many[-1].role + huge[:2]", **names) == "aaauseraa"


def test_any_mapping_and_tuple_will_do() -> None:
    names = {"o": OrderedDict(a=(1, 2)), "keys": "a name, beside the function"}
    assert value("keys(o) == ['a'] and o.a[1] == 2 and 'a' in o and len(keys) > 3", **names)
    assert value("str(o)", **names) == '{"a": [1, 2]}'


def test_one_expression_serves_many_evaluations() -> None:
    expression = compile_expression("n + 1")
    assert [expression.evaluate({"n": n}) for n in range(3)] == [1, 2, 3]
    assert str(expression) == "Expression(text='n + 1')"


@pytest.mark.parametrize(
    ("text", "pattern", "fits"),
    [
        ("a/b/.env", "*.env", True),
        ("a.env.txt", "*.env", False),
        ("abc", "a?c", True),
        ("ac", "a?c", False),
        ("b", "[a-c]", True),
        ("d", "[!a-c]", True),
        ("-", "[a-]", True),
        ("]", "[]]", True),
        ("x", "[]]", False),
        ("[a", "[a", True),
        ("", "", True),
        ("", "**", True),
        ("a\nb", "*", True),
        ("A", "a", False),
        ("aXbXc", "*X*c", True),
    ],
)
def test_patterns(text: str, pattern: str, fits: bool) -> None:
    assert glob_match(text, pattern) is fits


@given(st.text("ab[]!-?*", max_size=12), st.text("ab*?", max_size=8))
def test_patterns_mean_what_the_shells_mean(text: str, pattern: str) -> None:
    assert glob_match(text, pattern) is fnmatch.fnmatchcase(text, pattern)


def test_a_pattern_has_a_bound() -> None:
    with pytest.raises(ExpressionError, match="more than 1,000 characters"):
        value("glob(name, p)", p="*" * 1_001)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)
PARTS = [
    "a",
    "b",
    "1",
    "-2.5",
    "'x'",
    "None",
    "len(",
    "str(",
    "glob(",
    "[",
    "]",
    "{",
    "}",
    "(",
    ")",
]
MORE = [".", ",", ":", " + ", " - ", " * ", " / ", " % ", " == ", " < ", " in ", " and ", " not "]


@settings(max_examples=often(300))
@given(st.lists(st.sampled_from(PARTS + MORE), max_size=14).map("".join), JSON, JSON)
def test_whatever_is_written_is_a_value_or_one_kind_of_error(text: str, a: Any, b: Any) -> None:
    found = value_or_error(text, {"a": a, "b": b})
    assert found is None or isinstance(found, bool | int | float | str | list | tuple | dict)


def value_or_error(text: str, names: dict[str, Any]) -> Any:
    """Return a value, or the text of the one error that there may be."""
    try:
        return compile_expression(text).evaluate(names)
    except ExpressionError as error:
        return str(error)


@settings(max_examples=often(200))
@given(st.text(max_size=40))
def test_any_text_at_all_is_read_without_harm(text: str) -> None:
    found = value_or_error(text, {})
    assert found is None or isinstance(found, bool | int | float | str | list | dict)


@given(st.integers(-(10**9), 10**9), st.integers(-(10**9), 10**9).filter(bool))
def test_arithmetic_is_pythons(a: int, b: int) -> None:
    found = compile_expression("[a + b, a - b, a * b, a // b, a % b, a / b, a < b, a == b]")
    expected = [a + b, a - b, a * b, a // b, a % b, a / b, a < b, a == b]
    assert found.evaluate({"a": a, "b": b}) == expected
