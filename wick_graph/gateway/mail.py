"""What tools and the scheduler need of a tenant's mailbox."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from wick_graph.gateway.messages import OutboundMessage

T = TypeVar("T")


class Mail(Protocol):
    """Outgoing messages and facts of a tenant; `run` calls a method in the store's thread."""

    def queue(self, key: str, message: OutboundMessage, *, turn: str | None = None) -> bool:
        """Queue a message; return False, and add nothing, if the key is known."""
        ...

    def fact(self, key: str) -> Any:
        """Return a fact, or None."""
        ...

    def put_fact(self, key: str, data: Any) -> None:
        """Write a fact."""
        ...

    def facts(self, prefix: str) -> Mapping[str, Any]:
        """Return the facts whose keys begin so, by key."""
        ...

    def drop_fact(self, key: str) -> None:
        """Delete a fact, if there is one."""
        ...

    async def run(self, method: Callable[..., T], *args: Any) -> T:
        """Call a function in the store's thread."""
        ...
