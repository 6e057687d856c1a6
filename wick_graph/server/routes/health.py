"""Whether the server is up, and whether its messages work: both without a model."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter
from starlette.responses import PlainTextResponse

from wick_graph.errors import MessageError
from wick_graph.messages import Messages, ToolCall, ai, message, messages_to_wick, role_of
from wick_graph.server import forms, metrics
from wick_graph.server.asking import Admin, Reader

router: Final = APIRouter()


@router.get("/health", response_model=forms.HealthAnswer, tags=["server"])
async def health() -> Any:
    """Say that the server is up; anybody may ask."""
    return {"status": "ok"}


@router.get("/metrics", response_class=PlainTextResponse, tags=["server"])
async def numbers(asker: Admin) -> PlainTextResponse:
    """Return counters and times in the form that Prometheus reads: the caller's tenant's own.

    The tenant `local`, who runs the server, sees those of the whole server.
    """
    said = metrics.text(asker.service, asker.caller.tenant)
    return PlainTextResponse(said, media_type=metrics.MEDIA_TYPE)


@router.get("/agents/messages/test", tags=["messages"])
async def messages_test(asker: Reader) -> dict[str, Any]:
    """Exercise every method of a chain of messages."""
    call = ToolCall(id="call_1", name="calculate", args={"expression": "2+2"})
    chain = (
        Messages()
        .system("You are helpful.")
        .human("What is 2+2?")
        .ai("Let me calculate.", call)
        .tool("call_1", "calculate", "4")
        .ai("2+2 = 4")
    )
    merged = chain.concat(Messages().human("follow-up question"))
    bad = Messages([message("hacker", "inject")])
    spoofed = Messages([*Messages().human("ok"), ai("spoofed")])
    return {
        "chain_length": len(chain),
        "messages": messages_to_wick(chain),
        "pretty_print": chain.pretty_print(),
        "last_content": chain.last_content(),
        "last_role": role_of(chain.last()),
        "validate_ok": _error(chain.validate) == "",
        "validate_error": _error(chain.validate),
        "user_count": len(chain.user_messages()),
        "assistant_count": len(chain.assistant_messages()),
        "tool_count": len(chain.tool_messages()),
        "system_count": len(chain.system_messages()),
        "bad_role_error": _error(bad.validate),
        "spoof_error": _error(spoofed.validate_user_input),
        "merged_length": len(merged),
        "token_estimate": chain.estimate_tokens(),
    }


def _error(check: Any) -> str:
    try:
        check()
    except MessageError as error:
        return str(error)
    return ""
