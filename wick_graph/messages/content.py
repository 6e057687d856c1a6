"""Content of messages: texts, pictures, invisible characters, JSON."""

from __future__ import annotations

import binascii
import json
import re
from typing import Any, Final, NoReturn, TypeAlias

from langchain_core.messages import BaseMessage
from pydantic import ValidationError

from wick_graph.constants import MAX_NESTING
from wick_graph.errors import MessageError

# --- The text in a message's content, and what counts as content at all.


Content: TypeAlias = str | list[str | dict[Any, Any]]
"""A text, or a list of texts and typed content blocks."""

_DEEPEST: Final = 50

_THOUGHT_BLOCKS: Final = frozenset({"thinking", "redacted_thinking", "reasoning"})

THOUGHT_KEYS: Final = frozenset({"reasoning_content", "reasoning"})
"""Keys of `additional_kwargs` that hold a reply's reasoning."""


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

    A model's thoughts and empty text blocks are not content; spaces are.
    """
    content = message.content
    if isinstance(content, str):
        return content != ""
    return any(_is_content(block) for block in content)


def refusal_of(block: Any) -> str:
    """Return the words of a block in which OpenAI's models refuse to answer; empty for others."""
    inner = block.get("value", block) if isinstance(block, dict) else None
    words = inner.get("refusal") if isinstance(inner, dict) else None
    return words if isinstance(words, str) else ""


def refusal_in(message: BaseMessage) -> str:
    """Return why a model refuses to answer, which OpenAI's models say apart from their texts."""
    words = message.additional_kwargs.get("refusal")
    content = message.content if isinstance(message.content, list) else ()
    said = [words if isinstance(words, str) else "", *map(refusal_of, content)]
    return "\n".join(filter(None, said))


def is_unicode(text: str) -> bool:
    """Tell whether a text can be encoded: it holds no half of a surrogate pair."""
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
    """Return JSON-like data with `{}` for each part that is nested too deeply."""
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


# --- Pictures in a message, in each form that clients write.


PICTURES: Final = ("image_url", "image")
"""Types of blocks that are pictures."""


def picture_of(block: dict[str, Any]) -> tuple[str, str]:
    """Return a picture's media type and its data in base64; for an address, "" and the address.

    Forms: OpenAI's `image_url`, LangChain's `image` with `base64` or `url`, and Anthropic's with a
    `source`. Anything else has the media type `none`.
    """
    source = block.get("source") if isinstance(block.get("source"), dict) else block
    assert isinstance(source, dict)
    url = source.get("url") or source.get("image_url")
    if isinstance(url, dict):
        url = url.get("url")
    if isinstance(url, str):
        return _of_url(url)
    kind = source.get("media_type") or source.get("mime_type")
    data = source.get("data") or source.get("base64")
    if isinstance(kind, str) and isinstance(data, str):
        return kind, data
    return "none", ""


def _of_url(url: str) -> tuple[str, str]:
    if url.startswith(("https://", "http://")):
        return "", url
    head, comma, data = url.partition(",")
    if comma and head.startswith("data:image/") and head.endswith(";base64"):
        return head.removeprefix("data:").removesuffix(";base64"), data
    return "none", ""


def picture_problem(block: dict[str, Any]) -> str | None:
    """Say why no provider reads a picture, or None."""
    kind, data = picture_of(block)
    if kind == "":
        return None
    if not kind.startswith("image/"):
        return "a picture is an http(s) address, or data:image/…;base64,…"
    try:
        binascii.a2b_base64(data, strict_mode=True)
    except (binascii.Error, ValueError):
        return "a picture's data is not base64"
    return None if data else "a picture has no data"


# --- Characters that people do not see but models read, made visible.
#
# Text from tools and files may hide orders in characters that no terminal and no editor shows:
# zero-width characters, bidirectional controls, Unicode tags, variation selectors. They become
# `\u{200b}`, which people see and models do not obey.


_HIDDEN: Final = (
    r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    r"\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb"
    r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)

_SEEN: Final = rf"[^\x00-\x7f{_HIDDEN}\u200c\u200d\ufe00-\ufe0f]"
"""A letter or sign beyond ASCII: its script may need joiners and selectors."""

_INVISIBLE: Final = re.compile(
    rf"[{_HIDDEN}]"
    rf"|(?<!{_SEEN})(?<!{_SEEN}\ufe0f)[\u200c\u200d]|[\u200c\u200d](?!{_SEEN})"
    rf"|[\ufe00-\ufe0d]|(?<!{_SEEN})(?<![0-9#*])[\ufe0e\ufe0f]"
)

_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def visible(text: str) -> str:
    """Return a text with its hidden characters made visible.

    Tabs and line ends stay. So does what scripts and emoji need: a joiner between two letters
    beyond ASCII, and a selector of text or emoji style after the sign that it belongs to.
    """
    pattern = _CONTROLS if text.isascii() else _INVISIBLE
    return pattern.sub(_named, text) if pattern.search(text) else text


def visible_json(text: str) -> str:
    """Make hidden characters of a JSON text visible, with JSON's own escapes."""
    return text if text.isascii() and "\x7f" not in text else _INVISIBLE.sub(_escaped, text)


def visible_content(content: Any) -> Any:
    """Make hidden characters of a message's content visible: a text, or a list of blocks."""
    if isinstance(content, str):
        return visible(content)
    if not isinstance(content, list):
        return content
    return [
        {**block, "text": visible(block["text"])}
        if isinstance(block, dict) and isinstance(block.get("text"), str)
        else visible(block)
        if isinstance(block, str)
        else block
        for block in content
    ]


def _named(match: re.Match[str]) -> str:
    return f"\\u{{{ord(match[0]):x}}}"


def _escaped(match: re.Match[str]) -> str:
    return json.dumps(match[0])[1:-1] if match[0] != "\x7f" else "\\u007f"


# --- JSON text that is always valid, and copies of JSON-like data.


_LONE_SURROGATE: Final = re.compile("[\\ud800-\\udfff]")

_SIGNS: Final = (b",", b":", b"[", b"{")


def json_text(value: Any, *, indent: int | None = None) -> str:
    """Write a value as JSON: compact, or indented; without ASCII escapes, without NaN.

    The text can always be encoded: half a surrogate pair becomes its escape.

    Raises:
        MessageError: the value holds something that JSON cannot express.
    """
    separators = (",", ":") if indent is None else (",", ": ")
    try:
        text = json.dumps(
            value, ensure_ascii=False, allow_nan=False, indent=indent, separators=separators
        )
    except (TypeError, ValueError, RecursionError) as error:
        raise MessageError(
            f"a message cannot be written as JSON ({error}); "
            "use texts, finite numbers, true, false, null, lists and objects"
        ) from error
    if text.isascii():
        return text
    return _LONE_SURROGATE.sub(lambda half: f"\\u{ord(half.group()):04x}", text)


def json_parts(body: bytes, enough: int) -> int:
    """Count keys, items and containers of a JSON text before it is parsed.

    Each step is one pass over the bytes, much cheaper than parsing. A text with at most `enough`
    signs, those in strings included, counts as 0; the count may stop at `enough + 1`.
    """
    if sum(map(body.count, _SIGNS)) <= enough:
        return 0
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    if plain.count(b'"') > 4 * enough:  # each text is a key or an item
        return enough + 1
    outside = b"".join(plain.split(b'"')[::2])
    return sum(map(outside.count, _SIGNS))


def parse_json(text: str | bytes) -> Any:
    """Read JSON text strictly: no NaN, no Infinity.

    Raises:
        MessageError: the text is not JSON, or nested deeper than Python can read.
    """
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise MessageError("the JSON is nested too deeply; send a flatter value") from error
    except ValueError as error:
        raise MessageError(f"not valid JSON ({error}); send a JSON text") from error


def fresh(value: Any) -> Any:
    """Copy JSON-like data at all its levels.

    Raises:
        MessageError: the data is nested deeper than Python can walk.
    """
    try:
        return _copied(value)
    except RecursionError as error:
        raise MessageError("the data is nested too deeply; give a flatter value") from error


def reason_of(error: Exception) -> str:
    """Return the first fault that a validation found, in one line."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return str(error)


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copied(item) for item in value]
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
