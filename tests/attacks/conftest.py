"""The levels, for the attacks on commands; a server, for those by way of the web."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sandbox.fixtures import armed, cell, confined, open_path, probe
from tests.support.loopback import Loopback, loopback

pytest.register_assert_rewrite(
    *(f"tests.attacks.{module}" for module in ("commands", "files", "prompts"))
)

__all__ = ["armed", "cell", "confined", "open_path", "probe", "server"]


@pytest.fixture
def server() -> Iterator[Loopback]:
    with loopback() as made:
        yield made
