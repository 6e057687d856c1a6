"""The page's API over recordings: pages, moments, requests, causes, sessions; nothing executes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, get_type_hints
from unittest.mock import ANY

import httpx
import pytest
from fastapi import routing
from fastapi.testclient import TestClient

from tests.debug.support import World
from tests.server.support import AGENTS, Served, frames, serving
from tests.source import ROOT
from tests.support import forked
from tests.support.waiting import until
from wick_graph import Agent
from wick_graph.cli.app import call
from wick_graph.config import AgentsFile
from wick_graph.debug import DebugSession, protocol
from wick_graph.debug.answers import INSIDE, WHOLE, Answers
from wick_graph.debug.fork import Planned
from wick_graph.debug.provenance import Cause
from wick_graph.debug.types import Frame
from wick_graph.errors import DebugError
from wick_graph.journal.blame import Blame
from wick_graph.journal.entry import entry_of
from wick_graph.server import recordings
from wick_graph.server.app import create_app
from wick_graph.service.options import ServerOptions
from wick_graph.service.service import Service
from wick_graph.store import SqlSaver
from wick_graph.testing import ScriptedModel, calls

pytestmark = pytest.mark.xdist_group("page_api")  # they share a server

BASE = "/ui/api/v1"
SECRET = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"
LONG = " ".join(f"line {number}" for number in range(20_000))
ASK = {"messages": [{"role": "user", "content": f"What is 21*2? My key is {SECRET}."}]}
CALL = "{text: Let me see., calls: [{tool: calculate, args: {expression: 21*2}}]}"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("page_api")
    talk = f"steps: [{CALL}, '{LONG}', {CALL}, Again.]"
    with serving(folder, agents=AGENTS, talk=talk) as made:
        yield made


@pytest.fixture(scope="module")
def http(served: Served) -> Iterator[httpx.Client]:
    with served.http() as client:
        client.headers["Origin"] = served.url
        yield client


@pytest.fixture(scope="module")
def thread(http: httpx.Client) -> str:
    done = http.post("/agents/default/invoke", json=ASK)
    assert done.status_code == 200, done.text
    return str(done.json()["thread_id"])


def get(http: httpx.Client, where: str, /, **query: Any) -> Any:
    got = http.get(f"/ui/api/v1{where}", params=query)
    assert got.status_code == 200, got.text
    assert SECRET not in got.text
    return got.json()


def rows(http: httpx.Client, thread: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = get(http, f"/threads/{thread}/moments", limit=500)["moments"]
    return found


def seq_of(http: httpx.Client, thread: str, kind: str, phase: str, nth: int = 0) -> int:
    found = [r for r in rows(http, thread) if (r["kind"], r["phase"]) == (kind, phase)]
    return int(found[nth]["seq"])


def test_pages_of_moments_are_all_of_them_in_order(http: httpx.Client, thread: str) -> None:
    about = get(http, f"/threads/{thread}/recording")
    assert [run["agent"] for run in about["runs"]] == ["default"]
    assert about["notes"] == []
    found: list[int] = []
    while page := get(http, f"/threads/{thread}/moments", after=len(found), limit=7)["moments"]:
        found += [row["seq"] for row in page]
    assert found == [*range(1, about["last"] + 1)]
    refused = http.get(f"/ui/api/v1/threads/{thread}/moments", params={"limit": 501})
    assert refused.status_code == 400


def test_a_page_costs_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [calls(("add", {"a": n, "b": 1})) for n in range(60)]
    url = f"sqlite:///{tmp_path / 'long.db'}"
    agent, _ = World().agent(url, *steps, "Done.", hooks=[], max_iterations=99)
    agent.invoke("add them", thread_id="t")
    agent.close()
    decoded = 0

    def counted(*args: Any) -> Any:
        nonlocal decoded
        decoded += 1
        return entry_of(*args)

    monkeypatch.setattr("wick_graph.journal.reader.entry_of", counted)
    with SqlSaver.from_url(url) as saver:
        answers = Answers(saver, "t", DebugSession.open)
        last = answers.recording().last
        assert last > 600
        assert decoded == 0
        for after in (0, last // 2, last - 20):
            decoded = 0
            page = answers.moments(after, 20)
            assert [row.seq for row in page.moments] == [*range(after + 1, after + 21)]
            assert decoded <= 40
        answers.close()


def test_a_moment_has_its_stack_and_its_call(http: httpx.Client, thread: str) -> None:
    seq = seq_of(http, thread, "tool", "exit")
    made = get(http, f"/threads/{thread}/moments/{seq}")
    assert made["call"]["args"] == {"expression": "21*2"}
    assert made["call"]["result"] == "42"
    assert [frame["kind"] for frame in made["stack"]][-1] == "agent"
    assert "calculate" in made["line"]


def test_a_request_says_where_each_part_is_from(http: httpx.Client, thread: str) -> None:
    seq = seq_of(http, thread, "model", "request", 1)
    head = get(http, f"/threads/{thread}/moments/{seq}/request")
    assert (head["when"], head["exact"], head["messages"]) == ("at", True, 3)
    parts = get(http, f"/threads/{thread}/moments/{seq}/blame")
    assert parts["total"] == len(parts["parts"])
    assert {part["by"] for part in parts["parts"]} >= {"thread", "agent"}
    last = get(http, f"/threads/{thread}/moments/{seq}/blame", limit=1)
    assert (last["offset"], len(last["parts"])) == (parts["total"] - 1, 1)


@pytest.mark.parametrize(
    ("row", "made"),
    [
        (protocol.CauseRow, Cause),
        (protocol.PlannedRow, Planned),
        (protocol.FrameRow, Frame),
        (protocol.PartRow, Blame),
    ],
)
def test_a_row_has_all_that_the_debugger_says(row: Any, made: Any) -> None:
    """A field or a kind that only one of the two knows would fail at the first such answer."""
    theirs = get_type_hints(made)
    fields = {name: field.annotation for name, field in row.model_fields.items()}
    assert {
        name: str if fields.get(name) is str else kind for name, kind in theirs.items()
    } == fields


def test_a_step_shows_what_it_changed_and_why(http: httpx.Client, thread: str) -> None:
    seq = seq_of(http, thread, "tool", "exit")
    changes = get(http, f"/threads/{thread}/moments/{seq}/diff")["changes"]
    assert next((c["path"], c["op"]) for c in changes) == ("messages[2]", "add")
    after = seq_of(http, thread, "model", "request", 1)
    why = get(http, f"/threads/{thread}/moments/{after}/why", path="messages[-1].content")
    assert why["causes"][0]["by"] == "tool:calculate"
    between = get(http, f"/threads/{thread}/moments/1/diff", to=after)
    assert len(between["changes"]) > 1
    writes = get(
        http, f"/threads/{thread}/moments/{seq_of(http, thread, 'node', 'exit', -1)}/writes"
    )
    assert "messages" in {write["channel"] for write in writes["writes"]}


def test_a_part_of_the_state_has_a_path_and_an_end(http: httpx.Client, thread: str) -> None:
    last = get(http, f"/threads/{thread}/recording")["last"]
    at = f"/threads/{thread}/moments/{last}/state"
    assert get(http, at, path="messages[2].content")["value"] == "42"
    page = get(http, at, path="messages", offset=1, limit=2)
    assert [m["role"] for m in page["value"]] == ["assistant", "tool"]
    assert page["total"] == 4
    wrong = http.get(f"/ui/api/v1{at}", params={"path": "nothing.here"})
    assert wrong.status_code == 404
    assert "there is nothing at nothing.here" in wrong.json()["error"]


def test_a_long_text_comes_in_pieces(http: httpx.Client, thread: str) -> None:
    last = get(http, f"/threads/{thread}/recording")["last"]
    at = f"/threads/{thread}/moments/{last}/state"
    inside = get(http, at, path="messages[3]")["value"]["content"]
    assert (inside["$text"], inside["$chars"]) == (LONG[:INSIDE], len(LONG))
    alone = get(http, at, path="messages[3].content")["value"]
    assert alone["$text"] == LONG[:WHOLE]
    text = ""
    while len(text) < alone["$chars"]:
        text += get(http, f"/threads/{thread}/blobs/{alone['$blob']}", offset=len(text))["text"]
    assert text == LONG
    assert http.get(f"/ui/api/v1/threads/{thread}/blobs/{'0' * 64}").status_code == 404


def test_moving_and_looking_execute_nothing(http: httpx.Client, thread: str) -> None:
    before = get(http, f"/threads/{thread}/recording")
    first = get(http, f"/threads/{thread}/moments/1/move", verb="turn")
    assert first["seq"] == seq_of(http, thread, "model", "request")
    back = get(http, f"/threads/{thread}/moments/{first['seq']}/move", verb="first")
    assert (back["seq"], back["mode"]) == (1, "PAST")
    end = get(http, f"/threads/{thread}/moments/{before['last']}/move", verb="step")
    assert (end["moved"], end["reason"]) == (False, "end")
    plan = get(http, f"/threads/{thread}/moments/{first['seq']}/preview")
    assert {one["kind"] for one in plan["will_execute"]} == {"node", "model", "tool"}
    assert get(http, f"/threads/{thread}/recording") == before


def test_hits_of_a_search_come_as_lines(http: httpx.Client, thread: str) -> None:
    with http.stream("GET", f"/ui/api/v1/threads/{thread}/search", params={"q": "21*2"}) as got:
        hits = [json.loads(line) for line in got.iter_lines() if line]
    seqs = [hit["seq"] for hit in hits]
    assert seqs == sorted(seqs)
    assert seq_of(http, thread, "tool", "enter") in seqs
    hidden = http.get(f"/ui/api/v1/threads/{thread}/search", params={"q": SECRET})
    assert hidden.text.strip() == ""


def test_one_stream_has_moments_and_events_of_several_threads(http: httpx.Client) -> None:
    first, other = (http.post("/agents/default/invoke", json=ASK).json() for _ in range(2))
    one, two = first["thread_id"], other["thread_id"]
    last = get(http, f"/threads/{one}/recording")["last"]
    seen: dict[tuple[str, str], list[int]] = {}
    news: list[str] = []
    follow = [f"moments:3:{one}", f"run:1:{one}", f"run:0:{two}"]
    again = False
    with http.stream("GET", "/ui/api/v1/stream", params={"follow": follow}) as got:
        buffer = ""
        for piece in got.iter_text():
            buffer += piece
            whole, _, buffer = buffer.rpartition("\n\n")
            assert SECRET not in whole
            for _, name, text in frames(whole):
                data = json.loads(text)["data"]
                if name == "news":  # of all threads of the server: another test's may end just now
                    if (data.get("data") or {}).get("thread_id", one) == one:
                        news.append(data["event"])
                else:
                    seen.setdefault((name, data["thread_id"]), []).append(data["number"])
            if not again and last in seen.get(("moments", one), []):
                again = True
                assert http.post(
                    "/agents/default/invoke", json={**ASK, "thread_id": one}
                ).is_success
            elif "run_finished" in news and seen["moments", one][-1] > last:
                break
    assert seen["moments", one] == [*range(4, 4 + len(seen["moments", one]))]
    assert seen["run", one] == [*range(2, 2 + len(seen["run", one]))]
    assert seen["run", two] == [*range(1, 1 + len(seen["run", two]))]
    assert [name for name in news if name != "gap"][:3] == [
        "connected",
        "run_started",
        "run_finished",
    ]


def test_the_page_uses_the_servers_own_routes_below_its_path(http: httpx.Client) -> None:
    done = http.post("/ui/api/v1/agents/default/invoke", json=ASK)
    thread = done.json()["thread_id"]
    shown = http.get(f"/ui/api/v1/threads/{thread}")
    assert shown.json() | {"last_access": ANY} == http.get(f"/threads/{thread}").json()
    made = get(http, "/agents/careful/graph")
    assert {node["id"] for node in made["nodes"]} == set(made["layout"]["boxes"])
    assert get(http, "/agents/careful/flow")["schemas"]["calculate"]["required"] == ["expression"]
    assert http.get("/ui/api/v1/nothing").status_code == 404
    assert http.request("DELETE", f"/ui/api/v1/threads/{thread}", json={}).status_code == 204


def test_a_decision_that_comes_too_late_starts_no_run(http: httpx.Client) -> None:
    waits = http.post("/agents/careful/invoke", json=ASK).json()
    thread = waits["thread_id"]
    (asked,) = get(http, f"/threads/{thread}/approvals")
    answer = {asked["interrupt_id"]: {"decision": "approve", "hash": asked["value"]["hash"]}}
    form = {"thread_id": thread, "answer": answer}
    assert http.post("/ui/api/v1/agents/careful/resume", json=form).status_code == 200
    runs = get(http, f"/threads/{thread}/runs")
    late = http.post("/ui/api/v1/agents/careful/resume", json=form)
    assert late.status_code == 409
    assert "another decision was made already" in late.json()["error"]
    assert get(http, f"/threads/{thread}/runs") == runs


def test_the_graph_is_data_with_places(http: httpx.Client, thread: str) -> None:
    made = get(http, f"/threads/{thread}/graph")
    assert {node["id"] for node in made["nodes"]} == set(made["layout"]["boxes"])
    assert len(made["edges"]) == len(made["layout"]["edges"])
    assert made["run"]["nodes"]["model"]["visits"] == 2
    assert any("2 visits" in line for node in made["nodes"] for line in node["lines"])


class Console:
    """A session of the debugger, by its commands."""

    def __init__(self, http: httpx.Client, where: str, **form: Any) -> None:
        made = http.post(f"{BASE}{where}/sessions", json=form)
        assert made.status_code == 201, made.text
        self.http, self.path = http, f"{BASE}/sessions/{made.json()['session']}"

    def say(self, line: str, at: int | None = None) -> dict[str, Any]:
        got = self.http.post(self.path, json={"line": line, **({} if at is None else {"at": at})})
        assert got.status_code == 200, got.text
        assert SECRET not in got.text
        said: dict[str, Any] = got.json()
        return said

    def done(self, line: str, at: int | None = None) -> dict[str, Any]:
        """Give a command that is not refused, and wait for its end."""
        return self.ended(self.say(line, at))

    def ended(self, said: dict[str, Any]) -> dict[str, Any]:
        """Wait for the end of a command."""
        while said["running"]:
            said = self.http.get(self.path).json()
        assert said["error"] == ""
        return said

    def close(self) -> None:
        assert self.http.request("DELETE", self.path, json={}).status_code == 204
        assert self.http.get(self.path).status_code == 404


@pytest.fixture
def console(http: httpx.Client, thread: str) -> Iterator[Console]:
    made = Console(http, f"/threads/{thread}")
    yield made
    made.close()


def test_a_session_stops_at_breakpoints_and_is_one_users(
    http: httpx.Client, thread: str, console: Console
) -> None:
    again = http.post(f"{BASE}/threads/{thread}/sessions", json={})
    assert (again.status_code, again.json()["error"]) == (409, "thread is busy")
    assert console.say("break model if (")["error"] != ""
    (one,) = console.done("break tool:calculate")["session"]["breakpoints"]
    stop = console.done("c", 1)["stop"]
    assert (stop["reason"], stop["breakpoint"]) == ("breakpoint", one["number"])
    assert console.done(f"delete {one['number']}")["session"]["breakpoints"] == []
    assert console.done("where")["session"]["seq"] == stop["seq"]
    assert console.done("@first")["session"]["seq"] == 1


def test_a_console_reaches_no_file_and_shows_no_secret(console: Console, thread: str) -> None:
    for line in ("source /etc/passwd", "save breakpoints /tmp/x", "export html", "edit messages"):
        assert "a browser does not" in console.say(line)["error"]
    last = get(console.http, f"/threads/{thread}/recording")["last"]
    console.done("alias q9 = source")
    assert "a browser does not" in console.say("q9 /etc/passwd")["error"]
    assert "•••" in "".join(console.done("p messages[0].content", last)["lines"])
    assert console.say("p " + "x" * 9_000)["error"] != ""


def test_a_run_is_held_changed_and_forked(http: httpx.Client, served: Served) -> None:
    console = Console(http, "", agent="default")
    begun = console.done("run What is 21*2?")
    assert (begun["stop"]["reason"], begun["session"]["executes"]) == ("entry", True)
    thread = begun["session"]["thread_id"]
    assert http.post("/agents/default/invoke", json={**ASK, "thread_id": thread}).status_code == 409
    console.done("break tool:calculate")
    held = console.done("c")
    assert (held["stop"]["reason"], held["session"]["mode"]) == (
        "breakpoint",
        "LIVE stopped (volatile)",
    )
    assert get(http, f"/threads/{thread}/recording")["last"] == held["stop"]["seq"]
    past = console.done("rs")["session"]
    assert (past["executes"], past["mode"]) == (False, "PAST")
    console.done('set args.expression = "1+1"', held["stop"]["seq"])
    assert console.done("c")["stop"]["reason"] == "finished"
    last = get(http, f"/threads/{thread}/recording")["last"]
    said = get(http, f"/threads/{thread}/moments/{last}/state", path="messages[2].content")
    assert said["value"] == "2"
    fork = console.done("fork", seq_of(http, thread, "node", "enter"))
    assert "nothing has run yet" in fork["lines"][-1]
    said = console.done("policy calculate live")["plan"]
    assert {one["policy"] for one in said if one["kind"] == "tool"} == {"live"}
    assert get(http, f"/threads/{thread}/recording")["last"] == last
    copy = console.done("live")["session"]
    assert (copy["mode"], copy["thread_id"]) == ("FORK", f"{thread}-fork1")
    console.close()


def test_a_run_of_the_server_is_held_and_goes_on(served: Served, http: httpx.Client) -> None:
    made = http.post("/agents/default/invoke", json=ASK).json()["thread_id"]
    console = Console(http, f"/threads/{made}")
    console.done("break model")
    assert console.say("hold")["running"]
    with ThreadPoolExecutor(1) as pool, served.http() as other:
        other.headers["Origin"] = served.url
        refused = other.post(console.path, json={"line": "where"})
        assert (refused.status_code, refused.json()["error"]) == (409, "thread is busy")
        body = {**ASK, "thread_id": made}
        run = pool.submit(other.post, "/agents/default/invoke", json=body)
        stop = console.ended({"running": True})
        assert stop["session"]["held"] is True
        assert not run.done()
        console.close()
        assert run.result().json()["stopped_because"] == "done"


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    """A server in this process, whose pages may be silent for two seconds.

    A command takes less, also on a busy machine.
    """
    monkeypatch.setattr(recordings, "SILENT", 2.0)
    monkeypatch.setattr(recordings, "_LOOK", 0.1)
    url = f"sqlite:///{tmp_path}/wick.db"
    file = AgentsFile.of_code("agents.py", {"a": "a"}, url)
    agent = Agent("a", ScriptedModel(["One.", "Two."]), store=url)
    made = create_app(Service(file, ServerOptions(auth=False), given={"a": agent}))
    headers = {"Origin": "http://localhost"}
    with TestClient(made, "http://localhost", headers=headers) as http:
        yield http


def test_a_run_held_by_a_silent_page_goes_on_and_says_so(app: TestClient) -> None:
    name = app.post(f"{BASE}/sessions", json={"agent": "a"}).json()["session"]
    path = f"{BASE}/sessions/{name}"
    thread = app.post(path, json={"line": "run Hello."}).json()["session"]["thread_id"]
    assert app.post(path, json={"line": "nextnode"}).json()["session"]["held"] is True
    assert app.get(f"/threads/{thread}").json()["status"] == "running"
    until(lambda: app.get(f"/threads/{thread}").json()["status"] == "idle", "it has gone on")
    assert app.get(path).status_code == 404
    found = app.get(f"{BASE}/threads/{thread}/moments").json()["moments"]
    (let_go,) = [row for row in found if row["phase"] == "released"]
    assert let_go["name"] == "the page was silent for 2 s"


@pytest.mark.parametrize("policy", ["live", "recorded"])
def test_what_ran_in_a_fork_is_what_its_preview_said(
    http: httpx.Client, thread: str, policy: str
) -> None:
    """Fifteen forks each, from moments all over the run."""
    last = get(http, f"/threads/{thread}/recording")["last"]
    for seq in [*range(1, last - 12, 2)][:15]:
        console = Console(http, f"/threads/{thread}")
        for kind in ("model", "calculate"):
            console.done(f"policy {kind} {policy}")
        planned = console.done("fork", seq)["plan"]
        assert planned, seq
        wanted = [
            sum(1 for one in planned if (one["kind"], one["policy"]) == (kind, "live"))
            for kind in ("model", "tool")
        ]
        console.done("live")
        ended = console.done("c")
        assert ended["stop"]["reason"] == "finished"
        assert ended["session"]["executed"] == wanted, seq
        copy = ended["session"]["thread_id"]
        own = [row for row in rows(http, copy) if row["seq"] > last]
        nodes = [row["node"] for row in own if (row["kind"], row["phase"]) == ("node", "enter")]
        assert nodes == [one["node"] for one in planned if one["kind"] == "node"], seq
        console.close()


def test_a_session_waits_for_the_end_of_a_run(endless: Served) -> None:
    with endless.http() as http, endless.client() as client:
        http.headers["Origin"] = endless.url
        stream = client.stream("Hello.", agent="slow")
        thread = next(iter(stream)).thread_id
        refused = http.post(f"/ui/api/v1/threads/{thread}/sessions", json={})
        assert refused.status_code == 409
        assert get(http, f"/threads/{thread}/recording")["runs"][0]["status"] == "running"


def test_answers_follow_a_thread_that_goes_on(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'grows.db'}"
    model = ScriptedModel(["One.", "Two."])
    with SqlSaver.from_url(url) as saver, Agent("talker", model, store=url) as agent:
        agent.invoke("first", thread_id="t")
        answers = Answers(saver, "t", DebugSession.open)
        last = answers.recording().last
        assert "One." in str(answers.state(last, "messages", 0, 9).value)
        agent.invoke("second", thread_id="t")
        now = answers.recording().last
        assert now > last
        assert "Two." in str(answers.state(now, "messages", 0, 9).value)
        with pytest.raises(DebugError, match="not at hand"):
            answers.blob("0" * 64, 0)
        answers.close()


def test_the_protocol_describes_every_answer() -> None:
    made = protocol.schema()["$defs"]
    assert {one.__name__ for one in protocol.ANSWERS} <= made.keys()
    assert all(one["additionalProperties"] is False for one in made.values())


def test_a_secret_that_becomes_known_later_is_hidden_from_then_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    agent, _ = World().agent(url)
    agent.invoke("add them for tangerine-4711", thread_id="t")
    agent.close()
    saver = SqlSaver.from_url(url)
    answers = Answers(saver, "t", DebugSession.open)
    assert "tangerine-4711" in answers.state(9, "messages", 0, 9).model_dump_json()
    monkeypatch.setenv("LATER_API_KEY", "tangerine-4711")
    assert "tangerine-4711" not in answers.state(9, "messages", 0, 9).model_dump_json()
    found = [hit for hits in answers.search("tangerine") for hit in hits]
    assert found == []
    answers.close()
    saver.close()


def test_the_routes_are_made_before_the_first_request(tmp_path: Path) -> None:
    """FastAPI makes them at the first one otherwise, and every caller waits for seconds."""
    file = AgentsFile.of_code("agents.py", {"a": "a"}, f"sqlite:///{tmp_path}/wick.db")
    service = Service(file, ServerOptions(), given={"a": Agent("a", "scripted:demo")})
    with pytest.MonkeyPatch.context() as patched:
        app = create_app(service)
        patched.setattr(routing, "_EffectiveRouteContext", None)  # makes one
        with TestClient(app, "http://localhost") as http:
            assert http.get("/health").status_code == 200


FOREIGN = """
from typing import Any, TypedDict
from langgraph.graph import StateGraph

class State(TypedDict, total=False):
    odd: Any
    api_key: str

def write(state):
    return {"odd": [chr(0xD800) + " half", float("nan"), b"bytes"], "api_key": "tangerine-4711"}

graph = StateGraph(State).add_node("write", write).add_edge("__start__", "write")
graph = graph.add_node("end", lambda state: {"odd": 1}).add_edge("write", "end").compile()
"""


def test_foreign_values_are_shown_without_secrets_and_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "foreign_odd.py").write_text(FOREIGN, "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert call(["run", "--record", "foreign_odd:graph", "-t", "t", '{"odd": 0}']) == 0
    with SqlSaver.from_url(f"sqlite:///{tmp_path / 'checkpoints/recorded.db'}") as saver:
        answers = Answers(saver, "t", DebugSession.open)
        asks = (answers.moment, answers.diff, answers.writes, answers.state)
        more: dict[Any, Any] = {answers.diff: (None,), answers.state: ("", 0, 100)}
        last = answers.recording().last
        said = "".join(
            ask(seq, *more.get(ask, ())).model_dump_json()
            for seq in range(1, last + 1)
            for ask in asks
        )
        assert "ud800 half" in said
        assert "api_key" in said
        assert "tangerine" not in said
        assert [hit for hits in answers.search("tangerine") for hit in hits] == []
        answers.close()


def test_a_graph_without_messages_runs_in_a_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "foreign_held.py").write_text(FOREIGN, "utf-8")
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, "-m", "wick_graph", "ui", "foreign_held:graph", "--no-open"]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{tmp_path}"}
    process = forked.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
    try:
        assert process.stdout is not None
        address, _, link = process.stdout.readline().strip().partition("/ui/#link=")
        headers = {"Origin": address}
        with httpx.Client(base_url=address, headers=headers, timeout=120, trust_env=False) as http:
            bearer = {"Authorization": f"Bearer {link}"}
            signed = http.post(f"{BASE}/sign-in", json={}, headers=bearer).json()
            http.headers["X-Wick-Secret"] = signed["secret"]
            (name,) = get(http, "/sessions")
            console = Console(http, "", agent=name)
            assert console.done('run {"odd": 0}')["session"]["held"] is True
            console.done("break write:exit")
            assert console.done("c")["stop"]["reason"] == "breakpoint"
            assert console.done("c")["stop"]["reason"] == "finished"
            thread = console.done("where")["session"]["thread_id"]
            said = console.done("p api_key")["lines"]
            assert said == ["•••"]
            drawn = get(http, f"/threads/{thread}/graph")
            assert "write" in {node["id"] for node in drawn["nodes"]}
            assert "tangerine" not in str(get(http, f"/threads/{thread}/moments/1/state"))
            console.close()
    finally:
        process.kill()
        process.communicate()
