"""Routes of what a tenant has beside its agents: events, containers, uploaded skills."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, suppress
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Path, Response

from wick_graph.backends.docker import DockerBackend
from wick_graph.backends.docker.container import Status
from wick_graph.hooks import prompt_files
from wick_graph.hooks.skills import FILE
from wick_graph.server import schemas
from wick_graph.server.guard import Admin, Reader
from wick_graph.server.sse import EventStream, frame
from wick_graph.service import skills as skill_files
from wick_graph.service.options import Problem
from wick_graph.service.skills import UploadedSkills

tenant_router: Final = APIRouter(tags=["agents"])

_SSE: Final[Any] = {
    200: {"description": "Server-sent events.", "content": {"text/event-stream": {}}}
}

LastNews = Annotated[
    str | None,
    Header(
        alias="Last-Event-ID",
        pattern="^[0-9]{1,16}$",
        description="Continue after this event of the tenant.",
    ),
]

SkillName = Annotated[str, Path(pattern=f"^{skill_files.NAME}$", description="The skill.")]


@tenant_router.get("/agents/events", response_class=Response, responses=_SSE)
async def events(context: Reader, last: LastNews = None) -> Response:
    """Follow what changes: agents, tools, skills, runs and containers of the caller's tenant.

    The first event, `connected`, has the number after which a reader can come back.
    """
    context.service.check_open()
    metrics = context.service.metrics_of(context.caller.tenant)

    async def pieces() -> AsyncIterator[bytes | None]:
        following = context.tenant.bus.follow(None if last is None else int(last))
        waited = False
        async with aclosing(following) as entries:  # type: ignore[type-var]  # a generator
            async for entry in entries:
                if entry is not None:
                    if waited and not await context.is_admitted():
                        return  # its token was revoked meanwhile
                    metrics.sent()
                waited = entry is None
                yield None if entry is None else frame(*entry)

    limits = context.options.limits
    return EventStream(pieces, ping=limits.ping, send_timeout=limits.send)


@tenant_router.get("/containers", response_model=list[schemas.ContainerAnswer])
async def list_containers(context: Reader) -> Any:
    """List the containers of the tenant's agents; an agent that has not run yet has none."""
    agents = context.tenant.agents
    found = await asyncio.to_thread(agents.containers)
    return [
        {
            "agent_id": agent_id,
            "container_status": _status(backends),
            "containers": [name for backend in backends for name in backend.containers],
        }
        for agent_id, backends in found.items()
    ]


@tenant_router.post("/agents/{agent_id}/container", response_model=schemas.ContainerAction)
async def act_on_container(
    context: Admin, agent_id: schemas.AgentIdPath, form: schemas.ContainerForm
) -> Any:
    """Stop an agent's containers, or start them afresh; commands that run in them fail."""
    agents, restart = context.tenant.agents, form.action == "restart"
    status = await asyncio.to_thread(agents.stop_containers, agent_id, restart=restart)
    return {"agent_id": agent_id, "action": form.action, "container_status": status}


def _status(backends: Sequence[DockerBackend]) -> Status:
    """Return the state of an agent's containers together."""
    found = {backend.status for backend in backends}
    return next(one for one in ("launching", "launched", "error", "idle") if one in found)


@tenant_router.get("/skills", response_model=list[schemas.SkillAnswer])
async def list_skills(context: Reader) -> Any:
    """List the skills that the tenant has uploaded."""
    return await asyncio.to_thread(_uploaded, context.tenant.agents.skills)


@tenant_router.get("/skills/{name}", response_model=schemas.SkillFiles)
async def show_skill(context: Reader, name: SkillName) -> Any:
    """Return the files of an uploaded skill; one that is not text is null."""
    return _shown(name, await asyncio.to_thread(context.tenant.agents.skills.read, name))


@tenant_router.put("/skills/{name}", response_model=schemas.SkillAnswer)
async def put_skill(context: Admin, name: SkillName, form: schemas.SkillForm) -> Any:
    """Upload a skill, or replace it: as files, or as a zip archive in base64.

    The tenant's own agents with `skills` see it from their next run on.
    """

    def put() -> tuple[dict[str, Any], bool]:
        if form.archive is not None:
            files = skill_files.unpacked(form.archive)
        else:
            files = {path: text.encode() for path, text in (form.files or {}).items()}
        description = skill_files.checked(name, files)
        new = context.tenant.agents.skills.put(name, files)
        return _listed(name, description, files), new

    answer, new = await asyncio.to_thread(put)
    context.tenant.bus.tell("config_changed", skill=name, change="added" if new else "changed")
    return answer


@tenant_router.delete("/skills/{name}", status_code=204, response_class=Response)
async def delete_skill(context: Admin, name: SkillName) -> Response:
    """Delete an uploaded skill."""
    await asyncio.to_thread(context.tenant.agents.skills.remove, name)
    context.tenant.bus.tell("config_changed", skill=name, change="removed")
    return Response(status_code=204)


def _uploaded(skills: UploadedSkills) -> list[dict[str, Any]]:
    found = []
    for name in skills.names():
        with suppress(Problem):  # it was deleted meanwhile
            files = skills.read(name)
            says = prompt_files.read(files[FILE])
            found.append(_listed(name, str(says.get("description", "")), files))
    return found


def _listed(name: str, description: str, files: skill_files.Files) -> dict[str, Any]:
    sizes = {path: len(data) for path, data in files.items()}
    return {"name": name, "description": description, "files": sizes}


def _shown(name: str, files: skill_files.Files) -> dict[str, Any]:
    texts: dict[str, str | None] = {}
    for path, data in files.items():
        try:
            texts[path] = data.decode("utf-8")
        except UnicodeDecodeError:
            texts[path] = None
    return {"name": name, "files": texts}
