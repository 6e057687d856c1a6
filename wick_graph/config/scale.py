"""What many users and machines share: quotas, and the sessions with the database."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from wick_graph.config.fields import Block
from wick_graph.constants import POOL_SIZE


class LimitsConfig(Block):
    """The quota of each tenant of a server; requests beyond it get a 429."""

    requests_per_minute: Annotated[int, Field(ge=1)] = 60_000
    """Requests in a minute, for all tokens of the tenant together; a sixth of them at once."""
    requests_at_once: Annotated[int, Field(ge=1)] = 1_000
    """Concurrent requests, event streams included."""
    bytes_per_minute: Annotated[int, Field(ge=1)] = 256 * 2**20
    """Bytes of request bodies in a minute; a sixth of them at once."""


class PoolConfig(Block):
    """The sessions of a process with its PostgreSQL server, for all tenants."""

    size: Annotated[int, Field(ge=1, le=1_000)] = POOL_SIZE
    """The most sessions; each serves one transaction at a time."""
