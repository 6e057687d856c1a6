"""Commands that show a run and change nothing, `info` included."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from langchain_core.messages import BaseMessage

from wick_graph.debug.policy import Mock, Policy
from wick_graph.debug.terminal import show
from wick_graph.debug.terminal.move_commands import line_of
from wick_graph.debug.terminal.registry import Command, Reply, needs, number_of, unquoted
from wick_graph.debug.terminal.show import short, table
from wick_graph.errors import DebugError
from wick_graph.journal.links import lines_of
from wick_graph.messages import to_wick

if TYPE_CHECKING:
    from wick_graph.debug.terminal.shell import Shell


# --- The topics of `info`.


def informed(shell: Shell, topic: str) -> list[str]:
    """Show a topic.

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
    """List the branches of the thread, and where each began."""
    made = []
    for branch in shell.session.inspect.branches():
        mark = "▶" if branch.number == shell.session.branch else " "
        left = "" if branch.parent is None else f", left b{branch.parent}"
        made.append(f"{mark} b{branch.number}{left}: {branch.moments} moments of its own")
    return made or ["nothing is recorded yet"]


def policy_of(shell: Shell) -> Policy:
    """Return the policy that holds: that of the prepared fork, or of those to come."""
    return shell.session.policy if shell.plan is None else shell.plan.policy


def policy_words(policy: Policy) -> str:
    """Show a policy in a line."""
    tools = "".join(f" {name}={_word(how)}" for name, how in policy.tools.items())
    rest = f"other={_word(policy.other)} missing={policy.missing}"
    return f"model={_word(policy.model)}{tools} {rest}"


def _word(choice: Any) -> str:
    return f"mock {short(choice.value)}" if isinstance(choice, Mock) else str(choice)


def _policy(shell: Shell) -> list[str]:
    return [policy_words(policy_of(shell))]


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
    own, journal = shell.session, shell.session.journal
    beside = [] if journal is None else [f"  {line}" for line in lines_of(journal)]
    return [f"▶ {own.thread_id or 'none yet'}, {own.mode}", *beside]


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


# --- Commands that show, and change nothing.


_AROUND: Final = 5

_MANY: Final = 500

_PLACE: Final = re.compile(r"[@#][\d.]+$")


def _where(shell: Shell, rest: str) -> Reply:
    frames = shell.session.inspect.where()
    if not frames:
        return Reply.of("this is outside of everything", data=[])
    lines = [
        f"{'▶' if at == shell.frame else ' '} {at}  {frame.text}" for at, frame in enumerate(frames)
    ]
    data = [{"text": f.text, "kind": f.kind, "name": f.name, "seq": f.seq} for f in frames]
    traced = [f"     {line}" for line in shell.session.inspect.details().get("traceback", ())]
    return Reply([*lines, *traced], data=data)


def _frame(shell: Shell, rest: str) -> Reply:
    if rest:
        shell.frame = _bounded(shell, number_of(rest, "a frame's number"))
    return _chosen(shell)


def _up(shell: Shell, rest: str) -> Reply:
    shell.frame = _bounded(shell, shell.frame + (number_of(rest) if rest else 1))
    return _chosen(shell)


def _down(shell: Shell, rest: str) -> Reply:
    shell.frame = _bounded(shell, shell.frame - (number_of(rest) if rest else 1))
    return _chosen(shell)


def _bounded(shell: Shell, number: int) -> int:
    last = len(shell.session.inspect.where()) - 1
    if number < 0:
        raise DebugError("this is the innermost frame")
    if number > last:
        raise DebugError("this is the outermost frame")
    return number


def _chosen(shell: Shell) -> Reply:
    frames = shell.session.inspect.where()
    if not frames:
        return Reply.of("this is outside of everything")
    return Reply.of(f"{shell.frame}  {frames[shell.frame].text}")


def _list(shell: Shell, rest: str) -> Reply:
    around = number_of(rest) if rest else _AROUND
    here = shell.session.here
    every = shell.session.inspect.moments()
    at = next((i for i, e in enumerate(every) if here is not None and e.seq == here.seq), 0)
    shown = every[max(at - around, 0) : at + around + 1]
    lines = [
        f"{'▶' if entry == here else ' '} {shell.session.inspect.line(entry)}" for entry in shown
    ]
    return Reply(lines or ["nothing is recorded yet"], data=[entry.seq for entry in shown])


def _moments(shell: Shell, rest: str) -> Reply:
    found = shell.session.inspect.moments(rest or None)
    lines = [shell.session.inspect.line(entry) for entry in found[:_MANY]]
    if len(found) > _MANY:
        lines.append(f"… and {len(found) - _MANY} more; `goto` and `list` show them")
    return Reply(lines or ["there are no such moments"], data=[entry.seq for entry in found])


def _graph(shell: Shell, rest: str) -> Reply:
    return Reply(shell.doors.draw())


def _print(shell: Shell, rest: str) -> Reply:
    value = shell.session.value(needs(rest, "an expression"), at=shell.at)
    return Reply(show.value_lines(value), data=value)


def _display(shell: Shell, rest: str) -> Reply:
    if not rest:
        return Reply(list(shell.displays) or ["nothing is displayed; `display EXPR` does it"])
    value = shell.session.value(rest, at=shell.at)
    if rest not in shell.displays:
        shell.displays.append(rest)
    return Reply.of(f"{rest} = {show.short(value)}", data=value)


def _undisplay(shell: Shell, rest: str) -> Reply:
    if rest and rest not in shell.displays:
        raise DebugError(f"{rest[:80]} is not displayed; `display` lists what is")
    shell.displays = [text for text in shell.displays if rest and text != rest]
    return Reply()


def _state(shell: Shell, rest: str) -> Reply:
    value = shell.session.inspect.state(rest or None, at=shell.at)
    if rest:
        return Reply(show.value_lines(value), data=value)
    pending = shell.session.inspect.pending(at=shell.at)
    return Reply(show.state_lines(value, pending), data={"state": value, "pending": pending})


def _request(shell: Shell, rest: str) -> Reply:
    view = shell.session.request(at=shell.at)
    data = {
        "seq": view.seq,
        "position": str(view.position),
        "exact": view.exact,
        "note": view.note,
        "system": [list(section) for section in view.system],
        "messages": view.messages,
        "tools": view.tools,
        "settings": view.settings,
        "model": view.model,
        "purpose": view.purpose,
        "when": view.when,
    }
    return Reply([_which(view), *view.lines()], data=data)


def _which(view: Any) -> str:
    """Say which request is shown: it may belong to another moment."""
    at = _PLACE.search(view.position)
    far = "" if view.when == "at" else f" ({view.when} here)"
    return f"request {at[0] if at else view.position}{far}"


def _response(shell: Shell, rest: str) -> Reply:
    found = shell.session.inspect.response(at=shell.at)
    if found is None:
        return Reply.of("no model has answered here")
    return Reply(show.message_lines(found), data=found)


def _call(shell: Shell, rest: str) -> Reply:
    found = shell.session.inspect.call(at=shell.at)
    if found is None:
        return Reply.of("this is in no tool call")
    return Reply(show.call_lines(found), data=found)


def _diff(shell: Shell, rest: str) -> Reply:
    words = rest.split()
    if len(words) > 2:
        raise DebugError("write `diff`, `diff A`, or `diff A B` with positions such as @12")
    changes = shell.session.inspect.diff(*words)
    data = [{"path": c.path, "op": c.op, "before": c.before, "after": c.after} for c in changes]
    if not changes and not words and (elsewhere := _changed_here(shell)):
        return Reply.of(elsewhere, data=data)
    return Reply(show.change_lines(changes), data=data)


def _changed_here(shell: Shell) -> str:
    """Point to a hook's change at the cursor that is not in the state."""
    here = shell.session.here
    if here is None or here.kind == "gap" or not shell.session.inspect.details().get("change"):
        return ""
    shows = "call" if here.tool else "blame"
    of = "call" if here.tool else "request"
    return f"nothing of the state changed; `{shows}` shows the {of}"


def _history(shell: Shell, rest: str) -> Reply:
    found = shell.session.inspect.history(needs(rest, "a channel, or a path in one"))
    lines = [f"#{entry.seq} @{entry.step} {entry.name}: {show.brief(v)}" for entry, v in found]
    data = [{"seq": entry.seq, "step": entry.step, "value": value} for entry, value in found]
    return Reply(lines or ["nothing has written it"], data=data)


def _why(shell: Shell, rest: str) -> Reply:
    path = needs(rest, "a path, such as messages[-1].content")
    causes = shell.session.why(path, at=shell.at)
    lines = [("  because  " if at else "") + cause.text for at, cause in enumerate(causes)]
    data = [{"position": str(c.position), "seq": c.seq, "text": c.text, "by": c.by} for c in causes]
    return Reply(lines or [f"{path}  has not been written by now"], data=data)


def _blame(shell: Shell, rest: str) -> Reply:
    parts = shell.session.inspect.blame(at=shell.at)
    lines = [_which(shell.session.request(at=shell.at)), *show.blame_lines(parts, _data)]
    data = [
        {"part": p.part, "op": p.op, "by": p.by, "seq": p.seq, "name": p.name,
         "value": _data(p.value)}
        for p in parts
    ]  # fmt: skip
    return Reply(lines, data=data)


def _data(value: Any) -> Any:
    return to_wick(value) if isinstance(value, BaseMessage) else value


def _route(shell: Shell, rest: str) -> Reply:
    route = shell.session.inspect.route(at=shell.at)
    data = {
        "seq": route.seq,
        "chosen": route.chosen,
        "reason": route.reason,
        "candidates": list(route.candidates),
    }
    return Reply(show.route_lines(route), data=data)


def _tokens(shell: Shell, rest: str) -> Reply:
    rows = shell.session.inspect.tokens()
    if not rows:
        return Reply.of("no model has answered yet", data=[])
    heads = list(rows[0])
    return Reply(show.table(heads, [[row[h] for h in heads] for row in rows]), data=rows)


def _info(shell: Shell, rest: str) -> Reply:
    return Reply(informed(shell, rest)) if rest else Reply.of(f"info {' | '.join(TOPICS)}")


def _search(shell: Shell, rest: str) -> Reply:
    found = shell.session.inspect.search(needs(rest, "a text"))
    lines = [shell.session.inspect.line(entry) for entry in found]
    return Reply(lines or ["it occurs nowhere"], data=[entry.seq for entry in found])


def _compare(shell: Shell, rest: str) -> Reply:
    words = rest.split()
    if len(words) != 2:
        raise DebugError("write `compare A B` with numbers of branches, or ids of runs")
    made = shell.session.compare(*(int(w) if w.isdigit() else w for w in words))
    lines = [made.first or "they are the same"]
    heads = ("node", "visit", words[0], words[1], "")
    rows = [
        (row.node, row.visit, show.short(row.a or "", 40), show.short(row.b or "", 40), _sign(row))
        for row in made.rows
    ]
    lines += show.table(heads, rows)
    lines.append(f"tokens {made.tokens[0]:,} and {made.tokens[1]:,}")
    lines.append(f"seconds {made.seconds[0]:.3f} and {made.seconds[1]:.3f}")
    data = [
        {"node": r.node, "visit": r.visit, "a": r.a, "b": r.b, "same": r.same} for r in made.rows
    ]
    return Reply(lines, data={"first": made.first, "rows": data})


def _sign(row: Any) -> str:
    return "" if row.same else "≠"


def _bisect(shell: Shell, rest: str) -> Reply:
    words = rest.split(None, 2)
    if len(words) < 3:
        raise DebugError("write `bisect A B EXPR` with positions such as @1 and @last")
    found = shell.session.inspect.bisect(words[0], words[1], unquoted(words[2]))
    return Reply([shell.session.inspect.line(found)], data={"seq": found.seq, "step": found.step})


LOOK_COMMANDS: Final = (
    Command(
        ("where", "bt", "backtrace"), "look", "where", "show the stack, innermost first", _where
    ),
    Command(
        ("frame", "f"), "look", "frame [N]", "choose a frame: what follows is about it", _frame
    ),
    Command(("up",), "look", "up [N]", "choose a frame further out", _up),
    Command(("down",), "look", "down [N]", "choose a frame further in", _down),
    Command(("list", "l"), "look", "list [N]", "show the moments around here", _list),
    Command(("moments", "mo"), "look", "moments [KIND]", "show all moments", _moments),
    Command(("graph",), "look", "graph", "draw the agent's graph with this thread on it", _graph),
    Command(("print", "p"), "look", "print EXPR", "evaluate an expression here", _print),
    Command(("display", "disp"), "look", "display [EXPR]", "print it at every stop", _display),
    Command(("undisplay", "undisp"), "look", "undisplay [EXPR]", "no longer", _undisplay),
    Command(("state",), "look", "state [PATH]", "show the thread's state here", _state),
    Command(
        ("request", "req"), "look", "request", "show exactly what the model was sent", _request
    ),
    Command(("response", "resp"), "look", "response", "show what the model answered", _response),
    Command(("call",), "look", "call", "show the tool call that we are in", _call),
    Command(("diff",), "look", "diff [A [B]]", "show what the step changed, or two moments", _diff),
    Command(("history", "hist"), "look", "history PATH", "show each write to it", _history),
    Command(("why", "y"), "look", "why PATH", "say who wrote it, and because of what", _why),
    Command(("blame",), "look", "blame", "show who put which part of the request there", _blame),
    Command(("route",), "look", "route", "show why the router went that way", _route),
    Command(("tokens",), "look", "tokens", "show what each reply cost", _tokens),
    Command(("info", "i"), "look", f"info {'|'.join(TOPICS)}", "tell of the session", _info),
    Command(("search",), "compare", "search TEXT", "find a text in the recording", _search),
    Command(("compare",), "compare", "compare A B", "compare two branches or runs", _compare),
    Command(
        ("bisect",), "compare", "bisect A B EXPR", "find where an expression first differs", _bisect
    ),
)
