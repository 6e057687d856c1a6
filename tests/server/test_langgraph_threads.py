"""LangGraph's thread protocol by its own clients: commands, events, streams that stay open."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import langgraph_sdk
import pytest
from langgraph_sdk.client import SyncLangGraphClient

from tests.server.support import Served
from tests.server.test_langgraph import APPROVE, ASK, SECONDS, client, last_text
from wick_graph import Agent
from wick_graph.hooks import InputGuardrail
from wick_graph.server import Server
from wick_graph.testing import ScriptedModel

__all__ = ["client"]

pytestmark = pytest.mark.xdist_group("langgraph")  # they share a server


def test_all_runs_of_a_thread_are_followed(shared: Served) -> None:
    async def follow() -> list[str]:
        async with langgraph_sdk.get_client(url=f"{shared.url}/langgraph") as client:
            thread_id = (await client.threads.create())["thread_id"]
            seen: list[str] = []
            both_seen = asyncio.Event()

            async def read() -> None:
                stream: Any = await client.threads.join_stream(thread_id)
                async for part in stream:
                    seen.append(part.event)
                    if seen.count("end") == 2:
                        both_seen.set()
                        return

            task = asyncio.create_task(read())
            for _ in range(2):
                await client.runs.wait(thread_id, "default", input=ASK)
            await asyncio.wait_for(both_seen.wait(), SECONDS)
            await task
            return seen

    seen = asyncio.run(follow())
    assert seen.count("metadata") == 2
    assert seen.count("end") == 2


def test_a_thread_stream_shows_a_run(shared: Served) -> None:
    async def work() -> None:
        async with (
            langgraph_sdk.get_client(url=f"{shared.url}/langgraph") as client,
            client.threads.stream(assistant_id="default") as thread,
        ):
            assert (await thread.run.start(input=ASK))["run_id"]
            messages, calls = await asyncio.gather(
                listed(thread.messages), listed(thread.tool_calls)
            )
            assert [await one.text for one in messages] == ["Let me see.", "It is 42."]
            assert [(one.name, await one.output) for one in calls] == [("calculate", "42")]
            assert last_text(await thread.output) == "It is 42."

    asyncio.run(asyncio.wait_for(work(), SECONDS))


async def listed(found: Any) -> list[Any]:
    return [one async for one in found]


def test_a_thread_stream_stays_open_from_a_question_into_the_run_after_it(shared: Served) -> None:
    async def work() -> None:
        async with (
            langgraph_sdk.get_client(url=f"{shared.url}/langgraph") as client,
            client.threads.stream(assistant_id="careful") as thread,
        ):
            await thread.run.start(input=ASK)
            await listed(thread.values)
            assert thread.interrupted
            with pytest.raises(RuntimeError, match=r"invalid_argument.*decisions"):
                await thread.run.respond("yes")
            await thread.run.respond(APPROVE["resume"])
            assert last_text(await thread.output) == "It is 42."

    asyncio.run(asyncio.wait_for(work(), SECONDS))


def test_the_same_in_sync(client: SyncLangGraphClient) -> None:
    with client.threads.stream(assistant_id="default") as thread:
        thread.run.start(input=ASK)
        texts = [str(one.text) for one in thread.messages]
        assert texts == ["Let me see.", "It is 42."]


def events_of(http: httpx.Client, thread_id: str, **body: Any) -> Iterator[dict[str, Any]]:
    path = f"/langgraph/threads/{thread_id}/stream/events"
    with http.stream("POST", path, json=body) as got:
        assert got.status_code == 200
        for line in got.iter_lines():
            if line.startswith("data: "):
                yield json.loads(line.removeprefix("data: "))


EVERY = ["values", "updates", "messages", "tools", "lifecycle", "input", "checkpoints", "tasks"]


def until_the_end(events: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    seen = []
    for event in events:
        seen.append(event)
        if event["params"]["data"].get("event") in ("completed", "failed", "interrupted"):
            break
    return seen


def started(http: httpx.Client, thread_id: str, agent: str = "default") -> dict[str, Any]:
    params = {"assistant_id": agent, "input": ASK}
    command = {"id": 1, "method": "run.start", "params": params}
    answer: dict[str, Any] = http.post(
        f"/langgraph/threads/{thread_id}/commands", json=command
    ).json()
    return answer


def test_events_have_an_order_and_stable_ids(shared: Served) -> None:
    with shared.http() as http:
        assert started(http, "ordered")["type"] == "success"
        seen = until_the_end(events_of(http, "ordered", channels=EVERY))
        numbers = [event["seq"] for event in seen]
        assert numbers == sorted(numbers)
        ids = [event["event_id"] for event in seen]
        assert len({*ids}) == len(ids)
        for event in seen[:-1:3]:
            rest = until_the_end(events_of(http, "ordered", channels=EVERY, since=event["seq"]))
            got = [one["event_id"] for one in rest]
            last = max(i for i, one in enumerate(seen) if one["seq"] == event["seq"])
            assert [one for one in got if one not in ids[: last + 1]] == ids[last + 1 :]


def test_filters_of_a_stream(shared: Served) -> None:
    with shared.http() as http:
        started(http, "filtered")
        only = until_the_end(events_of(http, "filtered", channels=["tools", "lifecycle"], since=0))
        assert {event["method"] for event in only} == {"tools", "lifecycle"}
        body = {"channels": ["colours"]}
        got = http.post("/langgraph/threads/filtered/stream/events", json=body)
        assert got.status_code == 400
        unknown = {"id": 7, "method": "state.fork", "params": {}}
        answer = http.post("/langgraph/threads/filtered/commands", json=unknown).json()
        assert (answer["type"], answer["id"], answer["error"]) == ("error", 7, "not_supported")


def test_events_of_a_thread_go_on_although_the_server_is_killed(server: Served) -> None:
    with server.http() as http:
        started(http, "killed", "slow")
        seen: list[Any] = []
        with suppress(httpx.HTTPError):
            for event in events_of(http, "killed", channels=EVERY):
                seen.append(event)
                if sum(one["method"] == "messages" for one in seen) == 20:
                    server.kill()
    server.start()
    with server.http() as http:
        since = seen[-1]["seq"]
        rest = until_the_end(events_of(http, "killed", channels=EVERY, since=since))
        whole = until_the_end(events_of(http, "killed", channels=EVERY, since=0))
    known = {one["event_id"] for one in seen}
    new = [one["event_id"] for one in rest if one["event_id"] not in known]
    assert new
    assert [*(one["event_id"] for one in seen), *new] == [one["event_id"] for one in whole]
    assert str(whole).count("'tool-started'") == 1


def test_the_last_words_of_a_guardrail_have_an_end(tmp_path: Path) -> None:
    hooks = [InputGuardrail(lambda text: "it is secret", answer="I keep it.")]
    agent = Agent("shy", ScriptedModel([]), hooks=hooks, store=f"sqlite:///{tmp_path}/wick.db")
    with Server(agent, port=0, auth=False) as server, httpx.Client(base_url=server.url) as http:
        with langgraph_sdk.get_sync_client(url=f"{server.url}/langgraph") as client:
            modes: Any = ["messages", "updates"]
            told = [*client.runs.stream(None, "shy", input=ASK, stream_mode=modes)]
        whole = {part.event: part.data for part in told}
        assert whole["messages/complete"][0]["content"] == "I keep it."
        assert whole["updates"]["model"]["messages"][0]["content"] == "I keep it."
        started(http, "t", "shy")
        events = until_the_end(events_of(http, "t", channels=["messages", "lifecycle"], since=0))
        said = [one["params"]["data"]["event"] for one in events if one["method"] == "messages"]
        assert (said[0], said[-1]) == ("message-start", "message-finish")
