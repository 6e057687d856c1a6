"""The breakpoints of a session: set, changed, listed, and asked of what is already recorded."""

from __future__ import annotations

from typing import Any

from wick_graph.debug.breakpoints import BreakKind, Breakpoint, make, read_spec
from wick_graph.debug.cursor import Cursor
from wick_graph.debug.types import Output
from wick_graph.errors import DebugError
from wick_graph.journal.entry import Entry


class Marks(Cursor):
    """Sets breakpoints."""

    outline: Any = None
    """An agent that is only looked at, where none that may run is given: whose code a line is."""

    @property
    def breakpoints(self) -> list[Breakpoint]:
        """The breakpoints, by their numbers."""
        return list(self._breaks.values())

    def add(self, spec: str) -> Breakpoint:
        """Set a breakpoint as it is written: `break tool:bash if args.command == "ls"`.

        Raises:
            DebugError: It is none.
            ExpressionError: Its condition is no expression.
        """
        return self._kept(read_spec(next(self._numbers), spec, self.agent or self.outline))

    def break_(
        self,
        location: str,
        condition: str | None = None,
        hit: str | None = None,
        *,
        temporary: bool = False,
    ) -> Breakpoint:
        """Stop at a location; raises as `add`."""
        return self._made("break", location, condition=condition, hit=hit, temporary=temporary)

    def watch(self, path: str, condition: str | None = None, hit: str | None = None) -> Breakpoint:
        """Stop after a write to a channel, or to what stands at a path; raises as `add`."""
        return self._made("watch", path, condition=condition, hit=hit)

    def catch(self, what: str, condition: str | None = None) -> Breakpoint:
        """Stop where something fails, asks or is repeated; raises as `add`."""
        return self._made("catch", what, condition=condition)

    def log(self, location: str, text: str, condition: str | None = None) -> Breakpoint:
        """Say something at a location and go on; raises as `add`."""
        return self._made("log", location, condition=condition, text=text)

    def delete(self, number: int) -> None:
        """Take a breakpoint away.

        Raises:
            DebugError: There is no such breakpoint.
        """
        del self._breaks[self._known(number).number]
        self._path.clear()

    def enable(self, number: int) -> None:
        """Let a breakpoint stop again; raises as `delete`."""
        self._known(number).enabled = True
        self._path.clear()

    def disable(self, number: int) -> None:
        """Let a breakpoint rest; raises as `delete`."""
        self._known(number).enabled = False
        self._path.clear()

    def condition(self, number: int, expression: str | None) -> None:
        """Give a breakpoint another condition, or none; raises as `delete` and `add`."""
        self._known(number).limit(expression)
        self._path.clear()

    def ignore(self, number: int, times: int) -> None:
        """Let the next hits of a breakpoint pass; raises as `delete`."""
        self._known(number).ignore = max(times, 0)
        self._path.clear()

    def hits(self, number: int) -> list[Entry]:
        """List the recorded moments at which a breakpoint would stop; raises as `delete`."""
        found = self._known(number)
        with self._cond:
            views = (self._views.view(at) for at in range(len(self._timeline)))
            return [view.entry for view in views if found.check(view, counts=False)]

    def past_log(self, number: int) -> list[Output]:
        """Return what a log point would have said, at every moment of the recording.

        Raises:
            DebugError: There is no such breakpoint.
        """
        found = self._known(number)
        places = [self._timeline.place(entry.seq) for entry in self.hits(number)]
        views = [self._view(at) for at in places if at is not None]
        return [Output(view.entry.seq, "log", found.said(view)) for view in views]

    def save_breakpoints(self) -> list[str]:
        """Return the texts that make the breakpoints again."""
        return [found.spec for found in self._breaks.values()]

    def _made(self, kind: BreakKind, location: str, **parts: Any) -> Breakpoint:
        agent = self.agent or self.outline
        return self._kept(make(next(self._numbers), kind, location, agent=agent, **parts))

    def _kept(self, made: Breakpoint) -> Breakpoint:
        with self._cond:
            self._breaks[made.number] = made
            self._path.clear()  # going back may stop somewhere else now
        return made

    def _known(self, number: int) -> Breakpoint:
        found = self._breaks.get(number)
        if found is None:
            known = ", ".join(map(str, self._breaks)) or "none is set"
            raise DebugError(f"there is no breakpoint {number}; there is: {known}")
        return found
