"""The agents: who they are, how their graph goes, which hooks and skills they have."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated, Any, Final

from fastapi import APIRouter, Response
from pydantic import Field, ValidationError

from wick_graph.config import AgentConfig
from wick_graph.config.fields import AGENT_ID, RESERVED_IDS
from wick_graph.hooks.compile import Hooks
from wick_graph.hooks.protocol import PHASES
from wick_graph.hooks.reading import BackendReader
from wick_graph.hooks.skills import catalogue
from wick_graph.picture import picture_of
from wick_graph.server import forms
from wick_graph.server.answers import agent_answer
from wick_graph.server.asking import Admin, Asker, Reader
from wick_graph.server.problems import Problem
from wick_graph.tools.builtin_tools import BUILTINS

router: Final = APIRouter(tags=["agents"])


class AgentForm(forms.Form):
    """An agent of the caller's tenant: the id, and the keys of agents.yaml."""

    agent_id: Annotated[str, Field(pattern=f"^{AGENT_ID.pattern}$")]
    name: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    model: Annotated[str, Field(pattern=forms.VISIBLE)] | None = None
    system_prompt: str | None = None
    tools: (
        Annotated[
            list[Annotated[str, Field(json_schema_extra={"enum": [*BUILTINS]})]],
            Field(fail_fast=True, max_length=100),
        ]
        | None
    ) = None
    context_window: Annotated[int, Field(ge=1, le=10**9), forms.FROM_WHOLE] | None = None
    max_iterations: Annotated[int, Field(ge=1, le=1000), forms.FROM_WHOLE] | None = None


@router.get("/agents", response_model=list[forms.AgentAnswer])
@router.get("/agents/", response_model=list[forms.AgentAnswer], include_in_schema=False)
async def list_agents(asker: Reader) -> Any:
    """List the agents."""
    return [await _answer(asker, agent_id) for agent_id in [*asker.tenant.agents]]


@router.post("/agents", response_model=forms.AgentAnswer, status_code=201)
@router.post("/agents/", response_model=forms.AgentAnswer, status_code=201, include_in_schema=False)
async def add(asker: Admin, form: AgentForm) -> Any:
    """Add an agent for the caller's tenant, until the server ends."""
    if form.agent_id in RESERVED_IDS:
        raise Problem(400, f"agent_id: {form.agent_id!r} is a word of the server's own paths")
    given = form.model_dump(exclude={"agent_id"}, exclude_none=True)
    if form.tools is not None:
        given["tools"] = [*dict.fromkeys(form.tools)]
    for name in form.tools or ():
        if name not in BUILTINS:
            raise Problem(400, f"tools: there is no tool {name!r:.80}")
    try:
        config = AgentConfig.model_validate({"name": form.agent_id, **given}, strict=False)
    except ValidationError as error:
        found = error.errors()[0]
        raise Problem(400, f"{found['loc'][0]}: {found['msg']}") from None
    await asyncio.to_thread(asker.tenant.agents.add, form.agent_id, config)
    return await _answer(asker, form.agent_id)


@router.get("/agents/{agent_id}", response_model=forms.AgentAnswer)
async def show(asker: Reader, agent_id: forms.AgentIdPath) -> Any:
    """Describe an agent."""
    return await _answer(asker, agent_id)


@router.delete("/agents/{agent_id}", status_code=204, response_class=Response)
async def remove(asker: Admin, agent_id: forms.AgentIdPath) -> Response:
    """Remove an agent that the caller's tenant added."""
    asker.tenant.agents.remove(agent_id)
    return Response(status_code=204)


@router.get("/agents/{agent_id}/flow")
async def flow(asker: Reader, agent_id: forms.AgentIdPath) -> dict[str, Any]:
    """Describe an agent's graph: nodes, edges, hook layers, tools."""
    agent = await asker.agent(agent_id)
    hooks = agent.spec.hooks
    return {
        "agent_id": agent_id,
        "max_iterations": agent.spec.max_iterations,
        "model": agent.spec.model.name,
        "hooks": [{"name": name, "phases": _phases(hooks, name)} for name in hooks.names],
        "tools": [*agent.spec.toolbox.at({})],
        "graph": picture_of(agent.graph).to_dict(),
    }


@router.patch("/agents/{agent_id}/hooks")
async def switch_hooks(
    asker: Admin, agent_id: forms.AgentIdPath, form: forms.HooksForm
) -> dict[str, Any]:
    """Switch an agent's hooks on and off for the caller's tenant, until the server ends."""
    switch = partial(asker.tenant.agents.switch, on=form.add, off=form.remove)
    left = await asyncio.to_thread(switch, agent_id)
    return {"agent_id": agent_id, "hooks": left}


@router.get("/agents/{agent_id}/skills")
async def skills(asker: Reader, agent_id: forms.AgentIdPath) -> dict[str, Any]:
    """List the skills that an agent finds."""
    config = asker.tenant.agents.config(agent_id)
    paths = [*(config.skills.paths if config.skills else ())]
    found = []
    backend = await asyncio.to_thread(asker.tenant.agents.backend, agent_id) if paths else None
    if backend is not None:
        found = await asyncio.to_thread(catalogue, BackendReader(backend), paths)
    shown = [{**skill, "enabled": True} for skill in found]
    return {"skills": shown, "paths": paths, "extra_paths": []}


async def _answer(asker: Asker, agent_id: str) -> dict[str, Any]:
    config = asker.tenant.agents.config(agent_id)
    return agent_answer(agent_id, await asker.agent(agent_id), config)


def _phases(hooks: Hooks, name: str) -> list[str]:
    return [phase for phase in PHASES if any(layer.hook == name for layer in hooks.layers(phase))]
