"""Breakpoints, watchpoints, catches and log points of a run or a recording."""

from __future__ import annotations

import ast
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, Literal

from wick_graph.debug.locations import Fits, fits_error, locations_at, read_location
from wick_graph.debug.types import Output, Outputs, Reason
from wick_graph.debug.values import CHANNELS, SHOWN_AS, Path, at_path, read_path
from wick_graph.debug.view import Names, View
from wick_graph.engine.agent import Agent
from wick_graph.errors import DebugError, ExpressionError, StorageError
from wick_graph.expressions import Expression, compile_expression

BreakKind = Literal["break", "watch", "catch", "log"]

_HIT: Final = re.compile(r"(?P<op>>=|==|%|>)?\s*(?P<count>\d{1,9})")

_SPEC: Final = re.compile(r"(?P<word>break|tbreak|watch|catch|log)\s+(?P<rest>.+)", re.DOTALL)

_CUTS: Final = re.compile(r"\s(if|hit)\s")

_TEXT: Final = re.compile(r"""(?P<where>\S+)\s+(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')""")

_HOLE: Final = re.compile(r"\{([^{}]*)\}")

_REACHED: Final[dict[str, Callable[[int, int], bool]]] = {
    "==": lambda hits, count: hits == count,
    ">=": lambda hits, count: hits >= count,
    ">": lambda hits, count: hits > count,
    "%": lambda hits, count: hits % count == 0,
}

_GONE: Final = object()
"""Placeholder for the value at a missing path."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A breakpoint that stops at a moment."""

    breakpoint: Breakpoint
    problem: str = ""
    """Why its condition could not be evaluated; it stops nevertheless."""


@dataclass(slots=True)
class Breakpoint:
    """One breakpoint, watchpoint, catch or log point."""

    number: int
    kind: BreakKind
    location: str
    """Its target: a location, a path, or the caught kind."""
    fits: Fits
    condition: str | None = None
    hit: str | None = None
    """Condition on the number of the hit: `3`, `>=3`, `==2`, `%5`."""
    text: str | None = None
    """Text of a log point, with `{expressions}`."""
    temporary: bool = False
    """Whether it is deleted after its first stop."""
    enabled: bool = True
    ignore: int = 0
    """Number of hits still to ignore."""
    hits: int = 0
    """Number of hits while going forwards."""
    note: str = ""
    """Why it can never stop; empty if it can."""
    bound: tuple[str, ...] = ()
    """The locations at a line of a file; the breakpoint stops at their entry."""
    _shape: Mapping[str, Any] | None = None
    _expression: Expression | None = None
    _holes: tuple[Expression, ...] = ()

    @property
    def verified(self) -> bool:
        """Whether it can ever stop."""
        return not self.note

    @property
    def spec(self) -> str:
        """The text to set it again."""
        word = "tbreak" if self.temporary else self.kind
        said = f' "{self.text}"' if self.text is not None else ""
        condition = f" if {self.condition}" if self.condition else ""
        hit = f" hit {self.hit}" if self.hit else ""
        return f"{word} {self.location}{said}{condition}{hit}"

    def limit(self, condition: str | None) -> None:
        """Set the condition, or remove it.

        Raises:
            ExpressionError: It is not an expression.
        """
        self._expression = compile_expression(condition) if condition else None
        self.condition = condition or None
        if (
            self.kind == "break" and self.verified
        ):  # its names decide whether it stops before or after a call
            uses = names_in(self._expression)
            self.fits = _located(self.bound or (self.location,), uses, self._shape)

    def check(self, view: View, *, counts: bool) -> Hit | None:
        """Return whether it stops at a moment; hits count only forwards."""
        if not self.enabled or not self.fits(view):
            return None
        try:
            if self._expression is not None and not self._expression.evaluate(Names(view)):
                return None
        except ExpressionError as error:
            return Hit(self, f"its condition cannot be evaluated: {error}")
        if counts and not self._counted():
            return None
        return Hit(self)

    def _counted(self) -> bool:
        self.hits += 1
        if self.ignore > 0:
            self.ignore -= 1
            return False
        found = _HIT.fullmatch(self.hit) if self.hit else None
        if found is None:
            return True
        count = int(found["count"])
        return _REACHED[found["op"] or "=="](self.hits, count)

    def said(self, view: View) -> str:
        """Return a log point's line at a moment."""
        values = iter(self._holes)
        names = Names(view)

        def filled(found: re.Match[str]) -> str:
            expression = next(values)
            try:
                return shown(expression.evaluate(names))
            except ExpressionError as error:
                return f"<{error}>"

        return _HOLE.sub(filled, self.text or "")


def names_in(expression: Expression | None) -> frozenset[str]:
    """Return the names that an expression uses."""
    if expression is None:
        return frozenset()
    return frozenset(n.id for n in ast.walk(expression.body) if isinstance(n, ast.Name))


def shown(value: object) -> str:
    """Format a value for a line."""
    if isinstance(value, str):
        return value
    return str(_SHOW.evaluate({"value": value}))


_SHOW: Final = compile_expression("str(value)")


def make(
    number: int,
    kind: BreakKind,
    location: str,
    *,
    condition: str | None = None,
    hit: str | None = None,
    text: str | None = None,
    temporary: bool = False,
    agent: Any = None,
) -> Breakpoint:
    """Make a breakpoint from its parts; lines of files are looked up in the code of `agent`.

    Raises:
        DebugError: The location, the hit condition, or the caught kind is invalid.
        ExpressionError: The condition or a `{hole}` is not an expression.
    """
    if hit is not None and not _is_hit(hit):
        raise DebugError(f"{hit[:40]!r} is no hit condition; write 3, ==3, >=3 or %3")
    expression = compile_expression(condition) if condition else None
    fits, note, bound = _fits(kind, location, names_in(expression), agent)
    if set(_HOLE.sub("", text or "")) & {"{", "}"}:
        raise DebugError(f"{text!r:.80} has a brace without its other; write {{EXPRESSION}}")
    holes = tuple(compile_expression(found[1]) for found in _HOLE.finditer(text or ""))
    return Breakpoint(
        number,
        kind,
        location.strip(),
        fits,
        condition or None,
        hit,
        text,
        temporary,
        note=note,
        bound=bound,
        _shape=agent if isinstance(agent, Mapping) else None,
        _expression=expression,
        _holes=holes,
    )


def read_spec(number: int, spec: str, agent: Any = None) -> Breakpoint:
    """Read a breakpoint as it is written: `break tool:bash if glob(args.command, "*rm*")`.

    Lines of files are looked up in the code of `agent`.

    Raises:
        DebugError: It is not a breakpoint.
        ExpressionError: Its condition is not an expression.
    """
    found = _SPEC.fullmatch(spec.strip())
    if found is None:
        raise DebugError(
            f"{spec[:80]!r} is no breakpoint; write break LOCATION, watch CHANNEL, catch error, "
            'or log LOCATION "text", each with if EXPRESSION and hit COUNT'
        )
    word, rest = found["word"], found["rest"].strip()
    text = None
    if word == "log":
        said = _TEXT.match(rest)
        if said is None:
            raise DebugError('a log point has a text: log tool:* "{tool} {args}"')
        text, rest = said["text"][1:-1], f"{said['where']}{rest[said.end() :]}"
    where, condition, hit = _cut(rest)
    kind: BreakKind = "break" if word == "tbreak" else word  # type: ignore[assignment]  # one of _SPEC's words
    return make(
        number,
        kind,
        where,
        condition=condition,
        hit=hit,
        text=text,
        temporary=word == "tbreak",
        agent=agent,
    )


def _cut(rest: str) -> tuple[str, str | None, str | None]:
    """Separate `LOCATION if EXPRESSION hit COUNT`; the last `hit` is the count, if it is one."""
    padded = f"{rest} "
    first = _CUTS.search(padded)
    if first is None:
        return rest, None, None
    where, tail = padded[: first.start()], padded[first.end() :].strip()
    if not tail:
        raise DebugError(f"{first[1]} needs a value; write if EXPRESSION, or hit COUNT")
    if first[1] == "hit":
        count, _, condition = tail.partition(" if ")
        return where, condition.strip() or None, count.strip()
    condition, found, count = tail.rpartition(" hit ")
    if found and _is_hit(count.strip()):
        return where, condition.strip(), count.strip()
    return where, tail, None


def _is_hit(text: str) -> bool:
    found = _HIT.fullmatch(text.strip())
    return found is not None and int(found["count"]) > 0


def _unknown_channel(path: str, agent: Any) -> str:
    channel = str(read_path(path)[0])
    if isinstance(agent, Mapping):
        known = channel in {SHOWN_AS.get(name, name) for name in agent["channels"]}
    else:
        known = channel in CHANNELS or (isinstance(agent, Agent) and channel in agent.spec.channels)
    return "" if known else f"the state has no channel {channel}"


def _fits(
    kind: BreakKind, location: str, uses: frozenset[str], agent: Any
) -> tuple[Fits, str, tuple[str, ...]]:
    """Return a breakpoint's predicate, why it never stops, and the locations of a file's line."""
    if kind == "catch":
        return fits_error(location.strip()), "", ()
    if kind == "watch":
        path = read_path(location)
        return (lambda view: is_write(view, path)), _unknown_channel(location, agent), ()
    of_line = locations_at(location, agent)
    if of_line is None:
        return _located((location,), uses, agent), "", ()
    bound, note = of_line
    return _located(bound, uses, agent), note, bound


def _located(locations: tuple[str, ...], uses: frozenset[str], agent: Any) -> Fits:
    shape = agent if isinstance(agent, Mapping) else None
    each = [read_location(location, uses, shape).fits for location in locations]
    return each[0] if len(each) == 1 else lambda view: any(fits(view) for fits in each)


def is_write(view: View, path: Path) -> bool:
    """Return whether the node that ends here wrote to a channel or changed the value at a path."""
    if view.entry.what not in ("node.exit", "state.update"):
        return False
    if not any(write.get("channel") == path[0] for write in view.writes):
        return False
    if len(path) == 1:
        return True
    try:
        return bool(_at(view.state, path) != _at(view.before, path))
    except StorageError:
        return True  # the old value is unknown; better one stop too many


def _at(state: object, path: Path) -> object:
    try:
        return at_path(state, path)
    except LookupError:
        return _GONE


_KINDS: Final[dict[BreakKind, Reason]] = {
    "break": "breakpoint",
    "watch": "watch",
    "catch": "catch",
}


class BreakpointSet:
    """The breakpoints of a session, by their numbers. Every method may be called from any thread.

    `add` reads a breakpoint from text; `break_`, `watch`, `catch` and `log` make one from its
    parts. `session.inspect.hits` lists where one would stop in the recording.
    """

    outline: Any = None
    """The agent, with the code of lines of files; or the recorded shape of another graph."""
    version = 0
    """Counter that changes whenever a move may now stop elsewhere."""

    def __init__(self, lock: threading.Condition, outputs: Outputs) -> None:
        self._items: dict[int, Breakpoint] = {}
        self._numbers = count(1)
        self._lock = lock
        self._outputs = outputs

    def __iter__(self) -> Iterator[Breakpoint]:
        return iter(list(self._items.values()))

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, number: int) -> Breakpoint:
        """Return a breakpoint by its number.

        Raises:
            DebugError: There is no such breakpoint.
        """
        found = self._items.get(number)
        if found is None:
            known = ", ".join(map(str, self._items)) or "none is set"
            raise DebugError(f"there is no breakpoint {number}; there is: {known}")
        return found

    def add(self, spec: str) -> Breakpoint:
        """Set a breakpoint as it is written: `break tool:bash if args.command == "ls"`.

        Raises:
            DebugError: It is not a breakpoint.
            ExpressionError: Its condition is not an expression.
        """
        return self._add(read_spec(next(self._numbers), spec, self.outline))

    def break_(
        self,
        location: str,
        condition: str | None = None,
        hit: str | None = None,
        *,
        temporary: bool = False,
    ) -> Breakpoint:
        """Stop at a location; raises as `add`."""
        return self._make("break", location, condition=condition, hit=hit, temporary=temporary)

    def watch(self, path: str, condition: str | None = None, hit: str | None = None) -> Breakpoint:
        """Stop after a write to a channel, or to a path in one; raises as `add`."""
        return self._make("watch", path, condition=condition, hit=hit)

    def catch(self, what: str, condition: str | None = None) -> Breakpoint:
        """Stop at an error, a question or a retry; raises as `add`."""
        return self._make("catch", what, condition=condition)

    def log(self, location: str, text: str, condition: str | None = None) -> Breakpoint:
        """Log a text at a location without a stop; raises as `add`."""
        return self._make("log", location, condition=condition, text=text)

    def delete(self, number: int) -> None:
        """Remove a breakpoint.

        Raises:
            DebugError: There is no such breakpoint.
        """
        with self._changing():
            del self._items[self[number].number]

    def enable(self, number: int) -> None:
        """Enable a breakpoint; raises as `delete`."""
        with self._changing():
            self[number].enabled = True

    def disable(self, number: int) -> None:
        """Disable a breakpoint; raises as `delete`."""
        with self._changing():
            self[number].enabled = False

    def condition(self, number: int, expression: str | None) -> None:
        """Change or remove a breakpoint's condition; raises as `delete` and `add`."""
        with self._changing():
            self[number].limit(expression)

    def ignore(self, number: int, times: int) -> None:
        """Ignore the next hits of a breakpoint; raises as `delete`."""
        with self._changing():
            self[number].ignore = max(times, 0)

    def specs(self) -> list[str]:
        """Return the texts to set the breakpoints again."""
        return [found.spec for found in self]

    # --- for moves -------------------------------------------------------------------------------

    def check(self, view: View, forwards: bool) -> Hit | None:
        """Check every breakpoint, so that each counts its hits; the first that stops decides.

        Log points write their lines if the move goes forwards.
        """
        stopped: Hit | None = None
        for found in list(self._items.values()):
            if found.kind == "log" and not forwards:
                continue
            hit = found.check(view, counts=forwards)
            if hit is None:
                continue
            if found.kind == "log" and not hit.problem:
                self._outputs.say(Output(view.entry.seq, "log", found.said(view)))
            elif stopped is None:
                stopped = hit
        return stopped

    def stop_for(self, hit: Hit) -> tuple[Reason, str]:
        """Make the stop of a breakpoint, and delete a temporary one."""
        found = hit.breakpoint
        if found.temporary:
            self._items.pop(found.number, None)
        word = _KINDS.get(found.kind, "breakpoint")
        text = f"{word} {found.number}, {found.location}"
        if hit.problem:
            return "condition-error", f"{text}: {hit.problem}"
        return word, text

    def _make(self, kind: BreakKind, location: str, **parts: Any) -> Breakpoint:
        return self._add(make(next(self._numbers), kind, location, agent=self.outline, **parts))

    def _add(self, made: Breakpoint) -> Breakpoint:
        with self._changing():
            self._items[made.number] = made
        return made

    @contextmanager
    def _changing(self) -> Iterator[None]:
        with self._lock:
            yield
            self.version += 1
