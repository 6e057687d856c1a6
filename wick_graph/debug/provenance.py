"""Provenance: trace a value back to its tool, reply, hook or input."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, ChatMessage, ToolMessage

from wick_graph.debug.breakpoints import is_write
from wick_graph.debug.timeline import BranchReader
from wick_graph.debug.values import Path, at_path, read_path, value_at
from wick_graph.debug.view import View, ViewCache
from wick_graph.errors import DebugError, StorageError, ThreadNotFoundError
from wick_graph.journal.entry import Entry
from wick_graph.journal.journal import Journal
from wick_graph.journal.links import caller_of

_WRITERS: Final = ("node.exit", "state.update")


@dataclass(frozen=True, slots=True)
class Cause:
    """One link of the chain behind a value."""

    position: str
    seq: int
    text: str
    by: str
    """`tool:NAME`, `model`, `hook:NAME`, `agent:NAME`, `input`, or a node."""
    thread_id: str = ""
    """The thread of `position` and `seq`, if it is that of a sub-agent or of a caller."""


class Provenance:
    """Traces values of one recording back to their sources."""

    def __init__(self, views: ViewCache) -> None:
        self._views = views
        self._timeline = views.timeline
        self._foreign = views.shape is not None
        """Whether the recorded graph is no agent's, so that any node may do anything."""

    def why(self, view: View, path: str) -> list[Cause]:
        """List the causes of a value in the state at a moment, the nearest first.

        Raises:
            DebugError: There is nothing at the path, or it was written before the recording.
            StorageError: A checkpoint is gone.
        """
        parts = read_path(path)
        value_at(view.state, parts, path)
        message = _message_at(view, parts)
        parts = self._from_start(view, parts, message)
        wrote = self._writer(view, parts, message)
        if wrote is None:
            return [self._from_input(view, parts, message, path), *self._from_above()]
        return list(self._chain(wrote, parts, message, path))

    def history(self, path: str) -> list[tuple[Entry, Any]]:
        """List each write to a path with the value after it; None if that is gone.

        Raises:
            DebugError: It is not a path.
        """
        parts = read_path(path)
        return [(view.entry, _value(view, parts)) for view in self._views if is_write(view, parts)]

    def _from_start(self, view: View, path: Path, message: BaseMessage | None) -> Path:
        """Count the index of an item from the start of its list, as subgraphs write it."""
        held = view.values.get(str(path[0])) if self._foreign and message is None else None
        at = path[1] if len(path) > 1 else None
        if not isinstance(held, list) or not isinstance(at, int) or at >= 0:
            return path
        return (path[0], at + len(held), *path[2:])

    # --- the writer ------------------------------------------------------------------------------

    def _writer(self, view: View, path: Path, message: BaseMessage | None) -> View | None:
        """Return the end of the node that last wrote a value, or an `update_state`."""
        grown = self._foreign and message is None and len(path) > 1 and isinstance(path[1], int)
        if grown and (found := self._of_item(view, str(path[0]), int(path[1]))) is not None:
            return found
        level = view.entry.level
        for place in range(view.at, -1, -1):
            entry = self._timeline.entries[place]
            if entry.what not in _WRITERS or (self._foreign and entry.level != level):
                continue
            end = self._views.view(place)
            if any(_is_about(write, path, message) for write in end.writes):
                if self._foreign and message is not None and _had(end, path, message):
                    continue  # it gave back what it was given
                return end
        plain = self._foreign and message is not None
        return self._of_message(view, str(path[0]), message) if plain else None

    def _of_message(self, view: View, channel: str, message: BaseMessage | None) -> View | None:
        """Return the end of the node that wrote a message in another form than as a message."""
        wanted = None if message is None else message.id
        for place in range(view.at, -1, -1):
            entry = self._timeline.entries[place]
            if entry.what != "node.exit" or entry.level != view.entry.level:
                continue
            end = self._views.view(place)
            known = {held.id for held in end.base.get(channel) or ()}
            if wanted not in known and any(one.get("channel") == channel for one in end.writes):
                return end
        return None

    def _of_item(self, view: View, channel: str, at: int) -> View | None:
        """Return the end of the node that added an item to a list that only grows."""
        held = view.values.get(channel)
        if not isinstance(held, list) or channel not in self._views.json.reducers:
            return None
        for place in range(view.at, -1, -1):
            entry = self._timeline.entries[place]
            if entry.what != "node.exit" or entry.level != view.entry.level:
                continue
            end = self._views.view(place)
            start = len(end.base.get(channel) or [])
            if start > at:
                continue
            for task, added in self._added(entry, channel):
                if start <= at < start + len(added) and held[at] in added:
                    return self._end_of(task, place)
                start += len(added)
        return None

    def _added(self, entry: Entry, channel: str) -> list[tuple[str, list[Any]]]:
        """List what the tasks of a moment's superstep added to a list, in the order of the sum."""
        saved = self._views.saved(entry.checkpoint or "")
        writes = () if saved is None else saved.pending_writes or ()
        return [(t, v) for t, c, v in writes if c == channel and isinstance(v, list)]

    def _end_of(self, task: str, at: int) -> View | None:
        """Return the end of a task in the superstep of a moment."""
        entries = self._timeline.entries
        places = sorted(range(len(entries)), key=lambda place: abs(place - at))
        near = (p for p in places if entries[p].task == task and entries[p].what == "node.exit")
        place = next(near, None)
        return None if place is None else self._views.view(place)

    def _inside(
        self, end: View, path: Path, message: BaseMessage | None
    ) -> tuple[View, Path] | None:
        """Return the end of the node of a subgraph that made what the node around it wrote.

        The path is that of the value in the state of the subgraph.
        """
        below = self._offset(end, path) if message is None else None
        for place in range(end.at - 1, -1, -1):
            entry = self._timeline.entries[place]
            if entry.what == "node.enter" and entry.task == end.entry.task:
                return None
            if entry.what != "node.exit" or not entry.level.startswith(end.entry.node or "?"):
                continue
            inner = self._views.view(place)
            if below is not None and (item := self._of_item(inner, *below)) is not None:
                return item, below
            made = [value for e, c, value in inner.pending if e.task == entry.task and c == path[0]]
            if any(self._same(one, end, path, message) for one in made):
                return inner, path
        return None

    def _offset(self, end: View, path: Path) -> tuple[str, int] | None:
        """Return the place of an item in the list that its node wrote; None for other values."""
        channel, at = str(path[0]), path[1] if len(path) > 1 else None
        if not isinstance(at, int):
            return None
        start = len(end.base.get(channel) or [])
        for task, added in self._added(end.entry, channel):
            if task == end.entry.task:
                return (channel, at - start) if start <= at < start + len(added) else None
            start += len(added)
        return None

    def _same(self, made: Any, end: View, path: Path, message: BaseMessage | None) -> bool:
        parts = made if isinstance(made, list) else [made]
        if message is not None:
            return any(isinstance(p, BaseMessage) and p.id == message.id for p in parts)
        wrote = [v for e, c, v in end.pending if e.task == end.entry.task and c == path[0]]
        return any(v == made or (isinstance(v, list) and v[-1:] == parts[-1:]) for v in wrote)

    def _chain(
        self, end: View, path: Path, message: BaseMessage | None, text: str
    ) -> Iterator[Cause]:
        node = end.entry.node or "?"
        maker = self._maker(end, path, message)
        by = _named(maker)
        call = f" (call {maker.call_id})" if maker.kind == "tool" else ""
        where = "" if maker.kind == "state" else f" in node {node}"
        said = f"{text}  written {self._at_text(maker)} by {by}{call}{where}"
        read = self._reader(end, message)
        if read is not None:
            said += f"; read by model:request {self._at_text(read)}"
        yield Cause(self._full(maker), maker.seq, said, by)
        inner = self._inside(end, path, message) if self._foreign else None
        if inner is not None:  # a subgraph's node made it
            yield from self._chain(*inner, message, "made inside of it:")
            return
        record = isinstance(message, ChatMessage) and maker.kind == "tool"  # of a sub-agent
        if isinstance(message, ToolMessage) or record:
            yield from self._behind_call(end, maker)
        elif maker.kind == "hook":
            return
        elif node == "model" or maker.what == "model.response":
            yield from self._behind_reply(end)

    def _maker(self, end: View, path: Path, message: BaseMessage | None) -> Entry:
        """Return the moment in a visit that produced its node's write."""
        if end.entry.kind == "state":
            return end.entry
        task = list(self._timeline.of_task(end.at))
        if self._foreign:
            return self._foreign_maker(end, task, message)
        if message is None:
            hooked = next((e for e in task if self._updates(e, path[0])), None)
            if hooked is not None:
                return hooked
        wanted = {"tools": "tool.exit", "model": "model.response"}.get(end.entry.node or "", "")
        if end.entry.node == "tools" and isinstance(message, ToolMessage):
            changed = next((e for e in task if "O" in (e.fields.get("c") or {})), None)
            if changed is not None:
                return changed
        return next((entry for entry in task if entry.what == wanted), end.entry)

    def _foreign_maker(self, end: View, task: list[Entry], message: BaseMessage | None) -> Entry:
        """Return the call or the reply that a message is; the node itself for all else."""
        for entry in task:
            if isinstance(message, ToolMessage) and entry.what == "tool.exit":
                if entry.call_id == message.tool_call_id:
                    return entry
            elif isinstance(message, AIMessage) and entry.what == "model.response":
                reply = self._views.view(self._place(entry)).reply
                asked = None if reply is None else (reply.content, reply.tool_calls)
                if asked == (message.content, message.tool_calls):
                    return entry
        return end.entry

    def _updates(self, entry: Entry, channel: str | int) -> bool:
        if entry.what != "hook.exit":
            return False
        return any(
            write.get("channel") == channel for write in self._views.view(self._place(entry)).writes
        )

    def _behind_call(self, end: View, maker: Entry) -> Iterator[Cause]:
        """Yield a hook result's source, changes of arguments, and the calling reply."""
        yield from self._below(end, maker.call_id)
        for entry in self._timeline.of_task(end.at):
            if maker.kind == "hook" and entry.what == "tool.call":
                told = f"made of the result of tool:{entry.name}, called {self._at_text(entry)}"
                yield Cause(self._full(entry), entry.seq, told, f"tool:{entry.name}")
            if "a" in (entry.fields.get("c") or {}) and self._views.journal is not None:
                by = f"hook:{self._views.journal.change(entry)['by']}"
                told = f"its arguments were changed {self._at_text(entry)} by {by}"
                yield Cause(self._full(entry), entry.seq, told, by)
        for place in range(end.at, -1, -1):
            entry = self._timeline.entries[place]
            if entry.what != "node.exit" or (entry.node != "model" and not self._foreign):
                continue
            asked = self._views.view(place)
            if (calling := _calls(asked, maker.call_id)) is not None:
                reply = self._maker(asked, ("messages",), calling)
                told = f"call {maker.call_id} asked for {self._at_text(reply)} by the model's reply"
                yield Cause(self._full(reply), reply.seq, told, "model")
                yield from self._behind_reply(asked)
                return

    def _below(self, end: View, call_id: str | None) -> Iterator[Cause]:
        """Yield the sub-agent that answered a call, and what its answer came from."""
        journal = self._views.journal
        for entry in self._timeline.of_task(end.at):
            if journal is None or entry.what != "agent.return" or entry.call_id != call_id:
                continue
            thread, by = str(entry.fields["t"]), f"agent:{entry.name}"
            told = f"it is the answer of the agent {entry.name}, in thread {thread}"
            yield Cause(self._full(entry), entry.seq, told, by)
            inner = Journal(journal.saver, thread)
            with suppress(DebugError, StorageError, ThreadNotFoundError):  # it is not kept here
                views = ViewCache(inner, BranchReader(inner).timeline(None))
                last = views.view(len(views.timeline) - 1)
                for cause in Provenance(views).why(last, "messages[-1]"):
                    yield replace(cause, thread_id=cause.thread_id or thread)

    def _from_above(self) -> Iterator[Cause]:
        """Yield the call of another agent that gave this thread its input."""
        journal = self._views.journal
        if journal is not None and (above := caller_of(journal)) is not None:
            told = f"the agent {above.agent} gave the task in thread {above.thread_id}"
            yield Cause(f"#{above.seq}", above.seq, told, f"agent:{above.agent}", above.thread_id)

    def _behind_reply(self, end: View) -> Iterator[Cause]:
        for entry in self._timeline.of_task(end.at):
            if entry.what == "model.request":
                told = f"the reply answers model:request {self._at_text(entry)}"
                yield Cause(self._full(entry), entry.seq, told, "model")
                return

    def _reader(self, end: View, message: BaseMessage | None) -> Entry | None:
        if message is None:
            return None
        later = self._timeline.entries[end.at + 1 :]
        return next((entry for entry in later if entry.what == "model.request"), None)

    def _from_input(self, view: View, path: Path, message: BaseMessage | None, text: str) -> Cause:
        """Find the run with the value in its input."""
        began: Entry | None = None
        for place in range(view.at, -1, -1):
            entry = self._timeline.entries[place]
            if entry.what != "run.enter":
                continue
            began = entry
            if not self._was_there(entry, view, path, message):
                break
        if began is None:
            raise DebugError(f"{text} was there before the recording began")
        if self._foreign and self._was_there(began, view, path, message):
            told = f"{text}  was there before run {began.run}, {self._at_text(began)}"
            by = "update_state" if self._source(began) == "update" else "input"
            return Cause(self._full(began), began.seq, f"{told}, by {by}", by)
        told = f"{text}  came with the input of run {began.run}, {self._at_text(began)}"
        return Cause(self._full(began), began.seq, told, "input")

    def _was_there(self, began: Entry, view: View, path: Path, message: BaseMessage | None) -> bool:
        """Return whether a value was in the state before a run."""
        if message is not None:
            return self._had_before(began, message)
        if not self._foreign:
            return False
        try:
            before = self._views.view(self._place(began)).base
            return bool(at_path(before, path) == at_path(view.values, path))
        except (LookupError, StorageError):
            return False

    def _source(self, began: Entry) -> str:
        """Return what made the checkpoint that a run began from."""
        journal = self._views.journal
        base = None if journal is None else journal.run(began.run).base
        saved = None if base is None else self._views.saved(base)
        return "" if saved is None else str((saved.metadata or {}).get("source"))

    def _had_before(self, began: Entry, message: BaseMessage) -> bool:
        try:
            messages = self._views.view(self._place(began)).base.get("messages") or ()
        except StorageError:
            return False
        return any(held.id == message.id for held in messages)

    def _place(self, entry: Entry) -> int:
        place = self._timeline.place(entry.seq)
        assert place is not None  # all these moments are of this timeline
        return place

    def _at_text(self, entry: Entry) -> str:
        position = self._timeline.position(self._place(entry))
        return str(type(position)(step=position.step, part=position.part, seq=position.seq))

    def _full(self, entry: Entry) -> str:
        return str(self._timeline.position(self._place(entry)))


def _named(entry: Entry) -> str:
    if entry.kind in ("tool", "hook"):
        return f"{entry.kind}:{entry.name}"
    if entry.kind == "state":
        return "update_state"
    return "model" if entry.kind == "model" else entry.node or entry.kind


def _message_at(view: View, path: Path) -> BaseMessage | None:
    if path[0] != "messages" or len(path) < 2 or not isinstance(path[1], int):
        return None
    found = view.values["messages"][path[1]]
    return found if isinstance(found, BaseMessage) else None


def _had(end: View, path: Path, message: BaseMessage) -> bool:
    """Return whether a message was in the state before a node wrote it."""
    held = end.base.get(str(path[0]))
    known = (one for one in held if isinstance(one, BaseMessage)) if isinstance(held, list) else ()
    return any(
        (one.id, one.type, one.content) == (message.id, message.type, message.content)
        for one in known
    )


def _is_about(write: dict[str, Any], path: Path, message: BaseMessage | None) -> bool:
    if write.get("channel") != path[0]:
        return False
    if message is not None:
        known = {message.id, getattr(message, "tool_call_id", None)} - {None}
        return write.get("path") in known and write.get("op") != "remove"
    key = path[1] if len(path) > 1 else None
    return not isinstance(key, str) or write.get("path") in (None, key)


def _calls(end: View, call_id: str | None) -> AIMessage | None:
    for _, channel, value in end.pending:
        for message in value if channel == "messages" and isinstance(value, list) else ():
            if isinstance(message, AIMessage) and any(
                call["id"] == call_id for call in message.tool_calls
            ):
                return message
    return None


def _value(view: View, path: Path) -> Any:
    try:
        return at_path(view.state, path)
    except (LookupError, StorageError):
        return None
