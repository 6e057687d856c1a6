"""The files of an agent's backend: list, read, fetch, write."""

from __future__ import annotations

import asyncio
import posixpath
from typing import Annotated, Any, Final
from urllib.parse import quote

from fastapi import APIRouter, Query
from starlette.responses import Response

from wick_graph.backends import FileSystem
from wick_graph.backends.protocol import Text
from wick_graph.config.fields import AGENT_ID
from wick_graph.errors import ToolError
from wick_graph.hooks.reading import is_missing
from wick_graph.server import forms
from wick_graph.server.asking import Asker, Reader, Runner
from wick_graph.server.problems import Problem

router: Final = APIRouter(tags=["files"])
PathQuery = Annotated[str, Query(min_length=1, max_length=4_096)]
AgentQuery = Annotated[str | None, Query(pattern=f"^{AGENT_ID.pattern}$")]


@router.get("/agents/files/download", response_class=Response)
async def download(asker: Reader, path: PathQuery, agent_id: AgentQuery = None) -> Response:
    """Return a file as it is, to be saved."""
    found = await _read(await _backend(asker, agent_id), path)
    data = found.text.encode("utf-8", "surrogateescape")
    if len(data) != found.size:  # a part of it under its name would be taken for all of it
        raise Problem(409, "only whole text files are given out; this one is too long or no UTF-8")
    name = quote(path.rsplit("/", 1)[-1])
    disposition = f"attachment; filename*=UTF-8''{name}"
    return Response(
        data,
        media_type="application/octet-stream",
        headers={"Content-Disposition": disposition},
    )


@router.put("/agents/files/upload")
async def upload(asker: Runner, form: forms.UploadForm) -> dict[str, Any]:
    """Write a file."""
    backend = await _backend(asker, form.agent_id)
    data = form.content.encode()
    try:
        await asyncio.to_thread(backend.write, form.path, data)
    except (ToolError, OSError) as error:
        raise _problem(error) from None
    return {"status": "ok", "path": form.path, "size": len(data)}


@router.get("/agents/{agent_id}/files/list")
async def list_files(
    asker: Reader, agent_id: forms.AgentIdPath, path: PathQuery = "."
) -> dict[str, Any]:
    """List a folder."""
    backend = await _backend(asker, agent_id)
    try:
        listing = await asyncio.to_thread(backend.ls, path)
    except (ToolError, OSError) as error:
        raise _problem(error) from None
    entries = [
        {"name": e.name, "path": posixpath.join(path, e.name), "type": e.type, "size": e.size}
        for e in listing.entries
    ]
    return {"path": path, "entries": entries}


@router.get("/agents/{agent_id}/files/read")
async def read(asker: Reader, agent_id: forms.AgentIdPath, path: PathQuery) -> dict[str, Any]:
    """Return a file's text, as far as one answer goes; `notes` say what is not as in the file."""
    found = await _read(await _backend(asker, agent_id), path)
    return {"path": path, "content": found.text, "size": found.size, "notes": [*found.notes]}


async def _backend(asker: Asker, agent_id: str | None) -> FileSystem:
    named = agent_id or asker.tenant.agents.default_id
    backend = await asyncio.to_thread(asker.tenant.agents.backend, named)
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
