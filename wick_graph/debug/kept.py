"""A fork's edits and policy as data: kept with its runs, for any process that goes on with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, Final

from langchain_core.messages import AIMessage

from wick_graph.debug.policy import Decider, Edit, Mock, Policy, edit_of
from wick_graph.errors import DebugError, StorageError
from wick_graph.journal.entry import Entry
from wick_graph.journal.journal import Journal
from wick_graph.journal.lost import body_of
from wick_graph.journal.replay import Tape
from wick_graph.messages import to_wick
from wick_graph.store.keeping.journal_rows import RunRow
from wick_graph.store.values.rows import unpack_id

FACT: Final = "fork"
"""The name under which a run's row has it."""
Told = dict[str, Any]


class _Before(Journal):
    """A journal up to a moment: what a fork's calls were answered from when it was made."""

    def __init__(self, journal: Journal, first: int) -> None:
        super().__init__(journal.saver, journal.thread_id)
        self._first = first

    def moments(self, *args: Any, **wanted: Any) -> Iterator[Entry]:
        """Yield moments; see `JournalReader.moments`."""
        return takewhile(lambda e: e.seq < self._first, super().moments(*args, **wanted))


def told_of(policy: Policy, edits: Sequence[Edit]) -> Told:
    """Return what a fork was made with, as data."""
    return {
        "model": _choice(policy.model),
        "tools": [[name, _choice(choice)] for name, choice in policy.tools.items()],
        "other": _choice(policy.other),
        "missing": policy.missing,
        "missing_model": policy.missing_model,
        "edits": [{name: _plain(value) for name, value in edit.told.items()} for edit in edits],
    }


def kept_decider(journal: Journal) -> tuple[Decider, Told] | None:
    """Return what decides about the calls of a fork that is gone on with; None if it is no fork.

    Raises:
        DebugError: It was a fork whose edits and policy could not be kept.
    """
    found = _found(journal)
    return None if found is None else (_decider(journal, *found), found[0])


def kept_policy(journal: Journal) -> Policy | None:
    """Return the policy of a fork that would be gone on with; see `kept_decider`.

    Raises:
        DebugError: It was a fork whose edits and policy could not be kept.
    """
    found = _found(journal)
    return None if found is None else _policy(found[0])


def _found(journal: Journal) -> tuple[Told, RunRow] | None:
    """Return what the fork was made with in which a thread stands, and the run it began with."""
    with journal.reading() as db:
        rows = journal.rows.run_rows(db, journal.rows.thread(db))
    branch = rows[-1].branch if rows else 0
    for row in reversed(rows):
        body = body_of(row)
        if row.branch != branch:
            return None
        if FACT in body:
            told = _read(journal, body[FACT])
            return told, next(one for one in rows if one.branch == branch)
        if body.get("mode") == "input":
            return None
    return None


def _read(journal: Journal, reference: bytes) -> Told:
    try:
        told = journal.value(reference) if reference else None
    except StorageError:
        told = None
    if not isinstance(told, dict) or "edits" not in told:
        raise DebugError(
            f"thread {journal.thread_id} stands in a fork whose edits and policy were not kept, "
            "since they hold a secret or are too large; fork again from its moment, or call "
            "agent.resume to go on without them: every call is then really made"
        )
    return told


def _decider(journal: Journal, told: Told, began: RunRow) -> Decider:
    """Make it again; `began` is the run that the fork began with."""
    first, origin, branch = body_of(began)["first"], unpack_id(began.run), began.branch
    own = [entry for entry in journal.moments(after=first - 1) if entry.branch == branch]
    edits = [edit_of(one, origin) for one in told["edits"] if not _is_done(one, own)]
    return Decider(_policy(told), Tape(_Before(journal, first)), edits, origin)


def _policy(told: Told) -> Policy:
    return Policy(
        model=_chosen(told["model"]),
        tools={name: _chosen(choice) for name, choice in told["tools"]},
        other=_chosen(told["other"]),
        missing=told["missing"],
        missing_model=told["missing_model"],
    )


def _is_done(edit: Mapping[str, Any], own: Sequence[Entry]) -> bool:
    """Say whether the visit that an edit is about has ended: it is not done again."""
    ended = {entry.task for entry in own if entry.what == "node.exit"}
    if "call" in edit:
        calls = (e for e in own if e.what == "tool.exit" and e.call_id == edit["call"])
        return any(True for _ in calls)
    asked = [entry.task for entry in own if entry.what == "model.request"]
    return any(task in ended for task in asked[edit["nth"] - 1 :])


def _choice(choice: Any) -> Any:
    return {"mock": _plain(choice.value)} if isinstance(choice, Mock) else choice


def _chosen(kept: Any) -> Any:
    return Mock(kept["mock"]) if isinstance(kept, dict) else kept


def _plain(value: Any) -> Any:
    return to_wick(value) if isinstance(value, AIMessage) else value
