"""The `conftest.py` that LangGraph's tests are run with: their fixtures, with our store added.

`run.py` copies this file among the unpacked tests, where the original is `conftest_langgraph`.
"""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest_langgraph import *  # type: ignore[import-untyped] # noqa: F403 - fixtures
from tests.conftest_langgraph import _checkpointer_sqlite, _checkpointer_sqlite_aio
from wick_graph.store import Keys, SqlSaver

PEER = "theirs"
PARAMETERS = os.environ["WICK_LANGGRAPH_SAVERS"].split(",")

_spec = importlib.util.spec_from_file_location("_postgres", os.environ["WICK_POSTGRES_FIXTURES"])
assert _spec is not None
assert _spec.loader is not None
_postgres = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_postgres)
postgres_server, postgres_url = _postgres.postgres_server, _postgres.postgres_url


def _store(name: str, request: pytest.FixtureRequest) -> SqlSaver:
    if name == "ours_postgres":
        return SqlSaver.from_url(request.getfixturevalue("postgres_url"))
    path = request.getfixturevalue("tmp_path") / "store.db"
    keys = Keys([bytes(range(32))]) if name == "ours_encrypted" else None
    return SqlSaver.from_url(f"sqlite:///{path}", synchronous="NORMAL", keys=keys)


@pytest.fixture(params=PARAMETERS)
def sync_checkpointer(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Return LangGraph's SQLite saver, or ours on one of its stores."""
    opened = _checkpointer_sqlite() if request.param == PEER else _store(request.param, request)
    with opened as saver:
        yield saver


@pytest.fixture(params=PARAMETERS)
async def async_checkpointer(request: pytest.FixtureRequest) -> Any:
    """Return LangGraph's asynchronous SQLite saver, or ours on one of its stores."""
    opened = _checkpointer_sqlite_aio() if request.param == PEER else _store(request.param, request)
    async with opened as saver:
        yield saver


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests that use a checkpointer; the others cannot differ."""
    items[:] = [item for item in items if _saver_of(item) is not None]


def _saver_of(item: pytest.Item) -> str | None:
    chosen = getattr(item, "callspec", None)
    if chosen is None:
        return None
    params = chosen.params
    found: str | None = params.get("sync_checkpointer", params.get("async_checkpointer"))
    return found


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """Write each outcome down, by the test's name without the saver."""
    outcome = yield
    report = outcome.get_result()
    if report.when != "call" and not report.failed:
        return
    saver = _saver_of(item)
    assert saver is not None
    left = [part for part in item.nodeid.split("[", 1)[1][:-1].split("-") if part != saver]
    function = item.nodeid.split("[", 1)[0].removeprefix("tests/")
    name = f"{function}[{'-'.join(left)}]" if left else function
    line = {"name": name, "saver": saver, "outcome": report.outcome, "text": report.longreprtext}
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    with Path(os.environ["WICK_LANGGRAPH_OUTCOMES"], worker).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
