from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.debug.support import World
from wick_graph.debug import DebugSession

Opener = Callable[..., DebugSession]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.db'}"


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def recorded(world: World, url: str) -> str:
    """A finished run of three parallel calls, one of which fails, with two hooks around."""
    agent, _ = world.agent(url)
    agent.invoke("add them", thread_id="t")
    agent.close()
    return url


@pytest.fixture
def opened(recorded: str) -> Iterator[Opener]:
    """Open the recording, with or without somebody who can run it."""
    sessions: list[DebugSession] = []

    def opener(**options: Any) -> DebugSession:
        sessions.append(DebugSession.open(recorded, "t", **options))
        return sessions[-1]

    yield opener
    for session in sessions:
        session.close()
