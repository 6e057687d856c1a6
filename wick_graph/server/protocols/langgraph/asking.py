"""Requests for runs in LangGraph's form: checked, and turned into ours.

What a client may not say is refused by its name. Addresses and keys that begin with `__` are the
server's: those of a client have no effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal
from weakref import WeakValueDictionary

from langchain_core.messages import BaseMessage
from langgraph.graph import StateGraph
from langgraph.graph.state import CompiledStateGraph
from pydantic import AfterValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from wick_graph.engine.agent import Agent
from wick_graph.hooks.approvals import holds_decision, signed
from wick_graph.messages.validation import read_input
from wick_graph.server import schemas
from wick_graph.server.guard import RequestContext
from wick_graph.server.protocols.langgraph import shapes
from wick_graph.service.detached import row_of
from wick_graph.service.options import Problem, log
from wick_graph.service.runs import RunRequest
from wick_graph.store.server_rows import StreamRow

Strategy = Literal["reject", "enqueue", "interrupt", "rollback"]

Mode = Literal[
    "values",
    "updates",
    "messages",
    "messages-tuple",
    "custom",
    "tasks",
    "checkpoints",
    "debug",
    "events",
]

Modes = Mode | Annotated[list[Mode], Field(max_length=16)]

Json = dict[str, Any]

_NOTHING: Final[tuple[Any, ...]] = (None, False, [], {})


def _refused(given: Any) -> None:
    if not any(type(given) is type(one) and given == one for one in _NOTHING):
        raise PydanticCustomError("unsupported", "not supported; leave it out")


Unsupported = Annotated[Any, AfterValidator(_refused), WithJsonSchema({"enum": [*_NOTHING]})]
"""A field that the server does not serve; clients may send that it holds nothing."""

_SERVERS_OWN: Final = (
    "^(__.*|langgraph_.*|thread_id|run_id|assistant_id|graph_id|checkpoint_id|checkpoint_ns"
    "|checkpoint_map|user_id)$"
)
"""Keys of a config that the server alone sets: those of a client have no effect."""


class PlaceForm(schemas.Form):
    """The address of a checkpoint; its thread is that of the path."""

    thread_id: Any = None
    checkpoint_ns: Literal[""] | None = None
    checkpoint_id: Annotated[str, Field(max_length=128)] | None = None
    checkpoint_map: Any = None


class ConfigForm(schemas.Form):
    """A run's config; an agent's options are in its context."""

    configurable: (
        Annotated[
            dict[Annotated[str, Field(pattern=_SERVERS_OWN)], Any],
            Field(json_schema_extra={"additionalProperties": False}),
        ]
        | None
    ) = None
    recursion_limit: Any = None
    tags: Any = None
    metadata: Any = None


class Command(schemas.Form):
    """An answer to questions, or, with the scope `admin`, a write, and the node to go on at."""

    resume: Any = None
    update: Any = None
    goto: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    graph: Unsupported = None

    @property
    def writes(self) -> bool:
        """Whether it changes the thread's state."""
        return self.update is not None or self.goto is not None


class AskForm(schemas.Form):
    """A request for a run."""

    assistant_id: Annotated[str, Field(min_length=1, max_length=200)]
    input: Any = None
    command: Command | None = None
    stream_mode: Modes = "values"
    stream_subgraphs: bool = False
    stream_resumable: bool | None = None
    config: ConfigForm | None = None
    context: Json | None = None
    metadata: Json | None = None
    multitask_strategy: Strategy | None = None
    if_not_exists: Literal["create", "reject"] | None = None
    on_disconnect: Literal["cancel", "continue"] | None = None
    on_completion: Literal["keep"] | None = None
    durability: Literal["sync"] | None = None
    checkpoint: PlaceForm | None = None
    checkpoint_id: Annotated[str, Field(max_length=128)] | None = None
    checkpoint_during: Annotated[Literal[True], schemas.FLAG] | None = None
    interrupt_before: Unsupported = None
    interrupt_after: Unsupported = None
    webhook: Unsupported = None
    feedback_keys: Unsupported = None
    after_seconds: Unsupported = None
    strict_resume: Unsupported = None
    langsmith_tracer: Unsupported = None


class BatchForm(AskForm):
    """A request for a run among others."""

    thread_id: schemas.ThreadIdText | None = None


async def answers(
    context: RequestContext, agent: Agent, thread_id: str, given: Any
) -> dict[str, Any] | Any:
    """Return a client's answer in our form: decisions with the hashes of the calls that wait.

    Raises:
        Problem: The answer fits no question, or the token does not allow it.
    """
    config = shapes.at(thread_id)
    state = await agent.graph.aget_state(config)
    waiting = [*state.interrupts]
    calls = [one for one in waiting if shapes.is_approval(one.value)]
    others = {one.id for one in waiting} - {one.id for one in calls}
    by_id = isinstance(given, Mapping) and bool(given) and {*given} <= {one.id for one in waiting}
    made: Any = given
    if by_id:
        made = {key: value for key, value in given.items() if key in others}
        if about := [value for key, value in given.items() if key not in others]:
            if len(about) != 1:
                raise Problem(400, "resume: the calls are one question; answer it once")
            made |= shapes.decisions(about[0], calls, thread_id)
    elif calls and not others:
        made = shapes.decisions(given, calls, thread_id)
    elif calls:
        raise Problem(400, "resume: several questions wait; give a mapping from their ids")
    elif isinstance(given, Mapping) and holds_decision(given):
        raise Problem(409, "resume: no call waits for a decision")
    decided = holds_decision(made)
    if decided:
        context.require("approve")
    if not decided or {*made} & others:
        context.require("run")
    return signed(made, context.caller.who) if decided else made


# --- From a client's input only the user's new turns are taken.


def _listed(given: Any, agent: Agent) -> list[Any]:
    if isinstance(given, Mapping):
        for name in given:
            if name != "messages" and name in agent.graph.channels:
                raise Problem(400, f"input.{name}: only messages are taken; leave it out")
            if name != "messages":
                log.warning("input.%.80s is no channel of %s; it is dropped", name, agent.name)
        given = given.get("messages")
    if isinstance(given, str):
        return [given]
    if isinstance(given, Mapping):
        return [given]
    if not isinstance(given, list):
        raise Problem(400, "input.messages: give the user's new message")
    return given


_SAYS: Final[Mapping[str, str]] = {
    "user": "user",
    "human": "user",
    "system": "system",
    "developer": "system",
}


def _said(index: int, given: Any) -> tuple[str, Any, str | None]:
    """Return the role, content and id of a message; its role is empty if no user sent it."""
    if isinstance(given, str):
        return "user", given, None
    if isinstance(given, list) and len(given) == 2:
        given = {"role": given[0], "content": given[1]}
    if isinstance(given, Mapping) and given.get("lc") == 1:
        kind, fields = given.get("id"), given.get("kwargs")
        if not isinstance(kind, list) or not kind or not isinstance(fields, Mapping):
            raise Problem(400, f"input.messages[{index}]: give a message's type and content")
        name = str(kind[-1]).removesuffix("Chunk").removesuffix("Message")
        given = {"role": name.lower(), **fields}
    if not isinstance(given, Mapping):
        raise Problem(400, f"input.messages[{index}]: must be an object")
    role, key = given.get("role") or given.get("type"), given.get("id")
    if not isinstance(role, str) or (key is not None and not isinstance(key, str)):
        raise Problem(400, f"input.messages[{index}]: give its type and content as texts")
    return _SAYS.get(role, ""), given.get("content"), key or None


async def new_turns(
    context: RequestContext, agent: Agent, thread_id: str | None, given: Any
) -> tuple[list[dict[str, Any]], list[str | None]]:
    """Return what the user says after the last answer, and the ids of these messages.

    A message with an id that the thread knows is not new: it would replace the one there.

    Raises:
        MessageError: A message is refused.
        Problem: There is no new message of the user.
    """
    said = [_said(i, message) for i, message in enumerate(_listed(given, agent))]
    last = max((i for i, (role, _, _) in enumerate(said) if not role), default=-1)
    known: set[str | None] = set()
    if thread_id is not None and any(key for _, _, key in said):
        found = (await agent.graph.aget_state(shapes.at(thread_id))).values
        messages = found.get("messages", ()) if isinstance(found, Mapping) else ()
        known = {one.id for one in messages if isinstance(one, BaseMessage)} - {None}
    new = [one for one in said[last + 1 :] if one[2] not in known]
    made = [{"role": role, "content": content} for role, content, _ in new]
    if not any(one["role"] == "user" for one in made):
        raise Problem(400, "input.messages: there is no new message of the user")
    read_input(made, allow_system=agent.allow_client_system)
    return made, [key for _, _, key in new]


# --- Start a run.


def agent_named(context: RequestContext, name: str) -> str:
    """Return the agent of an assistant, which its id or the agent's own names.

    Raises:
        Problem: There is no such assistant.
    """
    if name in context.tenant.agents:
        return name
    for agent_id in context.tenant.agents:
        if shapes.assistant_id(agent_id) == name:
            return agent_id
    raise Problem(404, "assistant not found")


_lines: Final[WeakValueDictionary[tuple[str, str], asyncio.Lock]] = WeakValueDictionary()
"""By tenant and thread: runs that wait for their turn, in the order of their requests."""


async def start(
    context: RequestContext,
    form: AskForm,
    thread_id: str | None,
    *,
    named: bool = True,
    frontend_tools: Sequence[dict[str, Any]] = (),
) -> StreamRow:
    """Start a run as its strategy says.

    Args:
        context: The request's.
        form: What to do.
        thread_id: The thread; None for a new one.
        named: Whether the caller names the thread.
        frontend_tools: Tools that the caller has.

    Raises:
        Problem: The request is refused.
        ThreadBusyError: The strategy is `reject`, and a run goes on in the thread.
    """
    resume = None if form.command is None else form.command.resume
    if form.command is not None and (resume is not None or form.command.writes) and form.input:
        raise Problem(400, "input: a command takes none; leave it out")
    if resume is not None and form.command is not None and form.command.writes:
        raise Problem(400, "command: an answer writes nothing else; leave update and goto out")
    agent = await context.agent(agent_named(context, form.assistant_id))
    known = None if thread_id is None else await context.saver.threads.aget(thread_id)
    if thread_id is not None and known is None and form.if_not_exists != "create":
        raise Problem(404, "thread not found")
    await _check_head(form, agent, thread_id)
    strategy = form.multitask_strategy or "enqueue"
    queued = strategy == "enqueue" and context.tenant.runs.is_external
    if thread_id is None or strategy == "reject" or queued:
        request = await _request(context, form, agent, thread_id, frontend_tools)
        return await _begin(context, request, thread_id, named, waits=queued)
    line = _lines.setdefault((context.tenant.name, thread_id), asyncio.Lock())
    async with line:
        await _make_room(context, thread_id, strategy)
        request = await _request(context, form, agent, thread_id, frontend_tools)
        return await _begin(context, request, thread_id, named)


async def _begin(
    context: RequestContext,
    request: RunRequest,
    thread_id: str | None,
    named: bool,
    *,
    waits: bool = False,
) -> StreamRow:
    return row_of(await context.begin(request, thread_id if named else None, waits=waits))


def _labels(form: AskForm) -> dict[str, Any]:
    """Return what is kept with a run for its clients."""
    labels: dict[str, Any] = {"multitask_strategy": form.multitask_strategy or "enqueue"}
    if form.metadata:
        labels["metadata"] = form.metadata
    if form.stream_mode != "values":
        labels["stream_mode"] = sorted(modes_of(form.stream_mode))
    if form.stream_subgraphs:
        labels["stream_subgraphs"] = True
    return labels


async def _request(
    context: RequestContext,
    form: AskForm,
    agent: Agent,
    thread_id: str | None,
    frontend_tools: Sequence[dict[str, Any]],
) -> RunRequest:
    """Return what a run is to do; write what a command writes."""
    labels, command = _labels(form), form.command or Command()
    made: dict[str, Any] = {"agent_id": agent.name, "context": form.context}
    made["frontend_tools"] = [*frontend_tools]
    if form.input is not None and command.resume is None and not command.writes:
        context.require("run")
        messages, ids = await new_turns(context, agent, thread_id, form.input)
        if any(ids):
            labels["ids"] = ids
        return RunRequest(kind="message", messages=messages, labels=labels, **made)
    if thread_id is None:
        raise Problem(400, "input: a new thread needs a message")
    await context.check_waiting_agent(thread_id, agent)
    if command.resume is not None:
        made["answer"] = await answers(context, agent, thread_id, command.resume)
    else:
        context.require("run")
    if command.writes:
        await _write(context, agent, thread_id, command)
    return RunRequest(kind="resume", labels=labels, **made)


async def _write(context: RequestContext, agent: Agent, thread_id: str, command: Command) -> None:
    """Write a command's update to a thread, and let it go on at the node that it names.

    Raises:
        Problem: It is refused; the thread is as it was.
    """
    context.require("admin")
    await context.tenant.runs.must_rest(thread_id)
    source = None
    if command.goto is not None:
        source = _before(agent, command.goto)
    elif not (await agent.graph.aget_state(shapes.at(thread_id))).next:
        raise Problem(400, "command.update: no step is left; name one by goto, or write the state")
    await write_state(agent, shapes.at(thread_id), command.update, source, "command.update")


def _before(agent: Agent, node: str) -> str:
    """Return the node after which only this one comes.

    Raises:
        Problem: There is none.
    """
    graph = agent.graph
    builder = graph.builder if isinstance(graph, CompiledStateGraph) else StateGraph(dict)
    for source, target in sorted(builder.edges):
        others = [one for one, after in builder.edges if one == source and after != node]
        if target == node and not others and source not in builder.branches:
            return source
    raise Problem(400, f"command.goto: no edge alone leads to {node!r:.80}")


async def write_state(
    agent: Agent, config: Any, values: Any, as_node: str | None, where: str
) -> Any:
    """Write to a thread's state; return the config of the new checkpoint.

    Raises:
        Problem: The graph refuses it.
    """
    try:
        return await agent.graph.aupdate_state(config, values, as_node)
    except (TypeError, ValueError, KeyError) as error:
        raise Problem(400, f"{where}: {error}"[:500]) from None
    except Exception as error:
        if type(error).__module__ != "langgraph.errors":
            raise
        raise Problem(400, f"{where}: {error}"[:500]) from None


async def _check_head(form: AskForm, agent: Agent, thread_id: str | None) -> None:
    """Refuse to begin at an earlier checkpoint than the thread's last.

    Raises:
        Problem: The checkpoint is not the last.
    """
    named = form.checkpoint_id or (form.checkpoint.checkpoint_id if form.checkpoint else None)
    if named is None:
        return
    head = None if thread_id is None else await agent.graph.aget_state(shapes.at(thread_id))
    known = None if head is None else shapes.place(head.config)
    if known is None or known["checkpoint_id"] != named:
        raise Problem(409, "checkpoint: a run begins at the last one; copy the thread to go back")


async def _make_room(context: RequestContext, thread_id: str, strategy: str) -> None:
    """Wait for the thread's run, or end it; `rollback` removes what it has written."""
    runs = context.tenant.runs
    if strategy == "enqueue":
        while (live := runs.live.get(thread_id)) is not None and live.task is not None:
            await asyncio.wait([live.task])
            await asyncio.sleep(0)
        return
    live = runs.live.get(thread_id)
    wrote = live is not None and not live.waits  # of one that waits to open, nothing is there
    busy = wrote or await context.saver.leases.aepoch(thread_id) is not None
    await runs.cancel(thread_id)
    if strategy == "rollback" and busy:
        await context.saver.threads.awithdraw(thread_id)


def modes_of(given: str | Sequence[str]) -> frozenset[str]:
    """Return the modes of a stream."""
    return frozenset([given] if isinstance(given, str) else given)
