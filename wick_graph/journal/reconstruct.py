"""Reconstruct the state and the request of a moment, and all recorded answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import Any, Final

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
    convert_to_messages,
)
from langgraph.graph.message import REMOVE_ALL_MESSAGES

from wick_graph.core.request import Section, position
from wick_graph.errors import StorageError
from wick_graph.journal.encode import as_it_came, reply_of
from wick_graph.journal.entry import Entry
from wick_graph.journal.reader import JournalReader
from wick_graph.journal.request_key import Fingerprint, digest, tools_digest
from wick_graph.journal.value_store import DOTS
from wick_graph.langgraph_config import HIDDEN
from wick_graph.messages import ToolResult
from wick_graph.messages.calls import ERROR_PREFIX
from wick_graph.messages.lowering import Lowering, Portable
from wick_graph.store.row_format import pack_id

# --- Rebuild the state of the thread at a moment, and the exact request of a model call.


REQUESTS = ("request", "replaced")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRequest:
    """The request of one model call."""

    seq: int
    """The moment of the request."""
    messages: list[BaseMessage] = field(repr=False)
    """The exact messages for the model, the system prompt first, if any."""
    system: tuple[Section, ...]
    """The system prompt's sections with their sources."""
    tools: tuple[Mapping[str, Any], ...] = field(repr=False)
    """In OpenAI's form; empty if they were withheld."""
    settings: Mapping[str, Any]
    purpose: str
    model: str
    key: bytes
    exact: bool
    """Whether the key proves that this is the sent request."""
    note: str
    """Why it may differ; empty if it is exact."""

    @property
    def system_text(self) -> str:
        """The system prompt as the model read it."""
        return "\n\n".join(section.text for section in self.system if section.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingWrite:
    """A node's write, which joins the state only at the end of its superstep."""

    seq: int
    """The moment of the write."""
    node: str
    task: str
    channel: str
    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedState:
    """A thread's state at a moment."""

    checkpoint: str | None
    """The checkpoint of these values; None before the first one."""
    values: Mapping[str, Any]
    pending: tuple[PendingWrite, ...] = ()
    """Writes of the running superstep by then, not included in `values`."""


class Reconstruction:
    """States, requests, replies and calls, rebuilt from moments and checkpoints.

    `Details`, `BlameReader` and `Recorded` read through it.
    """

    def __init__(self, reader: JournalReader, keep: int = 0) -> None:
        """Read from `reader`, and cache the last `keep` checkpoints."""
        self.reader = reader
        self.value = reader.value
        self.saved = lru_cache(keep)(self._saved) if keep else self._saved
        self._keys: Fingerprint | None = None
        self._sent: dict[str, tuple[Lowering, Portable]] = {}

    def state_at(self, seq: int) -> RecordedState:
        """Return the state at a moment: the nearest checkpoint, and the writes since."""
        entry = self.reader.moment(seq)
        checkpoint = entry.checkpoint or self._beside(entry)
        if checkpoint is None:
            return RecordedState(checkpoint=None, values={})
        saved = self.saved(checkpoint)
        if saved is None:
            raise StorageError(
                f"the state at moment {seq} cannot be shown: its checkpoint {checkpoint} is gone"
            )
        values = saved.checkpoint["channel_values"]
        pending = tuple(self._pending(entry, saved)) if entry.checkpoint is not None else ()
        return RecordedState(checkpoint=checkpoint, values=values, pending=pending)

    def request_at(self, seq: int) -> RecordedRequest:
        """Return the request of a moment: its own, or the latest one before it in its run."""
        entry = self.request_of(seq)
        head = self.value(entry.fields["h"])
        sections = tuple(Section(self.value(ref), source) for source, ref in head["system"])
        settings = self.value(head["settings"])
        offered = [] if head["withheld"] else head["tools"]
        tools = tuple(self.value(ref) for ref, _ in offered)
        text = "\n\n".join(section.text for section in sections if section.text)
        agent = self.reader.run_of(entry).agent
        messages, exact = self._messages(entry, text, agent, (tools, settings))
        return RecordedRequest(
            seq=entry.seq,
            messages=messages,
            system=sections,
            tools=tools,
            settings=settings,
            purpose=head["purpose"],
            model=head["model"] or entry.name,
            key=entry.fields["k"],
            exact=exact,
            note="" if exact else _why(messages, settings),
        )

    def reply_at(self, seq: int) -> AIMessage | None:
        """Return a model's reply as received, by the moment of its response; None if unknown."""
        entry = self.reader.moment(seq)
        end = self._end_of_visit(entry)
        if end is None:
            return None
        for back, *own in end.fields.get("y") or ():
            if end.seq - back == seq:
                return reply_of(self.value(own[0])) if own else self.kept_reply(end)
        return None

    def call_at(self, entry: Entry) -> Mapping[str, Any] | None:
        """Return the call of a tool's moment as the model made it: id, name, args."""
        if entry.call_id is None or entry.checkpoint is None:
            return None
        saved = self.saved(entry.checkpoint)
        messages = [] if saved is None else saved.checkpoint["channel_values"].get("messages") or []
        for message in reversed(messages):
            for call in message.tool_calls if isinstance(message, AIMessage) else ():
                if call["id"] == entry.call_id:
                    return {"id": call["id"], "name": call["name"], "args": call["args"]}
        return None

    def answer_at(self, entry: Entry) -> ToolMessage | None:
        """Return the message that answers the call of a tool's moment, as written."""
        for channel, value in self.written(entry):
            for message in value if channel == "messages" and isinstance(value, list) else ():
                if isinstance(message, ToolMessage) and message.tool_call_id == entry.call_id:
                    return message
        return None

    def request_of(self, seq: int) -> Entry:
        """Return the moment of a moment's request."""
        entry = self.reader.moment(seq)
        for found in chain([entry], self.before(entry)):
            if found.kind == "model" and found.phase in REQUESTS:
                return found
        raise StorageError(f"no model was asked by moment {seq} of its run; choose a later one")

    def before(self, entry: Entry) -> Iterator[Entry]:
        """Yield earlier moments of the same run, the nearest first."""
        first = self.reader.run_of(entry).first
        for found in self.reader.backwards(entry.seq):
            if found.seq < first:
                return
            if found.run in (0, entry.run):  # another run may go on beside it
                yield found

    def _messages(
        self, entry: Entry, system: str, agent: str, rest: tuple[Any, Any]
    ) -> tuple[list[BaseMessage], bool]:
        secret, foreign = self.reader.secret(), bool(self.reader.run_of(entry).shape)
        made: list[BaseMessage] | None = None
        for base in self.bases(entry):
            shown = self._shown(entry, base)
            whole = _plain_messages(system, shown)
            whole = whole if foreign else self._lowered(whole, agent)
            if self._key(secret, whole, *rest) == entry.fields["k"]:
                return whole, True
            made = made or whole
        if made is None:
            raise StorageError(
                f"the request at moment {entry.seq} cannot be rebuilt: its checkpoint "
                f"{entry.checkpoint} and all later ones are gone"
            )
        return made, False

    def _lowered(self, messages: list[BaseMessage], agent: str) -> list[BaseMessage]:
        """Return messages as the agent's model gets them; while sharing, only new ones are read."""
        lowering, portable = self._sent.get(agent) or (Lowering(agent), Portable())
        if self.reader.rows.is_sharing:
            self._sent[agent] = lowering, portable
        else:
            self._sent.clear()
        return portable.apply(lowering.lower(messages))

    def _key(self, secret: bytes, messages: Sequence[BaseMessage], tools: Any, given: Any) -> bytes:
        """Return the key of a request; what an earlier one began with is not read again."""
        keys = self._keys or Fingerprint(secret)
        self._keys = keys if self.reader.rows.is_sharing else None
        return keys.key(messages, tools_digest(tools), digest(dict(given or {})))

    def bases(self, entry: Entry) -> Iterator[list[BaseMessage]]:
        """Yield candidates of the request's thread messages; later ones have the same beginning."""
        count: int = entry.fields["n"]
        if not count:
            yield []
        names = [entry.checkpoint] if entry.checkpoint else []
        with self.reader.reading() as db:
            head = self.reader.rows.head_id(db, self.reader.rows.thread(db))
        for name in [*names, head]:
            saved = None if name is None else self.saved(name)
            messages = [] if saved is None else saved.checkpoint["channel_values"].get("messages")
            if messages and len(messages) >= count:
                yield list(messages[:count])

    def _shown(self, entry: Entry, base: list[BaseMessage]) -> list[BaseMessage]:
        segments = entry.fields.get("g", len(base))
        if isinstance(segments, int):
            return base[:segments]
        shown: list[BaseMessage] = []
        for part in segments:
            if isinstance(part, bytes):
                shown.append(self.value(part))
            else:
                shown += base[part[0] : part[1]]
        return shown

    def _pending(self, entry: Entry, saved: Any) -> Iterator[PendingWrite]:
        ended = {
            found.task: found
            for found in self._superstep(entry)
            if found.kind == "node" and found.phase == "exit" and found.seq <= entry.seq
        }
        for task, channel, value in saved.pending_writes or ():
            at = ended.get(task)
            if at is not None and not channel.startswith(HIDDEN):
                yield PendingWrite(
                    seq=at.seq, node=at.node or "", task=task, channel=channel, value=value
                )

    def _superstep(self, entry: Entry) -> Iterator[Entry]:
        """Yield the moments up to one with the same checkpoint, of any run."""
        yield entry
        for found in self.reader.backwards(entry.seq):
            if found.checkpoint in (None, entry.checkpoint):
                yield found
            elif found.level == entry.level:  # another one is of a subgraph, or around this one
                return

    def _end_of_visit(self, entry: Entry) -> Entry | None:
        for found in self.reader.moments(entry.run, after=entry.seq):
            if found.task == entry.task and found.kind == "node" and found.is_end:
                return found
        return None

    def kept_reply(self, end: Entry) -> AIMessage | None:
        """Return the reply that a node's visit wrote, as received."""
        for channel, value in self.written(end):
            for message in value if channel == "messages" and isinstance(value, list) else ():
                if isinstance(message, AIMessage):
                    return as_it_came(message)
        return None

    def written(self, entry: Entry) -> Iterator[tuple[str, Any]]:
        """Yield the writes of a moment's task.

        Raises:
            StorageError: They are gone.
        """
        saved = None if entry.checkpoint is None else self.saved(entry.checkpoint)
        if saved is None:
            raise StorageError(
                f"what was written at moment {entry.seq} cannot be shown: its checkpoint is gone"
            )
        for task, channel, value in saved.pending_writes or ():
            if task == entry.task:
                yield channel, value

    def _beside(self, entry: Entry) -> str | None:
        """Return the checkpoint at a moment outside of all nodes."""
        run = self.reader.run_of(entry)
        if entry.what == "run.enter" or entry.kind == "interrupt":
            return run.base
        if run.shape and run.end is not None:
            return run.end
        with self.reader.reading() as db:
            return self.reader.rows.last_id_of_run(
                db, self.reader.rows.thread(db), pack_id(run.run_id)
            )

    def _saved(self, checkpoint: str) -> Any:
        """Return a checkpoint with its writes; None if it is gone."""
        deltas = self._deltas()
        with self.reader.reading() as db:
            saved = self.reader.rows.checkpoint(db, checkpoint)
            if saved is None:
                return None
            held, known = saved.checkpoint["channel_values"], saved.checkpoint["channel_versions"]
            sums = {n: add for n, add in deltas.items() if n in known and n not in held}
            if not sums:
                return saved
            past = self.reader.rows.deltas(db, checkpoint, [*sums])
        values = {**held, **{name: add(past[name]) for name, add in sums.items()}}
        return saved._replace(checkpoint={**saved.checkpoint, "channel_values": values})

    def _deltas(self) -> Mapping[str, Any]:
        """Return what sums up each delta channel: its checkpoints store only what is new."""
        shapes = [run.shape for run in self.reader.known_runs() if run.shape]
        kinds = shapes[-1]["channels"] if shapes else {}
        return {name: _SUMS[kind] for name, kind in kinds.items() if kind in _SUMS}


def _seed(past: Any) -> Any:
    """Return what the writes start from; LangGraph's snapshot is a value in a tuple."""
    held = past.get("seed")
    return held[0] if isinstance(held, tuple) else held


def _sum_of_messages(past: Any) -> list[BaseMessage]:
    """Sum up writes of messages as the channel does: without giving ids to those that have none."""
    made: list[BaseMessage] = list(_seed(past) or [])
    for _, _, value in past["writes"]:
        for message in convert_to_messages(value if isinstance(value, list) else [value]):
            at = position(made, message.id) if message.id else None
            if isinstance(message, RemoveMessage):
                kept = [] if message.id == REMOVE_ALL_MESSAGES else made
                made = [one for one in kept if one.id != message.id]
            elif at is None:
                made.append(message)
            else:
                made[at] = message
    return made


def _sum_of_files(past: Any) -> dict[str, Any]:
    made = dict(_seed(past) or {})
    for _, _, value in past["writes"]:
        made |= value or {}
    return {name: one for name, one in made.items() if one is not None}


_SUMS: Final[Mapping[str, Any]] = {
    "delta:_messages_delta_reducer": _sum_of_messages,
    "delta:_file_data_reducer": _sum_of_files,
}
"""How to sum up the delta channels of LangGraph and deepagents; nothing named is imported."""


def _plain_messages(system: str, shown: list[BaseMessage]) -> list[BaseMessage]:
    """Return what a graph that is no agent's sent: nothing is lowered for its provider."""
    return [SystemMessage(system), *shown] if system else shown


def _why(messages: list[BaseMessage], settings: Mapping[str, Any]) -> str:
    if DOTS in repr(messages) or DOTS in repr(settings):
        return "secrets are hidden"
    return "the thread's messages, or this version of wick_graph, are not what they were"


# --- The answers of a run's models and tools, in one pass over its moments.


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedReply:
    """One answer of a model."""

    request: Entry
    response: Entry
    reply: AIMessage

    @property
    def key(self) -> bytes:
        """The key of its request."""
        key: bytes = self.request.fields["k"]
        return key


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCall:
    """One call of a tool as the tool got it, and its result."""

    call: Entry
    end: Entry
    name: str
    args: Any
    result: ToolResult

    @property
    def key(self) -> bytes:
        """The lookup key of the call: its id, its tool, and its arguments."""
        return call_key(self.call.call_id or "", self.name, self.args)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedQuestions:
    """What one visit of a call of a tool asked; the visit ended there."""

    key: bytes
    """The lookup key of the call."""
    at: Entry
    values: list[Any]


def call_key(call_id: str, name: str, args: Any) -> bytes:
    """Return the lookup key of a call in a run."""
    return digest([call_id, name, args])


class Recorded:
    """The answers in a series of moments."""

    def __init__(self, rebuilt: Reconstruction) -> None:
        self._rebuilt = rebuilt
        self._value = rebuilt.value

    def replies(self, moments: Iterable[Entry]) -> Iterator[RecordedReply]:
        """Yield the answers of models, without those that were never kept."""
        requests: dict[int, Entry] = {}
        responses: dict[int, Entry] = {}
        for entry in moments:
            if entry.kind == "model" and entry.phase in REQUESTS:
                requests[entry.seq] = entry
                if entry.phase == "replaced" and entry.parent is not None:
                    requests[entry.parent] = entry  # the request that was sent in the end
            elif entry.what == "model.response":
                responses[entry.seq] = entry
            elif entry.kind == "node" and entry.fields.get("y"):
                for back, *own in entry.fields["y"]:
                    response = responses.pop(entry.seq - back, None)
                    request = None if response is None else requests.get(response.parent or 0)
                    reply = (
                        reply_of(self._value(own[0])) if own else self._rebuilt.kept_reply(entry)
                    )
                    if response is not None and request is not None and reply is not None:
                        yield RecordedReply(request=request, response=response, reply=reply)

    def results(self, moments: Iterable[Entry]) -> Iterator[RecordedCall]:
        """Yield the results of tools, without those of unfinished calls."""
        calls: dict[str, dict[str | None, Entry]] = {}
        ends: dict[str, dict[str | None, Entry]] = {}
        for entry in moments:
            if entry.task is None:
                continue
            if entry.is_call or entry.what == "tool.replaced":
                calls.setdefault(entry.task, {})[entry.call_id] = entry
            elif entry.what == "tool.exit":
                ends.setdefault(entry.task, {})[entry.call_id] = entry
            elif entry.what == "node.exit" and entry.task in ends:
                began = calls.pop(entry.task, {})
                for call_id, end in ends.pop(entry.task).items():
                    if call_id in began:
                        yield from self._recorded(began[call_id], end)

    def questions(self, moments: Iterable[Entry]) -> Iterator[RecordedQuestions]:
        """Yield what calls of tools asked instead of ending; of parallel ones in a task nothing."""
        running: dict[str, dict[str | None, Entry]] = {}
        for entry in moments:
            if entry.task is None:
                continue
            calls = running.setdefault(entry.task, {})
            if entry.what == "node.enter":
                calls.clear()
            elif entry.is_call or entry.what == "tool.replaced":
                calls[entry.call_id] = entry
            elif entry.what == "tool.exit":
                calls.pop(entry.call_id, None)
            elif entry.what == "interrupt.raise" and len(calls) == 1:
                call = next(iter(calls.values()))
                key = call_key(call.call_id or "", call.name, self._args(call))
                asked = self._value(entry.fields["v"])
                yield RecordedQuestions(key=key, at=entry, values=[one["value"] for one in asked])

    def _args(self, call: Entry) -> Any:
        if "a" in call.fields:
            return self._value(call.fields["a"])
        return (self._rebuilt.call_at(call) or {}).get("args")

    def _recorded(self, call: Entry, end: Entry) -> Iterator[RecordedCall]:
        args = self._args(call)
        try:
            result = self._result(call, end)
        except StorageError:
            if call.what == "tool.call":
                raise
            return  # its node in another graph kept no message
        yield RecordedCall(call=call, end=end, name=call.name, args=args, result=result)

    def _result(self, call: Entry, end: Entry) -> ToolResult:
        call_id = call.call_id or ""
        if "o" in end.fields:
            return ToolResult(call_id, call.name, **{"output": "", **self._value(end.fields["o"])})
        if "x" in end.fields:
            return ToolResult(call_id, call.name, str(self._value(end.fields["x"])))
        message = self._rebuilt.answer_at(end)
        if message is None:
            raise StorageError(
                f"the result of call {call_id} at moment {end.seq} is gone; its checkpoint was "
                "deleted"
            )
        failed = message.status == "error"
        text = message.text
        return ToolResult(
            call_id,
            call.name,
            "" if failed else text,
            error=text.removeprefix(ERROR_PREFIX) if failed else None,
            content=message.content if not failed and isinstance(message.content, list) else None,
            update=self._update(end),
            artifact=message.artifact,
        )

    def _update(self, end: Entry) -> dict[str, Any] | None:
        wrote = end.fields.get("q")
        if not wrote:
            return None
        return {channel: value for channel, value in self._rebuilt.written(end) if channel in wrote}
