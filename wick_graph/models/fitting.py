"""What one provider refuses, or its client cannot write, put into a form that it takes.

A thread may hold pictures, thoughts and blocks of any provider, since its model may change. What
all providers refuse is made good before (`wick_graph.messages.portable`); here stands what differs
between them. Models of other providers are sent the messages as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from wick_graph.messages.content import content_text
from wick_graph.messages.copies import changed_copy
from wick_graph.messages.pictures import PICTURES, picture_of

GO_ON: Final = "(go on)"
"""Ends a turn of another model where Anthropic would miss the thoughts of that turn."""
SHOWN_BELOW: Final = "(shown below)"
"""A result that is a picture, where the picture stands behind the results."""
NO_WORDS: Final = "(nothing that this model reads)"
"""A reply of another model that was no text, or a picture alone."""

_ANY: Final = frozenset({"image/png", "image/jpeg", "image/webp", "image/gif"})
_STILL: Final = _ANY - {"image/gif"}
_THOUGHTS: Final = ("thinking", "redacted_thinking")
_CONTENT: Final = attrgetter("content")
_TEXT: Final = frozenset({str})


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """What a provider takes beyond texts and calls."""

    name: str = ""
    """LangChain's mark of its replies, whose blocks it takes back unchanged; "" for none."""
    blocks: frozenset[str]
    """Types of blocks that a user's message may have, beside texts and pictures."""
    pictures: frozenset[str] = _ANY
    addresses: bool = True
    """A picture may be an address. Google's client would fetch it itself, from this machine."""
    in_results: bool = True
    """A tool's result may hold pictures."""
    forms: frozenset[str] = frozenset()
    """Keys of which a file has one, in the forms that the client can write; empty for any."""
    texts: frozenset[str] = frozenset({"type", "text"})
    """Keys of a block of text; others are left out."""
    replies: Callable[[dict[str, Any]], bool] = lambda block: True
    """Whether it takes a block of a reply back that bears its mark; callers can make such."""
    thinks: Callable[[BaseChatModel], bool] = lambda model: False
    """Whether each reply with calls must begin with a thought, in the turn that goes on."""


_DATA: Final = frozenset({"base64", "data"})
_CHAT: Final = Provider(
    blocks=frozenset({"input_audio", "file", "audio"}),
    forms=_DATA | {"file", "file_id", "id"},
    in_results=False,
)
_RESPONSES: Final = Provider(
    name="openai",
    blocks=frozenset({"file", "input_file", "input_text", "input_image"}),
    forms=_DATA | {"file", "file_id", "id", "url"},
    replies=lambda block: block.get("type") != "reasoning" or bool(block.get("id")),
)
_ANTHROPIC: Final = Provider(
    name="anthropic",
    blocks=frozenset({"document", "file", "search_result", "container_upload"}),
    forms=_DATA | {"file_id", "id", "url"},
    texts=frozenset({"type", "text", "cache_control", "citations"}),
    replies=lambda block: _is_anthropics(block),
    thinks=lambda model: _thinks(model),
)
_GOOGLE: Final = Provider(
    name="google_genai",
    blocks=frozenset({"media", "file", "audio", "video"}),
    forms=_DATA | {"file_id"},
    pictures=_STILL,
    addresses=False,
    replies=lambda block: _is_googles(block),
)
_OLLAMA: Final = Provider(blocks=frozenset(), pictures=_STILL, addresses=False, in_results=False)
_BY_KIND: Final = {
    "anthropic-chat": _ANTHROPIC,
    "chat-google-generative-ai": _GOOGLE,
    "chat-ollama": _OLLAMA,
}
"""By LangChain's type names; OpenAI's has two protocols."""


def provider_of(model: BaseChatModel, tools: bool) -> Provider | None:
    """Return what is known of a model's provider, or None."""
    kind = model._llm_type
    if kind in ("openai-chat", "azure-openai-chat"):
        choose = getattr(model, "_use_responses_api", None)
        asked = {"tools": [{"type": "function"}]} if tools else {}
        return _RESPONSES if choose is not None and choose(asked) else _CHAT
    return _BY_KIND.get(kind)


@dataclass(slots=True)
class Fitting:
    """Fit a growing chain to a model again and again; each message is looked at once."""

    model: BaseChatModel
    provider: Provider
    _known: dict[int, tuple[BaseMessage, BaseMessage]] = field(default_factory=dict)

    def fit(self, messages: list[BaseMessage]) -> list[BaseMessage]:
        """Return the chain as the provider takes it; the very list if it is so."""
        closes = self.provider.thinks(self.model)
        if not closes and _TEXT.issuperset(map(type, map(_CONTENT, messages))):
            return messages
        fitted = list(map(self._fitted, messages))
        if not self.provider.in_results:
            fitted = list(_pictures_behind(fitted))
        return list(_turns_closed(fitted)) if closes else fitted

    def _fitted(self, message: BaseMessage) -> BaseMessage:
        if isinstance(message.content, str):
            return message
        known = self._known.get(id(message))
        if known is None or known[0] is not message:
            if len(self._known) > 2 * _MOST:
                self._known.clear()
            known = self._known[id(message)] = (message, self._make(message))
        return known[1]

    def _make(self, message: BaseMessage) -> BaseMessage:
        content: Any = message.content
        if isinstance(message, AIMessage):
            if self._is_own(message):
                made: Any = list(filter(self.provider.replies, content))
                made = content if len(made) == len(content) else made
            else:
                made = _words(content)
            if not made and not message.tool_calls:
                made = NO_WORDS
            return changed_copy(message, content=made) if made is not content else message
        made = [self._block(block) for block in content]
        same = all(new is old for new, old in zip(made, content, strict=True))
        return message if same else changed_copy(message, content=made)

    def _is_own(self, message: AIMessage) -> bool:
        """Say whether a reply is one that this provider signed; others' thoughts it refuses."""
        mark = message.response_metadata.get("model_provider")
        return bool(self.provider.name) and mark == self.provider.name

    def _block(self, block: Any) -> Any:
        kind = block.get("type")
        if kind == "text":
            texts = self.provider.texts
            known = texts.issuperset(block)
            return block if known else {key: block[key] for key in block if key in texts}
        if kind in PICTURES:
            return self._picture(block)
        if kind in self.provider.blocks and self._is_written(block):
            return block
        return _note(f"a block of type {str(kind)[:40]} is left out: this model does not read it")

    def _is_written(self, block: dict[str, Any]) -> bool:
        """Say whether the client can write a file in the form in which it is given."""
        kind, forms = block["type"], self.provider.forms
        if kind == "document":
            return isinstance(block.get("source"), dict)
        if kind not in _FILES:
            return True
        found = set(block) if "source_type" in block else set(block) - _OLD_FORMS
        return not (forms if kind == "file" else forms & _DATA).isdisjoint(found)

    def _picture(self, block: dict[str, Any]) -> dict[str, Any]:
        kind, data = picture_of(block)
        if kind == "":
            address = data if len(data) <= _LONGEST else f"{data[:_LONGEST]}…"
            usual = {"type": "image_url", "image_url": {"url": data}}
            if not self.provider.addresses:
                return _note(f"a picture at {address}")
            return usual if block["type"] == "image" and "source" in block else block
        if kind not in self.provider.pictures:
            return _note(f"a picture is left out: this model does not read {kind or 'it'}"[:200])
        if block["type"] == "image" and "source" in block and self.provider is not _ANTHROPIC:
            return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}}
        return block


_FILES: Final = frozenset({"file", "audio", "video"})
_OLD_FORMS: Final = frozenset({"data", "id"})
"""Keys that hold a file only where `source_type` says so."""
_GOOGLE_KEYS: Final = {
    **{kind: (kind,) for kind in ("text", "thinking", "code_execution_result")},
    "executable_code": ("executable_code", "language"),
    "media": ("mime_type",),
    **dict.fromkeys(("reasoning", "server_tool_call", "server_tool_result", "non_standard"), ()),
    **dict.fromkeys(("image_url", "image", "file", "audio", "video", "file_data"), ()),
    **dict.fromkeys(("function_call", "function_call_signature", "tool_use", "tool_call"), ()),
}
"""Types of blocks that Google's client writes of a reply of its own, and keys that it needs."""
_MOST: Final = 10_000
_LONGEST: Final = 500


def _words(content: Any) -> str:
    """Return what a reply of another provider says: thoughts and calls are not its words."""
    said = [
        block.get("refusal") or "" if block.get("type") == "refusal" else content_text([block])
        for block in content
        if isinstance(block, dict)
    ]
    return "".join(said)


def _is_anthropics(block: dict[str, Any]) -> bool:
    """Say whether a block of a reply may be one that Anthropic made: its thoughts are sealed."""
    kind = block.get("type")
    if kind in _THOUGHTS:
        return bool(block.get("signature" if kind == "thinking" else "data"))
    return kind not in PICTURES


def _is_googles(block: dict[str, Any]) -> bool:
    """Say whether a block of a reply may be one that Google made."""
    keys = _GOOGLE_KEYS.get(block.get("type") or "")
    return keys is not None and all(block.get(key) is not None for key in keys)


def _note(text: str) -> dict[str, Any]:
    return {"type": "text", "text": f"[{text}]"}


def _pictures_behind(messages: Sequence[BaseMessage]) -> Iterator[BaseMessage]:
    """Yield the messages, pictures of results in a message of the user behind the last result."""
    held: list[Any] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            if isinstance(message.content, list):
                content = message.content
                found = [b for b in content if isinstance(b, dict) and b.get("type") in PICTURES]
                if found:
                    held += [_note(f"from the tool {message.name}"), *found]
                words = content_text(content) or (SHOWN_BELOW if found else "")
                message = changed_copy(message, content=words)
        elif held:
            yield HumanMessage(held)
            held = []
        yield message
    if held:
        yield HumanMessage(held)


def _thinks(model: BaseChatModel) -> bool:
    thinking = getattr(model, "thinking", None)
    return isinstance(thinking, dict) and thinking.get("type") in ("enabled", "adaptive")


def _turns_closed(messages: Sequence[BaseMessage]) -> Iterator[BaseMessage]:
    """Yield the messages; a turn whose calls have no thoughts before them ends at its results."""
    bare = False
    for message in messages:
        if bare and not isinstance(message, ToolMessage):
            yield HumanMessage(GO_ON)
            bare = False
        if isinstance(message, AIMessage) and message.tool_calls:
            first = (
                message.content[0] if isinstance(message.content, list) and message.content else ""
            )
            bare = not (isinstance(first, dict) and first.get("type") in _THOUGHTS)
        yield message
    if bare:
        yield HumanMessage(GO_ON)
