"""Let a run be recorded, where the store keeps journals and the agent wants one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from wick_graph import keys
from wick_graph.drive import Leaves
from wick_graph.journal.identity import about
from wick_graph.journal.opening import Begun, Mode, start
from wick_graph.journal.taking import Taking
from wick_graph.moments import DEBUGGER, NULL_PORT, Moment, Port, Ports, tell
from wick_graph.pausing import WATCH

if TYPE_CHECKING:
    from wick_graph.graph.lifecycle import Opened


def listen(opened: Opened) -> None:
    """Find out who watches the run, and let its deadlines follow their clock."""
    run = opened.run
    if hasattr(opened.kwargs.get("debug"), "attach"):  # else it is LangGraph's own switch
        run.debugger = opened.kwargs.pop("debug")
    if run.debugger is None:
        run.debugger = DEBUGGER.get()
    if run.debugger is not None:
        run.observed = True
        opened.leave.callback(WATCH.set, WATCH.get())
        WATCH.set(run.debugger.clock)
        opened.leave.callback(DEBUGGER.set, DEBUGGER.get())
        DEBUGGER.set(run.debugger.below)


async def record_run(opened: Opened, io: Leaves) -> None:
    """Begin the run's journal, and tell whoever listens that the run begins."""
    run, spec = opened.run, opened.graph.spec
    lease, options = run.writer.lease, spec.journal
    if run.debugger is not None and options.level == "off":
        options = replace(options, level="steps")
    if lease is not None and options.level != "off":
        rows = opened.saver.journal_rows(lease.thread_id)
        begun = Begun(
            run_id=run.run_id,
            mode=_mode(opened),
            checkpoint_id=keys.configurable(opened.config).get(keys.CHECKPOINT_ID),
            about=about(spec),
            model=spec.model.model,
            taking=Taking.of(spec.hooks),
        )

        def work() -> None:
            run.journal = start(rows, lease, begun, options)

        await io.either(work, lambda: rows.run_in_store(work))
        lease.along = run.journal.along
    recorder: Port = NULL_PORT if run.journal is None else run.journal
    if run.debugger is not None:
        recorder = run.debugger.attach(run, io, spec, run.journal, opened.saver)
    run.port = Ports.of(recorder, run.port)
    if not run.port.active:
        return
    data = {"input": opened.input, "thread_id": run.thread_id, "run_id": run.run_id}
    await tell(run.port, Moment("run", "enter", spec.name, data))


def _mode(opened: Opened) -> Mode:
    if opened.is_new_input:
        return "input"
    return "resume" if opened.input is None else "answer"
