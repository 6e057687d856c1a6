"""The record of a failed run in its thread: a message of the role `error`.

It is filed beside the thread's last checkpoint, as LangGraph files what no task wrote. So the step
that failed stays open: the run can go on from there, finished calls keep their results, and
whoever reads the thread or goes on with it finds the record among its messages.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.base import WRITES_IDX_MAP

from wick_graph import keys
from wick_graph.drive import Leaves
from wick_graph.errors import StorageError, ThreadBusyError
from wick_graph.messages import error_message, is_failure
from wick_graph.redact import REDACTOR

if TYPE_CHECKING:
    from wick_graph.graph.lifecycle import Opened


async def record_failure(opened: Opened, io: Leaves, error: BaseException) -> None:
    """File the record of what ended a run, if its thread still takes one."""
    run, saver = opened.run, opened.saver
    lost = run.lease is not None and run.lease.lost
    if saver is None or run.thread_id is None or not run.ran or lost or not is_failure(error):
        return
    where: Any = keys.with_configurable(
        None, **{keys.THREAD_ID: run.thread_id, keys.CHECKPOINT_NS: "", keys.RUN: run}
    )
    with suppress(StorageError, ThreadBusyError):  # what ended the run is told all the same
        saved: Any = await io.either(
            lambda: saver.get_tuple(where), lambda: saver.aget_tuple(where)
        )
        if saved is None:
            return
        at: Any = keys.with_configurable(saved.config, **{keys.RUN: run})
        writes = [*_earlier(saved), ("messages", [_record(opened, error)])]
        task = keys.NULL_TASK_ID
        await io.whole(
            lambda: saver.put_writes(at, writes, task), lambda: saver.aput_writes(at, writes, task)
        )


def _record(opened: Opened, error: BaseException) -> Any:
    run_id = opened.run.run_id
    return error_message(
        REDACTOR.text(str(error) or type(error).__name__),
        opened.graph.spec.name,
        metadata={"error_type": type(error).__name__, "run_id": run_id},
    )


def _earlier(saved: Any) -> list[tuple[str, Any]]:
    """Return what no task wrote before: such writes are told apart by their places alone."""
    return [
        (channel, value)
        for task, channel, value in saved.pending_writes or ()
        if task == keys.NULL_TASK_ID and channel not in WRITES_IDX_MAP
    ]
