"""Put somebody else's text into a prompt so that it stays data: framed, escaped, cut, visible.

A frame is no boundary of security: a model may still believe what it reads. What a model may *do*
is decided by the tools that it is given. Nothing here formats with the text as a template.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

from wick_graph.messages.invisible import visible

MARK_DIGITS: Final = 16
"""64 bits: a text cannot be made that holds the mark which is derived from it."""


def mark_of(*seeds: str) -> str:
    """Derive a frame's mark of what it frames: the same for the same text.

    So the part of the prompt that a provider has cached stays as it is, and no author of a text
    can know its mark: with each change of the text it is another one.
    """
    return hashlib.sha256("\0".join(seeds).encode("utf-8", "replace")).hexdigest()[:MARK_DIGITS]


def framed(tag: str, mark: str, text: str) -> str:
    """Put a text between an opening and a closing line that carry the mark."""
    return f'<{tag} id="{mark}">\n{text}\n</{tag} id="{mark}">'


def escaped(text: str, tag: str) -> str:
    """Return a text in which nothing hidden is left and nothing opens or closes the frame."""
    # one class, not `\s*/?\s*`: a text of nothing but spaces must not cost its length squared
    return re.sub(rf"<(?=[\s/]*{tag})", "&lt;", visible(text), flags=re.IGNORECASE)


def cut(text: str, limit: int) -> str:
    """Return the first `limit` bytes of a text, or the text itself if it has no more."""
    raw = text.encode("utf-8", "replace")
    return text if len(raw) <= limit else raw[:limit].decode("utf-8", "ignore")


def one_line(text: str, limit: int) -> str:
    """Return a text as one line of at most `limit` characters, for a place in a list.

    Arrows and angle brackets are replaced, so that it cannot look like another entry or a frame.
    """
    line = visible(" ".join(text.split()))
    line = line.replace("→", "->").replace("<", "&lt;").replace(">", "&gt;")
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"
