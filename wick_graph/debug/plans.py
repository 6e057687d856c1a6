"""What going on from a moment would execute: told beforehand, from the recording alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from wick_graph.debug.cursor import At
from wick_graph.debug.live import Living
from wick_graph.debug.policy import Edit, Mock, Policy
from wick_graph.errors import DebugError


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """Something that going on from a moment would execute, as far as the recording tells."""

    step: int
    node: str
    kind: Literal["node", "model", "tool"]
    name: str
    policy: str
    recorded: bool
    """Whether the recording has an answer, for the same request or arguments."""
    side_effects: bool
    """A tool that is not declared safe to repeat."""
    tokens: int | None
    """What it used when it was recorded."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A fork that is prepared; nothing of it has been executed or written."""

    position: str
    branch: int
    """The branch that is left."""
    checkpoint: str
    node: str | None
    """The node that is run first."""
    policy: Policy
    will_execute: list[Planned]
    text: str
    label: str = ""
    state: Mapping[str, Any] = field(default_factory=dict)
    edits: tuple[Edit, ...] = ()


class Planning(Living):
    """Tells what would be executed."""

    policy: Policy = Policy()
    """What answers when recorded ground is gone over again, unless a fork says otherwise."""

    def mock(self, tool: str, value: Any) -> None:
        """Have a tool answered with a value from now on, in forks and replays."""
        self.policy = self.policy.with_tool(tool, Mock(value))

    def will_execute(self, at: At = None, policy: Policy | None = None) -> list[Planned]:
        """List what going on from a moment would execute, as far as the recording tells.

        Raises:
            DebugError: There is no such moment, or nothing that could be gone on with.
        """
        with self._cond:
            start = self._superstep(self._place(at))
            chosen = policy or self.policy
            return [
                one
                for place in range(start, len(self._trail))
                for one in self._planned(place, chosen)
            ]

    def _planned(self, place: int, policy: Policy) -> Iterator[Planned]:
        entry = self._trail.entries[place]
        step, node = entry.step, entry.node or ""
        if entry.what == "node.enter":
            yield Planned(
                step=step,
                node=node,
                kind="node",
                name=node,
                policy="live",
                recorded=False,
                side_effects=False,
                tokens=None,
                text=f"node {node}: its code and its hooks are run",
            )
        elif entry.what == "model.request":
            said = _said(policy.model, policy.missing_model)
            yield Planned(
                step=step,
                node=node,
                kind="model",
                name=entry.name,
                policy=_word(policy.model),
                recorded=True,
                side_effects=False,
                tokens=self._tokens_of(place),
                text=f"model {entry.name}: {said}",
            )
        elif entry.what == "tool.call":
            choice, replay = policy.tool(entry.name), self._desk.view(place).told.get("replay")
            effects = replay != "safe"
            said = _said(choice, policy.missing if effects else "live")
            yield Planned(
                step=step,
                node=node,
                kind="tool",
                name=entry.name,
                policy=_word(choice),
                recorded=True,
                side_effects=effects,
                tokens=None,
                text=f"tool {entry.name}: {said}" + ("; it has side effects" if effects else ""),
            )

    def _tokens_of(self, place: int) -> int | None:
        asked = self._trail.entries[place]
        for at in range(place + 1, len(self._trail)):
            entry = self._trail.entries[at]
            if entry.what == "model.response" and entry.parent == asked.seq:
                used = self._desk.view(at).usage or {}
                return used.get("total_tokens")
        return None

    def _superstep(self, place: int) -> int:
        """Return where the step of a moment began, or the next one does."""
        entries = self._trail.entries
        if not 0 <= place < len(entries):
            raise DebugError("nothing is recorded here that could be gone on with")
        while place < len(entries) and entries[place].checkpoint is None:
            place += 1
        if place == len(entries) or entries[place].kind == "checkpoint":
            raise DebugError(
                "nothing follows here that could be run again; choose an earlier moment"
            )
        return next(
            (self._trail.place(e.seq) or 0 for e in reversed(list(self._trail.superstep(place)))),
            place,
        )


def _word(choice: Any) -> str:
    return "mock" if isinstance(choice, Mock) else str(choice)


def _said(choice: Any, missing: str) -> str:
    if isinstance(choice, Mock):
        return "answered with a given value"
    if choice != "recorded":
        return {"live": "really called", "ask": "you are asked"}[choice]
    other = {"live": "is really called", "ask": "you are asked", "stop": "it stops there"}[missing]
    return f"answered from the recording; if it is asked something else, {other}"


def summary(position: str, branch: int, planned: list[Planned]) -> str:
    """Say in a line what a fork would execute."""
    count = {kind: sum(p.kind == kind for p in planned) for kind in ("node", "model", "tool")}
    names = {p.name: p.policy for p in planned if p.kind != "node"}
    words = ", ".join(f"{name}={policy}" for name, policy in names.items())
    parts = ", ".join(f"{n} {kind}{'s' * (n != 1)}" for kind, n in count.items())
    return f"branch b{branch} from {position}: {parts} would execute" + (
        f": {words}" if words else ""
    )
