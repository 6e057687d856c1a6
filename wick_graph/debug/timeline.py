"""The moments of one branch in order, and their positions as text.

A position is `@12`, `@12.3`, `b1@12`, `t42/b1@12` or `#57`. `@12` is the entry of step 12, the
twelfth visit of a node, and `@12.3` the third moment in it. `@-3` counts steps from the end;
`@first`, `@last` and `@error` are moments, too. A moment outside of all nodes has only its number:
`#57`.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from wick_graph import langgraph_config
from wick_graph.errors import DebugError
from wick_graph.journal.entry import GAP, Entry, RunRecord
from wick_graph.journal.journal import Journal
from wick_graph.journal.page_format import NODES
from wick_graph.store.row_format import pack_id, unpack_id
from wick_graph.store.saver import SqlSaver

_FORM: Final = re.compile(
    r"(?:(?P<thread>[^\s/].{0,254})/)?(?:b(?P<branch>\d{1,9}))?"
    r"(?:@(?P<word>first|last|error)|@(?P<step>-?\d{1,9})(?:\.(?P<part>\d{1,9}))?|#(?P<seq>\d{1,12}))"
)

FORMS: Final = "@12, @12.3, @-1, @first, @last, @error, #57, or b1@12"


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a thread's recording."""

    thread: str | None = None
    branch: int | None = None
    word: str | None = None
    """`first`, `last` or `error`."""
    step: int | None = None
    part: int | None = None
    """The moment within its step, from 1."""
    seq: int | None = None

    @classmethod
    def read(cls, text: str) -> Position:
        """Read a position.

        Raises:
            DebugError: It is not a position.
        """
        found = _FORM.fullmatch(text.strip())
        if found is None:
            raise DebugError(f"{text[:80]!r} is no position; write {FORMS}")
        numbers = {
            name: None if found[name] is None else int(found[name])
            for name in ("branch", "step", "part", "seq")
        }
        return cls(thread=found["thread"], word=found["word"], **numbers)

    def __str__(self) -> str:
        """Write it in full."""
        thread = f"{self.thread}/" if self.thread else ""
        branch = "" if self.branch is None else f"b{self.branch}"
        if self.seq is not None:
            return f"{thread}{branch}#{self.seq}"
        if self.word is not None:
            return f"{thread}{branch}@{self.word}"
        part = f".{self.part}" if self.part not in (None, 1) else ""
        return f"{thread}{branch}@{self.step}{part}"


class Steps:
    """Index of the moments of each step of a recording."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries
        self._seen = 0
        self._of: dict[int, list[int]] = {}

    def of(self, step: int) -> list[int]:
        """Return the places of a step's moments; empty if there is no such step."""
        for at in range(self._seen, len(self._entries)):
            if self._entries[at].step:
                self._of.setdefault(self._entries[at].step, []).append(at)
        self._seen = len(self._entries)
        return self._of.get(step, [])

    @property
    def last(self) -> int:
        """The number of the last step, 0 if there is none."""
        self.of(0)
        return max(self._of, default=0)

    def position(self, at: int, thread: str | None, branch: int) -> Position:
        """Return the position of the moment at a place."""
        entry = self._entries[at]
        if not entry.step:
            return Position(thread, branch, seq=entry.seq)
        return Position(thread, branch, step=entry.step, part=self.of(entry.step).index(at) + 1)

    def place(self, wanted: Position) -> int:
        """Return the place of a step's moment.

        Raises:
            DebugError: There is none.
        """
        step = wanted.step or 0
        if step < 0:
            step += self.last + 1
        held = self.of(step) if step > 0 else []
        if not held:
            raise DebugError(f"there is no step {wanted.step}; the last one is @{self.last}")
        part = 1 if wanted.part is None else wanted.part
        if not 1 <= part <= len(held):
            raise DebugError(
                f"step @{step} has {len(held)} moments, and no {part}; write @{step}.1"
            )
        return held[part - 1]


CHECKPOINT: Final = "checkpoint"
"""The kind of a moment made from a checkpoint, in a thread without a journal."""

_FAR: Final = 1_000
"""Limit of checkpoints in the search for a branch's beginning."""

_MOST: Final = 2_000
"""Limit of checkpoints that become moments, the newest ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """One branch of a thread's recording."""

    number: int
    parent: int | None
    """Its parent branch; None for a thread's first one."""
    at: str | None
    """The checkpoint at which it forked off."""
    runs: tuple[str, ...]
    moments: int
    """Number of its own moments."""


class Timeline:
    """A branch's moments. Live ones are added at the end; recorded ones are read once."""

    def __init__(self, thread_id: str | None, branch: int, entries: Sequence[Entry]) -> None:
        self.thread_id = thread_id
        self.branch = branch
        self.entries: list[Entry] = list(entries)
        self.shape: Mapping[str, Any] | None = None
        """Of a graph that is no agent's and keeps no journal: its channels and nodes."""
        self.steps = Steps(self.entries)
        self._seqs = [entry.seq for entry in entries]

    def __len__(self) -> int:
        return len(self.entries)

    def add(self, entry: Entry) -> int:
        """Add a live moment, and return its place."""
        self.entries.append(entry)
        self._seqs.append(entry.seq)
        return len(self.entries) - 1

    def extend(self, journal: Journal) -> bool:
        """Add what was recorded since; False, and nothing added, if more than that has changed."""
        last = self._seqs[-1] if self._seqs else 0
        found = list(journal.moments(after=last))
        if self.entries and self.entries[-1].phase == "lost":  # a new run replaces such moments
            return False
        if any(entry.kind == GAP or entry.branch != self.branch for entry in found):
            return False
        for entry in found:
            self.add(entry)
        return True

    def place(self, seq: int) -> int | None:
        """Return the place of a moment, or None if it is on another branch."""
        at = bisect_left(self._seqs, seq)
        return at if at < len(self._seqs) and self._seqs[at] == seq else None

    def position(self, at: int) -> Position:
        """Return the position of the moment at a place."""
        return self.steps.position(at, self.thread_id, self.branch)

    def find(self, wanted: Position) -> int:
        """Return the place of a position.

        Raises:
            DebugError: There is none on this branch.
        """
        if not self.entries:
            raise DebugError("nothing is recorded here")
        if wanted.seq is not None:
            at = self.place(wanted.seq)
            if at is None:
                last = self._seqs[-1]
                raise DebugError(f"this branch has no moment #{wanted.seq}; its last is #{last}")
            return at
        if wanted.word == "first":
            return 0
        if wanted.word == "last":
            return len(self.entries) - 1
        if wanted.word == "error":
            found = next((i for i, e in enumerate(self.entries) if e.is_bad), None)
            if found is None:
                raise DebugError("no error is recorded on this branch")
            return found
        return self.steps.place(wanted)

    def of_task(self, at: int) -> Iterator[Entry]:
        """Yield the moments of the same visit of a node, backwards from a place."""
        task = self.entries[at].task
        for place in range(at, -1, -1):
            entry = self.entries[place]
            if entry.task == task:
                yield entry
                if entry.what == "node.enter":
                    return

    def superstep(self, at: int) -> Iterator[Entry]:
        """Yield the moments up to a place with the same checkpoint, backwards."""
        checkpoint, level = self.entries[at].checkpoint, self.entries[at].level
        for place in range(at, -1, -1):
            entry = self.entries[place]
            if entry.checkpoint == checkpoint:
                yield entry
            elif entry.checkpoint is not None and entry.level == level:
                return


class BranchReader:
    """Reads the branches of a thread from its journal."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.runs = journal.runs()
        self.entries = list(journal.moments())

    def branches(self) -> list[Branch]:
        """List the branches, the oldest first."""
        numbers = sorted({run.branch for run in self.runs})
        return [self._branch(number) for number in numbers]

    def timeline(self, branch: int | None = None) -> Timeline:
        """Return the moments of a branch; by default of the latest one.

        Raises:
            DebugError: There is no such branch.
        """
        known = {run.branch for run in self.runs}
        number = max(known, default=0) if branch is None else branch
        if number not in known and known:
            raise DebugError(f"there is no branch b{number}; the last one is b{max(known)}")
        return Timeline(self.journal.thread_id, number, self._line(number))

    def _branch(self, number: int) -> Branch:
        runs = [run for run in self.runs if run.branch == number]
        parent, at = self._origin(runs[0])
        own = sum(1 for entry in self.entries if entry.branch == number and entry.kind != GAP)
        ids = tuple(run.run_id for run in runs)
        return Branch(number=number, parent=parent, at=at, runs=ids, moments=own)

    def _line(self, number: int) -> list[Entry]:
        runs = [run for run in self.runs if run.branch == number]
        own = [e for e in self.entries if e.branch == number and (e.kind != GAP or number == 0)]
        parent, at = self._origin(runs[0]) if runs else (None, None)
        if parent is None or at is None:
            return own
        line = self._line(parent)
        cut = next((i for i, e in enumerate(line) if (e.checkpoint or "") >= at), len(line))
        while cut and line[cut - 1].what == "run.enter":
            cut -= 1  # a run of the parent without progress by then
        first = runs[0].first
        return [entry for entry in line[:cut] if entry.seq < first] + own

    def _origin(self, first: RunRecord) -> tuple[int | None, str | None]:
        """Return the branch from which a run forked off, and the checkpoint."""
        if first.branch == 0 or first.base is None:
            return None, None
        known = {
            entry.checkpoint: entry.branch
            for entry in reversed(self.entries)
            if entry.seq < first.first and entry.checkpoint is not None
        }
        journal, at = self.journal, pack_id(first.base)
        with journal.reading() as db:
            thread = journal.rows.thread(db)
            for _ in range(_FAR):
                name = unpack_id(at)
                if name in known:
                    return known[name], name
                above = journal.rows.parent_of(db, thread, at)
                if above is None:
                    break
                at = above
        return None, None


def checkpoints_only(saver: SqlSaver, thread_id: str) -> list[Entry]:
    """Make moments from a thread's checkpoints, if there is no journal."""
    config: Any = langgraph_config.with_configurable(
        None, **{langgraph_config.THREAD_ID: thread_id, langgraph_config.CHECKPOINT_NS: ""}
    )
    found = list(saver.list(config, limit=_MOST))[::-1]
    made, before = [], None
    for at, one in enumerate(found, 1):
        made.append(_stand_in(thread_id, at, one, _ran(before, one)))
        before = one
    return made


def _ran(before: Any, found: Any) -> list[str]:
    """Return the nodes that ran between two checkpoints."""
    then = {} if before is None else before.checkpoint["versions_seen"]
    now = found.checkpoint["versions_seen"]
    return [n for n, seen in now.items() if not n.startswith("__") and seen != then.get(n)]


def shape_of(saver: SqlSaver, entries: Sequence[Entry]) -> Mapping[str, Any] | None:
    """Return the shape of the graph of a thread without a journal; None for an agent's."""
    ran = dict.fromkeys(name for entry in entries for name in entry.fields.get("nodes", ()))
    if not ran or ran.keys() & NODES.keys():
        return None
    at = langgraph_config.Address(entries[-1].thread_id, "", entries[-1].checkpoint)
    saved = saver.get_tuple(at.config())
    known = {} if saved is None else saved.checkpoint["channel_versions"]
    own = {name: "" for name in known if not name.startswith(langgraph_config.HIDDEN)}
    return {"channels": own, "nodes": [*ran]}


def _stand_in(thread_id: str, at: int, found: Any, ran: list[str]) -> Entry:
    metadata: Mapping[str, Any] = found.metadata or {}
    made = datetime.fromisoformat(found.checkpoint["ts"])
    return Entry(
        thread_id=thread_id,
        seq=at,
        run=0,
        run_id=str(metadata.get("run_id") or ""),
        branch=0,
        kind=CHECKPOINT,
        phase=str(metadata.get("source") or "loop"),
        name=f"step {metadata.get('step', '?')}{': ' if ran else ''}{', '.join(ran)}",
        fields={"nodes": ran},
        hook_phase=None,
        node=None,
        task=None,
        checkpoint=str(langgraph_config.configurable(found.config)[langgraph_config.CHECKPOINT_ID]),
        superstep=None,
        step=at,
        visit=at,
        call_id=None,
        tool=None,
        parent=None,
        depth=0,
        at=made if made.tzinfo else made.replace(tzinfo=UTC),
        at_us=0,
        duration_us=None,
        error=None,
    )
