"""The text in a message's content, and what counts as content at all."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from langchain_core.messages import BaseMessage

from wick_graph.constants import MAX_NESTING

Content: TypeAlias = str | list[str | dict[Any, Any]]
"""A text, or a list of texts and typed content blocks."""

_DEEPEST: Final = 50
_THOUGHT_BLOCKS: Final = frozenset({"thinking", "redacted_thinking", "reasoning"})


def text_of(message: BaseMessage) -> str:
    """Return the text of a message: its content, or its text blocks joined without a gap."""
    return content_text(message.content)


def content_text(content: Content) -> str:
    """Return the text of a content: itself, or its text blocks joined without a gap."""
    if isinstance(content, str):
        return content
    return "".join(_block_text(block) for block in content)


def has_content(message: BaseMessage) -> bool:
    """Tell whether a message says anything: a text, or a block such as an image.

    A model's thoughts are no content; neither are empty text blocks. Spaces are.
    """
    content = message.content
    if isinstance(content, str):
        return content != ""
    return any(_is_content(block) for block in content)


def is_unicode(text: str) -> bool:
    """Tell whether a text can be encoded, which it cannot with half a surrogate pair in it."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_plain(value: Any, depth: int = 0) -> bool:
    """Tell whether a value is JSON-like data that any store can keep."""
    if value is None or isinstance(value, str | bool | int | float):
        return True
    if depth > _DEEPEST:
        return False
    if isinstance(value, dict):
        return all(isinstance(k, str) and is_plain(v, depth + 1) for k, v in value.items())
    return isinstance(value, list | tuple) and all(is_plain(item, depth + 1) for item in value)


def is_deep(value: Any) -> bool:
    """Tell whether JSON-like data is nested deeper than `MAX_NESTING` levels; never recurses."""
    level = [value]
    for _ in range(MAX_NESTING + 1):
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below += item.values()
            elif isinstance(item, list | tuple):
                below += item
        if not below:
            return False
        level = below
    return True


def flat(value: Any) -> Any:
    """Return JSON-like data without those of its parts that are nested too deeply."""
    if isinstance(value, dict):
        return {key: {} if is_deep(item) else item for key, item in value.items()}
    return {} if is_deep(value) else value


def clean_text(text: str) -> str:
    """Return a text that can be encoded: each half of a surrogate pair becomes U+FFFD.

    Halves come from file names that are not UTF-8 and from models that cut an escape in two.
    """
    if is_unicode(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def is_clean(value: Any, depth: int = 0) -> bool:
    """Tell whether every text in JSON-like data, keys too, can be encoded."""
    if isinstance(value, str):
        return is_unicode(value)
    if depth > _DEEPEST:
        return True
    if isinstance(value, dict):
        return all(is_clean(k) and is_clean(item, depth + 1) for k, item in value.items())
    return not isinstance(value, list) or all(is_clean(item, depth + 1) for item in value)


def clean_value(value: Any) -> Any:
    """Return a fresh copy of JSON-like data in which every text, keys too, can be encoded."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean_value(key): clean_value(item) for key, item in value.items()}
    if isinstance(value, list):
        return [clean_value(item) for item in value]
    return value


def _block_text(block: str | dict[Any, Any]) -> str:
    if isinstance(block, str):
        return block
    text = block.get("text")
    return text if block.get("type") == "text" and isinstance(text, str) else ""


def _is_content(block: str | dict[Any, Any]) -> bool:
    if isinstance(block, str):
        return block != ""
    if block.get("type") == "text":
        return bool(block.get("text"))
    return block.get("type") not in _THOUGHT_BLOCKS
