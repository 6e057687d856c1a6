"""Both clients against real servers: what they read, what they refuse, what they live through."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from tests.server.support import Served
from tests.support.waiting import until
from wick_graph.client import AsyncClient, Client, ServerError, wire
from wick_graph.client import wire as calls
from wick_graph.client import wire as transport
from wick_graph.events import ChatModelRetry, ChatModelStream, Done, Event

Follow = Callable[[str, Callable[[Event], None]], None]


def blocking(url: str, seen: Callable[[Event], None]) -> None:
    """Follow a run in this thread."""
    with Client(url) as wick:
        for event in wick.stream("What is 21*2?", agent="slow"):
            seen(event)


def suspending(url: str, seen: Callable[[Event], None]) -> None:
    """Follow a run in a loop."""

    async def follow() -> None:
        async with AsyncClient(url) as wick:
            async for event in wick.stream("What is 21*2?", agent="slow"):
                seen(event)

    asyncio.run(follow())


@pytest.mark.slow
@pytest.mark.parametrize("follow", [blocking, suspending])
def test_N3_a_killed_server_s_stream_is_taken_up_and_every_event_comes_once(
    server: Served, follow: Follow
) -> None:
    port, events, half_way = server.port, list[Event](), threading.Event()

    def seen(event: Event) -> None:
        events.append(event)
        if sum(isinstance(event, ChatModelStream) for event in events) > 20:
            half_way.set()

    reader = threading.Thread(target=follow, args=(server.url, seen))
    reader.start()
    assert half_way.wait(60)
    server.kill()
    server.start(port=port)
    reader.join(60)
    assert isinstance(events[-1], Done)
    assert any(isinstance(event, ChatModelRetry) for event in events)
    with server.client() as wick:
        assert events == [*wick.events(events[-1].run_id)]
        assert events[10:] == [*wick.events(events[-1].run_id, after=10)]


@pytest.fixture(params=["blocking", "suspending"])
def ask(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Make a call by its name, by either client; of a stream return a list."""

    def blocking(url: str, name: str, *args: Any, **kwargs: Any) -> Any:
        with Client(url, reconnect_for=0.2) as wick:
            made = getattr(wick, name)(*args, **kwargs)
            return [*made] if isinstance(made, Iterator) else made

    def suspending(url: str, name: str, *args: Any, **kwargs: Any) -> Any:
        async def asked() -> Any:
            async with AsyncClient(url, reconnect_for=0.2) as wick:
                made = getattr(wick, name)(*args, **kwargs)
                return await made if asyncio.iscoroutine(made) else [event async for event in made]

        return asyncio.run(asked())

    return blocking if request.param == "blocking" else suspending


def test_the_calls(shared: Served, ask: Callable[..., Any]) -> None:
    answer = ask(shared.url, "invoke", "What is 21*2?", agent="careful")
    assert (answer.stopped_because, len(answer.interrupts)) == ("interrupted", 1)
    decision = {"decision": "approve"}
    assert ask(shared.url, "resume", answer.thread_id, decision).text == "It is 42."
    *_, done = ask(shared.url, "stream", [{"role": "user", "content": "And?"}])
    assert (type(done), done.stopped_because) == (Done, "done")
    assert ask(shared.url, "get", f"/threads/{done.thread_id}")["status"] == "idle"
    pinned = ask(shared.url, "post", f"/threads/{done.thread_id}/pin", {"pinned": True})
    assert pinned["pinned"] is True
    assert ask(shared.url, "delete", f"/threads/{done.thread_id}") is None


@pytest.mark.sisters(3)
@pytest.mark.parametrize(
    ("name", "args", "status", "sentence"),
    [
        ("invoke", {"input": "x", "agent": "nobody"}, 404, "agent not found"),
        ("stream", {"input": "x", "agent": "nobody"}, 404, "agent not found"),
        ("stream", {"input": ""}, 400, "content must not be empty"),
        ("resume", {"thread_id": "nobody"}, 404, "thread not found"),
        ("events", {"run_id": "00000000-0000-4000-8000-000000000000"}, 404, "run not found"),
        ("get", {"path": "/v1/models/nobody"}, 404, "the model 'nobody' does not exist"),
    ],
)
def test_a_refusal_is_told_in_the_server_s_words(
    shared: Served, ask: Callable[..., Any], name: str, args: Any, status: int, sentence: str
) -> None:
    with pytest.raises(ServerError, match=sentence) as refused:
        ask(shared.url, name, **args)
    assert refused.value.status == status


def test_a_server_that_is_not_there(ask: Callable[..., Any]) -> None:
    for name in ("invoke", "stream"):
        with pytest.raises(ServerError, match=r"cannot be reached|broke off"):
            ask("http://127.0.0.1:9", name, "x")


@pytest.mark.slow
def test_a_server_that_goes_down_says_so(server: Served) -> None:
    with server.client() as wick:
        first = wick.stream("x", agent="slow")
        next(first)
        assert server.process is not None
        server.process.send_signal(signal.SIGTERM)

        def refused() -> bool:
            try:
                wick.invoke("x")
            except ServerError as error:
                return error.status == 503
            return False

        until(refused, "it took a run on")
        with pytest.raises(ServerError, match="the server is stopping"):
            next(wick.stream("x"))
        assert isinstance([*first][-1], Done)


HEAD = b"HTTP/1.1 200 OK\r\nX-Run-Id: r\r\nContent-Type: text/event-stream\r\n\r\n"
FIRST = b'id: 1\ndata: {"event": "on_chat_model_stream", "data": {"delta": "a"}}\n\n'
ENDED = b'"data": {"stopped_because": "done", "total_duration_ms": 1}'
LAST = b'id: 2\ndata: {"event": "done", ' + ENDED + b"}\n\n"


@pytest.fixture
def scripted(request: pytest.FixtureRequest) -> Iterator[tuple[str, list[bytes]]]:
    """A server whose connections say what is given, one after the other; None is silence."""
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening, ExitStack() as held:

        def serve() -> None:
            for told in request.param:
                connection, _ = listening.accept()
                held.callback(connection.close)
                asked.append(connection.recv(65_536))
                for piece in told:
                    if piece is None:
                        break  # it is there, and says nothing any more
                    connection.sendall(piece)
                else:
                    connection.shutdown(socket.SHUT_RDWR)

        server = threading.Thread(target=serve)
        server.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", asked
        server.join(60)


@pytest.mark.parametrize("scripted", [[[HEAD, FIRST, None], [HEAD, LAST]]], indirect=True)
@pytest.mark.parametrize("ask", ["blocking", "suspending"], indirect=True)
def test_a_stream_that_falls_silent_is_taken_up(
    scripted: tuple[str, list[bytes]], ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, asked = scripted
    monkeypatch.setattr(transport, "_SILENT", 0.2)
    assert [type(event) for event in ask(url, "stream", "x")] == [ChatModelStream, Done]
    assert b"last-event-id: 1" in asked[1].lower()


REFUSED = [[b"HTTP/1.1 %d No\r\nContent-Length: 0\r\n\r\n" % status] for status in (502, 429)]


@pytest.mark.parametrize("scripted", [[[HEAD, FIRST], *REFUSED, [HEAD, LAST]]], indirect=True)
def test_a_refusal_that_passes_ends_no_stream(scripted: tuple[str, list[bytes]]) -> None:
    """A proxy says 502 while the server behind it starts again."""
    url, asked = scripted
    with Client(url) as wick:
        assert [type(event) for event in wick.stream("x")] == [ChatModelStream, Done]
    assert all(b"last-event-id: 1" in one.lower() for one in asked[1:])


def test_a_refusal_that_outlasts_the_wait_is_told_in_its_own_words() -> None:
    following = wire.Following(calls.events("r"), reconnect_for=0.0)
    following.opened(200, {"x-run-id": "r"})
    following.pause(None)
    following.opened(503, {})
    following.refused(503, '{"error": "the server is stopping"}')
    with pytest.raises(ServerError, match="^the server is stopping$") as told:
        following.pause(None)
    assert told.value.status == 503


def test_a_server_that_only_pings_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(wire, "time", SimpleNamespace(monotonic=lambda: now[0]))
    following = wire.Following(calls.events("r"), reconnect_for=1.0)
    following.opened(200, {"x-run-id": "r"})
    for _ in range(5):  # each connection only pings before it breaks off
        lines = following.lines()
        next(lines)
        lines.send(": ping")
        following.pause(None)
        now[0] += 0.9
    now[0] += 0.9
    with pytest.raises(ServerError, match="broke off"):
        following.pause(None)
