"""What all tests share."""

from __future__ import annotations

import gc
import os
import re
from typing import Final
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings

from tests.sandbox.fixtures import container_engine
from tests.support.postgres import postgres_server, postgres_url
from tests.support.provider import provider

__all__ = ("container_engine", "postgres_server", "postgres_url", "provider")

BY_NIGHT: Final = re.compile(
    r"durability/test_restarts\.py::.*(?:\[postgres|by_as_many_charges|async_door|with_a_key_that)"
    r"|durability/test_kill\.py::test_killed_anywhere.*\[(?:postgres|sqlite-safe)"
    r"|durability/test_crash_points\.py::.*\[postgres-.*-[23]\]"
    r"|durability/test_machine\.py::test_the_same_on_postgres"
    r"|durability/test_ownership\.py::.*\[postgres"
    r"|store/test_store_(?:kill|encryption|orphans)\.py::.*postgres"
    r"|server/test_restarts\.py::(?:test_shut_downs|test_a_kill_while|test_the_one_deadly)"
    r"|server/test_traces\.py::test_a_run_that_was_killed"
    r"|server/test_signals\.py::.*(?:SIGTERM-twice|SIGHUP|who_waits.*completions)"
    r"|e2e/test_scenarios\.py::.*\[docker"
    r"|e2e/test_threads\.py::test_a_run_that_is_told_to_end.*SIGINT"
    r"|attacks/test_commands_limits\.py::test_a_flood.*\[container-C4-(?!yes)"
    r"|e2e/test_chat\.py::test_ctrl_c_cancels"
    r"|mcp/test_bounds\.py::test_an_answer_is_bounded_while.*-sync_door"
    r"|mcp/test_bounds\.py::test_an_answer_is_bounded_while.*flood"
    r"|attacks/test_files\.py::test_attack\[(?:walk|openat2)-A(?:13|32)\]"
    r"|attacks/test_commands_surroundings\.py::.*\[container-C6-(?!cat)"
    r"|attacks/test_commands_reach\.py::.*\[container-C23-(?!0)"
    r"|attacks/test_commands_ending\.py::.*\[container-(?:C1-(?!sleeps)|C2-(?!setsid))"
    r"|attacks/test_control_commands\.py::.*\[container-(?!appended|links made)"
    r"|store/test_store_kill\.py::.*sqlite-foreign"
    r"|backends/test_backends_atomic\.py::test_fifty_kills"
)
"""Many real processes that are killed, of which a sister test runs each time; `make test-slow` runs
them all."""


settings.register_profile("project", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("project")  # how long a draw takes on a busy machine says nothing of a test


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what runs by night: what is named above, and of sisters all but some."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if BY_NIGHT.search(item.nodeid):
            item.add_marker(pytest.mark.slow)
        elif item.get_closest_marker("sisters"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for name, found in cases.items():
        marker = found[0].get_closest_marker("sisters")
        every = next(iter(marker.args if marker else ()), len(found))
        first = crc32(name.encode()) % min(every, len(found))  # so that not all take the same door
        for at, item in enumerate(found):
            if at % every != first:
                item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """Let no garbage collection look through ten thousand tests: it takes seconds, and pages."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _no_keys_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Tests decide themselves which models and providers exist."""
    for name in list(os.environ):
        if name.endswith("_API_KEY") or name in ("WICK_MODEL", "OPENAI_BASE_URL"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("OLLAMA_HOST", "http://127.0.0.1:1")
    monkeypatch.setenv("LANGSMITH_TRACING", "false")
