"""The verbs: move forwards and backwards, by gdb's names."""

from __future__ import annotations

from wick_graph.debug.marks import Marks
from wick_graph.debug.moves import VERBS, Goal, goal_of
from wick_graph.debug.timeline import Position
from wick_graph.debug.types import Stop
from wick_graph.debug.view import Names, View
from wick_graph.errors import DebugError, ExpressionError
from wick_graph.expressions import compile_expression


class Verbs(Marks):
    """Moves the cursor. Each verb returns where it stopped, and why."""

    def verb(self, name: str, *, timeout: float | None = None) -> Stop:
        """Move by a verb's name or abbreviation: `n`, `reverse-next`, `rc`.

        Raises:
            DebugError: There is no such verb.
        """
        method = VERBS.get(name)
        if method is None or method in ("until", "reverse_until"):
            raise DebugError(f"{name[:40]!r} is no verb; write one of {', '.join(sorted(VERBS))}")
        if method in ("first", "last"):
            return self.goto(f"@{method}")
        if method == "pause":
            return self._paused()
        return self._move(goal_of(method, self.here), timeout)

    def step(self, timeout: float | None = None) -> Stop:
        """Go to the next moment, at any depth."""
        return self.verb("step", timeout=timeout)

    def next(self, timeout: float | None = None) -> Stop:
        """Go to the next moment that lies no deeper."""
        return self.verb("next", timeout=timeout)

    def finish(self, timeout: float | None = None) -> Stop:
        """Go on until what the moment lies in is left."""
        return self.verb("finish", timeout=timeout)

    def nextnode(self, timeout: float | None = None) -> Stop:
        """Go to the next entry of a node."""
        return self.verb("nextnode", timeout=timeout)

    def turn(self, timeout: float | None = None) -> Stop:
        """Go to the next request to a model."""
        return self.verb("turn", timeout=timeout)

    def cont(self, timeout: float | None = None) -> Stop:
        """Go on until something stops."""
        return self.verb("cont", timeout=timeout)

    def reverse_step(self) -> Stop:
        """Go back to the moment before."""
        return self.verb("reverse_step")

    def reverse_next(self) -> Stop:
        """Go back to the moment before that lies no deeper."""
        return self.verb("reverse_next")

    def reverse_finish(self) -> Stop:
        """Go back until what the moment lies in had not begun."""
        return self.verb("reverse_finish")

    def prevnode(self) -> Stop:
        """Go back to the last entry of a node."""
        return self.verb("prevnode")

    def prevturn(self) -> Stop:
        """Go back to the last request to a model."""
        return self.verb("prevturn")

    def reverse_cont(self) -> Stop:
        """Go back until something stops."""
        return self.verb("reverse_cont")

    def first(self) -> Stop:
        """Go to the first moment."""
        return self.goto("@first")

    def last(self) -> Stop:
        """Go to the last moment."""
        return self.goto("@last")

    def next_error(self) -> Stop:
        """Go to the next moment that failed or is lost."""
        return self.verb("next_error")

    def prev_error(self) -> Stop:
        """Go back to the last moment that failed or is lost."""
        return self.verb("prev_error")

    def goto(self, text: str) -> Stop:
        """Go to a position.

        Raises:
            DebugError: There is no such position.
        """
        branch = Position.read(text).branch
        if branch not in (None, self.branch):
            self.choose(branch or 0)
        with self._cond:
            self._path.clear()
            return self._stand(self._place(text), "goto", "")

    def until(self, text: str, timeout: float | None = None) -> Stop:
        """Go on to a position, or until an expression is true.

        Raises:
            DebugError: There is no such position.
            ExpressionError: It is no expression.
        """
        return self._until("until", text, timeout)

    def reverse_until(self, text: str) -> Stop:
        """Go back to a position, or until an expression is true; raises as `until`."""
        return self._until("reverse_until", text, None)

    def _until(self, verb: str, text: str, timeout: float | None) -> Stop:
        if text.lstrip().startswith(("@", "#")):
            return self.goto(text)
        expression = compile_expression(text)

        def holds(view: View) -> bool:
            try:
                return bool(expression.evaluate(Names(view)))
            except ExpressionError:  # it speaks of what is not known at this moment
                return False

        goal = Goal(verb, lambda entry: True, test=holds, text=text)
        return self._move(goal, timeout)
