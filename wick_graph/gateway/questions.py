"""Approvals in chats: a question with two buttons, and the decision of an owner.

A code belongs to one question about one call, by its hash. It counts once, from an owner, and for
24 hours; then the call is rejected. The engine checks the hash again when the thread goes on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from wick_graph.core.redaction import REDACTOR
from wick_graph.engine.result import Result
from wick_graph.gateway.messages import DECISIONS, InboundMessage, command_of
from wick_graph.gateway.people import new_code, same_code
from wick_graph.hooks.approvals import KIND, Approve, Reject
from wick_graph.hooks.prompt_files import one_line
from wick_graph.messages.content import visible_json
from wick_graph.store.mailbox import Mailbox, hashed
from wick_graph.tracing import audit

WAIT_SECONDS: Final = 86_400.0

_ASK: Final = "ask/"
"""How the keys of questions begin."""

_ARGS_CHARS: Final = 1_500

_SCANNED_CHARS: Final = 50_000
"""Characters of the arguments to search for secrets before their beginning is shown."""


@dataclass(frozen=True, slots=True)
class Question:
    """A call that waits for an owner."""

    thread_id: str
    id: str
    """The id of its interrupt; `aresume(thread_id, {id: decision})` answers it."""
    hash: str
    """Binds the decision to this call with these arguments."""
    tool: str
    args: Mapping[str, Any]
    why: str
    code: str = ""
    """What an owner types; empty until `ask` made it."""

    @property
    def key(self) -> str:
        """The key of its fact."""
        return f"{_ASK}{hashed(self.thread_id, self.id, self.hash)}"


@dataclass(frozen=True, slots=True)
class Decided:
    """What a message says about a question."""

    text: str
    """The reply to the message."""
    key: str = ""
    """The fact of the question, if it is decided now."""


def questions_of(result: Result) -> list[Question]:
    """List the calls of a run that wait for approval; other questions are for the user."""
    waits = [one for one in result.interrupts if _is_approval(one.value)]
    named = ("hash", "tool", "args", "why")
    return [Question(result.thread_id, w.id, *(w.value[name] for name in named)) for w in waits]


def other_questions(result: Result) -> list[tuple[str, str]]:
    """List what a run asks the person in the chat: the id of each interrupt, and its text."""
    others = (one for one in result.interrupts if not _is_approval(one.value))
    return [(one.id, _question(one.value)) for one in others]


def _is_approval(asked: Any) -> bool:
    return isinstance(asked, Mapping) and asked.get("kind") == KIND


def _question(asked: Any) -> str:
    if not isinstance(asked, Mapping):
        return str(asked)
    text = str(asked.get("question") or json.dumps(dict(asked), ensure_ascii=False, default=str))
    return "\n".join([text, *(f"- {one}" for one in asked.get("options") or ())])


def ask(question: Question, facts: Mailbox, now: float, about: Mapping[str, Any]) -> Question:
    """Give a question its code; the same one if it was asked before, after a crash too.

    `about` is what its thread needs to go on: `agent` and `origin`.
    """
    fresh = {"code": new_code(8), "until": now + WAIT_SECONDS, **about}
    fresh |= {"thread": question.thread_id, "id": question.id}
    fresh |= {"hash": question.hash, "tool": question.tool}
    kept = facts.change_fact(question.key, lambda known: known or fresh)
    return replace(question, code=kept["code"])


def text_of(question: Question) -> str:
    """Write a question for a chat; hidden signs are visible, and secrets are not."""
    whole = visible_json(json.dumps(dict(question.args), ensure_ascii=False, default=str))
    args = REDACTOR.text(whole[:_SCANNED_CHARS])[:_ARGS_CHARS]
    if (hidden := len(whole) - len(args)) > 0 and len(args) == _ARGS_CHARS:
        args += f"\n[{hidden:,} more characters are not shown]"
    return (
        f"May {one_line(question.tool, 64)} be called? ({one_line(question.why, 300)})\n{args}\n"
        f"Answer /approve {question.code} or /deny {question.code} within 24 hours."
    )


def buttons_of(question: Question) -> tuple[tuple[str, str], ...]:
    """Return the buttons below a question: label, and what pressing it says."""
    return (("Approve", f"/approve {question.code}"), ("Deny", f"/deny {question.code}"))


def place_of(
    here: tuple[str, str], is_owner: bool, last_chat: tuple[str, str] | None
) -> tuple[str, str] | None:
    """Return the chat in which to ask: that of an owner's thread, else an owner's last one."""
    return here if is_owner and all(here) else last_chat


def decision(message: InboundMessage, role: str, facts: Mailbox, now: float) -> Decided | None:
    """Read a message, admitted with a role, as a decision; None if it is an ordinary one."""
    word, given = command_of(message)
    if word not in DECISIONS or not given:
        return None
    by = f"{message.channel}:{message.sender_id}"
    if role != "owner":
        audit("approval.refused", by=by[:200], role=role, chat_id=message.chat_id[:128])
        return Decided("Only an owner can decide that.")
    mine = {"verb": word[1:], "by": by, "from": message.native_id or given}
    for key, data in facts.facts(_ASK).items():
        if same_code(given, data["code"]) and data["until"] > now:
            kept = _decide(facts, key, mine)
            if kept is None or kept["decided"] != mine:
                return Decided("That was decided already.")
            done = "Approved" if word == "/approve" else "Denied"
            return Decided(f"{done}: {data['tool']}.", key)
    return Decided("No question has this code, or it was asked more than 24 hours ago.")


def _decide(facts: Mailbox, key: str, how: Mapping[str, str]) -> Any:
    """Write a decision, unless there is one; return the fact."""
    return facts.change_fact(key, lambda known: known and {"decided": how, **known})


def expire(facts: Mailbox, now: float) -> list[str]:
    """Reject the questions without a decision for 24 hours; return the keys of all decided ones."""
    found = facts.facts(_ASK)
    late = [key for key, data in found.items() if data["until"] <= now]
    for key in late:
        _decide(facts, key, {"verb": "deny", "by": "gateway", "from": ""})
    return [key for key, data in found.items() if "decided" in data or key in late]


def decided_in(facts: Mailbox, thread_id: str) -> list[str]:
    """Return the keys of a thread's questions that are decided and have not been answered."""
    found = facts.facts(_ASK).items()
    return [key for key, one in found if one["thread"] == thread_id and "decided" in one]


def answer_of(fact: Mapping[str, Any]) -> dict[str, Approve | Reject]:
    """Return the decision in a question's fact, as `aresume` takes it."""
    how, mark = fact["decided"], fact["hash"]
    if how["verb"] == "approve":
        return {fact["id"]: Approve(hash=mark, by=how["by"])}
    late = how["by"] == "gateway"
    why = "no owner answered within 24 hours" if late else "an owner denied it"
    return {fact["id"]: Reject(why, hash=mark, by=how["by"])}
