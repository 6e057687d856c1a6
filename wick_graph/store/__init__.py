"""The store: LangGraph's checkpointer on one SQL database, threads and their time to live."""

from __future__ import annotations

from wick_graph.store.keyring import Keys
from wick_graph.store.saver import SqlSaver
from wick_graph.store.scalars import StoredError
from wick_graph.store.threads import ThreadInfo, Threads

__all__ = ["Keys", "SqlSaver", "StoredError", "ThreadInfo", "Threads"]
