"""Token usage of model calls, and its cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from decimal import Decimal
from operator import add, attrgetter
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage

from wick_graph.errors import ConfigError, missing_extra

# --- Token usage: read from a message, summed over calls, runs and threads.


@dataclass(frozen=True, slots=True)
class Usage:
    """Token usage of model calls; `a + b` adds two usages."""

    input_tokens: int = 0
    """All tokens that the model read, cached ones included."""
    output_tokens: int = 0
    """All tokens that the model wrote, hidden reasoning included."""
    total_tokens: int = 0
    cache_read: int = 0
    """Part of `input_tokens` that was read from the provider's prompt cache."""
    cache_write: int = 0
    """Part of `input_tokens` that was written to the provider's prompt cache."""
    reasoning: int = 0
    """Part of `output_tokens` that the user does not see."""
    calls: int = 0
    """Number of model calls, including those without token counts from the provider."""

    def __add__(self, other: Usage) -> Usage:
        """Add field by field."""
        return Usage(*map(add, _values(self), _values(other)))

    def to_dict(self) -> dict[str, int]:
        """Return all fields, zeros included."""
        return dict(zip(_NAMES, _values(self), strict=True))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Usage:
        """Read the data of `to_dict`; a missing field is zero, an unknown one is ignored."""
        return cls(**{name: _count(data.get(name)) for name in _NAMES})


_NAMES = tuple(field.name for field in fields(Usage))

_values = attrgetter(*_NAMES)


def usage_of(message: BaseMessage) -> Usage:
    """Read the usage of one model call from its reply; any other message has none.

    A reply without token counts still counts as a call. If the provider reports no total, it is
    the sum of input and output.
    """
    if not isinstance(message, AIMessage):
        return Usage()
    if not message.usage_metadata:
        return Usage(calls=1)
    reported: Mapping[str, Any] = message.usage_metadata
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
    if type(value) is int:
        return value if value > 0 else 0
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return max(int(value), 0)


# --- Cost of model calls, by the published prices in the package `genai-prices`.
#
# It needs the extra `cost` and fetches nothing. Money is counted in billionths of a dollar, as
# whole numbers, so that sums are exact and can be stored.


NANO: Final = 1_000_000_000

KEY: Final = "wick_cost"
"""Key of a reply's cost in its `response_metadata`."""

Prices = Callable[[Usage, str, str | None], Decimal | None]
"""Dollars for the tokens of one call, by the model's name and its provider's; None if unknown."""

_PROVIDERS: Final[Mapping[str, str]] = {
    "google_genai": "google",
    "google_vertexai": "google",
    "mistralai": "mistral",
    "xai": "x-ai",
}
"""Names of providers in the price list, by LangChain's names if these differ."""

_FREE: Final = frozenset({"ollama"})
"""Providers that run models on the user's own machine."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of model calls; `a + b` adds two costs."""

    nano_usd: int = 0
    """Billionths of a dollar."""
    unpriced: int = 0
    """Number of calls without a known price; the sum excludes them."""

    def __add__(self, other: Cost) -> Cost:
        """Add both parts."""
        return Cost(self.nano_usd + other.nano_usd, self.unpriced + other.unpriced)

    @property
    def usd(self) -> Decimal:
        """Dollars."""
        return Decimal(self.nano_usd) / NANO

    def to_dict(self) -> dict[str, int]:
        """Return both parts."""
        return asdict(self)

    @classmethod
    def of(cls, data: Mapping[str, Any], prefix: str = "") -> Cost:
        """Read the data of `to_dict`, with a prefix before each key; a missing key is zero."""
        return cls(int(data.get(f"{prefix}nano_usd", 0)), int(data.get(f"{prefix}unpriced", 0)))


def published_price(usage: Usage, model: str, provider: str | None = None) -> Decimal | None:
    """Return the dollars for the tokens of one call, or None if no price is published.

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
    """Check that the price list is installed.

    Raises:
        ConfigError: The extra `cost` is not installed.
    """
    _price_list()


def cost_of(reply: AIMessage, model: str = "", prices: Prices = published_price) -> Cost:
    """Return the cost of a reply; `model` is used if the reply does not name its own."""
    metadata = reply.response_metadata
    provider = metadata.get("model_provider")
    if (
        not reply.usage_metadata and provider not in _FREE
    ):  # a reply without token counts is not free
        return Cost(unpriced=1)
    named = metadata.get("model_name") or metadata.get("model") or model
    price = prices(usage_of(reply), str(named), provider)
    return Cost(unpriced=1) if price is None else Cost(nano_usd=round(price * NANO))


def cost_in(message: BaseMessage) -> Cost | None:
    """Return the cost that was stored in a reply on arrival, or None."""
    noted = message.response_metadata.get(KEY)
    return Cost.of(noted) if isinstance(noted, Mapping) else None


def noted(reply: AIMessage, cost: Cost) -> AIMessage:
    """Return a copy of a reply with its cost."""
    metadata = {**reply.response_metadata, KEY: cost.to_dict()}
    return reply.model_copy(update={"response_metadata": metadata})


def cost_of_messages(messages: Iterable[BaseMessage], prices: Prices = published_price) -> Cost:
    """Sum the costs of the replies in a list: as stored, else by today's prices.

    Calls without a message, such as summaries, are not included; the state's `cost` has them.
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
            f"{missing_extra('a budget in dollars', 'genai-prices', 'cost')}, "
            "or give the budget in tokens"
        ) from error
    return genai_prices
