"""Recorded answers, found by the key of their request: for replays and tests.

A cassette is read from a thread's journal, or from the file of a `RecordingModel`. A file is JSON,
one object a line: first the secret of the keys, then each message and tool once, and each request
as its difference from the one before.
"""

from __future__ import annotations

import difflib
import json
import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TextIO

from langchain_core.messages import AIMessage, BaseMessage

from wick_graph.errors import ReplayError
from wick_graph.journal.encode import parts_of, reply_of
from wick_graph.journal.journal import Journal
from wick_graph.journal.request_key import request_key
from wick_graph.journal.value_store import Mask, known_secrets
from wick_graph.messages import to_wick

VERSION: Final = 1

_HEADER: Final = "wick_cassette"

_DIFF_LINES: Final = 60

_LINE: Final = 400
"""Characters of a line in a diff."""

_SECRET_BYTES: Final = 16


Runs = int | str | None | Sequence[int]
"""A run, several, or all of them."""


def each_of(run: Runs) -> Sequence[int | str | None]:
    """List runs; None is all of them."""
    return [run] if run is None or isinstance(run, int | str) else run


@dataclass(frozen=True, slots=True)
class Shown:
    """A readable request: a line for the settings, each tool and each message."""

    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """One recorded answer."""

    key: bytes
    reply: AIMessage
    where: str
    """Name of the request in errors."""


class Cassette:
    """Answers requests from a recording; each answer once, the last one repeatedly."""

    def __init__(self, secret: bytes, answers: Sequence[Answer], shown: Any) -> None:
        self._secret = secret
        self._answers = tuple(answers)
        self._shown = shown
        """Returns the lines of an answer's request, by its index."""
        self._by_key: dict[bytes, list[int]] = {}
        for at, answer in enumerate(answers):
            self._by_key.setdefault(answer.key, []).append(at)
        self._taken: dict[bytes, int] = {}
        self._lock = threading.Lock()

    @classmethod
    def of(cls, source: Journal | str | Path, run: Runs = None) -> Cassette:
        """Read a cassette from a journal (a run, several, or all of them) or a file.

        Raises:
            ReplayError: The file is not a cassette.
        """
        if isinstance(source, Journal):
            return cls._of_journal(source, run)
        return _read(Path(source))

    @classmethod
    def _of_journal(cls, journal: Journal, run: Runs) -> Cassette:
        recorded = [reply for one in each_of(run) for reply in journal.replies(one)]

        def shown(at: int) -> tuple[str, ...]:
            request = journal.request_at(recorded[at].request.seq)
            return lines_of(request.messages, request.tools, request.settings)

        answers = [
            Answer(one.key, one.reply, f"the request at moment {one.request.seq}")
            for one in recorded
        ]
        return cls(journal.secret(), answers, shown)

    def __len__(self) -> int:
        return len(self._answers)

    @property
    def left(self) -> int:
        """Number of unused answers."""
        taken = sum(min(n, len(self._by_key[key])) for key, n in self._taken.items())
        return len(self._answers) - taken

    def answer(
        self,
        messages: Sequence[BaseMessage],
        tools: Sequence[Mapping[str, Any]] = (),
        settings: Mapping[str, Any] | None = None,
    ) -> AIMessage:
        """Return the recorded answer to a request.

        Raises:
            ReplayError: There is none; the error shows the difference from the nearest recorded
                request.
        """
        key = request_key(self._secret, messages, tools, settings)
        with self._lock:
            held = self._by_key.get(key)
            if held:
                at = self._taken.get(key, 0)
                self._taken[key] = at + 1
                return self._answers[held[min(at, len(held) - 1)]].reply.model_copy(deep=True)
        raise ReplayError(self._missed(lines_of(messages, tools, settings or {})))

    def _missed(self, asked: tuple[str, ...]) -> str:
        if not self._answers:
            return "the recording holds no answer of a model; record a run first"
        nearest = max(range(len(self._answers)), key=lambda at: _likeness(self._shown(at), asked))
        known = self._shown(nearest)
        diff = list(difflib.unified_diff(known, asked, "recorded", "asked now", lineterm="", n=1))
        rest = [f"… {len(diff) - _DIFF_LINES} more lines"] if len(diff) > _DIFF_LINES else []
        where = self._answers[nearest].where
        if not diff:
            return (
                f"the recording has no answer to this request, which looks like {where}: only "
                "secrets or what is not shown can differ"
            )
        return "\n".join(
            [f"the recording has no answer to this request; nearest is {where}:"]
            + [line if len(line) <= _LINE else line[:_LINE] + "…" for line in diff[:_DIFF_LINES]]
            + rest
        )


class CassetteWriter:
    """Appends requests and their answers to a file."""

    def __init__(self, path: Path, patterns: Sequence[str] = ()) -> None:
        self._path = path
        self._secret = secrets.token_bytes(_SECRET_BYTES)
        self._mask = Mask(self._secret, known_secrets(), patterns)
        self._lines: tuple[str, ...] = ()
        self._lock = threading.Lock()
        self._file: TextIO | None = None

    def add(
        self,
        messages: Sequence[BaseMessage],
        tools: Sequence[Mapping[str, Any]],
        settings: Mapping[str, Any],
        reply: AIMessage,
    ) -> None:
        """Write one answer; it is in the file when this returns."""
        key = request_key(self._secret, messages, tools, settings)
        lines = tuple(self._mask.text(line) for line in lines_of(messages, tools, settings))
        with self._lock:
            same = _common(self._lines, lines)
            new = {"like": same, "more": lines[same:]}
            self._lines = lines
            parts = self._mask.value(parts_of(reply))
            self._write({"key": key.hex(), **new, "id": reply.id, "reply": parts})

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def _write(self, line: Mapping[str, Any]) -> None:
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("w", encoding="utf-8")
            self._line({_HEADER: VERSION, "secret": self._secret.hex()})
        self._line(line)
        self._file.flush()

    def _line(self, line: Mapping[str, Any]) -> None:
        assert self._file is not None
        self._file.write(json.dumps(line, ensure_ascii=False, default=str) + "\n")


def lines_of(
    messages: Sequence[BaseMessage],
    tools: Sequence[Mapping[str, Any]],
    settings: Mapping[str, Any],
) -> tuple[str, ...]:
    """Return a request as text, one line per part."""
    made = [f"settings {_json(dict(settings))}"] if settings else []
    made += [f"tool {_json(tool.get('function', tool))}" for tool in tools]
    for message in messages:
        wick = to_wick(message)
        role, content = wick.pop("role"), wick.pop("content")
        made += [f"{role}: {line}" for line in content.splitlines() or [""]]
        made += [f"{role} {name}: {_json(value)}" for name, value in wick.items()]
    return tuple(made)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)


def _common(before: Sequence[str], after: Sequence[str]) -> int:
    """Count the leading lines that two requests share."""
    same = 0
    for one, other in zip(before, after, strict=False):
        if one != other:
            break
        same += 1
    return same


def _likeness(known: Sequence[str], asked: Sequence[str]) -> tuple[int, int]:
    backwards = _common(known[::-1], asked[::-1])
    return _common(known, asked) + backwards, -abs(len(known) - len(asked))


def _read(path: Path) -> Cassette:
    try:
        with path.open(encoding="utf-8") as file:
            rows = [json.loads(line) for line in file if line.strip()]
        head, *found = rows
        if head.get(_HEADER) != VERSION:
            raise ReplayError(f"{path} is a cassette of another version; record it again")
        return _made(bytes.fromhex(head["secret"]), list(_answers(found)))
    except OSError as error:
        raise ReplayError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ReplayError(f"{path} is no cassette, or is damaged; record it again") from error


def _answers(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Answer, tuple[str, ...]]]:
    lines: tuple[str, ...] = ()
    for at, row in enumerate(rows, 1):
        lines = (*lines[: row["like"]], *row["more"])
        reply = reply_of(row["reply"], row["id"])
        yield Answer(bytes.fromhex(row["key"]), reply, f"request {at} of the file"), lines


def _made(secret: bytes, found: Sequence[tuple[Answer, tuple[str, ...]]]) -> Cassette:
    shown = [lines for _, lines in found]
    return Cassette(secret, [answer for answer, _ in found], shown.__getitem__)
