"""Handoffs: one thread and one graph, in which another agent takes over prompt, tools and model."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Final

from wick_graph.core.state import StateSchema, last
from wick_graph.errors import ConfigError, HookError
from wick_graph.hooks import BudgetHook, Hooks, compile_hooks
from wick_graph.hooks.guardrails import TRANSFER
from wick_graph.hooks.protocol import BaseHook
from wick_graph.messages import ToolResult
from wick_graph.messages.base import portable_tool_name
from wick_graph.models.resolve import ModelChoice
from wick_graph.runtime.context import ACTIVE, AgentSpec
from wick_graph.tools.bound import BoundTool, bind_tool
from wick_graph.tools.function_tool import FuncTool
from wick_graph.tools.protocol import ToolContext

if TYPE_CHECKING:
    from wick_graph.engine.agent import Agent

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Handoff:
    """An agent that can take over a conversation."""

    agent: Agent[Any]
    """Its prompt, tools and model take over; of its hooks only those that join do."""
    description: str
    """When it takes over, in words for the model."""


def team(
    spec: AgentSpec,
    hooks: Sequence[Any],
    handoffs: Mapping[str, Handoff],
    model: ModelChoice | None = None,
) -> AgentSpec:
    """Return an agent's specification with the agents that can take over from it.

    Args:
        spec: The agent by itself.
        hooks: Its hooks.
        handoffs: The others by the names that the models see.
        model: A model for all of them.

    Raises:
        ConfigError: A name, a description or an agent is refused.
    """
    if not handoffs:
        return spec
    for name, one in handoffs.items():
        _check(spec, name, one)
    if ACTIVE in spec.state.hints:
        raise ConfigError(f"state_schema: the channel {ACTIVE} is that of handoffs; rename yours")
    state = StateSchema({**spec.state.hints, ACTIVE: Annotated[str, last]})
    words = {spec.name: "Give the conversation back to the agent that began it."}
    words |= {name: one.description.strip() for name, one in handoffs.items()}
    all_tools = {name: _transfer(name, text) for name, text in words.items()}
    if len({tool.name for tool in all_tools.values()}) < len(all_tools):
        raise ConfigError("handoffs: two names are too alike for their tools; use other names")
    joined = {name: _joining(name, one.agent) for name, one in handoffs.items()}
    counts = [hook for mine in joined.values() for hook in mine if isinstance(hook, BudgetHook)]
    own = [*hooks, *(hook.counting() for hook in counts[:1] if not _counts(hooks))]
    made = {name: compile_hooks([*mine, *own], state.names) for name, mine in joined.items()}
    entry = compile_hooks(own, state.names)
    held = any(one.withholds for one in (entry, *made.values()))

    def part(name: str, source: AgentSpec, hooks: Hooks, parts: Any) -> AgentSpec:
        transfers = [tool for other, tool in all_tools.items() if other != name]
        made = replace(
            spec,
            model=model or source.model,
            system_prompt=source.system_prompt,
            tools=_together(source.tools, transfers),
            fixed=frozenset(tool.name for tool in transfers),
            beside=source.beside,
            hooks=replace(hooks, withholds=held),
            state=state,
            parts=parts,
        )
        _check_tools(made)
        return made

    parts = {name: part(name, one.agent.spec, made[name], {}) for name, one in handoffs.items()}
    return part(spec.name, spec, entry, parts)


def _check(spec: AgentSpec, name: str, one: Any) -> None:
    if not isinstance(one, Handoff):
        raise ConfigError(f"handoffs: {name} is a Handoff(agent, description), not {one!r:.80}")
    if name == spec.name:
        raise ConfigError(f"handoffs: {name!r:.80} is the agent itself; name another agent")
    if not _NAME.fullmatch(name):
        raise ConfigError(f"handoffs: {name!r:.80} is refused; use another name of letters and _")
    if not one.description.strip():
        raise ConfigError(f"handoffs: {name} needs a description, for the model")
    other = one.agent.spec
    if other.guest or other.parts:
        what = "is a LangGraph graph" if other.guest else "has handoffs of its own"
        raise ConfigError(f"handoffs: {name} {what}; name an agent with a prompt and tools")
    if other.context is not None and other.context != spec.context:
        raise ConfigError(f"handoffs: {name} has another context_schema; give both the same")
    if other.long_term not in (None, spec.long_term):
        raise ConfigError(
            f"handoffs: {name} has another long-term store; give {spec.name} the same one"
        )
    if missing := [channel for channel in other.state.names if channel not in spec.state.hints]:
        raise ConfigError(
            f"handoffs: {name} needs the channel {missing[0]}; add it to the state_schema of "
            f"{spec.name}"
        )


def _transfer(name: str, description: str) -> BoundTool:
    """Make the tool that hands the conversation over; a repeated call does no harm."""

    def hand_over(args: dict[str, Any], ctx: ToolContext) -> ToolResult:
        return ToolResult(ctx.call_id, ctx.name, f"{name} takes over.", update={ACTIVE: name})

    parameters: dict[str, Any] = {"type": "object", "properties": {}}
    text = f"Hand the conversation over to {name}: {description}"
    named = portable_tool_name(f"{TRANSFER}{name}")
    return bind_tool(FuncTool(named, text, parameters, hand_over, replay="safe"))


def _together(tools: Sequence[BoundTool], more: Sequence[BoundTool]) -> tuple[BoundTool, ...]:
    taken = {tool.name for tool in tools} & {tool.name for tool in more}
    if taken:
        raise ConfigError(f"handoffs: the tool {taken.pop()} exists already; rename yours")
    return (*tools, *more)


def _check_tools(spec: AgentSpec) -> None:
    """Refuse a hook with a tool named as a handoff; a hook that fails here may do better later."""
    try:
        spec.toolbox.at({})
    except HookError as error:
        if isinstance(error.__cause__, ConfigError):
            raise ConfigError(f"handoffs: {error}") from None


def _joining(name: str, agent: Agent[Any]) -> list[Any]:
    """Return an agent's hooks that bind the team while it is active, each with its own name."""
    found = []
    for hook in agent.hooks:
        if isinstance(hook, BaseHook) and hook.joins:
            mine = hook.limiting() if isinstance(hook, BudgetHook) else copy(hook)
            mine.name = f"{name}.{hook.name}"
            found.append(mine)
    return found


def _counts(hooks: Sequence[Any]) -> bool:
    return any(isinstance(hook, BudgetHook) for hook in hooks)
