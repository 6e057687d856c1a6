"""What a run's models and tools answered, in one pass over its moments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage

from wick_graph.errors import StorageError
from wick_graph.journal.entry import Entry
from wick_graph.journal.fingerprint import digest
from wick_graph.journal.rebuild import REQUESTS, Reconstruction
from wick_graph.journal.replies import reply_of
from wick_graph.messages import ToolResult
from wick_graph.messages.calls import ERROR_PREFIX


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedReply:
    """One answer of a model."""

    request: Entry
    response: Entry
    reply: AIMessage

    @property
    def key(self) -> bytes:
        """The key of the request that it answers."""
        key: bytes = self.request.fields["k"]
        return key


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCall:
    """One call of a tool, as it came to the tool, and its own result."""

    call: Entry
    end: Entry
    name: str
    args: Any
    result: ToolResult

    @property
    def key(self) -> bytes:
        """What the call is found by: its id, its tool, and its arguments."""
        return call_key(self.call.call_id or "", self.name, self.args)


def call_key(call_id: str, name: str, args: Any) -> bytes:
    """Identify a call among those of a run."""
    return digest([call_id, name, args])


class Recorded:
    """The answers in a run of moments."""

    def __init__(self, rebuilt: Reconstruction) -> None:
        self._rebuilt = rebuilt
        self._value = rebuilt.value

    def replies(self, moments: Iterable[Entry]) -> Iterator[RecordedReply]:
        """Yield the answers of models; those that were never kept are left out."""
        requests: dict[int, Entry] = {}
        responses: dict[int, Entry] = {}
        for entry in moments:
            if entry.kind == "model" and entry.phase in REQUESTS:
                requests[entry.seq] = entry
                if entry.phase == "replaced" and entry.parent is not None:
                    requests[entry.parent] = entry  # this is what was sent in the end
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
        """Yield the results of tools; those of calls that never ended are left out."""
        calls: dict[str, Entry] = {}
        ends: dict[str, Entry] = {}
        for entry in moments:
            if entry.task is None:
                continue
            if entry.kind == "tool" and entry.phase in ("call", "replaced"):
                calls[entry.task] = entry
            elif entry.what == "tool.exit":
                ends[entry.task] = entry
            elif entry.what == "node.exit" and entry.task in ends:
                call, end = calls.pop(entry.task, None), ends.pop(entry.task)
                if call is not None:
                    yield self._recorded(call, end)

    def _recorded(self, call: Entry, end: Entry) -> RecordedCall:
        asked = self._rebuilt.call_at(call)
        args = self._value(call.fields["a"]) if "a" in call.fields else (asked or {}).get("args")
        return RecordedCall(
            call=call,
            end=end,
            name=call.name,
            args=args,
            result=self._result(call, end),
        )

    def _result(self, call: Entry, end: Entry) -> ToolResult:
        call_id = call.call_id or ""
        if "o" in end.fields:
            return ToolResult(call_id, call.name, **{"output": "", **self._value(end.fields["o"])})
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
