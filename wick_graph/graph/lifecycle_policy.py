"""What binds a run whatever its agent is: open questions of its thread, and rules of its task.

Both are facts of the thread. A run can add rules, and takes none away.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from langchain_core.messages import ToolMessage
from langgraph.types import Command

from wick_graph import keys
from wick_graph.drive import Leaves
from wick_graph.errors import MessageError
from wick_graph.graph.answers import questions
from wick_graph.hooks.approvals import KIND, ApprovalHook, is_own

if TYPE_CHECKING:
    from wick_graph.graph.lifecycle import Opened

_KEY: Final = "/rules"
"""Where the ledger of a thread keeps the rules that came with its task."""
_MADE_BY_HAND: Final = frozenset({"update", "fork"})
"""Sources of checkpoints that no run made."""


async def refuse_results(opened: Opened, io: Leaves) -> None:
    """Refuse a result, sent by a caller, of a call that waits for approval: it is no decision.

    Raises:
        MessageError: Names the call; nothing is stored.
    """
    given = set(_results(opened.input))
    if not given or opened.saver is None or keys.thread_of(opened.config) is None:
        return
    for question in await _questions(opened, io):
        call_id = question.get("call_id")
        if call_id in given:
            opened.untouched = True
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


async def bind(opened: Opened, io: Leaves) -> None:
    """Let the run know the questions that its thread waits for, and the rules that bind it."""
    run = opened.run
    if run.resumed and opened.saver is not None and (run.waited or _is_foreign(opened)):
        asked = await _questions(opened, io)
        run.pending = {one["call_id"]: one for one in asked if is_own(one)}
    given = keys.configurable(opened.config).get(keys.RULES) or {}
    rules = await _kept(opened, io)
    added = [one for one in given.get("rules", ()) if one not in rules]
    if added and run.ledger is not None:
        await _keep(opened, io, [*rules, *added], given.get("parent"))
    run.bound = tuple(ApprovalHook(one) for one in (*rules, *added))


async def _kept(opened: Opened, io: Leaves) -> list[Any]:
    """Return the rules that the thread is bound by; it has some only if it came of another one."""
    ledger, before = opened.run.ledger, opened.before
    if ledger is None or before is None or not (opened.run.resumed or before.parent):
        return []
    found = await io.either(lambda: ledger.noted(_KEY), lambda: ledger.anoted(_KEY))
    return [] if found is None else list(found[1]["rules"])


async def _keep(opened: Opened, io: Leaves, rules: list[Any], parent: str | None) -> None:
    ledger, threads = opened.run.ledger, opened.saver.threads
    thread_id, fields = opened.run.thread_id, {"rules": rules}
    assert ledger is not None
    await io.either(
        lambda: ledger.note(_KEY, "rules", "done", fields),
        lambda: ledger.anote(_KEY, "rules", "done", fields),
    )
    if parent is not None:
        await io.either(
            lambda: threads.adopt(thread_id, parent), lambda: threads.aadopt(thread_id, parent)
        )


async def _questions(opened: Opened, io: Leaves) -> list[Mapping[str, Any]]:
    """List the questions about calls that wait where the run goes on.

    An update by hand begins a checkpoint without them: those before it count, too.
    """
    found: list[Mapping[str, Any]] = []
    at: Any = {**opened.config, "metadata": {}}
    while at is not None:
        saved = await _saved(opened.saver, at, io)
        values = (question.interrupt.value for question in questions(saved))
        found += [one for one in values if isinstance(one, Mapping) and one.get("kind") == KIND]
        by_hand = saved is not None and (saved.metadata or {}).get("source") in _MADE_BY_HAND
        at = saved.parent_config if by_hand else None
    return found


async def _saved(saver: Any, config: Any, io: Leaves) -> Any:
    return await io.either(lambda: saver.get_tuple(config), lambda: saver.aget_tuple(config))


def _is_foreign(opened: Opened) -> bool:
    """Say whether the checkpointer is none of ours, and has no rows for questions."""
    return getattr(opened.saver, "threads", None) is None
