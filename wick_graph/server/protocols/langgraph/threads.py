"""Routes of assistants, threads and items in LangGraph's form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Header, Path, Query, Response
from langgraph.store.base import GetOp, PutOp
from pydantic import AfterValidator, Field
from starlette.responses import JSONResponse

from wick_graph import langgraph_config
from wick_graph.engine.result import new_thread_id
from wick_graph.errors import ThreadBusyError, ThreadNotFoundError
from wick_graph.server import schemas
from wick_graph.server.guard import Admin, Reader, RequestContext, Runner
from wick_graph.server.protocols.langgraph import asking, shapes
from wick_graph.server.protocols.langgraph.asking import (
    Json,
    PlaceForm,
    Unsupported,
    agent_named,
)
from wick_graph.server.schemas import Form
from wick_graph.service.options import Problem
from wick_graph.store import SqlStore
from wick_graph.store.cleanup import ABOUT
from wick_graph.store.threads import ThreadInfo

router: Final = APIRouter(prefix="/langgraph", tags=["langgraph"])

_OWN: Final = ABOUT[0]
"""The first label of the door's own items; clients cannot name it."""

_MOST: Final = 10_000
"""Threads that a search looks through."""

_TTL_MINUTES: Final = 5_256_000

Offset = Annotated[int, Field(ge=0, le=100_000), schemas.FROM_WHOLE]

Many = Annotated[int, Field(ge=1, le=1_000), schemas.FROM_WHOLE]


# --- Assistants: the agents, which no client changes.


class AssistantSearch(Form):
    """Which assistants to list or count."""

    graph_id: str | None = None
    name: str | None = None
    metadata: Json = Field(default={})
    limit: Many = 10
    offset: Offset = 0
    sort_by: Literal["assistant_id", "graph_id", "name", "created_at", "updated_at"] | None = None
    sort_order: Literal["asc", "desc"] | None = None
    select: list[shapes.AssistantField] | None = None


AssistantName = Annotated[
    str, Path(max_length=200, description="An assistant's id, or an agent's.", examples=["default"])
]


def _assistants(context: RequestContext, form: AssistantSearch) -> list[dict[str, Any]]:
    made = [
        one
        for one in map(shapes.assistant, context.tenant.agents)
        if form.graph_id in (None, one["graph_id"])
        and shapes.holds(one["metadata"], form.metadata)
        and (form.name or "").lower() in one["name"].lower()
    ]
    if form.sort_by is not None:
        made.sort(key=lambda one: str(one[form.sort_by or ""]), reverse=form.sort_order == "desc")
    return made


@router.post("/assistants/search", response_model=list[dict[str, Any]])
async def search_assistants(context: Reader, form: AssistantSearch) -> Any:
    """List assistants."""
    found = _assistants(context, form)
    page = found[form.offset : form.offset + form.limit]
    end = form.offset + len(page)
    more = {"X-Pagination-Next": str(end)} if end < len(found) else {}
    return JSONResponse([shapes.picked(one, form.select) for one in page], headers=more)


@router.post("/assistants/count", response_model=int)
async def count_assistants(context: Reader, form: AssistantSearch) -> Any:
    """Count assistants."""
    return len(_assistants(context, form))


@router.get("/assistants/{assistant_id}", response_model=dict[str, Any])
async def show_assistant(context: Reader, assistant_id: AssistantName) -> Any:
    """Describe an assistant."""
    return shapes.assistant(agent_named(context, assistant_id))


@router.get("/assistants/{assistant_id}/graph", response_model=dict[str, Any])
async def show_graph(
    context: Reader,
    assistant_id: AssistantName,
    xray: Annotated[str | None, Query(max_length=10, description="Sub-agents are threads.")] = None,
) -> Any:
    """Return the graph of an assistant."""
    agent = await context.agent(agent_named(context, assistant_id))
    return shapes.plain(agent.graph.get_graph().to_json())


@router.get("/assistants/{assistant_id}/schemas", response_model=dict[str, Any])
async def show_schemas(context: Reader, assistant_id: AssistantName) -> Any:
    """Return the JSON schemas of an assistant."""
    return shapes.graph_schemas(await context.agent(agent_named(context, assistant_id)))


Inner = Annotated[
    bool, Query(description="Sub-agents are threads of their own: it changes nothing.")
]


@router.get("/assistants/{assistant_id}/subgraphs", response_model=dict[str, Any])
async def show_subgraphs(
    context: Reader, assistant_id: AssistantName, recurse: Inner = False
) -> Any:
    """Return no subgraphs: sub-agents are threads of their own."""
    agent_named(context, assistant_id)
    return {}


@router.get("/assistants/{assistant_id}/subgraphs/{namespace}", response_model=dict[str, Any])
async def show_subgraph(
    context: Reader,
    assistant_id: AssistantName,
    namespace: Annotated[str, Path(max_length=200, description="It has none.")],
    recurse: Inner = False,
) -> Any:
    """Return no subgraphs: sub-agents are threads of their own."""
    return await show_subgraphs(context, assistant_id)


@router.post("/assistants/{assistant_id}/versions", response_model=list[dict[str, Any]])
async def versions(context: Reader, assistant_id: AssistantName, form: AssistantSearch) -> Any:
    """List the one version of an assistant."""
    return [shapes.assistant(agent_named(context, assistant_id))]


_FIXED: Final = "assistants are the agents of the configuration; no client changes them"


@router.post("/assistants", response_class=Response)
async def create_assistant(context: Admin) -> Response:
    """Refuse to make an assistant."""
    raise Problem(403, _FIXED)


@router.patch("/assistants/{assistant_id}", response_class=Response)
@router.delete("/assistants/{assistant_id}", response_class=Response)
@router.post("/assistants/{assistant_id}/latest", response_class=Response)
async def change_assistant(context: Admin, assistant_id: AssistantName) -> Response:
    """Refuse to change an assistant."""
    agent_named(context, assistant_id)
    raise Problem(403, _FIXED)


# --- Threads. Their metadata, which our threads have no place for, is among the items.


class Ttl(Form):
    """How long an idle thread is kept."""

    ttl: Annotated[float, Field(gt=0, le=_TTL_MINUTES)]
    """Minutes."""
    strategy: Literal["delete"] = "delete"


class ThreadForm(Form):
    """A new thread."""

    thread_id: schemas.ThreadIdText | None = None
    metadata: Json = Field(default={})
    if_exists: Literal["raise", "do_nothing"] = "raise"
    ttl: Ttl | None = None
    supersteps: Unsupported = None


class ThreadChange(Form):
    """Changes of a thread's metadata."""

    metadata: Json | None = None
    ttl: Unsupported = None


_Status = Literal["idle", "busy", "interrupted", "error"]


class ThreadSearch(Form):
    """Which threads to list or count."""

    metadata: Json = Field(default={})
    values: Unsupported = None
    ids: Annotated[list[schemas.ThreadIdText], Field(max_length=1_000)] | None = None
    status: _Status | None = None
    limit: Many = 10
    offset: Offset = 0
    sort_by: (
        Literal["thread_id", "status", "created_at", "updated_at", "state_updated_at"] | None
    ) = None
    sort_order: Literal["asc", "desc"] | None = None
    select: list[shapes.ThreadField] | None = None
    extract: Unsupported = None


class PruneForm(Form):
    """Which threads to prune."""

    thread_ids: Annotated[list[schemas.ThreadIdText], Field(max_length=1_000)]
    strategy: Literal["delete", "keep_latest"] = "delete"


def _items(context: RequestContext) -> SqlStore:
    return SqlStore.of(context.saver)


async def _metadata(context: RequestContext, thread_id: str) -> dict[str, Any]:
    item = await _items(context).aget(ABOUT, thread_id)
    return {} if item is None else item.value


async def _merge(context: RequestContext, thread_id: str, new: Mapping[str, Any]) -> None:
    """Add metadata to that of a thread, also to what another request has just added."""
    known = there = await _metadata(context, thread_id)
    while True:
        made = {**known, **new}
        write = PutOp(ABOUT, thread_id, made, index=False)
        found: Any = (await _items(context).abatch([GetOp(ABOUT, thread_id), write]))[0]
        before = {} if found is None else found.value
        if before == there:
            return
        known, there = {**known, **before}, made  # another one came before this write


async def _described(
    context: RequestContext, info: ThreadInfo, *, whole: bool = True
) -> dict[str, Any]:
    state = None
    if whole and info.steps:
        agent = await context.agent_of(info.thread_id)
        state = await agent.graph.aget_state(shapes.at(info.thread_id))
    return shapes.thread(info, await _metadata(context, info.thread_id), state)


@router.post("/threads", response_model=dict[str, Any])
async def create_thread(context: Runner, form: ThreadForm) -> Any:
    """Make a thread."""
    thread_id = form.thread_id or new_thread_id()
    agent = form.metadata.get("graph_id")
    named = agent if isinstance(agent, str) and agent in context.tenant.agents else None
    ttl = "store" if form.ttl is None else form.ttl.ttl * 60
    streams, most = context.streams, context.options.limits.threads_per_tenant
    made = await streams.run(streams.make_thread, thread_id, named, ttl, most)
    if made is None:
        raise Problem(429, "the tenant has too many threads; delete some")
    if not made and form.if_exists == "raise":
        raise Problem(409, "thread exists")
    if made:
        kept = {key: value for key, value in form.metadata.items() if key not in _COMPUTED}
        await _items(context).aput(ABOUT, thread_id, kept, index=False)
    return await _described(context, await context.thread(thread_id))


_COMPUTED: Final = ("graph_id", "assistant_id")


async def _found(context: RequestContext, form: ThreadSearch) -> list[dict[str, Any]]:
    """Return the threads of a search, without their values."""
    if form.ids is not None:
        every = [await context.saver.threads.aget(one) for one in form.ids]
        infos = [info for info in every if info is not None]
    else:
        infos = await context.saver.threads.alist(_MOST)
    made: list[dict[str, Any]] = []
    for info in infos:
        metadata = await _metadata(context, info.thread_id) if form.metadata else {}
        one = shapes.thread(info, metadata, None)
        if form.status in (None, one["status"]) and shapes.holds(one["metadata"], form.metadata):
            made.append(one)
    by = form.sort_by or "updated_at"
    made.sort(key=lambda one: str(one[by]), reverse=form.sort_order != "asc")
    return made


@router.post("/threads/search", response_model=list[dict[str, Any]])
async def search_threads(context: Reader, form: ThreadSearch) -> Any:
    """List threads with their values, the most recently used first."""
    found = await _found(context, form)
    made = []
    light = form.select is not None and not {"values", "interrupts"}.intersection(form.select)
    for one in found[form.offset : form.offset + form.limit]:
        info = await context.saver.threads.aget(one["thread_id"])
        if info is None:
            continue
        try:
            whole = await _described(context, info, whole=not light)
        except Problem:
            if await context.saver.threads.aget(info.thread_id) is not None:
                raise
            continue  # it was deleted meanwhile
        made.append(shapes.picked(whole, form.select))
    return JSONResponse(made)


@router.post("/threads/count", response_model=int)
async def count_threads(context: Reader, form: ThreadSearch) -> Any:
    """Count threads."""
    return len(await _found(context, form))


@router.post("/threads/prune", response_model=dict[str, int])
async def prune_threads(context: Runner, form: PruneForm) -> Any:
    """Delete threads, or all but their latest step; those that are busy or unknown are left."""
    pruned = 0
    for thread_id in form.thread_ids:
        if await context.saver.threads.aget(thread_id) is None:
            continue
        try:
            if form.strategy == "delete":
                pruned += await context.tenant.runs.delete(thread_id)
            else:
                await context.tenant.runs.must_rest(thread_id)
                await context.saver.threads.akeep_latest(thread_id, 1)
                pruned += 1
        except (ThreadBusyError, ThreadNotFoundError):
            continue  # or it has become so meanwhile
    return {"pruned_count": pruned}


@router.get("/threads/{thread_id}", response_model=dict[str, Any])
async def show_thread(
    context: Reader,
    thread_id: schemas.ThreadIdPath,
    include: Annotated[Literal[""] | None, Query(description="There are no more fields.")] = None,
) -> Any:
    """Describe a thread."""
    return JSONResponse(await _described(context, await context.thread(thread_id)))


@router.patch("/threads/{thread_id}", response_model=dict[str, Any])
async def change_thread(
    context: Runner,
    thread_id: schemas.ThreadIdPath,
    form: ThreadChange,
    prefer: Annotated[
        str | None, Header(max_length=100, description="return=minimal for none.")
    ] = None,
) -> Any:
    """Merge metadata into that of a thread."""
    info = await context.thread(thread_id)
    new = {key: value for key, value in (form.metadata or {}).items() if key not in _COMPUTED}
    await _merge(context, thread_id, new)
    if prefer == "return=minimal":
        return Response(status_code=204)
    return JSONResponse(await _described(context, info))


@router.delete("/threads/{thread_id}", status_code=204, response_class=Response)
async def delete_thread(context: Runner, thread_id: schemas.ThreadIdPath) -> Response:
    """Delete a thread and all its data; refused while it has a run."""
    await context.thread(thread_id)
    await context.tenant.runs.delete(thread_id)
    return Response(status_code=204)


@router.post("/threads/{thread_id}/copy", response_model=dict[str, Any])
async def copy_thread(context: Runner, thread_id: schemas.ThreadIdPath) -> Any:
    """Copy a thread with its history."""
    await context.thread(thread_id)
    target = new_thread_id()
    made = await context.saver.threads.afork(thread_id, target)
    metadata = await _metadata(context, thread_id)
    await _items(context).aput(ABOUT, target, metadata, index=False)
    return JSONResponse(await _described(context, made))


# --- States: read by all, written by administrators alone.


class StateQuery(Form):
    """Which step to show."""

    checkpoint: PlaceForm | None = None
    subgraphs: bool = False
    select: list[shapes.StateField] | None = None


class StateForm(Form):
    """A write to a thread's state."""

    values: Any = None
    as_node: Annotated[str, Field(max_length=200)] | None = None
    checkpoint: PlaceForm | None = None
    checkpoint_id: Annotated[str, Field(max_length=128)] | None = None


class NamedPlace(PlaceForm):
    """The address of a checkpoint that is named."""

    checkpoint_id: Annotated[str, Field(max_length=128)]


class NamedConfig(PlaceForm):
    """The address of a checkpoint in a config."""

    configurable: NamedPlace


class HistoryForm(Form):
    """Which steps to list."""

    limit: Many = 10
    before: Annotated[str, Field(max_length=128)] | NamedPlace | NamedConfig | None = None
    metadata: Json | None = None
    checkpoint: PlaceForm | None = None
    select: list[shapes.StateField] | None = None


async def _state(
    context: RequestContext, thread_id: str, checkpoint_id: str | None, select: Sequence[str] | None
) -> Any:
    agent = await context.agent_of(thread_id)
    found = await agent.graph.aget_state(shapes.at(thread_id, checkpoint_id))
    if checkpoint_id is not None and found.created_at is None:
        raise Problem(404, "checkpoint not found")
    return JSONResponse(shapes.picked(shapes.snapshot(thread_id, found), select))


CheckpointId = Annotated[str, Path(max_length=128, description="A step of the thread.")]


@router.get("/threads/{thread_id}/state", response_model=dict[str, Any])
async def state(
    context: Reader,
    thread_id: schemas.ThreadIdPath,
    subgraphs: Inner = False,
    select: Annotated[
        list[shapes.StateField] | None, Query(description="Only these fields.")
    ] = None,
) -> Any:
    """Return a thread's latest state."""
    return await _state(context, thread_id, None, select)


@router.get("/threads/{thread_id}/state/{checkpoint_id}", response_model=dict[str, Any])
async def state_at(
    context: Reader,
    thread_id: schemas.ThreadIdPath,
    checkpoint_id: CheckpointId,
    subgraphs: Inner = False,
    select: Annotated[
        list[shapes.StateField] | None, Query(description="Only these fields.")
    ] = None,
) -> Any:
    """Return a thread's state at a step."""
    return await _state(context, thread_id, checkpoint_id, select)


@router.post("/threads/{thread_id}/state/checkpoint", response_model=dict[str, Any])
async def state_of(context: Reader, thread_id: schemas.ThreadIdPath, form: StateQuery) -> Any:
    """Return a thread's state at a step."""
    at_step = None if form.checkpoint is None else form.checkpoint.checkpoint_id
    return await _state(context, thread_id, at_step, form.select)


@router.post("/threads/{thread_id}/state", response_model=dict[str, Any])
async def write_state(context: Admin, thread_id: schemas.ThreadIdPath, form: StateForm) -> Any:
    """Write to a thread's state, as one of its nodes."""
    agent = await context.agent_of(thread_id)
    await context.tenant.runs.must_rest(thread_id)
    named = form.checkpoint_id or (form.checkpoint.checkpoint_id if form.checkpoint else None)
    if form.as_node is not None and form.as_node not in agent.graph.nodes:
        raise Problem(404, f"as_node: there is no node {form.as_node!r:.80}")
    found = await agent.graph.aget_state(shapes.at(thread_id, named))
    if named is not None and found.created_at is None:
        raise Problem(404, "checkpoint not found")
    config = await asking.write_state(
        agent, shapes.at(thread_id, named), form.values, form.as_node, "values"
    )
    place = shapes.place(config)
    return {"checkpoint": place, langgraph_config.CONFIGURABLE: place, **(place or {})}


async def _history(context: RequestContext, thread_id: str, form: HistoryForm) -> Any:
    agent = await context.agent_of(thread_id)
    before = _before(form.before)
    found = agent.graph.aget_state_history(
        shapes.at(thread_id, form.checkpoint.checkpoint_id if form.checkpoint else None),
        filter=form.metadata,
        before=None if before is None else shapes.at(thread_id, before),
        limit=form.limit,
    )
    made = [shapes.snapshot(thread_id, step) async for step in found]
    return JSONResponse([shapes.picked(one, form.select) for one in made])


def _before(given: str | NamedPlace | NamedConfig | None) -> str | None:
    place = given.configurable if isinstance(given, NamedConfig) else given
    return place.checkpoint_id if isinstance(place, NamedPlace) else place


@router.post("/threads/{thread_id}/history", response_model=list[dict[str, Any]])
async def history(context: Reader, thread_id: schemas.ThreadIdPath, form: HistoryForm) -> Any:
    """Return a thread's steps, the latest first."""
    return await _history(context, thread_id, form)


@router.get("/threads/{thread_id}/history", response_model=list[dict[str, Any]])
async def read_history(
    context: Reader,
    thread_id: schemas.ThreadIdPath,
    limit: schemas.Limit = 10,
    before: Annotated[
        str | None, Query(max_length=128, description="Only checkpoints before this one.")
    ] = None,
) -> Any:
    """Return a thread's steps, the latest first."""
    return await _history(context, thread_id, HistoryForm(limit=limit, before=before))


# --- Items of the long-term store; the tenant is the connection's.


def _not_ours(labels: list[str]) -> list[str]:
    for label in labels:
        if not label or "." in label or "\0" in label:
            raise ValueError("a label is a text that is not empty and has no dot")
    if labels and labels[0] in (_OWN, "langgraph"):
        raise ValueError(f"the label {labels[0]} is not for clients")
    return labels


Labels = Annotated[
    list[Annotated[str, Field(max_length=200, pattern=r"^[^.\x00]+$")]],
    Field(max_length=32),
    AfterValidator(_not_ours),
]

_DOTTED: Final = r"^[^.\x00]+(\.[^.\x00]+)*$"

Key = Annotated[str, Field(min_length=1, max_length=500)]


class ItemForm(Form):
    """An item to keep."""

    namespace: Annotated[Labels, Field(min_length=1)]
    key: Key
    value: Json
    index: Annotated[Literal[False], schemas.FLAG] | list[str] | None = None
    ttl: Annotated[float, Field(gt=0, le=_TTL_MINUTES)] | None = None


class ItemKey(Form):
    """An item to delete."""

    namespace: Annotated[Labels, Field(min_length=1)]
    key: Key


class ItemSearch(Form):
    """Which items to find."""

    namespace_prefix: Labels = Field(default=[])
    filter: Json | None = None
    limit: Many = 10
    offset: Offset = 0
    query: Annotated[str, Field(max_length=10_000)] | None = None
    refresh_ttl: bool | None = None


class NamespaceSearch(Form):
    """Which namespaces to list."""

    prefix: Labels | None = None
    suffix: Labels | None = None
    max_depth: Annotated[int, Field(ge=1, le=32), schemas.FROM_WHOLE] | None = None
    limit: Many = 100
    offset: Offset = 0


async def _long_term(context: RequestContext) -> SqlStore:
    """Return the long-term store of the agents, or one without an index."""
    known = (await context.agent(None)).spec.long_term
    return known if isinstance(known, SqlStore) else _items(context)


def _item(found: Any) -> dict[str, Any]:
    made: dict[str, Any] = shapes.plain(found.dict())
    return made


@router.put("/store/items", status_code=204, response_class=Response)
async def put_item(context: Runner, form: ItemForm) -> Response:
    """Keep an item."""
    store = await _long_term(context)
    more = {} if form.ttl is None else {"ttl": form.ttl}
    try:
        await store.aput(tuple(form.namespace), form.key, form.value, form.index, **more)
    except ValueError as error:
        raise Problem(400, str(error)) from None
    return Response(status_code=204)


@router.get("/store/items", response_model=dict[str, Any])
async def get_item(
    context: Reader,
    key: Annotated[str, Query(min_length=1, max_length=500, description="Its key.")],
    namespace: Annotated[
        str, Query(max_length=2_000, pattern=_DOTTED, description="Labels with dots between.")
    ],
    refresh_ttl: Annotated[
        bool | None, Query(description="Whether it lives longer for being read.")
    ] = None,
) -> Any:
    """Return an item."""
    try:
        labels = tuple(_not_ours(namespace.split(".")))
    except ValueError as error:
        raise Problem(400, f"namespace: {error}") from None
    found = await (await _long_term(context)).aget(labels, key, refresh_ttl=refresh_ttl)
    if found is None:
        raise Problem(404, "item not found")
    return _item(found)


@router.delete("/store/items", status_code=204, response_class=Response)
async def delete_item(context: Runner, form: ItemKey) -> Response:
    """Delete an item."""
    await (await _long_term(context)).adelete(tuple(form.namespace), form.key)
    return Response(status_code=204)


@router.post("/store/items/search", response_model=dict[str, Any])
async def search_items(context: Reader, form: ItemSearch) -> Any:
    """Find items below a namespace."""
    store = await _long_term(context)
    wanted = form.offset + form.limit
    try:
        found = await store.asearch(
            tuple(form.namespace_prefix),
            query=form.query,
            filter=form.filter,
            limit=wanted if form.namespace_prefix else wanted + _MOST,
            refresh_ttl=form.refresh_ttl,
        )
    except (ValueError, TypeError) as error:
        raise Problem(400, f"filter: {error}"[:500]) from None
    made = [_item(one) for one in found if one.namespace[0] != _OWN]
    return {"items": made[form.offset : wanted]}


@router.post("/store/namespaces", response_model=dict[str, Any])
async def list_namespaces(context: Reader, form: NamespaceSearch) -> Any:
    """List namespaces."""
    store = await _long_term(context)
    found = await store.alist_namespaces(
        prefix=None if form.prefix is None else tuple(form.prefix),
        suffix=None if form.suffix is None else tuple(form.suffix),
        max_depth=form.max_depth,
        limit=form.offset + form.limit + 1,
    )
    made = [[*one] for one in found if one[0] != _OWN]
    return {"namespaces": made[form.offset : form.offset + form.limit]}


# --- What the product has not.


_NO_CRONS: Final = "crons: not supported; write a schedule for the gateway in agents.yaml"


CronId = Annotated[str, Path(max_length=128, description="A schedule.")]


@router.post("/runs/crons", response_class=Response)
@router.post("/runs/crons/search", response_class=Response)
@router.post("/runs/crons/count", response_class=Response)
async def crons(context: Runner) -> Response:
    """Refuse what is about schedules."""
    raise Problem(404, _NO_CRONS)


@router.post("/threads/{thread_id}/runs/crons", response_class=Response)
async def crons_of(context: Runner, thread_id: schemas.ThreadIdPath) -> Response:
    """Refuse a schedule."""
    await context.thread(thread_id)
    raise Problem(404, _NO_CRONS)


@router.patch("/runs/crons/{cron_id}", response_class=Response)
@router.delete("/runs/crons/{cron_id}", response_class=Response)
async def cron(context: Runner, cron_id: CronId) -> Response:
    """Refuse to change a schedule."""
    raise Problem(404, _NO_CRONS)
