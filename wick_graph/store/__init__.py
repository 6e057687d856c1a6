"""The store: LangGraph's checkpointer on one SQL database, threads and their time to live."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wick_graph.lazy import load_when_used

if TYPE_CHECKING:
    from wick_graph.store.allowlist import StoredObject
    from wick_graph.store.encryption import Keys, add_key
    from wick_graph.store.memories import SqlStore
    from wick_graph.store.saver import SqlSaver
    from wick_graph.store.threads import ThreadInfo, Threads
    from wick_graph.store.verify import rotate

__all__ = [
    "Keys",
    "SqlSaver",
    "SqlStore",
    "StoredObject",
    "ThreadInfo",
    "Threads",
    "add_key",
    "rotate",
]

if not TYPE_CHECKING:
    __getattr__ = load_when_used(
        __name__,
        {
            "wick_graph.store.allowlist": ("StoredObject",),
            "wick_graph.store.encryption": ("Keys", "add_key"),
            "wick_graph.store.memories": ("SqlStore",),
            "wick_graph.store.saver": ("SqlSaver",),
            "wick_graph.store.threads": ("ThreadInfo", "Threads"),
            "wick_graph.store.verify": ("rotate",),
        },
    )
