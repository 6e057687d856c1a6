"""LangGraph's own clients against a real server: every method, sync and async, and `RemoteGraph`."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Iterator
from typing import Any, TypedDict

import httpx
import langgraph_sdk
import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.pregel.remote import RemoteGraph
from langgraph.types import Command
from langgraph_sdk.client import LangGraphClient, SyncLangGraphClient
from langgraph_sdk.errors import (
    APIStatusError,
    BadRequestError,
    ConflictError,
    NotFoundError,
    PermissionDeniedError,
)

from tests.server.support import AGENTS, Served, serving

pytestmark = pytest.mark.xdist_group("langgraph")  # they share a server

ASK: Any = {"messages": [{"role": "user", "content": "What is 21*2?"}]}
APPROVE: Any = {"resume": {"decisions": [{"type": "approve"}]}}
SECONDS = 60


@pytest.fixture
def client(shared: Served) -> Iterator[SyncLangGraphClient]:
    with langgraph_sdk.get_sync_client(url=f"{shared.url}/langgraph") as made:
        yield made


class Both:
    """A client's methods, awaited if it is the asynchronous one."""

    def __init__(self, kind: str, url: str) -> None:
        self.kind = kind
        self._loop = asyncio.new_event_loop()
        self._made: Any = (
            langgraph_sdk.get_sync_client(url=url)
            if kind == "sync"
            else langgraph_sdk.get_client(url=url)
        )
        self.called: set[str] = set()

    def __call__(self, path: str, *args: Any, **options: Any) -> Any:
        """Call a method, such as `threads.get`; a stream is read to its end."""
        part, name = path.split(".")
        self.called.add(path)
        made = getattr(getattr(self._made, part), name)(*args, **options)
        if self.kind == "sync":
            return [*made] if isinstance(made, Iterator) else made
        return self._loop.run_until_complete(asyncio.wait_for(self._whole(made), SECONDS))

    async def _whole(self, made: Any) -> Any:
        made = await made if inspect.isawaitable(made) else made
        return [part async for part in made] if hasattr(made, "__aiter__") else made

    def close(self) -> None:
        if self.kind == "sync":
            self._made.close()
        else:
            self._loop.run_until_complete(self._made.aclose())
        self._loop.close()


@pytest.fixture(params=["sync", "async"])
def both(shared: Served, request: pytest.FixtureRequest) -> Iterator[Both]:
    made = Both(request.param, f"{shared.url}/langgraph")
    yield made
    made.close()


def every_method() -> list[str]:
    parts = {
        "assistants": LangGraphClient.__init__.__globals__["AssistantsClient"],
        "threads": LangGraphClient.__init__.__globals__["ThreadsClient"],
        "runs": LangGraphClient.__init__.__globals__["RunsClient"],
        "crons": LangGraphClient.__init__.__globals__["CronClient"],
        "store": LangGraphClient.__init__.__globals__["StoreClient"],
    }
    return sorted(
        f"{part}.{name}"
        for part, kind in parts.items()
        for name, _ in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    )


def last_text(values: Any) -> str:
    text: str = values["messages"][-1]["content"]
    return text


def test_every_method_answers_or_refuses_by_name(both: Both) -> None:
    assistants(both)
    thread_id = threads(both)
    runs(both, thread_id)
    items(both)
    refused(both, thread_id)
    missing = {*every_method()} - both.called
    assert missing == {"threads.join_stream", "threads.stream"}  # they have no end; see below


def assistants(both: Both) -> None:
    found = both("assistants.search")
    assert [one["graph_id"] for one in found] == ["default", "slow", "careful"]
    page = both("assistants.search", limit=1, response_format="object")
    assert (len(page["assistants"]), page["next"]) == (1, "1")
    assert both("assistants.count", graph_id="slow") == 1
    key = found[0]["assistant_id"]
    assert both("assistants.get", key) == both("assistants.get", "default") == found[0]
    nodes = {node["id"] for node in both("assistants.get_graph", "default")["nodes"]}
    assert {"before_agent", "modify_request", "model", "tools"} < nodes
    assert "messages" in json.dumps(both("assistants.get_schemas", key)["input_schema"])
    assert both("assistants.get_subgraphs", key) == {}
    assert both("assistants.get_subgraphs", key, "model") == {}
    assert both("assistants.get_versions", key)[0]["version"] == 1
    with pytest.raises(NotFoundError):
        both("assistants.get", "nobody")


def threads(both: Both) -> str:
    made = both("threads.create", metadata={"who": both.kind}, ttl=60)
    thread_id: str = made["thread_id"]
    assert (made["status"], made["values"], made["metadata"]) == ("idle", None, {"who": both.kind})
    with pytest.raises(ConflictError):
        both("threads.create", thread_id=thread_id)
    assert both("threads.create", thread_id=thread_id, if_exists="do_nothing")["metadata"]
    both("runs.wait", thread_id, "default", input=ASK)
    assert last_text(both("threads.get", thread_id)["values"]) == "It is 42."
    assert both("threads.update", thread_id, metadata={"n": 1})["metadata"]["n"] == 1
    assert both("threads.update", thread_id, metadata={}, return_minimal=True) is None
    found = both("threads.search", metadata={"who": both.kind}, status="idle")
    assert thread_id in [one["thread_id"] for one in found]
    assert both("threads.search", ids=[thread_id], select=["thread_id"]) == [
        {"thread_id": thread_id}
    ]
    assert both("threads.count", metadata={"who": both.kind, "n": 1}) >= 1
    state = both("threads.get_state", thread_id)
    assert (state["next"], last_text(state["values"])) == ([], "It is 42.")
    steps = both("threads.get_history", thread_id, limit=100)
    older = both("threads.get_history", thread_id, before=steps[0]["checkpoint"], limit=100)
    assert older == steps[1:]
    early = steps[-2]["checkpoint"]
    by_id = both("threads.get_state", thread_id, checkpoint_id=early["checkpoint_id"])
    assert by_id == both("threads.get_state", thread_id, checkpoint=early) == steps[-2]
    written = {"messages": [{"role": "user", "content": "Wait."}]}
    at = both("threads.update_state", thread_id, written, as_node="before_agent")["checkpoint"]
    assert both("threads.get_state", thread_id)["checkpoint"] == at
    copy = both("threads.copy", thread_id)
    assert last_text(copy["values"]) == "Wait."
    assert both("threads.prune", [copy["thread_id"]], strategy="keep_latest") == {"pruned_count": 1}
    assert len(both("threads.get_history", copy["thread_id"])) == 1
    both("threads.delete", copy["thread_id"])
    with pytest.raises(NotFoundError):
        both("threads.get", copy["thread_id"])
    return thread_id


def runs(both: Both, thread_id: str) -> None:
    run = both("runs.create", thread_id, "default", input=ASK, metadata={"a": 1})
    assert run["metadata"]["a"] == 1
    assert last_text(both("runs.join", thread_id, run["run_id"])) == "It is 42."
    assert both("runs.get", thread_id, run["run_id"])["status"] == "success"
    modes = ["values", "updates", "messages", "messages-tuple", "tasks", "checkpoints", "debug"]
    parts = both("runs.stream", None, "default", input=ASK, stream_mode=[*modes, "events"])
    names = {part.event for part in parts}
    expected = {*modes, "metadata", "events", "end", "messages/partial", "messages/complete"}
    assert names - {"messages/metadata"} == expected - {"messages-tuple"}
    assert parts[0].event == "metadata"
    assert parts[-1].event == "end"
    where = parts[0].data
    again = both("runs.join_stream", where["thread_id"], where["run_id"], last_event_id="-1")
    assert [part.event for part in again] == [part.event for part in parts]
    assert both("runs.list", thread_id, select=["run_id"], limit=1) == [{"run_id": run["run_id"]}]
    several = both(
        "runs.create_batch", [{"thread_id": thread_id, "assistant_id": "default", "input": ASK}]
    )
    both("runs.join", thread_id, several[0]["run_id"])
    slow = both("threads.create")["thread_id"]
    for wait in (True, False):
        run = both("runs.create", slow, "slow", input=ASK)
        ended = both("runs.cancel", slow, run["run_id"], wait=wait)
        assert ended["status"] == "interrupted"
    run = both("runs.create", slow, "slow", input=ASK)
    both("runs.cancel_many", thread_id=slow, run_ids=[run["run_id"]], action="rollback")
    assert both("runs.get", slow, run["run_id"])["status"] == "interrupted"


def items(both: Both) -> None:
    space = ["people", both.kind]
    both("store.put_item", space, key="anna", value={"age": 3})
    assert both("store.get_item", space, key="anna")["value"] == {"age": 3}
    found = both("store.search_items", space, filter={"age": {"$gt": 2}})
    assert [one["key"] for one in found["items"]] == ["anna"]
    assert space in both("store.list_namespaces", prefix=["people"])["namespaces"]
    both("store.delete_item", space, key="anna")
    with pytest.raises(NotFoundError):
        both("store.get_item", space, key="anna")
    everything = both("store.search_items", [])["items"]
    assert all(not one["namespace"][0].startswith("__") for one in everything)


def refused(both: Both, thread_id: str) -> None:
    run = both("runs.list", thread_id)[0]["run_id"]
    fixed: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
        ("assistants.create", ("default",), {}),
        ("assistants.update", ("default",), {"name": "other"}),
        ("assistants.delete", ("default",), {}),
        ("assistants.set_latest", ("default", 1), {}),
        ("runs.delete", (thread_id, run), {}),
    ]
    for path, args, options in fixed:
        with pytest.raises(PermissionDeniedError):
            both(path, *args, **options)
    crons: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
        ("crons.create", ("default",), {"schedule": "* * * * *"}),
        ("crons.create_for_thread", (thread_id, "default"), {"schedule": "* * * * *"}),
        ("crons.update", ("one",), {"enabled": False}),
        ("crons.delete", ("one",), {}),
        ("crons.search", (), {}),
        ("crons.count", (), {}),
    ]
    for path, args, options in crons:
        with pytest.raises(APIStatusError, match="crons: not supported") as failed:
            both(path, *args, **options)
        assert failed.value.status_code == 501


# --- Streams.


def test_what_is_streamed_is_what_is_stored(client: SyncLangGraphClient) -> None:
    modes: Any = ["values", "messages-tuple", "updates"]
    parts = [*client.runs.stream(None, "default", input=ASK, stream_mode=modes)]
    values = [part.data for part in parts if part.event == "values"]
    counts = [len(one["messages"]) for one in values]
    assert counts == sorted(counts)
    assert counts[0] == 1
    assert counts[-1] == 4
    chunks = [part.data[0] for part in parts if part.event == "messages"]
    for message in values[-1]["messages"]:
        if message["type"] == "ai":
            pieces = [one["content"] for one in chunks if one["id"] == message["id"]]
            assert "".join(pieces) == message["content"]
    told = [[*part.data] for part in parts if part.event == "updates"]
    assert told == [["model"], ["tools"], ["model"]]


def test_a_message_grows(client: SyncLangGraphClient) -> None:
    parts = client.runs.stream(None, "slow", input=ASK, stream_mode="messages")
    partial = [p.data[0]["content"] for p in parts if p.event == "messages/partial"]
    last = [text for text in partial if text.startswith("word0")]
    assert len(last) > 3
    assert all(after.startswith(before) for before, after in zip(last, last[1:], strict=False))


def test_a_stream_continues_after_each_of_its_events(client: SyncLangGraphClient) -> None:
    modes: Any = ["values", "messages-tuple", "updates", "tasks", "checkpoints"]
    parts = [*client.runs.stream(None, "default", input=ASK, stream_mode=modes)]
    where = parts[0].data
    ids = [part.id for part in parts]
    for key in dict.fromkeys(filter(None, ids)):
        rest = client.runs.join_stream(
            where["thread_id"], where["run_id"], stream_mode=modes, last_event_id=key
        )
        left = parts[ids.index(key) + 1 :]  # a part without an id shows the one before it
        assert [(one.event, one.data) for one in rest] == [(one.event, one.data) for one in left]


def test_an_approval_is_langchain_s_request(client: SyncLangGraphClient) -> None:
    thread_id = client.threads.create()["thread_id"]
    values: Any = client.runs.wait(thread_id, "careful", input=ASK)
    [asked] = values["__interrupt__"]
    action = {"name": "calculate", "args": {"expression": "21*2"}}
    assert action.items() <= asked["value"]["action_requests"][0].items()
    assert "hash" not in json.dumps(asked)
    assert client.threads.get(thread_id)["interrupts"] == {asked["id"]: [asked]}
    with pytest.raises(httpx.HTTPStatusError, match="400"):
        client.runs.wait(thread_id, "careful", command={"resume": {"decisions": []}})
    edit = {"type": "edit", "edited_action": {"name": "calculate", "args": {"expression": "1+1"}}}
    done: Any = client.runs.wait(
        thread_id, "careful", command={"resume": {asked["id"]: {"decisions": [edit]}}}
    )
    assert [m["content"] for m in done["messages"] if m["type"] == "tool"] == ["2"]


def test_a_streamed_interrupt_comes_in_values_and_updates(client: SyncLangGraphClient) -> None:
    modes: Any = ["values", "updates"]
    thread_id = client.threads.create()["thread_id"]
    parts = [*client.runs.stream(thread_id, "careful", input=ASK, stream_mode=modes)]
    asked = [part.data["__interrupt__"] for part in parts if "__interrupt__" in (part.data or {})]
    assert len(asked) == 2
    assert asked[0] == asked[1]
    done = [*client.runs.stream(thread_id, "careful", command=APPROVE, stream_mode="updates")]
    assert [[*part.data] for part in done if part.event == "updates"] == [["tools"], ["model"]]


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
