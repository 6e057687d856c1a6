"""The tool by which an agent gives a task to another one, and waits for its answer.

The other agent works in a thread of its own, whose id is made of the call's ledger key. So the
same call always means the same thread: repeated after a crash it goes on where the child stood,
and repeated after the child's end it gives the same answer. The child knows the task alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from langchain_core.messages import AIMessage, BaseMessage

from wick_graph import keys
from wick_graph.errors import ConfigError, RunCancelled, ToolError, WickError
from wick_graph.messages import ToolCall, ToolResult
from wick_graph.reducers import add_numbers
from wick_graph.runtime import run_of
from wick_graph.subagents import records
from wick_graph.subagents.child import Child
from wick_graph.tools.func import FuncTool
from wick_graph.tools.protocol import ToolContext
from wick_graph.tools.result import failure
from wick_graph.views import peek

if TYPE_CHECKING:
    from wick_graph.agent import Agent
    from wick_graph.result import Result

NAME: Final = "delegate_to_agent"
MAX_DEPTH: Final = 3
"""Agents below the one that the user speaks to."""
MAX_CALLS: Final = 16
"""Tasks that one run may give away."""


@dataclass(frozen=True, slots=True)
class Subagent:
    """An agent that tasks can be given to."""

    agent: Agent | Callable[[], Agent]
    """The agent, or what gives it when it is first needed; it keeps its threads in a database."""
    description: str
    """What it is good for, in words for the model."""
    inherit_approvals: bool = True
    """Whether the rules of approval of the agent that gives the task bind it, too, beside its own.
    Rules that this agent is bound by itself always do."""


def delegation(
    agents: Mapping[str, Subagent], *, max_depth: int = MAX_DEPTH, max_calls: int = MAX_CALLS
) -> FuncTool[..., Any]:
    """Make the tool `delegate_to_agent`.

    The child's questions and approvals are the parent's: they come to the user under the parent's
    thread, and are answered there. Its tokens and its cost count for the parent too; what happens
    in it comes to a reader as `SubagentEvent`. It is cancelled with the parent.

    Args:
        agents: By the names under which the model knows them.
        max_depth: How far down tasks may be given on, counted from the run that the user began.
        max_calls: Tasks that one run may give away.

    Raises:
        ConfigError: There is no agent, one has no description, or a limit is less than 1.
    """
    _check(agents, max_depth, max_calls)

    async def delegate_to_agent(args: dict[str, Any], ctx: ToolContext) -> ToolResult:
        name = args["agent"]
        path = keys.path_of(ctx.config)
        if len(path) >= max_depth:
            raise ToolError(
                f"no task can be given on here: {' > '.join(path)} is as deep as is allowed"
            )
        if _before(ctx) >= max_calls:
            raise ToolError(f"this run has given away {max_calls} tasks, which is the limit")
        given = agents[name].agent
        agent = given() if callable(given) else given
        child = Child(agent, name, thread_of(ctx), ctx, (*path, name), brought(agents[name], ctx))
        try:
            result = await child.answer(args["task"])
        except RunCancelled:
            raise ToolError(f"{name} was stopped") from None
        except WickError as error:
            return _failed(error, child, args["task"])
        return _result(result, child, args["task"])

    listed = "\n".join(f"- {name}: {one.description.strip()}" for name, one in agents.items())
    return FuncTool(
        NAME,
        "Give a task to another agent and wait for its answer. It knows nothing of this "
        f"conversation: say all that it needs.\n{listed}",
        _parameters(list(agents)),
        delegate_to_agent,
        replay="safe",  # a call that is repeated finds its child where it stood
        timeout=None,
        agents={name: one.description for name, one in agents.items()},
    )


def brought(one: Subagent, ctx: ToolContext) -> dict[str, Any]:
    """Say by which rules of approval a task is bound, in the form of a config's key."""
    if ctx.gate is None:
        return {}
    rules = ctx.gate.rules if one.inherit_approvals else ctx.gate.own_rules
    return {keys.RULES: {"parent": ctx.thread_id, "rules": rules}} if rules else {}


def _check(agents: Mapping[str, Subagent], max_depth: int, max_calls: int) -> None:
    if not agents:
        raise ConfigError("delegation needs at least one agent")
    if max_depth < 1 or max_calls < 1:
        raise ConfigError("max_depth and max_calls must be at least 1")
    for name, one in agents.items():
        if not one.description.strip():
            raise ConfigError(f"the sub-agent {name} needs a description, for the model")


def thread_of(ctx: ToolContext) -> str:
    """Make the id of the thread in which a call's child works: the same for the same call."""
    made = blake2b(f"{ctx.thread_id}\0{ctx.key}".encode("utf-8", "surrogatepass"), digest_size=12)
    return f"th_{made.hexdigest()}"


def _parameters(names: Sequence[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "agent": {"type": "string", "enum": list(names), "description": "Who is to do it"},
            "task": {
                "type": "string",
                "minLength": 1,
                "description": "The whole task, with all that is needed to do it",
            },
        },
        "required": ["agent", "task"],
    }


def _before(ctx: ToolContext) -> int:
    """Count the tasks that this run has given away before this call."""
    messages: Sequence[BaseMessage] = peek(ctx.state, "messages") or ()
    made = 0
    for message in reversed(messages):
        if message.type == "human":
            break
        if isinstance(message, AIMessage):
            calls = message.tool_calls
            if any(call["id"] == ctx.call_id for call in calls):
                calls = calls[: ctx.index]
            made += sum(call["name"] == ctx.name for call in calls)
    return made


def counted(result: Result, ctx: ToolContext, update: Mapping[str, Any]) -> dict[str, Any]:
    """Add what a child used to what its parent used, and to an update of the parent's state."""
    run_of(ctx.config).usage += result.thread_usage
    made = {**update, "usage": add_numbers(update.get("usage"), result.thread_usage.to_dict())}
    if result.thread_cost is not None:
        spent = {k: v for k, v in result.thread_cost.to_dict().items() if type(v) is int and v}
        both = {**spent, **{f"run_{key}": value for key, value in spent.items()}}
        made["cost"] = add_numbers(update.get("cost"), both)
    return made


def _failed(error: WickError, child: Child, task: str) -> ToolResult:
    """Say that the child failed, and record the pair of request and error."""
    ctx, name, task_id = child.ctx, child.name, child.thread_id
    call = ToolCall(id=ctx.call_id, name=ctx.name)
    told = failure(call, ToolError(f"{name} failed: {error}"))
    pair = [
        records.request(ctx, name, task, task_id),
        records.failure(ctx, name, error, task_id),
    ]
    return told.replace(update={"messages": pair})


def _result(result: Result, child: Child, task: str) -> ToolResult:
    """Give the child's answer, add what it used to what its parent used, and record the pair."""
    ctx, name, task_id = child.ctx, child.name, child.thread_id
    text = result.text or f"{name} gave no answer: it stopped because of {result.stopped_because}"
    pair = [
        records.request(ctx, name, task, task_id, records.began_at(result)),
        records.response(ctx, name, text, task_id, result),
    ]
    update = counted(result, ctx, {"messages": pair})
    return ToolResult(tool_call_id=ctx.call_id, name=ctx.name, output=text, update=update)
