"""What an MCP server answered, as a tool's result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from langchain_core.messages import ToolMessage

from wick_graph.errors import ToolError

if TYPE_CHECKING:
    from mcp.types import CallToolResult


def reply_of(answer: CallToolResult, call_id: str) -> Any:
    """Return the texts of an answer as one, or blocks where there are images among them.

    Raises:
        ToolError: The answer says that the call failed.
    """
    blocks = [_block(item) for item in answer.content]
    text = "\n".join(block["text"] for block in blocks if block["type"] == "text")
    if answer.is_error:
        raise ToolError(text or "the tool failed and did not say why")
    if all(block["type"] == "text" for block in blocks):
        return text if blocks else answer.structured_content
    return ToolMessage(content=cast(Any, blocks), tool_call_id=call_id)


def _block(item: Any) -> dict[str, Any]:
    if item.type == "text":
        return {"type": "text", "text": item.text}
    if item.type == "image":
        return {"type": "image", "base64": item.data, "mime_type": item.mime_type}
    if item.type == "resource" and getattr(item.resource, "text", None) is not None:
        return {"type": "text", "text": item.resource.text}
    if item.type == "resource_link":
        return {"type": "text", "text": f"{item.name}: {item.uri}"}
    return {"type": "text", "text": f"[{item.type} that cannot be shown]"}
