"""The texts of the store's statements, which are made before a process needs them.

`python -m tests.support.sql` writes `wick_graph/store/made.sql` anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from wick_graph.store import digests, sessions, sqlite, statements, texts
from wick_graph.store.texts import MADE_FILE, MARK, Prepared, digest_of

FILE: Final = Path(texts.__file__).with_name(MADE_FILE)
RENEW: Final = "python -m tests.support.sql"
HEAD: Final = """\
-- What a store asks its database, by the names of the statements in Python, as SQLAlchemy makes it:
-- `{renew}` writes it here, so that no process takes the time for it again. No
-- process takes it from here once it or a module that makes it has changed: {digest}"""


def named() -> list[Prepared]:
    """Return the prepared statements that have names."""
    found = (one for module in (digests, statements) for one in vars(module).values())
    return sorted((one for one in found if type(one) is Prepared), key=lambda one: one.name)


def sections() -> Iterator[tuple[str, str]]:
    """Yield each text with its name, as SQLAlchemy makes it now."""
    yield f"sqlite {sqlite.SCHEMA}", sqlite.BETWEEN.join(sqlite.compiled_creation())
    for one in named():
        yield f"sqlite {one.name}", one.compiled()
        yield f"postgresql {one.name}", sessions.translated(one)


def text() -> str:
    """Return the file."""
    whole = "".join(f"\n{MARK}{name}\n{made}" for name, made in sections()) + "\n"
    before, _, body = whole.partition(MARK)
    head = HEAD.format(renew=RENEW, digest=digest_of(FILE.parent, body))
    return f"{head}{before}{MARK}{body}"


if __name__ == "__main__":
    new = FILE.with_suffix(".new")  # a process that begins meanwhile reads the whole file
    new.write_text(text(), encoding="utf-8")
    new.replace(FILE)
