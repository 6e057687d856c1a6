"""Two servers over one database: a thread is one thread, whichever of them is asked."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.support import AGENTS, ENDLESS, Served, frames, serving
from tests.support.postgres import with_schema
from wick_graph.service.event_log import TERMINAL

ASK = {"messages": [{"role": "user", "content": "What is 21*2?"}]}
OTHER = {"messages": [{"role": "user", "content": "What is 6*7?"}]}


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Served, Served]]:
    """Two servers in processes of their own, and one database."""
    folder = tmp_path_factory.mktemp("pair")
    agents = AGENTS + "  endless: {model: 'scripted:endless.yaml'}\n"
    if request.param == "postgres":
        url = with_schema(request.getfixturevalue("postgres_server"), f"t_{secrets.token_hex(6)}")
        agents = agents.replace("sqlite:///wick.db", json.dumps(url))
    with serving(folder, agents=agents, endless=ENDLESS) as one:
        two = Served(folder)
        try:
            yield one, two.start()
        finally:
            if two.process is not None:
                two.kill()


def ends(told: str) -> list[str]:
    return [name for _, name, _ in frames(told) if name in TERMINAL]


async def at_once(pair: tuple[Served, Served], path: str, body: Any, **headers: str) -> list[Any]:
    """Post the same to both servers at the same moment, four times each."""

    async def ask(served: Served) -> list[httpx.Response]:
        async with httpx.AsyncClient(base_url=served.url, timeout=30, trust_env=False) as http:
            posts = (http.post(path, json=body, headers=headers) for _ in range(4))
            return await asyncio.gather(*posts)

    return [answer for got in await asyncio.gather(*map(ask, pair)) for answer in got]


@pytest.mark.sisters
async def test_D35_two_servers_are_asked_for_one_thread_at_once(
    pair: tuple[Served, Served],
) -> None:
    for number in range(5):
        body = {**ASK, "thread_id": f"race-{number}"}
        got = await at_once(pair, "/agents/default/stream", body)
        assert {answer.status_code for answer in got} <= {200, 409}, [a.text for a in got]
        assert all(
            answer.json() == {"error": "thread is busy"}
            for answer in got
            if answer.status_code == 409
        )
        won = [answer.text for answer in got if answer.status_code == 200]
        assert won
        assert [ends(told) for told in won] == [["done"]] * len(won)
        with pair[0].http() as http:
            said = http.get(f"/threads/race-{number}/state").json()["messages"]
        assert [message["role"] for message in said].count("user") == len(won)


@pytest.mark.sisters
async def test_W7_one_key_at_two_servers_is_one_run(pair: tuple[Served, Served]) -> None:
    for number in range(5):
        got = await at_once(
            pair, "/agents/default/invoke", ASK, **{"Idempotency-Key": f"race-{number}"}
        )
        assert {answer.status_code for answer in got} == {200}, [a.text for a in got]
        assert len({answer.json()["run_id"] for answer in got}) == 1


@pytest.mark.sisters
def test_cancel_reaches_a_run_of_the_other_server(pair: tuple[Served, Served]) -> None:
    one, two = pair
    for verb, name in (("runs", "x-run-id"), ("threads", "x-thread-id")):
        with one.http() as http, http.stream("POST", "/agents/endless/stream", json=ASK) as got:
            lines = got.iter_lines()
            next(lines)
            run = got.headers["x-run-id"]
            with two.http() as other:
                answer = other.post(f"/{verb}/{got.headers[name]}/cancel")
                assert answer.status_code == 200, answer.text
                assert other.get(f"/runs/{run}").json()["status"] == "cancelled"
            told = "\n".join(lines)
        assert ends(told) == ["error"]
        assert json.loads(frames(told)[-1][2])["data"] == {
            "error": "run cancelled",
            "stopped_because": "cancelled",
        }
        body = {**ASK, "thread_id": got.headers["x-thread-id"]}
        with two.http() as other:
            assert other.post("/agents/default/invoke", json=body).status_code == 200
            listed = other.get(f"/runs/{run}/events").text
        assert ends(listed)[:1] == ["error"]


@pytest.mark.sisters
def test_a_run_of_the_other_server_is_followed_and_its_thread_is_busy(
    pair: tuple[Served, Served],
) -> None:
    one, two = pair
    with one.http() as http, http.stream("POST", "/agents/slow/stream", json=ASK) as got:
        next(got.iter_lines())
        with two.http() as other:
            body = {**ASK, "thread_id": got.headers["x-thread-id"]}
            refused = other.post("/agents/default/invoke", json=body)
            assert (refused.status_code, refused.json()) == (409, {"error": "thread is busy"})
            thread = f"/threads/{got.headers['x-thread-id']}"
            kept = other.delete(thread)
            assert (kept.status_code, kept.json()) == (409, {"error": "thread is busy"})
            told = other.get(got.headers["content-location"]).text
    assert ends(told) == ["done"]
    assert "word119" in told


@pytest.mark.slow
def test_a_server_that_stands_still_does_not_keep_a_cancelled_run(tmp_path: Path) -> None:
    with serving(tmp_path) as one:
        two = Served(tmp_path).start()
        assert one.process is not None
        try:
            with one.http() as http, http.stream("POST", "/agents/slow/stream", json=ASK) as got:
                lines = got.iter_lines()
                next(lines)
                os.kill(one.process.pid, signal.SIGSTOP)
                try:
                    with two.http() as other:
                        run = got.headers["x-run-id"]
                        assert other.post(f"/runs/{run}/cancel").json()["status"] == "cancelled"
                        body = {**ASK, "thread_id": got.headers["x-thread-id"]}
                        answer = other.post("/agents/default/invoke", json=body)
                        assert answer.json()["response"] == "It is 42."
                finally:
                    os.kill(one.process.pid, signal.SIGCONT)
                told = "\n".join(lines)
            with two.http() as other:
                kept = frames(other.get(f"/runs/{run}/events").text)
        finally:
            two.kill()
    assert ends(told) in ([], ["error"])  # it woke up, and has nothing to say any more
    assert [number for number, _, _ in kept] == [*range(1, len(kept) + 1)]
    assert [name for _, name, _ in kept if name in TERMINAL][:1] == ["error"]


@pytest.mark.sisters(3)
@pytest.mark.parametrize(
    ("first", "second", "status"),
    [
        pytest.param({}, {}, 200, id="D36-the-same"),
        pytest.param({"thread_id": "a"}, {"thread_id": "a"}, 200, id="D36-the-same-thread"),
        pytest.param({"thread_id": "b"}, {"thread_id": "c"}, 409, id="D36-another-thread"),
        pytest.param({"thread_id": "d"}, {}, 409, id="D36-no-thread-any-more"),
        pytest.param({}, {"thread_id": "e"}, 409, id="D36-a-thread-now"),
        pytest.param({}, OTHER, 409, id="D36-another-body"),
        pytest.param({}, {"agent": "slow"}, 409, id="D36-another-agent"),
    ],
)
def test_D36_a_key_is_for_one_request(
    shared: Served,
    request: pytest.FixtureRequest,
    first: dict[str, Any],
    second: dict[str, Any],
    status: int,
) -> None:
    headers = {"Idempotency-Key": request.node.callspec.id}

    def post(http: httpx.Client, more: dict[str, Any]) -> httpx.Response:
        body = {**ASK, **more}
        agent = body.pop("agent", "default")
        return http.post(f"/agents/{agent}/invoke", json=body, headers=headers)

    with shared.http() as http:
        one, two = post(http, first), post(http, second)
        assert one.status_code == 200
        assert two.status_code == status, two.text
        if status == 200:
            assert two.json()["run_id"] == one.json()["run_id"]
        else:
            assert two.json() == {"error": "the Idempotency-Key was used for another request"}


def test_D36_a_key_of_a_resume_is_for_one_thread(shared: Served) -> None:
    answer = {"answer": {"decision": "approve"}}
    headers = {"Idempotency-Key": "resumed"}
    with shared.http() as http:
        one, two = (http.post("/agents/careful/invoke", json=ASK).json() for _ in range(2))
        done = http.post(
            "/agents/resume", json={"thread_id": one["thread_id"], **answer}, headers=headers
        )
        assert done.json()["response"] == "It is 42."
        refused = http.post(
            "/agents/resume", json={"thread_id": two["thread_id"], **answer}, headers=headers
        )
        assert refused.status_code == 409
        assert http.get(f"/threads/{two['thread_id']}").json()["status"] == "waiting"


def test_D36_an_answer_that_is_sent_again_is_the_same_run(shared: Served) -> None:
    with shared.http() as http:

        def resume(header: str, value: str, **more: Any) -> httpx.Response:
            return http.post("/agents/resume", json={**answer, **more}, headers={header: value})

        thread = http.post("/agents/careful/invoke", json=ASK).json()["thread_id"]
        [asked] = http.get(f"/threads/{thread}/approvals").json()
        answer = {"answer": {asked["interrupt_id"]: {"decision": "approve"}}, "thread_id": thread}
        one = resume("Idempotency-Key", "decided-once")
        http.post("/agents/careful/invoke", json={**ASK, "thread_id": thread})  # it waits again
        two = resume("Idempotency-Key", "decided-once")
        assert (one.status_code, two.status_code) == (200, 200), two.text
        assert two.json()["run_id"] == one.json()["run_id"]
        assert resume("Last-Event-ID", "0", stream=True).status_code == 409  # before the answer
        first = frames(http.get(f"/runs/{one.json()['run_id']}/events").text)
        assert frames(resume("Last-Event-ID", str(first[0][0]), stream=True).text) == first[1:]
        assert http.get(f"/threads/{thread}").json()["status"] == "waiting"
