"""A2A's own client against a real server, in both versions of the protocol."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from a2a import types as forms
from a2a.client import Client, ClientConfig, ClientFactory
from a2a.client.card_resolver import A2ACardResolver
from a2a.client.errors import A2AClientError
from a2a.types import Role, TaskState
from a2a.utils import errors
from google.protobuf.json_format import MessageToDict, ParseDict

from tests.server.support import Served, serving
from wick_graph import Agent
from wick_graph.server import Server
from wick_graph.testing import ScriptedModel, text

pytestmark = pytest.mark.xdist_group("a2a")  # they share a server

SECONDS = 120
VERSIONS = pytest.mark.parametrize("version", ["1.0", "0.3"])


@asynccontextmanager
async def client(
    url: str, agent: str = "default", *, version: str = "1.0", streaming: bool = True
) -> AsyncIterator[Client]:
    async with httpx.AsyncClient(timeout=SECONDS, trust_env=False) as http:
        card = await A2ACardResolver(http, f"{url}/a2a/{agent}").get_agent_card()
        fitting = [one for one in card.supported_interfaces if one.protocol_version == version]
        del card.supported_interfaces[:]
        card.supported_interfaces.extend(fitting)
        yield ClientFactory(ClientConfig(streaming=streaming, httpx_client=http)).create(card)


def said(text: str, key: str = "m1", **more: Any) -> forms.SendMessageRequest:
    message = forms.Message(message_id=key, role=Role.ROLE_USER, **more)
    message.parts.add(text=text)
    return forms.SendMessageRequest(message=message)


def decided(task: forms.Task, decision: dict[str, Any]) -> forms.SendMessageRequest:
    message = forms.Message(message_id="answer", role=Role.ROLE_USER, task_id=task.id)
    ParseDict({"decisions": [decision]}, message.parts.add().data)
    return forms.SendMessageRequest(message=message)


async def told(client: Client, request: forms.SendMessageRequest) -> list[forms.StreamResponse]:
    return [event async for event in client.send_message(request)]


def kinds(events: list[forms.StreamResponse]) -> list[str]:
    return [str(event.WhichOneof("payload")) for event in events]


def text_of(events: list[forms.StreamResponse]) -> str:
    """Return the answer as a client puts it together."""
    text = ""
    for event in events:
        if event.HasField("task"):
            text = answer(event.task)
        if event.HasField("artifact_update"):
            update = event.artifact_update
            text = f"{text if update.append else ''}{update.artifact.parts[0].text}"
    return text


def answer(task: forms.Task) -> str:
    return "".join(part.text for one in task.artifacts for part in one.parts)


@VERSIONS
async def test_a_task(shared: Served, version: str) -> None:
    async with client(shared.url, version=version) as a2a:
        events = await told(a2a, said("What is 21*2?"))
        assert {*kinds(events)} == {"task", "artifact_update", "status_update"}
        assert kinds(events)[0] == "task"
        assert events[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED
        assert text_of(events) == "It is 42."
        task = events[0].task
        again = await a2a.get_task(forms.GetTaskRequest(id=task.id))
        assert (again.context_id, answer(again)) == (task.context_id, "It is 42.")
        assert [one.parts[0].text for one in again.history] == ["What is 21*2?"]
        short = forms.GetTaskRequest(id=task.id, history_length=0)
        assert len((await a2a.get_task(short)).history) == (0 if version == "1.0" else 1)
        next_one = await told(a2a, said("Again?", "m2", context_id=task.context_id))
        assert next_one[0].task.id != task.id
        assert next_one[0].task.context_id == task.context_id
        same = await told(a2a, said("Again?", "m2", context_id=task.context_id))
        assert same[0].task.id == next_one[0].task.id  # a repeated message starts nothing
        with pytest.raises(errors.UnsupportedOperationError):
            [_ async for _ in a2a.subscribe(forms.SubscribeToTaskRequest(id=task.id))]
        with pytest.raises(errors.TaskNotCancelableError):
            await a2a.cancel_task(forms.CancelTaskRequest(id=task.id))


async def test_an_answer_that_was_cut_off_says_so(tmp_path: Path) -> None:
    model = ScriptedModel([text("It is", finish="length")])
    agent = Agent("cut", model, store=f"sqlite:///{tmp_path}/wick.db")
    with Server(agent, port=0, auth=False) as server:
        async with client(server.url, "cut") as a2a:
            events = await told(a2a, said("Hi"))
    end = events[-1].status_update.status
    assert (text_of(events), end.state) == ("It is", TaskState.TASK_STATE_COMPLETED)
    why = "the model's reply was cut off at its length limit"
    assert [part.text for part in end.message.parts] == [why]


@VERSIONS
async def test_an_approval(shared: Served, version: str) -> None:
    async with client(shared.url, "careful", version=version, streaming=False) as a2a:
        [event] = await told(a2a, said("What is 21*2?"))
        waiting = event.task
        assert waiting.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
        question, data = waiting.status.message.parts
        assert 'calculate({"expression": "21*2"})' in question.text
        asked = MessageToDict(data.data)["interrupts"][0]
        assert "hash" not in str(asked)
        again = await a2a.get_task(forms.GetTaskRequest(id=waiting.id))
        assert again.status.message.parts[0].text == question.text
        with pytest.raises(errors.InvalidParamsError, match="decisions"):
            await told(a2a, said("yes", "m2", task_id=waiting.id))
        with pytest.raises(errors.TaskNotCancelableError):
            await a2a.cancel_task(forms.CancelTaskRequest(id=waiting.id))
        [event] = await told(a2a, decided(waiting, {"type": "approve"}))
        assert event.task.id == waiting.id
        assert event.task.status.state == TaskState.TASK_STATE_COMPLETED
        assert answer(event.task) == "It is 42."


@VERSIONS
async def test_an_answer_that_comes_again_decides_nothing_else(
    tmp_path: Path, version: str
) -> None:
    steps = ", ".join(
        f"{{calls: [{{tool: calculate, args: {{expression: {n}*2}}}}]}}" for n in (1, 2)
    )
    with serving(tmp_path, talk=f"steps: [{steps}, Both are paid.]\n") as served:
        async with client(served.url, "careful", version=version, streaming=False) as a2a:
            [event] = await told(a2a, said("Pay both."))
            for _ in range(2):  # a client that lost the answer to its answer
                [again] = await told(a2a, decided(event.task, {"type": "approve"}))
                assert again.task.id == event.task.id
                assert again.task.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
                assert "2*2" in again.task.status.message.parts[0].text
            other = decided(event.task, {"type": "approve"})
            other.message.message_id = "another answer"
            for _ in range(2):
                [end] = await told(a2a, other)
                assert answer(end.task) == "Both are paid."


async def test_a_task_is_followed_and_cancelled(endless: Served) -> None:
    async with client(endless.url, "slow") as a2a:
        request = said("What is 21*2?")
        request.configuration.return_immediately = True
        async with client(endless.url, "slow", streaming=False) as other:
            [event] = await told(other, request)
        assert event.task.status.state == TaskState.TASK_STATE_WORKING
        seen: list[forms.StreamResponse] = []
        async for update in a2a.subscribe(forms.SubscribeToTaskRequest(id=event.task.id)):
            seen.append(update)
            if len(seen) == 3:
                task = await a2a.cancel_task(forms.CancelTaskRequest(id=event.task.id))
                assert task.status.state == TaskState.TASK_STATE_CANCELED
        assert seen[-1].status_update.status.state == TaskState.TASK_STATE_CANCELED


async def test_tasks_are_listed(shared: Served) -> None:
    async with client(shared.url) as a2a:
        for i in range(3):
            await told(a2a, said("What is 21*2?", f"m{i}", context_id="listed"))
        first = await a2a.list_tasks(forms.ListTasksRequest(context_id="listed", page_size=2))
        assert (first.total_size, len(first.tasks), len(first.tasks[0].artifacts)) == (3, 2, 0)
        request = forms.ListTasksRequest(context_id="listed", page_size=2, include_artifacts=True)
        request.page_token = first.next_page_token
        rest = await a2a.list_tasks(request)
        assert [answer(task) for task in rest.tasks] == ["It is 42."]
        ids = [task.id for task in [*first.tasks, *rest.tasks]]
        assert len({*ids}) == 3
        every = await a2a.list_tasks(forms.ListTasksRequest(status=TaskState.TASK_STATE_COMPLETED))
        assert {*ids} <= {task.id for task in every.tasks}
        none = forms.ListTasksRequest(context_id="listed", status=TaskState.TASK_STATE_FAILED)
        assert (await a2a.list_tasks(none)).total_size == 0


async def test_the_card(shared: Served) -> None:
    async with httpx.AsyncClient(timeout=SECONDS, trust_env=False) as http:
        got = await http.get(f"{shared.url}/a2a/careful/.well-known/agent-card.json")
    card = got.json()
    assert (card["name"], card["url"]) == ("careful", f"{shared.url}/a2a/careful")
    assert card["capabilities"] == {"streaming": True}
    assert [one["protocolVersion"] for one in card["supportedInterfaces"]] == ["1.0", "0.3"]


@VERSIONS
async def test_a_client_sees_all_once_although_the_server_is_killed(
    server: Served, version: str
) -> None:
    async with client(server.url, "slow", version=version) as a2a:
        seen: list[forms.StreamResponse] = []

        async def until_it_breaks() -> None:
            async for event in a2a.send_message(said("What is 21*2?")):
                seen.append(event)
                if "word3" in text_of(seen) and server.process is not None:
                    await asyncio.to_thread(server.kill)
                    server.process = None

        port = server.port
        with pytest.raises(A2AClientError):
            await until_it_breaks()
        task = seen[0].task
        await asyncio.to_thread(server.start, port=port)
        rest = await followed(a2a, task.id)
        words = " ".join(f"word{i}" for i in range(120))
        assert text_of(rest) == words
        assert answer(await a2a.get_task(forms.GetTaskRequest(id=task.id))) == words
    with server.http() as http:
        text = http.get(f"/threads/{task.context_id}/state").text
    assert text.count('"tool_call_id"') == 1  # the call ran once


async def followed(a2a: Client, task_id: str) -> list[forms.StreamResponse]:
    """Follow a task that goes on, or get it if it has ended meanwhile."""
    try:
        return [_ async for _ in a2a.subscribe(forms.SubscribeToTaskRequest(id=task_id))]
    except errors.UnsupportedOperationError:
        task = await a2a.get_task(forms.GetTaskRequest(id=task_id))
        return [forms.StreamResponse(task=task)]


# --- Trust.


def called(http: httpx.Client, method: str, **params: Any) -> Any:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    got = http.post("/a2a/default", json=body)
    assert got.status_code == 200, got.text
    return got.json()


SAID: Any = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "Hi"}]}
OLD: Any = {
    "messageId": "1",
    "role": "user",
    "kind": "message",
    "parts": [{"kind": "text", "text": "Hi"}],
}


@pytest.mark.parametrize(
    ("word", "params"),
    [
        ("tenant", {"message": SAID, "tenant": "other"}),
        ("thread_id", {"message": {**SAID, "thread_id": "x"}}),
        ("__run", {"message": {**SAID, "__run": "x"}}),
        ("run_id", {"message": SAID, "run_id": "x"}),
        ("role", {"message": {**SAID, "role": "ROLE_AGENT"}}),
        ("extensions", {"message": {**SAID, "extensions": ["http://a"]}}),
        ("referenceTaskIds", {"message": {**SAID, "referenceTaskIds": ["x"]}}),
        ("parts", {"message": {**SAID, "parts": [{"data": {"a": 1}}]}}),
        ("parts", {"message": {**SAID, "parts": [{"url": "http://a/b.pdf"}]}}),
        ("parts", {"message": {**SAID, "parts": [{"text": " "}]}}),
        ("parts", {"message": {**SAID, "parts": []}}),
        ("messageId", {"message": {**SAID, "messageId": ""}}),
        ("contextId", {"message": {**SAID, "contextId": "../x"}}),
        ("message", {}),
        ("message", {"message": []}),
        ("metadata", {"message": SAID, "metadata": 5}),
        ("historyLength", {"message": SAID, "configuration": {"historyLength": -1}}),
    ],
)
def test_a_field_is_refused_by_name(shared: Served, word: str, params: Any) -> None:
    with shared.http() as http:
        error = called(http, "SendMessage", **params)["error"]
        assert (error["code"], word in error["message"]) == (-32602, True), error
        if word in ("thread_id", "__run", "run_id"):
            smuggled = {key: value for key, value in params["message"].items() if key not in SAID}
            params = {**params, "message": {**OLD, **smuggled}}
            error = called(http, "message/send", **params)["error"]
            assert (error["code"], word in error["message"]) == (-32602, True), error


def test_push_notifications_are_refused_by_name(shared: Served) -> None:
    push = {"url": "http://127.0.0.1:1/hook"}
    new = {"message": SAID, "configuration": {"taskPushNotificationConfig": push}}
    older = {"message": OLD, "configuration": {"pushNotificationConfig": push}}
    with shared.http() as http:
        for method, params in (
            ("SendMessage", new),
            ("SendStreamingMessage", new),
            ("message/send", older),
            ("CreateTaskPushNotificationConfig", {"taskId": "x", **push}),
            ("tasks/pushNotificationConfig/set", {"taskId": "x", "pushNotificationConfig": push}),
        ):
            error = called(http, method, **params)["error"]
            assert error["code"] == -32003, error
            assert "ush" in error["message"]
        assert called(http, "GetExtendedAgentCard")["error"]["code"] == -32601
        modes = {"acceptedOutputModes": ["video/mp4"]}
        error = called(http, "SendMessage", message=SAID, configuration=modes)["error"]
        assert error["code"] == -32005


def test_metadata_is_kept_and_has_no_effect(shared: Served) -> None:
    smuggled = {"thread_id": "x", "run_id": "0" * 32, "__wick_run": "x"}
    with shared.http() as http:
        message = {**SAID, "contextId": "meta", "metadata": smuggled}
        task = called(http, "SendMessage", message=message, metadata={"a": 1})["result"]["task"]
        assert (task["contextId"], task["metadata"]) == ("meta", {**smuggled, "a": 1})
        assert task["id"] != smuggled["run_id"]
        assert http.get("/threads/x").status_code == 404


def test_another_tenant_finds_no_task(guarded: Served, tmp_path: Path) -> None:
    anna, bert, read = (
        guarded.wick("token", "create", "--scope", scope, "--tenant", tenant)
        for tenant, scope in (("anna", "run"), ("bert", "admin"), ("anna", "read"))
    )
    with guarded.http(anna) as mine, guarded.http(bert) as other, guarded.http(read) as reader:
        task = called(mine, "SendMessage", message=SAID)["result"]["task"]
        for method, params in (
            ("GetTask", {"id": task["id"]}),
            ("CancelTask", {"id": task["id"]}),
            ("SubscribeToTask", {"id": task["id"]}),
            ("tasks/get", {"id": task["id"]}),
            ("SendMessage", {"message": {**SAID, "taskId": task["id"]}}),
            ("ListTasks", {"contextId": task["contextId"]}),
        ):
            error = called(other, method, **params)["error"]
            assert error["code"] == -32001, (method, error)
        assert called(other, "ListTasks")["result"]["tasks"] == []
        told = {**SAID, "contextId": task["contextId"]}
        theirs = called(other, "SendMessage", message=told)["result"]["task"]
        assert theirs["id"] != task["id"]  # a thread of the same name, of their own
        assert called(reader, "GetTask", id=task["id"])["result"]["id"] == task["id"]
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": SAID}}
        assert reader.post("/a2a/default", json=body).status_code == 403
        body = {**body, "method": "CancelTask", "params": {"id": task["id"]}}
        assert reader.post("/a2a/default", json=body).status_code == 403
        card = reader.get("/a2a/default/.well-known/agent-card.json").json()
        assert card["securitySchemes"]["token"]["scheme"] == "bearer"
