"""Roles: what the tools of a chat's thread may do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from langchain_core.messages import AIMessage, HumanMessage

from wick_graph.config.gateway import RolesConfig
from wick_graph.core.request import ModelRequest, peek
from wick_graph.errors import ToolError
from wick_graph.expressions import glob_match
from wick_graph.hooks.protocol import BaseHook, HookContext, Verdict, in_place
from wick_graph.messages import ToolCall
from wick_graph.tools.result import failure
from wick_graph.tracing import audit

Role = Literal["owner", "user", "untrusted"]

ROLES: Final[tuple[Role, ...]] = ("untrusted", "user", "owner")
"""The roles, the lowest first."""

SENDER: Final = "sender"
"""The key in a human message's `additional_kwargs` with the facts about its sender."""

_FLOOR: Final = "gateway_role"
"""The field of the channel `middleware` with the lowest role that a thread has had."""


def lowest(*roles: object) -> Role:
    """Return the lowest of some roles; anything else counts as untrusted."""
    return ROLES[min((ROLES.index(one) if one in ROLES else 0 for one in roles), default=0)]


def role_in(state: Mapping[str, Any]) -> Role | None:
    """Return the lowest role of all with a text in a thread; None if it belongs to no chat."""
    origin, kept = peek(state, "origin") or {}, peek(state, "middleware") or {}
    senders = [
        message.additional_kwargs[SENDER]
        for message in peek(state, "messages") or ()
        if isinstance(message, HumanMessage) and SENDER in message.additional_kwargs
    ]
    if not origin and _FLOOR not in kept and not senders:
        return None
    roles = (one.get("role") if isinstance(one, Mapping) else None for one in senders)
    return lowest(origin.get("role"), kept.get(_FLOOR, "owner"), *roles)


class RoleHook(BaseHook):
    """Hold the tools of a thread to the lowest role of all with a text in it.

    The role goes into `origin` when a turn begins, so that tools, later hooks and sub-agents see
    it; it never rises again in a thread. Each agent of a file with `channels:` or `gateway:` has
    it: a chat's thread keeps its role at the command line and in the server too. Other threads have
    none.
    """

    name = "roles"
    phases = ("before_agent", "modify_request", "after_model", "wrap_tool_call")

    def __init__(self, roles: RolesConfig) -> None:
        self._tools: Final[Mapping[str, Sequence[str]]] = dict(roles)

    def allows(self, role: Role | None, tool: str) -> bool:
        """Return whether a role may call a tool."""
        if role is None:
            return True
        rules = self._tools[role]
        if any(glob_match(tool, rule[1:]) for rule in rules if rule.startswith("!")):
            return False
        return any(glob_match(tool, rule) for rule in rules if not rule.startswith("!"))

    @in_place
    async def before_agent(self, state: Mapping[str, Any], ctx: HookContext) -> Any:
        """Write the role of the thread into its origin."""
        if (role := role_in(state)) is None:
            return None
        update = {"origin": {**(peek(state, "origin") or {}), "role": role}}
        return update if role == "owner" else {**update, "middleware": {_FLOOR: role}}

    @in_place
    async def modify_request(self, request: ModelRequest, ctx: HookContext) -> Any:
        """Offer the tools of the role alone."""
        role = role_in(request.state)
        allowed = [name for name in request.tools if self.allows(role, name)]
        return request if len(allowed) == len(request.tools) else request.with_tools(allowed)

    @in_place
    async def after_model(self, message: AIMessage, ctx: HookContext) -> Any:
        """Answer calls of other tools, before anyone is asked to approve them.

        An output is an answer, and no call.
        """
        role = role_in(ctx.state)
        refused = {
            call["id"] or "": self._refused(role, call["name"], ctx.thread_id)
            for call in message.tool_calls
            if call["name"] not in ctx.outputs and not self.allows(role, call["name"])
        }
        return Verdict(answers=refused) if refused else None

    @in_place
    async def wrap_tool_call(self, call: ToolCall, next: Any) -> Any:
        """Refuse a call of another tool, also when a thread goes on under new rules."""
        role = role_in(call.ctx.state)
        if self.allows(role, call.name):
            return await next(call)
        return failure(call, ToolError(self._refused(role, call.name, call.ctx.thread_id)))

    def _refused(self, role: Role | None, tool: str, thread_id: str | None) -> str:
        audit("role.refused", tool_name=tool, role=role, thread_id=thread_id)
        return (
            f"{tool} is not allowed here: this conversation has texts of a sender with the role "
            f"{role}; the owner can do it in a new conversation"
        )
