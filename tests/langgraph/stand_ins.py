"""The pytest plugin with which LangChain's and LangGraph's tests are run: our parts stand in.

`others.py` copies this file beside the unpacked tests. Before a test module is imported, it puts
`SqlStore` in the place of LangGraph's stores, and `Agent` in that of LangChain's `create_agent`.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import json
import os
import sys
import types
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, get_args

import psycopg
import pytest
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from psycopg.rows import dict_row

from wick_graph import Agent
from wick_graph.errors import OutputError
from wick_graph.middleware import MiddlewareHook
from wick_graph.models import NativeOutput, ToolOutput
from wick_graph.store import SqlStore

POSTGRES: Final = os.environ.get("WICK_TEST_POSTGRES_DSN", "")

_SCHEMAS: Final = itertools.count()

_used = False
"""Whether the test that runs has used a part of ours."""


def _note() -> None:
    global _used
    _used = True


# --- stores


class Store(SqlStore):
    """`SqlStore` with the further methods of LangGraph's stores on databases."""

    MIGRATIONS: Sequence[str] = ("SELECT 1",)
    """LangGraph's fixtures read and change those of their store."""

    url = ""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._sweeper = contextlib.ExitStack()
        _note()

    def close(self) -> None:
        """End the sweeper, and close the database."""
        self._sweeper.close()
        super().close()

    def setup(self) -> None:
        """Do nothing: tables are made when the store is opened."""

    def sweep_ttl(self) -> int:
        """Sweep, and return how many items are gone."""

        def count() -> int:
            with self._core.reading() as db:
                return int(db.execute("SELECT COUNT(*) FROM memories", ()).fetchone()[0])

        before = count()
        self.sweep()
        return before - count()

    def start_ttl_sweeper(self) -> None:
        """Sweep until the store is closed."""
        minutes = (self.ttl_config or {}).get("sweep_interval_minutes") or 5
        self._sweeper.enter_context(self.sweeper(minutes * 60))

    def stop_ttl_sweeper(self) -> None:
        """End it."""
        self._sweeper.close()

    def _cursor(self) -> Any:
        return _cursor(self.url)


@contextlib.contextmanager
def _cursor(url: str) -> Iterator[Any]:
    with psycopg.connect(url, autocommit=True, row_factory=dict_row) as db:
        yield db.cursor()


def _opened(
    kind: type[Store], given: str, index: Any = None, ttl: Any = None, **more: Any
) -> Store:
    if index is not None:
        index = {**index, "fields": index.get("fields") or index.get("text_fields")}
    url = given
    if "://" not in given:
        url = "sqlite://" if given == ":memory:" else f"sqlite:///{given}"
    store = kind.from_url(url, index=index, ttl=ttl)
    store.url = url
    return store


class SyncStore(Store):
    """In the place of `SqliteStore` and `PostgresStore`."""

    @classmethod
    @contextlib.contextmanager
    def from_conn_string(cls, given: str, **more: Any) -> Iterator[Store]:
        """Open a database."""
        with _opened(cls, given, **more) as store:
            yield store


class AsyncStore(Store):
    """In the place of `AsyncSqliteStore` and `AsyncPostgresStore`."""

    @classmethod
    @contextlib.asynccontextmanager
    async def from_conn_string(cls, given: str, **more: Any) -> AsyncIterator[Store]:
        """Open a database."""
        async with _opened(cls, given, **more) as store:
            yield store

    async def setup(self) -> None:  # type: ignore[override]
        """Do nothing: tables are made when the store is opened."""

    async def sweep_ttl(self) -> int:  # type: ignore[override]
        """Sweep, and return how many items are gone."""
        return super().sweep_ttl()

    async def start_ttl_sweeper(self) -> None:  # type: ignore[override]
        """Sweep until the store is closed."""
        super().start_ttl_sweeper()

    async def stop_ttl_sweeper(self) -> None:  # type: ignore[override]
        """End it."""
        super().stop_ttl_sweeper()

    @contextlib.asynccontextmanager
    async def _cursor(self) -> AsyncIterator[Any]:
        connect = psycopg.AsyncConnection.connect
        async with await connect(self.url, autocommit=True, row_factory=dict_row) as db:
            yield db.cursor()


class MemoryStore(Store):
    """In the place of `InMemoryStore`."""

    def __init__(self, *, index: Any = None) -> None:
        url = "sqlite://"
        if POSTGRES:
            mark = "&" if "?" in POSTGRES else "?"
            url = f"{POSTGRES}{mark}schema=t_{os.getpid()}_{next(_SCHEMAS)}"
        vars(self).update(vars(Store.from_url(url, index=index)))


# --- agents


class Compiled:
    """An agent as the graph that `create_agent` gives."""

    def __init__(self, agent: Agent[Any]) -> None:
        self._agent = agent

    def invoke(self, given: Mapping[str, Any], config: Any = None) -> dict[str, Any]:
        """Run, and return the messages and the output."""
        thread = ((config or {}).get("configurable") or {}).get("thread_id")
        result = self._agent.invoke(given, thread_id=thread)
        return {"messages": result.messages, "structured_response": result.output}


def create_agent(
    model: Any,
    tools: Sequence[Any] = (),
    *,
    system_prompt: str = "",
    middleware: Sequence[Any] = (),
    response_format: Any = None,
    checkpointer: Any = None,
) -> Compiled:
    """Make an agent of ours from LangChain's arguments."""
    _note()
    output, retries = response_format, 2
    if isinstance(response_format, ToolStrategy | ProviderStrategy):
        way = ToolOutput if isinstance(response_format, ToolStrategy) else NativeOutput
        output = way(_types(response_format.schema))
        retries = 2 if getattr(response_format, "handle_errors", False) else 0
    agent: Agent[Any] = Agent(
        model=model,
        tools=[*tools],
        system_prompt=system_prompt,
        hooks=[*map(MiddlewareHook, middleware)],
        output_type=output,
        output_retries=retries,
        store=checkpointer,
    )
    return Compiled(agent)


def _types(schema: Any) -> Any:
    if isinstance(schema, dict):
        return tuple(schema["oneOf"]) if "oneOf" in schema else schema
    return get_args(schema) if isinstance(schema, types.UnionType) else schema


# --- pytest


def _stand_in() -> None:
    places: dict[str, dict[str, Any]] = {
        "langchain.agents": {"create_agent": create_agent},
        "langchain.agents.structured_output": {
            "StructuredOutputValidationError": OutputError,
            "MultipleStructuredOutputsError": OutputError,
        },
        "langgraph.store.memory": {"InMemoryStore": MemoryStore},
        "langgraph.store.sqlite": {"SqliteStore": SyncStore, "AsyncSqliteStore": AsyncStore},
        "langgraph.store.sqlite.aio": {"AsyncSqliteStore": AsyncStore},
        "langgraph.store.postgres": {"PostgresStore": SyncStore, "AsyncPostgresStore": AsyncStore},
    }
    for module, names in places.items():
        vars(importlib.import_module(module)).update(names)


_stand_in()


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Give LangGraph's tests the address of the server."""
    conftest = sys.modules.get("tests.conftest")
    if POSTGRES and conftest is not None and hasattr(conftest, "DEFAULT_URI"):
        vars(conftest)["DEFAULT_URI"] = POSTGRES


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out the repetitions of a test with a pipeline and with a pool of connections.

    They are ways of LangGraph's stores to connect; ours has one, so they would do the same again.
    """
    ways = {"pipe", "pool"}
    items[:] = [
        one
        for one in items
        if not (hasattr(one, "callspec") and str(one.callspec.params.get("store")) in ways)
    ]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note that a new test begins."""
    global _used
    _used = False


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """Write down the outcome of each test that uses a part of ours."""
    outcome = yield
    report = outcome.get_result()
    if not _used or (report.when != "call" and not report.failed):
        return
    name = item.nodeid.removeprefix("tests/")
    line = {"name": name, "saver": "ours", "outcome": report.outcome, "text": report.longreprtext}
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    with Path(os.environ["WICK_LANGGRAPH_OUTCOMES"], worker).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
