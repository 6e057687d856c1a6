"""A run as spans: what each model call, tool call and hook was given, gave back and took."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from langchain_core.messages import AIMessage, HumanMessage

from wick_graph.constants import TRACE_PREVIEW_CHARS
from wick_graph.errors import StorageError
from wick_graph.exports.masked import Hider, plain
from wick_graph.journal import Entry, Journal, RunRecord
from wick_graph.journal.rebuild import REQUESTS

MOST: Final = 5_000
"""Spans of one trace."""
TRUNCATED: Final = "...(truncated)"
_KEPT: Final = 4
"""Checkpoints that are kept for the spans of their superstep."""
Made = dict[str, Any]


def trace_of(journal: Journal, run_id: str) -> Made:
    """Return a run's model, input, output, error and spans, with secrets hidden.

    A run that a crash cut in two has the spans of both parts. Texts are shown by their length and
    their first 500 characters.

    Raises:
        StorageError: The journal has nothing of the run.
        ThreadNotFoundError: There is no such thread.
    """
    parts = [run for run in journal.runs() if run.run_id == run_id]
    if not parts:
        raise StorageError(f"thread {journal.thread_id!r} has no run {run_id}; list its runs")
    own = Journal(journal.saver, journal.thread_id, keep=_KEPT)
    spans = _Spans(own, Hider.of(journal))
    made = [span for part in parts for span in spans.of(part)]
    return {
        "model": parts[-1].model,
        "input": spans.input,
        "output": spans.output,
        "error": spans.error,
        "spans": made[:MOST],
    }


class _Spans:
    """Makes the spans of runs, one after the other."""

    def __init__(self, journal: Journal, hider: Hider) -> None:
        self._journal = journal
        self._hide = hider.value
        self._requests: dict[int, Entry] = {}
        self._args: dict[str, Any] = {}
        """Arguments by call id, as the run's own model asked for them."""
        self.input: str | None = None
        self.output: str | None = None
        self.error: str | None = None

    def of(self, run: RunRecord) -> Iterator[Made]:
        """Yield a span for each moment that ends something."""
        for entry in self._journal.moments(run.number):
            if entry.kind == "model" and entry.phase in REQUESTS:
                self._requests[entry.seq] = entry
                self.input = self._asked(entry) if self.input is None else self.input
            if entry.is_end and entry.duration_us is not None:
                yield self._span(entry)

    def _asked(self, request: Entry) -> str | None:
        """Return the beginning of what the user said last before a request."""
        try:
            messages = self._journal.request_at(request.seq).messages
        except StorageError:
            return None
        said = [message.text for message in messages if isinstance(message, HumanMessage)]
        return self._preview(said[-1]) if said else None

    def _span(self, entry: Entry) -> Made:
        told = self._journal.details(entry)
        make = _MAKERS.get(entry.kind)
        metadata = {"status": entry.status, "depth": entry.depth}
        metadata |= {} if make is None else make(self, entry, told)
        if "missing" in told:
            metadata["missing"] = told["missing"]
        if entry.error is not None:
            metadata["error"] = self._preview(entry.error)
        end = entry.at.timestamp()
        return {
            "name": _name(entry),
            "start_time": end - (entry.duration_us or 0) / 1e6,
            "end_time": end,
            "duration_ms": (entry.duration_us or 0) / 1e3,
            "metadata": metadata,
        }

    def _model(self, entry: Entry, told: Made) -> Made:
        made: Made = {"model": entry.name}
        request = self._requests.get(entry.parent or 0)
        if request is not None:
            asked = self._journal.details(request)
            system = any(section["chars"] for section in asked.get("system", ()))
            made["message_count"] = asked.get("messages", 0) + system
            made["purpose"] = asked.get("purpose")
            made["tools_count"] = len(asked.get("tools", ()))
        reply = told.get("reply")
        if isinstance(reply, AIMessage):
            self._args |= {call["id"] or "": call["args"] for call in reply.tool_calls}
            made |= self._text("content", reply.text)
            made["tool_calls_count"] = len(reply.tool_calls)
            made["tool_calls"] = [call["name"] for call in reply.tool_calls]
            if made.get("purpose", "agent") == "agent":
                self.output = made["content_preview"]
        for name in ("usage", "finish_reason", "first_token_us", "chunks"):
            if told.get(name) is not None:
                made[name] = told[name]
        return made

    def _tool(self, entry: Entry, told: Made) -> Made:
        made: Made = {"tool_name": entry.tool or entry.name, "tool_call_id": entry.call_id}
        args = self._args.get(entry.call_id or "")
        if args is None:  # an earlier run asked for it
            try:
                args = (self._journal.call_at(entry) or {}).get("args")
            except StorageError as error:
                made["missing"] = str(error)
        made["tool_args"] = plain(self._shortened(args))
        output = told.get("output")
        if isinstance(output, str):
            made |= self._text("output", output)
        failed = told.get("error")
        if isinstance(failed, str):
            made |= {"status": "error", "tool_error": self._preview(failed)}
        return made

    def _hook(self, entry: Entry, told: Made) -> Made:
        made: Made = {"hook": entry.name, "phase": entry.hook_phase}
        changed = [key for key in told.get("change", ()) if key != "by"]
        if changed:
            made["changed"] = sorted(changed)
        if told.get("update"):
            made["updated"] = sorted({write["channel"] for write in told["update"]})
        return made

    def _run(self, entry: Entry, told: Made) -> Made:
        why = told.get("stopped_because")
        self.error = None if entry.error is None else self._preview(entry.error)
        return {} if why is None else {"stopped_because": why}

    def _text(self, name: str, text: str) -> Made:
        return {f"{name}_length": len(text), f"{name}_preview": self._preview(text)}

    def _preview(self, text: str) -> str:
        hidden: str = self._hide(text)  # the whole text first, or a cut secret would not be known
        if len(hidden) <= TRACE_PREVIEW_CHARS:
            return hidden
        return hidden[:TRACE_PREVIEW_CHARS] + TRUNCATED

    def _shortened(self, value: Any) -> Any:
        """Return data without its secrets, in which no text is longer than a preview."""
        return _cut(self._hide(plain(value)))


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        longer = len(value) > TRACE_PREVIEW_CHARS
        return value[:TRACE_PREVIEW_CHARS] + TRUNCATED if longer else value
    if isinstance(value, Mapping):
        return {key: _cut(item) for key, item in value.items()}
    return [_cut(item) for item in value] if isinstance(value, list) else value


def _name(entry: Entry) -> str:
    if entry.kind == "model":
        return "llm.call"
    if entry.kind == "tool":
        return "tool.execute" if entry.phase == "return" else "tool.call"
    if entry.kind == "hook":
        return f"hook.{entry.hook_phase}/{entry.name}"
    return "run" if entry.kind == "run" else f"{entry.kind}.{entry.name}"


_MAKERS: Final[Mapping[str, Callable[[_Spans, Entry, Made], Made]]] = {
    "model": _Spans._model,
    "tool": _Spans._tool,
    "hook": _Spans._hook,
    "run": _Spans._run,
}
