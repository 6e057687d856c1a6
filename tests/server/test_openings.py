"""The order in which the runs of a tenant open, and what it keeps nobody from."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.support import AGENTS, CALL, SLOW, TALK, frames
from wick_graph.config import load_config
from wick_graph.engine.streaming import PAUSE, LoopListener, Pause
from wick_graph.server import Limits, ServerOptions, Service, create_app
from wick_graph.service import detached
from wick_graph.service.detached import Openings
from wick_graph.service.event_log import EventLog
from wick_graph.service.runs import RunRequest

ASK = {"messages": [{"role": "user", "content": "What is 21*2?"}]}
NAMES = [f"t{number}" for number in range(6)]


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """One run opens at a time, however long it takes."""
    monkeypatch.setattr(detached, "MOST", 1)
    monkeypatch.setattr(detached, "SLOW", 60)
    monkeypatch.setattr(detached, "BUSY", -1)


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


# --- The order alone.


async def test_few_open_at_a_time_in_the_order_in_which_they_came(
    one_by_one: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detached, "MOST", 2)
    order = Openings()
    came = [order.come() for _ in range(5)]

    def begun() -> list[int]:
        return [one.number for one in came if one.turn.done()]

    assert begun() == [1, 2]
    came[1].end()
    came[1].end()  # a second time, which lets nobody in
    assert begun() == [1, 2, 3]
    for one in came:
        one.end()
    assert begun() == [1, 2, 3, 4, 5]


async def test_who_has_said_a_word_waits_for_those_that_had_come_and_no_later_ones(
    one_by_one: None,
) -> None:
    order, told = Openings(), list[str]()
    first, second, third = order.come(), order.come(), order.come()
    first.end()
    assert first.when_others_have(lambda: told.append("first"))
    late = order.come()
    second.end()
    assert second.when_others_have(lambda: told.append("second"))
    assert told == [], "the third has not opened"
    third.end()
    assert told == ["first"]
    late.end()
    assert told == ["first", "second"]
    assert not late.when_others_have(lambda: told.append("late")), "there are none"


async def test_a_waiting_run_that_is_cancelled_keeps_nobody(one_by_one: None) -> None:
    order, told = Openings(), list[str]()
    first, gone, last = order.come(), order.come(), order.come()
    gone.turn.cancel()
    gone.end()
    first.end()
    assert last.turn.done()
    first.when_others_have(lambda: told.append("first"))
    last.end()
    assert told == ["first"]
    assert order.come().turn.done()


async def test_a_run_that_opens_slowly_keeps_others_for_a_while_only(
    one_by_one: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detached, "SLOW", 0.01)
    order = Openings()
    order.come()  # held by a hook
    await asyncio.wait_for(order.come().turn, 5)


async def test_runs_that_wait_in_hooks_keep_nobody(
    one_by_one: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detached, "BUSY", 0.7)
    monkeypatch.setattr(detached, "LOOK", 0.01)
    order = Openings()
    came = [order.come() for _ in range(5)]
    await asyncio.wait_for(came[-1].turn, 10)


def test_in_a_new_loop_it_looks_again(one_by_one: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server may be stopped and started in another loop."""
    monkeypatch.setattr(detached, "BUSY", 0.7)
    monkeypatch.setattr(detached, "LOOK", 0.01)
    monkeypatch.setattr(detached, "_LATE", 0.0)
    order = Openings()

    async def fill() -> None:
        for _ in range(3):
            order.come()

    async def wait() -> None:
        came = [order.come() for _ in range(3)]
        await asyncio.wait_for(came[-1].turn, 10)

    asyncio.run(fill())
    asyncio.run(wait())


# --- At a server.


def served(path: Path, *, slow: str = SLOW, **limits: int) -> Service:
    agents = AGENTS + "  quick: {model: 'scripted:quick.yaml', deadline: 2s}\n"
    (path / "agents.yaml").write_text(agents, "utf-8")
    (path / "talk.yaml").write_text(TALK, "utf-8")
    (path / "slow.yaml").write_text(slow, "utf-8")
    (path / "quick.yaml").write_text(f"steps: [{CALL}, 'It is 42.']\n", "utf-8")
    options = ServerOptions(auth=False, limits=Limits(**limits))
    return Service(load_config(path / "agents.yaml"), options)


@asynccontextmanager
async def asking(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    door = httpx.ASGITransport(create_app(service))
    async with (
        service.running(),
        httpx.AsyncClient(transport=door, base_url="http://127.0.0.1", timeout=60) as http,
    ):
        yield http


async def ask(
    http: httpx.AsyncClient, agent: str, names: Sequence[str], **headers: str
) -> list[httpx.Response]:
    """Ask in each thread at the same moment."""
    bodies = [{**ASK, "thread_id": name} if name else ASK for name in names]
    url = f"/agents/{agent}/stream"
    return await asyncio.gather(*(http.post(url, json=body, headers=headers) for body in bodies))


def ends(answers: Sequence[httpx.Response]) -> list[str]:
    """Return why each run stopped."""
    return [json.loads(frames(one.text)[-1][2])["data"]["stopped_because"] for one in answers]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The events of all runs, with their threads, in the order in which they are told."""
    found: list[tuple[str, str]] = []
    put = EventLog.put

    async def noting(self: EventLog, event: Any) -> None:
        found.append((self.row.thread_id, event["event"]))
        await put(self, event)

    monkeypatch.setattr(EventLog, "put", noting)
    return found


class Held:
    """Keeps runs of some threads from opening."""

    def __init__(self, *threads: str) -> None:
        self.threads, self.released = threads, asyncio.Event()

    def begin(self, request: RunRequest, agent: Any, row: Any, debug: Any = None) -> Any:
        events = BEGIN(request, agent, row)  # without the debugger of a test

        async def later() -> Any:
            if row.thread_id in self.threads:
                await self.released.wait()
            async for event in events:
                yield event

        return later()


BEGIN = RunRequest.begin


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    made = Held("held")
    monkeypatch.setattr(RunRequest, "begin", lambda *args: made.begin(*args))
    return made


async def spoken(seen: list[tuple[str, str]], thread: str) -> None:
    """Wait for a thread's first word."""
    while (thread, "on_chat_model_stream") not in seen:
        await asyncio.sleep(0.01)


async def live(service: Service, count: int) -> None:
    while len(service.local.runs.live) < count:
        await asyncio.sleep(0.01)


async def test_all_say_their_first_word_before_one_calls_a_tool(
    tmp_path: Path, one_by_one: None, seen: list[tuple[str, str]]
) -> None:
    async with asking(served(tmp_path)) as http:
        got = await ask(http, "default", NAMES)
    assert set(ends(got)) == {"done"}
    words = [name for name, event in seen if event == "on_chat_model_stream"]
    assert list(dict.fromkeys(words)) == NAMES
    last = max(seen.index((name, "on_chat_model_stream")) for name in NAMES)
    assert last < min(seen.index((name, "on_tool_start")) for name in NAMES)


async def test_a_model_that_thinks_keeps_nobody(
    tmp_path: Path, one_by_one: None, seen: list[tuple[str, str]]
) -> None:
    service = served(tmp_path, slow="steps: [{delay: 4, text: Well.}]\n")
    async with asking(service) as http:
        first = asyncio.create_task(ask(http, "slow", ["thinks"]))
        await live(service, 1)
        assert ends(await ask(http, "default", ["t1"])) == ["done"]
        assert ("thinks", "on_chat_model_stream") not in seen
        assert ends(await first) == ["done"]


async def test_the_pause_at_the_first_word_counts_for_no_deadline(
    tmp_path: Path, one_by_one: None, held: Held, seen: list[tuple[str, str]]
) -> None:
    """Nor does it keep anything back that was said before."""
    service = served(tmp_path)
    async with asking(service) as http:
        asked = asyncio.create_task(ask(http, "quick", ["a", "held", "b"]))
        await spoken(seen, "a")
        await asyncio.sleep(2.5)
        assert ("a", "on_tool_start") not in seen, "the others have not opened"
        assert ("b", "on_chat_model_start") not in seen, "one opens at a time"
        held.released.set()
        assert ends(await asked) == ["done"] * 3


async def test_runs_that_open_slowly_hold_another_for_a_moment_only(
    tmp_path: Path, held: Held
) -> None:
    service = served(tmp_path)
    names = [f"held{number}" for number in range(100)]
    held.threads = tuple(names)
    async with asking(service) as http:
        # The agent has no deadline: a hundred runs at once take a slow processor seconds.
        asked = asyncio.create_task(ask(http, "default", ["a", *names]))
        await live(service, 101)
        while "a" in service.local.runs.live:
            await asyncio.sleep(0.01)
        held.released.set()
        assert ends(await asked) == ["done"] * 101


async def test_a_run_that_waits_is_a_run(
    tmp_path: Path, one_by_one: None, held: Held, seen: list[tuple[str, str]]
) -> None:
    """It can be cancelled, its thread is busy, and it counts."""
    service = served(tmp_path, runs_per_tenant=3)
    async with asking(service) as http:
        asked = asyncio.create_task(ask(http, "default", ["held", "a", "b"]))
        await live(service, 3)
        assert (await http.delete("/threads/a")).status_code == 409
        assert [one.status_code for one in await ask(http, "default", ["a"])] == [409]
        assert [one.status_code for one in await ask(http, "default", ["c"])] == [429]
        run = service.local.runs.live["a"].row.run_id
        cancelled = await http.post(f"/runs/{run}/cancel")
        assert cancelled.json()["status"] == "cancelled"
        held.released.set()
        assert ends(await asked) == ["done", "cancelled", "done"]
    assert ("a", "on_chat_model_start") not in seen


async def test_of_many_at_the_same_moment_no_more_are_let_in(tmp_path: Path) -> None:
    """They all were, because none of them had begun."""
    async with asking(served(tmp_path, runs_per_tenant=2)) as http:
        got = await ask(http, "slow", NAMES)
        assert sorted(one.status_code for one in got) == [200, 200, 429, 429, 429, 429]
        keyed = await ask(http, "slow", [""] * 6, **{"Idempotency-Key": "once"})
        assert {one.status_code for one in keyed} == {200}, "they are one run"
        assert len({one.headers["x-run-id"] for one in keyed}) == 1


async def test_a_run_under_a_debugger_waits_for_nobody(
    tmp_path: Path, one_by_one: None, held: Held
) -> None:
    """Its session has a clock of its own, and holds it anyway."""
    service = served(tmp_path)
    async with asking(service) as http:
        asked = asyncio.create_task(ask(http, "default", ["held"]))
        await live(service, 1)
        service.local.runs.holders["a"] = object
        assert ends(await ask(http, "default", ["a"])) == ["done"]
        held.released.set()
        assert ends(await asked) == ["done"]


async def test_a_paused_run_can_be_cancelled(
    tmp_path: Path, one_by_one: None, held: Held, seen: list[tuple[str, str]]
) -> None:
    service = served(tmp_path)
    async with asking(service) as http:
        asked = asyncio.create_task(ask(http, "quick", ["a", "held", "b"]))
        await spoken(seen, "a")
        run = service.local.runs.live["a"].row.run_id
        cancelled = await http.post(f"/runs/{run}/cancel")
        assert cancelled.json()["status"] == "cancelled"
        held.released.set()
        assert ends(await asked) == ["cancelled", "done", "done"]
        assert ends(await ask(http, "quick", ["a"])) == ["done"]


async def test_a_run_that_is_cancelled_elsewhere_while_it_waits_never_begins(
    tmp_path: Path, one_by_one: None, held: Held, seen: list[tuple[str, str]]
) -> None:
    service = served(tmp_path)
    async with asking(service) as http:
        asked = asyncio.create_task(ask(http, "default", ["held", "a"]))
        await live(service, 2)
        row, streams = service.local.runs.live["a"].row, service.local.saver.streams
        await streams.run(streams.give_up, row, "cancelled", "cancelled")  # as another server does
        held.released.set()
        assert ends(await asked) == ["done", "cancelled"]
    assert ("a", "on_chat_model_start") not in seen


async def test_a_rollback_of_a_run_that_waits_leaves_the_turn_before(
    tmp_path: Path, one_by_one: None, held: Held
) -> None:
    service = served(tmp_path)
    form = {"assistant_id": "default", "input": {"messages": [{"role": "user", "content": "New"}]}}
    async with asking(service) as http:
        assert ends(await ask(http, "default", ["a"])) == ["done"]
        asked = asyncio.create_task(ask(http, "default", ["held", "a"]))
        await live(service, 2)
        new = {**form, "multitask_strategy": "rollback"}
        began = await http.post("/langgraph/threads/a/runs", json=new)
        assert began.status_code == 200, began.text
        held.released.set()
        assert ends(await asked) == ["done", "cancelled"]
        while service.local.runs.live:
            await asyncio.sleep(0.01)
        state = (await http.get("/langgraph/threads/a/state")).json()
    said = [one["content"] for one in state["values"]["messages"] if one["type"] == "human"]
    assert said == ["What is 21*2?", "New"]


async def test_a_pause_holds_no_run_in_another_loop() -> None:
    """A hook may read an agent in a loop of its own."""
    pause = Pause()
    PAUSE.set(pause)
    outer = LoopListener("outer", None, True)
    inner = await asyncio.to_thread(LoopListener, "inner", None, True)
    pause.hold()
    assert (outer.holds, inner.holds) == (True, False)
    outer.close()
    assert not outer.holds


async def test_a_run_that_waits_goes_on_after_a_restart(
    tmp_path: Path, one_by_one: None, held: Held
) -> None:
    service = served(tmp_path)
    async with asking(service) as http:
        asked = asyncio.create_task(ask(http, "default", ["held", "a"]))
        await live(service, 2)
        asked.cancel()  # its readers leave
        service.stop_now.set()
    held.released.set()
    again = served(tmp_path)
    async with asking(again) as http:
        for thread in ("held", "a"):
            while (await http.get(f"/threads/{thread}")).json()["status"] != "idle":
                await asyncio.sleep(0.02)
            assert (await http.get(f"/threads/{thread}")).json()["stopped_because"] == "done"
