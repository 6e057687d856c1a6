"""Tools that come and go: register one that another server runs, list, take away."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query

from wick_graph.config.fields import AGENT_ID
from wick_graph.errors import ConfigError, RefusedError, ToolError
from wick_graph.server import forms
from wick_graph.server.asking import Admin, Asker, Reader
from wick_graph.server.problems import Problem
from wick_graph.tools.http import HTTPTool
from wick_graph.tools.store import RESERVED, check_free
from wick_graph.web import Client

router: Final = APIRouter(tags=["tools"])
AgentQuery = Annotated[str | None, Query(pattern=f"^{AGENT_ID.pattern}$")]
_LOOK_UP_SECONDS: Final = 5.0
NamePath = Annotated[str, Path(pattern="^[a-zA-Z0-9_-]{1,64}$")]


@router.get("/agents/tools/available")
async def available(asker: Reader, agent_id: AgentQuery = None) -> dict[str, Any]:
    """List the tools of an agent, and where each comes from."""
    spec = (await asker.agent(agent_id)).spec
    named = agent_id or asker.tenant.agents.default_id
    registered = {tool.name for tool in asker.tenant.agents.tools.at(named)}
    brought = {
        str(getattr(tool, "name", "")): hook
        for hook, tools in spec.hooks.tool_sources
        for tool in tools({})
    }
    return {
        "tools": [
            {"name": name, "source": brought.get(name) or _source(name, registered)}
            for name in [*spec.toolbox.at({}), *sorted(registered - {*spec.toolbox.at({})})]
        ]
    }


@router.post("/agents/tools/register")
async def register(asker: Admin, form: forms.ToolForm) -> dict[str, Any]:
    """Register a tool that another server runs, for one agent or for all of the tenant.

    An address that no call would be sent to is refused. A server that does not answer now is not:
    `health` says so, and the tool works from when it does.
    """
    _check_agent(asker, form.agent_id)
    client = asker.service.callbacks
    try:
        tool = HTTPTool(
            name=form.name,
            description=form.description,
            parameters=form.parameters,
            callback_url=form.callback_url,
            client=client,
        )
        check_free(form.name)
        health = await _health(tool, client)
        asker.tenant.agents.tools.register(tool, agent=form.agent_id, override=True)
    except ConfigError as error:
        raise Problem(409 if form.name in RESERVED else 400, str(error)) from None
    except RefusedError as error:
        raise Problem(409, f"callback_url: {error}") from None
    made = {"status": "registered", "name": form.name, "agent_id": form.agent_id}
    return {**made, "health": health}


@router.delete("/agents/tools/deregister/{name}")
async def deregister(asker: Admin, name: NamePath, agent_id: AgentQuery = None) -> dict[str, Any]:
    """Take a registered tool away."""
    _check_agent(asker, agent_id)
    if not asker.tenant.agents.tools.deregister(name, agent=agent_id):
        raise Problem(404, "tool not found")
    return {"status": "deregistered", "name": name}


async def _health(tool: HTTPTool, client: Client) -> str:
    """Say whether a tool's server is there.

    Raises:
        RefusedError: No call would be sent to it.
    """
    try:
        await client.check(tool.callback_url, _LOOK_UP_SECONDS)
    except RefusedError:
        raise
    except ToolError as error:  # a host that is not known now may be by and by
        return f"{error}; calls fail until it answers"
    return await tool.health()


def _source(name: str, registered: set[str]) -> str:
    return "external" if name in registered else "registered"


def _check_agent(asker: Asker, agent_id: str | None) -> None:
    if agent_id is not None:
        asker.tenant.agents.config(agent_id)
