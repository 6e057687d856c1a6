"""agents.yaml read anew: what is broken changes nothing, and nobody waits for what is built."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.support import AGENTS, CALL, TALK, Served
from tests.support.waiting import until
from wick_graph import loading
from wick_graph.config import load_config
from wick_graph.server import ServerOptions, Service, create_app
from wick_graph.service import service, tenants
from wick_graph.service.folders import config_for

ASK = {"messages": [{"role": "user", "content": "What is 21*2?"}]}
MORE = AGENTS + "  more: {model: 'scripted:talk.yaml'}\n"
IN_VAIN = 20  # seconds that work on the loop waits for the loop
BROKEN = {
    "no YAML": "agents: [",
    "an unknown key": AGENTS + "    colour: red\n",
    "an unknown tool": AGENTS + "    tools: [levitate]\n",
    "an unknown model": AGENTS.replace("scripted:slow.yaml", "nobody:x"),
    "another store": AGENTS.replace("wick.db", "other.db"),
    "nothing at all": "",
}


def served_in(path: Path) -> Service:
    for name, text in {"agents": AGENTS, "talk": TALK, "slow": TALK}.items():
        (path / f"{name}.yaml").write_text(text, "utf-8")
    file = path / "agents.yaml"
    return Service(load_config(file), ServerOptions(auth=False, reload=True), path=file)


async def test_what_is_broken_leaves_the_agents_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(service, "_READ", 0.01)
    served = served_in(tmp_path)
    agents = served.local.agents
    async with served.running():
        for number, text in enumerate(BROKEN.values(), 1):
            (tmp_path / "agents.yaml").write_text(text, "utf-8")
            while len(caplog.records) < number:
                await asyncio.sleep(0.01)
            assert [*agents] == ["default", "slow", "careful"]
        (tmp_path / "agents.yaml").write_text(MORE, "utf-8")
        while "more" not in agents:
            await asyncio.sleep(0.01)
    assert len(caplog.records) == len(BROKEN)
    for record in caplog.records:
        assert record.levelname == "ERROR"
        assert record.getMessage().startswith("the configuration was not reloaded: ")
        assert "\n" not in record.getMessage().rstrip()


def test_a_run_under_way_ends_as_it_began(server: Served) -> None:
    server.stop()
    slow = f"chunk_delay: 0.1\nsteps: [{CALL}, '{' '.join(f'word{i}' for i in range(20))}']\n"
    server.write(slow=slow).start("--reload")
    with server.http() as http, http.stream("POST", "/agents/slow/stream", json=ASK) as got:
        got_lines = got.iter_lines()
        next(got_lines)
        server.write(agents=AGENTS.replace("slow:", "fast:"))
        until(lambda: http.get("/agents/slow").status_code == 404, "the file was not read again")
        told = "\n".join(got_lines)
    assert "word19" in told
    assert "event: done" in told


class Slow:
    """Work that goes on only when the loop has turned: on the loop itself it waits in vain."""

    def __init__(self) -> None:
        self.began, self.may_go_on = threading.Event(), threading.Event()
        self.waited_for_nobody: list[bool] = []

    def before(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def work(*args: Any, **kwargs: Any) -> Any:
            self.began.set()
            self.waited_for_nobody.append(self.may_go_on.wait(IN_VAIN))
            return real(*args, **kwargs)

        return work

    async def let_go(self) -> None:
        """Let the work go on, from the loop."""
        while not self.began.is_set():
            await asyncio.sleep(0.005)
        self.may_go_on.set()


@pytest.mark.sisters(4)
@pytest.mark.parametrize("what", ["reading the file", "building its agents", "a new tenant's"])
async def test_nobody_waits_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    served, path, slow = served_in(tmp_path), tmp_path / "agents.yaml", Slow()
    if what == "reading the file":
        monkeypatch.setattr(service, "load_config", slow.before(load_config))
    else:
        monkeypatch.setattr(loading, "build_agent", slow.before(loading.build_agent))
    async with served.running(), asyncio.TaskGroup() as beside:
        beside.create_task(slow.let_go())
        if what == "a new tenant's":
            async with served.using("anna") as anna:
                assert (await anna.agents.ready("default")).name == "default"
        else:
            path.write_text(MORE, "utf-8")
            door = httpx.ASGITransport(create_app(served))
            async with httpx.AsyncClient(transport=door, base_url="http://127.0.0.1") as http:
                while (await http.get("/agents/more")).status_code != 200:
                    await asyncio.sleep(0.05)
    assert slow.waited_for_nobody
    assert all(slow.waited_for_nobody)


@pytest.mark.parametrize("what", ["an agent", "a tenant"])
async def test_what_is_made_while_the_file_is_read_again_is_of_the_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(service, "_READ", 0.01)
    served, began, may_go_on = served_in(tmp_path), threading.Event(), threading.Event()

    def held(real: Callable[..., Any], at: int) -> Callable[..., Any]:
        def work(*args: Any, **kwargs: Any) -> Any:
            made = real(*args, **kwargs)
            if args[at].agents["default"].max_iterations == 9 and not began.is_set():
                began.set()
                may_go_on.wait(IN_VAIN)
            return made

        return work

    async def limit() -> int:
        async with served.using("anna") as anna:
            return (await anna.agents.ready("default")).spec.max_iterations

    async with served.running():
        if what == "an agent":
            monkeypatch.setattr(tenants, "build_agent", held(loading.build_agent, 1))
            monkeypatch.setattr(loading, "build_agent", held(loading.build_agent, 1))
        else:
            monkeypatch.setattr(service, "config_for", held(config_for, 0))
        making = asyncio.create_task(limit())
        while not began.is_set():
            await asyncio.sleep(0.01)
        text = AGENTS.replace("max_iterations: 9", "max_iterations: 7")
        (tmp_path / "agents.yaml").write_text(text, "utf-8")
        async with asyncio.timeout(60):
            while served.file.agents["default"].max_iterations == 9:
                await asyncio.sleep(0.01)
                if served._opening._waiters:
                    break  # the new file waits for the tenant
            may_go_on.set()
            await making
            while await limit() == 9:
                await asyncio.sleep(0.05)
