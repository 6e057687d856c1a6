"""Compiled LangGraph graphs behind the server: beside agents, for each tenant apart."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langgraph.cache.memory import InMemoryCache
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.memory import InMemoryStore
from langgraph.types import interrupt
from typing_extensions import TypedDict

from tests.support.command import Folder
from wick_graph import Agent, Server
from wick_graph.client import Client
from wick_graph.errors import ConfigError
from wick_graph.events import ChatModelEnd
from wick_graph.server import ServerOptions
from wick_graph.testing import ScriptedModel, call

ASK: Any = {"messages": [{"role": "user", "content": "Shout."}]}


def shout(text: str) -> str:
    """Write in capital letters."""
    return text.upper()


class Noted(MessagesState):
    """A state with names that mean something else to agents."""

    todos: int
    usage: str
    files: list[str]
    blob: bytes


def chain(node: Any, state: Any = MessagesState, **more: Any) -> Any:
    return StateGraph(state).add_node("node", node).add_edge(START, "node").compile(**more)


def count(state: Any) -> Any:
    return {"messages": [AIMessage(f"{len(state['messages'])} so far")]}


def ask(state: Any) -> Any:
    return {"messages": [AIMessage("Hello " + interrupt({"question": "Who are you?"}))]}


def note(state: Any) -> Any:
    return {
        "messages": [AIMessage("Noted.")],
        **{"todos": 3, "usage": "much", "files": ["a"], "blob": b"\xff\x00"},
    }


class Loose(TypedDict):
    messages: list[Any]


def loose(state: Any) -> Any:
    return {"messages": [{"role": "assistant", "content": "Loose."}]}


def fail(state: Any) -> Any:
    raise LookupError("no such thing")


async def wait(state: Any) -> Any:
    await asyncio.sleep(600)


def nested(state: Any, config: RunnableConfig) -> Any:
    """Call an agent within a graph: it has a run of its own."""
    own = Agent("inner", ScriptedModel(["Inside."]), store=False)
    return own.graph.invoke({"messages": state["messages"][-1:]}, config)


def agents() -> dict[str, Any]:
    model = ScriptedModel([call("shout", text="hi"), "HI, it is."] * 40)
    return {
        "mine": Agent("mine", ScriptedModel(["Mine."] * 9)),
        "lang": create_agent(model, tools=[shout]),
        "plain": chain(count),
        "asks": chain(ask),
        "notes": chain(note, Noted),
        "fails": chain(fail),
        "waits": chain(wait),
        "nests": chain(nested),
        "loose": chain(loose, Loose),
    }


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("served"))
        with Server(agents(), port=0) as one:
            yield one


def http(server: Server, tenant: str = "local", scope: str = "admin") -> httpx.Client:
    bearer = {"Authorization": f"Bearer {server.token(tenant, scope=scope)}"}
    return httpx.Client(base_url=server.url, headers=bearer, trust_env=False, timeout=60)


def test_a_langchain_agent_answers_and_streams(server: Server) -> None:
    with Client(server.url, server.token()) as client:
        done = client.invoke("Shout.", agent="lang", thread_id="lang")
        assert (done.text, done.tool_calls[0]["output"]) == ("HI, it is.", "HI")
        assert done.stopped_because == "done"
        events = [*client.stream("Again.", agent="lang", thread_id="lang")]
        assert "".join(getattr(event, "delta", "") for event in events) == "HI, it is."
        assert [event.event for event in events][-1] == "done"
    said = openai.OpenAI(base_url=f"{server.url}/v1", api_key=server.token()).chat.completions
    told = said.create(model="plain", messages=[{"role": "user", "content": "Hi"}], stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in told) == "1 so far"


def test_tenants_have_threads_of_their_own(server: Server) -> None:
    with http(server, "anna") as anna, http(server, "bert") as bert:
        body = {**ASK, "thread_id": "same"}
        for number in (1, 3):
            done = anna.post("/agents/plain/invoke", json=body).json()
            assert done["response"] == f"{number} so far"
        assert bert.get("/threads/same").status_code == 404
        assert bert.post("/agents/plain/invoke", json=body).json()["response"] == "1 so far"
        assert [t["agent"] for t in anna.get("/threads").json()] == ["plain"]


def test_its_threads_are_shown_forked_and_deleted(server: Server) -> None:
    with http(server) as local:
        local.post("/agents/notes/invoke", json={**ASK, "thread_id": "noted"})
        state = local.get("/threads/noted/state").json()
        assert (state["values"]["todos"], state["next"]) == (3, [])
        assert [message["role"] for message in state["messages"]] == ["user", "assistant"]
        steps = local.get("/threads/noted/history").json()
        assert [step["step"] for step in steps] == [1, 0, -1]
        fork = {"thread_id": "forked", "checkpoint_id": steps[1]["checkpoint_id"]}
        assert local.post("/threads/noted/fork", json=fork).status_code == 201
        again = local.post("/agents/notes/resume", json={"thread_id": "forked"}).json()
        assert (again["response"], again["todos"], again["files"]) == ("Noted.", [], {})
        assert local.get("/threads/noted/runs").json()[0]["agent_id"] == "notes"
        assert local.get("/threads/noted/events").status_code == 200
        assert local.delete("/threads/noted").status_code == 204


def test_a_question_is_answered(server: Server) -> None:
    with http(server) as local:
        first = local.post("/agents/asks/invoke", json={**ASK, "thread_id": "asked"}).json()
        assert (first["interrupted"], first["stopped_because"]) == (True, "interrupted")
        (question,) = local.get("/threads/asked/approvals").json()
        assert question["prompt"] == "Who are you?"
        wrong = local.post("/agents/plain/resume", json={"thread_id": "asked", "answer": "x"})
        assert (wrong.status_code, "waits under the agent asks" in wrong.text) == (409, True)
        body = {"status": "answered", "response": "Bob"}
        done = local.post(f"/agents/hitl/{question['id']}/respond", json=body).json()
        assert done["run"]["response"] == "Hello Bob"
        assert local.get("/threads/asked").json()["status"] == "idle"


def test_a_repeated_request_finds_its_run(server: Server) -> None:
    key = {"Idempotency-Key": "once"}
    with http(server) as local:
        body = {**ASK, "thread_id": "noted-once"}
        first, again = (
            local.post("/agents/notes/invoke", json=body, headers=key).json() for _ in range(2)
        )
        assert (first["response"], first["run_id"]) == ("Noted.", again["run_id"])
        assert (again["response"], again["todos"]) == ("Noted.", [])


def test_messages_that_are_plain_dicts_are_shown(server: Server) -> None:
    body = {**ASK, "thread_id": "loose"}
    with http(server) as local:
        for _ in range(2):
            answer = local.post("/agents/loose/invoke", json=body)
            assert (answer.status_code, answer.json()["response"]) == (200, "Loose."), answer.text
        state = local.get("/threads/loose/state").json()
        assert state["messages"] == [{"role": "assistant", "content": "Loose."}]


def test_it_is_listed_and_drawn(server: Server) -> None:
    with http(server) as local:
        listed = {one["agent_id"]: one for one in local.get("/agents/").json()}
        assert [*listed] == [*agents()]
        assert (listed["lang"]["tools"], listed["lang"]["model"]) == ([], "langgraph")
        flow = local.get("/agents/lang/flow").json()
        assert {box["id"] for box in flow["graph"]["nodes"]} >= {"model", "tools"}


def test_a_run_is_cancelled(server: Server) -> None:
    with http(server) as local:
        with local.stream("POST", "/agents/waits/stream", json={**ASK, "thread_id": "w"}):
            busy = local.post("/agents/waits/invoke", json={**ASK, "thread_id": "w"})
            assert busy.status_code == 409
            shown = local.post("/threads/w/cancel").json()
        assert (shown["status"], shown["stopped_because"]) == ("idle", "cancelled")


def test_an_agent_inside_a_graph_has_a_run_of_its_own(server: Server) -> None:
    with Client(server.url, server.token()) as client:
        events = [*client.stream("Hi", agent="nests", thread_id="nested")]
        said = [event.content for event in events if isinstance(event, ChatModelEnd)]
        assert said == ["Inside."]
        assert client.invoke("Hi", agent="nests").text == "Inside."


REFUSED: list[tuple[str, str, Any, int, str]] = [
    ("GET", "/threads/refused/journal", None, 409, "plain is a LangGraph graph; its runs are not"),
    (
        "POST",
        "/agents/tools/register",
        {
            "name": "far",
            "description": "Far.",
            "callback_url": "http://127.0.0.1:1/",
            "agent_id": "plain",
        },
        409,
        "plain is a LangGraph graph, which brings its own tools",
    ),
    ("PATCH", "/agents/plain/hooks", {"add": ["budget"]}, 409, "has no hook budget"),
    ("GET", "/agents/plain/files/list", None, 409, "the agent has no backend"),
    ("POST", "/agents/plain/invoke", {**ASK, "thread_id": "wicks"}, 400, "belongs to the agent"),
    ("POST", "/agents/mine/invoke", {**ASK, "thread_id": "graphs"}, 400, "no channel blob"),
    ("POST", "/agents/plain/invoke", {"messages": []}, 400, "messages"),
    ("POST", "/agents/plain/resume", {"thread_id": "none"}, 404, "thread not found"),
    ("POST", "/agents/fails/invoke", ASK, 500, "the graph fails failed: LookupError: no such"),
]


@pytest.mark.parametrize(("method", "path", "body", "status", "text"), REFUSED)
def test_what_is_refused_is_a_sentence(
    server: Server, method: str, path: str, body: Any, status: int, text: str
) -> None:
    with http(server) as local:
        local.post("/agents/plain/invoke", json={**ASK, "thread_id": "refused"})
        local.post("/agents/mine/invoke", json={**ASK, "thread_id": "wicks"})
        local.post("/agents/notes/invoke", json={**ASK, "thread_id": "graphs"})
        answer = local.request(method, path, json=body)
        assert (answer.status_code, text in answer.json()["error"]) == (status, True), answer.text
        assert local.get("/threads/wicks").json()["agent"] == "mine"
        assert local.get("/threads/graphs").json()["agent"] == "notes"


def test_no_route_fails(server: Server) -> None:
    with http(server) as local:
        made = local.post("/agents/notes/invoke", json={**ASK, "thread_id": "all"}).json()
        paths = [
            *("/agents/notes", "/agents/notes/skills", "/agents/tools/available?agent_id=notes"),
            *("/agents/traces", f"/agents/traces/{made['run_id']}", f"/runs/{made['run_id']}"),
            *("/threads/all/state", "/threads/all/history", "/threads/all/approvals"),
            *(f"/runs/{made['run_id']}/events", "/v1/models", "/v1/models/notes"),
        ]
        for path in paths:
            assert local.get(path).status_code == 200, path


def unserved() -> dict[str, Any]:
    alone = ServerOptions(auth=False, port=0)
    return {
        "compile the graph graph without a checkpointer": lambda: Server(
            chain(count, checkpointer=InMemorySaver()), options=alone
        ).start(),
        "would share the store of the agent graph": lambda: Server(
            chain(count, store=InMemoryStore())
        ).start(),
        "would share the cache of the agent graph": lambda: Server(
            chain(count, cache=InMemoryCache())
        ).start(),
        "has no messages among its input": lambda: Server(chain(count, dict[str, int])),
        "x is a LangGraph graph; add its tools": lambda: with_tool("x").start(),
        "a tool is registered for y, but no agent has this id": lambda: with_tool("y").start(),
    }


def with_tool(agent_id: str) -> Server:
    made = Server({"x": chain(count)}, port=0)
    made.register_tool(shout, agent=agent_id)
    return made


@pytest.mark.parametrize("sentence", unserved())
def test_what_cannot_be_served_is_said(
    sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=sentence):
        unserved()[sentence]()


SLOW = """
import pathlib, time
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph

def first(state):
    with open("first.txt", "a") as file:
        file.write("x")
    return {"messages": [AIMessage("First.")]}

def second(state):
    pathlib.Path("second.txt").touch()
    while not pathlib.Path("go.txt").exists():
        time.sleep(0.05)
    return {"messages": [AIMessage("Second.")]}

slow = StateGraph(MessagesState).add_node(first).add_node(second)
slow = slow.add_edge(START, "first").add_edge("first", "second").compile()
"""


@contextlib.contextmanager
def serving(folder: Folder) -> Iterator[tuple[subprocess.Popen[Any], str]]:
    """Serve the graph, and kill the server."""
    args = ("slow.py:slow", "--no-auth", "--port", "0")
    with folder.start("serve", *args, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            told = (re.search(r"serving slow on (http://\S+),", str(x)) for x in process.stderr)
            yield process, next(found[1] for found in told if found)
        finally:
            process.kill()


def test_a_killed_server_takes_its_run_up(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW, "utf-8")
    body = {**ASK, "thread_id": "slow"}
    with (
        serving(Folder(tmp_path)) as (process, url),
        httpx.stream(
            "POST", f"{url}/agents/slow/stream", json=body, trust_env=False, timeout=60
        ) as answer,
    ):
        run_id = answer.headers["x-run-id"]
        until = time.monotonic() + 60
        while not (tmp_path / "second.txt").exists() and time.monotonic() < until:
            time.sleep(0.02)
        process.kill()
    (tmp_path / "go.txt").touch()
    with serving(Folder(tmp_path)) as (_, url):
        told = httpx.get(f"{url}/runs/{run_id}/events", trust_env=False, timeout=60).text
        assert "event: done" in told
        state = httpx.get(f"{url}/threads/slow/state", trust_env=False, timeout=60).json()
    said = [message["content"] for message in state["messages"]]
    assert said == ["Shout.", "First.", "Second."]
    assert (tmp_path / "first.txt").read_text() == "x"


def test_a_graph_needs_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    server = Server(port=0, auth=False)
    server.register_agent(chain(count))
    server.register_agent(chain(count, name="named"))
    with pytest.raises(ConfigError, match="there is an agent graph already"):
        server.register_agent(chain(count, name="not an id"))
    server.register_agent(chain(count), "other")
    with server, httpx.Client(base_url=server.url, trust_env=False, timeout=60) as local:
        listed = local.get("/agents/").json()
        assert [one["agent_id"] for one in listed] == ["graph", "named", "other"]
        assert json.loads(local.post("/agents/other/invoke", json=ASK).text)["response"]
