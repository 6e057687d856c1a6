"""Ctrl-C as a request, and not as an exception that may land anywhere."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def on_ctrl_c(do: Callable[[int], None]) -> Iterator[None]:
    """Call a function with the number of presses so far, in place of a KeyboardInterrupt.

    It is called between two instructions of the block, so it may set a flag or start a thread, and
    must wait for no lock. Elsewhere than in the main thread Python hears no signal, and nothing
    is done.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    presses = 0

    def pressed(number: int, frame: Any) -> None:
        nonlocal presses
        presses += 1
        do(presses)

    before = signal.signal(signal.SIGINT, pressed)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
