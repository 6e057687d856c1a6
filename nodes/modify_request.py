"""modify_request: compose the next model request, and write it as an overlay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.errors import ParentCommand
from langgraph.types import Command

from wick_graph import langgraph_config
from wick_graph.core.request import (
    AGENT,
    ModelRequest,
    Section,
    from_overlay,
    state_view,
    to_overlay,
)
from wick_graph.hooks.onion import apply
from wick_graph.messages.content import is_plain
from wick_graph.runtime.context import NodeContext

LAST_CALL: Final = "This is your last step: answer now from what you have; no tool can be called."
"""Tells the model why the last call of a run has no tools."""

LAST_OUTPUT: Final = (
    "This is your last step: give the final answer now; no other tool can be called."
)
"""The same, for an agent that gives an output."""


async def modify_request(state: Mapping[str, Any], ctx: NodeContext) -> list[tuple[str, Any]]:
    """Write the overlay for the coming model call.

    Raises:
        HookError: A hook raised, or did not return a request.
        ParentCommand: A tool sent the run to the parent graph; its answer is stored by now.
    """
    if (commands := state.get("to_parent")) and langgraph_config.depth_of(ctx.config):
        raise ParentCommand(_merged(commands, state.get("messages") or ()))
    request, updates = await compose(state, ctx)
    return [*updates, ("request", to_overlay(request, ctx.spec.system_prompt))]


def _merged(commands: Sequence[Mapping[str, Any]], held: Sequence[BaseMessage]) -> Command[Any]:
    """Return the commands of one reply as one: all nodes, and each channel once.

    Lists of messages follow each other, since each may hold the answer to a call. Of other values
    that of the last call wins.
    """
    update: dict[str, Any] = {}
    for key, value in [pair for command in commands for pair in command["update"]]:
        new = [value] if key == "messages" and _is_message(value) else value
        known = update.get(key, ())
        update[key] = [*known, *new] if _are_messages(known) and _are_messages(new) else new
    if _are_messages(update.get("messages")):
        update["messages"] = _with_answers(update["messages"], held)
    goto = [to for command in commands for to in command["goto"]]
    goto = [to for at, to in enumerate(goto) if to not in goto[:at]]
    return Command(graph=Command.PARENT, update=update, goto=goto)


def _with_answers(sent: list[BaseMessage], held: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Add the answers to the other calls of a reply that is sent: they have run as well."""
    reply, answers = None, list[ToolMessage]()
    for message in reversed(held):
        if isinstance(message, AIMessage):
            reply = message
            break
        if isinstance(message, ToolMessage):
            answers.insert(0, message)
    if reply is None or all(message.id != reply.id for message in sent):
        return sent
    known = {message.tool_call_id for message in sent if isinstance(message, ToolMessage)}
    return [*sent, *(answer for answer in answers if answer.tool_call_id not in known)]


def _are_messages(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_message, value))


def _is_message(value: Any) -> bool:
    return isinstance(value, BaseMessage)


async def compose(
    state: Mapping[str, Any], ctx: NodeContext
) -> tuple[ModelRequest, list[tuple[str, Any]]]:
    """Make a request from the thread and the agent's prompt, and let each hook change it."""
    updates: list[tuple[str, Any]] = []
    request = initial(state, ctx)
    for layer in ctx.spec.hooks.modify_request:
        before = len(request.system)
        made, update = await apply(layer, ctx.bridge, ctx.listener, request, request.ctx)
        updates.extend(update.items())
        if not isinstance(made, ModelRequest):
            kind = "nothing" if made is None else f"a {type(made).__name__}"
            raise layer.error(f"returned {kind}, not the request")
        if made.model is not None or made.purpose != AGENT:  # the overlay could not keep them
            raise layer.error("sets the request's model or purpose; do that in wrap_model_call")
        known = ctx.tools(state)
        unknown = [name for name in made.tools if name not in known]
        if unknown:
            raise layer.error(f"offers the tool {unknown[0]!r}, which does not exist")
        if (wrong := _unstorable(made.settings)) is not None:
            raise layer.error(f"sets {wrong}, which no store can keep; do that in wrap_model_call")
        request = _signed(made, before, layer.hook)
    return request, updates


def initial(state: Mapping[str, Any], ctx: NodeContext) -> ModelRequest:
    """Make the request that the hooks start from."""
    prompt = ctx.spec.system_prompt
    tools = tuple(ctx.tools(state))
    last = state.get("iteration", 0) + 1 >= ctx.spec.max_iterations
    request = ModelRequest.of(
        state.get("messages") or [],
        system=(Section(prompt, "agent"),) if prompt else (),
        tools=tools,
        state=state_view(state),
        ctx=ctx.for_requests(state),
    )
    if last and tools:
        text = LAST_CALL if ctx.spec.output is None else LAST_OUTPUT
        request = replace(request.append_system(text, source="limit"), withheld=True)
    return request


async def resolve_request(
    state: Mapping[str, Any], ctx: NodeContext
) -> tuple[ModelRequest, list[tuple[str, Any]]]:
    """Return the request for `model`: from the overlay, or composed again if that is stale.

    After an edit of `messages` at a breakpoint, or a write by another program, no overlay fits.
    """
    request = from_overlay(
        state.get("request"), state, ctx.spec.system_prompt, ctx.for_requests(state)
    )
    return (request, []) if request is not None else await compose(state, ctx)


def _unstorable(settings: Mapping[str, Any]) -> str | None:
    """Return the name of a setting that is not plain data, which an overlay cannot hold."""
    return next((key for key, value in settings.items() if not is_plain(value)), None)


def _signed(request: ModelRequest, before: int, hook: str) -> ModelRequest:
    """Set the hook as the source of sections that it added without one."""
    if len(request.system) <= before and all(s.source for s in request.system):
        return request
    system = tuple(s if s.source else Section(s.text, hook) for s in request.system)
    return replace(request, system=system)
