"""Token usage of model calls, and what it costs in money."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from decimal import Decimal
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage

from wick_graph.errors import ConfigError

# --- Tokens that model calls used: read from a message, added up over calls, runs and threads.


@dataclass(frozen=True, slots=True)
class Usage:
    """Count what model calls used; `a + b` adds two counts."""

    input_tokens: int = 0
    """Everything the model read, cached tokens included."""
    output_tokens: int = 0
    """Everything the model wrote, hidden reasoning included."""
    total_tokens: int = 0
    cache_read: int = 0
    """Part of `input_tokens` that came out of the provider's prompt cache."""
    cache_write: int = 0
    """Part of `input_tokens` that went into the provider's prompt cache."""
    reasoning: int = 0
    """Part of `output_tokens` that the user never sees."""
    calls: int = 0
    """Model calls, also those whose provider reported no tokens."""

    def __add__(self, other: Usage) -> Usage:
        """Add field by field."""
        return Usage(*(getattr(self, name) + getattr(other, name) for name in _NAMES))

    def to_dict(self) -> dict[str, int]:
        """Give all fields, zeros included."""
        return {name: getattr(self, name) for name in _NAMES}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Usage:
        """Read what `to_dict` gave; a missing field is zero and an unknown one is passed over."""
        return cls(**{name: _count(data.get(name)) for name in _NAMES})


_NAMES = tuple(field.name for field in fields(Usage))


def usage_of(message: BaseMessage) -> Usage:
    """Read the tokens of one model call from its reply; any other message used nothing.

    A reply without token counts still counts as a call. Where the provider gives no total,
    it is the sum of what was read and written.
    """
    if not isinstance(message, AIMessage):
        return Usage()
    reported: Mapping[str, Any] = message.usage_metadata or {}
    read = _details(reported, "input_token_details")
    written = _details(reported, "output_token_details")
    input_tokens = _count(reported.get("input_tokens"))
    output_tokens = _count(reported.get("output_tokens"))
    return Usage(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        total_tokens=_count(reported.get("total_tokens")) or input_tokens + output_tokens,
        cache_read=_count(read.get("cache_read")),
        cache_write=sum(_count(read.get(name)) for name in _CACHE_WRITES),
        reasoning=_count(written.get("reasoning")),
        calls=1,
    )


_CACHE_WRITES = (
    "cache_creation",
    # Anthropic's adapter reports these instead of the sum when it knows the cache's life time
    "ephemeral_5m_input_tokens",
    "ephemeral_1h_input_tokens",
)


def _details(reported: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = reported.get(name)
    return value if isinstance(value, Mapping) else {}


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return max(int(value), 0)


# --- What model calls cost in money, by the published prices that `genai-prices` carries along.
#
# The extra `cost` is needed; nothing is fetched. Money is counted in billionths of a dollar, as
# whole numbers, so that sums are exact and can be stored.


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
