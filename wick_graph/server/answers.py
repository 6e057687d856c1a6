"""From our objects to the answers' JSON."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from langgraph.types import StateSnapshot

from wick_graph import keys
from wick_graph.agent import Agent
from wick_graph.config import AgentConfig
from wick_graph.hooks.approvals import shown_in
from wick_graph.messages import to_wick
from wick_graph.result import Result
from wick_graph.store.keeping.streams import StreamRow
from wick_graph.store.threads import ThreadInfo

_PROMPT: Final = 120


def run_answer(result: Result) -> dict[str, Any]:
    """Return the end of a run."""
    asked = [{"id": i.id, "value": i.value} for i in result.interrupts]
    first: Any = asked[0]["value"] if asked else None
    first = first if isinstance(first, Mapping) else {}
    waiting = result.stopped_because == "interrupted"
    return {
        "trace_id": result.run_id,
        "run_id": result.run_id,
        "thread_id": result.thread_id,
        "response": result.text,
        "stopped_because": result.stopped_because,
        "model": result.model,
        "tool_calls": result.tool_calls,
        "todos": result.todos,
        "files": result.files,
        "usage": result.usage.to_dict(),
        "thread_usage": result.thread_usage.to_dict(),
        "structured_response": None,
        "interrupted": waiting,
        "interrupted_tool": first.get("tool") if waiting else None,
        "interrupted_args": first.get("args") if waiting else None,
        "interrupts": asked,
        **({} if result.cost is None else {"cost": result.cost.to_dict()}),
    }


def agent_answer(agent_id: str, agent: Agent, config: AgentConfig) -> dict[str, Any]:
    """Return what is told of an agent."""
    prompt, spec = config.system_prompt, agent.spec
    return {
        "agent_id": agent_id,
        "name": config.name,
        "model": spec.model.name,
        "system_prompt": prompt if len(prompt) <= _PROMPT else prompt[:_PROMPT] + "...",
        "tools": [*spec.toolbox.at({})],
        "hooks": [*spec.hooks.names],
        "subagents": [*getattr(config, "subagents", ())],
        "backend_type": None if config.backend is None else config.backend.type,
        "skills": [*(config.skills.paths if config.skills else ())],
        "memory": [*(config.memory.paths if config.memory else ())],
        "has_interrupt_on": bool(config.approvals),
        "max_iterations": spec.max_iterations,
    }


def thread_answer(info: ThreadInfo) -> dict[str, Any]:
    """Return what is told of a thread."""
    return {
        "thread_id": info.thread_id,
        "agent": info.agent,
        "status": info.status,
        "title": info.title,
        "parent": info.parent,
        "created": _written(info.created),
        "last_access": _written(info.last_access),
        "expires_at": _written(info.expires_at),
        "pinned": info.pinned,
        "stopped_because": info.stopped_because,
        "last_error": info.last_error,
        "steps": info.steps,
    }


def stream_answer(row: StreamRow) -> dict[str, Any]:
    """Return what is told of a run."""
    return {
        "run_id": row.run_id,
        "thread_id": row.thread_id,
        "agent_id": row.asked["agent"],
        "status": row.status,
        "started": row.started,
        "ended": row.ended,
        "first_event": row.first,
    }


def state_answer(state: StateSnapshot) -> dict[str, Any]:
    """Return a step of a thread: what it holds, and what comes next."""
    values = dict(state.values)
    messages = values.pop("messages", ())
    at, before = keys.configurable(state.config), keys.configurable(state.parent_config)
    return {
        "thread_id": at.get(keys.THREAD_ID),
        "checkpoint_id": at.get(keys.CHECKPOINT_ID),
        "parent_checkpoint_id": before.get(keys.CHECKPOINT_ID),
        "created_at": state.created_at,
        "next": [*state.next],
        "step": (state.metadata or {}).get("step"),
        "messages": [to_wick(message) for message in messages],
        "values": {key: value for key, value in values.items() if key != "request"},
        "interrupts": [
            {"id": i.id, "value": shown_in(at.get(keys.THREAD_ID), i.value)}
            for i in state.interrupts
        ],
    }


def _written(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).isoformat()
