"""BudgetHook: count the cost of a run and a thread, and stop at a budget."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, Literal

from langchain_core.messages import AIMessage

from wick_graph.core.request import AGENT, ModelRequest, peek
from wick_graph.core.usage import (
    Cost,
    Prices,
    cost_of,
    noted,
    published_price,
    require_prices,
    usage_of,
)
from wick_graph.errors import ConfigError
from wick_graph.hooks.protocol import BaseHook, HookContext, in_place
from wick_graph.messages import message_tokens

RUN: Final = "run_"
"""Prefix of the keys in the state's `cost` that count only the current run."""

_RESET: Final = {f"{RUN}{key}": None for key in ("nano_usd", "unpriced", "tokens")}


@dataclass(frozen=True, slots=True)
class Budget:
    """A spending limit; None means no limit.

    Raises:
        ConfigError: A limit is not above zero.
    """

    usd: Decimal | float | None = None
    """Dollars."""
    tokens: int | None = None
    """Tokens, read and written."""
    per: Literal["run", "thread"] = "run"

    def __post_init__(self) -> None:
        if any(limit is not None and limit <= 0 for limit in (self.usd, self.tokens)):
            raise ConfigError("a budget must be more than zero; leave it out for no limit")

    def spent_up(self, state: Mapping[str, Any]) -> str:
        """Return why no further call may be made; empty if one may."""
        prefix = RUN if self.per == "run" else ""
        counted = peek(state, "cost") or {}
        cost, tokens = Cost.of(counted, prefix), counted.get(f"{prefix}tokens", 0)
        if self.tokens is not None and tokens >= self.tokens:
            return f"the budget of {self.tokens} tokens for this {self.per} is used up"
        if self.usd is None:
            return ""
        if cost.unpriced:
            return (
                "no price is known for this model, so its budget in dollars cannot be checked; "
                "set the budget in tokens"
            )
        if cost.usd >= Decimal(str(self.usd)):
            return f"the budget of ${self.usd:.2f} for this {self.per} is used up"
        return ""


class BudgetHook(BaseHook):
    """Count the cost of every model call, and make no further one once the budget is spent.

    The run then ends with a text that says so, and `stopped_because` is `limit`. No call is cut
    short, so the last one may exceed the budget. Place it last: the innermost layer also sees the
    calls that other hooks make. An agent that runs inside a tool call counts if it has this hook
    too.

    Args:
        budget: The limit; without one the cost is only counted.
        prices: Returns the dollars of a call; by default the published prices, which need the
            extra `cost`.

    Raises:
        ConfigError: The budget is in dollars and there are no prices.
    """

    name = "budget"
    phases = ("before_agent", "wrap_model_call")
    joins = True
    _counts = True
    """Whether it counts too; of several hooks only one does."""

    def __init__(self, budget: Budget | None = None, *, prices: Prices | None = None) -> None:
        self._budget = budget or Budget()
        if prices is None and self._budget.usd is not None:
            require_prices()
        self._prices = prices or published_price

    def counting(self) -> BudgetHook:
        """Return a hook that counts as this one does, without a limit."""
        return BudgetHook(prices=self._prices)

    def limiting(self) -> BudgetHook:
        """Return a hook with this one's limit that leaves the counting to another."""
        made = copy(self)
        made._counts = False
        return made

    @in_place
    async def before_agent(self, state: Mapping[str, Any], ctx: HookContext) -> Any:
        """Start counting a run."""
        counted = peek(state, "cost") or {}
        return {"cost": _RESET} if self._counts and any(map(counted.get, _RESET)) else None

    @in_place
    async def wrap_model_call(self, request: ModelRequest, next: Any) -> Any:
        """Count the call, or answer instead of the model once the budget is spent."""
        why = self._budget.spent_up(request.state) if request.purpose == AGENT else ""
        if why:
            return AIMessage(f"Stopped: {why}."), {"stop_reason": "limit"}
        reply = await next(request)
        if not self._counts:
            return reply
        cost = cost_of(reply, request.ctx.model_name, self._prices)
        counted = {**cost.to_dict(), "tokens": _tokens(request, reply)}
        both = {**counted, **{f"{RUN}{key}": value for key, value in counted.items()}}
        return noted(reply, cost), {"cost": {key: value for key, value in both.items() if value}}


def _tokens(request: ModelRequest, reply: AIMessage) -> int:
    """Return the tokens of a call: the provider's count, else an estimate."""
    reported = usage_of(reply).total_tokens
    if reported:
        return reported
    estimate: int = request.ctx.tokens_of(request) + message_tokens(reply)
    return estimate
