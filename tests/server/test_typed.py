"""Typed outputs over HTTP: by the agent's own type, by the request's, and by OpenAI's name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import httpx
import openai
import pytest
from pydantic import BaseModel, Field

from tests.server.support import AGENTS, Served, frames, serving
from wick_graph.client import Client
from wick_graph.events import OutputDelta

pytestmark = pytest.mark.xdist_group("typed")  # they share a server

SCHEMA = {
    "title": "City",
    "type": "object",
    "properties": {"name": {"type": "string"}, "people": {"type": "integer", "minimum": 0}},
    "required": ["name", "people"],
}
BERN = {"name": "Bern", "people": 134_000}
CALL = "{calls: [{tool: City, args: {name: Bern, people: 134000}}]}"
BAD = "{calls: [{tool: City, args: {name: Bern, people: -1}}], unchecked: true}"
ASKS = """
steps:
- calls: [{tool: calculate, args: {expression: 21*2}}]
- calls: [{tool: City, args: {name: Bern, people: 134000}}]
"""
PRICED = """
steps:
- calls:
  - {tool: Price, args: {amount: '12.50', unit: CHF}}
"""
ASK: Any = [{"role": "user", "content": "Which city?"}]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path = tmp_path_factory.mktemp("typed")
    (path / "city.json").write_text(json.dumps(SCHEMA), "utf-8")
    agents = (
        f"{AGENTS}  typed: {{model: 'scripted:bad.yaml', output: {{schema: city.json}}}}\n"
        "  free: {model: 'scripted:good.yaml'}\n"
        "  never: {model: 'scripted:never.yaml', output: {schema: city.json, retries: 0}}\n"
        "  priced: {model: 'scripted:priced.yaml'}\n"
        "  asks: {model: 'scripted:asks.yaml', approvals: {calculate: true}}\n"
    )
    texts: dict[str, Any] = {
        "good": f"steps: [{CALL}]",
        "bad": f"steps: [{BAD}, {CALL}]",
        "priced": PRICED,
        "never": "steps: [No.]",
        "asks": ASKS,
    }
    with serving(path, agents=agents, **texts) as server:
        yield server


@pytest.fixture
def http(served: Served) -> Iterator[httpx.Client]:
    with served.http() as client:
        yield client


@pytest.fixture
def client(served: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="unused", max_retries=0) as made:
        yield made


@pytest.mark.parametrize(
    ("agent", "more"), [("typed", {}), ("free", {"output_schema": SCHEMA})], ids=["own", "asked"]
)
def test_an_answer_has_the_output(http: httpx.Client, agent: str, more: dict[str, Any]) -> None:
    used = []
    for _ in range(2):  # the second answer is read from the store
        got = http.post(
            f"/agents/{agent}/invoke",
            json={"messages": ASK, **more},
            headers={"Idempotency-Key": f"key-of-{agent}"},
        )
        assert got.status_code == 200, got.text
        assert got.json()["structured_response"] == BERN
        assert json.loads(got.json()["response"]) == BERN
        used.append(got.json()["usage"])
    assert used[0] == used[1]
    assert used[0]["total_tokens"] > 0


def test_the_client_asks_for_an_output(served: Served) -> None:
    with Client(served.url) as client:
        assert client.invoke("Which?", agent="free", output_schema=SCHEMA).output == BERN
        events = [*client.stream("Which?", agent="free", output_schema=SCHEMA)]
    assert [event.output for event in events if isinstance(event, OutputDelta)][-1] == BERN


def test_a_stream_has_the_output(http: httpx.Client) -> None:
    got = http.post("/agents/typed/stream", json={"messages": ASK})
    told = [json.loads(data) for _, name, data in frames(got.text) if name == "on_output"]
    assert told[-1]["data"]["output"] == BERN


@pytest.mark.parametrize("door", ["resume", "respond"])
def test_after_an_approval_the_output_is_still_asked_for(http: httpx.Client, door: str) -> None:
    body = {"messages": ASK, "output_schema": SCHEMA}
    waits = http.post("/agents/asks/invoke", json=body).json()
    assert waits["interrupted"]
    if door == "resume":
        answer = {"thread_id": waits["thread_id"], "answer": {"decision": "approve"}}
        done = http.post("/agents/resume", json=answer).json()
    else:
        [question] = http.get(f"/threads/{waits['thread_id']}/approvals").json()
        answer = {"response": "approve"}
        done = http.post(f"/agents/hitl/{question['id']}/respond", json=answer).json()["run"]
    assert done["structured_response"] == BERN


def held(**one: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"name": one}}


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"type": "object", "properties": 1}, "no JSON schema"),
        ({"$ref": "https://example.com/a.json"}, "only references into the schema itself"),
        ({"$ref": "file:///etc/passwd"}, "only references into the schema itself"),
        (held(pattern=r"(a+)\1$"), "so that a search takes linear time"),
        (
            {
                "$schema": "http://json-schema.org/draft-07/schema#",
                "dependencies": {"name": held(pattern="(?=a)")},
            },
            "so that a search takes linear time",
        ),
        ({"type": "object", "patternProperties": {"(?!a)": {}}}, "so that a search takes"),
        ({"$ref": "#"}, "in a circle, as a type that holds itself does; write out"),
        ({"$dynamicRef": "#x"}, "only plain references"),
        ({"$ref": "#/$defs/No"}, "which they lack"),
        ({"$schema": 5}, "no JSON schema"),
        ({"anyOf": []}, "no JSON schema"),
        (held(description="x" * 70_000), "larger than 64 KiB"),
    ],
)
@pytest.mark.parametrize("door", ["form", "openai"])
def test_a_wrong_schema_starts_no_run(
    http: httpx.Client, schema: dict[str, Any], says: str, door: str
) -> None:
    if door == "form":
        got = http.post("/agents/free/invoke", json={"messages": ASK, "output_schema": schema})
    else:
        asked = {"type": "json_schema", "json_schema": {"name": "City", "schema": schema}}
        body = {"model": "free", "messages": ASK, "response_format": asked}
        got = http.post("/v1/chat/completions", json=body)
    assert got.status_code == 400, got.text
    assert says in got.text


class Price(BaseModel):
    amount: Decimal = Field(max_digits=9, decimal_places=2)
    unit: str = Field(pattern=r"^[A-Z]{3}$")


@pytest.mark.parametrize(
    "schema",
    [
        Price.model_json_schema(),
        {
            "title": "Price",
            "type": "object",
            "properties": {"amount": {"$ref": "#/anyOf/0"}, "unit": {"$ref": "#unit"}},
            "anyOf": [{"type": ["string", "object"]}],
            "$defs": {"unit": {"$anchor": "unit", "const": "CHF"}},
        },
    ],
    ids=["a decimal", "a list and an anchor"],
)
def test_schemas_with_patterns_and_references_are_taken(
    http: httpx.Client, schema: dict[str, Any]
) -> None:
    got = http.post("/agents/priced/invoke", json={"messages": ASK, "output_schema": schema})
    assert got.json()["structured_response"] == {"amount": "12.50", "unit": "CHF"}, got.text


def test_a_run_without_an_output_fails(http: httpx.Client) -> None:
    got = http.post("/agents/never/invoke", json={"messages": ASK})
    assert got.status_code == 500
    assert "the model gave no valid City when asked once" in got.json()["error"]


FORMAT: Any = {
    "type": "json_schema",
    "json_schema": {"name": "City", "schema": SCHEMA, "strict": True},
}


@pytest.mark.parametrize("stream", [False, True])
def test_openais_response_format(client: openai.OpenAI, stream: bool) -> None:
    made: Any = client.chat.completions.create(
        model="free", messages=ASK, response_format=FORMAT, stream=stream
    )
    if stream:
        text = "".join(c.choices[0].delta.content or "" for c in made if c.choices)
    else:
        text = made.choices[0].message.content
    assert json.loads(text) == BERN


def test_openais_json_object(client: openai.OpenAI) -> None:
    with pytest.raises(openai.InternalServerError, match="no valid output"):
        client.chat.completions.create(
            model="default", messages=ASK, response_format={"type": "json_object"}
        )
    wrong: Any = {"type": "json_schema", "json_schema": {"schema": SCHEMA}}
    with pytest.raises(openai.BadRequestError, match="name"):
        client.chat.completions.create(model="free", messages=ASK, response_format=wrong)
