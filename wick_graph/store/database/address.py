"""Which thread, namespace and checkpoint a LangGraph config means."""

from __future__ import annotations

from typing import NamedTuple

from langchain_core.runnables import RunnableConfig

from wick_graph.errors import StorageError
from wick_graph.keys import (
    CHECKPOINT_ID,
    CHECKPOINT_NS,
    CONFIGURABLE,
    THREAD_ID,
    configurable,
)


class Address(NamedTuple):
    """One place in the store."""

    thread_id: str
    ns: str
    checkpoint_id: str | None

    def config(self) -> RunnableConfig:
        """Return the config that means this place."""
        return {
            CONFIGURABLE: {
                THREAD_ID: self.thread_id,
                CHECKPOINT_NS: self.ns,
                CHECKPOINT_ID: self.checkpoint_id,
            }
        }


def address_of(config: RunnableConfig) -> Address:
    """Return the place that a config means; without a checkpoint it is the latest one.

    Raises:
        StorageError: if the config names no thread.
    """
    asked = configurable(config)
    thread_id = asked.get(THREAD_ID)
    if thread_id is None:
        raise StorageError(
            f'the config names no thread; pass {{"{CONFIGURABLE}": {{"{THREAD_ID}": "..."}}}}'
        )
    return Address(str(thread_id), asked.get(CHECKPOINT_NS) or "", asked.get(CHECKPOINT_ID) or None)
