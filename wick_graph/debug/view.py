"""What is known at a recorded moment: facts for queries and expressions, each when it is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from langchain_core.messages import AIMessage

from wick_graph.debug.shown import Shower, overlaid
from wick_graph.debug.trail import CHECKPOINT, Trail
from wick_graph.errors import DebugError, StorageError
from wick_graph.journal.entry import GAP, Entry
from wick_graph.journal.facts import USAGE
from wick_graph.journal.journal import Journal
from wick_graph.journal.rebuild import REQUESTS, RecordedRequest
from wick_graph.moments import Moment

Data = dict[str, Any]
_SAVED: Final = 48
"""Checkpoints that are kept at hand."""


@dataclass(slots=True)
class Desk:
    """What the views of one recording share."""

    journal: Journal | None
    trail: Trail
    shower: Shower = field(default_factory=Shower)
    live: dict[int, Moment] = field(default_factory=dict)
    """The moments of a run that goes on, by their numbers."""
    make_live: Callable[[Desk, int, Moment], View] | None = None
    """Makes the views of these."""
    _saved: dict[str, Any] = field(default_factory=dict)

    def saved(self, checkpoint: str) -> Any:
        """Return a checkpoint with its writes; None where it is gone."""
        if self.journal is None:
            return None
        held = self._saved.get(checkpoint)
        if held is None:
            held = self.journal.saved(checkpoint)
            if held is not None:
                if len(self._saved) >= _SAVED:
                    del self._saved[next(iter(self._saved))]
                self._saved[checkpoint] = held
        return held

    def view(self, at: int) -> View:
        """Return the moment at a place, with what is known of it."""
        moment = self.live.get(self.trail.entries[at].seq)
        if moment is None or self.make_live is None:
            return View(self, at)
        return self.make_live(self, at, moment)


class View:
    """A moment of a recording, with what is known of it; nothing is executed."""

    def __init__(self, desk: Desk, at: int) -> None:
        self.desk = desk
        self.at = at
        self.entry: Entry = desk.trail.entries[at]

    # --- the state -------------------------------------------------------------------------------

    @cached_property
    def base(self) -> Mapping[str, Any]:
        """The values of the checkpoint that the superstep began from.

        Raises:
            StorageError: It is gone.
        """
        entry = self.entry
        if entry.kind == CHECKPOINT or entry.checkpoint is not None:
            saved = self.desk.saved(entry.checkpoint or "")
            if saved is None:
                raise StorageError(
                    f"the state at moment {entry.seq} cannot be shown: its checkpoint is gone"
                )
            values: Mapping[str, Any] = saved.checkpoint["channel_values"]
            return values
        if entry.kind == GAP or self.desk.journal is None:
            raise StorageError(f"nothing is known of the state at moment {entry.seq}")
        return self.desk.journal.state_at(entry.seq).values

    @cached_property
    def pending(self) -> list[tuple[Entry, str, Any]]:
        """What nodes of the running superstep had written by now: their end, channel, value."""
        if self.entry.checkpoint is None or self.entry.kind == CHECKPOINT:
            return []
        ended = {e.task: e for e in self.desk.trail.superstep(self.at) if e.what == "node.exit"}
        found = [(ended[task], c, v) for task, c, v in self._writes_of(ended)]
        order = {task: at for at, task in enumerate(reversed(list(ended)))}
        return sorted(found, key=lambda one: order[one[0].task])

    def _writes_of(self, ended: Mapping[str | None, Entry]) -> Iterator[tuple[str, str, Any]]:
        saved = self.desk.saved(self.entry.checkpoint or "") if ended else None
        for task, channel, value in () if saved is None else saved.pending_writes or ():
            if task in ended and not channel.startswith(("__", "branch:")):
                yield task, channel, value

    @cached_property
    def values(self) -> Mapping[str, Any]:
        """The state with what was written by now."""
        if not self.pending:
            return self.base
        return overlaid(self.base, [(channel, value) for _, channel, value in self.pending])

    @cached_property
    def state(self) -> Data:
        """`values` as JSON-like data."""
        return self.desk.shower.state(self.values)

    @cached_property
    def before(self) -> Data:
        """The state before the latest write, as JSON-like data.

        That is the state at the beginning of the superstep where something was written in it, and
        the one before that otherwise.
        """
        if self.entry.what == "node.exit":
            own = self.entry.task
            others = [(c, v) for ended, c, v in self.pending if ended.task != own]
            return self.desk.shower.state(overlaid(self.base, others))
        if self.pending:
            return self.desk.shower.state(self.base)
        for place in range(self.at - 1, -1, -1):
            entry = self.desk.trail.entries[place]
            if entry.checkpoint is not None and entry.checkpoint != self.entry.checkpoint:
                saved = self.desk.saved(entry.checkpoint)
                values = {} if saved is None else saved.checkpoint["channel_values"]
                return self.desk.shower.state(values)
        return self.desk.shower.state({})

    @cached_property
    def writes(self) -> list[Data]:
        """What a node or a hook wrote here: channel, what it did, path."""
        return list(self._told.get("writes") or self._told.get("update") or ())

    # --- what the moment is about ----------------------------------------------------------------

    @cached_property
    def _told(self) -> Data:
        if self.desk.journal is None or self.entry.kind in (GAP, CHECKPOINT):
            return {}
        return self.desk.journal.details(self.entry)

    @property
    def told(self) -> Data:
        """All that is written down of the moment."""
        return self._told

    @cached_property
    def args_asked(self) -> Any:
        """The arguments of the call as the model asked for them."""
        call = None if self.desk.journal is None else self.desk.journal.call_at(self.entry)
        return None if call is None else self.desk.shower.plain(call["args"])

    @cached_property
    def args(self) -> Any:
        """The arguments of the call as they are by now: hooks may have changed them."""
        for entry in self.desk.trail.of_task(self.at):
            changed = entry.fields.get("a") if entry.kind == "tool" else None
            changed = changed or (entry.fields.get("c") or {}).get("a")
            if changed is not None and self.desk.journal is not None:
                return self.desk.shower.plain(self.desk.journal.value(changed))
        return self.args_asked

    @cached_property
    def output(self) -> str | None:
        """What the call gave, its error's text included; None where it is not over."""
        told = self._told if self.entry.what == "tool.exit" else {}
        found = told.get("error", told.get("output"))
        return None if found is None else str(found)

    @cached_property
    def result(self) -> Data | None:
        """The call's result; None where it is not over."""
        if self.entry.what not in ("tool.exit", "tool.error"):
            return None
        took = self.entry.duration_us
        ms = None if took is None else round(took / 1000, 3)
        return {"output": self._told.get("output"), "error": self.error, "ms": ms}

    @cached_property
    def error(self) -> str | None:
        """The error of the moment, or of the call that ends here."""
        if self.entry.what == "tool.exit":
            found = self._told.get("error")
            return None if found is None else str(found)
        return self.entry.error

    @cached_property
    def reply(self) -> AIMessage | None:
        """The model's reply, at its moment."""
        found = self._told.get("reply") if self.entry.what == "model.response" else None
        return found if isinstance(found, AIMessage) else None

    @cached_property
    def usage(self) -> Data | None:
        """The tokens of the reply, at its moment."""
        if self.entry.what != "model.response":
            return None
        return dict(zip(USAGE, self.entry.fields.get("u") or (), strict=False))

    @cached_property
    def request(self) -> RecordedRequest | None:
        """The request, at its own moment."""
        if self.entry.kind != "model" or self.entry.phase not in REQUESTS:
            return None
        if self.desk.journal is None:
            raise DebugError("the request is not known: this thread has no journal")
        return self.desk.journal.request_at(self.entry.seq)

    @cached_property
    def route(self) -> Data | None:
        """The decision, at its moment: chosen, reason, candidates, calls."""
        return dict(self._told) if self.entry.kind == "route" else None
