"""Answers about one thread's recording, for faces in other processes: read-only, shown, bounded."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from wick_graph.core.state import StateSchema
from wick_graph.debug import protocol
from wick_graph.debug.sources import notes_of
from wick_graph.debug.types import Stop
from wick_graph.debug.values import read_path
from wick_graph.errors import DebugError, StorageError, ThreadNotFoundError
from wick_graph.exports.page import as_page
from wick_graph.exports.plain import Hider, plain
from wick_graph.journal.entry import Entry, RunRecord
from wick_graph.journal.journal import Journal, line_from
from wick_graph.journal.reconstruct import REQUESTS
from wick_graph.journal.value_store import Mask, known_secrets
from wick_graph.picture import Picture
from wick_graph.store.saver import SqlSaver

if TYPE_CHECKING:
    from wick_graph.debug.fork import Planned
    from wick_graph.debug.session import DebugSession

WHOLE: Final = 65_536
"""Characters of a text that is asked for alone, and of a piece of a blob."""

INSIDE: Final = 4_096
"""Characters of a text inside another value."""

_ITEMS: Final = 100
"""Items of a list or an object inside another value."""

_DEEPEST: Final = 8

_KEPT: Final = 32_000_000
"""Characters of cut texts that are kept for `blob`."""

_CHECKPOINTS: Final = 16
"""Checkpoints that are cached: moments of one superstep share theirs."""

_LINES: Final = 1_000
"""Lines of a command's output."""

_CHUNK: Final = 200
"""Moments that a search reads at once."""


class Showing:
    """Makes values fit to be shown: secrets hidden, long texts and lists cut."""

    def __init__(self, hider: Hider) -> None:
        self._hider = hider
        self._texts: OrderedDict[str, str] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def text(self, text: str) -> str:
        """Return a short text without secrets."""
        return _written(str(self._hider.value(text))[:INSIDE])

    def hidden(self, value: dict[str, Any]) -> str:
        """Return all details of a moment without secrets as a text to search in."""
        return str(self._hider.value(plain(self.named(value))))

    def named(self, details: dict[str, Any]) -> dict[str, Any]:
        """Return a moment's details, with what was written under the name of a secret hidden."""
        writes = details.get("writes")
        if not isinstance(writes, list):
            return details
        made = []
        for one in writes:
            if "value" in one:
                (value,) = self._hider.value(
                    {_name_in(one.get("path", "")) or one["channel"]: one["value"]}
                ).values()
                one = {**one, "value": value}
            made.append(one)
        return {**details, "writes": made}

    def value(self, value: Any, name: str = "") -> Any:
        """Return a value without secrets, cut; `blob` has the rest of a cut text.

        A text under the name of a secret, such as `api_key`, is hidden as a whole.
        A cut text is `{"$text", "$blob", "$chars"}`; what is left out of a list or an object is
        `{"$more"}`, and a deep part `{"$size"}`.
        """
        (made,) = self._hider.value({name: _outline(value, 0)}).values()
        return self._cut(made, WHOLE) if isinstance(made, str) else self._short(made)

    def blob(self, name: str, offset: int) -> protocol.BlobAnswer:
        """Return a piece of a cut text, by the hash that `value` gave.

        Raises:
            DebugError: It is not known any more.
        """
        with self._lock:
            text = self._texts.get(name)
        if text is None:
            raise DebugError("this text is not at hand any more; open its moment again")
        piece = text[offset : offset + WHOLE]
        return protocol.BlobAnswer(hash=name, offset=offset, text=piece, total=len(text))

    def _short(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._cut(value, INSIDE)
        if isinstance(value, dict):
            return {_written(str(key)[:INSIDE]): self._short(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._short(item) for item in value]
        return value

    def _cut(self, text: str, most: int) -> Any:
        text = _written(text)
        if len(text) <= most:
            return text
        name = sha256(text.encode()).hexdigest()
        with self._lock:
            if name not in self._texts:
                self._size += len(text)
            self._texts[name] = text
            self._texts.move_to_end(name)
            while self._size > _KEPT and len(self._texts) > 1:
                self._size -= len(self._texts.popitem(last=False)[1])
        return {"$text": text[:most], "$blob": name, "$chars": len(text)}


def _written(text: str) -> str:
    """Return a text that JSON can hold: half of a surrogate pair is written as its number."""
    return text.encode("utf-8", "backslashreplace").decode()


def _outline(value: Any, depth: int) -> Any:
    """Return a JSON-like value without the rest of its long lists and its deepest parts."""
    if not isinstance(value, dict | list):
        return value
    if depth > _DEEPEST:
        return {"$size": len(value)}
    if isinstance(value, dict):
        made = {key: _outline(value[key], depth + 1) for key in [*value][:_ITEMS]}
        return made if len(value) <= _ITEMS else {**made, "$more": len(value) - _ITEMS}
    items = [_outline(item, depth + 1) for item in value[:_ITEMS]]
    return items if len(value) <= _ITEMS else [*items, {"$more": len(value) - _ITEMS}]


class Answers:
    """Answers about a thread's recording.

    It has no agent, so it can execute nothing. All methods are thread-safe; those about a moment
    raise `DebugError` if there is no such moment, and `StorageError` if its data is gone.

    Args:
        saver: The store.
        thread_id: The thread.
        opened: `DebugSession.open`.
        state: The schema of the agent's state, if it is known.
    """

    def __init__(
        self,
        saver: SqlSaver,
        thread_id: str,
        opened: Callable[..., DebugSession],
        state: StateSchema | None = None,
    ) -> None:
        self._saver, self.thread_id, self._state = saver, thread_id, state
        self._open = opened
        self._lock = threading.RLock()
        self._sessions: dict[int, DebugSession] = {}
        self._journal = self._read()
        self._seen: object = None
        self._overseen = 0
        self._notable: dict[str, list[int]] = {"errors": [], "interrupts": []}
        self._secrets: object = None
        self._shown: Showing
        with suppress(ThreadNotFoundError):
            self._fresh()

    def close(self) -> None:
        """Close what is open."""
        with self._lock:
            for session in self._sessions.values():
                session.close()
            self._sessions.clear()

    # --- the recording ---------------------------------------------------------------------------

    def recording(self) -> protocol.RecordingAnswer:
        """Describe the recording."""
        with self._lock:
            runs = self._fresh()
            last = self._journal.last()
            notes = notes_of(runs)
            if not runs:
                session = self._session(0)
                last, notes = len(session.inspect.moments()), [*session.banners]
        return protocol.RecordingAnswer(
            thread_id=self.thread_id,
            last=last,
            runs=[self._run(run) for run in runs[-protocol.MOST :]],
            notes=[self._shown.text(note) for note in notes],
        )

    def moments(self, after: int, limit: int, node: str = "") -> protocol.MomentPage:
        """Return the moments after a number, in order; of one node alone, if it is named."""
        with self._lock:
            if not self._fresh():
                every = self._session(0).inspect.moments()
                found, last = every[after : after + limit], len(every)
            else:
                last = self._journal.last()
                if node:
                    of = (e for e in self._journal.moments(after=after) if e.node == node)
                    found = list(islice(of, limit))
                else:
                    found = list(self._journal.moments(after=after, limit=limit))
        return protocol.MomentPage(moments=[self.row(entry) for entry in found], last=last)

    def overview(self) -> protocol.OverviewAnswer:
        """Return the moments to look at first; it reads the recording once, then what is new."""
        with self._lock:
            runs = self._fresh()
            last = self._journal.last() if runs else 0
            for entry in self._journal.moments(after=self._overseen) if runs else ():
                self._note(entry)
            self._overseen = last
            forks = [run.first for run in runs if run.branch]
        some = {name: _spread(found) for name, found in self._notable.items()}
        begun = [run.first for run in runs[-protocol.MOST :]]
        return protocol.OverviewAnswer(last=last, forks=_spread(forks), runs=begun, **some)

    def _note(self, entry: Entry) -> None:
        if entry.status != "ok" and not entry.is_left:
            self._notable["errors"].append(entry.seq)
        elif entry.kind == "interrupt":
            self._notable["interrupts"].append(entry.seq)

    def search(self, text: str, after: int = 0) -> Iterator[list[protocol.Hit]]:
        """Yield the moments with a text in their line or details, some at a time, in order.

        An empty list says that some were searched in vain, so that a caller can stop.
        """
        with self._lock:
            self._fresh()
        wanted, journal = text.casefold(), self._read()
        while found := list(journal.moments(after=after, limit=_CHUNK)):
            hits = []
            for entry in found:
                details = {} if entry.kind == "gap" else journal.details(entry)
                line = self._shown.text(line_from(entry, details))
                if wanted in line.casefold() or wanted in self._shown.hidden(details).casefold():
                    hits.append(protocol.Hit(seq=entry.seq, line=line))
            yield hits
            after = found[-1].seq

    # --- a moment --------------------------------------------------------------------------------

    def moment(self, seq: int) -> protocol.MomentAnswer:
        """Return a moment with all that is recorded of it."""
        with self._lock:
            session, at = self._at(seq)
            entry, look = session.inspect.locate(at), session.inspect
            shown = self._shown
            return protocol.MomentAnswer(
                moment=self.row(entry),
                position=str(session.position),
                line=shown.text(look.line(entry)),
                facts=shown.value(shown.named(look.details(at))),
                stack=[
                    protocol.FrameRow(**{**asdict(frame), "text": shown.text(frame.text)})
                    for frame in look.where(at)
                ],
                call=shown.value(look.call(at)),
            )

    def request(self, seq: int) -> protocol.RequestAnswer:
        """Return the request of a moment, without its messages: see `blame`."""
        with self._lock:
            session, at = self._at(seq)
            found = session.request(at)
            return protocol.RequestAnswer(
                seq=found.seq,
                position=found.position,
                when=found.when,
                exact=found.exact,
                note=found.note,
                model=found.model,
                purpose=found.purpose,
                tools=found.tools,
                settings=self._shown.value(found.settings),
                messages=len(found.messages),
            )

    def blame(self, seq: int, offset: int | None, limit: int) -> protocol.BlameAnswer:
        """Return parts of a moment's request, each with its source; by default the last ones."""
        with self._lock:
            session, _ = self._at(seq)
            asked = _asking(session.inspect.moments(), seq)
            parts = session.journal.blame(asked) if session.journal is not None else []
            start = max(0, len(parts) - limit) if offset is None else offset
            rows = [
                protocol.PartRow(
                    **{**asdict(part), "value": self._shown.value(plain(part.value), part.name)}
                )
                for part in parts[start : start + limit]
            ]
        return protocol.BlameAnswer(seq=asked, parts=rows, offset=start, total=len(parts))

    def state(self, seq: int, path: str, offset: int, limit: int) -> protocol.ValueAnswer:
        """Return the state at a moment, or a part of the value at a path in it."""
        with self._lock:
            session, at = self._at(seq)
            value = session.inspect.state(path or None, at)
        total = len(value) if isinstance(value, list | dict) else None
        if isinstance(value, list):
            value = value[offset : offset + limit]
        elif isinstance(value, dict):
            value = dict([*value.items()][offset : offset + limit])
        shown = self._shown.value(value, _name_in(path))
        return protocol.ValueAnswer(path=path, value=shown, offset=offset, total=total)

    def diff(self, seq: int, to: int | None) -> protocol.DiffAnswer:
        """List the changes of a moment's step, or those from a moment to a later one."""
        with self._lock:
            session, at = self._at(seq)
            found = session.inspect.diff() if to is None else session.inspect.diff(at, f"#{to}")
            found, end = found[: protocol.MOST], to or session.inspect.step_end().seq
        rows = [
            protocol.ChangeRow(
                path=self._shown.text(change.path),
                op=change.op,
                before=self._shown.value(change.before, _name_in(change.path)),
                after=self._shown.value(change.after, _name_in(change.path)),
            )
            for change in found
        ]
        return protocol.DiffAnswer(changes=rows, at=end)

    def writes(self, seq: int) -> protocol.WritesAnswer:
        """List the writes that the state at a moment does not include yet."""
        with self._lock:
            session, at = self._at(seq)
            found = session.inspect.pending(at)
        shown = [
            {**write, "value": self._shown.value(write["value"], write["channel"])}
            for write in found
        ]
        return protocol.WritesAnswer(writes=[protocol.WriteRow(**write) for write in shown])

    def why(self, seq: int, path: str) -> protocol.WhyAnswer:
        """List the causes of a value in the state at a moment."""
        with self._lock:
            session, at = self._at(seq)
            found = session.why(path, at)
        causes = [
            protocol.CauseRow(**{**asdict(cause), "text": self._shown.text(cause.text)})
            for cause in found
        ]
        return protocol.WhyAnswer(path=path, causes=causes)

    def route(self, seq: int) -> protocol.RouteAnswer:
        """Return the router's decision of a moment."""
        with self._lock:
            session, at = self._at(seq)
            return protocol.RouteAnswer(**self._shown.value(asdict(session.inspect.route(at))))

    def tokens(self, seq: int) -> protocol.TokensAnswer:
        """Return the usage of the model calls of a moment's branch, the last ones."""
        with self._lock:
            session, _ = self._at(seq)
            rows = session.inspect.tokens()
        made = [protocol.TokenRow(**row) for row in rows[-protocol.MOST :]]
        return protocol.TokensAnswer(rows=made, total=len(rows))

    def compare(self, run: int, other: Answers, theirs: int) -> protocol.CompareAnswer:
        """Compare a run with one of this thread, or the latest branches of two threads."""
        with ExitStack() as locks:
            for answers in sorted({self, other}, key=id):  # as every comparison does
                locks.enter_context(answers._lock)
                answers._fresh()
            one = self._session(self._journal.run(run).branch)
            if other is self:
                a, b = (self._journal.run(number) for number in (run, theirs))
                if a.branch == b.branch:
                    made = one.compare(a.run_id, b.run_id)
                else:  # a fork's run alone lacks its beginning
                    made = one.compare(a.branch, b.branch)
            else:
                made = one.compare(one, other._session(other._journal.run(theirs).branch))
        text = self._shown.text
        rows = [
            protocol.CompareRow(
                **{
                    **asdict(row),
                    "a": None if row.a is None else text(row.a),
                    "b": None if row.b is None else text(row.b),
                }
            )
            for row in made.rows[: protocol.MOST]
        ]
        first = None if made.first is None else text(made.first)
        return protocol.CompareAnswer(
            first=first, rows=rows, total=len(made.rows), tokens=made.tokens, seconds=made.seconds
        )

    def preview(self, seq: int) -> protocol.PreviewAnswer:
        """List what a fork from a moment would execute; this executes nothing."""
        with self._lock:
            session, at = self._at(seq)
            found = session.will_execute(at)
        return protocol.PreviewAnswer(at=seq, will_execute=self.planned(found), total=len(found))

    def move(self, seq: int, verb: str) -> protocol.StopAnswer:
        """Return where a verb leads from a moment."""
        with self._lock:
            session, _ = self._at(seq)
            return self.stop(session.verb(verb))

    def blob(self, name: str, offset: int) -> protocol.BlobAnswer:
        """Return a piece of a text that an answer cut."""
        return self._shown.blob(name, offset)

    # --- a session -------------------------------------------------------------------------------

    def session(self) -> DebugSession:
        """Open a session of one's own over the latest branch; its owner closes it."""
        return self._opened(self._read(), None)

    def catch_up(self, session: DebugSession) -> None:
        """Add what others have recorded since to a session that holds no run."""
        if not session.held and session.mode != "LIVE running" and session.journal is not None:
            with suppress(StorageError, ThreadNotFoundError):
                caught_up(session, self._read())

    def place_of(self, session: DebugSession, seq: int) -> str:
        """Return the position of a moment; one of another branch names that."""
        with suppress(StorageError):
            if session.journal is not None:
                return f"b{session.journal.moment(seq).branch}#{seq}"
        return f"#{seq}"

    def described(self, name: str, session: DebugSession) -> protocol.SessionAnswer:
        """Describe a session."""
        here, every, text = session.here, session.inspect.moments(), self._shown.text
        points = [
            protocol.BreakpointRow(number=point.number, spec=text(point.spec), hits=point.hits)
            for point in session.breakpoints
        ]
        return protocol.SessionAnswer(
            session=name,
            thread_id=session.thread_id or self.thread_id,
            seq=None if here is None else here.seq,
            position=str(session.position),
            mode=session.mode,
            held=session.held,
            executes=session.held and here is not None and here.seq == every[-1].seq,
            executed=session.executed,
            breakpoints=points,
        )

    def planned(self, found: list[Planned]) -> list[protocol.PlannedRow]:
        """Return what would execute as rows."""
        return [
            protocol.PlannedRow(**{**asdict(one), "text": self._shown.text(one.text)})
            for one in found[: protocol.MOST]
        ]

    def lines(self, lines: list[str]) -> list[str]:
        """Return lines of output without secrets, the last ones if there are many."""
        with self._lock, suppress(ThreadNotFoundError):
            self._fresh()
        return [self._shown.text(line) for line in lines[-_LINES:]]

    def stop(self, stop: Stop) -> protocol.StopAnswer:
        """Describe a stop."""
        return protocol.StopAnswer(
            reason=stop.reason,
            seq=None if stop.entry is None else stop.entry.seq,
            position=stop.position,
            mode=stop.mode,
            text=self._shown.text(stop.text),
            moved=stop.moved,
            breakpoint=stop.breakpoint,
        )

    # --- inside ----------------------------------------------------------------------------------

    def row(self, entry: Entry) -> protocol.MomentRow:
        """Return a moment as a row of a list; it reads nothing."""
        text: Callable[[str], str] = self._shown.text
        return protocol.MomentRow(
            seq=entry.seq,
            run=entry.run,
            branch=entry.branch,
            step=entry.step,
            depth=entry.depth,
            kind=entry.kind,
            phase=entry.phase,
            name=text(entry.name),
            hook_phase=entry.hook_phase,
            node=None if entry.node is None else text(entry.node),
            tool=None if entry.tool is None else text(entry.tool),
            call_id=entry.call_id,
            status=entry.status,  # type: ignore[arg-type]  # one of the three
            is_left=entry.is_left,
            at_us=entry.at_us,
            duration_us=entry.duration_us,
            error=None if entry.error is None else text(entry.error),
        )

    def _run(self, run: RunRecord) -> protocol.RunRow:
        fields = protocol.RunRow.model_fields
        known = {name: getattr(run, name) for name in fields}
        ended = None if run.ended is None else run.ended.isoformat()
        return protocol.RunRow(**{**known, "started": run.started.isoformat(), "ended": ended})

    def file(self, picture: Picture | None = None) -> str:
        """Return the recording as one HTML file, with secrets hidden."""
        with self._lock:
            self._fresh()
            journal, hider = self._journal, Hider.of(self._journal)
        return as_page(journal, hider, None, picture)  # reads by itself: others need not wait

    def _read(self) -> Journal:
        return Journal(self._saver, self.thread_id, keep=_CHECKPOINTS)

    def _fresh(self) -> list[RunRecord]:
        """Return the runs; take note of what was recorded since the last call."""
        try:
            runs = self._journal.runs()
        except ThreadNotFoundError:  # a session's thread begins with its first run
            self._shown = Showing(Hider(Mask(b"", known_secrets(), inside=True)))
            raise
        seen = (self._journal.last(), [(run.number, run.status) for run in runs])
        if seen != self._seen:
            if self._seen is not None:
                self._catch_up(len(runs))
            self._seen = seen
        secrets = known_secrets(), [(run.redact, run.secrets) for run in runs]
        if secrets != self._secrets:  # a later run or agent may know more of them
            self._shown, self._secrets = Showing(Hider.of(self._journal)), secrets
        return runs

    def _catch_up(self, runs: int) -> None:
        """Read what is new; cached checkpoints may have got more writes."""
        self._journal = self._read()
        if runs:
            for branch, session in [*self._sessions.items()]:
                if not caught_up(session, self._read()):
                    self._sessions.pop(branch).close()
        else:
            self.close()

    def _session(self, branch: int) -> DebugSession:
        if branch not in self._sessions:
            self._sessions[branch] = self._opened(self._journal, branch)
        return self._sessions[branch]

    def _opened(self, journal: Journal, branch: int | None) -> DebugSession:
        session = self._open(journal, branch=branch)
        if self._state is not None:  # the session itself gets no agent, so it can run nothing
            session._cursor.views.json.reducers = self._state.reducers
        return session

    def _at(self, seq: int) -> tuple[DebugSession, str]:
        """Return a session with its cursor at a moment, and the position."""
        runs = self._fresh()
        branch = self._journal.moment(seq).branch if runs else 0
        session, at = self._session(branch), f"#{seq}"
        session.goto(at)
        return session, at


def _spread(found: list[int]) -> list[int]:
    """Return at most `MOST` of some numbers, evenly."""
    every = -(-len(found) // protocol.MOST) or 1
    return found[::every]


def _name_in(path: str) -> str:
    """Return the last name in a path: of a secret's item, that of the secret."""
    try:
        steps = read_path(path)
    except DebugError:  # a foreign name
        return ""
    return next((step for step in reversed(steps) if isinstance(step, str)), "")


def caught_up(session: DebugSession, journal: Journal) -> bool:
    """Add what others have recorded since; the cursor stays. False if all must be read again.

    Args:
        session: A session over a recording.
        journal: The same thread's journal, with nothing cached.
    """
    with session._lock:
        cursor = session._cursor
        timeline, at = cursor.timeline, cursor.at
        if not timeline.extend(journal):
            return False
        cursor.look_at(journal, timeline)
        cursor.at = at
    return True


def _asking(entries: list[Entry], seq: int) -> int:
    """Return the moment of the request that a moment shows: its own, the last before, or the next.

    Raises:
        DebugError: No model was called.
    """
    asking = [e.seq for e in entries if e.kind == "model" and e.phase in REQUESTS]
    if not asking:
        raise DebugError("no model was called on this branch")
    return asking[max(0, bisect_right(asking, seq) - 1)]
