"""Answers in an input: to questions of the thread and to tool calls; and the rules of a run.

Answers to interrupts are bound to their questions, and stored before anything runs. LangGraph keeps
an answer by interrupt id in memory until the asking task has ended. After a crash in the approved
call it would ask again, about a call that may have run. So the engine first stores answers to tool
calls, as LangGraph's own `RESUME` writes.

Tool results from a caller must match calls of the thread, and never count as a decision. Open
questions of a thread, and the rules of its task, bind a run of any agent: an agent can add rules
and remove none.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, RemoveMessage, ToolMessage
from langgraph.checkpoint.base import WRITES_IDX_MAP, BaseCheckpointSaver
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME
from langgraph.constants import END
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command, Interrupt, Overwrite, StateUpdate

from wick_graph import langgraph_config
from wick_graph.core.bridge import Bridge
from wick_graph.core.moments import Listener, Moment
from wick_graph.core.redaction import REDACTOR
from wick_graph.errors import (
    MessageError,
    NothingWaitsError,
    RunError,
    StorageError,
    ThreadBusyError,
    WickError,
)
from wick_graph.hooks.approvals import (
    KIND,
    ApprovalHook,
    decides,
    holds_decision,
    is_own,
    plain_answers,
    shown_in,
    signed,
)
from wick_graph.messages import error_message, is_failure
from wick_graph.messages.base import MARK_KEY, PARTIAL, dated, is_partial
from wick_graph.messages.validation import UNNAMED
from wick_graph.runtime.context import EngineStore, Run
from wick_graph.store import ThreadInfo
from wick_graph.store.leases import Writer

_NODE: Final = "tools"

_MODEL: Final = "model"

_NOTHING: Final = object()

_CONTROL: Final = frozenset({ERROR, INTERRUPT, RESUME})

_RULES: Final = "/rules"
"""The ledger key of the rules that came with the thread's task."""

_MADE_BY_HAND: Final = frozenset({"update", "fork"})
"""Sources of checkpoints that are not made by runs."""

_log: Final = logging.getLogger("wick_graph")


@dataclass(frozen=True, slots=True)
class Question:
    """An interrupt of an unfinished task, and the answers that the task has so far."""

    task: str
    interrupt: Interrupt
    answered: tuple[Any, ...]

    @property
    def id(self) -> str:
        """The interrupt's id."""
        return self.interrupt.id

    @property
    def slots(self) -> tuple[str, ...]:
        """The ids of a tool call's earlier questions and of the present one."""
        return tuple(_slot(self.task, n) for n in range(len(self.answered) + 1))

    @property
    def waits(self) -> bool:
        """Whether it still needs an answer; one that a crash left unread counts as given."""
        return self.id not in self.slots[:-1]

    @property
    def is_direct(self) -> bool:
        """Whether the tool call itself asks, not a graph that it runs."""
        return self.id in self.slots


def questions(saved: Any) -> list[Question]:
    """List the interrupts of a checkpoint's unfinished tasks, in order."""
    writes = [] if saved is None else list(saved.pending_writes or ())
    over = {task for task, channel, _ in writes if channel not in _CONTROL}
    answers = {task: _listed(value) for task, channel, value in writes if channel == RESUME}
    return [
        Question(task, asked, tuple(answers.get(task, ())))
        for task, channel, value in writes
        if channel == INTERRUPT and task not in over
        for asked in _listed(value)
        if isinstance(asked, Interrupt)
    ]


def waiting(saved: Any) -> list[Interrupt]:
    """List the interrupts of a checkpoint that wait for an answer, as shown for its thread."""
    thread_id = None if saved is None else langgraph_config.thread_of(saved.config)
    return [
        replace(question.interrupt, value=shown_in(thread_id, question.interrupt.value))
        for question in questions(saved)
        if question.waits
    ]


async def unanswered(
    saver: BaseCheckpointSaver[Any] | None, config: Any, asked: Sequence[Interrupt], bridge: Bridge
) -> tuple[Interrupt, ...]:
    """Return those of a checkpoint's interrupts that wait for an answer.

    LangGraph's state of a checkpoint with an id lists the answered ones, too. Its order stays: it
    is that of the calls.
    """
    if saver is None or not asked:
        return ()
    ids = {one.id for one in waiting(await _saved(saver, config, bridge))}
    return tuple(one for one in asked if one.id in ids)


async def store_answers(
    given: Any, saver: BaseCheckpointSaver[Any] | None, config: Any, run: Run, bridge: Bridge
) -> Any:
    """Bind the answers in an input to the waiting questions, and store them.

    Returns:
        The input to continue with.

    Raises:
        RunError: Several questions wait, and the answer names none of them.
        NothingWaitsError: It is a decision without a question; the thread stays unchanged.
    """
    if not isinstance(given, Command) or given.resume is None or saver is None:
        return given
    if langgraph_config.configurable(config).get(
        langgraph_config.CHECKPOINT_ID
    ):  # a fork: LangGraph makes new tasks
        resume = signed(given.resume)
        _notify(run.listener, resume, {}, [])
        return Command(resume=resume, update=given.update, goto=given.goto)
    saved = await _saved(saver, config, bridge)
    asked = questions(saved)
    resume = plain_answers(given.resume)
    answers = _by_id(resume, [question for question in asked if question.waits])
    if not asked and holds_decision(resume):
        raise NothingWaitsError(
            f"nothing in thread {run.thread_id} waits for a decision; "
            "send a message, or resume without an answer"
        )
    if answers is None:
        resume = signed(resume) if holds_decision(resume) else resume
        _notify(run.listener, resume, {}, asked)
        return Command(resume=resume, update=given.update, goto=given.goto)
    _warn_of_changed(saved, answers)
    for question in asked:
        if question.waits and question.id in answers:
            answers[question.id] = _bound(answers[question.id], question, run.thread_id)
    _notify(run.listener, resume, dict(answers), asked)
    await _store_direct(saver, config, saved, asked, answers, bridge)
    if not (answers or given.update or given.goto):
        return None
    return Command(resume=answers or None, update=given.update, goto=given.goto)


async def _store_direct(
    saver: BaseCheckpointSaver[Any],
    config: Any,
    saved: Any,
    asked: Sequence[Question],
    answers: dict[str, Any],
    bridge: Bridge,
) -> None:
    """Store the answers to direct questions of tool calls, and remove them from the answers."""
    for question in asked:
        if not question.is_direct:
            continue
        *_, now = [answers.pop(slot, _NOTHING) for slot in question.slots]
        if not question.waits or now is _NOTHING:
            continue
        at: Any = langgraph_config.with_configurable(
            config, **langgraph_config.configurable(saved.config)
        )
        await _put(saver, at, [(RESUME, [*question.answered, now])], question.task, bridge)


async def _put(
    saver: BaseCheckpointSaver[Any],
    at: Any,
    writes: list[tuple[str, Any]],
    task: str,
    bridge: Bridge,
) -> None:
    await bridge.call(saver.put_writes, saver.aput_writes, at, writes, task)


def _by_id(answer: Any, waiting: list[Question]) -> dict[str, Any] | None:
    """Return answers by interrupt id; None if no question is the engine's own."""
    if isinstance(answer, Mapping) and all(map(_is_id, answer)):
        return dict(answer)
    if len(waiting) > 1:
        raise RunError(
            f"{len(waiting)} questions wait, and the answer is for one of them; "
            "give a mapping from interrupt ids to answers"
        )
    return {waiting[0].id: answer} if waiting else None


def _warn_of_changed(saved: Any, answers: Mapping[str, Any]) -> None:
    """Warn of another answer to a question of this step that is answered: the first one holds."""
    for task, channel, stored in () if saved is None else saved.pending_writes or ():
        for n, old in enumerate(_listed(stored) if channel == RESUME else ()):
            new = answers.get(_slot(task, n), _NOTHING)
            if new is not _NOTHING and _meaning(new) != _meaning(old):
                text = "the question %s has got another answer before; that one holds"
                _log.warning(text, _slot(task, n)[:8])


def _meaning(answer: Any) -> Any:
    """Return a decision without who took it and about which call; else the answer."""
    if not decides(answer):
        return answer
    return {key: value for key, value in answer.items() if key not in ("hash", "by")}


def _bound(answer: Any, question: Question, thread_id: str | None) -> Any:
    """Bind a decision without a call id to the call in its question."""
    asked = shown_in(thread_id, question.interrupt.value)
    if decides(answer) and _is_approval(asked):
        return {**signed(answer), "hash": answer.get("hash") or asked["hash"]}
    return answer


def _is_approval(asked: Any) -> bool:
    return isinstance(asked, Mapping) and asked.get("kind") == KIND


def _notify(listener: Listener, given: Any, answers: dict[str, Any], asked: list[Question]) -> None:
    """Record the answers; a decision with its author, its time and its call."""
    if not listener.active:
        return
    for question in asked:
        answer, about = answers.get(question.id), question.interrupt.value
        if decides(answer) and _is_approval(about):
            call = {name: about.get(name) for name in ("tool", "args", "call_id")}
            at = datetime.now(UTC).isoformat()
            answers[question.id] = {**dict(answer or {}), "at": at, "call": call}
    by_id = isinstance(given, Mapping) and bool(answers) and set(answers) == set(given)
    answer = given if not answers else answers if by_id else next(iter(answers.values()))
    listener.record(Moment("interrupt", "answer", "", {"answer": answer}))


def _slot(task: str, answered: int) -> str:
    """Return LangGraph's id of a task's next question after so many answers."""
    suffix = f"|{answered}" if answered else ""
    return Interrupt.from_ns(None, ns=f"{_NODE}:{task}{suffix}").id


def _is_id(key: Any) -> bool:
    return isinstance(key, str) and len(key) == 32 and all(c in "0123456789abcdef" for c in key)


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


# --- results and known messages in an input ------------------------------------------------------


def messages_in(values: Mapping[str, Any]) -> list[BaseMessage]:
    """Return the messages of a thread's state; a graph of the user's own may hold anything."""
    found = values.get("messages")
    return [m for m in found if isinstance(m, BaseMessage)] if isinstance(found, list) else []


def with_dates(input: Any) -> Any:
    """Give the new messages of an input their time before LangGraph stores them.

    The input and the state then hold the same content, so the store keeps each text once. A message
    with an id may replace an older one; the reducer gives it that one's time.
    """
    messages = input.get("messages") if isinstance(input, Mapping) else None
    if not isinstance(messages, list):
        return input
    new = [dated(m) if isinstance(m, BaseMessage) and m.id is None else m for m in messages]
    return {**input, "messages": new}


def fitted(
    given: Sequence[BaseMessage],
    held: Sequence[BaseMessage],
    results: Sequence[ToolMessage],
    *,
    named: bool,
) -> list[BaseMessage]:
    """Refuse a result without a call in the thread, or for an answered call.

    A message with a known id may be sent again: the thread's own stays unchanged.

    Args:
        given: The messages of an input.
        held: The messages of the thread.
        results: Those of the given messages that are results of earlier calls.
        named: Whether given messages have ids.

    Returns:
        The messages to continue with.

    Raises:
        MessageError: Names the call, or the message that differs from the thread's.
    """
    asked: dict[str, str] = {}
    answered: set[str] = set()
    known: dict[str | None, Any] = {}
    for message in held:
        known[message.id] = message
        if isinstance(message, AIMessage):
            calls = {call["id"] or "": call["name"] for call in message.tool_calls}
            asked, answered = {**asked, **calls}, answered.difference(calls)
        elif isinstance(message, ToolMessage):
            answered.add(message.tool_call_id)
    made = [_unchanged(i, m, known) if named else m for i, m in enumerate(given)]
    for answer in results:
        if answer.id is not None and answer.id in known:
            continue
        if answer.tool_call_id not in asked:
            raise MessageError(
                f"there is no call {answer.tool_call_id!r:.80} that this result could answer; "
                "send the assistant's message that made it before"
            )
        if answer.tool_call_id in answered:
            raise MessageError(
                f"the call {answer.tool_call_id!r:.80} has its answer; send the next message alone"
            )
        if answer.name == UNNAMED:
            _name(made, answer.tool_call_id, asked[answer.tool_call_id])
    return made


def _unchanged(i: int, message: BaseMessage, known: Mapping[str | None, Any]) -> BaseMessage:
    """Return the thread's own message for one that is sent again."""
    held: BaseMessage | None = None if message.id is None else known.get(message.id)
    if held is not None and _said(held) != _said(message):
        raise MessageError(
            f"message[{i}]: the thread holds another message under the id {message.id!r:.80}; "
            "leave the id out to say something new, or change the past with agent.graph"
        )
    return message if held is None else held


def _said(message: BaseMessage) -> tuple[Any, ...]:
    """Return the fields that identify a message; the engine sets its name and notes."""
    own: tuple[Any, ...] = ()
    if isinstance(message, AIMessage):
        calls = [*message.tool_calls, *message.invalid_tool_calls]
        own = ([(call["id"], call["name"], call["args"]) for call in calls],)
    elif isinstance(message, ToolMessage):
        own = (message.tool_call_id, message.status)
    return message.type, message.content, *own


def _name(messages: Sequence[BaseMessage], call_id: str, name: str) -> None:
    unnamed = (call_id, UNNAMED)
    for message in messages:  # the engine's copies, not stored yet
        if isinstance(message, ToolMessage) and (message.tool_call_id, message.name) == unnamed:
            message.name = name


async def refuse_results(
    given: Any, saver: BaseCheckpointSaver[Any] | None, config: Any, bridge: Bridge
) -> None:
    """Refuse a caller's result for a call that waits for approval: it is not a decision.

    Raises:
        MessageError: Names the call; nothing is stored.
    """
    answered = set(_results(given))
    if not answered or saver is None or langgraph_config.thread_of(config) is None:
        return
    for question in await _about_calls(saver, config, bridge):
        call_id = question.get("call_id")
        if call_id in answered:
            raise MessageError(
                f"the call {call_id!r:.80} waits for approval, and a result is no decision; "
                "resume the thread with one"
            )


def _results(given: Any) -> Iterator[str]:
    """Yield the ids of the calls for which an input has results."""
    if isinstance(given, Command):
        given = dict(given._update_as_tuples())
    found = given.get("messages") if isinstance(given, Mapping) else None
    for message in found if isinstance(found, list | tuple) else [found]:
        if isinstance(message, ToolMessage):
            yield message.tool_call_id
        elif isinstance(message, Mapping) and "tool_call_id" in message:
            yield str(message["tool_call_id"])


# --- rules that bind a run of any agent ----------------------------------------------------------


async def bind_rules(
    run: Run,
    saver: BaseCheckpointSaver[Any] | None,
    store: EngineStore | None,
    config: Any,
    before: ThreadInfo | None,
    bridge: Bridge,
) -> None:
    """Set a run's open questions and the rules that bind it.

    A foreign store has no rows for questions; they are read from its checkpoints.
    """
    if run.resumed and saver is not None and (run.waited or store is None):
        asked = await _about_calls(saver, config, bridge)
        run.pending = {one["call_id"]: one for one in asked if is_own(one)}
    given = langgraph_config.configurable(config).get(langgraph_config.RULES) or {}
    rules = await _kept_rules(run, before, bridge)
    added = [one for one in given.get("rules", ()) if one not in rules]
    if added and store is not None and run.ledger is not None:
        await _keep_rules(run, store, [*rules, *added], given.get("parent"), bridge)
    run.bound = tuple(ApprovalHook(one) for one in (*rules, *added))


async def _kept_rules(run: Run, before: ThreadInfo | None, bridge: Bridge) -> list[Any]:
    """Return the rules that bind the thread; only a child thread has some."""
    ledger = run.ledger
    if ledger is None or before is None or not (run.resumed or before.parent):
        return []
    found = await bridge.call(ledger.noted, ledger.anoted, _RULES)
    return [] if found is None else list(found[1]["rules"])


async def _keep_rules(
    run: Run, store: EngineStore, rules: list[Any], parent: str | None, bridge: Bridge
) -> None:
    ledger, threads, thread = run.ledger, store.threads, run.thread_id or ""
    assert ledger is not None
    fields = {"rules": rules}
    await bridge.call(ledger.note, ledger.anote, _RULES, "rules", "done", fields)
    if parent is not None:
        await bridge.call(threads.adopt, threads.aadopt, thread, parent)


async def _about_calls(
    saver: BaseCheckpointSaver[Any], config: Any, bridge: Bridge
) -> list[Mapping[str, Any]]:
    """List the open questions about calls at the checkpoint where the run continues.

    A manual update starts a checkpoint without them, so earlier checkpoints count, too.
    """
    found: list[Mapping[str, Any]] = []
    at: Any = {**config, "metadata": {}}
    while at is not None:
        saved = await _saved(saver, at, bridge)
        # a graph inside a call looks for its own: its calls may have the ids of the thread's
        values = (one.interrupt.value for one in questions(saved) if one.is_direct)
        found += [one for one in values if isinstance(one, Mapping) and one.get("kind") == KIND]
        by_hand = saved is not None and (saved.metadata or {}).get("source") in _MADE_BY_HAND
        at = saved.parent_config if by_hand else None
    return found


async def _saved(saver: BaseCheckpointSaver[Any], config: Any, bridge: Bridge) -> Any:
    return await bridge.call(saver.get_tuple, saver.aget_tuple, config)


# --- Writes beside a thread's last checkpoint: failures, partial replies, summaries, results.
#
# A failed run's record, a message of the role `error`, is stored as a write without a task. So the
# failed step stays open: the run can continue from there, finished calls keep their results, and
# each later reader or run finds the record among the messages. A cancelled run leaves the part of
# its reply that its reader got in the same way. A new message finds it in the thread; a resumed
# run takes it out, since its model gives the whole reply again.


async def record_failure(
    run: Run, saver: BaseCheckpointSaver[Any], agent: str, error: BaseException, bridge: Bridge
) -> None:
    """Store the record of a run's failure, if its thread can still be written."""
    if run.ran and is_failure(error):
        record = error_message(
            REDACTOR.text(str(error) or type(error).__name__),
            agent,
            metadata={"error_type": type(error).__name__, "run_id": run.run_id},
        )
        await _put_beside(run, saver, record, bridge)


async def record_partial(
    run: Run,
    graph: CompiledStateGraph[Any, Any, Any, Any],
    saver: BaseCheckpointSaver[Any],
    agent: str,
    bridge: Bridge,
) -> None:
    """Store what the reader got of a reply that was cut off, as the assistant's message.

    A reader may be behind: after the step of `model`, the thread has the whole reply.
    """
    text = "" if run.reader is None else run.reader.partial
    if not (run.ran and text.strip()):
        return
    at: Any = langgraph_config.with_configurable(
        _head(run), **{langgraph_config.CHECKPOINTER: saver}
    )
    with suppress(StorageError):
        state: Any = await bridge.call(graph.get_state, graph.aget_state, at)
        if _MODEL in state.next:
            mark = {MARK_KEY: {"own": True, PARTIAL: True}}
            cut = AIMessage(text, name=agent, id=str(uuid.uuid4()), response_metadata=mark)
            await _put_beside(run, saver, dated(cut), bridge)


async def drop_partial(
    run: Run,
    graph: CompiledStateGraph[Any, Any, Any, Any],
    saver: BaseCheckpointSaver[Any],
    config: Any,
    bridge: Bridge,
) -> None:
    """Take the part of a reply out of a thread that continues from before this reply.

    The run may continue from an earlier checkpoint, and an update may have stored the part.
    """
    if run.thread_id is None:
        return
    named = langgraph_config.configurable(config).get(langgraph_config.CHECKPOINT_ID)
    at: Any = _head(run)
    at = at if named is None else langgraph_config.with_configurable(at, checkpoint_id=named)
    look: Any = langgraph_config.with_configurable(at, **{langgraph_config.CHECKPOINTER: saver})
    state: Any = await bridge.call(graph.get_state, graph.aget_state, look)
    held = messages_in(state.values)
    if state.next and held and is_partial(held[-1]):
        await _put_beside(run, saver, RemoveMessage(id=held[-1].id or ""), bridge, at)


def _head(run: Run) -> Any:
    where = {langgraph_config.THREAD_ID: run.thread_id, langgraph_config.CHECKPOINT_NS: ""}
    return langgraph_config.with_configurable(None, **where)


async def _put_beside(
    run: Run, saver: BaseCheckpointSaver[Any], message: BaseMessage, bridge: Bridge, at: Any = None
) -> None:
    """Store a message beside a checkpoint, by default its thread's head, if that is possible."""
    lease = run.writer.lease
    if run.thread_id is None or (lease is not None and lease.lost):
        return
    with suppress(StorageError, ThreadBusyError):  # the caller learns of the end anyway
        saved = await _saved(saver, _head(run) if at is None else at, bridge)
        if saved is None:
            return
        given = beside(saved, ("messages", [message]), run.writer)
        await bridge.uninterruptible(saver.put_writes, saver.aput_writes, *given)


def beside(saved: Any, write: tuple[str, Any], writer: Writer) -> tuple[Any, Any, str]:
    """Return the arguments of `put_writes` that add a write beside a checkpoint."""
    at = langgraph_config.with_configurable(saved.config, **{langgraph_config.WRITER: writer})
    return at, [*_earlier(saved), write], langgraph_config.NULL_TASK_ID


async def keep_finished_results(
    graph: CompiledStateGraph[Any, Any, Any, Any],
    saver: BaseCheckpointSaver[Any],
    config: Any,
    bridge: Bridge,
) -> None:
    """Commit what finished tool calls of an interrupted step wrote: results and state updates.

    LangGraph drops a step's pending writes when a new input comes. Without this, finished calls
    would lose their results and updates, and look as if they had never run.
    """
    # With this run's own id, LangGraph would take the new input as a repetition of this commit.
    at: Any = {**config, "metadata": {}}
    if langgraph_config.thread_of(at) is None or langgraph_config.configurable(at).get(
        langgraph_config.CHECKPOINT_ID
    ):
        return
    saved: Any = await bridge.call(saver.get_tuple, saver.aget_tuple, at)
    if saved is None or not any(
        channel == "messages" for _, channel, _ in saved.pending_writes or ()
    ):
        return
    # Named, the checkpoint is shown as it is: a look at the head would apply the writes.
    named: Any = langgraph_config.with_configurable(
        at, **langgraph_config.configurable(saved.config)
    )
    state: Any = await bridge.call(graph.get_state, graph.aget_state, named)
    finished = [task.id for task in state.tasks if task.name == _NODE and task.result]
    if not finished:
        return
    update, aupdate = graph.update_state, graph.aupdate_state
    try:
        # LangGraph ends the step: it applies the writes of finished tasks, in the order of the
        # calls, and drops the other tasks. The input then replaces what would have come next.
        await bridge.call(update, aupdate, at, None, as_node=END)
    except WickError:
        raise
    except Exception as error:  # of a reducer: the step fails on these updates each time
        _log.warning(
            "thread %s: the new message keeps the results of finished calls without their state "
            "updates, which do not fit together: %s",
            langgraph_config.thread_of(at),
            REDACTOR.text(str(error)),
        )
        results = {"messages": _messages_of(saved, finished)}
        as_first: Any = {"as_node": _NODE, "task_id": finished[0]}
        await bridge.call(update, aupdate, at, results, **as_first)


def _messages_of(saved: Any, tasks: Sequence[str]) -> list[Any]:
    """Return the messages that tasks wrote, task by task."""
    written = [
        (task, value) for task, name, value in saved.pending_writes or () if name == "messages"
    ]
    return [
        message
        for wanted in tasks
        for task, value in written
        if task == wanted
        for message in _listed(value)
    ]


def _earlier(saved: Any) -> list[tuple[str, Any]]:
    """Return earlier writes without a task, which only their positions distinguish."""
    return [
        (channel, value)
        for task, channel, value in saved.pending_writes or ()
        if task == langgraph_config.NULL_TASK_ID and channel not in WRITES_IDX_MAP
    ]


def with_records(saved: Any, supersteps: Sequence[Sequence[Any]]) -> Sequence[Sequence[Any]]:
    """Return updates of a thread's head, preceded by the records stored beside it.

    LangGraph reads writes without a task when a run continues, and drops them at a state update.
    """
    beside = [] if saved is None else _earlier(saved)
    records = [
        message
        for channel, value in beside
        if channel == "messages" and not isinstance(value, Overwrite)
        for message in _listed(value)
    ]
    summaries = [value for channel, value in beside if channel == "summary"]
    if not (records or summaries) or not supersteps or not supersteps[0]:
        return supersteps
    (values, as_node, *rest), *others = supersteps[0]
    if as_node in (END, "__copy__"):  # END applies them itself; a copy restores an earlier head
        return supersteps
    if records:
        values = _joined(records, values)
    if summaries:
        values = _with_summary(summaries[-1], values)
    first = StateUpdate(values, as_node, *rest)
    return [[first, *others], *supersteps[1:]]


def _with_summary(summary: Any, values: Any) -> Any:
    """Put a summary before an update, in any of its forms; the update's own summary wins."""
    if isinstance(values, Command):
        return replace(values, update=_with_summary(summary, values.update))
    if isinstance(values, list | tuple):
        return [("summary", summary), *values]
    return {"summary": summary, **(values or {})}


def _joined(records: list[Any], values: Any) -> Any:
    """Put records before the messages of an update, in any of its forms."""
    if isinstance(values, Command):
        return replace(values, update=_joined(records, values.update))
    if isinstance(values, Mapping):
        given = values.get("messages")
        if isinstance(given, Overwrite):  # it replaces all earlier messages
            return values
        given = [] if given is None else given if isinstance(given, list) else [given]
        return {**values, "messages": [*records, *given]}
    if isinstance(values, list | tuple):
        return [("messages", records), *values]
    return {"messages": records} if values is None else values
