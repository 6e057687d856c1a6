"""The same recording and the same session on both databases."""

from __future__ import annotations

from typing import Any

import pytest

from tests.debug.support import WAIT, World
from wick_graph.debug import DebugSession


@pytest.mark.parametrize(
    "database",
    [pytest.param("sqlite", id="M1-sqlite"), pytest.param("postgres", id="M1-postgres")],
)
def test_recorded_stopped_forked_and_deleted(
    database: str, world: World, tmp_path: Any, request: pytest.FixtureRequest
) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    if database == "postgres":
        url = str(request.getfixturevalue("postgres_url"))
    agent, _ = world.agent(url)
    with agent:
        with DebugSession(agent) as session:
            session.breakpoints.break_("tool:add", "args.a == 2")
            session.run("add them", thread_id="t", stop_on_entry=False, timeout=WAIT)
            assert session.request("@3.3").exact
            assert session.cont(timeout=WAIT).reason == "finished"
        with DebugSession.open(url, "t", agent=agent) as session:
            assert session.banners == []
            assert len(session.inspect.moments()) == 62
            assert session.until("len(messages) == 6").moved
            session.goto("@error")
            assert session.inspect.call() is not None
            plan = session.fork(result="0")
            stop = session.live(plan, timeout=WAIT)
            while stop.reason != "finished":
                stop = session.cont(timeout=WAIT)
            assert session.branch == 1
            assert len(world.added) == 3
        assert agent.threads.delete("t")
        assert agent.threads.get("t") is None
