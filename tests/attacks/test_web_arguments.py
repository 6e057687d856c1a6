"""Arguments, headers and schemas that try to break out of an HTTP tool's request (D19, D20)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.attacks.web import context, tool
from tests.support.loopback import Loopback
from wick_graph.errors import ConfigError
from wick_graph.tools import HTTPTool, bind_tool


@pytest.mark.parametrize(
    "value", ["\r\nX-Evil: 1\r\n\r\n", "../../admin", "?a=b", "#x", "@evil", "\0", "é\ud83d"]
)
async def test_arguments_stay_in_the_body(value: str, server: Loopback) -> None:
    """D19."""
    made = tool(server.url(), replay="key")
    await made.execute({"id": value}, context(key=f"step:{value}"))
    assert server.line() == "POST /tools/lookup HTTP/1.1"
    assert json.loads(server.body()) == {"name": "lookup", "args": {"id": value}}
    sent = {"host", "accept", "content-type", "content-length", "accept-encoding", "connection"}
    assert server.headers().keys() == sent | {"idempotency-key"}
    assert len(server.headers()["idempotency-key"]) == 64
    assert server.headers()["host"] == f"127.0.0.1:{server.port}"


@pytest.mark.parametrize(
    "headers",
    [{"X": "a\r\nY: b"}, {"X\r\nY": "b"}, {"": "x"}, {"Host": "evil"}, {"Content-Length": "1"}],
)
def test_headers_are_checked_when_a_tool_is_made(headers: dict[str, str]) -> None:
    """D19."""
    with pytest.raises(ConfigError, match="^tool lookup: the header"):
        tool("http://example.com", headers=headers)


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


BAD_SCHEMAS: list[tuple[dict[str, Any], str]] = [
    ({"$ref": "http://127.0.0.1/schema.json"}, "only references into the schema itself"),
    ({"$ref": "file:///etc/passwd"}, "only references into the schema itself"),
    ({"$ref": "#"}, "refer to themselves in a circle"),
    ({"$ref": "#/$defs/a"}, "which they lack"),
    ({"properties": {"a": {"$ref": "#/properties/a"}}}, "refer to themselves in a circle"),
    (
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        "refer to themselves in a circle",
    ),
    ({"properties": {"a": {"type": "string", "pattern": r"^(a+)\1$"}}}, "so that a search takes"),
    ({"patternProperties": {"^(?!a)": {}}}, "so that a search takes linear time"),
    ({"properties": {"a": {"anyOf": [{"items": {"pattern": "(?=x)"}}]}}}, "is refused"),
    ({"dependencies": {"a": {"properties": {"a": {"pattern": "(?=x)"}}}}}, "is refused"),
    ({"extends": {"properties": {"a": {"pattern": "(?=x)"}}}}, "is refused"),
    ({"extends": [{"properties": {"a": {"pattern": "(?=x)"}}}]}, "is refused"),
    ({"properties": {"a": {"type": [{"pattern": "(?=x)"}]}}}, "is refused"),
    ({"properties": {"a": {"disallow": [{"pattern": "(?=x)"}]}}}, "is refused"),
    ({"properties": {"a": {"pattern": "(((a{99}){99}){99}){99}"}}}, "repetition"),
    ({"properties": {"a": {"pattern": "(?i)" + r"\w{99}" * 9}}}, "too large"),
    ({"patternProperties": {"a": {"$ref": "#"}}}, "refer to themselves in a circle"),
    ({"patternProperties": {"a": {}}, "unevaluatedProperties": False}, "use additionalProp"),
    ({"properties": 1}, "no JSON schema"),
    ({"$dynamicRef": "#x"}, "use '\\$dynamicRef'"),
    (
        {
            "$ref": "#/$defs/d20",
            "$defs": {
                "d0": {"type": "object"},
                **{f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n - 1}"}] * 2} for n in range(1, 21)},
            },
        },
        "unfold to more than 10000 parts",
    ),
    ({"properties": {"a": nested(100)}}, "nested more than 60 deep"),
    ({"properties": {"a": {"enum": ["x" * 70_000]}}}, "larger than 64 KiB"),
    ({"properties": {"a": {"default": object()}}}, "not JSON"),
    ({"type": "array"}, 'with "type": "object"'),
]


@pytest.mark.parametrize(("schema", "says"), BAD_SCHEMAS)
def test_a_schema_that_could_do_harm_is_refused(schema: dict[str, Any], says: str) -> None:
    """D20."""
    with pytest.raises(ConfigError, match=says):
        bind_tool(HTTPTool("lookup", "Look up", schema, "https://example.com"))


def test_a_plain_schema_is_taken() -> None:
    """D20: a property may be called as a keyword is."""
    schema = {
        "type": "object",
        "properties": {"pattern": {"type": "string"}, "$ref": {"$ref": "#/$defs/a~1b"}},
        "$defs": {"a/b": {"type": "integer"}},
        "required": ["pattern"],
    }
    check = bind_tool(HTTPTool("lookup", "Look up", schema, "https://example.com")).check
    assert check({"pattern": "^(a+)+$", "$ref": 1}) is None
    assert check({"pattern": "x", "$ref": "y"}) is not None
