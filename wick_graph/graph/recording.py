"""Let a run be recorded, where the store keeps journals and the agent wants one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langgraph.types import Command

from wick_graph import keys
from wick_graph.drive import Leaves
from wick_graph.journal.identity import about
from wick_graph.journal.opening import Begun, Mode, start
from wick_graph.journal.taking import Taking
from wick_graph.moments import Moment, Ports

if TYPE_CHECKING:
    from wick_graph.graph.lifecycle import Opened


async def record_run(opened: Opened, io: Leaves) -> None:
    """Begin the run's journal, and tell whoever listens that the run begins."""
    run, spec = opened.run, opened.graph.spec
    lease, options = run.lease, spec.journal
    if lease is not None and options.level != "off":
        rows = opened.saver.journal_rows(lease.thread_id)
        begun = Begun(
            run_id=run.run_id,
            mode=_mode(opened),
            checkpoint_id=keys.configurable(opened.config).get(keys.CHECKPOINT_ID),
            about=about(spec),
            model=spec.model.model,
            brought=spec.toolbox.brought,
            taking=Taking.of(spec.hooks),
        )

        def work() -> None:
            run.journal = start(rows, lease, begun, options)

        await io.either(work, lambda: rows.run_in_store(work))
        lease.along = run.journal.along
        run.port = Ports.of(run.journal, run.port)
    if not run.port.active:
        return
    data = {"input": opened.input, "thread_id": run.thread_id, "run_id": run.run_id}
    run.port.record(Moment("run", "enter", spec.name, data))
    if isinstance(opened.input, Command) and opened.input.resume is not None:
        run.port.record(Moment("interrupt", "answer", "", {"answer": opened.input.resume}))


def _mode(opened: Opened) -> Mode:
    if opened.is_new_input:
        return "input"
    return "resume" if opened.input is None else "answer"
