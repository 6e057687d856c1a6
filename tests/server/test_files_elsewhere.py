"""A run is refused on a machine without the files of its thread, and never starts without them."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.server.support import caller, frames
from wick_graph import load
from wick_graph.server import Server
from wick_graph.service import tenants
from wick_graph.service.options import ServerOptions
from wick_graph.store import SqlSaver

ASK = {"messages": [{"role": "user", "content": "Go on."}]}
ELSEWHERE = "the files of this thread are on another machine"
RUN = "11111111-1111-4111-8111-111111111111"
AGENTS = """\
store: 'STORE'
agents:
  plain: {model: 'scripted:talk.yaml'}
  own: {model: 'scripted:talk.yaml', backend: {type: local, workdir: ./own, execute: 'off'}}
  mount:
    model: scripted:talk.yaml
    backend: {type: local, workdir: ./mount, execute: 'off', shared: true}
  above: {model: 'scripted:talk.yaml', subagents: {own: {description: Work with files.}}}
"""


def test_a_thread_stays_with_its_files(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "agents.yaml").write_text(AGENTS.replace("STORE", postgres_url), "utf-8")
    (tmp_path / "talk.yaml").write_text("steps: ['That is all.', 'And more.']\n", "utf-8")
    with SqlSaver.from_url(postgres_url) as saver:  # a run of a machine that has died
        asked = {"agent": "own", "kind": "message", "messages": ASK["messages"]}
        row = saver.streams.begin("lost", RUN, asked, machine="another")
        assert row is not None
        saver.streams.leave(row)
    options = ServerOptions(port=0)
    with (
        Server(load(tmp_path / "agents.yaml"), options=options) as server,
        caller(server, "local") as http,
    ):

        def ask(agent: str) -> httpx.Response:
            return http.post(f"/agents/{agent}/invoke", json={**ASK, "thread_id": f"t-{agent}"})

        ((_, name, data),) = frames(http.get(f"/runs/{RUN}/events").text)
        assert name == "error"
        assert ELSEWHERE in data
        every = ("plain", "own", "mount", "above")
        assert [ask(agent).status_code for agent in every] == [200] * 4
        with monkeypatch.context() as patch:
            # One machine has one name: no test can have two of them.
            patch.setattr(tenants, "identity", lambda: "another")
            got = {agent: ask(agent) for agent in every}
            assert [got[agent].status_code for agent in every] == [200, 409, 200, 409]
            assert got["own"].json()["error"].startswith(ELSEWHERE)
            new = http.post("/agents/own/invoke", json=ASK)
            assert new.status_code == 200
        assert ask("own").status_code == 200
        assert http.get("/threads/t-own/state").json()["messages"][-1]["content"] == "And more."
