"""Streams: the seeds' order, detached runs, and readers that come back."""

from __future__ import annotations

import json
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from tests.server.support import AGENTS, CALL, Served, frames, serving
from tests.support.waiting import until
from wick_graph.errors import ConfigError
from wick_graph.events import ChatModelStream, Done, Event, Failed
from wick_graph.server import ServerOptions
from wick_graph.service.detached import is_in_a_call
from wick_graph.store import SqlSaver

ASK = {"messages": [{"role": "user", "content": "What is 21*2?"}]}
SHORT = [
    *("on_chat_model_start", "on_chat_model_stream", "on_chat_model_end"),
    *("on_tool_start", "on_tool_end"),
    *("on_chat_model_start", "on_chat_model_stream", "on_chat_model_end", "done"),
]


def names(text: str) -> list[str]:
    """Return the events' names; pieces of one text count once."""
    made: list[str] = []
    for _, name, _ in frames(text):
        if not (made and name == made[-1] == "on_chat_model_stream"):
            made.append(name)
    return made


def text_of(events: list[Event]) -> str:
    return "".join(event.delta for event in events if isinstance(event, ChatModelStream))


def test_the_order_of_the_seeds(shared: Served) -> None:
    with shared.http() as http:
        got = http.post("/agents/default/stream", json=ASK)
    assert got.headers["content-type"].startswith("text/event-stream")
    assert names(got.text) == SHORT
    found = frames(got.text)
    assert [number for number, _, _ in found] == [*range(1, len(found) + 1)]
    for _, name, data in found:
        assert json.loads(data)["event"] == name
    done = json.loads(found[-1][2])
    assert done["thread_id"] == got.headers["x-thread-id"] == done["data"]["thread_id"]
    assert done["data"]["stop_reason"] == done["data"]["stopped_because"] == "done"
    end = next(json.loads(data) for _, name, data in found if name == "on_tool_end")
    assert end["data"]["output"] == "42"


def test_the_default_agent_needs_no_id(shared: Served) -> None:
    with shared.http() as http:
        assert names(http.post("/agents/stream", json=ASK).text) == SHORT
        assert http.post("/agents/invoke", json=ASK).json()["response"] == "It is 42."


def test_a_reader_comes_back_behind_any_event(shared: Served) -> None:
    with shared.http() as http:
        first = http.post("/agents/default/stream", json=ASK)
        whole, path = frames(first.text), first.headers["content-location"]
        for number in range(len(whole) + 1):
            again = http.get(path, headers={"Last-Event-ID": str(number)})
            assert frames(again.text) == whole[number:]
        assert frames(http.get(path).text) == whole


def test_a_second_run_of_a_thread_numbers_on(shared: Served) -> None:
    with shared.http() as http:
        first = http.post("/agents/default/stream", json=ASK)
        body = {**ASK, "thread_id": first.headers["x-thread-id"]}
        last = frames(first.text)[-1][0]
        second = frames(http.post("/agents/default/stream", json=body).text)
    assert last is not None
    assert second[0][0] == last + 1


def test_posting_again_with_the_last_event_runs_nothing(shared: Served) -> None:
    with shared.http() as http:
        first = http.post("/agents/default/stream", json=ASK)
        body = {**ASK, "thread_id": first.headers["x-thread-id"]}
        again = http.post("/agents/default/stream", json=body, headers={"Last-Event-ID": "4"})
        assert frames(again.text) == frames(first.text)[4:]
        runs = http.get(f"/threads/{first.headers['x-thread-id']}/runs").json()
    assert len(runs) == 1


@pytest.mark.sisters(3)
@pytest.mark.parametrize("last", ["-1", "x", "", "1e3", "99999999999"])
def test_D33_what_is_no_number(shared: Served, last: str) -> None:
    with shared.http() as http:
        path = http.post("/agents/default/stream", json=ASK).headers["content-location"]
        got = http.get(path, headers={"Last-Event-ID": last})
    assert got.status_code == 400
    assert "error" in got.json()


def test_D33_a_number_that_no_event_has_is_a_gap(shared: Served) -> None:
    with shared.http() as http:
        first = http.post("/agents/default/stream", json=ASK)
        path = first.headers["content-location"]
        gap, *rest = frames(http.get(path, headers={"Last-Event-ID": "999999999"}).text)
    assert gap[:2] == (None, "gap")
    assert rest == frames(first.text)


@pytest.mark.slow
def test_a_run_goes_on_without_its_reader(server: Served) -> None:
    with server.http() as http, http.stream("POST", "/agents/slow/stream", json=ASK) as got:
        run = got.headers["x-run-id"]
        next(got.iter_lines())
    with server.client() as wick:
        events = [*wick.events(run)]
    assert isinstance(events[-1], Done)
    assert text_of(events).endswith("word119")


@pytest.mark.slow
def test_a_run_ends_with_its_reader_if_that_is_asked_for(server: Served) -> None:
    body = {**ASK, "on_disconnect": "cancel"}
    with server.http() as http:
        with http.stream("POST", "/agents/slow/stream", json=body) as got:
            run = got.headers["x-run-id"]
            next(got.iter_lines())
        until(lambda: http.get(f"/runs/{run}").json()["status"] != "running", "it never ended")
        assert http.get(f"/runs/{run}").json()["status"] == "cancelled"
        last = json.loads(frames(http.get(f"/runs/{run}/events").text)[-1][2])
    assert last["event"] == "error"
    assert last["data"] == {"error": "run cancelled", "stopped_because": "cancelled"}


@pytest.mark.slow
def test_what_becomes_of_a_run_is_the_server_s_choice_unless_the_request_says(
    tmp_path: Path,
) -> None:
    with (
        serving(tmp_path, "--no-auth", "--on-disconnect", "cancel") as served,
        served.http() as http,
    ):
        runs = []
        for more in ({}, {"on_disconnect": "continue"}):
            with http.stream("POST", "/agents/slow/stream", json={**ASK, **more}) as got:
                runs.append(got.headers["x-run-id"])
                next(got.iter_lines())
        ends = [frames(http.get(f"/runs/{run}/events").text)[-1][1] for run in runs]
        assert ends == ["error", "done"]
        assert http.get(f"/runs/{runs[0]}").json()["status"] == "cancelled"


def test_what_becomes_of_a_run_is_one_of_two() -> None:
    with pytest.raises(ConfigError, match="on_disconnect must be continue or cancel"):
        ServerOptions(on_disconnect="stay")  # type: ignore[arg-type]  # that is the mistake


def test_cancel_ends_a_run_and_the_thread_goes_on(endless: Served) -> None:
    with endless.http() as http:
        with http.stream("POST", "/agents/slow/stream", json=ASK) as got:
            thread, run = got.headers["x-thread-id"], got.headers["x-run-id"]
            lines = got.iter_lines()
            next(lines)
            assert http.post(f"/runs/{run}/cancel").json()["status"] == "cancelled"
            _, name, data = frames("\n".join(lines))[-1]
            told = {"error": "run cancelled", "stopped_because": "cancelled"}
            last = {"event": "error", "run_id": run, "data": told, "thread_id": thread}
            assert (name, json.loads(data)) == ("error", last)  # as `Failed.to_dict` in process
            with endless.client() as wick:
                (*_, end) = wick.events(run)
            assert end == Failed(
                error="run cancelled", stopped_because="cancelled", run_id=run, thread_id=thread
            )
        assert http.post(f"/runs/{run}/cancel").json()["status"] == "cancelled"
        body = {**ASK, "thread_id": thread}
        assert http.post("/agents/default/invoke", json=body).json()["response"] == "It is 42."


@pytest.mark.slow
def test_two_runs_of_one_thread_at_once(server: Served) -> None:
    with server.http() as http, http.stream("POST", "/agents/slow/stream", json=ASK) as got:
        body = {**ASK, "thread_id": got.headers["x-thread-id"]}
        for verb in ("invoke", "stream"):
            refused = http.post(f"/agents/default/{verb}", json=body)
            assert (refused.status_code, refused.json()) == (409, {"error": "thread is busy"})


def test_killed_in_the_middle_every_event_comes_once(server: Served) -> None:
    """The promise: kill -9, start again, and a reader with the last number misses nothing."""
    server.kill()
    words = " ".join(f"word{i}" for i in range(600))  # half a minute: it is killed in the middle
    server.write(slow=f"chunk_delay: 0.05\nsteps: [{CALL}, '{words}']\n").start()
    port = server.port
    with server.http() as http, http.stream("POST", "/agents/slow/stream", json=ASK) as got:
        path, seen, lines = got.headers["content-location"], "", got.iter_lines()
        for line in lines:
            seen += line + "\n"
            if "word20" in line:
                break
        server.kill()
        with suppress(httpx.HTTPError):
            for line in lines:
                seen += line + "\n"
    whole = seen[: seen.rfind("\n\n") + 2]
    last = frames(whole)[-1][0]
    server.write(slow=f"chunk_delay: 0\nsteps: [{CALL}, '{words}']\n").start(port=port)
    with server.http() as http:
        rest = http.get(path, headers={"Last-Event-ID": str(last)}).text
        all_of_it = frames(http.get(path).text)
    assert frames(whole) + frames(rest) == all_of_it
    assert [number for number, _, _ in all_of_it] == [*range(1, len(all_of_it) + 1)]
    kinds = [name for _, name, _ in all_of_it]
    assert kinds.count("done") == 1
    assert kinds[-1] == "done"
    assert "on_chat_model_retry" in kinds
    assert kinds.count("on_tool_start") == 1


NAPS = """
import time
from pathlib import Path

def nap() -> str:
    \"\"\"Sleep for as long as no file says that it is morning.\"\"\"
    while not Path("morning").exists():
        time.sleep(0.01)
    return "slept"
"""


def test_killed_in_a_tool_no_reply_is_void(tmp_path: Path) -> None:
    (tmp_path / "naps.py").write_text(NAPS, "utf-8")
    agents = "store: sqlite:///wick.db\nagents:\n  default:\n    model: scripted:talk.yaml\n"
    served = Served(tmp_path, ("--no-auth", "--trust"))
    served.write(
        agents=f"{agents}    tools: ['naps:nap']\n",
        talk="steps: [{text: Let me see., calls: [{tool: nap, args: {}}]}, 'Good morning.']",
    ).start()
    port = served.port
    with served.http() as http, http.stream("POST", "/agents/stream", json=ASK) as got:
        path = got.headers["content-location"]
        next(line for line in got.iter_lines() if "on_tool_start" in line)
        served.kill()
    (tmp_path / "morning").touch()
    served.start(port=port)
    try:
        with served.http() as http:
            kinds = [name for _, name, _ in frames(http.get(path).text)]
    finally:
        served.kill()
    assert kinds.count("done") == 1
    assert "on_chat_model_retry" not in kinds


@pytest.mark.parametrize(
    ("kinds", "is_open"),
    [
        (["on_chat_model_start", "on_chat_model_stream", "on_chat_model_stream"], True),
        (["on_chat_model_start", "on_subagent"], True),
        (["on_chat_model_stream", "on_chat_model_end"], True),  # its step may not be stored
        (["on_chat_model_end", "on_tool_start", "on_subagent"], False),
        (["on_chat_model_end", "on_tool_start", "on_tool_end"], False),
        (["on_chat_model_stream", "on_chat_model_retry"], False),
        (["on_output"], False),
        ([], False),
    ],
)
def test_where_a_crash_cut_a_run_off(kinds: list[str], is_open: bool) -> None:
    assert is_in_a_call({"event": kind} for kind in kinds) is is_open


@pytest.mark.slow
def test_the_client_takes_a_killed_server_s_stream_up_by_itself(server: Served) -> None:
    port = server.port
    events: list[Event] = []

    def read() -> None:
        with server.client() as wick:
            events.extend(wick.stream("What is 21*2?", agent="slow"))

    reader = threading.Thread(target=read)
    reader.start()
    time.sleep(1.0)
    server.kill()
    server.start(port=port)
    reader.join(60)
    assert isinstance(events[-1], Done)
    assert text_of(events).count("word119") == 1


@pytest.mark.slow
def test_no_new_run_while_the_server_goes_down(server: Served) -> None:
    with server.http() as http, http.stream("POST", "/agents/slow/stream", json=ASK) as got:
        lines = got.iter_lines()
        next(lines)
        assert server.process is not None
        server.process.send_signal(signal.SIGTERM)
        until(lambda: http.post("/agents/invoke", json=ASK).status_code == 503, "it took a run on")
        refused = http.post("/agents/invoke", json=ASK)
        assert "retry-after" in refused.headers
        assert frames("\n".join(lines))[-1][1] == "done"
    code, _ = server.stop()
    assert code == 0


@pytest.mark.slow
def test_a_failed_run_ends_its_stream_with_one_error(server: Served) -> None:
    server.kill()
    server.write(slow="steps: [{error: 'RuntimeError: no'}]").start()
    with server.client() as wick:
        events = [*wick.stream("x", agent="slow")]
    assert [type(event) for event in events].count(Failed) == 1
    assert isinstance(events[-1], Failed)


def test_a_run_that_waits_ends_its_stream_without_an_error(shared: Served) -> None:
    with shared.client() as wick:
        events = [*wick.stream("x" * 10, agent="careful", thread_id="waits")]
    assert [type(e).__name__ for e in events][-2:] == ["Interrupted", "Done"]
    assert not any(isinstance(event, Failed) for event in events)


def test_a_run_s_stream_ends_where_the_next_run_begins(shared: Served) -> None:
    with shared.http() as http:
        first = http.post("/agents/default/stream", json=ASK)
        thread, whole = first.headers["x-thread-id"], frames(first.text)
        body = {**ASK, "thread_id": thread}
        second = frames(http.post("/agents/default/stream", json=body).text)

        def told(path: str, last: int | None) -> list[tuple[int | None, str, str]]:
            return frames(http.get(path, headers={"Last-Event-ID": str(last)}).text)

        mine = first.headers["content-location"]
        assert told(mine, whole[-1][0]) == []
        assert told(mine, whole[-2][0]) == whole[-1:]
        gap, *rest = told(mine, second[3][0])  # an event that this run never had
        assert (gap[1], rest) == ("gap", whole)
        for last in (whole[3][0], whole[-1][0]):
            assert told(f"/threads/{thread}/events", last) == second


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["default", "failing"])
def test_a_run_whose_events_are_forgotten_still_tells_its_end(server: Served, agent: str) -> None:
    server.kill()
    key = {"Idempotency-Key": "one"}
    failing = AGENTS + "  failing: {model: 'scripted:failing.yaml'}\n"
    server.write(agents=failing, failing="steps: [{error: 'RuntimeError: no'}]").start()
    with server.http() as http:
        first = http.post(f"/agents/{agent}/stream", json=ASK, headers=key)
        run, thread = first.headers["x-run-id"], first.headers["x-thread-id"]
        other = {**ASK, "thread_id": thread}
        for _ in range(2):
            assert http.post("/agents/default/invoke", json=other).status_code == 200
    server.kill()
    with SqlSaver.from_url(f"sqlite:///{server.path}/wick.db") as store:
        store.streams.trim(thread, 2)
    server.start()
    with server.http() as http:
        told = frames(http.get(f"/runs/{run}/events").text)
        again = http.post(f"/agents/{agent}/invoke", json=ASK, headers=key)
    ends = "done" if agent == "default" else "error"
    assert told[-1][:2] == (frames(first.text)[-1][0], ends)
    assert [name for _, name, _ in told[:-1]] in (["gap"], [])
    if agent == "default":
        assert (again.status_code, again.json()["response"]) == (200, "It is 42.")
    else:
        assert again.status_code == 409
        assert "the run has ended: failed" in again.json()["error"]


def test_the_text_of_a_cancelled_run_is_in_its_thread_and_a_resume_gives_it_whole(
    shared: Served,
) -> None:
    thread = "cut-off"
    with shared.http() as http, shared.http() as other:
        got: list[str] = []
        with http.stream("POST", "/agents/slow/stream", json={**ASK, "thread_id": thread}) as sent:
            for line in sent.iter_lines():
                if not line.startswith("data: "):
                    continue
                event = json.loads(line.removeprefix("data: "))
                if event["event"] == "on_chat_model_start":
                    got.clear()
                elif event["event"] == "on_chat_model_stream":
                    got.append(event["data"]["delta"])
                    if "word5" in got[-1]:
                        run = sent.headers["x-run-id"]
                        assert other.post(f"/runs/{run}/cancel").status_code == 200
        state = other.get(f"/threads/{thread}/state").json()["messages"]
        assert [m["role"] for m in state] == ["user", "assistant", "tool", "assistant"]
        assert state[-1]["content"] == "".join(got)
        assert "word119" not in state[-1]["content"]
        whole = other.post("/agents/resume", json={"thread_id": thread})
        assert whole.json()["response"].endswith("word119")
        state = other.get(f"/threads/{thread}/state").json()["messages"]
        assert [m["role"] for m in state] == ["user", "assistant", "tool", "assistant"]
