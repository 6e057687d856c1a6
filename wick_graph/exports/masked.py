"""What leaves the machine: plain data, with secrets hidden and huge values cut."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from langchain_core.messages import BaseMessage
from langgraph.types import Interrupt, Send

from wick_graph import keys
from wick_graph.journal import Journal
from wick_graph.journal.masking import DOTS, Mask, known_secrets, texts_of
from wick_graph.messages import to_wick

LONGEST: Final = 65_536
"""Characters of a text that an export shows."""
_DEEPEST: Final = 40
_HIDDEN: Final = re.compile(f"{DOTS}[0-9a-f]{{8}}")


class Hider:
    """Hides secrets in values, and counts the values in which it hid some."""

    def __init__(self, mask: Mask) -> None:
        self._mask = mask
        self.hidden = 0
        """Values in which something is hidden, by whomever."""

    @classmethod
    def of(cls, journal: Journal, patterns: Sequence[str] = (), *, trusted: bool = True) -> Hider:
        """Hide as the thread's journal does, so that equal secrets look equal.

        Secret is what this process knows, and what those knew that recorded the thread.

        Args:
            journal: The thread's journal.
            patterns: Patterns to hide besides.
            trusted: Whether the patterns that the journal itself names are used: not those of a
                file, which may be anybody's, and in which its writer has hidden them already.
        """
        key, runs = journal.secret(), journal.runs()
        every = dict.fromkeys([*patterns, *(p for run in runs if trusted for p in run.redact)])
        secrets = known_secrets()
        if marks := {mark for run in runs for mark in run.secrets}:
            secrets |= set(Mask(key).marked(_texts_in(journal), marks))
        return cls(Mask(key, secrets, every))

    def again(self) -> Hider:
        """Return one that hides the same, and has counted nothing."""
        return Hider(self._mask)

    def value(self, value: Any) -> Any:
        """Return a value without its secrets; what holds none stays the same object."""
        made = self._mask.value(value)
        if made is not value or hides(repr(made)):
            self.hidden += 1
        return made

    def leaks(self, data: bytes) -> bool:
        """Say whether encoded data holds a secret still."""
        text = data.decode("utf-8", "replace")
        return self._mask.text(text) != text


def _texts_in(journal: Journal) -> Iterator[str]:
    """Yield each text that the thread's state ever held, the latest first."""
    config: Any = keys.with_configurable(None, **{keys.THREAD_ID: journal.thread_id})
    seen: set[int] = set()
    for found in journal.saver.list(config):
        written = [_bare(value) for _, _, value in found.pending_writes or ()]
        for text in texts_of([found.checkpoint["channel_values"], written]):
            if (known := hash(text)) not in seen:
                seen.add(known)
                yield text


def _bare(value: Any) -> Any:
    """Return the data in what LangGraph itself keeps in a checkpoint."""
    if isinstance(value, list | tuple):
        return [_bare(item) for item in value]
    if isinstance(value, Interrupt):
        return value.value
    return value.arg if isinstance(value, Send) else value


def hides(text: str) -> bool:
    """Say whether something is hidden in a text."""
    return DOTS in text and _HIDDEN.search(text) is not None


def plain(value: Any, depth: int = 0) -> Any:
    """Turn a value into JSON's kinds; what has no form there becomes its text, cut."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return cut(value)
    if depth > _DEEPEST:
        return "…"
    if isinstance(value, BaseMessage):
        return plain({**to_wick(value), **({"id": value.id} if value.id else {})}, depth + 1)
    if isinstance(value, Mapping):
        return {cut(str(key)): plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item, depth + 1) for item in value]
    if isinstance(value, bytes | bytearray):
        return f"<{len(value):,} bytes>"
    return cut(repr(value))


def cut(text: str) -> str:
    """Show the beginning of a long text, and say how long it is."""
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST]}… ({len(text):,} characters in all)"
