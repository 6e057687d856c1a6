"""What a model is told about arguments that do not fit."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema.validators import Draft202012Validator
from pydantic import Field, TypeAdapter

from wick_graph.errors import ConfigError
from wick_graph.tools import FuncTool, bind_tool
from wick_graph.tools.arguments import ArgumentCheck


def check(parameters: dict[str, Any], args: Any) -> str | None:
    return bind_tool(FuncTool("t", "d", parameters, lambda args: args)).check(args)


def of(closed: bool = True, **properties: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    return {**schema, "additionalProperties": False} if closed else schema


NUMBER = {"type": "number"}
STRING = {"type": "string"}
MAYBE = {"anyOf": [{"type": "integer"}, {"type": "null"}]}
SHAPE = {
    "anyOf": [
        {
            "type": "object",
            "properties": {"kind": {"const": "circle"}, "r": NUMBER},
            "required": ["kind", "r"],
        },
        {
            "type": "object",
            "properties": {"kind": {"const": "square"}, "side": NUMBER},
            "required": ["kind", "side"],
        },
    ]
}


@pytest.mark.parametrize(
    ("parameters", "args", "problem"),
    [
        pytest.param(
            of(a=NUMBER), {"a": "two"}, 'a: expected number, got the string "two"', id="type"
        ),
        pytest.param(
            of(a=NUMBER), {"a": True}, "a: expected number, got the boolean true", id="bool"
        ),
        pytest.param(of(a=STRING), {"a": None}, "a: expected string, got null", id="null"),
        pytest.param(
            of(a=STRING), {"a": [1]}, "a: expected string, got an array of 1 item", id="list"
        ),
        pytest.param(of(a=STRING), {"a": {}}, "a: expected string, got an object", id="object"),
        pytest.param(
            of(a=MAYBE), {"a": "x"}, 'a: expected integer or null, got the string "x"', id="any-of"
        ),
        pytest.param(
            of(a={"type": ["string", "null"]}),
            {"a": 1},
            "a: expected string or null, got the number 1",
            id="types",
        ),
        pytest.param(
            {**of(a=NUMBER, b=STRING), "required": ["a", "b"]},
            {"a": 1},
            "b: missing, expected string",
            id="missing",
        ),
        pytest.param(of(a=NUMBER), {"c": 1}, "c: unknown argument, known are a", id="unknown"),
        pytest.param(
            of(), {"c": 1}, "c: unknown argument, there are no arguments", id="unknown-none"
        ),
        pytest.param(
            of(a={"enum": ["r", "w"]}),
            {"a": "x"},
            'a: expected one of "r", "w", got the string "x"',
            id="enum",
        ),
        pytest.param(
            of(a={"minimum": 1}), {"a": 0}, "a: must be at least 1, got the number 0", id="minimum"
        ),
        pytest.param(
            of(a={"maxLength": 2}),
            {"a": "abc"},
            'a: must have at most 2 characters, got the string "abc"',
            id="length",
        ),
        pytest.param(
            of(a={"pattern": "^x"}),
            {"a": "y"},
            'a: must match the pattern "^x", got the string "y"',
            id="pattern",
        ),
        pytest.param(
            of(items={"type": "array", "items": of(name=STRING)}),
            {"items": [{"name": "a"}, {"name": 2}]},
            "items[1].name: expected string, got the number 2",
            id="path",
        ),
        pytest.param(
            of(shape=SHAPE),
            {"shape": {"kind": "square", "side": "x"}},
            'shape.side: expected number, got the string "x"',
            id="alternative",
        ),
        pytest.param(
            of(shape=SHAPE),
            {"shape": 3},
            "shape: expected object, got the number 3",
            id="no-alternative",
        ),
        pytest.param(
            of(a={"not": {"const": 1}}),
            {"a": 1},
            "a: 1 should not be valid under {'const': 1}",
            id="rest",
        ),
    ],
)
def test_problems(parameters: dict[str, Any], args: dict[str, Any], problem: str) -> None:
    assert check(parameters, args) == f"invalid arguments: {problem}"


def test_all_problems_are_named() -> None:
    schema = {**of(a=NUMBER, b=STRING, c=NUMBER), "required": ["c"]}
    problem = check(schema, {"a": "x", "b": 1, "d": 2}) or ""
    assert set(problem.removeprefix("invalid arguments: ").split("; ")) == {
        'a: expected number, got the string "x"',
        "b: expected string, got the number 1",
        "c: missing, expected number",
        "d: unknown argument, known are a, b, c",
    }


def test_more_than_five_problems_are_cut() -> None:
    schema = of(items={"type": "array", "items": NUMBER})
    problem = check(schema, {"items": ["x"] * 100_000}) or ""
    assert problem.count("expected number") == 5
    assert problem.endswith("; and more")


def test_five_problems_are_not_cut() -> None:
    problem = check(of(items={"type": "array", "items": NUMBER}), {"items": ["x"] * 5}) or ""
    assert problem.count("expected number") == 5
    assert "more" not in problem


@pytest.mark.parametrize("args", [None, [], "text", 3])
def test_arguments_must_be_an_object(args: Any) -> None:
    assert (check(of(), args) or "").startswith("invalid arguments: expected an object, got ")


def test_good_arguments_are_no_problem() -> None:
    assert check(of(a=NUMBER, b=MAYBE), {"a": 1.5, "b": None}) is None
    assert check(of(closed=False), {"anything": 1}) is None
    assert check({}, {}) is None


def test_a_value_of_a_megabyte_does_not_fill_the_message() -> None:
    problem = check(of(a=NUMBER), {"a": "x" * 1_000_000, "y" * 1_000_000: 1}) or ""
    assert len(problem) < 500


def test_deep_arguments_are_no_crash() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/n"}},
        "$defs": {"n": {"type": "array", "items": {"$ref": "#/$defs/n"}}},
    }
    deep: Any = []
    for _ in range(3_000):
        deep = [deep]
    told = "invalid arguments: nested deeper than 100 levels; flatten it"
    assert check(schema, {"a": deep}) == told


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"type": "array"}, '"type": "object"'),
        ({"type": "object", "properties": {"a": {"type": "number!"}}}, "not a valid JSON schema"),
        ({"type": "object", "properties": []}, "not a valid JSON schema"),
        ({"properties": {"a": {"$ref": "http://127.0.0.1:1/s.json"}}}, "which they lack"),
        ({"properties": {"a": {"$ref": "#/$defs/none"}}}, "which they lack"),
        ({"properties": {"a": {"$ref": "file:///etc/passwd"}}}, "which they lack"),
    ],
)
def test_a_bad_schema_is_a_configuration_error(parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        check(parameters, {})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)
ANY = {
    **of(a=SHAPE, b=MAYBE, c={"type": "array", "items": STRING, "maxItems": 1}),
    "required": ["a"],
}


@given(JSON | st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), JSON))
def test_any_arguments_give_a_sentence_or_nothing(args: Any) -> None:
    problem = check(ANY, args)
    assert problem is None or problem.startswith("invalid arguments: ")


_ANY = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=3),
    st.just([1]),
    st.just({}),
)
_KINDS = ("string", "integer", "number", "boolean", "null", "array", "object")
_ASKED = st.fixed_dictionaries(
    {
        "properties": st.dictionaries(
            st.sampled_from("abc"),
            st.fixed_dictionaries(
                {},
                optional={
                    "type": st.sampled_from(_KINDS),
                    "minimum": st.just(2),
                    "title": st.just("t"),
                },
            ),
        )
    },
    optional={
        "required": st.just(["a"]),
        "additionalProperties": st.sampled_from([False, True, {}]),
    },
)


@given(_ASKED, st.dictionaries(st.sampled_from("abcd"), _ANY))
def test_what_is_found_right_at_a_glance_is_right(
    asked: dict[str, Any], args: dict[str, Any]
) -> None:
    schema = {"type": "object", **asked}
    right = Draft202012Validator(schema).is_valid(args)
    assert (ArgumentCheck(schema)(args) is None) is right


def test_a_schema_that_was_valid_is_checked_again_once_it_differs() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}}
    for _ in range(2):
        assert ArgumentCheck(schema)({"a": 1}) is None
        schema["properties"]["a"]["type"] = "whole"
        with pytest.raises(ConfigError, match="not a valid JSON schema"):
            ArgumentCheck(schema)
        schema["properties"]["a"]["type"] = "integer"
    assert ArgumentCheck({**schema, "required": ["a"]})({}) is not None
    with pytest.raises(ConfigError, match="not a valid JSON schema"):
        ArgumentCheck({**schema, "required": ("a",)})


@pytest.mark.parametrize(
    ("items", "fits"),
    [
        ([{"x": n} for n in range(20_000)], True),
        ([{"x": n, "y": [n]} for n in range(20_000)] + [{"y": [7.0], "x": 7}], False),
        ([1, 1.0], False),
        ([1, True, "1", [1], {"1": 1}, None], True),
        ([[True], [1]], True),
    ],
)
def test_unique_items_are_found_in_short_time(items: list[Any], fits: bool) -> None:
    held = {"a": {"type": "array", "uniqueItems": True}}
    told = ArgumentCheck({"type": "object", "properties": held})({"a": items})
    assert (told is None) is fits, told


def test_a_number_without_end_is_refused() -> None:
    held = {"a": {"type": "number", "multipleOf": 0.1}}
    told = ArgumentCheck({"type": "object", "properties": held})({"a": 10**400})
    assert told == "invalid arguments: a number is too large"


EVIL = "a" * 50_000 + "!"

DRAFT = "https://json-schema.org/draft/2020-12/schema"

INNER: dict[str, Any] = {"$schema": DRAFT, "pattern": "^(a+)+$"}

NAMED: dict[str, Any] = {"patternProperties": {"^(a+)+$": {}}}


@pytest.mark.parametrize(
    "rules",
    [
        {"properties": {"a": {"pattern": "^(a+)+$"}}},
        {"patternProperties": {"^(a+)+$": {}}, "additionalProperties": False},
        {"propertyNames": {"pattern": "^(a|a)*$"}},
        {"properties": {"a": {"$schema": DRAFT, "pattern": "^(a+)+$"}}},
        {"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": INNER}},
    ],
)
def test_no_expression_takes_long(rules: dict[str, Any]) -> None:
    args = {"a": EVIL} if "properties" in rules else {EVIL: 1}
    assert ArgumentCheck({"type": "object", **rules})(args) is not None


@pytest.mark.parametrize(
    "rules",
    [
        {"allOf": [NAMED], "unevaluatedProperties": False},
        {"$ref": "#/$defs/a", "$defs": {"a": NAMED}, "unevaluatedProperties": False},
        {"properties": {"a": {"anyOf": [NAMED], "unevaluatedProperties": False}}},
    ],
)
def test_expressions_that_jsonschema_itself_would_search_are_refused(rules: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="patternProperties is refused; use additionalProp"):
        ArgumentCheck({"type": "object", **rules})


@pytest.mark.parametrize("text", [r"^(a+)\1$", "^(?!a)", "(?<=a)b", "a{9999}"])
def test_an_expression_without_a_linear_search_is_refused(text: str) -> None:
    held: list[dict[str, Any]] = [
        {"properties": {"a": {"pattern": text}}},
        {"patternProperties": {text: {}}},
    ]
    for rules in held:
        with pytest.raises(ConfigError, match="so that a search takes linear time"):
            ArgumentCheck({"type": "object", **rules})


@pytest.mark.parametrize(
    ("text", "word", "fits"),
    [
        (r"^\w+$", "Müller_9", True),
        (r"^[\w-]+\Z", "Jean-Luc", True),
        (r"^[^\d]$", "٣", False),
        (r"^\d$", "٣", True),
        (r"^\S+$", "a\u3000b", False),
        (r"^[]\d]+$", "]1", True),
        (r"^\[\d\]$", "[1]", True),
        (r"^\\d$", "\\d", True),
        ("^\\u00e9$", "é", True),
        ("^a$", "a\n", False),
        ("^.$", "\ud800", True),
    ],
)
def test_an_expression_means_what_python_means(text: str, word: str, fits: bool) -> None:
    said = ArgumentCheck({"type": "object", "properties": {"a": {"pattern": text}}})({"a": word})
    assert (said is None) is fits, said


@pytest.mark.parametrize("limits", [{}, {"max_digits": 4}, {"max_digits": 4, "decimal_places": 2}])
@pytest.mark.parametrize(
    ("written", "fits"),
    [("12.5", True), ("-0.50", True), (12.5, True), ("", False), ("+-.", False)],
)
def test_a_decimal_is_taken(limits: dict[str, Any], written: Any, fits: bool) -> None:
    number = TypeAdapter(Annotated[Decimal, Field(**limits)]).json_schema()
    check = ArgumentCheck({"type": "object", "properties": {"a": number}})
    assert (check({"a": written}) is None) is fits
    check({"a": "0" * 50_000 + "x"})


def test_properties_by_expression_are_checked() -> None:
    rules: dict[str, Any] = {
        "properties": {"b": {}},
        "patternProperties": {"^a": {"type": "integer"}},
        "additionalProperties": {"type": "string"},
    }
    check = ArgumentCheck({"type": "object", **rules})
    assert check({"a1": 1, "b": [], "c": "x"}) is None
    assert check({"a1": "x"}) == 'invalid arguments: a1: expected integer, got the string "x"'
    assert check({"c": 1}) == "invalid arguments: c: expected string, got the number 1"
    shut = ArgumentCheck({"type": "object", **rules, "additionalProperties": False})
    assert "'c' is not expected" in str(shut({"c": "x"}))
