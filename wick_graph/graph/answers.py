"""Answers to interrupts: bound to what was asked, and in the store before anything is run.

LangGraph keeps an answer that is addressed by its question's id in memory, until the task that
asked has ended. A process that dies in the approved call would then ask again, about a call that
may have run. So answers to tool calls are stored first, as LangGraph's own `RESUME` writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME
from langgraph.types import Command, Interrupt

from wick_graph import keys
from wick_graph.drive import Leaves
from wick_graph.errors import NothingWaitsError, RunError
from wick_graph.hooks.approvals import (
    KIND,
    decides,
    holds_decision,
    plain_answers,
    shown_in,
    signed,
)
from wick_graph.moments import Moment

if TYPE_CHECKING:
    from wick_graph.graph.lifecycle import Opened

_NODE: Final = "tools"
_NOTHING: Final = object()
_CONTROL: Final = frozenset({ERROR, INTERRUPT, RESUME})


@dataclass(frozen=True, slots=True)
class Question:
    """An interrupt of a task that is not over, and what the task was answered so far."""

    task: str
    interrupt: Interrupt
    answered: tuple[Any, ...]

    @property
    def id(self) -> str:
        """The interrupt's id."""
        return self.interrupt.id

    @property
    def slots(self) -> tuple[str, ...]:
        """The ids under which a tool call asked before and asks now."""
        return tuple(_slot(self.task, n) for n in range(len(self.answered) + 1))

    @property
    def waits(self) -> bool:
        """Whether its answer is still to come; one that a crash left unread is not."""
        return self.id not in self.slots[:-1]

    @property
    def is_direct(self) -> bool:
        """Whether the tool call itself asks, and no graph that it runs."""
        return self.id in self.slots


def questions(saved: Any) -> list[Question]:
    """List the interrupts of a checkpoint whose tasks are not over, in their order."""
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
    """List the interrupts of a checkpoint that wait for an answer, as its thread asks them."""
    thread_id = None if saved is None else keys.thread_of(saved.config)
    return [
        replace(question.interrupt, value=shown_in(thread_id, question.interrupt.value))
        for question in questions(saved)
        if question.waits
    ]


async def take_answers(opened: Opened, io: Leaves) -> None:
    """Bind the answers that a run brings to the questions that wait, and store them.

    Raises:
        RunError: Several questions wait, and the answer does not say which it is for.
        NothingWaitsError: It is a decision, and no question was asked; the thread stays as it is.
    """
    command, saver = opened.input, opened.saver
    if not isinstance(command, Command) or command.resume is None or saver is None:
        return
    config: Any = opened.config
    if keys.configurable(config).get(keys.CHECKPOINT_ID):  # a fork: LangGraph makes new tasks
        given = signed(command.resume)
        _tell(opened, given, {}, [])
        opened.input = Command(resume=given, update=command.update, goto=command.goto)
        return
    saved: Any = await io.either(lambda: saver.get_tuple(config), lambda: saver.aget_tuple(config))
    asked = questions(saved)
    given = plain_answers(command.resume)
    answers = _by_id(given, [question for question in asked if question.waits])
    if not asked and holds_decision(given):
        opened.untouched = True
        raise NothingWaitsError(
            f"nothing in thread {opened.run.thread_id} waits for a decision; "
            "send a message, or resume without an answer"
        )
    if answers is None:
        given = signed(given) if holds_decision(given) else given
        _tell(opened, given, {}, asked)
        opened.input = Command(resume=given, update=command.update, goto=command.goto)
        return
    thread_id = opened.run.thread_id
    for question in asked:
        if question.waits and question.id in answers:
            answers[question.id] = _bound(answers[question.id], question, thread_id)
    _tell(opened, given, dict(answers), asked)
    for question in asked:
        if question.is_direct:
            taken = [answers.pop(slot, _NOTHING) for slot in question.slots]
            if question.waits and taken[-1] is not _NOTHING:
                await _store(opened, io, saved, question, taken[-1])
    goes_on = bool(answers or command.update or command.goto)
    resume = answers or None
    opened.input = (
        Command(resume=resume, update=command.update, goto=command.goto) if goes_on else None
    )


async def _store(opened: Opened, io: Leaves, saved: Any, question: Question, answer: Any) -> None:
    saver, task = opened.saver, question.task
    config = keys.with_configurable(opened.config, **keys.configurable(saved.config))
    writes = [(RESUME, [*question.answered, answer])]
    await io.either(
        lambda: saver.put_writes(config, writes, task),
        lambda: saver.aput_writes(config, writes, task),
    )


def _by_id(answer: Any, waiting: list[Question]) -> dict[str, Any] | None:
    """Return answers by interrupt id; None where there is no question of ours."""
    if isinstance(answer, Mapping) and all(map(_is_id, answer)):
        return dict(answer)
    if len(waiting) > 1:
        raise RunError(
            f"{len(waiting)} questions wait, and the answer is for one of them; "
            "give a mapping from interrupt ids to answers"
        )
    return {waiting[0].id: answer} if waiting else None


def _bound(answer: Any, question: Question, thread_id: str | None) -> Any:
    """Bind a decision that names no call to the call that the person was shown."""
    asked = shown_in(thread_id, question.interrupt.value)
    if decides(answer) and _is_approval(asked):
        return {**signed(answer), "hash": answer.get("hash") or asked["hash"]}
    return answer


def _is_approval(asked: Any) -> bool:
    return isinstance(asked, Mapping) and asked.get("kind") == KIND


def _tell(opened: Opened, given: Any, answers: dict[str, Any], asked: list[Question]) -> None:
    """Record the answers; a decision with who made it, when, and about which call."""
    port = opened.run.port
    if not port.active:
        return
    for question in asked:
        answer, about = answers.get(question.id), question.interrupt.value
        if decides(answer) and _is_approval(about):
            call = {name: about.get(name) for name in ("tool", "args", "call_id")}
            at = datetime.now(UTC).isoformat()
            answers[question.id] = {**dict(answer or {}), "at": at, "call": call}
    by_id = isinstance(given, Mapping) and bool(answers) and set(answers) == set(given)
    told = given if not answers else answers if by_id else next(iter(answers.values()))
    port.record(Moment("interrupt", "answer", "", {"answer": told}))


def _slot(task: str, answered: int) -> str:
    """Return the id that LangGraph gives to a task's next question after so many answers."""
    suffix = f"|{answered}" if answered else ""
    return Interrupt.from_ns(None, ns=f"{_NODE}:{task}{suffix}").id


def _is_id(key: Any) -> bool:
    return isinstance(key, str) and len(key) == 32 and all(c in "0123456789abcdef" for c in key)


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]
