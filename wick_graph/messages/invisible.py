r"""Characters that a person does not see and a model reads all the same, made visible.

Text from tools and files may carry orders in characters that no terminal and no editor shows:
zero-width characters, bidirectional controls, Unicode tags, variation selectors. They become
`\u{200b}`, which everybody sees and nobody obeys.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

_HIDDEN: Final = (
    r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    r"\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb"
    r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_SEEN: Final = rf"[^\x00-\x7f{_HIDDEN}\u200c\u200d\ufe00-\ufe0f]"
"""A letter or sign beyond ASCII, in whose scripts joiners and selectors have their place."""
_INVISIBLE: Final = re.compile(
    rf"[{_HIDDEN}]"
    rf"|(?<!{_SEEN})(?<!{_SEEN}\ufe0f)[\u200c\u200d]|[\u200c\u200d](?!{_SEEN})"
    rf"|[\ufe00-\ufe0d]|(?<!{_SEEN})(?<![0-9#*])[\ufe0e\ufe0f]"
)
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def visible(text: str) -> str:
    """Return a text in which everything can be seen; one without hidden characters as it is.

    Tabs and line ends stay. So does what scripts and emoji need: a joiner between two letters
    beyond ASCII, and a selector of text or emoji style behind the sign that it belongs to.
    """
    pattern = _CONTROLS if text.isascii() else _INVISIBLE
    return pattern.sub(_named, text) if pattern.search(text) else text


def visible_json(text: str) -> str:
    """Do the same to a JSON text, with JSON's own escapes, so that it stays JSON."""
    return text if text.isascii() and "\x7f" not in text else _INVISIBLE.sub(_escaped, text)


def visible_content(content: Any) -> Any:
    """Do the same to a message's content, a text or a list of blocks; a new list where needed."""
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
