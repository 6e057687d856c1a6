"""Cut long messages into parts that a platform accepts, one call each."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from wick_graph.gateway.messages import OutboundMessage

_FENCE: Final = re.compile(r" {0,3}(`{3,10}|~{3,10})([^`\n]{0,40})")
"""A line that opens a block of code: its marker and its language."""

_BREAKS: Final = ("\n\n", "\n", " ")


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
    parts: list[str] = []
    opened = ""
    while text.strip():
        head = f"{opened}\n" if opened else ""
        if opened and (closed := _first_line(text)) and _closes(closed, opened):
            text, opened = text[len(closed) :].lstrip("\n"), ""
            continue
        if units(head + text) <= limit:
            parts.append(head + text if opened else text.strip("\n"))
            break
        piece, text, opened = _cut(text, limit, head, opened)
        if piece.strip():
            parts.append(piece)
    return parts


def _cut(text: str, limit: int, head: str, opened: str) -> tuple[str, str, str]:
    """Return the next part, the rest, and the line that opens the rest's block of code."""
    tail = 0  # room for the line that closes a block
    if opened or "```" in text or "~~~" in text:
        tail = 11 if limit > 200 else limit  # a small part has no room for blocks
    if tail >= limit:
        at = _place(text, limit)
        return text[:at].rstrip(), _after(text, at), ""
    at = _place(text, limit - units(head) - tail)
    now, begins = _state(text[:at], opened)
    if now and begins > 0 and (begins >= at // 2 or not text[begins:at].partition("\n")[2].strip()):
        at, now = begins, ""  # the block goes to the next part as a whole, or has only begun
    piece = head + text[:at]
    if not now:
        return piece.rstrip(), _after(text, at), ""
    rest = text[at + 1 :] if text[at : at + 1] == "\n" else text[at:]
    marker = _FENCE.match(now)
    return f"{piece.removesuffix(chr(10))}\n{marker[1] if marker else '```'}", rest, now


def _place(text: str, room: int) -> int:
    """Return where to break: at most `room` units from the start, and at least one character."""
    end = min(room, len(text))
    while units(text[:end]) > room:
        end -= max(1, (units(text[:end]) - room) // 2)
    found = [text.rfind(mark, 0, end + 1) for mark in _BREAKS]
    good = [at for at in found if at >= end // 2]
    return max(1, (good or [max(found)])[0] if max(found) > 0 else end)


def _after(text: str, at: int) -> str:
    rest = text[at:]
    return rest.lstrip("\n") if rest.startswith("\n") else rest.removeprefix(" ")


def _state(piece: str, opened: str) -> tuple[str, int]:
    """Return the line that opens a block which the piece leaves open, and where the line begins."""
    begins, at = -1, 0
    for line in piece.split("\n"):
        if opened:
            if _closes(line, opened):
                opened = ""
        elif _FENCE.fullmatch(line):
            opened, begins = line, at
        at += len(line) + 1
    return opened, begins


def _first_line(text: str) -> str:
    return text.partition("\n")[0]


def _closes(line: str, opened: str) -> bool:
    marker = _FENCE.fullmatch(opened)
    found = line.strip()
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
