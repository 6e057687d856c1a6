"""Every call that a client makes, described once: what is sent, and how the answer is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wick_graph.client import wire
from wick_graph.client.wire import UNSET, Answer, Call, Input
from wick_graph.events import Event


def get(path: str, **params: Any) -> Call[Any]:
    """Read a path of the server's, such as `/threads`."""
    return Call("GET", path, params=params)


def post(path: str, body: Mapping[str, Any] | None = None) -> Call[Any]:
    """Write to a path of the server's, such as `/threads/ID/pin`."""
    return Call("POST", path, body)


def delete(path: str) -> Call[None]:
    """Delete what a path of the server's names."""
    return Call("DELETE", path)


def invoke(
    input: Input,
    *,
    agent: str | None = None,
    thread_id: str | None = None,
    idempotency_key: str | None = None,
) -> Call[Answer]:
    """Ask an agent and wait for the answer.

    Raises:
        ServerError: The request was refused, or the run failed.
    """
    body, headers = wire.asked(input, thread_id), wire.key_header(idempotency_key)
    path = wire.agent_path(agent, "invoke")
    return Call("POST", path, body, headers=headers, read=wire.answer_of)


def resume(
    thread_id: str,
    answer: Any = UNSET,
    *,
    idempotency_key: str | None = None,
    force: bool = False,
) -> Call[Answer]:
    """Go on where a thread stands, with the answer that it waits for.

    With `force` it goes on although it is poisoned.

    Raises:
        ServerError: The request was refused, or the run failed.
    """
    body = wire.resumed(thread_id, answer, **({"force": True} if force else {}))
    headers = wire.key_header(idempotency_key)
    return Call("POST", "/agents/resume", body, headers=headers, read=wire.answer_of)


def stream(
    input: Input,
    *,
    agent: str | None = None,
    thread_id: str | None = None,
    idempotency_key: str | None = None,
    on_disconnect: str | None = None,
) -> Call[Event]:
    """Ask an agent and yield what happens; the last event is `Done` or `Failed`.

    Raises:
        ServerError: The request was refused, or the stream broke and cannot be taken up.
    """
    body = wire.asked(input, thread_id, on_disconnect)
    headers = wire.key_header(idempotency_key)
    return Call("POST", wire.agent_path(agent, "stream"), body, headers=headers)


def stream_resume(
    thread_id: str,
    answer: Any = UNSET,
    *,
    idempotency_key: str | None = None,
    force: bool = False,
) -> Call[Event]:
    """Go on where a thread stands, and yield what happens; see `resume` and `stream`."""
    more = {"force": True} if force else {}
    body = wire.resumed(thread_id, answer, stream=True, **more)
    return Call("POST", "/agents/resume", body, headers=wire.key_header(idempotency_key))


def events(run_id: str, *, after: int | None = None) -> Call[Event]:
    """Follow a run from its beginning, or from behind an event's number; see `stream`."""
    headers = {} if after is None else {"Last-Event-ID": str(after)}
    return Call("GET", f"/runs/{run_id}/events", headers=headers)
