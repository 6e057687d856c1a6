"""Views of a moment, recorded or live: its data, and names for expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, RemoveMessage, ToolMessage

from wick_graph.core.moments import Moment
from wick_graph.core.request import ModelRequest
from wick_graph.debug.timeline import CHECKPOINT, Timeline
from wick_graph.debug.values import JsonView, overlaid
from wick_graph.errors import DebugError, ExpressionError, StorageError
from wick_graph.hooks.protocol import Verdict
from wick_graph.journal.encode import USAGE
from wick_graph.journal.entry import GAP, Entry
from wick_graph.journal.journal import Journal
from wick_graph.journal.reconstruct import REQUESTS, RecordedRequest
from wick_graph.langgraph_config import HIDDEN
from wick_graph.messages import ToolCall, ToolResult, to_wick

Data = dict[str, Any]

_SAVED: Final = 48
"""Limit of cached checkpoints."""


@dataclass(slots=True)
class ViewCache:
    """Data that the views of one recording share."""

    journal: Journal | None
    timeline: Timeline
    json: JsonView = field(default_factory=JsonView)
    live: dict[int, Moment] = field(default_factory=dict)
    """The moments of a running run, by their numbers."""
    _saved: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Take the names of the channels from the recording."""
        if (shape := self.shape) is not None:
            self.json.look_like(shape["channels"], shape.get("empty") or {})

    @property
    def shape(self) -> Mapping[str, Any] | None:
        """The recorded shape of a graph that is no agent's; None for an agent."""
        runs = [] if self.journal is None else self.journal.runs()
        return (runs[-1].shape or None) if runs else self.timeline.shape

    def saved(self, checkpoint: str) -> Any:
        """Return a checkpoint with its writes; None if it is gone."""
        held = self._saved.get(checkpoint)
        if held is None and self.journal is not None:
            held = self.journal.saved(checkpoint)
            if held is not None:
                self.keep(checkpoint, held)
        return held

    def __iter__(self) -> Iterator[View]:
        return (self.view(at) for at in range(len(self.timeline)))

    def keep(self, checkpoint: str, saved: Any) -> None:
        """Keep a checkpoint for the next views."""
        if len(self._saved) >= _SAVED:
            del self._saved[next(iter(self._saved))]
        self._saved[checkpoint] = saved

    def apart(self) -> ViewCache:
        """Return the same recording with its own cache, for use without the session's lock."""
        return ViewCache(self.journal, self.timeline, self.json, self.live)

    def view(self, at: int) -> View:
        """Return the view of the moment at a place."""
        moment = self.live.get(self.timeline.entries[at].seq)
        return View(self, at) if moment is None else LiveView(self, at, moment)


class View:
    """A moment of a recording with its data; nothing is executed."""

    def __init__(self, views: ViewCache, at: int) -> None:
        self.views = views
        self.at = at
        self.entry: Entry = views.timeline.entries[at]

    # --- the state -------------------------------------------------------------------------------

    @cached_property
    def base(self) -> Mapping[str, Any]:
        """The values of the checkpoint that the superstep began from.

        Raises:
            StorageError: It is gone.
        """
        entry = self.entry
        if entry.kind == CHECKPOINT or entry.checkpoint is not None:
            saved = self.views.saved(entry.checkpoint or "")
            if saved is None:
                raise StorageError(
                    f"the state at moment {entry.seq} cannot be shown: its checkpoint is gone"
                )
            values: Mapping[str, Any] = saved.checkpoint["channel_values"]
            return values
        if entry.kind == GAP or self.views.journal is None:
            raise StorageError(f"nothing is known of the state at moment {entry.seq}")
        return self.views.journal.state_at(entry.seq).values

    @cached_property
    def pending(self) -> list[tuple[Entry, str, Any]]:
        """Writes of the running superstep by now: end of the node, channel, value."""
        if self.entry.checkpoint is None or self.entry.kind == CHECKPOINT:
            return []
        ended = {e.task: e for e in self.views.timeline.superstep(self.at) if e.what == "node.exit"}
        found = [(ended[task], c, v) for task, c, v in self._writes_of(ended)]
        order = {task: at for at, task in enumerate(reversed(list(ended)))}
        return sorted(found, key=lambda one: order[one[0].task])

    def _writes_of(self, ended: Mapping[str | None, Entry]) -> Iterator[tuple[str, str, Any]]:
        saved = self.views.saved(self.entry.checkpoint or "") if ended else None
        for task, channel, value in () if saved is None else saved.pending_writes or ():
            if task in ended and not channel.startswith(HIDDEN):
                yield task, channel, value

    @cached_property
    def values(self) -> Mapping[str, Any]:
        """The state with the writes by now."""
        if not self.pending:
            return self.base
        writes = [(channel, value) for _, channel, value in self.pending]
        return overlaid(self.base, writes, self.views.json.reducers)

    @cached_property
    def state(self) -> Data:
        """`values` as JSON-like data."""
        return self.views.json.state(self.values, self.entry.level)

    @cached_property
    def before(self) -> Data:
        """The state before the latest write, as JSON-like data.

        If the superstep has writes, that is the state at its beginning, else the one before that.
        """
        if self.entry.what == "node.exit":
            own = self.entry.task
            others = [(c, v) for ended, c, v in self.pending if ended.task != own]
            json = self.views.json
            return json.state(overlaid(self.base, others, json.reducers), self.entry.level)
        if self.pending:
            return self.views.json.state(self.base, self.entry.level)
        for place in range(self.at - 1, -1, -1):
            entry = self.views.timeline.entries[place]
            if entry.checkpoint is not None and entry.checkpoint != self.entry.checkpoint:
                saved = self.views.saved(entry.checkpoint)
                values = {} if saved is None else saved.checkpoint["channel_values"]
                return self.views.json.state(values, self.entry.level)
        return self.views.json.state({}, self.entry.level)

    @cached_property
    def writes(self) -> list[Data]:
        """Writes of a node or a hook here: channel, operation, path."""
        return list(self._details.get("writes") or self._details.get("update") or ())

    # --- what the moment is about ----------------------------------------------------------------

    @cached_property
    def _details(self) -> Data:
        if self.views.journal is None or self.entry.kind in (GAP, CHECKPOINT):
            return {}
        return self.views.journal.details(self.entry)

    @property
    def details(self) -> Data:
        """All recorded details of the moment."""
        return self._details

    @cached_property
    def args_asked(self) -> Any:
        """The arguments of the call as the model made it."""
        call = None if self.views.journal is None else self.views.journal.call_at(self.entry)
        return None if call is None else self.views.json.plain(call["args"])

    @cached_property
    def args(self) -> Any:
        """The arguments of the call by now: hooks may have changed them."""
        for entry in self.views.timeline.of_task(self.at):
            changed = entry.fields.get("a") if entry.kind == "tool" else None
            changed = changed or (entry.fields.get("c") or {}).get("a")
            if changed is not None and self.views.journal is not None:
                return self.views.json.plain(self.views.journal.value(changed))
        return self.args_asked

    @cached_property
    def output(self) -> str | None:
        """The output of the call, or its error's text; None before its end."""
        details = self._details if self.entry.what == "tool.exit" else {}
        found = details.get("error", details.get("output"))
        return None if found is None else str(found)

    @cached_property
    def result(self) -> Data | None:
        """The call's result; None before its end."""
        if self.entry.what not in ("tool.exit", "tool.error"):
            return None
        took = self.entry.duration_us
        ms = None if took is None else round(took / 1000, 3)
        return {"output": self._details.get("output"), "error": self.error, "ms": ms}

    @cached_property
    def error(self) -> str | None:
        """The error of the moment, or of the call that ends here."""
        if self.entry.what == "tool.exit":
            found = self._details.get("error")
            return None if found is None else str(found)
        return self.entry.error

    @cached_property
    def reply(self) -> AIMessage | None:
        """The model's reply, at its moment."""
        found = self._details.get("reply") if self.entry.what == "model.response" else None
        return found if isinstance(found, AIMessage) else None

    @cached_property
    def usage(self) -> Data | None:
        """The tokens of the reply, at its moment."""
        if self.entry.what != "model.response":
            return None
        return dict(zip(USAGE, self.entry.fields.get("u") or (), strict=False))

    @cached_property
    def request(self) -> RecordedRequest | None:
        """The request, at its own moment."""
        if self.entry.kind != "model" or self.entry.phase not in REQUESTS:
            return None
        if self.views.journal is None:
            raise DebugError("the request is not known: this thread has no journal")
        return self.views.journal.request_at(self.entry.seq)

    @cached_property
    def route(self) -> Data | None:
        """The decision, at its moment: chosen, reason, candidates, calls."""
        return dict(self._details) if self.entry.kind == "route" else None


class LiveView(View):
    """A live moment in memory."""

    def __init__(self, views: ViewCache, at: int, moment: Moment) -> None:
        super().__init__(views, at)
        self.moment = moment

    @property
    def data(self) -> Mapping[str, Any]:
        """The moment's data: live objects, not to be changed."""
        return self.moment.data

    # --- the state -------------------------------------------------------------------------------

    @cached_property
    def base(self) -> Mapping[str, Any]:
        """The values at the start of the superstep; between two, those after the first."""
        own = self.entry.checkpoint
        saved = self.views.saved(own) if own else None
        if saved is not None:
            values: Mapping[str, Any] = saved.checkpoint["channel_values"]
            return values
        for place in range(self.at, -1, -1):
            entry = self.views.timeline.entries[place]
            if entry.checkpoint is not None and entry.checkpoint != own:
                return self.views.view(place).values
            held = self._live(entry)
            if entry.what == "node.enter" and held is not None and entry.node != "tools":
                given: Mapping[str, Any] = held.data["input"]
                return given
        return {}

    @cached_property
    def pending(self) -> list[tuple[Entry, str, Any]]:
        """Writes of the running superstep by now."""
        if self.entry.checkpoint is None:
            return []
        made: list[tuple[Entry, str, Any]] = []
        for entry in reversed(list(self.views.timeline.superstep(self.at))):
            held = self._live(entry) if entry.what == "node.exit" else None
            if held is not None:
                made += [(entry, channel, value) for channel, value in held.data["writes"]]
        return made

    @cached_property
    def writes(self) -> list[Data]:
        """Writes of a node or a hook here."""
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
    def _details(self) -> Data:
        make = _DETAILS.get(self.entry.what)
        return {} if make is None else make(self)

    @cached_property
    def args_asked(self) -> Any:
        """The arguments of the call as the model made it."""
        for entry in self.views.timeline.of_task(self.at):
            held = self._live(entry)
            if entry.what == "tool.enter" and held is not None:
                return self.views.json.plain(held.data["args"])
        return None

    @cached_property
    def args(self) -> Any:
        """The arguments of the call by now."""
        for entry in self.views.timeline.of_task(self.at):
            held = self._live(entry)
            if held is None:
                continue
            if entry.kind == "tool" and "args" in held.data:
                return self.views.json.plain(held.data["args"])
            if entry.what == "hook.enter" and isinstance(held.data["value"], ToolCall):
                return self.views.json.plain(held.data["value"].args)
        return None

    @cached_property
    def _result(self) -> ToolResult | None:
        found = self.data.get("result") if self.entry.kind == "tool" else None
        return found if isinstance(found, ToolResult) else None

    @cached_property
    def output(self) -> str | None:
        """The output of the call, or its error's text; None before its end."""
        found = self._result
        return None if found is None else found.error or found.to_message().text

    @cached_property
    def error(self) -> str | None:
        """The error of the moment, or of the call that ends here."""
        return self.entry.error if self._result is None else self._result.error

    @cached_property
    def result(self) -> Data | None:
        """The call's result; None before its end."""
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
        if "chosen" in self.data:
            return {"chosen": ", ".join(self.data["chosen"]), "reason": self.data["reason"]}
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
        return self.views.live.get(entry.seq)


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


_DETAILS: Final[Mapping[str, Callable[[LiveView], Any]]] = {
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
    "tool.call": lambda view: {
        "args": view.args,
        "changed": True,
        "replay": view.data.get("replay"),
    },
    "tool.replaced": lambda view: {"args": view.args, "changed": True},
    "tool.exit": _exit,
    "interrupt.raise": lambda view: {
        "value": [{"id": i.id, "value": i.value} for i in view.data["interrupts"]]
    },
    "interrupt.answer": lambda view: {"value": view.data["answer"]},
    "agent.spawn": lambda view: {"thread": view.data["thread"]},
    "agent.return": lambda view: {"thread": view.data["thread"]},
}


class Names(Mapping[str, Any]):
    """The names at one moment: its data, and the channels of its state."""

    def __init__(self, view: View) -> None:
        self._view = view

    def __getitem__(self, name: str) -> Any:
        found = _FACTS.get(name)
        try:
            if found is not None:
                return found(self._view)
            return self._view.state[name]
        except (StorageError, DebugError) as error:
            raise ExpressionError(f"{name} is not known here: {error}") from None

    def __contains__(self, name: object) -> bool:
        if name in _FACTS or name in self._view.views.json.channels:
            return True
        try:
            return name in self._view.state
        except (StorageError, DebugError):
            return False

    def __iter__(self) -> Iterator[str]:
        yield from _FACTS
        channels = self._view.views.json.channels  # state["a b"] has the others
        yield from (name for name in channels if name not in _FACTS and name.isidentifier())

    def __len__(self) -> int:
        return len(list(iter(self)))


def _request_fact(view: View) -> Any:
    found = view.request
    if found is None:
        return None
    return {
        "system": found.system_text,
        "messages": [view.views.json.message(message) for message in found.messages],
        "tools": [tool["function"]["name"] for tool in found.tools],
        "settings": view.views.json.plain(found.settings),
        "model": found.model,
        "purpose": found.purpose,
    }


def _response(view: View) -> Any:
    return None if view.reply is None else view.views.json.plain(to_wick(view.reply))


def _usage(view: View) -> Any:
    """Return the tokens of a reply at its moment, elsewhere those of the thread."""
    return view.state.get("usage") if view.usage is None else view.usage


def _phase(view: View) -> str:
    return view.entry.hook_phase or view.entry.phase


_FACTS: Final[Mapping[str, Callable[[View], Any]]] = {
    "node": lambda view: view.entry.node,
    "hook": lambda view: view.entry.name if view.entry.kind == "hook" else None,
    "phase": _phase,
    "kind": lambda view: view.entry.kind,
    "name": lambda view: view.entry.name,
    "tool": lambda view: view.entry.tool or None,
    "call_id": lambda view: view.entry.call_id,
    "args": lambda view: view.args,
    "result": lambda view: view.result,
    "output": lambda view: view.output,
    "request": _request_fact,
    "response": _response,
    "usage": _usage,
    "step": lambda view: view.entry.step,
    "visit": lambda view: view.entry.visit,
    "depth": lambda view: view.entry.depth,
    "branch": lambda view: view.entry.branch,
    "seq": lambda view: view.entry.seq,
    "error": lambda view: view.error,
    "prev": lambda view: view.before,
    "state": lambda view: view.state,
}

FACTS: Final = tuple(_FACTS)
"""The names that are not channels."""
