"""A scripted step that gives an object, in the way in which the request asks for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic_core import to_jsonable_python

from wick_graph.errors import ConfigError
from wick_graph.models.scripted.reply import ModelCall, tool_name
from wick_graph.models.scripted.script import Respond, StepLike, calls, respond
from wick_graph.models.structured import ASKS, GIVES, WRAPPER


def respond_object(value: Any) -> Respond:
    """Give an object as the output of a typed agent: by its tool, or as a text.

    The step raises `ConfigError` if the request asks for no output.
    """
    data = to_jsonable_python(value, by_alias=True)

    def give_object(call: ModelCall) -> StepLike:
        forms = {tool_name(tool): tool.get("function", {}) for tool in call.tools}
        named = [name for name, form in forms.items() if GIVES in form.get("description", "")]
        if named:
            name = next((one for one in named if one == type(value).__name__), named[0])
            return calls((name, _as_asked(data, forms[name]["parameters"])))
        asked = call.settings.get("response_format")
        if asked is not None:
            return json.dumps(_as_asked(data, asked["json_schema"]["schema"]))
        _, asks, schema = call.system.partition(ASKS)
        if not asks:
            raise ConfigError("respond_object() needs an agent with an output_type")
        return json.dumps(_as_asked(data, json.JSONDecoder().raw_decode(schema.lstrip())[0]))

    return respond(give_object)


def _as_asked(data: Any, schema: Mapping[str, Any]) -> Any:
    return {WRAPPER: data} if [*schema.get("properties", {})] == [WRAPPER] else data
