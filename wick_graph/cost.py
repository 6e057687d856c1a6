"""What model calls cost in money, by the published prices that `genai-prices` carries along.

The extra `cost` is needed; nothing is fetched. Money is counted in billionths of a dollar, as whole
numbers, so that sums are exact and can be stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage

from wick_graph.errors import ConfigError
from wick_graph.usage import Usage, usage_of

NANO: Final = 1_000_000_000
KEY: Final = "wick_cost"
"""The key in a reply's `response_metadata` under which its cost is noted."""

Prices = Callable[[Usage, str, str | None], Decimal | None]
"""Dollars for the tokens of one call, by the model's name and its provider's; None if unknown."""

_PROVIDERS: Final[Mapping[str, str]] = {
    "google_genai": "google",
    "google_vertexai": "google",
    "mistralai": "mistral",
    "xai": "x-ai",
}
"""LangChain's names of providers where the price list has another one."""
_FREE: Final = frozenset({"ollama"})
"""Providers whose models run on the user's own machine."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Count what calls cost; `a + b` adds two counts."""

    nano_usd: int = 0
    """Billionths of a dollar."""
    unpriced: int = 0
    """Calls for which no price is known; they are not in the sum."""

    def __add__(self, other: Cost) -> Cost:
        """Add both parts."""
        return Cost(self.nano_usd + other.nano_usd, self.unpriced + other.unpriced)

    @property
    def usd(self) -> Decimal:
        """Dollars."""
        return Decimal(self.nano_usd) / NANO

    def to_dict(self) -> dict[str, int]:
        """Give both parts."""
        return asdict(self)

    @classmethod
    def of(cls, data: Mapping[str, Any], prefix: str = "") -> Cost:
        """Read what `to_dict` gave, each key behind a prefix; what is missing is zero."""
        return cls(int(data.get(f"{prefix}nano_usd", 0)), int(data.get(f"{prefix}unpriced", 0)))


def published_price(usage: Usage, model: str, provider: str | None = None) -> Decimal | None:
    """Return dollars for the tokens of one call, or None where no price is published.

    A model that runs on the user's own machine costs nothing.

    Raises:
        ConfigError: The extra `cost` is not installed.
    """
    if provider in _FREE:
        return Decimal(0)
    prices: Any = _price_list()
    counted = prices.Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=min(usage.cache_read, usage.input_tokens),
        cache_write_tokens=min(usage.cache_write, usage.input_tokens),
    )
    known = _PROVIDERS.get(provider or "", provider)
    try:
        found: Decimal = prices.calc_price(counted, model, provider_id=known).total_price
    except (LookupError, ValueError):
        return None
    return found


def require_prices() -> None:
    """Check that there is a price list.

    Raises:
        ConfigError: The extra `cost` is not installed.
    """
    _price_list()


def cost_of(reply: AIMessage, model: str = "", prices: Prices = published_price) -> Cost:
    """Return what a reply cost; `model` counts where the reply does not name its own."""
    metadata = reply.response_metadata
    provider = metadata.get("model_provider")
    if not reply.usage_metadata and provider not in _FREE:  # no count of tokens is not no tokens
        return Cost(unpriced=1)
    named = metadata.get("model_name") or metadata.get("model") or model
    price = prices(usage_of(reply), str(named), provider)
    return Cost(unpriced=1) if price is None else Cost(nano_usd=round(price * NANO))


def cost_in(message: BaseMessage) -> Cost | None:
    """Return the cost that was noted in a reply when it came, or None."""
    noted = message.response_metadata.get(KEY)
    return Cost.of(noted) if isinstance(noted, Mapping) else None


def noted(reply: AIMessage, cost: Cost) -> AIMessage:
    """Return a copy of a reply that carries its cost."""
    metadata = {**reply.response_metadata, KEY: cost.to_dict()}
    return reply.model_copy(update={"response_metadata": metadata})


def cost_of_messages(messages: Iterable[BaseMessage], prices: Prices = published_price) -> Cost:
    """Add up what the replies in a chain cost: as noted, else by the prices of today.

    Calls that left no message, such as summaries, are not in it; the state's `cost` has them.
    """
    total = Cost()
    for message in messages:
        if isinstance(message, AIMessage) and (message.usage_metadata or cost_in(message)):
            total += cost_in(message) or cost_of(message, prices=prices)
    return total


def _price_list() -> Any:
    try:
        import genai_prices  # noqa: PLC0415  # an optional extra
    except ImportError as error:
        raise ConfigError(
            "prices need the package genai-prices: pip install 'wick-graph[cost]', "
            "or give the budget in tokens"
        ) from error
    return genai_prices
