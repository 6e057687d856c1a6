"""`DebugSession`: one recording or one live run, and everything that can be asked and done."""

from __future__ import annotations

from typing import Any, Self

from wick_graph import keys
from wick_graph.debug.attached import Under
from wick_graph.debug.forking import Forking
from wick_graph.debug.live import Door
from wick_graph.debug.moves import goal_of
from wick_graph.debug.policy import Decider, Policy
from wick_graph.debug.sources import find
from wick_graph.debug.timeline import Timeline
from wick_graph.debug.types import Stop
from wick_graph.errors import DebugError
from wick_graph.journal.replay import Tape, begun, latest


class DebugSession(Forking):
    """Step through an agent's run, forwards and backwards.

        with DebugSession.open(agent, "th_…") as session:
            session.add("break tool:* if error")
            print(session.cont().text, session.why("messages[-1].content"))

    In the past nothing is ever executed. Every method may be called from any thread.
    """

    def __init__(self, agent: Any = None) -> None:
        """Begin without a past; the first run gives the session its thread."""
        super().__init__(None, Timeline(None, 0, ()), agent)

    @classmethod
    def open(
        cls,
        source: Any,
        thread_id: str | None = None,
        *,
        agent: Any = None,
        branch: int | None = None,
    ) -> DebugSession:
        """Look at a thread; a recording begins at its first moment.

        Args:
            source: An agent, a store, a journal, a database's URL, or a `.wickrun` file.
            thread_id: The thread; a journal and a file have their own.
            agent: What may run: for forks, replays, and going on.
            branch: The branch to look at; the latest by default.

        Raises:
            DebugError: The source cannot be debugged, or the thread was not named.
            ThreadNotFoundError: There is no such thread.
            StorageError: The database or file cannot be read.
        """
        found = find(source, thread_id, agent, branch)
        session = cls(found.agent)
        session.journal, session.banners = found.journal, found.banners
        session._close, session._read_only = found.close, found.read_only
        session._at = 0 if len(found.timeline) else -1
        session._look_at(found.timeline)
        session._durable = found.waits
        return session

    replayed: DebugSession | None = None
    """The session of the last replay."""

    def replay(
        self,
        policy: Policy | None = None,
        run: int | str | None = None,
        *,
        agent: Any = None,
        door: Door = "sync",
        timeout: float | None = None,
    ) -> Stop:
        """Run a recorded run again in memory: models and tools are answered from the recording.

        By default it is the run that the cursor is in.

        `replayed` is the session of the new run; `compare` shows both side by side. Where the code
        of today asks something else than was recorded, that session stops with `divergence`.

        Raises:
            DebugError: The session has no agent, or no journal.
            ReplayError: The run did not begin with an input, or its beginning is gone.
        """
        if self.journal is None:
            raise DebugError("without a journal there is nothing to replay")
        if run is None and self.here is not None and self.here.run:
            run = self.here.run
        record = self.journal.run(run) if run is not None else latest(self.journal)
        if record.mode != "input":
            raise DebugError(
                f"run {record.number} goes on where another one stopped; replay that one"
            )
        saver = begun(self.journal, record)
        graph = self._graph() if agent is None else getattr(agent, "graph", agent)
        child = DebugSession(agent or self.agent)
        decide = Decider(policy or Policy.of_replay(), Tape(self.journal, record.number))
        child._close = saver.close
        self.replayed = child
        address = {keys.THREAD_ID: self.journal.thread_id}
        copied = graph.copy({"checkpointer": saver})
        under, goal = Under(decide, label="REPLAY"), goal_of("cont", None)
        return child._started(None, address, door, goal, timeout, copied, under)

    def close(self) -> None:
        """Leave the run that goes on, and close what `open` opened.

        A run that the session started is kept, so that any process can go on with it; where it has
        no store it is ended. One that was started elsewhere goes on without the session.
        """
        try:
            self.leave()
        finally:
            close, self._close = self._close, lambda: None
            close()
            if self.replayed is not None:
                self.replayed.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
