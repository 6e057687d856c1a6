"""`Journal`: the runs of a thread, and each moment as one line of text."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final

from langchain_core.messages import AIMessage, ToolMessage

from wick_graph.journal.blame import Blame, BlameReader
from wick_graph.journal.details import Details
from wick_graph.journal.entry import GAP, Entry, RunRecord
from wick_graph.journal.page_format import ENDS, OPENS
from wick_graph.journal.reader import JournalReader
from wick_graph.journal.reconstruct import (
    Reconstruction,
    Recorded,
    RecordedCall,
    RecordedQuestions,
    RecordedReply,
    RecordedRequest,
    RecordedState,
)
from wick_graph.store.dialect import Database
from wick_graph.store.journal_rows import JournalRows
from wick_graph.store.saver import SqlSaver

# --- `Journal`: a thread's runs and moments, with state and request at each moment.


class Journal:
    """The journal of one thread.

        journal = Journal(saver, "th_…")
        for moment in journal.moments(kind="tool"):
            print(moment.seq, moment.what, journal.details(moment))

    `request_at`, `state_at` and `blame` work for any moment. All data comes from the database:
    no model, tool or hook is called. Each method reads the data committed at the time of its call.
    Damaged data appears as a moment of the kind `gap`, and hides no other moment.
    """

    def __init__(
        self, saver: SqlSaver, thread_id: str, *, upto: int | None = None, keep: int = 0
    ) -> None:
        """Read the journal of a thread.

        Args:
            saver: The store.
            thread_id: The thread.
            upto: The last moment to read; by default all are read.
            keep: Number of checkpoints to cache, for many calls in a row.
        """
        self.saver = saver
        self.thread_id = thread_id
        self.rows: JournalRows = saver.journal_rows(thread_id)
        self._reader = JournalReader(self.rows, upto)
        self._rebuilt = Reconstruction(self._reader, keep)
        self._details = Details(self._rebuilt)
        self._blame = BlameReader(self._rebuilt)
        self._recorded = Recorded(self._rebuilt)

    # --- runs and moments ------------------------------------------------------------------------

    def runs(self) -> list[RunRecord]:
        """Return the thread's runs, the oldest first.

        Raises:
            ThreadNotFoundError: There is no such thread.
        """
        return self._reader.runs()

    def run(self, wanted: int | str) -> RunRecord:
        """Return a run by its number or its id.

        Raises:
            StorageError: The thread has no such run.
        """
        return self._reader.run(wanted)

    def moments(
        self,
        run: int | str | None = None,
        kind: str | None = None,
        after: int | None = None,
        limit: int | None = None,
        *,
        branch: int | None = None,
    ) -> Iterator[Entry]:
        """Yield moments in order, some pages at a time.

        Args:
            run: Only of this run, by number or id.
            kind: Only of this kind (`tool`), or of this kind and phase (`tool.exit`).
            after: Only those with a higher number.
            limit: At most so many.
            branch: Only of this branch.

        Raises:
            StorageError: The thread has no such run.
            ThreadNotFoundError: There is no such thread.
        """
        return self._reader.moments(run, kind, after, limit, branch=branch)

    def backwards(self, before: int | None = None) -> Iterator[Entry]:
        """Yield moments from the end, or from before one, to the beginning."""
        return self._reader.backwards(before)

    def moment(self, seq: int) -> Entry:
        """Return one moment by its number.

        Raises:
            StorageError: There is none, or it is damaged.
        """
        return self._reader.moment(seq)

    def last(self) -> int:
        """Return the number of the last moment, 0 if there is none."""
        return self._reader.last()

    def problems(self) -> list[str]:
        """List damaged and missing parts of the journal, one sentence each."""
        return self._reader.problems()

    # --- details of a moment ---------------------------------------------------------------------

    def details(self, entry: Entry) -> dict[str, Any]:
        """Return a moment's recorded details; `missing` names data that is gone."""
        return self._details.details(entry)

    def to_dict(self, entry: Entry) -> dict[str, Any]:
        """Return a moment as one JSON object, with all its details."""
        return self._details.to_dict(entry)

    def change(self, entry: Entry) -> dict[str, Any]:
        """Return a hook's change; on the way in, the next inner moment holds it."""
        return self._details.change(entry)

    def blame(self, seq: int, *, kept: int = 0) -> list[Blame]:
        """List the parts of a moment's request, in the order in which the model got them.

        Dropped parts come last. A message that a hook changed counts as one dropped and one added.
        If no hook changed which messages were sent, and there were `kept`, these are left out.

        Raises:
            StorageError: There is no request by then, or its data is gone.
        """
        return self._blame.blame(seq, kept=kept)

    # --- state and request at a moment -----------------------------------------------------------

    def state_at(self, seq: int) -> RecordedState:
        """Return the state at a moment: the nearest checkpoint, and the writes since.

        Raises:
            StorageError: There is no such moment, or its checkpoint is gone (pruned, or never
                stored because the run was made with another durability).
        """
        return self._rebuilt.state_at(seq)

    def request_at(self, seq: int) -> RecordedRequest:
        """Return the request of a moment: its own, or the latest one before it in its run.

        Raises:
            StorageError: There is no request by then, or its data is gone.
        """
        return self._rebuilt.request_at(seq)

    def reply_at(self, seq: int) -> AIMessage | None:
        """Return a model's reply as received, by the moment of its response.

        Return None if it is unknown: the process died before the reply was kept.

        Raises:
            StorageError: There is no such moment, or its data is gone.
        """
        return self._rebuilt.reply_at(seq)

    def call_at(self, entry: Entry) -> Mapping[str, Any] | None:
        """Return the call of a tool's moment as the model made it: id, name, args."""
        return self._rebuilt.call_at(entry)

    def answer_at(self, entry: Entry) -> ToolMessage | None:
        """Return the message that answers the call of a tool's moment, as written."""
        return self._rebuilt.answer_at(entry)

    def saved(self, checkpoint: str) -> Any:
        """Return a checkpoint with its writes; None if it is gone."""
        return self._rebuilt.saved(checkpoint)

    # --- recorded answers ------------------------------------------------------------------------

    def replies(self, run: int | str | None = None) -> Iterator[RecordedReply]:
        """Yield the answers of models, without those that were never kept."""
        return self._recorded.replies(self.moments(run))

    def results(self, run: int | str | None = None) -> Iterator[RecordedCall]:
        """Yield the results of tools, without those of unfinished calls."""
        return self._recorded.results(self.moments(run))

    def questions(self, run: int | str | None = None) -> Iterator[RecordedQuestions]:
        """Yield what tools asked instead of ending."""
        return self._recorded.questions(self.moments(run))

    # --- the rows --------------------------------------------------------------------------------

    def value(self, reference: bytes) -> Any:
        """Return the value of a reference in a moment's fields.

        Raises:
            StorageError: The content is missing or damaged.
        """
        return self._reader.value(reference)

    def secret(self) -> bytes:
        """Return the secret of the thread's request keys."""
        return self._reader.secret()

    def size(self) -> int:
        """Return the size of the journal's content in bytes."""
        return self._reader.size()

    def reading(self) -> AbstractContextManager[Database]:
        """Hold one consistent view of the thread."""
        return self._reader.reading()


# --- One line of text for a moment.


_ENTERS: Final = "→"

_LEAVES: Final = "←"

_POINT: Final = "·"

_LONGEST: Final = 200
"""Characters of a text or of arguments in a line."""

Detail = Mapping[str, Any]


def line_of(journal: Journal, entry: Entry) -> str:
    """Return a moment as a line: number, time, step and text, indented by depth."""
    return line_from(entry, {} if entry.kind == GAP else journal.details(entry))


def line_from(entry: Entry, detail: Detail) -> str:
    """Return the line of a moment with these details."""
    if entry.kind == GAP:
        return f"{entry.seq:>6}  {'':>9}  {'':>5} ✕ {entry.error}"
    kind = (entry.kind, entry.phase)
    mark = _ENTERS if kind in OPENS else _LEAVES if kind in ENDS else _POINT
    if entry.status != "ok" and not entry.is_left:
        mark = "✕"
    step = f"@{entry.step}" if entry.step else ""
    time = f"+{entry.at_us / 1e6:.3f}"
    indent = "  " * entry.depth
    return f"{entry.seq:>6}  {time:>9}  {step:>5} {indent}{mark} {text_from(entry, detail)}"


def text_of(journal: Journal, entry: Entry) -> str:
    """Return a moment as words."""
    return text_from(entry, journal.details(entry))


def text_from(entry: Entry, detail: Detail, *, timed: bool = True) -> str:
    """Return a moment with these details as words; with how long it took, if `timed`."""
    make = _TEXTS.get(entry.what)
    text = make(entry, detail) if make is not None else f"{entry.what} {entry.name}".strip()
    if entry.phase == "lost":
        text = f"{entry.kind} lost: its process died"
    parts = [text]
    if timed and entry.duration_us is not None:
        parts.append(took(entry.duration_us))
    if (change := detail.get("change")) is not None:
        changed = ", ".join(key for key in change if key != "by")
        parts.append(f"[{change['by']} changed {changed}]")
    if entry.error is not None:
        parts.append("left here" if entry.is_left else entry.error)
    if (missing := detail.get("missing")) is not None:
        parts.append(f"({missing})")
    return "  ".join(" ".join(part.split()) for part in parts if part)


def took(microseconds: int) -> str:
    """Format a duration."""
    if microseconds >= 1_000_000:
        return f"{microseconds / 1e6:.2f} s"
    return f"{microseconds / 1e3:.1f} ms"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _cut(text: str) -> str:
    line = " ".join(text[: _LONGEST * 2].split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


def _json(value: Any) -> str:
    return _cut(json.dumps(value, ensure_ascii=False, default=str))


def _run_enter(entry: Entry, detail: Detail) -> str:
    given = f": {_count(detail['messages'], 'message')}" if "messages" in detail else ""
    branch = f", branch {detail['branch']}" if detail.get("branch") else ""
    return f"run of {entry.name} ({detail.get('mode')}{given}{branch})"


def _run_exit(entry: Entry, detail: Detail) -> str:
    return f"run {detail.get('stopped_because')}"


def _node_exit(entry: Entry, detail: Detail) -> str:
    channels: dict[str, int] = {}
    for write in detail.get("writes", ()):
        channels[write["channel"]] = channels.get(write["channel"], 0) + 1
    wrote = ", ".join(name if n == 1 else f"{name} ×{n}" for name, n in channels.items())
    return f"{entry.name}" + (f"  wrote {wrote}" if wrote else "")


def _hook(entry: Entry, detail: Detail) -> str:
    update = ", ".join(dict.fromkeys(write["channel"] for write in detail.get("update", ())))
    return f"hook {entry.name}.{entry.hook_phase}" + (f"  wrote {update}" if update else "")


def _request(entry: Entry, detail: Detail) -> str:
    tools = _count(len(detail.get("tools", ())), "tool")
    purpose = "" if detail.get("purpose") in (None, "agent") else f" for {detail['purpose']}"
    return f"model {entry.name}{purpose}: {_count(detail.get('messages', 0), 'message')}, {tools}"


def _response(entry: Entry, detail: Detail) -> str:
    reply = detail.get("reply")
    if reply is None:
        return "reply"
    calls = ", ".join(f"{call['name']}({_json(call['args'])})" for call in reply.tool_calls)
    tokens = detail["usage"].get("total_tokens")
    spent = f"  {_count(tokens, 'token')}" if tokens else ""
    said = " ".join(part for part in (_cut(reply.text), calls) if part)
    return f"reply: {said or 'nothing'}{spent}"


def _route(entry: Entry, detail: Detail) -> str:
    return f"{detail['chosen']}: {detail['reason']}" if "chosen" in detail else "route"


def _tool_enter(entry: Entry, detail: Detail) -> str:
    return f"tool {entry.name}({_json(detail.get('args'))})"


def _tool_call(entry: Entry, detail: Detail) -> str:
    changed = f"({_json(detail.get('args'))})" if detail.get("changed") else ""
    return f"{entry.name} runs{changed}, replay {detail.get('replay') or 'unknown'}"


def _tool_exit(entry: Entry, detail: Detail) -> str:
    text = detail.get("error", detail.get("output"))
    failed = " failed" if "error" in detail else ""
    return f"tool {entry.name}{failed}" + (f": {_cut(text)}" if text else "")


def _asked(entry: Entry, detail: Detail) -> str:
    word = "asks" if entry.phase == "raise" else "is answered"
    return f"{entry.name or 'run'} {word}: {_json(detail.get('value'))}"


def _child(entry: Entry, detail: Detail) -> str:
    word = "begins" if entry.phase == "spawn" else "returns"
    ended = detail.get("stopped_because")
    return f"agent {entry.name} {word} in thread {detail['thread']}" + (
        f": {ended}" if ended else ""
    )


def _node_enter(entry: Entry, detail: Detail) -> str:
    return entry.name if entry.visit == 1 else f"{entry.name} (visit {entry.visit})"


_TEXTS: Final[Mapping[str, Callable[[Entry, Detail], str]]] = {
    "run.enter": _run_enter,
    "run.exit": _run_exit,
    "run.error": _run_exit,
    "node.enter": _node_enter,
    "node.exit": _node_exit,
    "hook.enter": _hook,
    "hook.exit": _hook,
    "hook.error": _hook,
    "model.request": _request,
    "model.replaced": _request,
    "model.response": _response,
    "route.taken": _route,
    "tool.enter": _tool_enter,
    "tool.call": _tool_call,
    "tool.replaced": _tool_call,
    "tool.exit": _tool_exit,
    "interrupt.raise": _asked,
    "interrupt.answer": _asked,
    "agent.spawn": _child,
    "agent.return": _child,
}
