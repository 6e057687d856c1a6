"""Follow sub-agents, which have threads of their own: the links from thread to thread."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from wick_graph.errors import DebugError
from wick_graph.journal.entry import Entry
from wick_graph.journal.journal import Journal


@dataclass(frozen=True, slots=True)
class Link:
    """A moment in another thread."""

    thread_id: str
    seq: int
    agent: str


def children_of(journal: Journal) -> dict[str, list[Entry]]:
    """Return the moments that start sub-agents, by their threads."""
    found: dict[str, list[Entry]] = {}
    for entry in journal.moments(kind="agent.spawn"):
        found.setdefault(entry.fields["t"], []).append(entry)
    return found


def caller_of(journal: Journal) -> Link | None:
    """Return the moment that started this thread; None if no recorded agent did."""
    info = journal.saver.threads.look(journal.thread_id)
    if info is None or info.parent is None or journal.saver.threads.look(info.parent) is None:
        return None
    above = Journal(journal.saver, info.parent)
    spawned = children_of(above).get(journal.thread_id)
    if not spawned:
        return None
    return Link(info.parent, spawned[-1].seq, above.run(spawned[-1].run).agent)


def related(journal: Journal) -> Iterator[Journal]:
    """Yield the recordings of a thread's callers, and of its sub-agents and theirs."""
    seen, above = {journal.thread_id}, journal
    while (link := caller_of(above)) is not None and link.thread_id not in seen:
        above = Journal(journal.saver, link.thread_id)
        seen.add(link.thread_id)
        yield above
    waiting = [journal]
    while waiting:
        for thread in children_of(waiting.pop()).keys() - seen:
            seen.add(thread)
            if journal.saver.threads.look(thread) is not None:
                waiting.append(Journal(journal.saver, thread))
                yield waiting[-1]


def begun_by(journal: Journal, entry: Entry) -> Link:
    """Return where the run that a moment started begins: the first such moment, the first run.

    Raises:
        DebugError: The sub-agent's thread is not in this store, or has no recording.
    """
    thread = str(entry.fields["t"])
    known = journal.saver.threads.look(thread) is not None
    runs = Journal(journal.saver, thread).runs() if known else []
    if not runs:
        raise DebugError(f"the thread {thread} of the agent {entry.name} is not recorded here")
    spawned = [one.seq for one in children_of(journal).get(thread, ())]
    run = runs[min(spawned.index(entry.seq), len(runs) - 1)] if entry.seq in spawned else runs[-1]
    return Link(thread, run.first, entry.name)


def lines_of(journal: Journal) -> Iterator[str]:
    """Yield a line for the caller of a thread, and one for each of its sub-agents."""
    if (above := caller_of(journal)) is not None:
        yield f"↑ {above.thread_id}, agent {above.agent}, called from #{above.seq}"
    for thread, spawned in children_of(journal).items():
        at = ", ".join(f"#{entry.seq}" for entry in spawned)
        yield f"↓ {thread}, agent {spawned[0].name}, from {at}"
