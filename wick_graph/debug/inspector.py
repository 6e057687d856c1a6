"""Inspect a moment: its stack, state, request and decision; differences and causes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wick_graph.debug.comparison import Comparison, bisect, compare
from wick_graph.debug.cursor import Cursor
from wick_graph.debug.locations import GENERAL, PLACES
from wick_graph.debug.provenance import Cause, Provenance
from wick_graph.debug.timeline import Branch, BranchReader, Timeline
from wick_graph.debug.types import At, Frame, Output, When
from wick_graph.debug.values import (
    SHOWN_AS,
    Change,
    differences,
    read_path,
    value_at,
    value_or_none,
    write_path,
)
from wick_graph.debug.view import FACTS, Names, View, ViewCache
from wick_graph.errors import DebugError
from wick_graph.expressions import compile_expression
from wick_graph.journal.blame import Blame
from wick_graph.journal.cassette import lines_of
from wick_graph.journal.entry import Entry
from wick_graph.journal.journal import Journal, line_from
from wick_graph.journal.page_format import OPENS
from wick_graph.journal.reconstruct import RecordedRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestView:
    """The request to a model."""

    seq: int
    position: str
    when: When
    """Whether it is the moment's own request, the last before it, or the next one."""
    exact: bool
    note: str
    """Why it may differ from the sent request; empty if it is exact."""
    model: str
    purpose: str
    system: tuple[tuple[str, str], ...]
    """The source and text of each prompt section."""
    messages: list[dict[str, Any]] = field(repr=False)
    """In wick's form; the system prompt first, if any."""
    tools: list[str]
    settings: Mapping[str, Any]
    recorded: RecordedRequest = field(repr=False)

    def lines(self) -> tuple[str, ...]:
        """Return it as text, one line per part."""
        found = self.recorded
        return lines_of(found.messages, found.tools, found.settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteView:
    """The routing decision after a reply."""

    seq: int
    position: str
    chosen: str
    reason: str
    candidates: list[dict[str, Any]]
    calls: int
    """Number of tool calls."""


class Inspector:
    """Reads the recording; executes nothing. `at` is the cursor's moment by default.

    Every method may be called from any thread.
    """

    def __init__(self, cursor: Cursor, lock: threading.Condition) -> None:
        self._cursor = cursor
        self._lock = lock

    # --- moments ---------------------------------------------------------------------------------

    def moments(self, kind: str | None = None) -> list[Entry]:
        """List the moments of the branch, all or those of a kind such as `tool` or `tool.exit`."""
        with self._lock:
            entries = self._timeline.entries
            return [e for e in entries if kind is None or kind in (e.kind, e.what)]

    def locate(self, text: str) -> Entry:
        """Return the moment at a position.

        Raises:
            DebugError: There is none.
        """
        with self._lock:
            return self._timeline.entries[self._cursor.place(text)]

    def line(self, entry: Entry) -> str:
        """Return one line of text for a moment."""
        with self._lock:
            views = self._views
            place = views.timeline.place(entry.seq)
            if place is not None:
                return line_from(entry, views.view(place).details)
        return line_from(entry, {} if views.journal is None else views.journal.details(entry))

    def branches(self) -> list[Branch]:
        """List the branches of the thread, the oldest first."""
        journal = self._views.journal
        return [] if journal is None else BranchReader(journal).branches()

    def hits(self, number: int) -> list[Entry]:
        """List the recorded moments at which a breakpoint would stop.

        Raises:
            DebugError: There is no such breakpoint.
        """
        with self._lock:
            found = self._cursor.breakpoints[number]
            return [view.entry for view in self._views if found.check(view, counts=False)]

    def past_log(self, number: int) -> list[Output]:
        """Return the lines of a log point at all recorded moments; raises as `hits`."""
        with self._lock:
            found = self._cursor.breakpoints[number]
            hits = (view for view in self._views if found.check(view, counts=False))
            return [Output(view.entry.seq, "log", found.said(view)) for view in hits]

    def search(self, text: str) -> list[Entry]:
        """List the moments with a text in their line, arguments, results or replies."""
        wanted = text.casefold()
        return [entry for entry in self.moments() if wanted in self._searched(entry)]

    def _searched(self, entry: Entry) -> str:
        made = "" if entry.kind == "gap" else str(self.details(entry))
        return f"{self.line(entry)} {made}".casefold()

    def complete(self, text: str) -> list[str]:
        """List completions of a name, a path or a location."""
        channels = (SHOWN_AS.get(name, name) for name in self._views.json.channels)
        from_state = [*(write_path((name,)) for name in channels), *FACTS]
        known = {entry.name for entry in self.moments("tool.enter")}
        hooks = {entry.name for entry in self.moments("hook")}
        locations = [*(f"tool:{name}" for name in known), *(f"hook:{name}" for name in hooks)]
        positions = ("@first", "@last", "@error")
        shape = self._views.shape
        places = PLACES if shape is None else (*GENERAL, *shape["nodes"])
        all_words = [*from_state, *locations, *places, *positions]
        return sorted(word for word in set(all_words) if word.startswith(text))

    # --- the stack -------------------------------------------------------------------------------

    def where(self, at: At = None) -> list[Frame]:
        """Return the stack at a moment, the innermost frame first.

        Raises:
            DebugError: There is no such moment.
        """
        with self._lock:
            view = self._cursor.view(at)
            return [*self._frames(view), self._outermost(view.entry)]

    def _frames(self, view: View) -> Iterator[Frame]:
        entry: Entry | None = view.entry
        if entry is not None and (entry.kind, entry.phase) not in OPENS and entry.kind != "run":
            yield self._frame(entry)
            entry = self._opener(entry)
            if view.entry.is_end:  # show the end of a frame as the frame itself
                entry = None if entry is None else self._opener(entry)
        while entry is not None and entry.kind != "run":
            yield self._frame(entry)
            entry = self._opener(entry)

    def _opener(self, entry: Entry) -> Entry | None:
        place = None if entry.parent is None else self._timeline.place(entry.parent)
        return None if place is None else self._timeline.entries[place]

    def _frame(self, entry: Entry) -> Frame:
        name = entry.name or entry.kind
        phase = "" if entry.phase in ("enter", "request", "call") else f" {entry.phase}"
        texts = {
            "hook": f"{entry.hook_phase} {name}{phase}",
            "tool": f"tool {name}{phase}  (call {entry.call_id})",
            "node": f"node {name}{phase}  (step @{entry.step}, visit {entry.visit})",
            "model": f"model {name} {entry.phase}",
        }
        text = texts.get(entry.kind, f"{entry.what} {entry.name}".rstrip())
        if entry.error:
            text += "  left here" if entry.is_left else f"  {entry.error}"
        return Frame(entry.depth, text, entry.kind, name, entry.seq)

    def _outermost(self, entry: Entry) -> Frame:
        agent, seq = "", entry.seq
        for place in range(self._timeline.place(entry.seq) or 0, -1, -1):
            found = self._timeline.entries[place]
            if found.what == "run.enter":
                agent, seq = found.name, found.seq
                break
        timeline = self._timeline
        text = f"agent {agent or '?'}  thread {timeline.thread_id}, branch b{timeline.branch}"
        if entry.step:
            text += f", step @{entry.step}, visit {entry.visit}"
        return Frame(0, text, "agent", agent, seq)

    # --- state -----------------------------------------------------------------------------------

    def state(self, path: str | None = None, at: At = None) -> Any:
        """Return the thread's state at a moment, or the value at a path in it, as JSON-like data.

        It is the state at the beginning of the superstep; `pending` has the writes since.

        Raises:
            DebugError: There is nothing at the path.
            StorageError: The checkpoint is gone.
        """
        with self._lock:
            view = self._cursor.view(at)
            shown = self._views.json.state(view.base)
        return shown if path is None else value_at(shown, read_path(path), path)

    def pending(self, at: At = None) -> list[dict[str, Any]]:
        """List writes of the running superstep that the state does not include yet.

        Raises:
            StorageError: The checkpoint is gone.
        """
        with self._lock:
            view = self._cursor.view(at)
            return [
                {
                    "channel": channel,
                    "value": self._views.json.plain(value),
                    "node": ended.node,
                    "seq": ended.seq,
                }
                for ended, channel, value in view.pending
                if channel != "request"
            ]

    def value(self, expression: str, at: At = None) -> Any:
        """Return the value of an expression at a moment.

        Raises:
            ExpressionError: It is not an expression, or has no value there.
        """
        compiled = compile_expression(expression)
        with self._lock:
            return compiled.evaluate(Names(self._cursor.view(at)))

    def diff(self, a: At = None, b: At = None, path: str | None = None) -> list[Change]:
        """List the differences between the states at two moments.

        Without `b`, compare `a` with the cursor; without both, list the cursor step's changes.

        Raises:
            StorageError: A checkpoint is gone.
        """
        with self._lock:
            if a is None and b is None:
                before, after = self._around_step()
            else:
                before, after = self._cursor.view(a).state, self._cursor.view(b).state
        if path is None:
            return differences(before, after)
        parts = read_path(path)
        return differences(value_or_none(before, parts), value_or_none(after, parts), parts)

    def step_end(self, at: At = None) -> Entry:
        """Return the moment at which a moment's step has written all; itself outside of steps."""
        with self._lock:
            return self._step_end(self._cursor.view(at)).entry

    def _step_end(self, view: View) -> View:
        held = self._timeline.steps.of(view.entry.step) if view.entry.step else []
        ends = [at for at in held if self._timeline.entries[at].what == "node.exit"]
        return self._cursor.view(ends[-1]) if ends else view

    def _around_step(self) -> tuple[Any, Any]:
        end = self._step_end(self._cursor.view())
        return end.before if end.entry.what == "node.exit" else end.state, end.state

    def why(self, path: str, at: At = None) -> list[Cause]:
        """List the causes of a value in the state, the nearest first.

        Raises:
            DebugError: There is nothing at the path, or it was written before the recording.
            StorageError: A checkpoint is gone.
        """
        with self._lock:
            return Provenance(self._views).why(self._cursor.view(at), path)

    def history(self, path: str) -> list[tuple[Entry, Any]]:
        """List each write to a path with the value after it; None if that is gone.

        Raises:
            DebugError: It is not a path.
        """
        with self._lock:
            return Provenance(self._views).history(path)

    def compare(
        self, a: int | str | Sequence[str] | Inspector, b: int | str | Sequence[str] | Inspector
    ) -> Comparison:
        """Compare two branches (numbers), runs (ids), or recordings of other sessions.

        Runs that went on where others had stopped are compared as one, as a list of ids.

        Raises:
            DebugError: There is no such branch or run.
        """
        return compare(self._views_of(a), self._views_of(b))

    def bisect(self, a: At, b: At, expression: str) -> Entry:
        """Return the first moment after `a`, up to `b`, at which an expression's truth changes.

        Without a value it counts as false.

        Raises:
            DebugError: It never changes.
            ExpressionError: It is not an expression, or has a value nowhere.
        """
        with self._lock:
            cursor = self._cursor
            found = bisect(cursor.views, cursor.place(a), cursor.place(b), expression)
        if isinstance(found, bool):
            word = "true" if found else "untrue"
            raise DebugError(f"{expression} is {word} from {a} to {b}")
        return found

    def _views_of(self, one: int | str | Sequence[str] | Inspector) -> ViewCache:
        views = self._views
        if isinstance(one, Inspector):
            return one._views.apart()
        if views.journal is None:
            raise DebugError("without a journal there is nothing to compare")
        reader = BranchReader(views.journal)
        if isinstance(one, int):
            return ViewCache(views.journal, reader.timeline(one), views.json)
        runs = [one] if isinstance(one, str) else one
        own = [entry for entry in reader.entries if entry.run_id in runs]
        thread_id = views.timeline.thread_id
        if not own:
            raise DebugError(f"thread {thread_id} has no run {', '.join(runs)}")
        return ViewCache(views.journal, Timeline(thread_id, own[0].branch, own), views.json)

    # --- request, reply, call, decision ----------------------------------------------------------

    def request(self, at: At = None) -> RequestView:
        """Return the request to the model at a moment: its own, the last before, or the next one.

        Raises:
            DebugError: No model was called.
            StorageError: Its data is gone.
        """
        with self._lock:
            place = self._cursor.place(at)
            found, when = self._nearest(place, lambda e: e.kind == "model" and _asks(e))
            view = self._cursor.view(found)
            made = view.request
            assert made is not None
            return RequestView(
                seq=made.seq,
                position=str(self._cursor.position(found)),
                when=when,
                exact=made.exact,
                note=made.note,
                model=made.model,
                purpose=made.purpose,
                system=self._sections(made),
                messages=[self._views.json.message(message) for message in made.messages],
                tools=[tool["function"]["name"] for tool in made.tools],
                settings=self._views.json.plain(made.settings),
                recorded=made,
            )

    def _sections(self, made: RecordedRequest) -> tuple[tuple[str, str], ...]:
        """Return each prompt section with its source; the recorded changes show unsigned ones."""
        if self._journal is None or all(section.source for section in made.system):
            return tuple((section.source, section.text) for section in made.system)
        blamed = [b for b in self._journal.blame(made.seq) if b.part == "system"]
        return tuple((b.by, b.value) for b in blamed if b.op != "dropped")

    def response(self, at: At = None) -> dict[str, Any] | None:
        """Return the model's reply at a moment or the last one before it, in wick's form.

        Return None if there is none by then, or if it was never kept.
        """
        with self._lock:
            for place in range(self._cursor.place(at), -1, -1):
                if self._timeline.entries[place].what == "model.response":
                    reply = self._cursor.view(place).reply
                    return None if reply is None else self._views.json.message(reply)
        return None

    def call(self, at: At = None) -> dict[str, Any] | None:
        """Return the tool call that a moment belongs to; None if there is none."""
        with self._lock:
            view = self._cursor.view(at)
            if view.entry.tool is None and view.entry.kind != "tool":
                return None
            ended = next(
                (e for e in self._timeline.of_task(view.at) if e.what == "tool.exit"), None
            )
            end = None if ended is None else self._cursor.view(ended)
            return {
                "name": view.entry.tool or view.entry.name,
                "id": view.entry.call_id,
                "args": view.args,
                "args_before": view.args_asked,
                "result": None if end is None else end.output,
                "error": view.entry.error if end is None else end.error,
            }

    def route(self, at: At = None) -> RouteView:
        """Return the router's decision at a moment: its own, the last before, or the next one.

        Raises:
            DebugError: There is no decision.
        """
        with self._lock:
            place, _ = self._nearest(self._cursor.place(at), lambda entry: entry.kind == "route")
            view = self._cursor.view(place)
            made = view.route or {}
            return RouteView(
                seq=view.entry.seq,
                position=str(self._cursor.position(place)),
                chosen=made.get("chosen", ""),
                reason=made.get("reason", ""),
                candidates=list(made.get("candidates") or ()),
                calls=made.get("calls", 0),
            )

    def blame(self, at: At = None) -> list[Blame]:
        """List the parts of a moment's request, each with the hook that added it; see `request`.

        Raises:
            DebugError: There is no request, or no journal.
            StorageError: Its data is gone.
        """
        if self._journal is None:
            raise DebugError("only a journal knows the source of each part of a request")
        seq = self.request(at).seq
        return self._journal.blame(seq)

    def tokens(self) -> list[dict[str, Any]]:
        """List the usage of each model call of the branch, and the total so far."""
        total, found = 0, []
        with self._lock:
            for place, entry in enumerate(self._timeline.entries):
                if entry.what != "model.response":
                    continue
                used = self._cursor.view(place).usage or {}
                total += used.get("total_tokens", 0)
                found.append(
                    {
                        "position": str(self._cursor.position(place)),
                        "model": entry.name,
                        "input": used.get("input_tokens", 0),
                        "output": used.get("output_tokens", 0),
                        "total": total,
                    }
                )
        return found

    def details(self, at: At = None) -> dict[str, Any]:
        """Return all recorded details of a moment, as plain data."""
        with self._lock:
            made: dict[str, Any] = self._views.json.plain(self._cursor.view(at).details)
            return made

    @property
    def _views(self) -> ViewCache:
        return self._cursor.views

    @property
    def _timeline(self) -> Timeline:
        return self._cursor.views.timeline

    @property
    def _journal(self) -> Journal | None:
        return self._cursor.views.journal

    def _nearest(self, place: int, fits: Callable[[Entry], bool]) -> tuple[int, When]:
        entries = self._timeline.entries
        for at in range(min(place, len(entries) - 1), -1, -1):
            if fits(entries[at]):
                return at, "at" if at == place else "before"
        for at in range(max(place, 0), len(entries)):
            if fits(entries[at]):
                return at, "after"
        raise DebugError("nothing such is recorded on this branch")


def _asks(entry: Entry) -> bool:
    return entry.phase in ("request", "replaced")
