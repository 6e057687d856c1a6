"""What tests of hooks share: the two doors of an agent, and backends of files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.support import Door, async_door, sync_door
from tests.hooks.filing import MemoryFiles
from tests.sandbox.fixtures import backend_at
from wick_graph.backends import LocalBackend


@pytest.fixture(params=[sync_door, async_door], ids=["invoke", "ainvoke"])
def door(request: pytest.FixtureRequest) -> Door:
    chosen: Door = request.param
    return chosen


@pytest.fixture(params=["local", "memory", "container"])
def fs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "memory":
        yield MemoryFiles()
        return
    if request.param == "container":  # it runs as another user, to whom pytest closes its folders
        mine = {Path(tempfile.gettempdir()), *Path(tempfile.gettempdir()).parents}
        for folder in {tmp_path, *tmp_path.parents} - mine:
            folder.chmod(0o755)
    with backend_at(request.param, tmp_path, request) as backend:
        yield backend


@pytest.fixture
def local(tmp_path: Path) -> LocalBackend:
    return LocalBackend(tmp_path, execute="local")
