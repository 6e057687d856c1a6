"""The agents as an MCP server: one tool per agent, for any MCP client."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Optional, Union

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from typing_extensions import TypedDict, get_type_hints

from wick_graph.errors import WickError
from wick_graph.hooks.approvals import holds_decision
from wick_graph.models.structured import Output


class Answer(TypedDict):
    """An agent's answer."""

    text: str
    thread_id: str
    stopped_because: str
    reason: str
    """Why it was ended early, although its text may look whole; empty for any other."""
    questions: list[Any]
    """Open questions of the agent; `answer` replies to them."""


def _answer_of(output: Output | None) -> Any:
    """Return the type of an agent's answers: with its output, if it gives one."""
    if output is None:
        return Answer
    kinds = [form.type for form in output.forms]
    fields = {**get_type_hints(Answer), "output": Optional[Union[tuple(kinds)]]}  # noqa: UP007, UP045  # made here
    return TypedDict("Answer", fields)  # type: ignore[operator]  # made by name


def mcp_server(
    agents: Mapping[str, Any], outputs: Mapping[str, Output] | None = None
) -> MCPServer[Any]:
    """Build a server that offers each agent as a tool `ask_<id>`.

    Args:
        agents: The agents by id; each is looked up when it is asked.
        outputs: What agents give in place of a text, by id.
    """
    server: MCPServer[Any] = MCPServer("wick_graph")
    for agent_id in agents:
        server.add_tool(
            _asking(
                partial(agents.__getitem__, agent_id), _answer_of((outputs or {}).get(agent_id))
            ),
            name=f"ask_{agent_id}",
            description=(
                f"Ask the agent {agent_id}. Pass the thread_id of an earlier answer to continue "
                "that conversation. If the answer has questions, call again with the thread_id "
                "and an answer to them (text or JSON) instead of a message."
            ),
        )
    return server


def _asking(agent_of: Callable[[], Any], answer_type: Any) -> Callable[..., Any]:
    async def ask(message: str = "", thread_id: str | None = None, answer: str = "") -> Any:
        if bool(message) == bool(answer):
            raise ToolError("pass either a message or the answer to a question")
        if answer and not thread_id:
            raise ToolError("an answer belongs to a thread; pass its thread_id")
        try:
            if answer:
                result = await agent_of().aresume(thread_id, _answer(answer))
            else:
                result = await agent_of().ainvoke(message, thread_id=thread_id)
        except WickError as error:
            raise ToolError(str(error)) from error
        made: dict[str, Any] = {
            "text": result.text,
            "thread_id": result.thread_id,
            "stopped_because": result.stopped_because,
            "reason": result.reason,
            "questions": [one.value for one in result.interrupts],
        }
        return made if answer_type is Answer else {**made, "output": result.structured}

    ask.__annotations__["return"] = answer_type
    return ask


def _answer(answer: str) -> Any:
    """Read an answer to a question; approvals are not accepted over MCP.

    Raises:
        ToolError: It is a decision about a tool call.
    """
    given = _read(answer)
    if holds_decision(given):
        raise ToolError(
            "a call cannot be approved over MCP; a person approves it with "
            "wick resume, or over HTTP with a token of the scope approve"
        )
    return given


def _read(answer: str) -> Any:
    """Parse an answer if it is JSON; otherwise return the text."""
    try:
        return json.loads(answer)
    except ValueError:
        return answer
