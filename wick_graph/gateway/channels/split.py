"""Cut long messages into parts that a platform accepts, one call each."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from wick_graph.gateway.messages import OutboundMessage

_FENCE: Final = re.compile(r" {0,3}(`{3,10}|~{3,10})([^`\n]{0,40})")
"""A line that opens a block of code: its marker and its language."""


def units(text: str) -> int:
    """Count the UTF-16 units of a text, as Telegram counts."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def split(text: str, limit: int) -> list[str]:
    """Split a text into parts of at most `limit` UTF-16 units, none of them blank.

    It breaks between paragraphs, else lines, else words. A block of code that is cut is closed and
    opened again with its language. Only white space at a break is dropped.
    """
    if limit < 2:
        raise ValueError("limit must be 2 or more")
    # room for the line that closes a block; a small part has no room for blocks
    tail = 11 if limit > 200 and ("```" in text or "~~~" in text) else 0
    parts: list[str] = []
    opened = ""
    while text.strip():
        first, _, rest = text.partition("\n")
        if _closes(first, opened):
            text, opened = rest.lstrip("\n"), ""
            continue
        head = f"{opened}\n" if opened else ""
        if units(head + text) <= limit:
            return [*parts, head + text if opened else text.strip("\n")]
        at = _place(text, limit - units(head) - tail)
        now, begins = _state(text[:at], opened) if tail else ("", 0)
        if now and begins >= max(at // 2, 1):
            at, now = begins, ""  # the block goes to the next part as a whole
        piece, text, opened = head + text[:at], text[at:], now
        if marker := _FENCE.match(now):
            piece, text = f"{piece.removesuffix(chr(10))}\n{marker[1]}", text.removeprefix("\n")
        else:
            piece, text = piece.rstrip(), re.sub(r"\A(?:\n+| )", "", text)
        parts += [piece] if piece else []
    return parts


def _place(text: str, room: int) -> int:
    """Return where to break: at most `room` units from the start, and at least one character."""
    end = min(room, len(text))
    while units(text[:end]) > room:
        end -= max(1, (units(text[:end]) - room) // 2)
    found = [text.rfind(mark, 0, end + 1) for mark in ("\n\n", "\n", " ")]
    good = [at for at in found if at >= end // 2] or [max(found)]
    return max(1, good[0] if good[0] > 0 else end)


def _state(piece: str, opened: str) -> tuple[str, int]:
    """Return the line that opens a block which the piece leaves open, and where the line begins."""
    begins = at = 0
    for line in piece.split("\n"):
        if _closes(line, opened):
            opened = ""
        elif not opened and _FENCE.fullmatch(line):
            opened, begins = line, at
        at += len(line) + 1
    return opened, begins


def _closes(line: str, opened: str) -> bool:
    marker, found = _FENCE.fullmatch(opened), line.strip()
    return bool(marker and set(found) == {marker[1][0]} and len(found) >= len(marker[1]))


def parts(message: OutboundMessage, limit: int, caption: int = 0) -> list[OutboundMessage]:
    """Cut a message into messages of one call each: texts first, then a file each.

    The first keeps `reply_to`, the last text has the buttons. A single file keeps a text of at most
    `caption` units.
    """
    if len(message.media) == 1 and not message.buttons and units(message.content) <= caption:
        return [message]
    texts = split(message.content, limit)
    if not texts and message.buttons:
        texts = ["…"]
    last = len(texts) - 1
    made = [
        replace(message, content=text, media=(), buttons=message.buttons if at == last else ())
        for at, text in enumerate(texts)
    ]
    made += [replace(message, content="", media=(path,), buttons=()) for path in message.media]
    return [one if at == 0 else replace(one, reply_to="") for at, one in enumerate(made)]
