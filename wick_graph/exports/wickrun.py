"""`.wickrun`: a thread with its journal in one file, for another machine.

A zip archive of `manifest.json`, `moments.jsonl` for readers, and `thread.db`: a store with this
thread alone, so that all tools for stores work on it. Secrets are hidden in the state as in the
journal. If anything is hidden, the secret of the request keys is left out, too, since a short
secret could be guessed with it; such a file cannot be replayed.
"""

from __future__ import annotations

import json
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from errno import EINVAL
from pathlib import Path
from secrets import token_bytes
from typing import IO, Any, Final

from langgraph.types import Interrupt, Send

from wick_graph import langgraph_config
from wick_graph.errors import StorageError
from wick_graph.exports.plain import Hider, as_jsonl, hides
from wick_graph.journal import Journal
from wick_graph.journal.page_format import pack_about, unpack_about
from wick_graph.journal.value_store import DOTS
from wick_graph.store.codec import unfold
from wick_graph.store.journal_rows import KEY, RUN_BYTES, Batch, JournalRows
from wick_graph.store.maintenance import check_arrived, tenant_of
from wick_graph.store.saver import SqlSaver

VERSION: Final = 1

_MANIFEST, _MOMENTS, _STORE = "manifest.json", "moments.jsonl", "thread.db"

_HEADER: Final = "wickrun"

_LARGEST: Final = 4 * 2**30
"""Limit of the unpacked size in bytes."""

_RATIO: Final = 100
"""Limit of the unpacked size as a multiple of the file's size,"""

_SMALL: Final = 64 * 2**20
"""above this number of bytes."""

_LARGEST_MANIFEST: Final = 2**20

_PIECE: Final = 2**18

_NO_ARCHIVE: Final = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)

_PAGE_MARK: Final = RUN_BYTES
"""Index of a page's compression flag; a blob has it in its first byte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """An open `.wickrun` file."""

    thread_id: str
    manifest: Mapping[str, Any] = field(repr=False)
    saver: SqlSaver = field(repr=False)
    journal: Journal = field(repr=False)
    url: str = ""
    """The database with its copy, as long as it is open."""


def write_wickrun(journal: Journal, saver: SqlSaver, path: Path, hider: Hider) -> int:
    """Write a thread to a file, and return the number of values with hidden secrets.

    Raises:
        ThreadNotFoundError: There is no such thread.
        OSError: The file cannot be written.
    """
    runs = journal.runs()
    with tempfile.TemporaryDirectory(prefix="wickrun-") as folder:
        store = Path(folder) / _STORE
        tenant = tenant_of(saver)
        with SqlSaver.from_url(
            f"sqlite:///{store}", ttl=None, synchronous="NORMAL", tenant=tenant
        ) as to:
            to.serde = saver.serde
            _copy_states(journal.thread_id, saver, to, hider)
            _copy_journal(journal, to, hider)
        with suppress(FileNotFoundError):
            (Path(folder) / f"{_STORE}-wal").unlink()
        manifest = {
            _HEADER: VERSION,
            "thread": journal.thread_id,
            "tenant": tenant,
            "exported": datetime.now(UTC).isoformat(timespec="seconds"),
            "runs": [run.run_id for run in runs],
            "agent": runs[-1].agent if runs else "",
            "code_hash": runs[-1].code_hash if runs else "",
            "graph_hash": runs[-1].graph_hash if runs else "",
            "versions": dict(runs[-1].versions) if runs else {},
            "redaction": {"values": hider.hidden, "replayable": not hider.hidden},
        }
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(_MANIFEST, json.dumps(manifest, indent=2, ensure_ascii=False))
            with archive.open(_MOMENTS, "w", force_zip64=True) as file:
                for line in as_jsonl(journal, hider.again()):
                    file.write(line.encode("utf-8", "backslashreplace"))
            archive.write(store, _STORE)
    return hider.hidden


def _copy_states(thread_id: str, source: SqlSaver, to: SqlSaver, hider: Hider) -> None:
    config: Any = langgraph_config.with_configurable(
        None, **{langgraph_config.THREAD_ID: thread_id}
    )
    masked: dict[int, tuple[Any, Any]] = {}

    def one(value: Any) -> Any:
        if id(value) not in masked:
            made = _masked(value, hider)
            if hider.leaks(to.serde.pack(made)):  # an object that cannot be masked
                made, hider.hidden = DOTS, hider.hidden + 1
            masked[id(value)] = value, made  # kept alive, so that its id() is not reused
        return masked[id(value)][1]

    def of(value: Any) -> Any:
        return [one(item) for item in value] if isinstance(value, list) else one(value)

    for found in reversed(list(source.list(config))):
        checkpoint: Any = dict(found.checkpoint)
        values = checkpoint["channel_values"]
        checkpoint["channel_values"] = {channel: of(value) for channel, value in values.items()}
        space = langgraph_config.configurable(found.config).get(langgraph_config.CHECKPOINT_NS, "")
        first = {langgraph_config.THREAD_ID: thread_id, langgraph_config.CHECKPOINT_NS: space}
        parent: Any = found.parent_config or langgraph_config.with_configurable(None, **first)
        to.get_tuple(parent)  # the store takes a fork only of what was asked for by its id
        here = to.put(parent, checkpoint, found.metadata, checkpoint["channel_versions"])
        tasks: dict[str, list[tuple[str, Any]]] = {}
        for task, channel, value in found.pending_writes or ():
            tasks.setdefault(task, []).append((channel, of(value)))
        for at, (task, writes) in enumerate(tasks.items()):
            to.put_writes(here, writes, task, f"{at:08}")  # read back in the order of this


def _masked(value: Any, hider: Hider) -> Any:
    """Hide secrets, also in LangGraph's own objects in a checkpoint."""
    if isinstance(value, Send):
        return Send(value.node, hider.value(value.arg))
    if isinstance(value, Interrupt):
        return Interrupt(value=hider.value(value.value), id=value.id)
    if isinstance(value, list | tuple):
        made = [_masked(item, hider) for item in value]
        return (
            type(value)(made)
            if any(a is not b for a, b in zip(made, value, strict=True))
            else value
        )
    return hider.value(value)


def _copy_journal(journal: Journal, to: SqlSaver, hider: Hider) -> None:
    rows, target = journal.rows, to.journal_rows(journal.thread_id)
    batches = list(_batches(journal, rows, hider))
    if not batches:
        return

    def write(db: Any) -> None:
        thread = target.thread(db)
        for batch in batches:
            target.write(db, thread, batch)

    target.flush(write)


def _batches(journal: Journal, rows: JournalRows, hider: Hider) -> Iterator[Batch]:
    with journal.reading() as db:
        thread = rows.thread(db)
        contents = dict(rows.contents(db, thread))
        for run in rows.run_rows(db, thread):
            if run.body is not None:
                yield Batch(run=replace(run, body=_shared(run.body)))
        after = 0
        while pages := rows.pages(db, thread, after):
            for page in pages:
                if page.body is not None:
                    hider.hidden += hides(_text(page.body, _PAGE_MARK))
                    yield Batch(page=(page.last, page.body))
            after = pages[-1].last
    hider.hidden += sum(hides(_text(body, 0)) for name, body in contents.items() if name != KEY)
    if hider.hidden and KEY in contents:
        contents[KEY] = token_bytes(len(contents[KEY]))
    yield Batch(blobs=list(contents.items()))


def _shared(body: bytes) -> bytes:
    """Remove from a run's row the data that only locates secrets, which are hidden here."""
    told = unpack_about(body)
    return pack_about({name: v for name, v in told.items() if name not in ("secrets", "redact")})


def _text(body: bytes, mark: int) -> str:
    """Return the readable content of a stored body."""
    data = body[mark + 1 :]
    if body[mark : mark + 1] == b"\x01":
        data = unfold(data)
    return data.decode("utf-8", "replace")


@contextmanager
def open_wickrun(path: str | Path) -> Iterator[Recording]:
    """Open a file of `write_wickrun`; the file itself is never changed.

    Raises:
        StorageError: It cannot be read, is not such a file, or is of a newer release.
    """
    with tempfile.TemporaryDirectory(prefix="wickrun-") as folder:
        store = Path(folder) / _STORE
        manifest = _unpacked(Path(path), store)
        check_arrived(store)
        tenant = str(manifest.get("tenant") or "local")
        url = f"sqlite:///{store}"
        with SqlSaver.from_url(url, ttl=None, tenant=tenant) as saver:
            thread_id = str(manifest["thread"])
            yield Recording(
                thread_id=thread_id,
                manifest=manifest,
                saver=saver,
                journal=Journal(saver, thread_id),
                url=url,
            )


def _unpacked(path: Path, store: Path) -> dict[str, Any]:
    try:
        if (
            path.exists() and not path.is_file()
        ):  # opening a pipe would block until its writer comes
            raise StorageError(f"{path} is no regular file; name the file of an export")
        with zipfile.ZipFile(path) as archive:
            with _member(archive, _MANIFEST) as packed:
                manifest = json.loads(b"".join(_pieces(packed, _LARGEST_MANIFEST, path)))
            version = manifest[_HEADER]
            if version != VERSION:
                raise StorageError(f"{path} is of another release; upgrade wick_graph to open it")
            if not str(manifest["thread"]):
                raise StorageError(f"{path} names no thread; export it again")
            most = max(_SMALL, path.stat().st_size * _RATIO)
            with _member(archive, _STORE) as packed, store.open("wb") as to:
                for piece in _pieces(packed, min(most, _LARGEST), path):
                    to.write(piece)
            return dict(manifest)
    except (*_NO_ARCHIVE, KeyError, ValueError, TypeError, RecursionError, OSError) as error:
        if isinstance(error, OSError) and error.errno != EINVAL:  # a damaged place in the file
            raise StorageError(f"{path} cannot be read: {error.strerror or error}") from error
        raise StorageError(f"{path} is no .wickrun file, or is damaged; export it again") from error


def _member(archive: zipfile.ZipFile, name: str) -> IO[bytes]:
    """Open a member packed as by `write_wickrun`; other methods unpack without bounds.

    Raises:
        ValueError: It is packed in another way, or encrypted.
    """
    info = archive.getinfo(name)
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or info.flag_bits & 1:
        raise ValueError(name)
    return archive.open(info)


def _pieces(packed: IO[bytes], most: int, path: Path) -> Iterator[bytes]:
    """Yield the unpacked data, piece by piece, up to a limit.

    Raises:
        StorageError: There is more.
    """
    size = 0
    while piece := packed.read(_PIECE):
        size += len(piece)
        if size > most:
            raise StorageError(
                f"{path} unfolds to more than {most // 2**20} MiB, which no thread of its size "
                "does; ask where it comes from"
            )
        yield piece
