"""Files of threads that come from elsewhere: checked before anything of them is read as a store."""

from __future__ import annotations

import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import Final

from wick_graph.errors import StorageError

MAX_FILE_BYTES: Final = 4 * 2**30
_MADE_UP: Final = """
SELECT name FROM sqlite_master WHERE type IN ('view', 'trigger') UNION ALL
SELECT m.name FROM sqlite_master AS m, pragma_table_xinfo(m.name) AS c
WHERE m.type = 'table' AND c.hidden > 1
"""
"""Views, triggers and computed columns: a small file with them may stand for endless rows."""


def check_arrived(file: Path) -> None:
    """Refuse a file that is too large, or that computes what it says.

    Raises:
        StorageError: It is, with the reason. Whether it is a store is for others to say.
    """
    status = file.stat()
    if not stat.S_ISREG(status.st_mode):
        raise StorageError(f"{file} is no regular file; name the file of an export")
    if status.st_size > MAX_FILE_BYTES:
        raise StorageError(
            f"{file} has more than {MAX_FILE_BYTES // 2**30} GiB; export less at once"
        )
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as db:
            db.execute("PRAGMA trusted_schema = OFF")
            found = db.execute(_MADE_UP).fetchone()
    except sqlite3.Error:
        return
    if found is not None:
        raise StorageError(f"{file} computes {found[0]!r:.80}, which no export does; do not use it")
