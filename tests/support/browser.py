"""Debian's Chromium for tests; without its windows where that is installed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from playwright.sync_api import Browser, expect, sync_playwright

WAIT: Final = 60_000
"""Milliseconds after which a test gives up."""

# The same engine; without windows it starts in a quarter of the processor's time.
PATH: Final = shutil.which("chromium-headless-shell") or shutil.which("chromium")


@contextmanager
def launched() -> Iterator[Browser]:
    """Start Chromium, and end it.

    Raises:
        FileNotFoundError: There is none.
    """
    if PATH is None:
        raise FileNotFoundError("install Debian's chromium-headless-shell, as .ci/run does")
    expect.set_options(timeout=WAIT)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=PATH, args=["--no-sandbox"])
        yield browser
        browser.close()
