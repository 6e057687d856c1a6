"""`wick mcp`, asked by the SDK's own client."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from tests.source import ROOT
from tests.support import forked

FILE = """
store: sqlite:///threads.db
agents:
  clerk: {model: "scripted:clerk.yaml", tools: [request_user_input]}
  broken: {model: "scripted:none.yaml"}
  cities: {model: "scripted:cities.yaml", output: {schema: city.json}}
"""
CITY = '{"title": "City", "type": "object", "properties": {"name": {"type": "string"}}}'
CITIES = "steps: [{calls: [{tool: City, args: {name: Bern}}]}]"
CLERK = """
steps:
- text: Seven.
- calls: [{tool: request_user_input, args: {question: 'Which one?'}}]
- text: Done.
- {text: It is, finish: length}
"""

GRAPH = """
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

def ask(state):
    return {"messages": [("ai", "Hello " + interrupt("Who are you?"))]}

graph = StateGraph(MessagesState).add_node(ask).add_edge(START, "ask").compile()
"""


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    (tmp_path / "agents.yaml").write_text(FILE, encoding="utf-8")
    (tmp_path / "clerk.yaml").write_text(CLERK, encoding="utf-8")
    (tmp_path / "cities.yaml").write_text(CITIES, encoding="utf-8")
    (tmp_path / "city.json").write_text(CITY, encoding="utf-8")
    return ["-m", "wick_graph", "mcp", "--config", str(tmp_path / "agents.yaml")]


@pytest.fixture
def url(command: list[str]) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    process = forked.Popen(
        [sys.executable, *command, "--port", str(port)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until = time.monotonic() + 60
    while time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.05)
    yield f"http://127.0.0.1:{port}/mcp"
    process.kill()
    process.wait()


async def converse(server: Any) -> None:
    """Ask, go on in the thread, be asked, answer; and make mistakes."""
    async with Client(server) as client:
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == ["ask_clerk", "ask_broken", "ask_cities"]
        told = tools[2].output_schema
        assert told is not None
        assert told["properties"]["output"]["anyOf"][0]["title"] == "City"
        typed = await client.call_tool("ask_cities", {"message": "Which?"})
        assert typed.structured_content is not None
        assert typed.structured_content["output"] == {"name": "Bern"}
        first = await ask(client, message="How many?")
        assert (first["text"], first["stopped_because"], first["questions"]) == (
            "Seven.",
            "done",
            [],
        )
        thread = first["thread_id"]
        asked = await ask(client, message="And then?", thread_id=thread)
        assert asked["stopped_because"] == "interrupted"
        assert asked["questions"][0]["question"] == "Which one?"
        done = await ask(client, answer="The second", thread_id=thread)
        assert (done["text"], done["thread_id"], done["reason"]) == ("Done.", thread, "")
        cut = await ask(client, message="Tell me more.", thread_id=thread)
        assert (cut["text"], cut["stopped_because"]) == ("It is", "done")
        assert cut["reason"] == "the model's reply was cut off at its length limit"
        for wrong, says in (
            ({}, "pass either a message"),
            ({"answer": "x"}, "an answer belongs to a thread"),
            (
                {"answer": '{"decision": "approve"}', "thread_id": thread},
                "cannot be approved over MCP",
            ),
            ({"message": "x", "thread_id": "no such/thread"}, "thread id"),
        ):
            refused = await client.call_tool("ask_clerk", wrong)
            assert refused.is_error
            assert says in refused.content[0].text  # type: ignore[union-attr]  # it is a text
        broken = await client.call_tool("ask_broken", {"message": "x"})
        assert broken.is_error


async def ask(client: Client, **args: Any) -> Any:
    answer = await client.call_tool("ask_clerk", args)
    assert not answer.is_error, answer.content
    return answer.structured_content


async def test_a_client_asks_the_agents_over_stdio(command: list[str]) -> None:
    server = StdioServerParameters(command=sys.executable, args=command, cwd=str(ROOT))
    await converse(server)


async def test_a_client_asks_the_agents_over_http(url: str) -> None:
    await converse(url)


async def test_a_graph_is_asked(tmp_path: Path) -> None:
    (tmp_path / "asking.py").write_text(GRAPH, encoding="utf-8")
    args = ["-m", "wick_graph", "mcp", "asking.py:graph"]
    target = StdioServerParameters(
        command=sys.executable, args=args, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}
    )
    async with Client(target) as client:
        first = await client.call_tool("ask_graph", {"message": "Hi"})
        assert first.structured_content is not None
        assert first.structured_content["questions"] == ["Who are you?"]
        thread = first.structured_content["thread_id"]
        done = await client.call_tool("ask_graph", {"thread_id": thread, "answer": "Bob"})
        assert done.structured_content is not None
        assert done.structured_content["text"] == "Hello Bob"
