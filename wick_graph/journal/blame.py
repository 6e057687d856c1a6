"""Find the hook that added each part of a request."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from langchain_core.messages import BaseMessage

from wick_graph.journal.entry import Entry
from wick_graph.journal.reconstruct import Reconstruction

Part = Literal["system", "message", "tool", "setting"]

Op = Literal["kept", "added", "dropped"]

THREAD = "thread"
"""The source of a message that no hook changed."""

AGENT = "agent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
    """One part of a request, and its source."""

    part: Part
    index: int
    """Its position among its kind; of a dropped part, its former position."""
    op: Op
    by: str
    """A hook, `agent`, `thread`, or `limit`."""
    seq: int | None
    """The moment at which it was added or dropped; None if it was there from the start."""
    value: Any
    """The section's text, the message, the tool's name, or the setting."""
    name: str = ""
    """The setting's name."""


@dataclass(frozen=True, slots=True)
class _Change:
    by: str
    seq: int
    raw: dict[str, Any]


class BlameReader:
    """Follows the hooks' changes to a request."""

    def __init__(self, rebuilt: Reconstruction) -> None:
        self._rebuilt = rebuilt
        self._value = rebuilt.value

    def blame(self, seq: int, *, kept: int = 0) -> list[Blame]:
        """List the parts of a moment's request, then those that hooks dropped.

        `kept` are messages at the beginning to leave out, if no hook changed which are sent.
        """
        entry = self._rebuilt.request_of(seq)
        head = self._value(entry.fields["h"])
        changes = list(self._changes(entry))
        return [
            *self._system(head, changes),
            *self._thread(entry, changes, kept),
            *self._tools(head, changes),
            *self._settings(head, changes),
        ]

    def _changes(self, entry: Entry) -> Iterator[_Change]:
        """Yield a request's changes in order."""
        for found in reversed(list(self._composed(entry))):
            if "c" in found.fields:
                yield _Change(found.name, found.seq, found.fields["c"])
        for found, around in reversed(list(self._wrapped(entry))):
            if "c" in found.fields:
                yield _Change(around.name, found.seq, found.fields["c"])

    def _composed(self, entry: Entry) -> Iterator[Entry]:
        """Yield the ends of `modify_request` for a request, the last one first."""
        visit: str | None = None
        for found in self._rebuilt.before(entry):
            if found.hook_phase == "modify_request" and found.phase == "exit":
                visit = visit or found.task
                if found.task == visit:
                    yield found
            elif (visit is not None and found.what == "node.enter" and found.task == visit) or (
                found.what == "model.response" and found.task != entry.task
            ):
                return

    def _wrapped(self, entry: Entry) -> Iterator[tuple[Entry, Entry]]:
        """Yield the moments of a request's way inwards, each with its surrounding hook."""
        while entry.parent is not None:
            around = self._rebuilt.reader.moment(entry.parent)
            if around.what != "hook.enter":
                return
            yield entry, around
            entry = around

    def _system(self, head: Any, changes: list[_Change]) -> Iterator[Blame]:
        owners: list[_Change | None] = []
        lost: list[Blame] = []
        for change in changes:
            if "s" not in change.raw:
                continue
            after, gone = change.raw["s"], change.raw.get("k", ())
            lost += [
                Blame(
                    part="system",
                    index=at,
                    op="dropped",
                    by=change.by,
                    seq=change.seq,
                    value=self._value(ref),
                )
                for at, _, ref in gone
            ]
            owners = [
                (owners[section] if section < len(owners) else None)
                if isinstance(section, int)
                else change
                for section in after
            ]
        for at, (source, ref) in enumerate(head["system"]):
            owner = owners[at] if at < len(owners) else None
            yield Blame(
                part="system",
                index=at,
                op="kept" if owner is None else "added",
                by=source or AGENT if owner is None else owner.by,
                seq=None if owner is None else owner.seq,
                value=self._value(ref),
            )
        yield from lost

    def _thread(self, entry: Entry, changes: list[_Change], kept: int) -> Iterator[Blame]:
        if kept and kept == entry.fields["n"] and not any("g" in one.raw for one in changes):
            return
        base = next(self._rebuilt.bases(entry), [])
        now: list[int | bytes] = list(range(entry.fields["n"]))
        added: dict[bytes, _Change] = {}
        dropped: list[tuple[int | bytes, int, _Change]] = []
        for change in changes:
            if "g" not in change.raw:
                continue
            after = _expanded(change.raw["g"])
            dropped += [(part, at, change) for at, part in enumerate(now) if part not in after]
            added |= {part: change for part in after if isinstance(part, bytes) and part not in now}
            now = after
        for at, part in enumerate(now):
            owner = added.get(part) if isinstance(part, bytes) else None
            yield Blame(
                part="message",
                index=at,
                op="kept" if owner is None else "added",
                by=THREAD if owner is None else owner.by,
                seq=None if owner is None else owner.seq,
                value=self._message(part, base),
            )
        for part, at, change in dropped:
            yield Blame(
                part="message",
                index=at,
                op="dropped",
                by=change.by,
                seq=change.seq,
                value=self._message(part, base),
            )

    def _message(self, part: int | bytes, base: list[BaseMessage]) -> BaseMessage | None:
        if isinstance(part, bytes):
            message: BaseMessage = self._value(part)
            return message
        return base[part] if part < len(base) else None

    def _tools(self, head: Any, changes: list[_Change]) -> Iterator[Blame]:
        removed: dict[str, _Change] = {}
        added: dict[str, _Change] = {}
        known: list[str] | None = None
        for change in changes:
            for name in change.raw.get("r", ()) if "t" in change.raw else ():
                removed[name] = change
                added.pop(name, None)
            for name in change.raw.get("t", ()):
                if name in removed or (known is not None and name not in known):
                    added[name] = change
                    removed.pop(name, None)
            known = change.raw.get("t", known)
        for at, (ref, brought) in enumerate(head["tools"]):
            name = self._value(ref)["function"]["name"]
            owner = added.get(name)
            yield Blame(
                part="tool",
                index=at,
                op="added" if owner is not None or brought else "kept",
                by=owner.by if owner is not None else brought or AGENT,
                seq=None if owner is None else owner.seq,
                value=name,
            )
        for name, change in removed.items():
            yield Blame(
                part="tool", index=-1, op="dropped", by=change.by, seq=change.seq, value=name
            )

    def _settings(self, head: Any, changes: list[_Change]) -> Iterator[Blame]:
        owners: dict[str, _Change] = {}
        for change in changes:
            if "o" in change.raw:
                owners |= dict.fromkeys(self._value(change.raw["o"]), change)
        for at, (name, value) in enumerate(self._value(head["settings"]).items()):
            owner = owners.get(name)
            yield Blame(
                part="setting",
                index=at,
                op="kept" if owner is None else "added",
                by=AGENT if owner is None else owner.by,
                seq=None if owner is None else owner.seq,
                value=value,
                name=name,
            )


def _expanded(segments: Any) -> list[int | bytes]:
    if isinstance(segments, int):
        return list(range(segments))
    made: list[int | bytes] = []
    for part in segments:
        made += [part] if isinstance(part, bytes) else range(*part)
    return made
