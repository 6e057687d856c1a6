"""How long idle threads are kept, where nobody said it of the very thread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from wick_graph.config.durations import seconds
from wick_graph.constants import THREAD_TTL_SECONDS
from wick_graph.errors import ConfigError

Ttl = str | float | None
"""A duration (`5m`, `7d`, seconds), or for ever: `never`, None."""


STORES: Final = "store"
"""In place of a duration: as the store says for the thread's namespace."""


class Lives:
    """A time to live for each namespace: what stands before the first colon of a thread's id."""

    def __init__(self, ttl: Ttl | Mapping[str, Ttl]) -> None:
        given = ttl if isinstance(ttl, Mapping) else {"": ttl}
        self._by_namespace = {name: _seconds(life) for name, life in given.items()}
        if (wrong := next((name for name in given if ":" in name), None)) is not None:
            raise ConfigError(f"ttl: the namespace {wrong!r:.80} has a colon; leave it out")
        self._default = self._by_namespace.get("", float(THREAD_TTL_SECONDS))

    def chosen(self, ttl: str | float | None, thread_id: str) -> float | None:
        """Return a time to live that was asked for, or the store's own."""
        return self.of(thread_id) if ttl == STORES else None if ttl is None else float(ttl)

    def of(self, thread_id: str) -> float | None:
        """Return the seconds that an idle thread is kept; None for ever."""
        namespace, colon, _ = thread_id.partition(":")
        return self._by_namespace.get(namespace, self._default) if colon else self._default


def _seconds(ttl: Ttl) -> float | None:
    return None if ttl is None else seconds(ttl)
