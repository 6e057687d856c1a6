"""What a middleware may do here, and why the rest is refused before anything runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final

from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    PIIMiddleware,
)
from langchain.agents.middleware.internal_call_transformer import InternalCallTransformer

from wick_graph.errors import ConfigError

Method = tuple[Callable[..., Any], bool]
"""What a middleware does in a phase, and whether it is an `async def`."""

_JUMPS: Final = {
    "before_agent": frozenset({"end", "model"}),
    "before_model": frozenset({"end", "model"}),
    "after_model": frozenset({"end", "tools"}),
}
"""Where each phase may jump to; the other ways are not in the graph."""


def method_of(middleware: AgentMiddleware[Any, Any, Any], phase: str) -> Method | None:
    """Find a middleware's method for a phase: its `def`, else its `async def`, else nothing."""
    for name, is_async in ((phase, False), (f"a{phase}", True)):
        if getattr(type(middleware), name) is not getattr(AgentMiddleware, name):
            return _called(getattr(middleware, name), name), is_async
    return None


def _called(fn: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Call a method with the state, the runtime and the config, of which it may leave out the last.

    LangGraph gives a node what its parameters name; these are the names that middleware use.
    """
    if "wrap" in name or "config" in inspect.signature(fn).parameters:
        return fn
    return lambda state, runtime, config: fn(state, runtime)


def check(middleware: Any) -> None:
    """Refuse what cannot be carried over.

    Raises:
        ConfigError: It is no middleware, or does something that has no place in this loop.
    """
    if not isinstance(middleware, AgentMiddleware):
        raise ConfigError(
            f"{middleware!r:.80} is no LangChain middleware; pass an AgentMiddleware object"
        )
    why = _refusal(middleware)
    if why is not None:
        raise ConfigError(f"the middleware {middleware.name} {why}")


def _refusal(middleware: AgentMiddleware[Any, Any, Any]) -> str | None:
    if isinstance(middleware, HumanInTheLoopMiddleware):
        return (
            "would ask the model again after each answer; write approvals: into the agent instead"
        )
    if method_of(middleware, "after_agent") is not None:
        return "acts when the run has ended (after_agent), where this loop has no step"
    for phase, known in _JUMPS.items():
        methods = (getattr(middleware, name) for name in (phase, f"a{phase}"))
        jumps = [to for method in methods for to in getattr(method, "__can_jump_to__", ())]
        unknown = [jump for jump in jumps if jump not in known]
        if unknown:
            return f"jumps from {phase} to {unknown[0]!r}, a way that this loop does not have"
    if isinstance(middleware, PIIMiddleware) and not middleware.apply_to_output:
        return None  # what tools return is redacted for the model, which is what it is there for
    if any(made is not InternalCallTransformer for made in middleware.transformers):
        return (
            "rewrites the stream of a reply, which readers get here as the model writes it; "
            "apply it to the input or to tool results only"
        )
    return None
