"""Provenance: trace a value back to its tool, reply, hook or input."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from wick_graph.debug.breakpoints import is_write
from wick_graph.debug.values import Path, at_path, read_path, value_at
from wick_graph.debug.view import View, ViewCache
from wick_graph.errors import DebugError, StorageError
from wick_graph.journal.entry import Entry


@dataclass(frozen=True, slots=True)
class Cause:
    """One link of the chain behind a value."""

    position: str
    seq: int
    text: str
    by: str
    """`tool:NAME`, `model`, `hook:NAME`, `input`, or a node."""


class Provenance:
    """Traces values of one recording back to their sources."""

    def __init__(self, views: ViewCache) -> None:
        self._views = views
        self._timeline = views.timeline

    def why(self, view: View, path: str) -> list[Cause]:
        """List the causes of a value in the state at a moment, the nearest first.

        Raises:
            DebugError: There is nothing at the path, or it was written before the recording.
            StorageError: A checkpoint is gone.
        """
        parts = read_path(path)
        value_at(view.state, parts, path)
        message = _message_at(view, parts)
        wrote = self._writer(view, parts, message)
        if wrote is None:
            return [self._from_input(view, parts, message, path)]
        return list(self._chain(wrote, parts, message, path))

    def history(self, path: str) -> list[tuple[Entry, Any]]:
        """List each write to a path with the value after it; None if that is gone.

        Raises:
            DebugError: It is not a path.
        """
        parts = read_path(path)
        return [(view.entry, _value(view, parts)) for view in self._views if is_write(view, parts)]

    # --- the writer ------------------------------------------------------------------------------

    def _writer(self, view: View, path: Path, message: BaseMessage | None) -> View | None:
        """Return the end of the node that last wrote a value."""
        for place in range(view.at, -1, -1):
            if self._timeline.entries[place].what != "node.exit":
                continue
            end = self._views.view(place)
            if any(_is_about(write, path, message) for write in end.writes):
                return end
        return None

    def _chain(
        self, end: View, path: Path, message: BaseMessage | None, text: str
    ) -> Iterator[Cause]:
        node = end.entry.node or "?"
        maker = self._maker(end, path, message)
        by = _named(maker)
        call = f" (call {maker.call_id})" if maker.kind == "tool" else ""
        said = f"{text}  written {self._at_text(maker)} by {by}{call} in node {node}"
        read = self._reader(end, message)
        if read is not None:
            said += f"; read by model:request {self._at_text(read)}"
        yield Cause(self._full(maker), maker.seq, said, by)
        if isinstance(message, ToolMessage):
            yield from self._behind_call(end, maker)
        elif maker.kind == "hook":
            return
        elif node == "model":
            yield from self._behind_reply(end)

    def _maker(self, end: View, path: Path, message: BaseMessage | None) -> Entry:
        """Return the moment in a visit that produced its node's write."""
        task = list(self._timeline.of_task(end.at))
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

    def _updates(self, entry: Entry, channel: str | int) -> bool:
        if entry.what != "hook.exit":
            return False
        return any(
            write.get("channel") == channel for write in self._views.view(self._place(entry)).writes
        )

    def _behind_call(self, end: View, maker: Entry) -> Iterator[Cause]:
        """Yield a hook result's source, changes of arguments, and the calling reply."""
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
            if entry.what != "node.exit" or entry.node != "model":
                continue
            asked = self._views.view(place)
            if _calls(asked, maker.call_id):
                reply = self._maker(asked, ("messages",), AIMessage(""))
                told = f"call {maker.call_id} asked for {self._at_text(reply)} by the model's reply"
                yield Cause(self._full(reply), reply.seq, told, "model")
                yield from self._behind_reply(asked)
                return

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
            if message is None or not self._had_before(entry, message):
                break
        if began is None:
            raise DebugError(f"{text} was there before the recording began")
        told = f"{text}  came with the input of run {began.run}, {self._at_text(began)}"
        return Cause(self._full(began), began.seq, told, "input")

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
    return "model" if entry.kind == "model" else entry.node or entry.kind


def _message_at(view: View, path: Path) -> BaseMessage | None:
    if path[0] != "messages" or len(path) < 2 or not isinstance(path[1], int):
        return None
    found = view.values["messages"][path[1]]
    return found if isinstance(found, BaseMessage) else None


def _is_about(write: dict[str, Any], path: Path, message: BaseMessage | None) -> bool:
    if write.get("channel") != path[0]:
        return False
    if message is not None:
        known = {message.id, getattr(message, "tool_call_id", None)} - {None}
        return write.get("path") in known and write.get("op") != "remove"
    key = path[1] if len(path) > 1 else None
    return not isinstance(key, str) or write.get("path") in (None, key)


def _calls(end: View, call_id: str | None) -> bool:
    for _, channel, value in end.pending:
        for message in value if channel == "messages" and isinstance(value, list) else ():
            if isinstance(message, AIMessage) and any(
                call["id"] == call_id for call in message.tool_calls
            ):
                return True
    return False


def _value(view: View, path: Path) -> Any:
    try:
        return at_path(view.state, path)
    except (LookupError, StorageError):
        return None
