"""A function becomes a tool: its schema, its arguments, its options, its context."""

from __future__ import annotations
import __future__

import asyncio
import datetime
import functools
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from langgraph.prebuilt import ToolRuntime
from pydantic import BaseModel

from wick_graph.errors import ConfigError, ToolError
from wick_graph.tools import UNSET, BoundTool, FuncTool, Tool, ToolContext, bind_tool, tool


def _load(name: str, flags: int) -> Any:
    """Run hinted.py as a module, with or without the effect of `from __future__`."""
    path = Path(__file__).with_name("hinted.py")
    module = ModuleType(name)
    sys.modules[name] = module
    exec(compile(path.read_text(), path, "exec", flags, dont_inherit=True), module.__dict__)
    return module


hints_now = _load("hinted_now", 0)
hints_later = _load("hinted_later", __future__.annotations.compiler_flag)
CTX = ToolContext("c", "n", "key", 0, 1, "th", "run", "agent", {"todos": []}, None)


@pytest.fixture(params=[hints_now, hints_later], ids=["now", "later"])
def hints(request: pytest.FixtureRequest) -> ModuleType:
    module: ModuleType = request.param
    return module


POINT = {
    "type": "object",
    "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 0}},
    "required": ["x"],
}

SCHEMAS: list[Any] = [
    pytest.param(
        "simple",
        {
            "text": {"type": "string"},
            "count": {"type": "integer"},
            "ratio": {"type": "number"},
            "flag": {"type": "boolean"},
        },
        ["text", "count", "ratio", "flag"],
        id="scalars",
    ),
    pytest.param(
        "optional",
        {
            "a": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "b": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
            "c": {"type": "string", "default": "x"},
        },
        ["a"],
        id="optional-and-defaults",
    ),
    pytest.param(
        "lists",
        {
            "names": {"type": "array", "items": {"type": "string"}},
            "pairs": {"type": "object", "additionalProperties": {"type": "integer"}},
            "any_of": {"type": "array", "items": POINT},
        },
        ["names", "pairs", "any_of"],
        id="lists-and-dicts",
    ),
    pytest.param(
        "choice",
        {
            "mode": {"type": "string", "enum": ["r", "w"]},
            "colour": {"type": "string", "enum": ["red", "blue"], "default": "red"},
        },
        ["mode"],
        id="literal-and-enum",
    ),
    pytest.param(
        "moment",
        {
            "at": {"type": "string", "format": "date-time"},
            "day": {"type": "string", "format": "date", "default": "2024-01-02"},
        },
        ["at"],
        id="dates",
    ),
    pytest.param(
        "limited",
        {
            "n": {"type": "integer", "minimum": 1, "maximum": 3, "description": "Small"},
            "m": {"type": "integer", "minimum": 0, "default": 2},
        },
        ["n"],
        id="field-limits",
    ),
    pytest.param(
        "names",
        {
            "schema": {"type": "string"},
            "json": {"type": "string"},
            "copy": {"type": "string"},
            "_private": {"type": "integer"},
            "model_config": {"type": "integer", "default": 1},
        },
        ["schema", "json", "copy", "_private"],
        id="names-that-pydantic-uses",
    ),
    pytest.param("context", {"a": {"type": "integer"}}, ["a"], id="context-is-hidden"),
    pytest.param("bare", {"anything": {}, "other": {"default": 3}}, ["anything"], id="no-hints"),
    pytest.param(
        "keywords",
        {"a": {"type": "integer"}, "b": {"type": "integer", "default": 2}},
        ["a"],
        id="keyword-only",
    ),
    pytest.param("nothing", {}, None, id="no-parameters"),
]


@pytest.mark.parametrize(("name", "properties", "required"), SCHEMAS)
def test_the_schema_comes_from_the_hints(
    hints: ModuleType, name: str, properties: dict[str, Any], required: list[str] | None
) -> None:
    bound = bind_tool(getattr(hints, name))
    expected: dict[str, Any] = {"type": "object", "properties": properties}
    if required is not None:
        expected["required"] = required
    assert bound.parameters == expected
    assert (bound.name, bound.description) == (name, "Do it.")
    assert bound.schema == {
        "type": "function",
        "function": {"name": name, "description": "Do it.", "parameters": expected},
    }


def test_a_type_that_holds_itself_stays_a_reference(hints: ModuleType) -> None:
    bound = bind_tool(hints.nested)
    assert bound.parameters["properties"]["tree"] == {"$ref": "#/$defs/Tree"}
    good = {"point": {"x": 1}, "tree": {"name": "a", "children": [{"name": "b"}]}}
    assert bound.check(good) is None
    problem = bound.check({"point": {"x": 1}, "tree": {"name": "a", "children": [{"name": 1}]}})
    assert problem == (
        "invalid arguments: tree.children[0].name: expected string, got the number 1"
    )


def test_arguments_become_what_the_function_declares(hints: ModuleType) -> None:
    def call(name: str, **args: Any) -> Any:
        bound = bind_tool(getattr(hints, name))
        assert bound.check(args) is None
        return bound.call(args, CTX)

    assert call("simple", text="a", count=2, ratio=1, flag=True) == "'a' 2 1.0 True"
    assert call("optional", a=None) == [None, None, "x"]
    assert call("lists", names=["a"], pairs={"k": 1}, any_of=[{"x": 1}]) == [
        ["a"],
        {"k": 1},
        [hints.Point(x=1)],
    ]
    assert call("choice", mode="r", colour="blue") == ["r", hints.Colour.BLUE]
    assert call("choice", mode="w") == ["w", hints.Colour.RED]
    assert call("nested", point={"x": 1}, tree={"name": "a", "children": [{"name": "b"}]}) == [
        hints.Point(x=1),
        hints.Tree(name="a", children=[hints.Tree(name="b")]),
    ]
    assert call("moment", at="2024-05-06T07:08:09Z") == [
        datetime.datetime(2024, 5, 6, 7, 8, 9, tzinfo=datetime.UTC),
        datetime.date(2024, 1, 2),
    ]
    assert call("limited", n=3) == [3, 2]
    assert call("names", schema="s", json="j", copy="c", _private=1) == ["s", "j", "c", 1, 1]
    assert call("context", a=1) == [1, CTX, CTX]
    assert call("bare", anything=[1]) == [[1], 3]
    assert call("keywords", a=1) == [1, 2]
    assert call("nothing") == "done"


def test_a_string_of_the_wrong_form_is_a_tool_error(hints: ModuleType) -> None:
    bound = bind_tool(hints.moment)
    assert bound.check({"at": "yesterday"}) is None  # JSON schema sees a string
    with pytest.raises(
        ToolError, match=r"^invalid arguments: at: Input should be a valid datetime"
    ):
        bound.call({"at": "yesterday"}, CTX)


def test_defaults_that_can_change_are_new_for_every_call() -> None:
    @tool
    def collect(items: list[int] = []) -> list[int]:  # noqa: B006  (that is the case)
        """Collect."""
        items.append(1)
        return items

    bound = bind_tool(collect)
    assert [bound.call({}, CTX), bound.call({}, CTX)] == [[1], [1]]


def test_the_docstring_describes_tool_and_arguments() -> None:
    @tool
    def search(query: str, limit: int = 10) -> str:
        """Search the index.

        Finds whole words only.

        Args:
            query (str): What to look for: one word
                or several.
            limit: How many.

        Returns:
            Lines.
        """
        return query * limit

    assert search.description == "Search the index.\n\nFinds whole words only."
    properties = search.parameters["properties"]
    assert properties["query"]["description"] == "What to look for: one word or several."
    assert properties["limit"]["description"] == "How many."


def test_the_decorated_function_is_still_the_function() -> None:
    @tool(name="plus", replay="safe")
    def add(a: int, b: int = 1) -> int:
        """Add."""
        return a + b

    assert (add(1), add(2, b=3)) == (2, 5)
    assert (add.name, add.__doc__) == ("plus", "Add.")
    assert isinstance(add, Tool)


def test_options_are_carried_over() -> None:
    @tool(
        name="t",
        description="D",
        replay="key",
        timeout=2.5,
        retries=3,
        concurrency=4,
        max_output=100,
    )
    def anything() -> None: ...

    bound = bind_tool(anything)
    assert (bound.name, bound.description, bound.replay) == ("t", "D", "key")
    assert (bound.timeout, bound.retries, bound.concurrency, bound.max_output) == (2.5, 3, 4, 100)
    assert bound.limiter is not None
    assert bound.limiter.n == 4
    assert bind_tool(anything).limiter is bound.limiter
    assert bind_tool(anything, concurrency=None).limiter is None


def test_what_is_not_declared_is_the_default() -> None:
    bound = bind_tool(hints_now.nothing)
    assert (bound.replay, bound.timeout, bound.retries) == ("never", UNSET, 0)
    assert (bound.concurrency, bound.limiter, bound.max_output) == (None, None, 80_000)


def test_binding_is_done_once_and_can_change_options() -> None:
    bound = bind_tool(hints_now.nothing)
    assert bind_tool(bound) is bound
    changed = bind_tool(bound, replay="safe", timeout=None)
    assert (changed.replay, changed.timeout, changed.name) == ("safe", None, "nothing")
    assert bound.replay == "never"


async def _wait(a: int) -> int:
    """Wait."""
    await asyncio.sleep(0)
    return a + 1


class Async:
    async def __call__(self, args: dict[str, Any]) -> int:
        return int(args["a"]) + 1


A = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(_wait, id="function"),
        pytest.param(tool(_wait), id="decorated"),
        pytest.param(FuncTool("t", "d", A, _wait), id="K-03-async"),
        pytest.param(FuncTool("t", "d", A, functools.partial(_wait)), id="partial"),
        pytest.param(FuncTool("t", "d", A, Async()), id="callable-object"),
    ],
)
async def test_async_functions_give_coroutines(made: Any) -> None:
    bound = bind_tool(made)
    assert bound.is_async
    assert await bound.call({"a": 1}, CTX) == 2


AB = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}


def _with_context(a: int, ctx: ToolContext, b: int = 5) -> Any:
    return [a, ctx.key, b]


@pytest.mark.parametrize(
    ("fn", "result"),
    [
        pytest.param(lambda args: args["a"], 1, id="args"),
        pytest.param(
            lambda args, ctx: [args["a"], ctx.thread_id], [1, "th"], id="args-and-context"
        ),
        pytest.param(lambda a, b: a + b, 3, id="by-name"),
        pytest.param(lambda a, b=7: a + b, 3, id="by-name-with-default"),
        pytest.param(lambda **all_: all_, {"a": 1, "b": 2}, id="any-name"),
        pytest.param(lambda a, **more: [a, more], [1, {"b": 2}], id="some-names"),
        pytest.param(lambda given: given["b"], 2, id="another-name-for-args"),
        pytest.param(_with_context, [1, "key", 2], id="context-by-hint"),
    ],
)
def test_a_func_tool_is_called_as_its_function_wants(fn: Callable[..., Any], result: Any) -> None:
    bound = bind_tool(FuncTool("t", "d", AB, fn))
    assert not bound.is_async
    assert bound.check({"a": 1, "b": 2}) is None
    assert bound.call({"a": 1, "b": 2}, CTX) == result


class Plain:
    """K-02: an object that happens to have the four parts."""

    name = "plain"
    description = "Say it."
    parameters = A
    replay = "safe"
    timeout = 3

    def execute(self, args: dict[str, Any]) -> str:
        return f"got {args['a']}"


class Go:
    """K-01: the four parts as methods."""

    def name(self) -> str:
        return "go"

    def description(self) -> str:
        return "Say it."

    def parameters(self) -> dict[str, Any]:
        return A

    async def execute(self, args: dict[str, Any], ctx: ToolContext) -> str:
        return f"got {args['a']} {ctx.agent}"


def test_any_object_with_the_four_parts_is_a_tool() -> None:
    bound = bind_tool(Plain())
    assert (bound.name, bound.replay, bound.timeout, bound.is_async) == ("plain", "safe", 3, False)
    assert bound.call({"a": 1}, CTX) == "got 1"
    assert bound.check({"a": "1"}) is not None


async def test_the_parts_may_be_methods_and_execute_async() -> None:
    bound = bind_tool(Go())
    assert (bound.name, bound.description, bound.is_async) == ("go", "Say it.", True)
    assert await bound.call({"a": 1}, CTX) == "got 1 agent"


def test_a_method_is_a_tool() -> None:
    class Shop:
        def price(self, item: str) -> str:
            """Look up a price."""
            return f"{item}: 3"

    bound = bind_tool(Shop().price)
    assert bound.parameters["required"] == ["item"]
    assert bound.call({"item": "tea"}, CTX) == "tea: 3"


def test_a_plain_function_that_returns_a_coroutine_is_told() -> None:
    bound = bind_tool(FuncTool("t", "d", A, lambda args: _wait(args["a"])))
    with pytest.raises(ToolError, match="declare its function async def"):
        bound.call({"a": 1}, CTX)


def test_local_types_are_found_by_the_decorator() -> None:
    class Local(BaseModel):
        a: int

    @tool
    def use(value: Local, again: bool = True) -> int:
        """Use it."""
        return use(value, False) if again else value.a

    assert bind_tool(use).call({"value": {"a": 3}}, CTX) == 3


def test_names_are_what_providers_accept() -> None:
    assert bind_tool(FuncTool("functions.a.b c", "d", A, lambda args: 1)).name == "a_b_c"


def unresolved(a: Missing) -> None:  # type: ignore[name-defined]  # noqa: F821  (that is the case)
    """Do it."""


class Unknown:
    pass


def untyped(a: Unknown) -> None:
    """Do it."""


def with_runtime(a: int, runtime: ToolRuntime) -> None:
    """Do it."""


def undescribed(a: int) -> None: ...


def variadic(*a: int) -> None:
    """Do it."""


REFUSED: list[Any] = [
    pytest.param(lambda: bind_tool(3), "3 is not a tool", id="number"),
    pytest.param(lambda: bind_tool("calculate"), "a name, not a tool", id="name"),
    pytest.param(lambda: bind_tool({"type": "web_search"}), "is not a tool", id="provider-dict"),
    pytest.param(lambda: bind_tool(Plain), r"pass an instance: Plain\(\)", id="class"),
    pytest.param(lambda: bind_tool(undescribed), "no description", id="K-08b"),
    pytest.param(lambda: tool(undescribed), "no description", id="K-08b-decorator"),
    pytest.param(
        lambda: bind_tool(FuncTool("t", " ", A, lambda args: 1)), "no description", id="K-08b-blank"
    ),
    pytest.param(
        lambda: bind_tool(FuncTool("", "d", A, lambda args: 1)), "'' is not usable", id="no-name"
    ),
    pytest.param(
        lambda: bind_tool(FuncTool("n" * 65, "d", A, lambda args: 1)), "not usable", id="long-name"
    ),
    pytest.param(
        lambda: FuncTool("t", "d", AB, lambda a: 1), "rename its parameters", id="missing-parameter"
    ),
    pytest.param(
        lambda: FuncTool("t", "d", A, lambda a, z: 1), "rename its parameters", id="extra-parameter"
    ),
    pytest.param(lambda: bind_tool(unresolved), "'Missing', which cannot be found", id="hint"),
    pytest.param(lambda: bind_tool(untyped), "no JSON schema", id="type"),
    pytest.param(lambda: bind_tool(with_runtime), "LangChain's @tool, or", id="runtime"),
    pytest.param(
        lambda: bind_tool(variadic), r"parameter \*a cannot be passed by name", id="variadic"
    ),
    pytest.param(
        lambda: bind_tool(hints_now.nothing, replay="maybe"),  # type: ignore[arg-type]  # a wrong word
        "tool nothing: replay must be safe, never or key",
        id="replay",
    ),
    pytest.param(
        lambda: bind_tool(hints_now.nothing, retries=1),
        "only a tool that may run twice",
        id="retry",
    ),
    pytest.param(lambda: tool(timeout=0)(hints_now.nothing), "timeout must be", id="timeout"),
    pytest.param(
        lambda: tool(timeout=float("nan"))(hints_now.nothing), "timeout must be", id="timeout-nan"
    ),
    pytest.param(
        lambda: tool(concurrency=0)(hints_now.nothing), "concurrency must be", id="concurrency"
    ),
    pytest.param(
        lambda: tool(max_output=True)(hints_now.nothing), "max_output must be", id="max-output"
    ),
]


@pytest.mark.parametrize(("make", "words"), REFUSED)
def test_what_is_no_tool_is_refused_in_a_sentence(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_a_bound_tool_can_be_a_key() -> None:
    bound = bind_tool(hints_now.nothing)
    assert {bound: 1}[bound] == 1
    assert isinstance(bound, BoundTool)
