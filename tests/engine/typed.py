"""Eight types of output, with what a model writes for each, well and badly."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, SecretStr
from typing_extensions import TypedDict

from tests.engine.typed_process import BERN, City
from tests.support.provider import Call, Provider, Reply


class Country(BaseModel):
    cities: list[City]
    capital: City | None = None


@dataclass
class River:
    name: str
    km: int = 0


class Lake(TypedDict):
    name: str
    deep: bool


BOX: Final = {
    "title": "Box",
    "type": "object",
    "properties": {"sides": {"type": "array", "items": {"type": "integer", "minimum": 1}}},
    "required": ["sides"],
}


@dataclass(frozen=True)
class Sample:
    """A type, and what a model writes for it."""

    output_type: Any
    tool: str
    """The output tool."""
    good: Mapping[str, Any]
    """Arguments of the output tool, or the text."""
    bad: Mapping[str, Any]
    path: str
    """What the error must name."""
    expected: Any
    text: Mapping[str, Any] | None = None
    """What is written as a text, if that differs from the arguments."""
    bad_text: Mapping[str, Any] | None = field(default=None)


SAMPLES: Final[Mapping[str, Sample]] = {
    "model": Sample(
        City, "City", BERN, {**BERN, "people": -1}, "people: ", City(name="Bern", people=134_000)
    ),
    "nested": Sample(
        Country,
        "Country",
        {"cities": [BERN]},
        {"cities": [BERN, {"name": "Ulm"}]},
        "cities.1.people: Field required",
        Country(cities=[City(name="Bern", people=134_000)]),
    ),
    "dataclass": Sample(
        River, "River", {"name": "Aare", "km": 288}, {"km": 1}, "name: ", River("Aare", 288)
    ),
    "typed dict": Sample(
        Lake,
        "Lake",
        {"name": "Thun", "deep": True},
        {"name": "Thun", "deep": "no idea"},
        "deep: ",
        {"name": "Thun", "deep": True},
    ),
    "list": Sample(
        list[City],
        "output",
        {"response": [BERN]},
        {"response": [{**BERN, "people": "many"}]},
        "response.0.people: ",
        [City(name="Bern", people=134_000)],
    ),
    "union": Sample(
        (City, River),
        "River",
        {"name": "Aare", "km": 288},
        {"name": "Aare", "km": "long"},
        "km: ",
        River("Aare", 288),
        {"response": {"name": "Aare", "km": 288}},
        {"response": {"name": "Aare", "km": "long"}},
    ),
    "schema": Sample(
        BOX, "Box", {"sides": [1, 2]}, {"sides": [1, 0]}, "sides[1]", {"sides": [1, 2]}
    ),
    "choice": Sample(
        Literal["red", "blue"],
        "output",
        {"response": "red"},
        {"response": "green"},
        "response: ",
        "red",
    ),
}


@dataclass(frozen=True)
class Case:
    """One cell of the matrix."""

    sample: str
    way: str
    door: str
    replies: str
    provider: str


WAYS: Final = ("tool", "native", "prompted")
DOORS: Final = ("invoke", "ainvoke", "stream", "astream")
REPLIES: Final = ("valid", "invalid, then valid", "never valid", "a text instead")
CLIENTS: Final = ("openai", "anthropic")


def pairwise(*values: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return few rows that have each pair of values of two columns."""

    def pairs(row: Sequence[Any]) -> set[Any]:
        return set(itertools.combinations(enumerate(row), 2))

    every = [*itertools.product(*values)]
    left = set().union(*map(pairs, every))
    rows = []
    while left:
        best = max(every, key=lambda row: len(pairs(row) & left))
        rows.append(best)
        left -= pairs(best)
    return rows


CASES: Final = [Case(*row) for row in pairwise([*SAMPLES], WAYS, DOORS, REPLIES, CLIENTS)]


def client(kind: str, provider: Provider) -> BaseChatModel:
    """Make a chat model of a provider's own package, which asks the server on loopback."""
    if kind == "openai":
        return ChatOpenAI(
            model="gpt-5", base_url=provider.url, api_key=SecretStr("k"), max_retries=0
        )
    return ChatAnthropic(
        model_name="claude-haiku-4-5",
        base_url=provider.origin,
        api_key=SecretStr("k"),
        max_retries=0,
        timeout=20,
        stop=None,
    )


def sent_schema(kind: str, way: str, tool: str, body: Mapping[str, Any]) -> Any:
    """Return the schema that a request asks for."""
    if way == "prompted":
        system = body["messages"][0]["content"] if kind == "openai" else body["system"]
        assert "response_format" not in body
        assert "output_config" not in body
        return json.loads(system.partition("JSON schema:\n")[2])
    if kind == "openai":
        if way == "native":
            assert "City" not in json.dumps(body.get("tools", ()))
            return body["response_format"]["json_schema"]["schema"]
        assert body["tool_choice"] == "required"
        return {t["function"]["name"]: t["function"]["parameters"] for t in body["tools"]}[tool]
    if way == "native":
        return body["output_config"]["format"]["schema"]
    assert body["tool_choice"] == {"type": "any"}
    return {t["name"]: t["input_schema"] for t in body["tools"]}[tool]


def written(sample: Sample, way: str, *, good: bool) -> Reply:
    """Make the reply that gives an output."""
    if way == "tool":
        args = sample.good if good else sample.bad
        return Reply(calls=[Call(name=sample.tool, args=args, id=f"c{next(_IDS)}")])
    text = (sample.text or sample.good) if good else (sample.bad_text or sample.bad)
    return Reply(text=json.dumps(text))


_IDS: Final = itertools.count()
