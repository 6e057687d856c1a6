"""Writes beside a thread's last checkpoint: the record of a failure, results of a cut-off step.

A failed run's record, a message of the role `error`, is filed as LangGraph files what no task
wrote. So the step that failed stays open: the run can go on from there, finished calls keep their
results, and whoever reads the thread or goes on with it finds the record among its messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from langgraph.checkpoint.base import WRITES_IDX_MAP, BaseCheckpointSaver
from langgraph.constants import END
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command, Overwrite, StateUpdate

from wick_graph import keys
from wick_graph.drive import Leaves
from wick_graph.errors import StorageError, ThreadBusyError
from wick_graph.messages import error_message, is_failure
from wick_graph.redact import REDACTOR
from wick_graph.runtime import Run


async def record_failure(
    run: Run, saver: BaseCheckpointSaver[Any], agent: str, error: BaseException, io: Leaves
) -> None:
    """File the record of what ended a run, if its thread still takes one."""
    lease = run.writer.lease
    lost = lease is not None and lease.lost
    if run.thread_id is None or not run.ran or lost or not is_failure(error):
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
        record = error_message(
            REDACTOR.text(str(error) or type(error).__name__),
            agent,
            metadata={"error_type": type(error).__name__, "run_id": run.run_id},
        )
        writes, task = [*_earlier(saved), ("messages", [record])], keys.NULL_TASK_ID
        await io.whole(
            lambda: saver.put_writes(at, writes, task), lambda: saver.aput_writes(at, writes, task)
        )


async def keep_finished_results(
    graph: CompiledStateGraph[Any, Any, Any, Any],
    saver: BaseCheckpointSaver[Any],
    config: Any,
    io: Leaves,
) -> None:
    """Commit the results of tool calls that an interrupted step had finished.

    LangGraph drops a step's pending writes when a new input comes; without this the results of
    finished calls would be lost, and those calls would look as if they had never run.
    """
    # Under this run's own id LangGraph would take the new input for a repetition of this commit.
    at: Any = {**config, "metadata": {}}
    if keys.thread_of(at) is None or keys.configurable(at).get(keys.CHECKPOINT_ID):
        return
    saved: Any = await io.either(lambda: saver.get_tuple(at), lambda: saver.aget_tuple(at))
    if saved is None or not any(
        channel == "messages" for _, channel, _ in saved.pending_writes or ()
    ):
        return
    state: Any = await io.either(lambda: graph.get_state(at), lambda: graph.aget_state(at))
    finished = [
        message
        for task in state.tasks
        if task.name == "tools" and task.result
        for message in task.result.get("messages") or ()
    ]
    if finished:
        update = {"messages": finished}
        await io.either(
            lambda: graph.update_state(at, update, as_node="tools"),
            lambda: graph.aupdate_state(at, update, as_node="tools"),
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
