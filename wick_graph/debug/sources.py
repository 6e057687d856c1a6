"""Open the recording of a session from any source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from wick_graph.debug.timeline import BranchReader, Timeline, checkpoints_only, shape_of
from wick_graph.engine.agent import Agent
from wick_graph.errors import DebugError, ThreadNotFoundError
from wick_graph.exports.wickrun import open_wickrun
from wick_graph.journal.entry import RunRecord
from wick_graph.journal.journal import Journal
from wick_graph.journal.run_start import about
from wick_graph.store.saver import SqlSaver
from wick_graph.store.threads import ThreadInfo

SUFFIX = ".wickrun"


@dataclass(slots=True)
class Found:
    """An open recording."""

    journal: Journal | None
    timeline: Timeline
    agent: Any
    banners: list[str]
    close: Callable[[], None]
    read_only: str = ""
    """Why nothing runs in its thread; empty if runs may."""
    waits: bool = False
    """Whether the thread waits in its store between two steps, and can be continued."""


def find(source: Any, thread_id: str | None, agent: Any, branch: int | None) -> Found:
    """Open a source: an agent, a store, a journal, a database's URL, or a `.wickrun` file.

    Raises:
        DebugError: It holds no thread, or the thread id is missing.
        ThreadNotFoundError: There is no such thread.
        StorageError: The file or database cannot be read.
    """
    with ExitStack() as stack:
        saver, journal, thread_id = _opened(source, thread_id, stack)
        if hasattr(source, "spec") and agent is None:
            agent = source
        close = stack.pop_all().close
    if journal is None and saver is not None and thread_id is not None:
        journal = Journal(saver, thread_id)
    if journal is None or saver is None:
        return Found(None, Timeline(thread_id, 0, ()), agent, [], close)
    try:
        timeline, banners = _trail(saver, journal, branch)
    except BaseException:
        close()
        raise
    banners += other_code(journal, agent)
    info, is_file = saver.threads.look(journal.thread_id), _is_file(source)
    why = _FILE if is_file else _ELSEWHERE if _is_elsewhere(agent, saver, info) else ""
    waits = info is not None and info.status == "waiting" and not is_file
    return Found(journal, timeline, agent, banners, close, read_only=why, waits=waits)


_FILE: Final = "this is a file; open the thread's database to run something"

_ELSEWHERE: Final = (
    "the agent's store is not the one of this thread; give the agent this store to run something"
)


def _is_elsewhere(agent: Any, saver: SqlSaver, info: ThreadInfo | None) -> bool:
    """Say whether an agent would run in another store's thread, which may have the same id."""
    own = agent.store if isinstance(agent, Agent) else None
    if info is None or own is saver or not isinstance(own, SqlSaver):
        return False
    there = own.threads.look(info.thread_id)
    return there is None or there.created != info.created


def _opened(
    source: Any, thread_id: str | None, stack: ExitStack
) -> tuple[SqlSaver | None, Journal | None, str | None]:
    if isinstance(source, Journal):
        return source.saver, source, source.thread_id
    if isinstance(source, SqlSaver):
        return source, None, _named(thread_id)
    if isinstance(source, str | Path) and _is_file(source):
        held = stack.enter_context(open_wickrun(source))
        return held.saver, held.journal, held.thread_id
    if isinstance(source, str) and "://" in source:
        return stack.enter_context(SqlSaver.from_url(source)), None, _named(thread_id)
    store = getattr(source, "store", None)
    if hasattr(source, "spec"):
        if thread_id is not None and not isinstance(store, SqlSaver):
            raise DebugError("this agent's store keeps no journal; give it a database URL")
        return store if isinstance(store, SqlSaver) else None, None, thread_id
    raise DebugError(
        f"{source!r:.80} cannot be debugged; give an agent, a store, a database's URL, "
        f"or a {SUFFIX} file"
    )


def _is_file(source: Any) -> bool:
    return isinstance(source, str | Path) and str(source).endswith(SUFFIX)


def _named(thread_id: str | None) -> str:
    if thread_id is None:
        raise DebugError("say which thread; list the threads of the store to see them")
    return thread_id


def _trail(saver: SqlSaver, journal: Journal, branch: int | None) -> tuple[Timeline, list[str]]:
    if saver.threads.look(journal.thread_id) is None:
        raise ThreadNotFoundError(
            f"there is no thread {journal.thread_id!r}; list the threads to see them"
        )
    lines = BranchReader(journal)
    if lines.runs:
        return lines.timeline(branch), [*notes_of(lines.runs), *journal.problems()]
    entries = checkpoints_only(saver, journal.thread_id)
    missing = "recorded without a journal: hooks, prompts and tools are not known"
    made = Timeline(journal.thread_id, 0, entries)
    made.shape = shape_of(saver, entries)
    return made, [missing]


def has_thread_of(store: SqlSaver, journal: Journal) -> bool:
    """Return whether a store has the thread of a recording from elsewhere, maybe with later runs.

    Its id alone does not tell, since another thread may have the same: the last recorded run must
    be known, or without any the last checkpoint.
    """
    here, runs = Journal(store, journal.thread_id), journal.runs()
    try:
        if runs:
            return runs[-1].run_id in {run.run_id for run in here.runs()}
        steps = checkpoints_only(journal.saver, journal.thread_id)
        return bool(steps) and here.saved(steps[-1].checkpoint or "") is not None
    except ThreadNotFoundError:  # asking for it first would count as its use
        return False


def notes_of(runs: Sequence[RunRecord]) -> list[str]:
    """Return what a reader has to know of recorded runs: which are lost, what they lack."""
    lost = [
        f"run {run.number} is lost: its process ended before it did"
        for run in runs
        if run.status == "lost"
    ]
    found = dict.fromkeys(seam for run in runs for seam in run.shape.get("lacks", ()))
    told = "this release of LangGraph does not tell a recording of its"
    lacks = [f"{told} {', '.join(found)}: callbacks recorded what they can"] if found else []
    return lost + lacks


def other_code(journal: Journal, agent: Any) -> list[str]:
    """Return how the present agent differs from the recorded one."""
    runs = journal.runs()
    spec = getattr(agent, "spec", None)
    if spec is None or not runs:
        return []
    now, then = about(spec), runs[-1]
    told = []
    if then.graph_hash and now["graph"] != then.graph_hash:
        told.append("recorded with another prompt, hook list, limit or tool schema")
    if then.code_hash and now["code"] != then.code_hash:
        told.append("recorded with other code of hooks or tools")
    return told
