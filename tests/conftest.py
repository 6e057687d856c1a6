"""What all tests share."""

from __future__ import annotations

import functools
import gc
import itertools
import os
import re
import ssl
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings

from tests.sandbox.fixtures import container_engine
from tests.support.leftovers import Leftovers
from tests.support.often import often
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
    r"|store/test_store_kill\.py"
    r"|e2e/test_targets\.py::test_a_server_keeps_tenants_apart_and_takes_runs_up"
    r"|subagents/test_background\.py::test_a_task_whose_process_was_killed"
    r"|durability/test_restarts\.py::test_(?:the_command_runs_a_poisoned|what_a_child_gets_done)"
    r"|server/test_callbacks\.py::test_a_name_that_leads_inside_later"
    r"|e2e/test_delegation\.py::test_the_picture_shows"
    r"|debug/test_durable\.py::test_a_stop_is_gone_on_with_in_another_process\[(?!M7)"
    r"|attacks/test_commands_limits\.py::test_the_limit_of_processes"
    r"|store/test_store_concurrency\.py::test_a_fork_while"
    r"|durability/test_ownership\.py::test_w5"
    r"|attacks/test_grep\.py::.*pattern[1-9]"
    r"|gateway/test_gateway_kills\.py::.*(?:postgres|two_processes)"
    r"|gateway/test_hostile_doors\.py::test_(?:many_chats_keep|idle_connections)"
    r"|mcp/test_bounds\.py::test_an_answer_over_http_is_bounded_too\[encoded"
    r"|attacks/test_commands_surroundings\.py::.*container-X1-parallel"
    r"|worker/test_fleet\.py::test_a_deadly_run"
    r"|server/test_stored_changes\.py::test_all_servers_know.*sqlite"
    r"|server/test_langgraph\.py::test_a_client_sees.*\[(?:1|60)\]"
    r"|server/test_a2a\.py::test_a_client_sees_all.*\[0\.3"
    r"|server/test_page_looks\.py::.*light-320"
    r"|server/test_page_browser\.py::test_nothing_is_wider.*\[(?:900|320-dark|1600-light)"
    r"|protocols/test_acp\.py::test_a_run_that_was_cut_off.*\[left"
    r"|e2e/test_typed_resume\.py::test_(?:the_command_line|another_server)"
    r"|exports/test_chain\.py::test_a_run_(?:with_an_output|behind_two)"
    r"|test_guide\.py::test_the_tests_of_a_module_are_found"
    r"|debug/test_before\.py::test_a_call_that_a_crash.*(?:intent|result)"
    r"|test_packaging\.py::test_(?:sdist_builds|wheel_needs_no_link)"
    r"|test_door\.py::test_importing_everything"
    r"|durability/test_kill\.py::test_the_harness_can_fail"
)
"""Many real processes that are killed, of which a sister test runs each time; `make test-slow` runs
them all."""


settings.register_profile(
    "project", max_examples=often(100), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("project")  # how long a draw takes on a busy machine says nothing of a test


DOORS: Final = re.compile(r"\[(postgres|container)\b")
"""What costs a server or a container for each case: each file runs a third of them each time."""


MANY: Final = 8
"""Of a test with more cases than these, a run of all tests takes every third."""
ALWAYS_ALL: Final = re.compile(r"tests/(?:attacks/|test_\w+\.py)")
"""Attacks, and the laws of the house, whose cases are its files."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what runs by night, of sisters and of many cases all but some, what shares a server."""
    cases: dict[tuple[str, int], list[pytest.Item]] = {}
    alike: dict[str, list[pytest.Item]] = {}
    for item in items:
        name, door = item.nodeid.partition("[")[0], DOORS.search(item.nodeid)
        if BY_NIGHT.search(item.nodeid):
            item.add_marker(pytest.mark.slow)
        elif marker := item.get_closest_marker("sisters"):
            cases.setdefault((name, next(iter(marker.args), 0)), []).append(item)
        elif door:
            cases.setdefault((f"{name.partition('::')[0]} {door[1]}", 3), []).append(item)
        elif not ALWAYS_ALL.match(name) and not item.get_closest_marker("slow"):
            alike.setdefault(name, []).append(item)
        if file := _shares(item):
            item.add_marker(pytest.mark.xdist_group(file))
    whole = [Path(one).name for one in config.args] == ["tests"]
    if whole and not config.getoption("keyword"):  # whoever names a file or a test gets all of it
        cases |= {(name, 3): found for name, found in alike.items() if len(found) > MANY}
    for (name, every), found in cases.items():
        found.sort(key=lambda item: item.nodeid)
        every = every or len(found)
        first = crc32(name.encode()) % min(every, len(found))  # so that not all take the same door
        for at, item in enumerate(found):
            if at % every != first:
                item.add_marker(pytest.mark.slow)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """Load the modules of all tests once, unless it is counted which lines that runs."""
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    if whole and not config.getoption("cov_source", None):
        from tests.support import workers  # noqa: PLC0415 - xdist may be switched off

        workers.fork()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Deal groups out as xdist does, but in a time that does not grow with what has ended."""
    if config.getvalue("dist") != "loadgroup":
        return None
    from tests.support.scheduler import Scheduler  # noqa: PLC0415 - xdist may be switched off

    return Scheduler(config, log)


def _shares(item: pytest.Item) -> str | None:
    """Return the file of a test that shares what is made once for it; one process runs them."""
    if not isinstance(item, pytest.Function) or item.get_closest_marker("xdist_group"):
        return None
    made = item._fixtureinfo.name2fixturedefs.values()
    shared = any(one.scope == "module" and one.baseid for found in made for one in found)
    return item.nodeid.partition("::")[0] if shared else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage while tests are collected: nearly all that is made then is kept."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Let no garbage collection look through ten thousand tests: it takes seconds, and pages.

    What tests leave is looked for less often than usual too: that took a tenth of all their time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


_LEFTOVERS: Final = pytest.StashKey[Leftovers]()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    """Note the state of the process before the first test."""
    if _LEFTOVERS not in item.config.stash:
        item.config.stash[_LEFTOVERS] = Leftovers()
    yield


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None]:
    """Fail the test that leaves the process in another state than it found it in."""
    yield
    last = nextitem is None or nextitem.path != item.path
    if found := item.config.stash[_LEFTOVERS].look(item.nodeid, last=last):
        pytest.fail(found, pytrace=False)


@pytest.fixture(autouse=True, scope="session")
def _one_list_of_authorities() -> None:
    """Let each HTTP client share what takes it 20 ms to read, though no test leaves loopback."""
    ssl.create_default_context = functools.cache(ssl.create_default_context)  # type: ignore[assignment]


_FOLDERS: Final = itertools.count()


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the test's own, whose number is counted.

    pytest's looks at every folder of the session for it, which takes 3 ms when there are thousands.
    """
    name = re.sub(r"\W", "_", request.node.name)[:26]
    return tmp_path_factory.mktemp(f"{name}_{next(_FOLDERS)}", numbered=False)


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
