"""`jsonl`: a thread's moments as they are, one JSON object a line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from wick_graph.exports.masked import Hider, plain
from wick_graph.journal import Entry, Journal


def as_jsonl(journal: Journal, hider: Hider, run: int | str | None = None) -> Iterator[str]:
    """Yield a line for each moment; `docs/moment.schema.json` says what is in it.

    Raises:
        StorageError: The thread has no such run.
    """
    for entry in journal.moments(run):
        yield json.dumps(moment_of(journal, entry, hider), ensure_ascii=False) + "\n"


def moment_of(journal: Journal, entry: Entry, hider: Hider) -> dict[str, Any]:
    """Return a moment as JSON's kinds, without secrets."""
    made: dict[str, Any] = plain(hider.value(journal.to_dict(entry)))
    return made
