"""Encode moments by kind: fields, changes, writes and replies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, RemoveMessage, ToolMessage
from langgraph.errors import GraphBubbleUp, GraphInterrupt

from wick_graph.core.moments import Moment
from wick_graph.core.request import AGENT, ModelRequest, Section, position, thread_of
from wick_graph.hooks.onion import Hooks
from wick_graph.hooks.protocol import Verdict
from wick_graph.journal.page_format import CALL, PHASE_CODES, TOOL, Frame, Reply, Visit
from wick_graph.journal.request_key import Fingerprint, digest, packed, tools_digest, unpacked
from wick_graph.journal.tracebacks import message_of, traceback_of
from wick_graph.journal.value_store import Mask, ValueStore
from wick_graph.messages import ToolCall, ToolResult
from wick_graph.messages.base import TIMESTAMP_KEY

# --- Changes by a hook: from a request, a call or a result to the next one, as small data.
#
# A request's change holds only differences: `s` sections (a number is the old index of one), `k`
# removed sections, `g` the messages' segments, `t` the tools, `r` removed tools, `o` settings, `x`
# removed settings, `w` withheld, `p` purpose, `m` model.


def segments(request: ModelRequest, values: ValueStore) -> Any:
    """Encode the messages of a request; a number is the whole thread up to there."""
    parts = request.segments
    if len(parts) == 1 and isinstance(parts[0], tuple) and parts[0][0] == 0:
        return parts[0][1]
    return [list(part) if isinstance(part, tuple) else values.keep(part) for part in parts]


def model_name(request: ModelRequest) -> str | None:
    """Return the name of a hook's model; None for the agent's own."""
    return None if request.model is None else str(getattr(request.model, "name", request.model))


def request_change(before: ModelRequest, after: ModelRequest, values: ValueStore) -> dict[str, Any]:
    """Return the differences of `after`; empty if there are none."""
    change: dict[str, Any] = {}
    if after is before:
        return change
    if after.system != before.system:
        change |= _system(before.system, after.system, values)
    if after.segments != before.segments:
        change["g"] = segments(after, values)
    if after.tools != before.tools:
        change["t"] = list(after.tools)
        if gone := [name for name in before.tools if name not in after.tools]:
            change["r"] = gone
    if after.settings != before.settings:
        change |= _settings(before.settings, after.settings, values)
    if after.withheld != before.withheld:
        change["w"] = after.withheld
    if after.purpose != before.purpose:
        change["p"] = after.purpose
    if after.model is not before.model:
        change["m"] = model_name(after)
    return change


def _system(
    before: tuple[Section, ...], after: tuple[Section, ...], values: ValueStore
) -> dict[str, Any]:
    parts, gone = _sections(before, after)
    made = [part if isinstance(part, int) else _kept(part, values) for part in parts]
    lost = [[at, *_kept(before[at], values)] for at in gone]
    return {"s": made, **({"k": lost} if lost else {})}


def _settings(
    before: Mapping[str, Any], after: Mapping[str, Any], values: ValueStore
) -> dict[str, Any]:
    changed = {key: value for key, value in after.items() if before.get(key, before) != value}
    gone = [key for key in before if key not in after]
    return {"o": values.keep(changed), **({"x": gone} if gone else {})}


def _sections(
    before: tuple[Section, ...], after: tuple[Section, ...]
) -> tuple[list[int | Section], list[int]]:
    """Return each section or its old index, and the indexes of removed ones."""
    places: dict[Section, list[int]] = {}
    for at, section in enumerate(before):
        places.setdefault(section, []).append(at)
    made: list[int | Section] = []
    for section in after:
        held = places.get(section)
        made.append(held.pop(0) if held else section)
    return made, sorted(at for held in places.values() for at in held)


def _kept(section: Section, values: ValueStore) -> list[Any]:
    return [section.source, values.keep(section.text)]


def result_parts(result: ToolResult) -> dict[str, Any]:
    """Return the non-empty parts of a result."""
    parts = {
        "output": result.output,
        "error": result.error,
        "content": result.content,
        "update": None if result.update is None else dict(result.update),
        "artifact": result.artifact,
    }
    return {key: value for key, value in parts.items() if value is not None}


def is_same_result(one: ToolResult, other: ToolResult) -> bool:
    """Return whether two results are equal apart from their call."""
    return one is other or (
        one.output is other.output
        and one.error is other.error
        and one.content is other.content
        and one.update is other.update
        and one.artifact is other.artifact
    )


# --- Writes of a node or a hook to the state: channel, operation and path.
#
# A write is `[channel, op, path, value]`. For messages the path is the id; without an id, the
# fourth item is the answered call. A larger value is in the next checkpoint.


APPEND, REPLACE, REMOVE, SET = 0, 1, 2, 3
"""Operation of a write."""

_SCALARS: Final = (bool, int, float, type(None))

_SHORT: Final = 48

_WHOLE: Final = frozenset({"request", "usage"})
"""Channels with mappings as values that are still written as one."""


def writes_of(writes: Sequence[tuple[str, Any]], visit: Visit, mask: Mask) -> list[list[Any]]:
    """Encode writes."""
    made: list[list[Any]] = []
    for channel, value in writes:
        if channel == "messages" and ((listed := _listed(value)) or not value):
            made += [_message(m, visit) for m in listed]
        elif isinstance(value, dict) and channel not in _WHOLE:
            made += [[channel, SET, str(key)] for key in value]
        elif isinstance(value, _SCALARS):
            made.append([channel, SET, None, value])
        elif isinstance(value, str) and len(value) <= _SHORT:
            made.append([channel, SET, None, mask.text(value)])
        else:
            made.append([channel, SET])
    return made


def messages_in(writes: Sequence[tuple[str, Any]]) -> list[BaseMessage]:
    """Return the written messages."""
    return [m for channel, value in writes if channel == "messages" for m in _listed(value)]


def _message(message: BaseMessage, visit: Visit) -> list[Any]:
    if isinstance(message, RemoveMessage):
        return ["messages", REMOVE, message.id]
    state = visit.state if isinstance(visit.state, Mapping) else {}
    known = state.get("messages") or () if message.id is not None else ()
    op = REPLACE if known and position(known, message.id or "") is not None else APPEND
    if message.id is None and isinstance(message, ToolMessage):
        call = message.tool_call_id
        return ["messages", op] if call == visit.place[CALL] else ["messages", op, None, call]
    return ["messages", op, message.id]


def _listed(value: Any) -> list[BaseMessage]:
    """Normalise a write: it may be one message, or a form that a reducer turns into one."""
    items = value if isinstance(value, list | tuple) else [value]
    return [item for item in items if isinstance(item, BaseMessage)]


# --- Early copies of data that a hook may change before the moment is written.
#
# By the engine's rules requests, calls and messages are never changed. A hook that breaks them must
# not falsify the journal. So if there are hooks, the journal copies a reply's fields and calls, and
# the arguments as they reach the hooks and the tool.


COPIED: Final = frozenset({"tool", "model"})
"""The kinds of moments that `MutationGuard` may copy data of."""


@dataclass(frozen=True, slots=True)
class MutationGuard:
    """Copies replies and arguments early if hooks see them: only hooks can change them."""

    replies: bool = True
    args: bool = True

    @classmethod
    def of(cls, hooks: Hooks) -> MutationGuard:
        """Make the guard for an agent's hooks."""
        return cls(bool(hooks.wrap_model_call or hooks.after_model), bool(hooks.wrap_tool_call))

    def of_moment(self, moment: Moment) -> Any:
        """Copy the data of a moment that may change; None if there is none."""
        phase = moment.phase
        if moment.kind == "tool":
            if phase == "replaced" or (self.args and phase in ("enter", "call")):
                return packed(moment.data["args"])
        elif moment.kind == "model" and phase == "response":
            return Reply.of(moment.data["reply"], touched=self.replies)
        return None


# --- A model's reply as received, without the engine's additions.


_SHARED: Final = (
    *("content", "tool_calls", "invalid_tool_calls"),
    "usage_metadata",
)

_FIELDS: Final = (*_SHARED, "additional_kwargs", "response_metadata")

_shared_of: Final = itemgetter(*_SHARED)


def parts_of(reply: AIMessage | Reply) -> dict[str, Any]:
    """Return the model's fields, without the engine's mark."""
    held = reply.fields if isinstance(reply, Reply) else reply.__dict__
    parts = {name: held[name] for name in _FIELDS}
    parts["response_metadata"] = _without_mark(parts["response_metadata"])
    if isinstance(reply, Reply) and reply.calls is not None:
        parts["tool_calls"] = unpacked(reply.calls)
    return parts


def _without_mark(metadata: dict[str, Any]) -> dict[str, Any]:
    if "wick" not in metadata:
        return metadata
    return {key: value for key, value in metadata.items() if key != "wick"}


def is_kept(reply: Reply, kept: AIMessage) -> bool:
    """Return whether a message of the thread is the reply as received."""
    own, there = reply.fields, kept.__dict__
    if _shared_of(own) != _shared_of(there):
        return False
    if own["additional_kwargs"] != without_time(there["additional_kwargs"]):
        return False
    if reply.calls is not None and reply.calls != packed(kept.tool_calls):
        return False
    same: bool = own["response_metadata"] == _without_mark(there["response_metadata"])
    return same


def as_it_came(kept: AIMessage) -> AIMessage:
    """Return a reply of a thread without the engine's additions."""
    notes = without_time(kept.additional_kwargs)
    return reply_of({**parts_of(kept), "additional_kwargs": notes}, kept.id)


def without_time(notes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message's notes without its creation time."""
    return {key: value for key, value in notes.items() if key != TIMESTAMP_KEY}


def reply_of(parts: Mapping[str, Any], message_id: str | None = None) -> AIMessage:
    """Make a reply from its parts."""
    return AIMessage(**{name: parts[name] for name in _FIELDS if name in parts}, id=message_id)


# --- The recorded fields of each kind of moment, each under a letter.
#
# `c` change by the surrounding hook, `d` duration in microseconds, `e` error, `b` its traceback,
# `u` state update. The methods below name the letters of each kind. `wick_graph.journal.entry`
# reads them.


Fields = dict[str, Any]

Maker = Callable[[Any, Moment, Visit, Frame], Fields]
"""Called with its encoder, which has no method of its own for each run."""

REPLAY_CODES: Final[Mapping[str, int]] = {"safe": 0, "key": 1, "never": 2}
"""The number of each rule of repetition: the file format, as in
`wick_graph.journal.page_format`."""

REPLAY_OF: Final = {code: replay for replay, code in REPLAY_CODES.items()}

_ERROR: Final = 2_000
"""Characters of an error's text."""

_FINISH: Final = ("finish_reason", "stop_reason", "done_reason", "status")

USAGE: Final = (
    *("input_tokens", "output_tokens", "total_tokens"),
    *("cache_read", "cache_write", "reasoning"),
)

_USED: Final = attrgetter(*USAGE)


_LEADS: Final = (("g", "goto"), ("s", "sends"))
"""Where a node of another graph leads to."""


class FieldEncoder:
    """Encodes the fields of one run's moments."""

    __slots__ = (
        *("_asked_by", "_digests", "_head", "_head_ref", "_routes"),
        *("hooks", "keys", "names", "values"),
    )

    def __init__(
        self,
        values: ValueStore,
        secret: bytes,
        *,
        hooks: Sequence[str] = (),
        names: Mapping[str, str] | None = None,
    ) -> None:
        self.values = values
        self.hooks = {name: at for at, name in enumerate(hooks)}
        self.names = names or {}
        """The usual name of each kind's moments."""
        self.keys = Fingerprint(secret)
        self._head: tuple[Any, ...] = ()
        self._head_ref = b""
        self._digests = b"", b""
        self._routes: dict[Any, bytes] = {}
        self._asked_by = ""

    # --- run and node ----------------------------------------------------------------------------

    def _run_enter(self, moment: Moment, visit: Visit, frame: Frame) -> Fields:
        """`n` messages of the input, `v` the rest of it."""
        given = moment.data.get("input")
        if not isinstance(given, Mapping):
            return {}
        self.values.mask.see(given)
        messages = given.get("messages") or ()
        fields: Fields = {"n": len(messages) if isinstance(messages, list | tuple) else 1}
        rest = {key: value for key, value in given.items() if key != "messages"}
        return {**fields, "v": self.values.keep(rest)} if rest else fields

    def _run_exit(self, moment: Moment, visit: Visit, frame: Frame) -> Fields:
        """`w` why it stopped."""
        fields = {"w": moment.data.get("stopped_because") or "done"}
        return {**fields, **self._error(moment, visit, frame)}

    def _node_enter(self, moment: Moment, visit: Visit, frame: Frame) -> Fields:
        visit.state = moment.data.get("input")
        return {}

    def _node_exit(self, moment: Moment, visit: Visit, frame: Frame) -> Fields:
        """`w` writes; `y` the replies: how far back each is, and its content.

        Of other graphs `g` the nodes that it leads to, and `s` those that it sends to.
        """
        data, mask = moment.data, self.values.mask
        writes = data["writes"]
        mask.see(writes)
        fields: Fields = {"w": writes_of(writes, visit, mask)} if writes else {}
        if visit.replies:
            kept = next((m for m in messages_in(writes) if isinstance(m, AIMessage)), None)
            fields["y"] = self._settled(moment.seq, visit, kept)
        if len(data) > 1:
            fields |= {letter: data[name] for letter, name in _LEADS if data.get(name)}
        visit.state = None
        return fields

    def _update(self, moment: Moment, visit: Visit, frame: Frame) -> Fields:
        """`w` writes of an `update_state`, `n` the node that counts as their writer."""
        writes = moment.data["writes"]
        self.values.mask.see(writes)
        fields: Fields = {"w": writes_of(writes, visit, self.values.mask)}
        return {**fields, "n": moment.data["node"]} if moment.data["node"] else fields

    def _node_error(self, moment: Moment, visit: Visit, frame: Frame) -> Fields:
        """`y` the replies before the error."""
        fields = self._error(moment, visit, frame)
        if visit.replies:
            fields["y"] = self._settled(moment.seq, visit, None)
        return fields

    def _settled(self, seq: int, visit: Visit, kept: AIMessage | None) -> list[list[Any]]:
        settled: list[list[Any]] = []
        for at, reply in visit.replies or ():
            if kept is not None and is_kept(reply, kept):
                settled.append([seq - at])
            else:
                settled.append([seq - at, self.values.keep(parts_of(reply))])
        visit.replies = None
        return settled

    # --- hooks -----------------------------------------------------------------------------------

    def _hook_enter(self, moment: Moment, visit: Visit, frame: Frame) -> Fields:
        """`p` phase."""
        phase, value = moment.data["phase"], moment.data["value"]
        fields: Fields = {"p": PHASE_CODES[phase]}
        frame.value = value
        around = visit.frames[-1] if visit.frames else None
        if around is not None and around.kind == "hook.enter" and phase.startswith("wrap"):
            fields |= self._changed(around.value, frame.value)
        return fields

    def _changed(self, before: Any, after: Any) -> Fields:
        """`c` the surrounding hook's change of the request or the call on its way in."""
        if isinstance(before, ModelRequest) and isinstance(after, ModelRequest):
            change = request_change(before, after, self.values)
            return {"c": change} if change else {}
        if isinstance(before, ToolCall) and isinstance(after, ToolCall) and before is not after:
            change = {} if before.args == after.args else {"a": self.values.keep(after.args)}
            change |= {} if before.name == after.name else {"n": after.name}
            return {"c": change} if change else {}
        return {}

    def _hook_exit(self, moment: Moment, visit: Visit, frame: Frame) -> Fields:
        phase, value = moment.data["phase"], moment.data["value"]
        fields: Fields = {"p": PHASE_CODES[phase]}
        if phase == "modify_request" and isinstance(value, ModelRequest):
            fields |= self._changed(frame.value, value)
        elif phase.startswith("wrap") and value is not frame.inner:
            fields |= self._result_change(frame.inner, value)
        elif isinstance(value, Verdict):
            fields["v"] = self.values.keep(_verdict(value))
        update = moment.data.get("update")
        if not update and phase != "wrap_tool_call":
            update = value if isinstance(value, Mapping) else getattr(value, "update", None)
        if update and isinstance(update, Mapping):  # a `set` has a method of this name
            fields["u"] = writes_of(list(update.items()), visit, self.values.mask)
        frame.inner = value
        return fields

    def _result_change(self, before: Any, after: Any) -> Fields:
        """`c` the hook's change of the reply (`R`) or the result (`O`) on its way out."""
        if isinstance(after, ToolResult):
            if isinstance(before, ToolResult) and is_same_result(before, after):
                return {}
            return {"c": {"O": self.values.keep(result_parts(after))}}
        return {"c": {"R": self.values.keep(after)}}

    def _hook_error(self, moment: Moment, visit: Visit, frame: Frame) -> Fields:
        phase = PHASE_CODES[moment.data["phase"]]
        fields = self._said(moment.data["value"])
        return {"p": phase, **fields}

    # --- model -----------------------------------------------------------------------------------

    def _request(self, moment: Moment, visit: Visit, frame: Frame) -> Fields:
        """`k` key, `h` all but the messages, `g` segments, `n` messages of the thread."""
        data, request = moment.data, moment.data["request"]
        self._asked_by = "" if moment.place is None else moment.place.task
        head = self._head_of(request, data["tools"], data["brought"])
        key = self.keys.key(data["messages"], *self._digests)
        made = segments(request, self.values)
        fields: Fields = {"k": key, "h": head, "n": len(thread_of(request))}
        if made != fields["n"]:
            fields["g"] = made
        around = visit.frames[-1] if visit.frames else None
        if around is not None and around.kind == "hook.enter":
            fields |= self._changed(around.value, request)
        frame.value = request
        visit.chunks = None
        return fields

    def _head_of(self, request: ModelRequest, tools: Sequence[Any], by: Mapping[str, str]) -> bytes:
        fixed = (request.purpose, request.withheld, model_name(request))
        now = (request.system, [*map(id, tools)], request.settings, fixed, by)
        if now == self._head:
            return self._head_ref
        schemas = [] if request.withheld else [tool.schema for tool in tools]
        self._digests = tools_digest(schemas), digest(dict(request.settings))
        head = {
            "system": [[s.source, self.values.keep(s.text)] for s in request.system],
            "tools": [[self.values.keep_schema(tool), by.get(tool.name)] for tool in tools],
            "settings": self.values.keep(dict(request.settings)),
            "purpose": fixed[0],
            "withheld": fixed[1],
            "model": fixed[2],
        }
        self._head, self._head_ref = now, self.values.keep_as_is(head)
        return self._head_ref

    def _response(self, moment: Moment, visit: Visit, frame: Frame) -> Fields:
        """`u` tokens, `f` finish reason, `g` given by a listener, `t` first piece and count."""
        reply = moment.data["reply"]
        if visit.replies is None:
            visit.replies = []
        visit.replies.append((moment.seq, visit.taken))
        fields: Fields = {"u": list(_USED(moment.data["usage"]))}
        metadata = reply.response_metadata
        finish = next((metadata[key] for key in _FINISH if metadata.get(key)), None)
        if finish is not None:
            fields["f"] = str(finish)[:_SHORT]
        if moment.data.get("given"):
            fields["g"] = True
        if moment.data.get("purpose", AGENT) != AGENT:
            fields["p"] = moment.data["purpose"]
        if visit.chunks:
            count = sum(counter[0] for _, counter in visit.chunks)
            fields["t"] = [visit.chunks[0][0] - frame.at, count]
        frame.inner = reply
        return fields

    def _chunk(self, moment: Moment, visit: Visit, frame: Frame) -> Fields:
        """`v` the piece of text."""
        return {"v": self.values.keep(moment.data["chunk"].text)}

    def _retry(self, moment: Moment, visit: Visit, frame: Frame) -> Fields:
        """`s` seconds until the next attempt."""
        return {**self._said(moment.data["error"]), "s": round(moment.data["delay"], 3)}

    def _route(self, moment: Moment, visit: Visit, frame: Frame) -> Fields:
        """`v` reason and rules, `l` whether it ends, `n` calls; `q` the nodes of other graphs."""
        data = moment.data
        if "chosen" in data:
            told = self.values.keep([data["reason"], data["rules"]])
            return {"v": told, "q": data["chosen"], "n": data["count"]}
        target = moment.data["target"]
        stopped = moment.data["state"].get("stop_reason")
        ends = isinstance(target, str)
        seen = stopped if ends else len(target)
        kept = self._routes.get(seen) if seen else None
        if kept is None:
            reason, rules = moment.data["explain"]()
            kept = self._routes[seen] = self.values.keep([reason, [*map(list, rules)]])
        return {"v": kept, "l": ends, "n": 0 if ends else len(target)}

    # --- tools -----------------------------------------------------------------------------------

    def _tool_enter(self, moment: Moment, visit: Visit, frame: Frame) -> Fields:
        """`a` the arguments in other graphs."""
        if moment.data.get("own"):  # one of several calls of a visit
            args = unpacked(visit.taken)
            call = ToolCall(moment.call_id or "", moment.name, args)
            around = (f for f in reversed(visit.frames) if f.call == moment.call_id)
            before = next((f.value for f in around if f.kind == "hook.enter"), None)
            return {"a": self.values.keep(args), **self._changed(before, call)}
        visit.place[CALL], visit.place[TOOL] = moment.call_id, moment.name
        frame.value = visit.taken
        return {}

    def _tool_call(self, moment: Moment, visit: Visit, frame: Frame) -> Fields:
        """`a` arguments if hooks changed them, `k` the ledger key, `r` the replay policy."""
        fields: Fields = {}
        asked = next((f.value for f in visit.frames if f.kind == "tool.enter"), None)
        if asked != visit.taken:
            fields["a"] = self._args(visit.taken)
        fields["k"] = self._key(moment.data["key"])
        if (code := REPLAY_CODES.get(moment.data.get("replay") or "")) is not None:
            fields["r"] = code
        return fields

    def _args(self, taken: bytes) -> bytes:
        return self.values.keep(unpacked(taken))

    def _key(self, key: str) -> int | str:
        """Encode the ledger key: only the call's index if its task is that of the model step."""
        task, _, index = key.rpartition(":")
        return int(index) if task == self._asked_by else key

    def _tool_return(self, moment: Moment, visit: Visit, frame: Frame) -> Fields:
        """`g` given by a listener."""
        frame.inner = visit.own = moment.data["result"]
        return {"g": True} if moment.data.get("given") else {}

    def _tool_exit(self, moment: Moment, visit: Visit, frame: Frame) -> Fields:
        """`z` failed, `q` written channels, `o` the tool's own result if it differs.

        `x` is the output that no message holds, in other graphs.
        """
        result: ToolResult = moment.data["result"]
        fields: Fields = {"z": True} if result.error else {}
        if "own" in moment.data:
            fields["x"] = self.values.keep(moment.data["own"])
        frame.inner = result
        if result.update:
            fields["q"] = list(result.update)
        own, visit.own = visit.own, None
        if own is not None and not is_same_result(own, result):
            fields["o"] = self.values.keep(result_parts(own))
        return fields

    # --- the rest --------------------------------------------------------------------------------

    def _interrupt(self, moment: Moment, visit: Visit, frame: Frame) -> Fields:
        """`v` the question."""
        asked = [{"id": i.id, "value": i.value} for i in moment.data["interrupts"]]
        self.values.mask.see(asked)
        return {"v": self.values.keep(asked)}

    def _answer(self, moment: Moment, visit: Visit, frame: Frame) -> Fields:
        """`v` the answer."""
        self.values.mask.see(moment.data["answer"])
        return {"v": self.values.keep(moment.data["answer"])}

    def _child(self, moment: Moment, visit: Visit, frame: Frame) -> Fields:
        """`t` the thread of a sub-agent, `w` why its run stopped."""
        data, said = moment.data, self._error(moment, visit, frame)
        ended = {"w": data["stopped_because"]} if "stopped_because" in data else {}
        return {"t": data["thread"], **ended, **said}

    def _error(self, moment: Moment, visit: Visit, frame: Frame) -> Fields:
        return self._said(moment.data.get("error"))

    def _said(self, error: Any) -> Fields:
        """`e` class and text of an error, `b` its traceback."""
        if error is None:
            return {}
        if isinstance(error, GraphInterrupt):  # its text is data, where no field can be hidden
            return {"e": [type(error).__name__, ""]}
        text = self.values.mask.text(message_of(error))[:_ERROR]
        fields = {"e": [type(error).__name__, text.encode("utf-8", "replace").decode()]}
        traced = None if isinstance(error, GraphBubbleUp) else traceback_of(error)
        return fields if traced is None else {**fields, "b": self.values.keep(traced)}


MAKERS: Final[Mapping[tuple[str, str], Maker]] = {
    ("run", "enter"): FieldEncoder._run_enter,
    ("run", "exit"): FieldEncoder._run_exit,
    ("run", "error"): FieldEncoder._run_exit,
    ("node", "enter"): FieldEncoder._node_enter,
    ("node", "exit"): FieldEncoder._node_exit,
    ("node", "error"): FieldEncoder._node_error,
    ("node", "retry"): FieldEncoder._retry,
    ("state", "update"): FieldEncoder._update,
    ("hook", "enter"): FieldEncoder._hook_enter,
    ("hook", "exit"): FieldEncoder._hook_exit,
    ("hook", "error"): FieldEncoder._hook_error,
    ("model", "request"): FieldEncoder._request,
    ("model", "replaced"): FieldEncoder._request,
    ("model", "response"): FieldEncoder._response,
    ("model", "error"): FieldEncoder._error,
    ("model", "retry"): FieldEncoder._retry,
    ("model", "fallback"): FieldEncoder._retry,
    ("model", "chunk"): FieldEncoder._chunk,
    ("route", "taken"): FieldEncoder._route,
    ("tool", "enter"): FieldEncoder._tool_enter,
    ("tool", "call"): FieldEncoder._tool_call,
    ("tool", "replaced"): FieldEncoder._tool_call,
    ("tool", "return"): FieldEncoder._tool_return,
    ("tool", "exit"): FieldEncoder._tool_exit,
    ("tool", "error"): FieldEncoder._error,
    ("interrupt", "raise"): FieldEncoder._interrupt,
    ("interrupt", "answer"): FieldEncoder._answer,
    ("agent", "spawn"): FieldEncoder._child,
    ("agent", "return"): FieldEncoder._child,
}
"""The method that encodes the fields of moments of a kind and phase."""


def _verdict(verdict: Verdict) -> dict[str, Any]:
    answers = {
        call: answer if isinstance(answer, str) else result_parts(answer)
        for call, answer in verdict.answers.items()
    }
    return {"answers": answers, "end": verdict.end, "because": verdict.because}
