"""The chain that every provider takes: what all of them refuse is put into another form.

Providers refuse a whole history for one message of it, so a thread that holds such a message could
never be used again. What only one of them refuses is the business of `wick_graph.models.fitting`.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, Final

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
)

from wick_graph.messages.content import has_content
from wick_graph.messages.copies import M, changed_copy
from wick_graph.messages.names import portable_tool_name
from wick_graph.messages.prefix import changed

SYSTEM_LABEL: Final = "[system] "
BLANK: Final = "(blank)"
"""What a model reads of a user's message of white space."""
BEGIN: Final = "(the conversation begins)"
"""What the user says first where a chain begins with another's words."""
UNANSWERED: Final = "Error: run interrupted before this tool finished"
FAILED: Final = "Error"
"""What a model reads of a tool that failed and gave no reason."""

_CALL_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,40}")
_SIGNATURES: Final = "__gemini_function_call_thought_signatures__"
"""Where Google's client keeps the signatures of calls, by the calls' ids."""
_OWN_CALLS: Final = ("tool_calls", "function_call")
"""Where clients keep calls a second time."""
_CALL_BLOCKS: Final = frozenset({"tool_use", "function_call", "tool_call"})
"""Types of blocks that are calls, in a reply's content."""


def portable(messages: list[BaseMessage]) -> list[BaseMessage]:
    """Return a chain of the four roles as every provider takes it; the very list if it is so.

    - the system messages that the chain begins with become one; a later one becomes
      `[system] …` of the user; what is no text in them is said by the user;
    - a chain that does not begin with the user gets a first message of the user;
    - blank text is left out, or shown as `(blank)` where nothing else would be left;
    - ids of calls get at most 40 letters, digits, `_` and `-`, each its own in the chain;
    - each call is answered right behind its message, and each answer has its call;
    - a block of a call, or a client's note of one, that is none of the message's calls is left out.

    What stands at a place depends only on what stands before it: a chain that grows keeps its
    beginning. No message is changed.
    """
    return Portable().apply(messages)


class Portable:
    """Make a growing chain portable again and again, looking only at what is new each time.

    Hold one per chain. See `portable` for the rules.
    """

    def __init__(self) -> None:
        self._forget()

    def apply(self, messages: list[BaseMessage]) -> list[BaseMessage]:
        """Return the chain as every provider takes it."""
        start = _first_other(messages)
        body = messages[start:] if start else messages
        if not self._continues(body):
            self._forget()
        for message in body[len(self._seen) :]:
            self._marks.append(None if self._open else (len(self._out), self._same))
            self._take(message)
            self._seen.append(message)
        head = messages[:start]
        one = _system_first(head)
        tail: list[BaseMessage] = [_closing(*call) for call in self._open.values()]
        if not self._out and head and not (one and isinstance(one[-1], HumanMessage)):
            tail = [HumanMessage(BEGIN)]
        if self._same and not tail and one == head:
            return messages
        return [*one, *self._out, *tail]

    def _forget(self) -> None:
        self._seen: list[BaseMessage] = []
        self._out: list[BaseMessage] = []
        self._same = True
        self._marks: list[tuple[int, bool] | None] = []
        """For each message that was seen, how long the chain was before it; None in a turn."""
        self._open: dict[str, tuple[str, str]] = {}
        """Calls that wait for their answers: by the ids in the thread, the new ids and names."""
        self._uses: dict[str, int] = {}
        """How often an id was used before."""

    def _continues(self, body: list[BaseMessage]) -> bool:
        """Say whether the chain goes on from the last one.

        A summary is made anew for each call, and so is what a hook adds at the end.
        """
        known = min(len(self._seen), len(body))
        replaced = changed(self._seen[:known], body[:known])
        if not replaced and known == len(self._seen):
            return True
        alike = all(_plain(self._seen[i]) and _plain(body[i]) for i in replaced)
        if self._same and known == len(self._seen) and alike:
            for i in replaced:
                self._seen[i] = self._out[i] = body[i]
            return True
        return self._rewound(replaced[0] if replaced else known)

    def _rewound(self, at: int) -> bool:
        """Forget the end of the chain, if it was nobody's reply and answered nothing."""
        mark = self._marks[at]
        if mark is None or any(isinstance(m, AIMessage | ToolMessage) for m in self._seen[at:]):
            return False
        size, self._same = mark
        del self._out[size:], self._seen[at:], self._marks[at:]
        return True

    def _take(self, message: BaseMessage) -> None:
        made: BaseMessage | None
        if isinstance(message, ToolMessage):
            made = self._result(message)
        else:
            if self._open:
                self._close()
            if isinstance(message, AIMessage):
                made = self._reply(message)
            elif isinstance(message, SystemMessage):
                made = _later_system(message)
            else:
                made = _said(message)
            if not self._out and made is not None and not isinstance(made, HumanMessage):
                self._same = False
                self._out.append(HumanMessage(BEGIN))
        self._same = self._same and made is message
        if made is not None:
            self._out.append(made)

    def _close(self) -> None:
        """Answer what nobody answered: a provider refuses a history with an open call."""
        self._out += [_closing(*call) for call in self._open.values()]
        self._open, self._same = {}, False

    def _result(self, message: ToolMessage) -> ToolMessage | None:
        known = self._open.pop(message.tool_call_id, None)
        if known is None:
            return None
        content = _blocks(message.content)
        if not content and message.status == "error":
            content = FAILED
        changes: dict[str, Any] = {"content": content, "tool_call_id": known[0], "name": known[1]}
        return _with(message, changes)

    def _reply(self, message: AIMessage) -> AIMessage | None:
        content = _called(_blocks(message.content), message)
        asked = [*message.tool_calls, *map(_without_arguments, message.invalid_tool_calls)]
        calls = list({c["id"]: c for c in reversed(asked) if c["id"] and c["name"]}.values())[::-1]
        if not calls and not _says(content):
            return None
        made: list[ToolCall] = []
        names: dict[str, tuple[str, str]] = {}
        for call in calls:
            old, name = call["id"] or "", portable_tool_name(call["name"])
            names[old] = (self._new_id(old), name)
            made.append(ToolCall(type="tool_call", name=name, args=call["args"], id=names[old][0]))
        self._open = names.copy()
        if made == message.tool_calls and not message.invalid_tool_calls:
            notes = message.additional_kwargs
            if not made and "function_call" in notes:
                notes = _renamed_notes(notes, names)
            return _with(message, {"content": content, "additional_kwargs": notes})
        return changed_copy(
            message,
            content=_renamed(content, names),
            tool_calls=made,
            invalid_tool_calls=[],
            additional_kwargs=_renamed_notes(message.additional_kwargs, names),
        )

    def _new_id(self, call_id: str) -> str:
        """Return a call's own id, or one made of it where it is refused or was used before."""
        uses = self._uses.get(call_id, 0)
        self._uses[call_id] = uses + 1
        if not uses and _CALL_ID.fullmatch(call_id):
            return call_id
        seed = f"{uses} {call_id}".encode("utf-8", "replace")
        return f"call_{hashlib.blake2b(seed, digest_size=12).hexdigest()}"


def _first_other(messages: list[BaseMessage]) -> int:
    """Return where the system messages end that a chain begins with."""
    for at, message in enumerate(messages):
        if not isinstance(message, SystemMessage):
            return at
    return len(messages)


def _system_first(head: list[BaseMessage]) -> list[BaseMessage]:
    """Return one system message with the texts of all, and one of the user with what is no text."""
    contents = [content for message in head if (content := _blocks(message.content))]
    if all(isinstance(content, str) for content in contents):
        if len(contents) == 1 and len(head) == 1 and contents[0] is head[0].content:
            return head
        return [SystemMessage("\n\n".join(map(str, contents)))] if contents else []
    texts: list[Any] = []
    others: list[Any] = []
    for content in contents:
        for block in [_text(content)] if isinstance(content, str) else content:
            (texts if block.get("type") == "text" else others).append(block)
    if not others and len(head) == 1 and contents[0] is head[0].content:
        return head
    made: list[BaseMessage] = [SystemMessage(texts)] if texts else []
    return [*made, HumanMessage([_text(SYSTEM_LABEL.strip()), *others])] if others else made


def _later_system(message: SystemMessage) -> HumanMessage | None:
    content, text = _blocks(message.content), message.text
    others = [b for b in content if b.get("type") != "text"] if isinstance(content, list) else []
    if others:
        return HumanMessage([_text((SYSTEM_LABEL + text).strip()), *others], id=message.id)
    if not text or text.isspace():
        return None
    return HumanMessage(SYSTEM_LABEL + text, id=message.id)


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _called(content: Any, message: AIMessage) -> Any:
    """Return a reply's content without blocks of calls that are none of its calls."""
    if isinstance(content, str):
        return content
    ids = {call["id"] for call in (*message.tool_calls, *message.invalid_tool_calls)}
    kept = [b for b in content if b.get("type") not in _CALL_BLOCKS or _id_of(b) in ids]
    return content if len(kept) == len(content) else kept


def _id_of(block: dict[str, Any]) -> Any:
    return block.get("call_id" if "call_id" in block else "id")


def _said(message: BaseMessage) -> BaseMessage:
    content = _blocks(message.content)
    if not content and message.content != "":  # nothing at all is for validation to refuse
        content = BLANK
    return _with(message, {"content": content})


def _blocks(content: Any) -> Any:
    """Return a content without blank texts, its blocks as objects; the very one if it is so."""
    if isinstance(content, str):
        return "" if content.isspace() else content
    if all(type(block) is dict and not _is_blank(block) and _is_usual(block) for block in content):
        return content
    return [_usual(block) for block in content if not _is_blank(block)]


def _is_blank(block: Any) -> bool:
    text = block if isinstance(block, str) else None
    if text is None and block.get("type") == "text":
        text = block.get("text")
        return not isinstance(text, str) or not text.strip()
    return text is not None and not text.strip()


def _is_usual(block: dict[Any, Any]) -> bool:
    return block.get("type") != "image_url" or not isinstance(block.get("image_url"), str)


def _usual(block: Any) -> dict[Any, Any]:
    if isinstance(block, str):
        return _text(block)
    if not _is_usual(block):
        return {**block, "image_url": {"url": block["image_url"]}}
    found: dict[Any, Any] = block
    return found


def _says(content: Any) -> bool:
    return bool(content) and has_content(AIMessage(content))


def _without_arguments(call: Any) -> ToolCall:
    """Return a call whose arguments cannot be read as one that has none."""
    return ToolCall(type="tool_call", name=call["name"] or "", args={}, id=call["id"])


def _closing(call_id: str, name: str) -> ToolMessage:
    return ToolMessage(UNANSWERED, tool_call_id=call_id, name=name, status="error")


def _renamed(content: Any, names: dict[str, tuple[str, str]]) -> Any:
    """Return a reply's content with its blocks of calls named as the calls are."""
    if isinstance(content, str):
        return content
    out: list[Any] = []
    for block in content:
        key = "call_id" if "call_id" in block else "id"
        if (known := names.get(block.get(key) or "")) is not None and "name" in block:
            block = {**block, key: known[0], "name": known[1]}
        out.append(block)
    return out


def _renamed_notes(notes: dict[str, Any], names: dict[str, tuple[str, str]]) -> dict[str, Any]:
    kept = {key: value for key, value in notes.items() if key not in _OWN_CALLS}
    if isinstance(signatures := kept.get(_SIGNATURES), dict):
        kept[_SIGNATURES] = {names.get(i, (i,))[0]: value for i, value in signatures.items()}
    return kept


def _with(message: M, changes: dict[str, Any]) -> M:
    """Return a copy with other values, or the message itself if it has them."""
    held = message.__dict__
    if all(held[name] is value or held[name] == value for name, value in changes.items()):
        return message
    return changed_copy(message, **changes)


def _plain(message: BaseMessage) -> bool:
    return type(message) is HumanMessage and _said(message) is message
