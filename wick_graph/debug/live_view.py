"""What is known at a moment of a run that goes on: from the live objects themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, RemoveMessage, ToolMessage

from wick_graph.debug.view import Data, Desk, View
from wick_graph.errors import DebugError
from wick_graph.hooks.protocol import Verdict
from wick_graph.journal.entry import Entry
from wick_graph.journal.rebuild import REQUESTS, RecordedRequest
from wick_graph.messages import ToolCall, ToolResult
from wick_graph.moments import Moment
from wick_graph.request import ModelRequest


class LiveView(View):
    """A moment that is held in memory."""

    def __init__(self, desk: Desk, at: int, moment: Moment) -> None:
        super().__init__(desk, at)
        self.moment = moment

    @property
    def data(self) -> Mapping[str, Any]:
        """What the moment carries: live objects, not to be changed."""
        return self.moment.data

    # --- the state -------------------------------------------------------------------------------

    @cached_property
    def base(self) -> Mapping[str, Any]:
        """The values that the superstep began with; between two of them, those that one left."""
        own = self.entry.checkpoint
        saved = self.desk.saved(own) if own else None
        if saved is not None:
            values: Mapping[str, Any] = saved.checkpoint["channel_values"]
            return values
        for place in range(self.at, -1, -1):
            entry = self.desk.trail.entries[place]
            if entry.checkpoint is not None and entry.checkpoint != own:
                return self.desk.view(place).values
            held = self._live(entry)
            if entry.what == "node.enter" and held is not None and entry.node != "tools":
                given: Mapping[str, Any] = held.data["input"]
                return given
        return {}

    @cached_property
    def pending(self) -> list[tuple[Entry, str, Any]]:
        """What nodes of the running superstep had written by now."""
        if self.entry.checkpoint is None:
            return []
        made: list[tuple[Entry, str, Any]] = []
        for entry in reversed(list(self.desk.trail.superstep(self.at))):
            held = self._live(entry) if entry.what == "node.exit" else None
            if held is not None:
                made += [(entry, channel, value) for channel, value in held.data["writes"]]
        return made

    @cached_property
    def writes(self) -> list[Data]:
        """What a node or a hook wrote here."""
        if self.entry.what == "node.exit":
            return _writes(self.data["writes"])
        if self.entry.what != "hook.exit":
            return []
        value, update = self.data["value"], self.data.get("update")
        if self.entry.hook_phase == "after_model":
            update = value.update if isinstance(value, Verdict) else value or update
        return _writes(list(update.items())) if isinstance(update, Mapping) else []

    # --- what the moment is about ----------------------------------------------------------------

    @cached_property
    def _told(self) -> Data:
        make = _TOLD.get(self.entry.what)
        return {} if make is None else make(self)

    @cached_property
    def args_asked(self) -> Any:
        """The arguments of the call as the model asked for them."""
        for entry in self.desk.trail.of_task(self.at):
            held = self._live(entry)
            if entry.what == "tool.enter" and held is not None:
                return self.desk.shower.plain(held.data["args"])
        return None

    @cached_property
    def args(self) -> Any:
        """The arguments of the call as they are by now."""
        for entry in self.desk.trail.of_task(self.at):
            held = self._live(entry)
            if held is None:
                continue
            if entry.kind == "tool" and "args" in held.data:
                return self.desk.shower.plain(held.data["args"])
            if entry.what == "hook.enter" and isinstance(held.data["value"], ToolCall):
                return self.desk.shower.plain(held.data["value"].args)
        return None

    @cached_property
    def _result(self) -> ToolResult | None:
        found = self.data.get("result") if self.entry.kind == "tool" else None
        return found if isinstance(found, ToolResult) else None

    @cached_property
    def output(self) -> str | None:
        """What the call gave, its error's text included; None where it is not over."""
        found = self._result
        return None if found is None else found.error or found.to_message().text

    @cached_property
    def error(self) -> str | None:
        """The error of the moment, or of the call that ends here."""
        return self.entry.error if self._result is None else self._result.error

    @cached_property
    def result(self) -> Data | None:
        """The call's result; None where it is not over."""
        if self._result is None:
            return None
        took = self.entry.duration_us
        ms = None if took is None else round(took / 1000, 3)
        output = None if self._result.error else self.output
        return {"output": output, "error": self._result.error, "ms": ms}

    @cached_property
    def reply(self) -> AIMessage | None:
        """The model's reply, at its moment."""
        return self.data["reply"] if self.entry.what == "model.response" else None

    @cached_property
    def usage(self) -> Data | None:
        """The tokens of the reply, at its moment."""
        return self.data["usage"].to_dict() if self.entry.what == "model.response" else None

    @cached_property
    def request(self) -> RecordedRequest | None:
        """The request, at its own moment."""
        if self.entry.kind != "model" or self.entry.phase not in REQUESTS:
            return None
        asked: ModelRequest = self.data["request"]
        tools = () if asked.withheld else tuple(tool.schema for tool in self.data["tools"])
        return RecordedRequest(
            seq=self.entry.seq,
            messages=list(self.data["messages"]),
            system=asked.system,
            tools=tools,
            settings=dict(asked.settings),
            purpose=asked.purpose,
            model=self.entry.name,
            key=b"",
            exact=True,
            note="",
        )

    @cached_property
    def route(self) -> Data | None:
        """The decision, at its moment."""
        if self.entry.kind != "route":
            return None
        reason, rules = self.data["explain"]()
        target = self.data["target"]
        ends = isinstance(target, str)
        return {
            "chosen": "route: end" if ends else "route: tools",
            "reason": reason,
            "candidates": [
                {"label": r.label, "predicate": r.predicate, "result": r.result, "reads": r.reads}
                for r in rules
            ],
            "calls": 0 if ends else len(target),
        }

    def _live(self, entry: Entry) -> Moment | None:
        return self.desk.live.get(entry.seq)


def _writes(writes: list[tuple[str, Any]]) -> list[Data]:
    made: list[Data] = []
    for channel, value in writes:
        if channel == "messages":
            items = value if isinstance(value, list | tuple) else [value]
            made += [_message(item) for item in items if isinstance(item, BaseMessage)]
        elif isinstance(value, dict) and channel not in ("request", "usage"):
            made += [{"channel": channel, "op": "set", "path": str(key)} for key in value]
        else:
            made.append({"channel": channel, "op": "set"})
    return made


def _message(message: BaseMessage) -> Data:
    op = "remove" if isinstance(message, RemoveMessage) else "append"
    path = message.id
    if path is None and isinstance(message, ToolMessage):
        path = message.tool_call_id
    return {"channel": "messages", "op": op, "path": path}


def _request(view: LiveView) -> Data:
    found = view.request
    if found is None:
        raise DebugError("this moment has no request")
    names = [tool["function"]["name"] for tool in found.tools]
    asked = len(found.messages) - bool(found.system_text)
    return {"purpose": found.purpose, "messages": asked, "tools": names}


def _exit(view: LiveView) -> Data:
    name = "error" if view.error else "output"
    return {name: view.output}


_TOLD: Final[Mapping[str, Callable[[LiveView], Any]]] = {
    "run.enter": lambda view: {"mode": "live"},
    "run.exit": lambda view: {"stopped_because": view.data.get("stopped_because")},
    "run.error": lambda view: {"stopped_because": view.data.get("stopped_because")},
    "node.exit": lambda view: {"writes": view.writes},
    "hook.exit": lambda view: {"update": view.writes},
    "model.request": _request,
    "model.replaced": _request,
    "model.response": lambda view: {"reply": view.reply, "usage": view.usage},
    "route.taken": lambda view: view.route,
    "tool.enter": lambda view: {"args": view.args},
    "tool.call": lambda view: {"args": view.args, "changed": True, "replay": view.data["replay"]},
    "tool.replaced": lambda view: {"args": view.args, "changed": True},
    "tool.exit": _exit,
    "interrupt.raise": lambda view: {
        "value": [{"id": i.id, "value": i.value} for i in view.data["interrupts"]]
    },
    "interrupt.answer": lambda view: {"value": view.data["answer"]},
}
