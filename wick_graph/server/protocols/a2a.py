"""The agents behind A2A: JSON-RPC calls, and the card that describes an agent."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Request
from pydantic import Field

from wick_graph.errors import missing_extra
from wick_graph.server import schemas
from wick_graph.server.guard import Reader
from wick_graph.service.options import Problem

router: Final = APIRouter(prefix="/a2a", tags=["a2a"])

_STREAM: Final[Any] = {200: {"content": {"text/event-stream": {}}}}


class RpcForm(schemas.Form):
    """A call of JSON-RPC."""

    jsonrpc: Literal["2.0"]
    id: Annotated[str, Field(max_length=200)] | Annotated[int, schemas.FROM_WHOLE] | None = None
    method: Annotated[str, Field(max_length=100)]
    params: dict[str, Any] = Field(default_factory=dict)


@router.get("/{agent_id}/.well-known/agent-card.json", response_model=dict[str, Any])
async def card(context: Reader, agent_id: schemas.AgentIdPath, request: Request) -> Any:
    """Describe an agent to other agents."""
    calls = await _calls()
    agent = await context.agent(agent_id)
    address = f"{str(request.base_url).rstrip('/')}{router.prefix}/{agent.name}"
    return calls.card_of(agent, address, auth=context.options.auth)


@router.post("/{agent_id}", response_model=dict[str, Any], responses=_STREAM)
async def call(context: Reader, agent_id: schemas.AgentIdPath, form: RpcForm) -> Any:
    """Send a message to an agent; show, list, follow or cancel tasks."""
    calls = await _calls()
    agent = await context.agent(agent_id)
    return await calls.Call(context, agent, form.method, form.params, form.id).answer()


async def _calls() -> Any:
    """Load the types of the protocol, which takes a second."""
    try:
        return await asyncio.to_thread(import_module, f"{__package__}.a2a_calls")
    except ModuleNotFoundError as error:
        text = missing_extra("A2A", str(error.name).partition(".")[0], "a2a")
        raise Problem(503, text) from None
