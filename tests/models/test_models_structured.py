"""Output types: the default way, what is kept of a reply, and what type checkers infer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from langchain.agents.factory import _supports_provider_strategy
from langchain.agents.structured_output import ProviderStrategy
from langchain_anthropic import ChatAnthropic
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field, create_model, field_validator

from wick_graph import Agent
from wick_graph.models import NativeOutput, PromptedOutput, ToolOutput, resolve_model
from wick_graph.models.structured import InvalidOutput, Output, is_native, json_in
from wick_graph.testing import ScriptedModel, call, respond_object


class City(BaseModel):
    name: str


NAMES = ("gpt-5", "gpt-4o-mini", "gpt-3.5-turbo", "claude-haiku-4-5", "claude-3-haiku-20240307")


def model_of(name: str, **more: Any) -> Any:
    made: Any = ChatOpenAI if name.startswith("gpt") else ChatAnthropic
    return made(model=name, api_key="k", **more)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("tools", [False, True])
def test_native_is_where_langchains_is(name: str, tools: bool) -> None:
    model = model_of(name)
    assert is_native(model, tools) is _supports_provider_strategy(model, [{}] if tools else None)
    assert not is_native(model_of(name, base_url="http://127.0.0.1:1/v1"), tools)


HELD = json.dumps({"code": "```python\nprint()\n```", "then": "```sh\nls\n```"})


@pytest.mark.parametrize(
    "written",
    [
        *(HELD, f"\n{HELD}\n", f"```json\n{HELD}\n```", f"Here:\n```\n{HELD}\n```\nDone."),
        f"```json {HELD} ```",
    ],
)
def test_a_block_of_code_inside_an_output_is_part_of_it(written: str) -> None:
    assert json_in(written) == json.loads(HELD)


def test_of_several_blocks_the_first_counts() -> None:
    assert json_in('```json\n{"a": 1}\n```\nor ```json\n{"a": 2}\n```') == {"a": 1}
    with pytest.raises(InvalidOutput, match="the text is not JSON"):
        json_in("```json\n{'a': 1}\n```")


def test_the_environments_address_is_foreign_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    assert not is_native(model_of("gpt-5"), False)


def test_the_way_follows_the_model_and_the_type() -> None:
    gpt5, old = resolve_model(model_of("gpt-5")), resolve_model(model_of("gpt-3.5-turbo"))
    assert Output(City).way_of(gpt5, False) == "native"
    assert Output((City, int)).way_of(gpt5, False) == "tool"
    assert Output(City).way_of(old, False) == "tool"
    both = resolve_model(model_of("gpt-5").with_fallbacks([model_of("gpt-3.5-turbo")]))
    assert Output(City).way_of(both, False) == "tool"
    assert Output(NativeOutput(City)).way_of(old, False) == "native"
    given = Output(NativeOutput(City)).settings(gpt5, "native")["response_format"]
    langchains: Any = ProviderStrategy(City).to_model_kwargs()["response_format"]
    assert given["json_schema"]["schema"] == langchains["json_schema"]["schema"]


def test_a_model_that_thinks_is_not_forced() -> None:
    thinks = model_of("claude-haiku-4-5", thinking={"type": "enabled", "budget_tokens": 1024})
    assert Output(City).settings(resolve_model(thinks), "tool") == {}
    plain = resolve_model(model_of("claude-haiku-4-5"))
    assert Output(City).settings(plain, "tool") == {"tool_choice": "any"}


def no_check(_: Any) -> None:
    return None


def test_what_is_kept_builds_an_equal_object() -> None:
    class Doubled(BaseModel):
        n: int
        at: str = Field(default="here", alias="place", serialization_alias="spot")

        @field_validator("n")
        @classmethod
        def twice(cls, n: int) -> int:
            return 2 * n

    output = Output(Doubled)
    data = output.forms[0].take({"n": 2, "place": "there"}, no_check)
    made = output.build({"name": "Doubled", "data": data})
    assert (made.n, made.at) == (4, "there")


def test_a_validator_that_fails_in_its_own_way_tells_the_model() -> None:
    class Odd(BaseModel):
        n: int

        @field_validator("n")
        @classmethod
        def refuse(cls, n: int) -> int:
            raise TypeError("no good")

    with pytest.raises(InvalidOutput, match="TypeError: no good"):
        Output(Odd).forms[0].take({"n": 1}, no_check)


def test_partial_objects() -> None:
    output = Output((City, list[int]))
    assert output.partial('{"name": "Be', "City") == {}
    assert output.partial('{"response": [1, 2', "output") == [1, 2]
    assert output.partial('Well: {"response": {"name": "Bern"') == {"name": "Bern"}
    assert output.partial("no object") is None


@pytest.mark.parametrize("strategy", [ToolOutput, NativeOutput, PromptedOutput, lambda one: one])
@pytest.mark.parametrize("value", [City(name="Bern"), [City(name="Bern")], 7])
def test_respond_object(strategy: Any, value: Any) -> None:
    kind = list[City] if isinstance(value, list) else type(value)
    agent: Agent = Agent(model=ScriptedModel([respond_object(value)]), output_type=strategy(kind))
    assert agent.invoke("Go").output == value


TYPES = """
from dataclasses import dataclass
from typing import Any
from pydantic import BaseModel
from wick_graph import Agent, Result
from wick_graph.models import NativeOutput, PromptedOutput, ToolOutput

class City(BaseModel):
    name: str

class Town(City):
    pass

@dataclass
class River:
    name: str

reveal_type(Agent("a", output_type=City).invoke("hi").output)
reveal_type(Agent(output_type=River, tools=[]).invoke("hi").output)
reveal_type(Agent(output_type=list[City]).invoke("hi").output)
reveal_type(Agent(output_type=(City, River)).invoke("hi").output)
reveal_type(Agent(output_type={"type": "object"}).invoke("hi").output)
reveal_type(Agent(output_type=ToolOutput(City)).invoke("hi").output)
reveal_type(Agent(output_type=NativeOutput(City)).invoke("hi").output)
reveal_type(Agent(output_type=PromptedOutput(City)).invoke("hi").output)
reveal_type(Agent().invoke("hi").output)

async def run() -> None:
    reveal_type((await Agent(output_type=City).ainvoke("hi")).output)

def covariant(agent: Agent[City]) -> Result[City]:
    return agent.invoke("hi")

def bare(agent: Agent) -> Result:
    return agent.invoke("hi")

covariant(Agent(output_type=Town))
bare(Agent(output_type=Town))
"""
REVEALED = [
    "City",
    "River",
    "list[City]",
    "City | River",
    "dict[str, Any]",
    *["City"] * 3,
    "str",
    "City",
]


@pytest.mark.slow
def test_mypy_infers_the_output(tmp_path: Path) -> None:
    (tmp_path / "typed.py").write_text(TYPES, "utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary"]
    done = subprocess.run(
        [*command, str(tmp_path / "typed.py")],
        capture_output=True,
        text=True,
        timeout=450,
        check=False,
    )
    told = [line.partition("Revealed type is ")[2] for line in done.stdout.splitlines()]
    assert [one.strip('"').replace("typed.", "") for one in told] == REVEALED, done.stdout


@pytest.mark.slow
def test_pyright_infers_the_output(tmp_path: Path) -> None:
    (tmp_path / "typed.py").write_text(TYPES, "utf-8")
    settings = {"typeCheckingMode": "standard", "include": ["typed.py"]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings), "utf-8")
    command = [sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable, "--outputjson"]
    done = subprocess.run(
        [*command, "-p", str(tmp_path)], capture_output=True, text=True, timeout=450, check=False
    )
    found = json.loads(done.stdout)["generalDiagnostics"]
    assert [one["message"].rpartition(" is ")[2].strip('"') for one in found] == REVEALED, found


def boxed(**fields: Any) -> Any:
    """Make a type with items of a class `Item` of its own."""
    item: Any = create_model("Item", **fields)
    return create_model("Box", items=(list[item], ...))


@pytest.mark.parametrize("strategy", [NativeOutput, PromptedOutput])
def test_definitions_of_the_same_name_stay_apart_in_a_union(strategy: Any) -> None:
    output = Output(strategy((boxed(x=(int, ...)), boxed(y=(str, ...)), City)))
    for good in ({"items": [{"x": 1}]}, {"items": [{"y": "a"}]}, {"name": "Bern"}):
        jsonschema.validate({"response": good}, output.root.parameters)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"response": {"items": [{"z": 1}]}}, output.root.parameters)


NESTED = {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"$ref": "#"}]}}
LINKED = {"type": "object", "properties": {"next": {"$ref": "#"}}, "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (NESTED, [1, [2, []]], [1, ["two"]]),
        ((NESTED, LINKED), {"next": {"next": {}}}, {"next": {"response": 1}}),
        ((LINKED, NESTED), [[1]], [["one"]]),
    ],
)
def test_a_reference_to_the_whole_schema_holds_inside_an_object(
    schema: Any, good: Any, bad: Any
) -> None:
    parameters = Output(schema).root.parameters
    jsonschema.validate({"response": good}, parameters)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"response": bad}, parameters)
    if schema is NESTED:
        model = ScriptedModel([call("output", response=good)])
        assert Agent(model=model, output_type=schema).invoke("Go").output == good
