"""Servers for the tests: one for all that only ask, one each for those that kill."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.support import ENDLESS, Served, serving


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server without tokens that nobody stops."""
    with serving(tmp_path_factory.mktemp("served")) as served:
        yield served


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    """A server of the test's own."""
    with serving(tmp_path) as served:
        yield served


@pytest.fixture
def endless(tmp_path: Path) -> Iterator[Served]:
    """A server of the test's own, whose slow agent goes on until it is stopped."""
    with serving(tmp_path, slow=ENDLESS) as served:
        yield served


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that asks for tokens."""
    with serving(tmp_path_factory.mktemp("guarded"), "--host", "127.0.0.1") as served:
        yield served
