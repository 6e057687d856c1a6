"""SIGTERM as a polite Ctrl-C: the run is closed, its thread can go on, and the exit code tells."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from wick_graph.cli import output


@dataclass
class Ended:
    """How the process was asked to end, if it was."""

    code: int = output.CANCELLED


@contextmanager
def terminable() -> Iterator[Ended]:
    """Let SIGTERM do within the block what Ctrl-C does; a second one does it at once."""
    ended = Ended()

    def on_term(number: int, frame: Any) -> None:
        ended.code = output.TERMINATED
        signal.raise_signal(signal.SIGINT)

    if threading.current_thread() is not threading.main_thread():
        yield ended
        return
    before = signal.signal(signal.SIGTERM, on_term)
    try:
        yield ended
    finally:
        signal.signal(signal.SIGTERM, before)
