"""Lowering: from the seven roles that a thread holds to the four that a model reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from wick_graph.messages.calls import error_text
from wick_graph.messages.content import text_of
from wick_graph.messages.copies import copy_message, metadata_of
from wick_graph.messages.names import MAX_NAME, sanitise_name
from wick_graph.messages.prefix import changed
from wick_graph.messages.roles import (
    LLM_ROLES,
    ROLE_AGENT_CALL,
    ROLE_AGENT_RESPONSE,
    ROLE_ASSISTANT,
    ROLE_ERROR,
    ROLE_SYSTEM,
    ROLE_TOOL,
    ROLE_USER,
)
from wick_graph.messages.unnamed import Unnamed

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

    The very list comes back if nothing needs lowering; no message is ever changed.

    - `agent_call` becomes `[Request from <caller>]: …` of the user, or nothing if it belongs to a
      call of this chain or `self_name` is the caller;
    - `agent_response` answers its call if nothing else does; else it is left out, or becomes
      `[Response from <name>]: …` with `inject_subagent_results`;
    - `error` answers its call with `Error: …`; one of another agent than `self_name` becomes
      `[Error from <name>]: …`, or nothing if `self_name` is its caller; an own one is left out, or
      told as a failed attempt of the assistant with `include_errors`;
    - a `ChatMessage` of one of the four roles becomes a message of LangChain's class for it, a
      tool message without a name gets its call's, and other names are made acceptable.

    A role nobody knows stays, for validation to refuse. A reply loses the name of its agent.
    """
    messages = Unnamed().read(messages)
    if all(map(_is_plain, messages)):
        return messages
    lowering = Lowering(
        self_name, include_errors=include_errors, inject_subagent_results=inject_subagent_results
    )
    return lowering.lower(messages)


class Lowering:
    """Lower a growing chain again and again, looking only at what is new each time.

    Hold one per chain. See `lower` for the rules; `render` makes what a model reads of a record
    that is not left out, in place of `labelled`.
    """

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
        self._rules: dict[str, Callable[[ChatMessage], BaseMessage | None]] = {
            ROLE_AGENT_CALL: self._agent_call,
            ROLE_AGENT_RESPONSE: self._agent_response,
            ROLE_ERROR: self._error,
        }
        self._unnamed = Unnamed()
        self._forget()

    def lower(self, messages: list[BaseMessage]) -> list[BaseMessage]:
        """Return the chain that a model reads in place of this one."""
        messages = self._unnamed.read(messages)
        if not self._continues(messages):
            self._forget()
        new = messages[len(self._seen) :]
        if self._plain and all(map(_is_plain, new)):
            self._seen += new
            self._out += new
            return messages
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
        """Nothing needed lowering, so nothing was noted."""
        self._asked: dict[str, str] = {}
        """Ids of calls, with the tool's name."""
        self._answered: set[str] = set()
        self._stand_ins: dict[str, ToolMessage] = {}
        """Answers made of records, until the tool's own message comes."""

    def _take_notes(self) -> None:
        """Note calls and answers of a chain in which until now nothing needed lowering."""
        for message in self._seen if self._plain else ():
            if isinstance(message, AIMessage):
                self._note_calls(message)
            elif isinstance(message, ToolMessage):
                self._note_answer(message)
        self._plain = False

    def _continues(self, messages: list[BaseMessage]) -> bool:
        """Tell whether the list goes on from the last one, once what may be is exchanged.

        A system prompt is made anew for each call and stands where the old one stood.
        """
        if len(messages) < len(self._seen):
            return False
        known = len(self._seen)
        replaced = changed(self._seen, messages[:known])
        if not all(self._exchangeable(index, messages[index]) for index in replaced):
            return False
        for index in replaced:
            self._seen[index] = self._out[index] = messages[index]
        return True

    def _exchangeable(self, index: int, new: BaseMessage) -> bool:
        old = self._seen[index]
        in_place = index < len(self._out) and self._out[index] is old
        return in_place and all(
            type(message) in (SystemMessage, HumanMessage) and message.name is None
            for message in (old, new)
        )

    def _take(self, message: BaseMessage) -> None:
        rule = self._rules.get(message.role) if isinstance(message, ChatMessage) else None
        if rule and isinstance(message, ChatMessage):
            lowered = rule(message)
        else:
            plain = _canonical(message)
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
                self._answered.discard(call["id"])
                self._stand_ins.pop(call["id"], None)

    def _note_answer(self, message: ToolMessage) -> None:
        self._answered.add(message.tool_call_id)
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
        """Tell whether a record is of what this agent itself asked of another one.

        A call of this agent says so too, or said it in a part that was left out.
        """
        return self._self_name is not None and metadata_of(message).get("caller") == self._self_name

    def _call_of(self, message: ChatMessage) -> str | None:
        """Return the id of the call in this chain that a record belongs to."""
        call_id = metadata_of(message).get("tool_call_id")
        return call_id if isinstance(call_id, str) and call_id in self._asked else None

    def _answer(self, call_id: str, message: ChatMessage, text: str, *, failed: bool) -> None:
        """Answer an open call with a record, behind the answers that are already there."""
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


def labelled(message: ChatMessage) -> HumanMessage:
    """Return a record as words of the user, under a label that says whose they are.

    The label is no security boundary: what other agents say is untrusted.
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


def _is_plain(message: BaseMessage) -> bool:
    """Tell quickly whether a message stays as it is in any chain."""
    if type(message) is ToolMessage:
        return bool(message.name)
    return type(message) in _PLAIN and message.name is None


def _asks(message: BaseMessage, call_id: str) -> bool:
    return isinstance(message, AIMessage) and any(
        call["id"] == call_id for call in (*message.tool_calls, *message.invalid_tool_calls)
    )
