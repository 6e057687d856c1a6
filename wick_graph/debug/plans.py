"""What going on from a moment would execute: told beforehand, from the recording alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from wick_graph import keys
from wick_graph.debug.cursor import At
from wick_graph.debug.kept import kept_policy
from wick_graph.debug.live import Living
from wick_graph.debug.policy import Edit, Mock, Policy
from wick_graph.debug.unfinished import Left, left_of, text_of
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

        Where the cursor stands at the end of a thread that is not finished, that is what `live`
        would execute: the tasks of its step that are not over. In a fork that was left its own
        policy answers them.

        Raises:
            DebugError: There is no such moment, nothing that could be gone on with, or no agent
                that could do it; or the thread stands in a fork whose policy could not be kept.
        """
        with self._cond:
            if at is None and self._is_left():
                kept = None if self.journal is None else kept_policy(self.journal)
                return [one for left in self._left() for one in _planned_left(left, kept)]
            start = self._superstep(self._place(at))
            chosen = policy or self.policy
            again = self._visited_again()
            return [
                one
                for place in range(start, len(self._timeline))
                if again.get(self._timeline.entries[place].task, -1) <= place
                for one in self._planned(place, chosen)
            ]

    def _is_left(self) -> bool:
        """Say whether the cursor is at the end of a recording that stops within a thread's run."""
        at_the_end = 0 <= self._at == len(self._timeline) - 1
        return at_the_end and self._run is None and self.thread_id is not None

    def _left(self) -> list[Left]:
        graph = self._graph()
        state = graph.get_state(keys.with_configurable(None, **{keys.THREAD_ID: self.thread_id}))
        if not state.next:
            raise DebugError("nothing follows here that could be run; choose an earlier moment")
        return list(left_of(state, self._timeline.entries, graph.spec))

    def _visited_again(self) -> dict[str | None, int]:
        """Return where each task was last begun: a run that was left begins its tasks once more."""
        entries = self._timeline.entries
        begins = {e.task: place for place, e in enumerate(entries) if e.what == "node.enter"}
        return {task: place for task, place in begins.items() if task is not None}

    def _planned(self, place: int, policy: Policy) -> Iterator[Planned]:
        entry = self._timeline.entries[place]
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
            yield Planned(
                step=step,
                node=node,
                kind="model",
                name=entry.name,
                policy=_word(policy.model),
                recorded=True,
                side_effects=False,
                tokens=self._tokens_of(place),
                text=_model_text(entry.name, policy),
            )
        elif entry.what == "tool.call":
            choice, replay = policy.tool(entry.name), self._views.view(place).told.get("replay")
            effects = replay != "safe"
            yield Planned(
                step=step,
                node=node,
                kind="tool",
                name=entry.name,
                policy=_word(choice),
                recorded=True,
                side_effects=effects,
                tokens=None,
                text=_tool_text(entry.name, effects, policy),
            )

    def _tokens_of(self, place: int) -> int | None:
        asked = self._timeline.entries[place]
        for at in range(place + 1, len(self._timeline)):
            entry = self._timeline.entries[at]
            if entry.what == "model.response" and entry.parent == asked.seq:
                used = self._views.view(at).usage or {}
                return used.get("total_tokens")
        return None

    def _superstep(self, place: int) -> int:
        """Return where the step of a moment began, or the next one does."""
        entries = self._timeline.entries
        if not 0 <= place < len(entries):
            raise DebugError("nothing is recorded here that could be gone on with")
        while place < len(entries) and entries[place].checkpoint is None:
            place += 1
        if place == len(entries) or entries[place].kind == "checkpoint":
            raise DebugError(
                "nothing follows here that could be run again; choose an earlier moment"
            )
        return next(
            (
                self._timeline.place(e.seq) or 0
                for e in reversed(list(self._timeline.superstep(place)))
            ),
            place,
        )


def _planned_left(left: Left, kept: Policy | None) -> Iterator[Planned]:
    """Yield what becomes of a task; `kept` is the policy of the fork that it is in."""
    shared: dict[str, Any] = {"step": left.step, "node": left.node}
    text = f"node {left.node}: its code and its hooks are run"
    yield Planned(
        **shared,
        policy="live",
        kind="node",
        name=left.node,
        recorded=False,
        side_effects=False,
        tokens=None,
        text=text,
    )
    if left.node in ("model", "tools"):
        effects = left.node == "tools" and left.replay != "safe"
        word, text = _of_left(left, effects, kept)
        yield Planned(
            **shared,
            policy=word,
            kind="model" if left.node == "model" else "tool",
            name=left.name,
            recorded=left.recorded,
            side_effects=effects,
            tokens=None,
            text=text,
        )


def _of_left(left: Left, effects: bool, kept: Policy | None) -> tuple[str, str]:
    """Return the policy of a task's call in a word, and what becomes of it."""
    if kept is not None and not (left.asks or left.recorded):
        choice = kept.model if left.node == "model" else kept.tool(left.name)
        if choice != "live":
            is_model = left.node == "model"
            text = (
                _model_text(left.name, kept) if is_model else _tool_text(left.name, effects, kept)
            )
            return _word(choice), text
    return "live", text_of(left)


def _model_text(name: str, policy: Policy) -> str:
    return f"model {name}: {_said(policy.model, policy.missing_model)}"


def _tool_text(name: str, effects: bool, policy: Policy) -> str:
    said = _said(policy.tool(name), policy.missing if effects else "live")
    return f"tool {name}: {said}" + ("; it has side effects" if effects else "")


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
