"""The store that a configuration names, opened only where there is one."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from wick_graph.config import AgentsFile
    from wick_graph.store import SqlSaver, ThreadInfo


@contextmanager
def opened(config: Path | AgentsFile, *, make: bool = False) -> Iterator[SqlSaver | None]:
    """Open a file's store, or give None where no thread was ever stored: nothing is created.

    With `make` it is created where it is not there. The file is given as its path, or as read.
    """
    from wick_graph.config import load_config
    from wick_graph.store import SqlSaver
    from wick_graph.store.database.opening import dialect_of

    file = load_config(config) if isinstance(config, Path) else config
    if not make and not dialect_of(file.store_url).exists():
        yield None
        return
    with SqlSaver.from_url(file.store_url, keys=file.keys_source) as store:
        yield store


def known(store: SqlSaver | None, thread_id: str) -> tuple[SqlSaver, ThreadInfo]:
    """Find a thread.

    Raises:
        ThreadNotFoundError: There is no such thread.
    """
    check_ids([thread_id])
    info = None if store is None else store.threads.get(thread_id)
    if store is None or info is None:
        raise unknown(thread_id)
    return store, info


def check_ids(thread_ids: list[str]) -> None:
    """Refuse what no thread can be called.

    Raises:
        ConfigError: One of them.
    """
    from wick_graph.result import checked_thread_id

    for thread_id in thread_ids:
        checked_thread_id(thread_id)


def unknown(thread_id: str) -> Exception:
    """Make the error of a thread that is not there."""
    from wick_graph.errors import ThreadNotFoundError

    return ThreadNotFoundError(
        f"there is no thread {thread_id}; `wick threads list` shows those there are"
    )
