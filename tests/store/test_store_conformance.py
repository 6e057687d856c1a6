from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from langgraph.checkpoint.conformance import checkpointer_test, validate

from wick_graph.store import SqlSaver

CAPABILITIES = (
    *("put", "put_writes", "get_tuple", "list", "delete_thread"),
    *("delete_for_runs", "copy_thread", "prune"),
)


@pytest.fixture
def registered(database: str, request: pytest.FixtureRequest) -> Any:
    """The saver as the suite takes it; it gets one for each of its tests."""
    url = str(request.getfixturevalue("postgres_url")) if database == "postgres" else "sqlite://"

    @checkpointer_test(name="SqlSaver")
    async def made() -> AsyncIterator[SqlSaver]:
        async with SqlSaver.from_url(url) as saver:
            yield saver

    return made


@pytest.mark.sisters(1)
@pytest.mark.parametrize("capability", CAPABILITIES)
async def test_a_capability_is_detected_and_passes(registered: Any, capability: str) -> None:
    report = await validate(registered, capabilities={capability})
    result = report.results[capability]
    assert result.detected
    assert result.passed is True, result.failures
    assert result.tests_passed > 0


async def test_there_is_no_capability_that_we_do_not_name(registered: Any) -> None:
    report = await validate(registered, capabilities=set())
    assert set(report.results) <= set(CAPABILITIES)
