"""Routes of agents: description, graph, hooks, files, tools."""

from __future__ import annotations

import asyncio
import posixpath
from functools import partial
from typing import Annotated, Any, Final, Literal
from urllib.parse import quote

from fastapi import APIRouter, Path, Query, Response
from pydantic import BeforeValidator, Discriminator, Field, Tag, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from wick_graph.backends import FileSystem
from wick_graph.backends.protocol import Text
from wick_graph.config import AgentConfig, MemoryConfig, ModelConfig, SkillsConfig
from wick_graph.config.fields import AGENT_ID, BLOCK_TAG, NAME_TAG, RESERVED_IDS, form_of
from wick_graph.errors import ConfigError, RefusedError, ToolError
from wick_graph.hooks.onion import Hooks
from wick_graph.hooks.prompt_files import BackendReader, is_missing
from wick_graph.hooks.protocol import PHASES
from wick_graph.hooks.skills import catalogue
from wick_graph.picture import picture_of
from wick_graph.server import schemas
from wick_graph.server.guard import Admin, Reader, RequestContext, Runner
from wick_graph.server.schemas import agent_answer
from wick_graph.service.options import Problem
from wick_graph.tools.builtin_tools import BUILTINS
from wick_graph.tools.http import HTTPTool
from wick_graph.tools.toolsets import RESERVED, check_free
from wick_graph.web import Client

# --- The agents: description, graph, hooks, skills.


agent_router: Final = APIRouter(tags=["agents"])


_AgentId = Annotated[str, Field(pattern=f"^{AGENT_ID.pattern}$")]

_SERVERS: Final = ("workdir", "folder", "readable", "image", "docker_host", "shared")


class BackendForm(schemas.Form):
    """Where an agent's files are and where its commands run; the folder is the tenant's own."""

    type: Literal["local", "docker"]
    execute: Literal["auto", "require", "bwrap", "landlock", "off"] = "auto"
    """As in agents.yaml; commands never run without a sandbox."""

    @model_validator(mode="before")
    @classmethod
    def _only_what_is_asked(cls, given: Any) -> Any:
        named = [key for key in _SERVERS if isinstance(given, dict) and key in given]
        if named:
            raise PydanticCustomError(
                "server", "the server chooses {k}; leave it out", {"k": named[0]}
            )
        return given


def _as_json(block: Any) -> Any:
    """Read the whole numbers of a model's block as JSON does: agents.yaml takes no 5.0 for 5."""
    if not isinstance(block, dict):
        return block
    made = {key: schemas.whole(value) for key, value in block.items()}
    if isinstance(others := made.get("fallbacks"), list):
        made["fallbacks"] = [_as_json(one) for one in others]
    return made


class SubagentForm(schemas.Form):
    """An agent of the tenant to which this one can give tasks."""

    description: Annotated[str, Field(max_length=4_000, pattern=schemas.VISIBLE)]
    background: bool = False


class AgentForm(schemas.Form):
    """An agent of the caller's tenant: the id, and keys of agents.yaml."""

    agent_id: _AgentId
    """The id of the new agent."""
    name: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """A name for people."""
    model: (
        Annotated[
            Annotated[str, Field(pattern=schemas.VISIBLE), Tag(NAME_TAG)]
            | Annotated[ModelConfig, BeforeValidator(_as_json), Tag(BLOCK_TAG)],
            Discriminator(form_of),
        ]
        | None
    ) = None
    """A name, or a block; a `base_url` needs an `api_key` of its own."""
    system_prompt: str | None = None
    """Its instructions."""
    tools: (
        Annotated[
            list[Annotated[str, Field(json_schema_extra={"enum": [*BUILTINS]})]],
            Field(fail_fast=True, max_length=100),
        ]
        | None
    ) = None
    """Names of built-in tools."""
    context_window: Annotated[int, Field(ge=1, le=10**9), schemas.FROM_WHOLE] | None = None
    """Tokens that the model reads at most."""
    max_iterations: Annotated[int, Field(ge=1, le=1000), schemas.FROM_WHOLE] | None = None
    """Model calls of one run at most."""
    backend: BackendForm | None = None
    """Where its files are, and its commands run."""
    skills: SkillsConfig | None = None
    """Folders below that of the backend."""
    memory: MemoryConfig | None = None
    """Files below the folder of the backend."""
    subagents: dict[_AgentId, SubagentForm] | None = None
    """Agents of the tenant, by id."""


@agent_router.get("/agents", response_model=list[schemas.AgentAnswer])
@agent_router.get("/agents/", response_model=list[schemas.AgentAnswer], include_in_schema=False)
async def list_agents(context: Reader) -> Any:
    """List the agents; one that cannot be built is there with its error."""
    agents, listed = context.tenant.agents, []
    for agent_id, config in agents.file.agents.items():
        try:
            listed.append(agent_answer(agent_id, await context.agent(agent_id), config))
        except Problem as problem:
            if agent_id in agents:  # else it was removed meanwhile
                listed.append(agent_answer(agent_id, None, config, problem.error))
    return listed


@agent_router.post("/agents", response_model=schemas.AgentAnswer, status_code=201)
@agent_router.post(
    "/agents/", response_model=schemas.AgentAnswer, status_code=201, include_in_schema=False
)
async def add(context: Admin, form: AgentForm) -> Any:
    """Add an agent for the caller's tenant, at all servers and workers of the database."""
    if form.agent_id in RESERVED_IDS:
        raise Problem(400, f"agent_id: {form.agent_id!r} is reserved for the server's own paths")
    given = form.model_dump(exclude={"agent_id"}, exclude_unset=True, exclude_none=True)
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
    await context.tenant.agents.check(config, _LOOK_UP_SECONDS)
    await asyncio.to_thread(context.tenant.agents.add, form.agent_id, config)
    return await _answer(context, form.agent_id)


@agent_router.get("/agents/{agent_id}", response_model=schemas.AgentAnswer)
async def show(context: Reader, agent_id: schemas.AgentIdPath) -> Any:
    """Describe an agent."""
    return await _answer(context, agent_id)


@agent_router.delete("/agents/{agent_id}", status_code=204, response_class=Response)
async def remove(context: Admin, agent_id: schemas.AgentIdPath) -> Response:
    """Remove an agent that the caller's tenant added."""
    await asyncio.to_thread(context.tenant.agents.remove, agent_id)
    return Response(status_code=204)


@agent_router.get("/agents/{agent_id}/flow")
async def flow(context: Reader, agent_id: schemas.AgentIdPath) -> dict[str, Any]:
    """Describe an agent's graph: nodes, edges, hook layers, tools."""
    agent = await context.agent(agent_id)
    hooks = agent.spec.hooks
    return {
        "agent_id": agent_id,
        "max_iterations": agent.spec.max_iterations,
        "model": agent.spec.model.name,
        "hooks": [{"name": name, "phases": _phases(hooks, name)} for name in hooks.names],
        "tools": [*(tools := agent.spec.toolbox.at({}))],
        "schemas": {name: tool.schema["function"]["parameters"] for name, tool in tools.items()},
        "graph": picture_of(agent.graph).to_dict(),
    }


@agent_router.patch("/agents/{agent_id}/hooks")
async def switch_hooks(
    context: Admin, agent_id: schemas.AgentIdPath, form: schemas.HooksForm
) -> dict[str, Any]:
    """Switch an agent's hooks on and off for the caller's tenant, at all servers and workers."""
    switch = partial(context.tenant.agents.switch, on=form.add, off=form.remove)
    left = await asyncio.to_thread(switch, agent_id)
    return {"agent_id": agent_id, "hooks": left}


@agent_router.get("/agents/{agent_id}/skills")
async def skills(context: Reader, agent_id: schemas.AgentIdPath) -> dict[str, Any]:
    """List the skills that an agent finds."""
    config = context.tenant.agents.config(agent_id)
    paths = [*(config.skills.paths if config.skills else ())]
    found = []
    backend = await asyncio.to_thread(context.tenant.agents.backend, agent_id) if paths else None
    if backend is not None:
        found = await asyncio.to_thread(catalogue, BackendReader(backend), paths)
    shown = [{**skill, "enabled": True} for skill in found]
    return {"skills": shown, "paths": paths, "extra_paths": []}


async def _answer(context: RequestContext, agent_id: str) -> dict[str, Any]:
    config = context.tenant.agents.config(agent_id)
    return agent_answer(agent_id, await context.agent(agent_id), config)


def _phases(hooks: Hooks, name: str) -> list[str]:
    return [phase for phase in PHASES if any(layer.hook == name for layer in hooks.layers(phase))]


# --- The files of an agent's backend: list, read, fetch, write.


file_router: Final = APIRouter(tags=["files"])

PathQuery = Annotated[
    str, Query(min_length=1, max_length=4_096, description="A path in the agent's folder.")
]

AgentQuery = Annotated[
    str | None,
    Query(
        pattern=f"^{AGENT_ID.pattern}$", description="The agent; the default one if none is named."
    ),
]


@file_router.get("/agents/files/download", response_class=Response)
async def download(context: Reader, path: PathQuery, agent_id: AgentQuery = None) -> Response:
    """Download a file unchanged."""
    found = await _read(await _backend(context, agent_id), path)
    data = found.text.encode("utf-8", "surrogateescape")
    if len(data) != found.size:  # a part under this name would look like the whole file
        raise Problem(
            409, "only whole text files can be downloaded; this one is too long or not UTF-8"
        )
    name = quote(path.rsplit("/", 1)[-1])
    disposition = f"attachment; filename*=UTF-8''{name}"
    return Response(
        data,
        media_type="application/octet-stream",
        headers={"Content-Disposition": disposition},
    )


@file_router.put("/agents/files/upload")
async def upload(context: Runner, form: schemas.UploadForm) -> dict[str, Any]:
    """Write a file."""
    backend = await _backend(context, form.agent_id)
    data = form.content.encode()
    try:
        await asyncio.to_thread(backend.write, form.path, data)
    except (ToolError, OSError) as error:
        raise _problem(error) from None
    return {"status": "ok", "path": form.path, "size": len(data)}


@file_router.get("/agents/{agent_id}/files/list")
async def list_files(
    context: Reader, agent_id: schemas.AgentIdPath, path: PathQuery = "."
) -> dict[str, Any]:
    """List a folder."""
    backend = await _backend(context, agent_id)
    try:
        listing = await asyncio.to_thread(backend.ls, path)
    except (ToolError, OSError) as error:
        raise _problem(error) from None
    entries = [
        {"name": e.name, "path": posixpath.join(path, e.name), "type": e.type, "size": e.size}
        for e in listing.entries
    ]
    return {"path": path, "entries": entries}


@file_router.get("/agents/{agent_id}/files/read")
async def read(context: Reader, agent_id: schemas.AgentIdPath, path: PathQuery) -> dict[str, Any]:
    """Return a file's text, cut to one answer; `notes` list differences to the file."""
    found = await _read(await _backend(context, agent_id), path)
    return {"path": path, "content": found.text, "size": found.size, "notes": [*found.notes]}


async def _backend(context: RequestContext, agent_id: str | None) -> FileSystem:
    named = agent_id or context.tenant.agents.default_id
    backend = await asyncio.to_thread(context.tenant.agents.backend, named)
    if backend is None:
        raise Problem(409, "the agent has no backend")
    return backend


async def _read(backend: FileSystem, path: str) -> Text:
    try:
        return await asyncio.to_thread(backend.read, path)
    except (ToolError, OSError) as error:
        raise _problem(error) from None


def _problem(error: Exception) -> Problem:
    missing = isinstance(error, FileNotFoundError) or is_missing(error)
    text = str(error) if isinstance(error, ToolError) else "not found"
    return Problem(404 if missing else 409, text)


# --- Tools of other servers: register, list, deregister.


tool_router: Final = APIRouter(tags=["tools"])

_LOOK_UP_SECONDS: Final = 5.0

NamePath = Annotated[str, Path(pattern="^[a-zA-Z0-9_-]{1,64}$", description="The tool.")]


@tool_router.get("/agents/tools/available")
async def available(context: Reader, agent_id: AgentQuery = None) -> dict[str, Any]:
    """List the tools of an agent, and where each comes from."""
    spec = (await context.agent(agent_id)).spec
    named = agent_id or context.tenant.agents.default_id
    tools = context.tenant.agents.tools
    registered = {tool.name for scope in (None, named) for tool in tools.list(scope)}
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


@tool_router.post("/agents/tools/register")
async def register(context: Admin, form: schemas.ToolForm) -> dict[str, Any]:
    """Register a tool that another server runs, for one agent or for all of the tenant.

    An address to which no call would be sent is refused. A server that does not answer yet is
    accepted: `health` says so, and the tool works once the server answers.
    """
    _check_agent(context, form.agent_id)
    if form.agent_id is not None and (await context.agent(form.agent_id)).spec.guest:
        raise Problem(409, f"{form.agent_id} is a LangGraph graph, which brings its own tools")
    client = context.service.callbacks
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
        await asyncio.to_thread(context.tenant.agents.register, tool, form.agent_id)
    except ConfigError as error:
        raise Problem(409 if form.name in RESERVED else 400, str(error)) from None
    except RefusedError as error:
        raise Problem(409, f"callback_url: {error}") from None
    made = {"status": "registered", "name": form.name, "agent_id": form.agent_id}
    return {**made, "health": health}


@tool_router.delete("/agents/tools/deregister/{name}")
async def deregister(context: Admin, name: NamePath, agent_id: AgentQuery = None) -> dict[str, Any]:
    """Deregister a tool."""
    if not await asyncio.to_thread(context.tenant.agents.deregister, name, agent_id):
        _check_agent(context, agent_id)
        raise Problem(404, "tool not found")
    return {"status": "deregistered", "name": name}


async def _health(tool: HTTPTool, client: Client) -> str:
    """Return whether a tool's server answers.

    Raises:
        RefusedError: No call would be sent to its address.
    """
    try:
        await client.check(tool.callback_url, _LOOK_UP_SECONDS)
    except RefusedError:
        raise
    except ToolError as error:  # an unknown host may become known
        return f"{error}; calls fail until it answers"
    return await tool.health()


def _source(name: str, registered: set[str]) -> str:
    return "external" if name in registered else "registered"


def _check_agent(context: RequestContext, agent_id: str | None) -> None:
    if agent_id is not None:
        context.tenant.agents.config(agent_id)
