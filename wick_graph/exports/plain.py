"""Plain data for exports: masked values, moments one a line, runs as spans."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.types import Interrupt, Send

from wick_graph import langgraph_config
from wick_graph.constants import TRACE_PREVIEW_CHARS
from wick_graph.errors import StorageError
from wick_graph.journal import Entry, Journal, RunRecord
from wick_graph.journal.reconstruct import REQUESTS
from wick_graph.journal.value_store import DOTS, Mask, known_secrets, texts_of
from wick_graph.messages import to_wick

# --- Exported values: plain data, with secrets hidden and huge values cut.


LONGEST: Final = 65_536
"""Characters of a text in an export."""

_DEEPEST: Final = 40

_HIDDEN: Final = re.compile(f"{DOTS}[0-9a-f]{{8}}")


class Hider:
    """Hides secrets in values, and counts the changed values."""

    def __init__(self, mask: Mask) -> None:
        self._mask = mask
        self.hidden = 0
        """Number of values with something hidden, here or before."""

    @classmethod
    def of(cls, journal: Journal, patterns: Sequence[str] = (), *, trusted: bool = True) -> Hider:
        """Hide as the thread's journal does, so that equal secrets look equal.

        Secrets are those that this process knows, and those that the recording processes knew.

        Args:
            journal: The thread's journal.
            patterns: Further patterns to hide.
            trusted: Whether to use the journal's own patterns. Not for a file, which may come from
                anyone; its writer has already hidden their matches.
        """
        key, runs = journal.secret(), journal.runs()
        every = dict.fromkeys([*patterns, *(p for run in runs if trusted for p in run.redact)])
        secrets = known_secrets()
        if marks := {mark for run in runs for mark in run.secrets}:
            secrets |= set(Mask(key).marked(_texts_in(journal), marks))
        return cls(Mask(key, secrets, every, inside=True))

    def again(self) -> Hider:
        """Return a copy with a count of zero."""
        return Hider(self._mask)

    def value(self, value: Any) -> Any:
        """Return a value without its secrets; one without any stays the same object."""
        made = self._mask.value(value)
        shown = vars(made) if isinstance(made, BaseMessage) else made  # pydantic's text is slow
        if made is not value or hides(shown if type(shown) is str else repr(shown)):
            self.hidden += 1
        return made

    def leaks(self, data: bytes) -> bool:
        """Return whether encoded data still holds a secret."""
        text = data.decode("utf-8", "replace")
        return self._mask.text(text) != text


def _texts_in(journal: Journal) -> Iterator[str]:
    """Yield each text that the thread's state ever held, the latest first."""
    config: Any = langgraph_config.with_configurable(
        None, **{langgraph_config.THREAD_ID: journal.thread_id}
    )
    seen: set[int] = set()
    for found in journal.saver.list(config):
        written = [_bare(value) for _, _, value in found.pending_writes or ()]
        for text in texts_of([found.checkpoint["channel_values"], written]):
            if (known := hash(text)) not in seen:
                seen.add(known)
                yield text


def _bare(value: Any) -> Any:
    """Return the data inside LangGraph's own objects in a checkpoint."""
    if isinstance(value, list | tuple):
        return [_bare(item) for item in value]
    if isinstance(value, Interrupt):
        return value.value
    return value.arg if isinstance(value, Send) else value


def hides(text: str) -> bool:
    """Return whether a text has something hidden."""
    return DOTS in text and _HIDDEN.search(text) is not None


def plain(value: Any, depth: int = 0) -> Any:
    """Turn a value into JSON types; an unserialisable one becomes its text, cut."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return cut(value)
    if depth > _DEEPEST:
        return "…"
    if isinstance(value, BaseMessage):
        return plain({**to_wick(value), **({"id": value.id} if value.id else {})}, depth + 1)
    if isinstance(value, Mapping):
        return {cut(str(key)): plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item, depth + 1) for item in value]
    if isinstance(value, bytes | bytearray):
        return f"<{len(value):,} bytes>"
    return cut(repr(value))


def cut(text: str) -> str:
    """Return the beginning of a long text, with its length."""
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST]}… ({len(text):,} characters in all)"


# --- `jsonl`: a thread's moments, one JSON object a line.


def as_jsonl(journal: Journal, hider: Hider, run: int | str | None = None) -> Iterator[str]:
    """Yield a line for each moment, as in `docs/moment.schema.json`.

    Raises:
        StorageError: The thread has no such run.
    """
    for entry in journal.moments(run):
        yield json.dumps(moment_of(journal, entry, hider), ensure_ascii=False) + "\n"


def moment_of(journal: Journal, entry: Entry, hider: Hider) -> dict[str, Any]:
    """Return a moment as JSON types, without secrets."""
    made: dict[str, Any] = plain(hider.value(journal.to_dict(entry)))
    return made


# --- A run as spans: input, output and duration of each model call, tool call and hook.


MOST: Final = 5_000
"""Spans of one trace."""

TRUNCATED: Final = "...(truncated)"

_KEPT: Final = 4
"""Limit of cached checkpoints."""

Made = dict[str, Any]


def trace_of(journal: Journal, run_id: str) -> Made:
    """Return a run's model, input, output, error and spans, with secrets hidden.

    A run that continued after a crash has the spans of both parts. Texts are given by their length
    and their first 500 characters.

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
    """Makes the spans of runs, one run after the other."""

    def __init__(self, journal: Journal, hider: Hider) -> None:
        self._journal = journal
        self._hide = hider.value
        self._requests: dict[int, Entry] = {}
        self._args: dict[str, Any] = {}
        """Arguments by call id, as the run's own model made them."""
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
        """Return the beginning of the user's last message before a request."""
        try:
            messages = self._journal.request_at(request.seq).messages
        except StorageError:
            return None
        said = [message.text for message in messages if isinstance(message, HumanMessage)]
        return self._preview(said[-1]) if said else None

    def _span(self, entry: Entry) -> Made:
        details = self._journal.details(entry)
        make = _MAKERS.get(entry.kind)
        metadata = {"status": entry.status, "depth": entry.depth}
        metadata |= {} if make is None else make(self, entry, details)
        if "missing" in details:
            metadata["missing"] = details["missing"]
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

    def _model(self, entry: Entry, details: Made) -> Made:
        made: Made = {"model": entry.name}
        request = self._requests.get(entry.parent or 0)
        if request is not None:
            asked = self._journal.details(request)
            system = any(section["chars"] for section in asked.get("system", ()))
            made["message_count"] = asked.get("messages", 0) + system
            made["purpose"] = asked.get("purpose")
            made["tools_count"] = len(asked.get("tools", ()))
        reply = details.get("reply")
        if isinstance(reply, AIMessage):
            self._args |= {call["id"] or "": call["args"] for call in reply.tool_calls}
            made |= self._text("content", reply.text)
            made["tool_calls_count"] = len(reply.tool_calls)
            made["tool_calls"] = [call["name"] for call in reply.tool_calls]
            if made.get("purpose", "agent") == "agent":
                self.output = made["content_preview"]
        for name in ("usage", "finish_reason", "first_token_us", "chunks"):
            if details.get(name) is not None:
                made[name] = details[name]
        return made

    def _tool(self, entry: Entry, details: Made) -> Made:
        made: Made = {"tool_name": entry.tool or entry.name, "tool_call_id": entry.call_id}
        args = self._args.get(entry.call_id or "")
        if args is None:  # the call is of an earlier run
            try:
                args = (self._journal.call_at(entry) or {}).get("args")
            except StorageError as error:
                made["missing"] = str(error)
        made["tool_args"] = plain(self._shortened(args))
        output = details.get("output")
        if isinstance(output, str):
            made |= self._text("output", output)
        failed = details.get("error")
        if isinstance(failed, str):
            made |= {"status": "error", "tool_error": self._preview(failed)}
        return made

    def _hook(self, entry: Entry, details: Made) -> Made:
        made: Made = {"hook": entry.name, "phase": entry.hook_phase}
        changed = [key for key in details.get("change", ()) if key != "by"]
        if changed:
            made["changed"] = sorted(changed)
        if details.get("update"):
            made["updated"] = sorted({write["channel"] for write in details["update"]})
        return made

    def _run(self, entry: Entry, details: Made) -> Made:
        why = details.get("stopped_because")
        self.error = None if entry.error is None else self._preview(entry.error)
        return {} if why is None else {"stopped_because": why}

    def _text(self, name: str, text: str) -> Made:
        return {f"{name}_length": len(text), f"{name}_preview": self._preview(text)}

    def _preview(self, text: str) -> str:
        hidden: str = self._hide(text)  # mask the whole text first: a cut secret is not recognised
        if len(hidden) <= TRACE_PREVIEW_CHARS:
            return hidden
        return hidden[:TRACE_PREVIEW_CHARS] + TRUNCATED

    def _shortened(self, value: Any) -> Any:
        """Return data without its secrets, with texts cut to previews."""
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
