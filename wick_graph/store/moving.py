"""A thread as a file: exported to a database of its own, and imported from one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from wick_graph.errors import StorageError
from wick_graph.store.copying import transfer
from wick_graph.store.saver import SqlSaver


def export_thread(saver: SqlSaver, thread_id: str, path: str | Path) -> None:
    """Write a thread to a file: a SQLite database that any `SqlSaver` opens.

    It holds everything of the thread: checkpoints, the ledger of its calls, its journal.

    Raises:
        ThreadNotFoundError: There is no such thread; no file is made.
        StorageError: The file is there already.
    """
    file = Path(path)
    if file.exists():
        raise StorageError(f"{file} is there already; choose another name, or delete it first")
    known: Any = saver.threads.get(thread_id)
    made = False
    try:
        if known is not None:
            made = True
        with SqlSaver.from_url(_url(file) if made else "sqlite://") as other:
            transfer(saver._core, thread_id, other._core, thread_id)
    except BaseException:
        if made:
            for name in (file, *(file.with_name(file.name + end) for end in ("-wal", "-shm"))):
                name.unlink(missing_ok=True)
        raise


def import_thread(
    saver: SqlSaver, path: str | Path, thread_id: str | None = None, *, to: str | None = None
) -> str:
    """Take a thread over from a file that `export_thread` wrote, or from any store's file.

    Args:
        saver: Where it goes.
        path: The file.
        thread_id: Which thread; may be left out where the file holds one.
        to: The id that it gets; its own by default.

    Returns:
        The id that it got.

    Raises:
        StorageError: The file cannot be read, or the id is taken.
        ThreadNotFoundError: The file holds no such thread.
    """
    file = Path(path)
    if not file.exists():
        raise StorageError(f"there is no file {file}; export a thread first")
    with SqlSaver.from_url(_url(file)) as other:
        if thread_id is None:
            infos = other.threads.list(limit=2)
            if len(infos) != 1:
                count = "no thread" if not infos else "several threads"
                raise StorageError(f"{file} holds {count}; name the one to take over")
            thread_id = infos[0].thread_id
        transfer(other._core, thread_id, saver._core, to or thread_id)
    return to or thread_id


def _url(file: Path) -> str:
    return f"sqlite:///{file.absolute()}"
