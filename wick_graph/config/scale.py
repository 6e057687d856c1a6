"""What many users and machines share: quotas, workers, and the sessions with the database."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from wick_graph.config.fields import Block, Limit
from wick_graph.constants import POOL_SIZE


class ShareConfig(Block):
    """A tenant's share of the workers."""

    running: Annotated[int, Field(ge=1, le=100_000)] = 100
    """The most runs that workers execute at a time."""
    waiting: Annotated[int, Field(ge=0, le=1_000_000)] = 1_000
    """The most runs that wait for a worker; further ones get a 429."""
    weight: Annotated[float, Field(gt=0, le=1_000)] = 1
    """A tenant with weight 2 gets twice as many workers as one with weight 1, if both wait."""


class LimitsConfig(Block):
    """The quota of each tenant of a server; requests beyond it get a 429."""

    requests_per_minute: Annotated[int, Field(ge=1)] = 60_000
    """Requests in a minute, for all tokens of the tenant together; a sixth of them at once."""
    requests_at_once: Annotated[int, Field(ge=1)] = 1_000
    """Concurrent requests, event streams included."""
    bytes_per_minute: Annotated[int, Field(ge=1)] = 256 * 2**20
    """Bytes of request bodies in a minute; a sixth of them at once."""
    default: ShareConfig = Field(default_factory=ShareConfig)
    """The share of the workers for each tenant without a key of its own; further keys are names of
    tenants, and what such a block leaves out is as here."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, ShareConfig] = Field(init=False)

    def share(self, tenant: str) -> ShareConfig:
        """Return a tenant's share of the workers."""
        own = self.__pydantic_extra__.get(tenant)
        if own is None:
            return self.default
        return self.default.model_copy(update={k: getattr(own, k) for k in own.model_fields_set})


class WorkersConfig(Block):
    """Who executes the runs of servers, and how workers do it."""

    mode: Literal["embedded", "external"] = "embedded"
    """The server itself, or processes of `wick worker`, which need PostgreSQL."""
    slots: Annotated[int, Field(ge=1, le=1_000)] = 50
    """The runs that a worker executes at a time."""
    lease: Annotated[Limit, Field(ge=3, le=3600)] = 30.0
    """Seconds without a sign of life after which others take over a worker's runs."""
    heartbeat: Annotated[Limit, Field(ge=0.5)] = 5.0
    """Seconds between two signs of life."""
    queue_schema: Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_]{0,62}$")] = "wick_queue"
    """The schema of PostgreSQL that holds the queue."""

    @model_validator(mode="after")
    def _beats(self) -> Self:
        if self.heartbeat > self.lease / 2:
            raise ValueError("has a heartbeat longer than half of its lease; raise lease")
        return self


class PoolConfig(Block):
    """The sessions of a process with its PostgreSQL server, for all tenants."""

    size: Annotated[int, Field(ge=1, le=1_000)] = POOL_SIZE
    """The most sessions; each serves one transaction at a time."""
