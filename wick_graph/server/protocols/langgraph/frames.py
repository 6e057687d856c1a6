"""What a run's events and steps are in LangGraph's streams of runs, by mode."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from langgraph.types import StateSnapshot

from wick_graph import langgraph_config
from wick_graph.server.protocols.langgraph import shapes
from wick_graph.service.event_log import Wire
from wick_graph.store.server_rows import StreamRow

Frame = tuple[str, Any]
"""The name of an event, and its data."""

BY_STEP: Final = frozenset({"values", "tasks", "checkpoints", "debug"})
"""Modes that are read from checkpoints."""

NODES: Final = ("model", "tools")
"""The nodes that replies and results come from."""


class Reply:
    """A reply as far as the model has written it."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._count = 0
        self.begin()

    def begin(self) -> None:
        """Forget what came before: another call begins."""
        self.text = self.reasoning = self.key = ""
        self.calls: dict[Any, dict[str, Any]] = {}
        self.is_streamed = False

    def add(self, data: Mapping[str, Any]) -> None:
        """Add a piece."""
        self._name(data)
        self.is_streamed = True
        self.text += data["delta"]
        self.reasoning += data.get("reasoning", "")
        for piece in data.get("calls", ()):
            known = self.calls.setdefault(piece.get("index"), {"id": None, "name": "", "args": ""})
            known["id"] = known["id"] or piece.get("id")
            known["name"] += piece.get("name") or ""
            known["args"] += piece.get("args") or ""

    def _name(self, data: Mapping[str, Any]) -> None:
        if not self.key:
            self._count += 1
            self.key = data.get("message_id") or f"run-{self._run_id}-{self._count}"

    def end(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return the whole reply as a message."""
        self._name(data)
        calls = [{**call, "type": "tool_call"} for call in data["tool_calls"]]
        return {**self._message("ai", data["content"]), "tool_calls": calls, **_usage(data)}

    def chunk(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return a piece as a message."""
        pieces = [{**piece, "type": "tool_call_chunk"} for piece in data.get("calls", ())]
        made = self._message("AIMessageChunk", data["delta"], data.get("reasoning", ""))
        return {**made, "tool_calls": [], "tool_call_chunks": pieces, "usage_metadata": None}

    def last_words(self) -> dict[str, Any] | None:
        """Return the data of a reply that no model ends; None if there is none."""
        return {"content": self.text, "tool_calls": []} if self.is_streamed else None

    def so_far(self) -> dict[str, Any]:
        """Return what there is as a message."""
        pieces = [
            {**call, "index": index, "type": "tool_call_chunk"}
            for index, call in self.calls.items()
        ]
        made = self._message("AIMessageChunk", self.text)
        calls = [call for one in self.calls.values() if (call := _parsed(one)) is not None]
        return {**made, "tool_calls": calls, "tool_call_chunks": pieces, "usage_metadata": None}

    def _message(self, kind: str, text: str, reasoning: str | None = None) -> dict[str, Any]:
        thought = self.reasoning if reasoning is None else reasoning
        return {
            "type": kind,
            "id": self.key,
            "content": text,
            "name": None,
            "additional_kwargs": {"reasoning_content": thought} if thought else {},
            "response_metadata": {},
            "invalid_tool_calls": [],
        }


def _parsed(call: Mapping[str, Any]) -> dict[str, Any] | None:
    try:
        args = json.loads(call["args"] or "{}")
    except ValueError:
        return None
    known = {"id": call["id"], "name": call["name"], "args": args, "type": "tool_call"}
    return known if isinstance(args, dict) else None


def _usage(data: Mapping[str, Any]) -> dict[str, Any]:
    return {"usage_metadata": usage(data)}


def usage(data: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the tokens of a reply; None if they are not known."""
    spent = data.get("usage") or {}
    if "input_tokens" not in spent:
        return None
    names = ("input_tokens", "output_tokens", "total_tokens")
    return {name: spent.get(name, 0) for name in names}


def result_of(event: Wire) -> dict[str, Any]:
    """Return a tool's result as a message."""
    data = event["data"]
    return {
        "type": "tool",
        "id": f"result-{event['run_id']}",
        "content": data["output"],
        "name": event.get("name"),
        "tool_call_id": event["run_id"],
        "status": "error" if "error" in data else "success",
        "artifact": None,
        "additional_kwargs": {},
        "response_metadata": {},
    }


class Frames:
    """Turns a run's events and steps into the frames of some modes.

    Args:
        row: The run.
        modes: The modes of the stream.
        guest: Whether the run is of a graph that is not ours: its updates are read from steps.
        inner: Whether to show runs that calls began, under the name of their call.
        within: The namespace of such a run.
    """

    def __init__(
        self,
        row: StreamRow,
        modes: Collection[str],
        *,
        guest: bool = False,
        inner: bool = False,
        within: str = "",
    ) -> None:
        self._row, self._modes, self._inner = row, modes, inner
        self._within = within
        self._by_events = "updates" in modes and not guest
        self._by_steps = "updates" in modes and guest
        self._reply = Reply(row.run_id)
        self._below: dict[str, Frames] = {}
        self._last: StateSnapshot | None = None
        self.asked: list[dict[str, Any]] = []
        """The questions at the end of the run."""

    @property
    def needs_steps(self) -> bool:
        """Whether checkpoints are read."""
        return bool(BY_STEP.intersection(self._modes)) or self._by_steps

    def of(self, event: Wire) -> list[Frame]:
        """Return the frames of an event."""
        make = getattr(self, f"_{event['event']}", None)
        made: list[Frame] = [] if make is None else [*make(event)]
        if "events" in self._modes:
            made.insert(0, ("events", event))
        return [(f"{name}{self._within}", data) for name, data in made]

    def _metadata(self, node: str) -> dict[str, Any]:
        return {
            "langgraph_node": node,
            "graph_id": self._row.asked["agent"],
            "assistant_id": shapes.assistant_id(self._row.asked["agent"]),
            "run_id": self._row.run_id,
            "thread_id": self._row.thread_id,
            "langgraph_checkpoint_ns": self._within.removeprefix("|"),
        }

    def _on_chat_model_start(self, event: Wire) -> Iterator[Frame]:
        self._reply.begin()
        yield from ()

    _on_chat_model_retry = _on_chat_model_start

    def _on_chat_model_stream(self, event: Wire) -> Iterator[Frame]:
        first, data = not self._reply.is_streamed, event["data"]
        self._reply.add(data)
        if "messages-tuple" in self._modes:
            yield "messages", [self._reply.chunk(data), self._metadata(NODES[0])]
        if "messages" in self._modes:
            if first:
                yield "messages/metadata", {self._reply.key: {"metadata": self._metadata(NODES[0])}}
            yield "messages/partial", [self._reply.so_far()]

    def _on_chat_model_end(self, event: Wire) -> Iterator[Frame]:
        streamed, whole = self._reply.is_streamed, self._reply.end(event["data"])
        yield from self._message(whole, NODES[0], streamed=streamed)
        self._reply.begin()

    def _done(self, event: Wire) -> Iterator[Frame]:
        if (said := self._reply.last_words()) is not None:
            yield from self._on_chat_model_end({"data": said})

    def _on_tool_end(self, event: Wire) -> Iterator[Frame]:
        yield from self._message(result_of(event), NODES[1])

    def _message(
        self, whole: dict[str, Any], node: str, *, streamed: bool = False
    ) -> Iterator[Frame]:
        if "messages-tuple" in self._modes and not streamed:
            yield "messages", [whole, self._metadata(node)]
        if "messages" in self._modes:
            yield "messages/complete", [whole]
        if self._by_events:
            yield "updates", {node: {"messages": [whole]}}

    def _on_output(self, event: Wire) -> Iterator[Frame]:
        if "custom" in self._modes:
            yield "custom", {"name": "output", **event["data"]}

    def _on_subagent(self, event: Wire) -> Iterator[Frame]:
        if not self._inner:
            return
        data = event["data"]
        within = f"|{'/'.join(data['path'])}:{data['cause']}"
        below = self._below.get(within)
        if below is None:
            modes = frozenset(self._modes) - BY_STEP
            below = self._below[within] = Frames(self._row, modes, within=within)
        if data["event"]["event"] not in ("done", "error"):
            yield from below.of({"data": {}, **data["event"]})

    def step(self, state: StateSnapshot) -> list[Frame]:
        """Return the frames of a step: what the tasks of the one before gave, and its own."""
        made, before = [*self._ended(state)], self._last
        self._last = state
        if "checkpoints" in self._modes or "debug" in self._modes:
            data = self._checkpoint(state)
            if "checkpoints" in self._modes:
                made.append(("checkpoints", data))
            made += self._debug("checkpoint", data, state)
        source = (state.metadata or {}).get("source")
        if "values" in self._modes and (source != "input" or before is not None) and state.values:
            made.append(("values", shapes.values(state)))
        for task in state.tasks:
            data = {"id": task.id, "name": task.name, "input": None, "triggers": []}
            if "tasks" in self._modes:
                made.append(("tasks", data))
            made += self._debug("task", data, state)
        return made

    def _ended(self, state: StateSnapshot) -> Iterator[Frame]:
        before = self._last
        if before is None:
            return
        for task in before.tasks:
            result = shapes.plain(task.result)
            data = {"id": task.id, "name": task.name, "result": result, "interrupts": []}
            data["error"] = None if task.error is None else str(task.error)
            if self._by_steps and not task.name.startswith("__"):
                yield "updates", {task.name: result}
            if "tasks" in self._modes:
                yield "tasks", data
            yield from self._debug("task_result", data, before)

    def _debug(self, kind: str, data: Mapping[str, Any], state: StateSnapshot) -> list[Frame]:
        if "debug" not in self._modes:
            return []
        step = (state.metadata or {}).get("step")
        return [
            ("debug", {"type": kind, "step": step, "timestamp": state.created_at, "payload": data})
        ]

    def _checkpoint(self, state: StateSnapshot) -> dict[str, Any]:
        made = shapes.snapshot(self._row.thread_id, state)
        names = ("values", "next", "tasks", "metadata", "checkpoint", "parent_checkpoint")
        kept = {name: made[name] for name in names}
        config, parent = kept["checkpoint"], kept["parent_checkpoint"]
        return {
            **kept,
            "config": {langgraph_config.CONFIGURABLE: config},
            "parent_config": None if parent is None else {langgraph_config.CONFIGURABLE: parent},
        }

    def last(self, event: Wire, state: StateSnapshot | None) -> list[Frame]:
        """Return the frames of a run's last event.

        Args:
            event: The event.
            state: The thread's state, if the run waits for an answer.
        """
        made = self.of(event)
        if state is not None:
            asked = shapes.questions(self._row.thread_id, state.interrupts)
            if "values" in self._modes:
                made.append(("values", {**shapes.values(state), "__interrupt__": asked}))
            if "updates" in self._modes:
                made.append(("updates", {"__interrupt__": asked}))
        if event["event"] == "error":
            made.append(("error", error_of(event)))
        return [*made, ("end", None)]


def error_of(event: Wire) -> dict[str, Any]:
    """Return why a run failed."""
    names = {"cancelled": "UserInterrupt"}
    why = event["data"]["stopped_because"]
    return {"error": names.get(why, "RunError"), "message": event["data"]["error"]}
