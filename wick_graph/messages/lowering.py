"""Lowering: from seven roles to the four that a model reads, in a form for every provider."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from operator import is_
from typing import Any, Final

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
)

from wick_graph.messages.base import (
    LLM_ROLES,
    MAX_NAME,
    ROLE_AGENT_CALL,
    ROLE_AGENT_RESPONSE,
    ROLE_ASSISTANT,
    ROLE_ERROR,
    ROLE_SYSTEM,
    ROLE_TOOL,
    ROLE_USER,
    M,
    changed_copy,
    copy_message,
    exchanged,
    is_named_by_engine,
    metadata_of,
    portable_tool_name,
    sanitise_name,
)
from wick_graph.messages.calls import error_text
from wick_graph.messages.content import has_content, text_of

# --- The names that the engine gives to replies: the thread keeps them, and no model reads them.
#
# A provider may refuse a name with a space in it, and a prompt must not depend on the name of an
# agent.


def without_own_name(message: BaseMessage) -> BaseMessage:
    """Return a message as a model reads it: a reply without the name of its agent."""
    return changed_copy(message, name=None) if is_named_by_engine(message) else message


# --- The chain that every provider takes: what all of them refuse gets another form.
#
# Providers refuse a whole history for one bad message, so a thread with such a message could never
# be used again. `wick_graph.models.providers` handles what only one provider refuses.


SYSTEM_LABEL: Final = "[system] "

BLANK: Final = "(blank)"
"""What a model reads instead of a user's message of white space."""

BEGIN: Final = "(the conversation begins)"
"""The user's first message if a chain begins with another role."""

UNANSWERED: Final = "Error: run interrupted before this tool finished"

FAILED: Final = "Error"
"""What a model reads if a tool failed without a reason."""

_CALL_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,40}")

_SIGNATURES: Final = "__gemini_function_call_thought_signatures__"
"""The key under which Google's client keeps the signatures of calls, by the calls' ids."""

_NO_NAMES: Final = frozenset[str]()
"""Each `frozenset()` of Python 3.11 is another one, of 216 bytes."""

_KEYS: Final = len(ToolCall.__annotations__)
"""The number of a call's keys."""

_OWN_CALLS: Final = ("tool_calls", "function_call")
"""Keys under which clients keep a second copy of the calls."""

_CALL_BLOCKS: Final = frozenset({"tool_use", "function_call", "tool_call"})
"""Types of blocks in a reply's content that are calls."""


def portable(messages: list[BaseMessage]) -> list[BaseMessage]:
    """Return a chain of the four roles as every provider takes it; the same list if it already is.

    - the system messages that the chain begins with become one; a later one becomes
      `[system] …` of the user; their blocks other than text become the user's;
    - a chain that does not begin with the user gets a first message of the user;
    - blank text is left out, or shown as `(blank)` if nothing else is left;
    - ids of calls get at most 40 letters, digits, `_` and `-`, and are unique in the chain;
    - each call has its answer right after its message, and each answer has its call;
    - a block or a client's note of a call that is not among the message's calls is left out.

    Each message of the result depends only on the messages before it: a growing chain keeps its
    beginning. No message is changed.
    """
    return Portable().apply(messages)


class Portable:
    """Make a growing chain portable; each call looks only at what is new.

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
        while (at := self._take_usual(body)) < len(body):
            self._marks.append(None if self._open else (len(self._out), self._same))
            self._take(body[at])
            self._seen.append(body[at])
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
        """For each seen message, the length of the chain before it; None inside a turn."""
        self._open: dict[str, tuple[str, str]] = {}
        """Calls without an answer: the new ids and names, by the ids in the thread."""
        self._uses: dict[str, int] = {}
        """How often each id was used before."""
        self._usual_names = _NO_NAMES
        """Names of called tools that every provider takes."""

    def _continues(self, body: list[BaseMessage]) -> bool:
        """Say whether the chain continues the last one.

        A summary is new for each call, and so is what a hook adds at the end.
        """
        known = min(len(self._seen), len(body))
        replaced = exchanged(self._seen, body)
        if not replaced and known == len(self._seen):
            return True
        alike = all(_plain(self._seen[i]) and _plain(body[i]) for i in replaced)
        if self._same and known == len(self._seen) and alike:
            for i in replaced:
                self._seen[i] = self._out[i] = body[i]
            return True
        return self._rewound(replaced[0] if replaced else known)

    def _rewound(self, at: int) -> bool:
        """Forget the end of the chain, from the turn on that holds a position."""
        while at and self._marks[at] is None:
            at -= 1
        if (mark := self._marks[at]) is None:
            return False
        for message in self._seen[at:]:
            for call_id in _asked(message) if isinstance(message, AIMessage) else ():
                left = self._uses.pop(call_id) - 1
                if left:
                    self._uses[call_id] = left
        size, self._same = mark
        del self._out[size:], self._seen[at:], self._marks[at:]
        self._open = {}
        return True

    def _take_usual(self, body: list[BaseMessage]) -> int:
        """Take the next messages of a chain that surely need no other form, nearly all of a thread.

        Return the index of the first one about which `_take` decides.
        """
        out, marks = self._out, self._marks
        for at in range(len(self._seen), len(body)):
            message = body[at]
            if type(message) is ToolMessage:
                known = self._open.get(message.tool_call_id)
                if known != (message.tool_call_id, message.name) or not _is_said(message.content):
                    break
                del self._open[message.tool_call_id]
                marks.append(None)
            elif type(message) is AIMessage and out and not self._open:
                if not self._takes_as_it_is(message):
                    break
                marks.append((len(out), self._same))
            elif type(message) is HumanMessage and not self._open and _is_said(message.content):
                marks.append((len(out), self._same))
            else:
                break
            out.append(message)
            self._seen.append(message)
        return len(self._seen)

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
        """Answer the open calls: a provider refuses a history with one."""
        self._out += [_closing(*call) for call in self._open.values()]
        self._open, self._same = {}, False

    def _result(self, message: ToolMessage) -> ToolMessage | None:
        known = self._open.pop(message.tool_call_id, None)
        if known is None:
            return None
        if _is_said(message.content) and known == (message.tool_call_id, message.name):
            return message
        content = _blocks(message.content)
        if not content and message.status == "error":
            content = FAILED
        changes: dict[str, Any] = {"content": content, "tool_call_id": known[0], "name": known[1]}
        return _with(message, changes)

    def _reply(self, message: AIMessage) -> AIMessage | None:
        if self._takes_as_it_is(message):
            return message
        content = _called(_blocks(message.content), message)
        calls = list(_asked(message).values())[::-1]
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

    def _takes_as_it_is(self, message: AIMessage) -> bool:
        """Note the calls of a usual reply, which needs no other form; False means: look closer."""
        content, calls = message.content, message.tool_calls
        if message.invalid_tool_calls or not (_is_said(content) or (content == "" and calls)):
            return False
        if not calls:
            return "function_call" not in message.additional_kwargs
        names: dict[str, tuple[str, str]] = {}
        for call in calls:
            name, call_id = call["name"], call["id"]
            if call.get("type") != "tool_call" or len(call) != _KEYS:
                return False
            if not name or not call_id or call_id in self._uses or call_id in names:
                return False
            if name not in self._usual_names:
                if portable_tool_name(name) != name:
                    return False
                self._usual_names |= {name}
            if not _CALL_ID.fullmatch(call_id):
                return False
            names[call_id] = call_id, name
        for call_id in names:
            self._uses[call_id] = 1
        self._open = names
        return True

    def _new_id(self, call_id: str) -> str:
        """Return a call's own id, or a new one if providers refuse it or it was used before."""
        uses = self._uses.get(call_id, 0)
        self._uses[call_id] = uses + 1
        if not uses and _CALL_ID.fullmatch(call_id):
            return call_id
        seed = f"{uses} {call_id}".encode("utf-8", "replace")
        return f"call_{hashlib.blake2b(seed, digest_size=12).hexdigest()}"


def _asked(message: AIMessage) -> dict[str, ToolCall]:
    """Return the calls of a reply that can be answered, by their ids, the last first."""
    asked = [*message.tool_calls, *map(_without_arguments, message.invalid_tool_calls)]
    return {c["id"]: c for c in reversed(asked) if c["id"] and c["name"]}


def _first_other(messages: list[BaseMessage]) -> int:
    """Return where the leading system messages of a chain end."""
    for at, message in enumerate(messages):
        if not isinstance(message, SystemMessage):
            return at
    return len(messages)


def _system_first(head: list[BaseMessage]) -> list[BaseMessage]:
    """Return one system message with all texts, and one of the user with all other blocks."""
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
    """Return a reply's content without blocks of calls that are not among its calls."""
    if isinstance(content, str):
        return content
    ids = {call["id"] for call in (*message.tool_calls, *message.invalid_tool_calls)}
    kept = [b for b in content if b.get("type") not in _CALL_BLOCKS or _id_of(b) in ids]
    return content if len(kept) == len(content) else kept


def _id_of(block: dict[str, Any]) -> Any:
    return block.get("call_id" if "call_id" in block else "id")


def _is_said(content: Any) -> bool:
    """Return whether a content is a text with more than white space in it."""
    return type(content) is str and content != "" and not content.isspace()


def _said(message: BaseMessage) -> BaseMessage:
    if _is_said(message.content):
        return message
    content = _blocks(message.content)
    if not content and message.content != "":  # validation refuses an empty text
        content = BLANK
    return _with(message, {"content": content})


def _blocks(content: Any) -> Any:
    """Return a content without blank texts, its blocks as objects; the same one if it is so."""
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
    """Return a call with unreadable arguments as one with none."""
    return ToolCall(type="tool_call", name=call["name"] or "", args={}, id=call["id"])


def _closing(call_id: str, name: str) -> ToolMessage:
    return ToolMessage(UNANSWERED, tool_call_id=call_id, name=name, status="error")


def _renamed(content: Any, names: dict[str, tuple[str, str]]) -> Any:
    """Return a reply's content with the ids and names of the calls in its blocks of calls."""
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
    """Return a copy with other values, or the message itself if it has them already."""
    held = message.__dict__
    if all(held[name] is value or held[name] == value for name, value in changes.items()):
        return message
    return changed_copy(message, **changes)


def _plain(message: BaseMessage) -> bool:
    return type(message) is HumanMessage and _said(message) is message


# --- Lowering: from the seven roles that a thread holds to the four that a model reads.


_CLASSES: Final[dict[str, type[BaseMessage]]] = {
    ROLE_USER: HumanMessage,
    ROLE_SYSTEM: SystemMessage,
    ROLE_ASSISTANT: AIMessage,
}

_PLAIN: Final = frozenset(_CLASSES.values())


def lower(
    messages: list[BaseMessage],
    self_name: str | None = None,
    *,
    include_errors: bool = False,
    inject_subagent_results: bool = False,
) -> list[BaseMessage]:
    """Return the chain that a model reads in place of this one.

    The same list comes back if nothing needs lowering; no message is ever changed.

    - `agent_call` becomes `[Request from <caller>]: …` of the user, or nothing if it belongs to a
      call of this chain or `self_name` is the caller;
    - `agent_response` answers its call if nothing else does; else it is left out, or becomes
      `[Response from <name>]: …` with `inject_subagent_results`;
    - `error` answers its call with `Error: …`; one of another agent than `self_name` becomes
      `[Error from <name>]: …`, or nothing if `self_name` is its caller; an own one is left out, or
      becomes a failed attempt of the assistant with `include_errors`;
    - a `ChatMessage` of one of the four roles becomes a message of LangChain's class for it, a
      tool message without a name gets its call's, and other names are sanitised.

    An unknown role stays, for validation to refuse. A reply loses the name of its agent.
    """
    lowering = Lowering(
        self_name, include_errors=include_errors, inject_subagent_results=inject_subagent_results
    )
    return lowering.lower(messages)


class Lowering:
    """Lower a growing chain; each call looks only at what is new.

    Hold one per chain. See `lower` for the rules; `render`, by default `labelled`, makes the
    message that a model reads in place of a record.
    """

    __slots__ = (
        *("_answered", "_asked", "_include_errors", "_inject_results", "_out", "_plain"),
        *("_render", "_same", "_seen", "_self_name", "_stand_ins"),
    )

    _same: bool
    """Whether the chain came out as it was."""
    _plain: bool
    """Whether nothing needed lowering yet, so that nothing is noted."""

    def __init__(
        self,
        self_name: str | None = None,
        *,
        include_errors: bool = False,
        inject_subagent_results: bool = False,
        render: Callable[[ChatMessage], BaseMessage] | None = None,
    ) -> None:
        self._render = labelled if render is None else render
        self._self_name = self_name
        self._include_errors = include_errors
        self._inject_results = inject_subagent_results
        self._forget()

    def lower(self, messages: list[BaseMessage]) -> list[BaseMessage]:
        """Return the chain that a model reads in place of this one."""
        if not self._continues(messages) and not self._shortened(messages):
            self._forget()
        new = messages[len(self._seen) :]
        bare = _plain_ones(new) if self._plain else None
        if bare is not None:
            if not all(map(is_, bare, new)):
                self._same = False
            self._seen += new
            self._out += bare
        else:
            self._take_notes()
            for message in new:
                self._take(message)
                self._seen.append(message)
        return messages if self._same else list(self._out)

    def _forget(self) -> None:
        self._seen: list[BaseMessage] = []
        self._out: list[BaseMessage] = []
        self._same = True
        self._plain = True
        self._asked: dict[str, str] = {}
        """Ids of calls, with the tool's name."""
        self._answered: dict[str, None] = {}
        """Ids of calls with an answer; an empty dict is a third of an empty set."""
        self._stand_ins: dict[str, ToolMessage] = {}
        """Answers made from records, until the tool's own message comes."""

    def _take_notes(self) -> None:
        """Note the calls and answers of a chain in which nothing needed lowering so far."""
        for message in self._seen if self._plain else ():
            if isinstance(message, AIMessage):
                self._note_calls(message)
            elif isinstance(message, ToolMessage):
                self._note_answer(message)
        self._plain = False

    def _continues(self, messages: list[BaseMessage]) -> bool:
        """Tell whether the list continues the last one, after exchanging what may change.

        Each call makes a new system prompt in the place of the old one.
        """
        if len(messages) < len(self._seen):
            return False
        replaced = exchanged(self._seen, messages)
        if not all(self._exchangeable(index, messages[index]) for index in replaced):
            return False
        for index in replaced:
            self._seen[index] = self._out[index] = messages[index]
        return True

    def _shortened(self, messages: list[BaseMessage]) -> bool:
        """Forget the end that the list does not have; only what needed no notes can be cut off."""
        if not self._plain:
            return False
        at = min([*exchanged(self._seen, messages)[:1], len(self._seen), len(messages)])
        del self._seen[at:], self._out[at:]
        self._same = all(map(is_, self._seen, self._out))
        return True

    def _exchangeable(self, index: int, new: BaseMessage) -> bool:
        old = self._seen[index]
        in_place = index < len(self._out) and self._out[index] is old
        return in_place and all(
            type(message) in (SystemMessage, HumanMessage) and message.name is None
            for message in (old, new)
        )

    def _take(self, message: BaseMessage) -> None:
        rule = _RULES.get(message.role) if isinstance(message, ChatMessage) else None
        if rule and isinstance(message, ChatMessage):
            lowered = rule(self, message)
        else:
            plain = _canonical(without_own_name(message))
            if isinstance(plain, ToolMessage):
                self._note_answer(plain)
            elif isinstance(plain, AIMessage):
                self._note_calls(plain)
            lowered = self._named(plain)
        if lowered is not message:
            self._same = False
        if lowered is not None:
            self._out.append(lowered)

    def _note_calls(self, message: AIMessage) -> None:
        for call in (*message.tool_calls, *message.invalid_tool_calls):
            if call["id"]:  # some models count their ids from 0 in every reply
                self._asked[call["id"]] = call["name"] or ""
                self._answered.pop(call["id"], None)
                self._stand_ins.pop(call["id"], None)

    def _note_answer(self, message: ToolMessage) -> None:
        self._answered[message.tool_call_id] = None
        stand_in = self._stand_ins.pop(message.tool_call_id, None)
        if stand_in is not None:
            self._out = [kept for kept in self._out if kept is not stand_in]

    def _named(self, message: BaseMessage) -> BaseMessage:
        name = message.name
        if isinstance(message, ToolMessage):
            wanted = name or self._asked.get(message.tool_call_id) or name
        else:
            wanted = name if name is None else sanitise_name(name)[:MAX_NAME] or None
        return message if wanted == name else copy_message(message, name=wanted)

    def _agent_call(self, message: ChatMessage) -> BaseMessage | None:
        if self._call_of(message) is not None or self._is_own_request(message):
            return None
        return self._render(message)

    def _agent_response(self, message: ChatMessage) -> BaseMessage | None:
        call_id = self._call_of(message)
        if call_id is not None:
            self._answer(call_id, message, text_of(message), failed=False)
            return None
        return self._render(message) if self._inject_results else None

    def _error(self, message: ChatMessage) -> BaseMessage | None:
        call_id = self._call_of(message)
        if call_id is not None:
            self._answer(call_id, message, error_text(text_of(message)), failed=True)
            return None
        if self._is_own_request(message):
            return None
        if message.name and message.name != self._self_name:
            return self._render(message)
        if not self._include_errors:
            return None
        kind = metadata_of(message).get("error_type") or "Error"
        return AIMessage(content=f"[The previous attempt failed: {kind}]", id=message.id)

    def _is_own_request(self, message: ChatMessage) -> bool:
        """Tell whether a record is of this agent's own request to another one.

        A call of this agent makes the same request, or made it in a part that was left out.
        """
        return self._self_name is not None and metadata_of(message).get("caller") == self._self_name

    def _call_of(self, message: ChatMessage) -> str | None:
        """Return the id of the call in this chain that a record belongs to."""
        call_id = metadata_of(message).get("tool_call_id")
        return call_id if isinstance(call_id, str) and call_id in self._asked else None

    def _answer(self, call_id: str, message: ChatMessage, text: str, *, failed: bool) -> None:
        """Answer an open call with a record, after the answers that are already there."""
        if call_id in self._answered or call_id in self._stand_ins:
            return
        answer = ToolMessage(
            content=text,
            tool_call_id=call_id,
            name=self._asked[call_id] or message.name or "unknown",
            status="error" if failed else "success",
            id=message.id,
        )
        self._stand_ins[call_id] = answer
        place = len(self._out)
        while not _asks(self._out[place - 1], call_id):
            place -= 1
        while place < len(self._out) and isinstance(self._out[place], ToolMessage):
            place += 1
        self._out.insert(place, answer)


_RULES: Final[dict[str, Callable[[Lowering, ChatMessage], BaseMessage | None]]] = {
    ROLE_AGENT_CALL: Lowering._agent_call,
    ROLE_AGENT_RESPONSE: Lowering._agent_response,
    ROLE_ERROR: Lowering._error,
}


def labelled(message: ChatMessage) -> HumanMessage:
    """Return a record as words of the user, under a label that names the agent.

    The label is not a security boundary: other agents' words are untrusted.
    """
    name: object = message.name
    if message.role == ROLE_AGENT_CALL:
        name = metadata_of(message).get("caller")
    label = {ROLE_AGENT_CALL: "Request", ROLE_AGENT_RESPONSE: "Response"}.get(message.role, "Error")
    text = f"[{label} from {name or 'unknown'}]: {text_of(message)}"
    return HumanMessage(content=text, id=message.id)


def _canonical(message: BaseMessage) -> BaseMessage:
    """Return LangChain's own class for a `ChatMessage` of one of the four roles."""
    if not isinstance(message, ChatMessage) or message.role not in LLM_ROLES:
        return message
    copied = copy_message(message)
    common: dict[str, Any] = {
        "content": copied.content,
        "name": copied.name,
        "id": copied.id,
        "additional_kwargs": copied.additional_kwargs,
        "response_metadata": copied.response_metadata,
    }
    if message.role == ROLE_TOOL:
        call_id = (message.model_extra or {}).get("tool_call_id")
        return ToolMessage(**common, tool_call_id=call_id if isinstance(call_id, str) else "")
    return _CLASSES[message.role](**common)


def _plain_ones(messages: list[BaseMessage]) -> list[BaseMessage] | None:
    """Return messages without the names of their agents; None if one needs another form too.

    Nearly all chains are such; a resumed thread is lowered as a whole, so there is no call for each
    message.
    """
    out: list[BaseMessage] = []
    for message in messages:
        kind, name = type(message), message.name
        if kind is ToolMessage:
            if not name:
                return None
        elif kind not in _PLAIN:
            return None
        elif name is not None:
            message = without_own_name(message)
            if message.name is not None:
                return None
        out.append(message)
    return out


def _asks(message: BaseMessage, call_id: str) -> bool:
    return isinstance(message, AIMessage) and any(
        call["id"] == call_id for call in (*message.tool_calls, *message.invalid_tool_calls)
    )
