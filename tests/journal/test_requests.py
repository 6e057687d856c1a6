"""Requests and states are rebuilt from the file alone, and every part of them has its author."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import pytest
from langchain_core.messages import BaseMessage, ChatMessage, HumanMessage

from tests.engine.support import Door
from tests.journal.conftest import Opener
from tests.journal.support import REMINDER, Guard, Todo, agent_of, steps
from tests.source import ROOT
from tests.support import forked
from wick_graph import BaseHook, ModelRequest, tool
from wick_graph.errors import StorageError
from wick_graph.journal import Blame
from wick_graph.journal.request_key import digest
from wick_graph.store import SqlSaver
from wick_graph.testing import ScriptedModel, calls


def dumped(messages: Any) -> list[dict[str, Any]]:
    return [message.model_dump() for message in messages]


def test_each_request_is_rebuilt_as_the_model_got_it(door: Door, url: str, opened: Opener) -> None:
    agent, model = agent_of(url, model=ScriptedModel([*steps(), "And more."]))
    for text in ("add", "add more"):
        door(agent, text, thread_id="t")
    agent.close()
    journal = opened()
    asked = list(journal.moments(kind="model.request"))
    assert len(asked) == len(model.calls) == 3
    for moment, call in zip(asked, model.calls, strict=True):
        request = journal.request_at(moment.seq)
        assert dumped(request.messages) == dumped(call.messages)
        assert [type(m) for m in request.messages] == [type(m) for m in call.messages]
        assert json.dumps(list(request.tools)) == json.dumps(list(call.tools))
        assert request.settings == call.settings == {"temperature": 0.3}
        assert (request.exact, request.note) == (True, "")


class Cutter(BaseHook):
    """Drop, replace and append messages, offer fewer tools, put another prompt."""

    name = "cutter"

    def modify_request(self, request: ModelRequest, ctx: Any) -> Any:
        messages = list(request.messages)
        if len(messages) < 3:
            return request
        shorter = messages[1].model_copy(update={"content": "(cut)"})
        request = request.drop(messages[0]).replace(messages[1], shorter)
        return request.append(HumanMessage("go on", id="go"))

    def wrap_model_call(self, request: ModelRequest, next: Any) -> Any:
        return next(request.with_tools(["add"]).replace_system("Only this."))


def sub(a: float, b: float) -> str:
    """Subtract."""
    return f"{a - b:g}"


class Bringer(BaseHook):
    name = "bringer"

    def tools(self, state: Any) -> Any:
        return [tool(sub)]


def blamed(found: list[Blame], part: str) -> list[tuple[Any, ...]]:
    return [(b.op, b.by, b.value) for b in found if b.part == part]


def test_blame_names_the_hook_behind_each_part(door: Door, url: str, opened: Opener) -> None:
    agent, _ = agent_of(url, hooks=[Todo(), Guard()])
    door(agent, "add", thread_id="t")
    agent.close()
    journal = opened()
    moment = next(journal.moments(kind="model.request"))
    found = journal.blame(moment.seq)
    assert blamed(found, "system") == [
        ("kept", "agent", "You add numbers."),
        ("added", "todo", "Keep a list."),
        ("added", "guard", "Be careful."),
    ]
    texts = [(op, by, m.text) for op, by, m in blamed(found, "message")]
    assert texts == [("kept", "thread", "add"), ("added", "todo", REMINDER)]
    assert blamed(found, "tool") == [("kept", "agent", "add")]
    assert [(b.name, b.by, b.value) for b in found if b.part == "setting"] == [
        ("temperature", "guard", 0.3)
    ]
    for part in found:
        author = None if part.seq is None else journal.moment(part.seq)
        assert (author is None) is (part.op == "kept")


def test_blame_tells_what_was_dropped_and_replaced(door: Door, url: str, opened: Opener) -> None:
    model = ScriptedModel([calls(("add", {"a": 1})), "done"])
    agent, _ = agent_of(url, hooks=[Bringer(), Cutter()], tools=[add_one], model=model)
    door(agent, "first", thread_id="t")
    agent.close()
    journal = opened()
    last = list(journal.moments(kind="model.request"))[-1]
    request = journal.request_at(last.seq)
    assert dumped(request.messages) == dumped(model.calls[-1].messages)
    assert request.exact
    found = journal.blame(last.seq)
    assert blamed(found, "system") == [
        ("added", "cutter", "Only this."),
        ("dropped", "cutter", "You add numbers."),
    ]
    messages = [(op, by, m.type, m.text) for op, by, m in blamed(found, "message")]
    assert messages == [
        ("added", "cutter", "ai", "(cut)"),
        ("kept", "thread", "tool", "2"),
        ("added", "cutter", "human", "go on"),
        ("dropped", "cutter", "human", "first"),
        ("dropped", "cutter", "ai", ""),
    ]
    assert blamed(found, "tool") == [("kept", "agent", "add"), ("dropped", "cutter", "sub")]


@tool(name="add")
def add_one(a: float) -> str:
    """Add one."""
    return f"{a + 1:g}"


def test_a_hook_that_asks_twice_gets_two_requests(door: Door, url: str, opened: Opener) -> None:
    class Twice(BaseHook):
        name = "twice"

        def wrap_model_call(self, request: ModelRequest, next: Any) -> Any:
            next(request.append_system("First."))
            return next(request.append_system("Second."))

    agent, model = agent_of(url, hooks=[Twice()], model=ScriptedModel(["a", "b"], cursor="fifo"))
    assert door(agent, "?", thread_id="t").text == "b"
    agent.close()
    journal = opened()
    asked = list(journal.moments(kind="model.request"))
    systems = [journal.request_at(m.seq).system_text for m in asked]
    assert systems == [c.system for c in model.calls]
    assert [journal.blame(m.seq)[1].value for m in asked] == ["First.", "Second."]
    replies = [journal.details(m)["reply"].text for m in journal.moments(kind="model.response")]
    assert replies == ["a", "b"]


def test_roles_that_models_do_not_know_are_lowered_again(url: str, opened: Opener) -> None:
    agent, model = agent_of(url, hooks=[], model=ScriptedModel(["ok"]))
    notes: list[BaseMessage] = [
        HumanMessage("?"),
        ChatMessage(content="it broke", role="error", name="other"),
        HumanMessage("and now?"),
    ]
    agent.graph.invoke({"messages": notes}, {"configurable": {"thread_id": "t"}})
    agent.close()
    journal = opened()
    request = journal.request_at(journal.last())
    assert dumped(request.messages) == dumped(model.calls[0].messages)
    assert "[Error from other]" in request.messages[2].text


def test_the_state_at_a_moment_shows_what_was_written_since(
    door: Door, url: str, opened: Opener
) -> None:
    agent, _ = agent_of(url)
    result = door(agent, "add", thread_id="t")
    agent.close()
    journal = opened()
    assert journal.state_at(1).values == {}
    exits = [m for m in journal.moments(kind="node.exit") if m.name == "tools"]
    calling = next(journal.moments(kind="tool.call"))
    before = journal.state_at(calling.seq)
    assert [m.type for m in before.values["messages"]] == ["human", "ai"]
    assert before.pending == ()
    for count, moment in enumerate(exits, 1):
        state = journal.state_at(moment.seq)
        assert state.checkpoint == before.checkpoint
        wrote = [p for p in state.pending if p.channel == "messages"]
        assert {p.seq for p in wrote} == {m.seq for m in exits[:count]}
    end = journal.state_at(journal.last())
    assert end.values["messages"] == result.messages
    assert end.pending == ()
    assert journal.state_at(exits[-1].seq + 1).values["messages"] == result.messages[:-1]


def test_another_process_reads_it_with_no_key_and_no_network(url: str, opened: Opener) -> None:
    agent, model = agent_of(url)
    agent.invoke("add", thread_id="t")
    agent.close()
    script = (
        "import json, socket, sys\n"
        "from wick_graph.journal import Journal\n"
        "from wick_graph.store import SqlSaver\n"
        "socket.socket.connect = None\n"
        "with SqlSaver.from_url(sys.argv[1]) as saver:\n"
        "    journal = Journal(saver, 't')\n"
        "    request = journal.request_at(journal.last())\n"
        "    blame = [(b.part, b.by) for b in journal.blame(request.seq)]\n"
        "    print(json.dumps([m.text for m in request.messages]), request.exact, len(blame))\n"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    made = forked.run(
        [sys.executable, "-c", script, url], env=env, capture_output=True, text=True, check=True
    )
    texts, exact, parts = made.stdout.rsplit(maxsplit=2)
    assert json.loads(texts) == [m.text for m in model.calls[-1].messages]
    assert (exact, parts) == ("True", "11")


def test_what_cannot_be_shown_is_said(url: str, opened: Opener) -> None:
    agent, _ = agent_of(url, hooks=[])
    agent.invoke("add", thread_id="t")
    agent.close()
    with pytest.raises(StorageError, match="no model was asked by moment 2"):
        opened().request_at(2)
    with pytest.raises(StorageError, match="no moment 999; its last one is"):
        opened().state_at(999)
    with SqlSaver.from_url(url) as saver:
        saver.prune(["t"])
    journal = opened()
    first, last = journal.moments(kind="model.request")
    rebuilt = journal.request_at(first.seq)  # the messages are still in the last checkpoint
    assert [m.text for m in rebuilt.messages] == ["You add numbers.", "add"]
    assert rebuilt.exact
    with pytest.raises(StorageError, match=f"the state at moment {first.seq} cannot be shown"):
        journal.state_at(first.seq)
    shown = journal.details(next(journal.moments(kind="tool.exit")))
    assert "its checkpoint is gone" in shown["missing"]
    assert last.seq < journal.last()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError()], ids=repr)
def test_what_is_not_of_a_request_is_not_taken_for_it(error: BaseException) -> None:
    """Such as a Ctrl-C that comes while a value of a user's class tells its text."""
    left = [error]

    class Value:
        def __str__(self) -> str:
            if left:
                raise left.pop()
            return "value"

    with pytest.raises(type(error)) as raised:
        digest([Value()])
    assert raised.value is error
    assert digest([Value()]) == digest(["value"])
