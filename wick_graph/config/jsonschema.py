"""The configuration as a JSON schema, with which editors complete and check a file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from wick_graph.config.fields import AGENT_ID
from wick_graph.config.schema import AgentsFile

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


class _Plain(GenerateJsonSchema):
    """Leave out titles that only repeat a key's name."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        made = super().model_schema(schema)
        made.pop("title", None)
        return made


def json_schema(tools: Iterable[str] = ()) -> dict[str, Any]:
    """Describe a whole file in both of its forms; `tools` are the names that `tools:` may hold.

    It refuses nothing that is right. What only shows when names are looked up it cannot know:
    `wick validate` tells that.
    """
    file = AgentsFile.model_json_schema(schema_generator=_Plain)
    parts: dict[str, Any] = file.pop("$defs")
    agent = parts["AgentConfig"]
    if names := sorted(tools):
        agent["properties"]["tools"]["items"] = {"enum": names}
    empty: Any = {"type": "null"}  # a key with nothing but comments below it
    agents, defaults = file["properties"]["agents"], file["properties"]["defaults"]
    agents["additionalProperties"] = {"anyOf": [agents["additionalProperties"], empty]}
    agents["propertyNames"] = {"pattern": f"^{AGENT_ID.pattern}$"}
    file["properties"]["defaults"] = {
        "anyOf": [{"$ref": defaults["$ref"]}, empty],
        "description": defaults.get("description", ""),
    }
    of_file = {key: file["properties"][key] for key in ("store", "store_keys", "limits")}
    single = {**agent, "properties": {**agent["properties"], **of_file}}
    single["description"] = "One agent that is a whole file."
    return {
        "$schema": DIALECT,
        "title": "agents.yaml",
        "type": "object",
        "if": {"required": ["agents"]},
        "then": {"$ref": "#/$defs/AgentsFile"},
        "else": {"$ref": "#/$defs/SingleAgent"},
        "$defs": {"AgentsFile": file, "SingleAgent": single, **parts},
    }
