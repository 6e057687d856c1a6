"""What `info TOPIC` tells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from wick_graph.debug.policy import Mock, Policy
from wick_graph.debug.terminal.show import short, table
from wick_graph.debug.terminal.stops import line_of
from wick_graph.errors import DebugError

if TYPE_CHECKING:
    from wick_graph.debug.terminal.shell import Shell


def informed(shell: Shell, topic: str) -> list[str]:
    """Tell of a topic.

    Raises:
        DebugError: There is no such topic.
    """
    tell = TOPICS.get({"b": "breaks", "break": "breaks", "breakpoints": "breaks"}.get(topic, topic))
    if tell is None:
        raise DebugError(f"there is no topic {topic[:40]!r}; write one of {', '.join(TOPICS)}")
    return tell(shell)


def breaks(shell: Shell) -> list[str]:
    """List the breakpoints."""
    return [line_of(made) for made in shell.session.breakpoints] or [
        "there are no breakpoints; `break tool:*` makes one"
    ]


def branches(shell: Shell) -> list[str]:
    """List the branches of the thread, and where each left another one."""
    made = []
    for branch in shell.session.inspect.branches():
        mark = "▶" if branch.number == shell.session.branch else " "
        left = "" if branch.parent is None else f", left b{branch.parent}"
        made.append(f"{mark} b{branch.number}{left}: {branch.moments} moments of its own")
    return made or ["nothing is recorded yet"]


def policy_words(policy: Policy) -> str:
    """Show a policy in a line."""
    tools = "".join(f" {name}={_word(how)}" for name, how in policy.tools.items())
    rest = f"other={_word(policy.other)} missing={policy.missing}"
    return f"model={_word(policy.model)}{tools} {rest}"


def _word(choice: Any) -> str:
    return f"mock {short(choice.value)}" if isinstance(choice, Mock) else str(choice)


def _policy(shell: Shell) -> list[str]:
    return [policy_words(shell.session.policy)]


def _tools(shell: Shell) -> list[str]:
    ends = shell.session.inspect.moments("tool.exit")
    calls = Counter(entry.name for entry in ends)
    failed = Counter(entry.name for entry in ends if entry.fails)
    rows = [(name, count, failed[name]) for name, count in sorted(calls.items())]
    return table(("tool", "calls", "failed"), rows) if rows else ["no tool was called"]


def _hooks(shell: Shell) -> list[str]:
    found = Counter((e.name, e.hook_phase) for e in shell.session.inspect.moments("hook.enter"))
    rows = [(name, phase, count) for (name, phase), count in sorted(found.items())]
    return table(("hook", "phase", "calls"), rows) if rows else ["no hook was called"]


def _runs(shell: Shell) -> list[Any]:
    journal = shell.session.journal
    return [] if journal is None else journal.runs()


def _agents(shell: Shell) -> list[str]:
    found = dict.fromkeys((run.agent, run.model) for run in _runs(shell))
    lines = [f"{agent} with {model}, recorded" for agent, model in found]
    if shell.session.agent is not None:
        lines.append(f"{shell.session.agent.name}, which may run")
    return lines or ["no agent is known here"]


def _threads(shell: Shell) -> list[str]:
    return [f"▶ {shell.session.thread_id or 'none yet'}, {shell.session.mode}"]


def _record(shell: Shell) -> list[str]:
    runs = _runs(shell)
    rows = [
        (run.number, run.agent, run.mode, run.stopped_because or run.status, f"b{run.branch}",
         run.started.strftime("%Y-%m-%d %H:%M:%S"), run.level, f"#{run.first}")
        for run in runs
    ]  # fmt: skip
    heads = ("run", "agent", "mode", "end", "branch", "began", "level", "first")
    return table(heads, rows) if rows else ["nothing is recorded yet"]


def _checkpoints(shell: Shell) -> list[str]:
    found: dict[str, Any] = {}
    for entry in shell.session.inspect.moments():
        if entry.checkpoint is not None:
            found.setdefault(entry.checkpoint, entry)
    rows = [(name, f"@{entry.step}", entry.node or "") for name, entry in found.items()]
    return table(("checkpoint", "step", "next"), rows) if rows else ["there are none"]


TOPICS: Final[dict[str, Callable[[Shell], list[str]]]] = {
    "threads": _threads,
    "branches": branches,
    "breaks": breaks,
    "hooks": _hooks,
    "tools": _tools,
    "agents": _agents,
    "checkpoints": _checkpoints,
    "policy": _policy,
    "record": _record,
}
