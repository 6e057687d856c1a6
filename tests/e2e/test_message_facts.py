"""Times and names of messages through the outer doors: the command line, HTTP, OpenAI's API."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import openai
import pytest
from langchain_core.messages import BaseMessage

from tests.server.support import Served, serving
from tests.support.command import Folder
from wick_graph.messages import filter_messages, timestamp_of
from wick_graph.store import SqlSaver

AGENTS = """\
store: sqlite:///checkpoints/wick.db
agents:
  clerk: {name: Clerk No. 1, model: 'scripted:talk.yaml', tools: [calculate]}
"""
TALK = "steps: ['One.', 'Two.', 'Three.']"


def check(url: str, thread: str, start: datetime, count: int) -> list[BaseMessage]:
    with SqlSaver.from_url(url) as store:
        saved = store.get_tuple({"configurable": {"thread_id": thread}})
    assert saved is not None
    messages: list[BaseMessage] = list(saved.checkpoint["channel_values"]["messages"])
    assert len(messages) == count
    assert filter_messages(messages, after=start, before=datetime.now(UTC)) == messages
    replies = [m for m in messages if m.type == "ai"]
    assert filter_messages(messages, name="clerk") == replies
    return messages


@pytest.mark.slow
def test_the_command_line(tmp_path: Path) -> None:
    start = datetime.now(UTC)
    folder = Folder(tmp_path).write(agents=AGENTS, talk=TALK)
    url = f"sqlite:///{tmp_path}/checkpoints/wick.db"
    assert folder.wick("run", "clerk", "Hello", "-t", "mine").code == 0
    first = check(url, "mine", start, 2)
    with folder.at_terminal("chat", "clerk", "-t", "mine") as terminal:
        terminal.wait_for("\n> ")
        terminal.press("More\n")
        terminal.wait_for("Two.")
        terminal.wait_for("\n> ")
    messages = check(url, "mine", start, 4)
    assert [timestamp_of(m) for m in messages[:2]] == [timestamp_of(m) for m in first]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path = tmp_path_factory.mktemp("facts")
    (path / "checkpoints").mkdir()
    with serving(path, "--no-auth", agents=AGENTS, talk=TALK) as server:
        yield server


@pytest.mark.slow
def test_http(served: Served) -> None:
    start = datetime.now(UTC)
    with served.client() as client:
        client.invoke("Hello", agent="clerk", thread_id="mine")
    check(f"sqlite:///{served.path}/checkpoints/wick.db", "mine", start, 2)


def test_openais_api(served: Served) -> None:
    start = datetime.now(UTC)
    client = openai.OpenAI(base_url=f"{served.url}/v1", api_key="unused", max_retries=0)
    got = client.chat.completions.create(
        model="clerk",
        messages=[{"role": "user", "content": "Hello"}],
        extra_headers={"X-Thread-Id": "theirs"},
    )
    assert got.choices[0].message.content == "One."
    with SqlSaver.from_url(f"sqlite:///{served.path}/checkpoints/wick.db") as store:
        threads = [i.thread_id for i in store.threads.list() if i.thread_id != "mine"]
    for thread in threads:
        check(f"sqlite:///{served.path}/checkpoints/wick.db", thread, start, 2)
