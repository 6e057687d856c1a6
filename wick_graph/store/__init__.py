"""The store: LangGraph's checkpointer on one SQL database, threads and their time to live."""

from __future__ import annotations

from wick_graph.store.saver import SqlSaver
from wick_graph.store.sealed.keyring import Keys, add_key
from wick_graph.store.threads import ThreadInfo, Threads
from wick_graph.store.values.allow import StoredObject

__all__ = ["Keys", "SqlSaver", "StoredObject", "ThreadInfo", "Threads", "add_key"]
