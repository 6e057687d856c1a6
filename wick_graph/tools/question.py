"""A tool by which the model asks the user: the run waits, in the store, for the answer."""

from __future__ import annotations

from typing import Any, Final

from langgraph.types import interrupt

from wick_graph.tools.func import FuncTool
from wick_graph.tools.protocol import ToolContext

KIND: Final = "question"
"""The `kind` of the question that an interrupt carries."""

_PARAMETERS: Final = {
    "type": "object",
    "properties": {
        "question": {
            "type": "string",
            "minLength": 1,
            "description": "One question, with all that is needed to answer it",
        },
        "options": {
            "type": ["array", "null"],
            "items": {"type": "string"},
            "description": "Answers to choose from; the user may give another one",
        },
    },
    "required": ["question"],
}


def question_tool() -> FuncTool[..., Any]:
    """Make the tool `request_user_input`; the answer to its interrupt is its result."""

    def request_user_input(args: dict[str, Any], ctx: ToolContext) -> Any:
        asked = {
            "kind": KIND,
            "question": args["question"],
            "options": list(args.get("options") or ()),
            "call_id": ctx.call_id,
            "index": ctx.index,
        }
        return interrupt(asked)

    return FuncTool(
        "request_user_input",
        "Ask the user a question and wait for the answer. Use it only for what the user alone "
        "can know or decide.",
        _PARAMETERS,
        request_user_input,
        aliases={"prompt": "question"},
        replay="safe",
        timeout=None,
    )
