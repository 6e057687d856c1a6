"""The record of a failed run in its thread: a message of the role `error`.

It is filed beside the thread's last checkpoint, as LangGraph files what no task wrote. So the step
that failed stays open: the run can go on from there, finished calls keep their results, and
whoever reads the thread or goes on with it finds the record among its messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.base import WRITES_IDX_MAP
from langgraph.constants import END
from langgraph.types import Command, Overwrite, StateUpdate

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
    lost = run.writer.lease is not None and run.writer.lease.lost
    if saver is None or run.thread_id is None or not run.ran or lost or not is_failure(error):
        return
    where: Any = keys.with_configurable(
        None, **{keys.THREAD_ID: run.thread_id, keys.CHECKPOINT_NS: ""}
    )
    with suppress(StorageError, ThreadBusyError):  # what ended the run is told all the same
        saved: Any = await io.either(
            lambda: saver.get_tuple(where), lambda: saver.aget_tuple(where)
        )
        if saved is None:
            return
        at: Any = keys.with_configurable(saved.config, **{keys.WRITER: run.writer})
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


def with_records(saved: Any, supersteps: Sequence[Sequence[Any]]) -> Sequence[Sequence[Any]]:
    """Return updates of a thread's head that begin with the records filed beside it.

    LangGraph reads what no task wrote when a run goes on, and drops it when the state is updated.
    """
    records = [
        message
        for channel, value in (() if saved is None else _earlier(saved))
        if channel == "messages" and not isinstance(value, Overwrite)
        for message in (value if isinstance(value, list) else [value])
    ]
    if not records or not supersteps or not supersteps[0]:
        return supersteps
    (values, as_node, *rest), *others = supersteps[0]
    if as_node in (END, "__copy__"):  # END applies them itself; a copy is what the head was before
        return supersteps
    first = StateUpdate(_joined(records, values), as_node, *rest)
    return [[first, *others], *supersteps[1:]]


def _joined(records: list[Any], values: Any) -> Any:
    """Put records before the messages of an update, in whichever form that comes."""
    if isinstance(values, Command):
        return replace(values, update=_joined(records, values.update))
    if isinstance(values, Mapping):
        given = values.get("messages")
        if isinstance(given, Overwrite):  # nothing that was said before is to stay
            return values
        given = [] if given is None else given if isinstance(given, list) else [given]
        return {**values, "messages": [*records, *given]}
    if isinstance(values, list | tuple):
        return [("messages", records), *values]
    return {"messages": records} if values is None else values
