"""Callers who keep the conversation themselves: what is taken, what is closed, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from tests.engine.support import async_door, sync_door
from tests.server.support import Served, serving
from wick_graph import Agent
from wick_graph.errors import MessageError, RunError
from wick_graph.store import SqlSaver
from wick_graph.testing import ScriptedModel, call
from wick_graph.tools import tool

DOORS = pytest.mark.parametrize("door", [sync_door, async_door])
Door = Callable[..., Any]
ASKED: list[dict[str, Any]] = [
    {"role": "user", "content": "What is 1+2?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
        ],
    },
]
ANSWER = {"role": "tool", "tool_call_id": "c1", "content": "3"}
NEXT = {"role": "user", "content": "And 2+2?"}


class Counted:
    """A tool that notes its runs."""

    def __init__(self) -> None:
        self.runs: list[int] = []

    def tool(self) -> Any:
        @tool
        def add(a: int) -> str:
            """Add."""
            self.runs.append(a)
            return str(a)

        return add


def agent_of(
    *steps: Any, store: Any = None, **options: Any
) -> tuple[Agent, ScriptedModel, Counted]:
    model, counted = ScriptedModel([*steps], cursor="fifo"), Counted()
    given = {"store": store or SqlSaver.from_url("sqlite://"), **options}
    return Agent("it", model, tools=[counted.tool()], **given), model, counted


def shown(result: Any) -> list[tuple[str, str]]:
    return [(message.type, message.text) for message in result.messages]


@DOORS
@pytest.mark.parametrize(
    "form",
    [
        lambda messages: messages,
        lambda messages: {"messages": messages},
        lambda messages: {"messages": tuple(messages)},
    ],
    ids=["a list", "under messages", "a tuple under messages"],
)
def test_a_history_is_taken_message_by_message(door: Door, form: Any) -> None:
    agent, model, counted = agent_of("Four.")
    result = door(agent, form([*ASKED, ANSWER, {"role": "ai", "content": "3."}, NEXT]))
    assert shown(result) == [
        ("human", "What is 1+2?"),
        ("ai", ""),
        ("tool", "3"),
        ("ai", "3."),
        ("human", "And 2+2?"),
        ("ai", "Four."),
    ]
    assert result.messages[2].name == "add"
    assert [message.type for message in model.calls[0].messages] == [
        "human",
        "ai",
        "tool",
        "ai",
        "human",
    ]
    assert not counted.runs


@DOORS
def test_calls_without_an_answer_are_closed_and_never_run(door: Door) -> None:
    agent, _, counted = agent_of("Again?", "Done.")
    result = door(agent, [*ASKED, NEXT])
    assert shown(result)[2] == ("tool", "Error: run interrupted before this tool finished")
    assert not counted.runs
    ended = door(agent, ASKED)
    assert shown(ended)[2][0] == "tool"
    assert ended.text == "Done."
    assert not counted.runs


@DOORS
def test_forged_marks_run_nothing(door: Door) -> None:
    agent, _, counted = agent_of(call("add", a=7), "Seven.", "Done.")
    first = door(agent, "Go.", thread_id="t")
    made = first.messages[1]
    copied = made.model_copy(update={"id": "other"})
    result = door(agent, [copied, HumanMessage("And?")], thread_id="t")
    assert counted.runs == [7]
    assert result.text == "Done."


@DOORS
def test_an_answer_to_a_call_that_the_thread_left_open(door: Door) -> None:
    agent, _, counted = agent_of(call("add", a=7), "Thanks.")
    config: Any = {"configurable": {"thread_id": "t"}}
    agent.graph.invoke({"messages": [("user", "Go.")]}, config, interrupt_before=["tools"])
    asked = agent.graph.get_state(config).values["messages"][-1].tool_calls[0]["id"]
    result = door(agent, {"role": "tool", "tool_call_id": asked, "content": "7!"}, thread_id="t")
    assert shown(result) == [("human", "Go."), ("ai", ""), ("tool", "7!"), ("ai", "Thanks.")]
    assert result.messages[2].name == "add"
    assert not counted.runs


@DOORS
@pytest.mark.parametrize("kept", [True, False], ids=["a known thread", "a new thread"])
def test_an_answer_to_nothing_is_refused_and_nothing_is_stored(door: Door, kept: bool) -> None:
    store = SqlSaver.from_url("sqlite://")
    agent, _, _ = agent_of("Hi.", "Still here.", store=store)
    if kept:
        door(agent, "Hello.", thread_id="t")
    with pytest.raises(MessageError, match="no call 'c1'"):
        door(agent, [ANSWER], thread_id="t")
    info = store.threads.get("t")
    assert (info is not None) == kept
    if info is not None:
        assert (info.status, info.stopped_because) == ("idle", "done")
        assert shown(door(agent, "And?", thread_id="t"))[-1] == ("ai", "Still here.")


@DOORS
def test_a_second_answer_to_a_call_is_refused(door: Door) -> None:
    agent, _, _ = agent_of("Three.", "Fine.")
    first = door(agent, [*ASKED, ANSWER], thread_id="t")
    with pytest.raises(MessageError, match="'c1' has its answer"):
        door(agent, [{**ANSWER, "content": "4"}], thread_id="t")
    assert shown(door(agent, "And?", thread_id="t"))[2] == ("tool", "3")
    assert first.text == "Three."


@DOORS
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_past_that_is_not_the_thread_s_is_refused(door: Door, place: int) -> None:
    agent, model, _ = agent_of(call("add", a=7), "Seven.", "Eight.")
    first = door(agent, "Go.", thread_id="t")
    past = [*first.messages]
    past[place] = past[place].model_copy(update={"content": "Forged."})
    with pytest.raises(MessageError, match=rf"message\[{place}\]: the thread holds another"):
        door(agent, [*past, HumanMessage("Once more.")], thread_id="t")
    calls = [{**first.messages[1].tool_calls[0], "args": {"a": 8}}]
    past = [first.messages[1].model_copy(update={"tool_calls": calls}), HumanMessage("More.")]
    with pytest.raises(MessageError, match="the thread holds another"):
        door(agent, past, thread_id="t")
    assert len(model.calls) == 2
    assert shown(door(agent, "And?", thread_id="t"))[:4] == shown(first)


@DOORS
def test_a_past_that_is_sent_again_keeps_what_the_engine_noted(door: Door) -> None:
    agent, _, _ = agent_of("One.", "Two.")
    first = door(agent, "Go.", thread_id="t")
    bare = [AIMessage("One.", id=first.messages[1].id), HumanMessage("More.")]
    assert door(agent, bare, thread_id="t").messages[:2] == first.messages


@DOORS
def test_two_messages_with_one_id_are_refused(door: Door) -> None:
    agent, model, _ = agent_of("One.")
    with pytest.raises(MessageError, match=r"message\[1\]: it has the id of message\[0\]"):
        door(agent, [HumanMessage("a", id="1"), HumanMessage("b", id="1")], thread_id="t")
    assert not model.calls


@DOORS
@pytest.mark.parametrize("given", [{"role": ["user"], "content": "x"}, [(["user"], "x")]])
def test_a_role_that_is_no_text_is_refused(door: Door, given: Any) -> None:
    agent, _, _ = agent_of("One.")
    with pytest.raises(MessageError, match=r"message\[0\]: role must be a text"):
        door(agent, given)


@DOORS
def test_an_answer_that_is_sent_again_under_its_key_is_the_same_run(door: Door) -> None:
    agent, model, _ = agent_of(call("add", a=7), "Seven.", "Eight.")
    config: Any = {"configurable": {"thread_id": "t"}}
    agent.graph.invoke({"messages": [("user", "Go.")]}, config, interrupt_before=["tools"])
    asked = agent.graph.get_state(config).values["messages"][-1].tool_calls[0]["id"]
    answer = {**ANSWER, "tool_call_id": asked}
    first = door(agent, answer, thread_id="t", idempotency_key="k")
    again = door(agent, answer, thread_id="t", idempotency_key="k")
    assert (again.text, again.run_id) == (first.text, first.run_id)
    assert len(model.calls) == 2
    with pytest.raises(RunError, match="another input"):
        door(agent, {**answer, "content": "9"}, thread_id="t", idempotency_key="k")
    with pytest.raises(MessageError, match="has its answer"):
        door(agent, answer, thread_id="t", idempotency_key="other")


@DOORS
def test_a_whole_conversation_that_is_sent_again_stays_as_it_is(door: Door) -> None:
    agent, model, counted = agent_of(call("add", a=7), "Seven.", "Eight.")
    first = door(agent, "Go.", thread_id="t")
    second = door(agent, [*first.messages, HumanMessage("Once more.")], thread_id="t")
    assert second.messages[:-2] == first.messages
    assert counted.runs == [7]
    assert len(model.calls[-1].messages) == 5


@DOORS
def test_an_id_of_a_call_that_the_thread_has_already(door: Door) -> None:
    agent, model, _ = agent_of("Three.", "Four.")
    door(agent, [*ASKED, ANSWER], thread_id="t")
    result = door(agent, [*ASKED, {**ANSWER, "content": "4"}], thread_id="t")
    assert [m.text for m in result.messages if m.type == "tool"] == ["3", "4"]
    sent = model.calls[-1].messages
    ids = [c["id"] for m in sent if isinstance(m, AIMessage) for c in m.tool_calls]
    answers = [m.tool_call_id for m in sent if isinstance(m, ToolMessage)]
    assert len(set(ids)) == 2
    assert answers == ids


@DOORS
@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ([], "messages must not be empty"),
        ({"messages": []}, "messages must not be empty"),
        ({"messages": ["Hi."], "todos": "none"}, "todos: must be a list"),
        (
            [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Ho."}],
            "nothing to answer",
        ),
        ([{"role": "assistant", "content": ""}, NEXT], "no content and no tool calls"),
        ([{"role": "error", "content": "x"}], 'role "error" not allowed'),
        ([*ASKED, {"role": "tool", "content": "3"}], "missing tool_call_id"),
        ([{**ASKED[1], "tool_calls": [{"function": {"name": "add"}}]}, NEXT], "missing ID"),
        ([*ASKED, ANSWER, ANSWER], "answered twice"),
        ([*ASKED, {**ANSWER, "content": None}], "content must be a text"),
    ],
)
def test_what_is_no_chain_is_refused_in_one_sentence(door: Door, given: Any, sentence: str) -> None:
    agent, model, _ = agent_of("No.")
    with pytest.raises(MessageError, match=sentence) as refused:
        door(agent, given, thread_id="t")
    assert "\n" not in str(refused.value)
    assert not model.calls
    assert agent.threads.get("t") is None


def test_arguments_that_are_no_json_are_kept_and_closed() -> None:
    agent, model, counted = agent_of("Hm.")
    broken = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{"}}
    result = agent.invoke([ASKED[0], {**ASKED[1], "tool_calls": [broken]}, NEXT])
    assert result.text == "Hm."
    sent = model.calls[0].messages
    assert [m.type for m in sent] == ["human", "ai", "tool", "human"]
    asked = sent[1]
    assert isinstance(asked, AIMessage)
    assert asked.tool_calls[0]["args"] == {}
    assert not counted.runs


# --- OpenAI's door -----------------------------------------------------------------------------

ECHO = """\
store: sqlite:///threads.db
agents:
  default:
    model: scripted:echo.yaml
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path: Path = tmp_path_factory.mktemp("history")
    (path / "echo.yaml").write_text(
        "cursor: fifo\nsteps: [one, two, three, four, five, six]\n", "utf-8"
    )
    with serving(path, "--no-auth", agents=ECHO) as made:
        yield made


def state(served: Served, thread: str) -> list[dict[str, Any]]:
    with served.http() as http:
        found: list[dict[str, Any]] = http.get(f"/threads/{thread}/state").json()["messages"]
        return found


def ask(served: Served, messages: Any, thread: str | None = None) -> tuple[str, str]:
    client = openai.OpenAI(base_url=f"{served.url}/v1", api_key="unused", max_retries=0)
    headers = {"X-Thread-Id": thread} if thread else {}
    raw = client.chat.completions.with_raw_response.create(
        model="default", messages=messages, extra_headers=headers
    )
    return raw.parse().choices[0].message.content or "", raw.headers["x-thread-id"]


def test_openai_s_callers_keep_their_history(served: Served) -> None:
    said = [*ASKED, ANSWER, {"role": "assistant", "content": "3."}, NEXT]
    _, thread = ask(served, said)
    stored = state(served, thread)
    assert [m["role"] for m in stored] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
        "assistant",
    ]
    assert stored[1]["tool_calls"] == [{"id": "c1", "name": "add", "args": {"a": 1}}]


def test_openai_s_calls_without_an_answer_are_closed(served: Served) -> None:
    _, thread = ask(served, [*ASKED, NEXT])
    stored = state(served, thread)
    assert [m["role"] for m in stored[1:4]] == ["assistant", "tool", "user"]
    assert "interrupted" in stored[2]["content"]


def test_a_history_that_begins_a_named_thread_is_taken_once(served: Served) -> None:
    said: list[Any] = [*ASKED, ANSWER]
    text, _ = ask(served, said, "named")
    ask(served, [*said, {"role": "assistant", "content": text}, NEXT], "named")
    roles = [m["role"] for m in state(served, "named")]
    assert roles == ["user", "assistant", "tool", "assistant", "user", "assistant"]


@pytest.mark.parametrize(
    ("messages", "sentence"),
    [
        ([NEXT, ANSWER], "no call 'c1'"),
        ([NEXT, {"role": "assistant", "content": "Hi."}], "nothing to answer"),
        ([{**ASKED[1], "tool_calls": [{"type": "function"}]}, NEXT], "missing ID"),
        ([{"role": "user", "content": [{"type": "file"}]}], "a block's type is one of"),
        ([{"role": ["user"], "content": "Hi."}], "role: input should be"),
    ],
)
def test_openai_s_door_refuses_what_is_no_chain(
    served: Served, messages: Any, sentence: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=sentence):
        ask(served, messages)


@pytest.mark.parametrize("role", ["assistant", "tool"])
def test_the_native_routes_keep_their_400(served: Served, role: str) -> None:
    body = {"messages": [{"role": "user", "content": "Hi."}, {"role": role, "content": "x"}]}
    with served.http() as http:
        answer = http.post("/agents/default/invoke", json=body)
    assert answer.status_code == 400
    assert (
        answer.json()["error"]
        == f'message[1]: role "{role}" not allowed (must be "user" or "system")'
    )
