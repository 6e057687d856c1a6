"""A thread as a file: exported to a database of its own, and imported from one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import select

from wick_graph.errors import StorageError
from wick_graph.store.arriving import check_arrived
from wick_graph.store.checkpoints.core import Core
from wick_graph.store.database.compiling import compiled
from wick_graph.store.database.opening import dialect_of
from wick_graph.store.database.schema import threads
from wick_graph.store.keeping.copying import transfer
from wick_graph.store.keeping.upkeep import GONE
from wick_graph.store.saver import SqlSaver
from wick_graph.store.sealed.keyring import Keys
from wick_graph.store.sealed.sealing import check_keys
from wick_graph.store.values.codec import Codec
from wick_graph.store.values.rows import bytes_text


def export_thread(
    saver: SqlSaver, thread_id: str, path: str | Path, *, plain: bool = False
) -> None:
    """Write a thread to a file: a SQLite database that any `SqlSaver` of its tenant opens.

    It holds everything of the thread: checkpoints, the ledger of its calls, its journal. That of an
    encrypted store is encrypted with the same keys, unless it is to be `plain`.

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
        keys = None if plain else saver._core.sealing.keys
        url = _url(file) if made else "sqlite://"
        with SqlSaver.from_url(url, keys=keys, tenant=tenant_of(saver)) as other:
            transfer(saver._core, thread_id, other._core, thread_id)
    except BaseException:
        if made:
            for name in (file, *(file.with_name(file.name + end) for end in ("-wal", "-shm"))):
                name.unlink(missing_ok=True)
        raise


def import_thread(
    saver: SqlSaver,
    path: str | Path,
    thread_id: str | None = None,
    *,
    to: str | None = None,
    keys: Keys | str | None = None,
) -> str:
    """Take a thread over from a file that `export_thread` wrote, or from any store's file.

    Args:
        saver: Where it goes.
        path: The file.
        thread_id: Which thread; may be left out where the file holds one.
        to: The id that it gets; its own by default.
        keys: What opens the file where it is encrypted; the keys of `saver` by default.

    Returns:
        The id that it got.

    Raises:
        StorageError: The file cannot be read, or the id is taken.
        ThreadNotFoundError: The file holds no such thread.
    """
    file = Path(path)
    if not file.exists():
        raise StorageError(f"there is no file {file}; export a thread first")
    check_arrived(file)
    with _opened(file, check_keys(keys) or saver._core.sealing.keys, tenant_of(saver)) as other:
        if thread_id is None:
            infos = other.threads.list(limit=2)
            if len(infos) != 1:
                count = "no thread" if not infos else "several threads"
                raise StorageError(f"{file} holds {count}; name the one to take over")
            thread_id = infos[0].thread_id
        transfer(other._core, thread_id, saver._core, to or thread_id)
    return to or thread_id


def tenant_of(saver: SqlSaver) -> str:
    """Name the tenant whose threads a saver sees."""
    return bytes_text(saver._core.tenant)


def _opened(file: Path, keys: Keys | None, wanted: str) -> SqlSaver:
    """Open a file that may be encrypted or not, as the tenant whose threads it holds.

    Raises:
        StorageError: It holds threads of several tenants, and none of the wanted one.
    """
    core = Core(dialect_of(_url(file)), tenant=wanted, ttl=None, keys=keys, either=True)
    saver = SqlSaver(core, Codec())
    try:
        with core.reading() as db:
            query = select(threads.c.tenant).where(threads.c.status != GONE).distinct()
            found = {bytes(name) for (name,) in db.execute(*compiled(query)).fetchall()}
        if found and core.tenant not in found:
            if len(found) > 1:
                raise StorageError(
                    f"{file} holds threads of {len(found)} tenants, and none of {wanted}; open "
                    "the store as one of them: SqlSaver.from_url(..., tenant=...)"
                )
            core.tenant = found.pop()
    except BaseException:
        saver.close()
        raise
    return saver


def _url(file: Path) -> str:
    return f"sqlite:///{file.absolute()}"
