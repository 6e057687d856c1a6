"""Our agents, threads, runs and steps as LangGraph's JSON."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Any, Final

from langgraph.types import StateSnapshot
from pydantic import Field
from pydantic_core import to_jsonable_python

from wick_graph import langgraph_config
from wick_graph.engine.agent import Agent
from wick_graph.hooks.approvals import KIND, shown_in
from wick_graph.service.options import Problem
from wick_graph.store.server_rows import StreamRow
from wick_graph.store.threads import ThreadInfo

_NAMES: Final = uuid.UUID("6ba7b821-9dad-11d1-80b4-00c04fd430c8")
"""LangGraph's namespace for the ids of its default assistants."""

_BEGUN: Final = datetime(2025, 1, 1, tzinfo=UTC).isoformat()
"""The date of every assistant: configuration has none."""

_HIDDEN: Final = frozenset({"request"})
"""Channels that hold nothing between two steps."""

_THREADS: Final[Mapping[str, str]] = {
    "idle": "idle",
    "running": "busy",
    "waiting": "interrupted",
    "failed": "error",
}

_RUNS: Final[Mapping[str, str]] = {
    "queued": "pending",
    "running": "running",
    "quarantined": "running",
    "interrupted": "interrupted",
    "cancelled": "interrupted",
    "failed": "error",
}

_DECISIONS: Final[Mapping[str, str]] = {
    "approve": "approve",
    "edit": "edit",
    "reject": "reject",
    "respond": "respond",
}


def plain(value: Any) -> Any:
    """Return a value as JSON data: messages as their fields, bytes as base64, others as texts."""
    return to_jsonable_python(
        value, inf_nan_mode="null", bytes_mode="base64", serialize_unknown=True, by_alias=True
    )


AssistantField = Annotated[
    str,
    Field(
        pattern=(
            "^(assistant_id|graph_id|name|description|config|context|metadata|version|created_at"
            "|updated_at)$"
        )
    ),
]


ThreadField = Annotated[
    str,
    Field(
        pattern=(
            "^(thread_id|created_at|updated_at|state_updated_at|metadata|status|config|context"
            "|values|interrupts|error)$"
        )
    ),
]


StateField = Annotated[
    str,
    Field(
        pattern=(
            "^(values|next|tasks|metadata|created_at|checkpoint|parent_checkpoint|interrupts"
            "|checkpoint_id|parent_checkpoint_id)$"
        )
    ),
]


RunField = Annotated[
    str,
    Field(
        pattern=(
            "^(run_id|thread_id|assistant_id|created_at|updated_at|status|metadata|kwargs"
            "|multitask_strategy)$"
        )
    ),
]


def picked(made: Mapping[str, Any], select: Sequence[str] | None) -> dict[str, Any]:
    """Return the named fields of an answer; all without names."""
    return {name: made[name] for name in (made if select is None else select)}


def holds(value: Any, wanted: Any) -> bool:
    """Return whether a value has all that another one has."""
    if isinstance(value, Mapping) and isinstance(wanted, Mapping):
        return all(name in value and holds(value[name], one) for name, one in wanted.items())
    return bool(value == wanted)


# --- Assistants.


def assistant_id(agent_id: str) -> str:
    """Return the id of an agent's assistant; it is the same on every server."""
    return str(uuid.uuid5(_NAMES, agent_id))


def assistant(agent_id: str) -> dict[str, Any]:
    """Describe an agent as an assistant, which no client can change."""
    return {
        "assistant_id": assistant_id(agent_id),
        "graph_id": agent_id,
        "name": agent_id,
        "description": None,
        "config": {},
        "context": {},
        "metadata": {"created_by": "system"},
        "version": 1,
        "created_at": _BEGUN,
        "updated_at": _BEGUN,
    }


def graph_schemas(agent: Agent) -> dict[str, Any]:
    """Return the JSON schemas of an agent's graph; None for one that cannot be described."""
    graph, made = agent.graph, dict[str, Any](graph_id=agent.name, config_schema=None)
    for name, make in (
        ("input_schema", graph.get_input_jsonschema),
        ("output_schema", graph.get_output_jsonschema),
        ("context_schema", graph.get_context_jsonschema),
    ):
        made[name] = None
        with suppress(Exception):  # Pydantic has no schema for a type of the user
            made[name] = plain(make())
    return {**made, "state_schema": made["output_schema"]}


# --- Threads, runs and steps.


def thread(
    info: ThreadInfo, metadata: Mapping[str, Any], state: StateSnapshot | None
) -> dict[str, Any]:
    """Describe a thread, with its values if its state is given."""
    touched = info.last_access.isoformat()
    asked = [] if state is None else questions(info.thread_id, state.interrupts)
    own = {} if info.agent is None else {"graph_id": info.agent, **_of_agent(info.agent)}
    return {
        "thread_id": info.thread_id,
        "created_at": info.created.isoformat(),
        "updated_at": touched,
        "state_updated_at": touched,
        "metadata": {**metadata, **own},
        "status": _THREADS[info.status],
        "config": {},
        "context": {},
        "values": values(state) if state is not None and state.values else None,
        "interrupts": {one["id"]: [one] for one in asked},
        "error": info.last_error,
    }


def _of_agent(agent_id: str) -> dict[str, Any]:
    return {"assistant_id": assistant_id(agent_id)}


def run(row: StreamRow) -> dict[str, Any]:
    """Describe a run."""
    labels = row.asked.get("labels", {})
    ended = row.started if row.ended is None else row.ended
    return {
        "run_id": row.run_id,
        "thread_id": row.thread_id,
        "assistant_id": assistant_id(row.asked["agent"]),
        "created_at": _date(row.started),
        "updated_at": _date(ended),
        "status": _RUNS.get(row.status, "success"),
        "metadata": {**labels.get("metadata", {}), **_of_agent(row.asked["agent"])},
        "kwargs": {},
        "multitask_strategy": labels.get("multitask_strategy", "enqueue"),
    }


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def values(state: StateSnapshot) -> dict[str, Any]:
    """Return the channels of a state."""
    found = state.values
    if not isinstance(found, Mapping):  # the whole state of a guest may be one value
        return {"__root__": plain(found)}
    made: dict[str, Any] = plain({k: v for k, v in found.items() if k not in _HIDDEN})
    return made


def at(thread_id: str, checkpoint_id: str | None = None) -> Any:
    """Return the config of a thread, or of one of its checkpoints."""
    step = {} if checkpoint_id is None else {langgraph_config.CHECKPOINT_ID: checkpoint_id}
    return langgraph_config.with_configurable(
        None, **{langgraph_config.THREAD_ID: thread_id}, **step
    )


def place(config: Any) -> dict[str, Any] | None:
    """Return a checkpoint's address; None if there is none."""
    at = langgraph_config.configurable(config)
    if not at.get(langgraph_config.CHECKPOINT_ID):
        return None
    return {
        "thread_id": at[langgraph_config.THREAD_ID],
        "checkpoint_ns": at.get(langgraph_config.CHECKPOINT_NS, ""),
        "checkpoint_id": at[langgraph_config.CHECKPOINT_ID],
        "checkpoint_map": None,
    }


def snapshot(thread_id: str, state: StateSnapshot) -> dict[str, Any]:
    """Describe a step of a thread."""
    asked = questions(thread_id, state.interrupts)
    first = next((task.id for task in state.tasks if task.interrupts), None)
    nowhere = {
        "thread_id": thread_id,
        "checkpoint_ns": "",
        "checkpoint_id": None,
        "checkpoint_map": None,
    }
    return {
        "values": values(state),
        "next": [*state.next],
        "tasks": [task(one, asked if one.id == first else []) for one in state.tasks],
        "metadata": plain(state.metadata or {}),
        "created_at": state.created_at,
        "checkpoint": place(state.config) or nowhere,
        "parent_checkpoint": place(state.parent_config),
        "interrupts": asked,
        "checkpoint_id": (place(state.config) or nowhere)["checkpoint_id"],
        "parent_checkpoint_id": (place(state.parent_config) or nowhere)["checkpoint_id"],
    }


def task(found: Any, asked: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Describe a task of a step; the first one that waits has all questions of the step."""
    return {
        "id": found.id,
        "name": found.name,
        "path": plain(found.path),
        "error": None if found.error is None else str(found.error),
        "interrupts": [*asked],
        "checkpoint": None,
        "state": None,
        "result": plain(found.result),
    }


# --- Questions: approvals as LangChain's `HITLRequest`, others as they are.


def is_approval(value: Any) -> bool:
    """Return whether a question is about a call."""
    return isinstance(value, Mapping) and value.get("kind") == KIND


def questions(thread_id: str, interrupts: Iterable[Any]) -> list[dict[str, Any]]:
    """Return the open questions of a thread; approvals come first, and together as one.

    LangChain's clients draw one request with all calls of a reply, and answer it with one list of
    decisions. The calls' hashes stay here.
    """
    found = [*interrupts]
    calls = [one for one in found if is_approval(one.value)]
    made = [_request(calls)] if calls else []
    others = [one for one in found if not is_approval(one.value)]
    return made + [{"id": one.id, "value": plain(shown_in(thread_id, one.value))} for one in others]


def _request(calls: Sequence[Any]) -> dict[str, Any]:
    asked = [one.value for one in calls]
    actions = [
        {"name": one["tool"], "args": plain(one["args"]), "description": one.get("why") or ""}
        for one in asked
    ]
    reviews = {
        one["tool"]: {
            "action_name": one["tool"],
            "allowed_decisions": [name for name in _DECISIONS if name in one["decisions"]],
        }
        for one in asked
    }
    value = {"action_requests": actions, "review_configs": [*reviews.values()]}
    return {"id": calls[0].id, "value": value}


def decisions(given: Any, calls: Sequence[Any], thread_id: str) -> dict[str, Any]:
    """Return our decisions about waiting calls, by interrupt; the hashes are the server's.

    Raises:
        Problem: It is no list of decisions about these calls.
    """
    made = given.get("decisions") if isinstance(given, Mapping) else None
    if not isinstance(made, list) or len(made) != len(calls):
        raise Problem(
            400, f'resume: {len(calls)} calls wait; answer {{"decisions": […]}} with one for each'
        )
    found = {}
    for i, one in enumerate(calls):
        known = shown_in(thread_id, one.value).get("hash")
        bound = {} if known is None else {"hash": known}
        found[one.id] = {**_decision(i, made[i], one.value), **bound}
    return found


def _decision(index: int, given: Any, asked: Mapping[str, Any]) -> dict[str, Any]:
    where = f"resume.decisions[{index}]"
    kind = given.get("type") if isinstance(given, Mapping) else None
    if kind not in _DECISIONS:
        raise Problem(400, f"{where}.type: use one of {', '.join(_DECISIONS)}")
    if kind == "edit":
        action = given.get("edited_action")
        if not isinstance(action, Mapping) or not isinstance(action.get("args"), Mapping):
            raise Problem(400, f"{where}.edited_action: give the call's name and args")
        if action.get("name", asked["tool"]) != asked["tool"]:
            raise Problem(400, f"{where}.edited_action.name: only the args of a call can change")
        return {"decision": "edit", "args": dict(action["args"])}
    if kind == "approve":
        return {"decision": "approve"}
    message = given.get("message") or ""
    if not isinstance(message, str):
        raise Problem(400, f"{where}.message: must be a text")
    return {"decision": kind, "message": message}
