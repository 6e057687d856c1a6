"""`Journal`: what a thread's runs did, and what stood behind each moment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

from langchain_core.messages import AIMessage, ToolMessage

from wick_graph.journal.blame import Blame, BlameReader
from wick_graph.journal.details import Details
from wick_graph.journal.entry import Entry, RunRecord
from wick_graph.journal.reading import JournalReader
from wick_graph.journal.rebuild import Reconstruction, RecordedRequest, RecordedState
from wick_graph.journal.recorded import Recorded, RecordedCall, RecordedReply
from wick_graph.store.database.dialect import Database
from wick_graph.store.keeping.journal_rows import JournalRows
from wick_graph.store.saver import SqlSaver


class Journal:
    """The journal of one thread.

        journal = Journal(saver, "th_…")
        for moment in journal.moments(kind="tool"):
            print(moment.seq, moment.what, journal.details(moment))

    `request_at`, `state_at` and `blame` answer for any moment. Everything comes from the database:
    no model, no tool and no hook is called. Every method reads what is committed when it is called.
    What is damaged is told as a moment of the kind `gap`, and hides nothing else.
    """

    def __init__(
        self, saver: SqlSaver, thread_id: str, *, upto: int | None = None, keep: int = 0
    ) -> None:
        """Read the journal of a thread.

        Args:
            saver: The store.
            thread_id: The thread.
            upto: The last moment that is read; by default all are.
            keep: Checkpoints that are kept once they are read, for many questions in a row.
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
        """Yield moments in their order, some pages at a time.

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
        """List what of the journal is damaged or missing, one sentence each."""
        return self._reader.problems()

    # --- what a moment holds ---------------------------------------------------------------------

    def details(self, entry: Entry) -> dict[str, Any]:
        """Return what is written down of a moment; what is gone is said under `missing`."""
        return self._details.details(entry)

    def to_dict(self, entry: Entry) -> dict[str, Any]:
        """Return a moment as one JSON object, with everything that is known of it."""
        return self._details.to_dict(entry)

    def change(self, entry: Entry) -> dict[str, Any]:
        """Return what a hook changed; on the way in it is noted where the change arrives."""
        return self._details.change(entry)

    def blame(self, seq: int) -> list[Blame]:
        """List the parts of a moment's request, in the order in which the model got them.

        What hooks dropped comes last. A message that a hook changed is one that was dropped and
        one that was added in its place.

        Raises:
            StorageError: No request was made by then, or what it was made of is gone.
        """
        return self._blame.blame(seq)

    # --- what stood behind it --------------------------------------------------------------------

    def state_at(self, seq: int) -> RecordedState:
        """Return the state at a moment: the nearest checkpoint, and what was written since.

        Raises:
            StorageError: There is no such moment, or its checkpoint is gone (pruned, or never
                stored because the run was made with another durability).
        """
        return self._rebuilt.state_at(seq)

    def request_at(self, seq: int) -> RecordedRequest:
        """Return the request of a moment: its own, or the latest one before it in its run.

        Raises:
            StorageError: No request was made by then, or what it was made of is gone.
        """
        return self._rebuilt.request_at(seq)

    def reply_at(self, seq: int) -> AIMessage | None:
        """Return a model's reply as it came, by the moment of its response.

        None where it is not known: the process died before the reply was kept.

        Raises:
            StorageError: There is no such moment, or what it refers to is gone.
        """
        return self._rebuilt.reply_at(seq)

    def call_at(self, entry: Entry) -> Mapping[str, Any] | None:
        """Return the call of a tool's moment as the model asked for it: id, name, args."""
        return self._rebuilt.call_at(entry)

    def answer_at(self, entry: Entry) -> ToolMessage | None:
        """Return the message that answers the call of a tool's moment, as it was written."""
        return self._rebuilt.answer_at(entry)

    def saved(self, checkpoint: str) -> Any:
        """Return a checkpoint with its writes; None where it is gone."""
        return self._rebuilt.saved(checkpoint)

    # --- what was answered -----------------------------------------------------------------------

    def replies(self, run: int | str | None = None) -> Iterator[RecordedReply]:
        """Yield the answers of models; those that were never kept are left out."""
        return self._recorded.replies(self.moments(run))

    def results(self, run: int | str | None = None) -> Iterator[RecordedCall]:
        """Yield the results of tools; those of calls that never ended are left out."""
        return self._recorded.results(self.moments(run))

    # --- the rows --------------------------------------------------------------------------------

    def value(self, reference: bytes) -> Any:
        """Return what a reference in a moment's fields stands for.

        Raises:
            StorageError: The content is missing or damaged.
        """
        return self._reader.value(reference)

    def secret(self) -> bytes:
        """Return the key with which the thread's requests were keyed."""
        return self._reader.secret()

    def size(self) -> int:
        """Return the bytes of the journal's content."""
        return self._reader.size()

    def reading(self) -> AbstractContextManager[Database]:
        """Hold one consistent view of the thread."""
        return self._reader.reading()
