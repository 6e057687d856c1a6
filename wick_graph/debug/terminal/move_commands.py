"""Commands that move through a run and that manage breakpoints."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from wick_graph.debug import locations
from wick_graph.debug.breakpoints import Breakpoint, BreakpointSet
from wick_graph.debug.locations import CATCHES
from wick_graph.debug.policy import Mock, Policy
from wick_graph.debug.sources import other_code
from wick_graph.debug.terminal import show
from wick_graph.debug.terminal.registry import Command, Reply, json_of, needs, number_of, words_of
from wick_graph.debug.types import How
from wick_graph.engine.result import checked_thread_id
from wick_graph.errors import DebugError, WickError
from wick_graph.foreign.listener import is_agent
from wick_graph.journal.entry import Entry
from wick_graph.journal.links import begun_by
from wick_graph.journal.replay import chain_of, latest
from wick_graph.picture.model import clean

if TYPE_CHECKING:
    from wick_graph.debug.session import DebugSession
    from wick_graph.debug.terminal.shell import Shell


# --- Commands that move: through the recording, and a held run forwards.


_VERBS: Final = (
    ("continue", ("c", "cont"), "run", "go on to the next stop, or the end"),
    ("next", ("n",), "run", "go on over what is inside"),
    ("step", ("s",), "run", "go on to the next moment, however deep"),
    ("finish", ("fin",), "run", "go on until what we are in is left"),
    ("nextnode", ("nn",), "run", "go on to the next node"),
    ("turn", ("tu",), "run", "go on to the next request to a model"),
    ("reverse-continue", ("rc",), "back", "go back to the stop before, or the beginning"),
    ("reverse-next", ("rn",), "back", "go back over what is inside"),
    ("reverse-step", ("rs",), "back", "go back by one moment"),
    ("reverse-finish", ("rf",), "back", "go back to where what we are in was entered"),
    ("prevnode", ("pn",), "back", "go back to the node before"),
    ("prevturn", ("pt",), "back", "go back to the request before"),
    ("first", (), "back", "go to the first moment"),
    ("last", ("tail",), "run", "go to the last moment"),
)

_HOWS: Final[dict[str, How]] = {"continue": "continue", "keep": "keep", "abort": "abort"}

_OVER: Final = frozenset({"finished", "failed", "cancelled"})


def _verb(name: str) -> Any:
    def work(shell: Shell, rest: str) -> Reply:
        if name == "step" and (inner := _step_into(shell.session)) is not None:
            shell.enter(inner)
            reply = _leave_said(shell)
            about = f"the agent's own thread, {clean(str(inner.thread_id))}; `finish` returns"
            return Reply([*reply.lines, about])
        if shell.is_below and _leaves(shell.session, name):
            return _returned(shell)
        return shell.stopped(shell.wait(lambda: shell.session.verb(name)))

    return work


def _leaves(session: DebugSession, name: str) -> bool:
    """Return whether a verb leaves a sub-agent: from its end, or out of its run as a whole."""
    here, journal = session.here, session.journal
    if here is None or journal is None or here.kind != "run":
        return False
    return name == "finish" or (name in ("step", "next") and here.seq == journal.last())


def _returned(shell: Shell) -> Reply:
    """Go back from a sub-agent to where it returns, in the thread of its caller."""
    shell.leave()
    end = _returned_at(shell.session)
    if end is None:
        return _leave_said(shell)
    return shell.stopped(shell.session.goto(f"#{end.seq}"))


def _step_into(session: DebugSession) -> DebugSession | None:
    """Open the run of the sub-agent that the present moment starts; None if it starts none.

    Raises:
        DebugError: Its thread is not in this store, or has no recording.
    """
    here, journal = session.here, session.journal
    if here is None or here.what != "agent.spawn" or journal is None or session.held:
        return None
    link = begun_by(journal, here)
    inner = type(session).open(journal.saver, link.thread_id)
    inner.goto(f"#{link.seq}")
    return inner


def _returned_at(session: DebugSession) -> Entry | None:
    """Return the moment at which the sub-agent returns that the present moment starts."""
    here, journal = session.here, session.journal
    if here is None or journal is None:
        return None
    later = journal.moments(kind="agent.return", after=here.seq, branch=here.branch)
    return next((entry for entry in later if entry.fields["t"] == here.fields.get("t")), None)


def _until(shell: Shell, rest: str) -> Reply:
    text = needs(rest, "a position such as @12, or an expression")
    return shell.stopped(shell.wait(lambda: shell.session.until(text)))


def _reverse_until(shell: Shell, rest: str) -> Reply:
    text = needs(rest, "a position such as @12, or an expression")
    return shell.stopped(shell.session.reverse_until(text))


def _goto(shell: Shell, rest: str) -> Reply:
    return shell.stopped(shell.session.goto(needs(rest, "where: @12, @-1, @error, #57, b1@12")))


def _error(shell: Shell, rest: str) -> Reply:
    if rest in ("", "next"):
        return shell.stopped(shell.session.verb("next_error"))
    if rest in ("prev", "previous"):
        return shell.stopped(shell.session.verb("prev_error"))
    raise DebugError("write `error next` or `error prev`")


def _run(shell: Shell, rest: str) -> Reply:
    text = needs(rest, "what the agent is to answer: run TEXT")
    if not text.strip("\"'"):
        raise DebugError("say what the agent is to answer: run TEXT")
    shell.needs_agent()
    words = words_of(text) if text[0] in "\"'" else [text]
    session = shell.session
    thread = checked_thread_id(session.thread_id)
    graph = getattr(session.agent, "graph", session.agent)
    given = json_of(text) if text[0] == "{" and not is_agent(graph) else words[0]
    return shell.stopped(shell.wait(lambda: session.run(given, thread_id=thread)))


def _live(shell: Shell, rest: str) -> Reply:
    shell.needs_agent()
    if rest not in ("", "--in-place"):
        raise DebugError("write `live`, or `live --in-place` to fork within this thread")
    plan, shell.plan = shell.plan, None
    before = shell.session.thread_id
    reply = shell.stopped(shell.wait(lambda: shell.session.live(plan, in_place=bool(rest))))
    if (now := shell.session.thread_id) != before:
        reply.lines.insert(0, f"this is thread {now}, a copy; {before} stays as it is")
    return reply


def _restart(shell: Shell, rest: str) -> Reply:
    shell.needs_agent()
    session = shell.session
    if session.held or session.mode == "LIVE running":
        shell.stopped(shell.wait(lambda: session.abort("restarted in the debugger")))
    begun = session.inspect.moments("run.enter")
    if not begun:
        raise DebugError("nothing has run that could begin anew; `run TEXT` asks something")
    policy = Policy(model="live", other="live")
    shell.plan = session.fork(begun[-1], policy=policy)
    planned = show.folded([one.text for one in shell.plan.will_execute])
    lines = [*shell.plan.text.splitlines(), *(f"  {line}" for line in planned)]
    return Reply([*lines, "nothing has run yet; `live` runs it"])


def _replay(shell: Shell, rest: str) -> Reply:
    if shell.outer and not shell.is_below:  # its run began in a state of the recording
        raise DebugError("this is a replay; `leave` goes back to the recording, to replay again")
    run: Any = None
    if rest:
        run = int(rest) if rest.isdigit() else rest
    original = shell.session
    agent = original.agent or shell.doors.look()
    stop = shell.wait(lambda: original.replay(run=run, agent=agent))
    journal, replayed = original.journal, original.replayed
    assert journal is not None  # else there was nothing to replay
    assert replayed is not None
    shell.enter(replayed)
    reply = shell.stopped(stop)
    reply.lines[:0] = other_code(journal, agent)
    models, tools = replayed.executed
    reply.lines.append(f"really called: {models} models, {tools} tools")
    if stop.reason in _OVER:
        reply.lines.append(_difference(original, replayed, run))
    reply.lines.append("this is the replay; `leave` goes back to the recording")
    return reply


def _difference(original: DebugSession, replayed: DebugSession, run: Any) -> str:
    """Say where a replay differs from its recording, which may have other runs beside it."""
    journal, here = original.journal, original.here
    assert journal is not None  # else there was nothing to replay
    run = run or (here.run if here is not None else None)
    chain = chain_of(journal, journal.run(run) if run else latest(journal))
    runs = [record.run_id for record in chain]
    first = original.inspect.compare(runs, replayed.inspect).first
    return "it did what was recorded" if first is None else f"it differs: {first}"


def _leave(shell: Shell, rest: str) -> Reply:
    shell.leave()
    return _leave_said(shell)


def _leave_said(shell: Shell) -> Reply:
    here = shell.session.here
    return Reply() if here is None else Reply.of(shell.session.inspect.line(here))


def _accept(shell: Shell, rest: str) -> Reply:
    how = needs(rest, "what to take: accept recorded, accept live, or accept mock JSON")
    word, _, value = how.partition(" ")
    if word not in ("recorded", "live", "mock") or (word == "mock") != bool(value):
        raise DebugError("write `accept recorded`, `accept live`, or `accept mock JSON`")
    taken: Any = Mock(json_of(value)) if word == "mock" else word
    return shell.stopped(shell.wait(lambda: shell.session.accept(taken)))


def _answer(shell: Shell, rest: str) -> Reply:
    shell.needs_agent()
    value = json_of(needs(rest, "the answer, as JSON or as a text"))
    return shell.stopped(shell.wait(lambda: shell.session.answer(value)))


def _pause(shell: Shell, rest: str) -> Reply:
    if shell.session.mode != "LIVE running":
        raise DebugError("nothing runs that could be paused; `run TEXT` or `live` starts something")
    shell.session.pause()
    return Reply.of("the run stops at its next point")


def _abort(shell: Shell, rest: str) -> Reply:
    stop = shell.wait(lambda: shell.session.abort(rest or "stopped in the debugger"))
    return shell.stopped(stop)


def _detach(shell: Shell, rest: str) -> Reply:
    how = _HOWS.get(rest or "continue")
    if how is None:
        raise DebugError("write `detach continue`, `detach keep` or `detach abort`")
    stop = shell.wait(lambda: shell.session.detach(how))
    return Reply.of("nothing is held") if stop is None else shell.stopped(stop)


MOVE_COMMANDS: Final = (
    *(
        Command((name, *short), group, name, text, _verb(name), repeats=True)
        for name, short, group, text in _VERBS
    ),
    Command(
        ("until", "u"),
        "run",
        "until @N | EXPR",
        "go on to a moment, or until an expression is true",
        _until,
        repeats=True,
    ),
    Command(
        ("reverse-until", "ru"),
        "back",
        "reverse-until @N | EXPR",
        "go back to a moment, or until an expression is true",
        _reverse_until,
        repeats=True,
    ),
    Command(("goto", "g"), "back", "goto @N | #N", "go to a moment; @12 alone does it too", _goto),
    Command(
        ("error",), "back", "error [next|prev]", "go to what failed next, or before", _error, True
    ),
    Command(
        ("run", "r"), "run", "run TEXT|JSON", "ask the agent, and stop where the run begins", _run
    ),
    Command(
        ("live",),
        "run",
        "live [--in-place]",
        "really go on: at the thread's end, or with the fork that was prepared; it is held at "
        "its first moment, and `c` goes on",
        _live,
    ),
    Command(
        ("restart",),
        "run",
        "restart",
        "end what is held, and prepare to do the last run again, everything really",
        _restart,
    ),
    Command(("replay",), "run", "replay [RUN]", "run again, answered from the recording", _replay),
    Command(
        ("leave",), "run", "leave", "go back from a replay or a sub-agent to where it began", _leave
    ),
    Command(
        ("accept",),
        "run",
        "accept recorded | live | mock JSON",
        "decide where a replay differs, or a policy says ask",
        _accept,
    ),
    Command(("answer",), "run", "answer JSON", "answer what the thread waits for", _answer),
    Command(("pause",), "run", "pause", "stop a running run at its next point", _pause),
    Command(("abort", "kill"), "run", "abort [REASON]", "end the run that is held", _abort),
    Command(
        ("detach",),
        "run",
        "detach [continue|keep|abort]",
        "let the run go, keep it for another process, or end it",
        _detach,
    ),
)


# --- Commands about stops: breakpoints, watches, catches and log points.


PLACES: Final = (*locations.PLACES, "tool:*", "hook:*", "agent:*")
"""Locations that completion offers for every agent."""

_CODE: Final = re.compile(r"\S+\.py:\d")
"""A line of Python code, which the agent's tools and hooks resolve."""

_MANY: Final = 200
"""Recorded lines of a log point that are shown at once."""


def _add(word: str) -> Callable[[Shell, str], Reply]:
    def work(shell: Shell, rest: str) -> Reply:
        if not rest and word == "break":
            return _list(shell)
        if not rest:
            raise DebugError(f"say where: `help {word}` shows the form")
        session = shell.session
        if session.breakpoints.outline is None and _CODE.match(rest):
            with suppress(WickError):  # the breakpoint reports that it needs one
                session.breakpoints.outline = shell.doors.look()
        made = session.add(f"{word} {rest}")
        if made.note:
            shell.session.breakpoints.delete(made.number)
            raise DebugError(f"{made.location} is never reached: {made.note}")
        lines = [line_of(made)]
        if word == "log":
            lines += _past(shell, made.number)
        return Reply(lines, data={"number": made.number, "spec": made.spec})

    return work


def _past(shell: Shell, number: int) -> list[str]:
    """Show a log point's lines for the recording."""
    said = [output.text for output in shell.session.inspect.past_log(number)]
    if len(said) > _MANY:
        return [*said[:_MANY], f"… and {len(said) - _MANY} more"]
    return said


def _list(shell: Shell) -> Reply:
    every = list(shell.session.breakpoints)
    if not every:
        return Reply.of("there are no breakpoints; `break tool:*` makes one", data=[])
    data = [{"number": b.number, "spec": b.spec, "enabled": b.enabled} for b in every]
    return Reply([line_of(made) for made in every], data=data)


def line_of(made: Breakpoint) -> str:
    """Show a breakpoint."""
    parts = [f"{made.number:>3}  {made.spec}"]
    if not made.enabled:
        parts.append("(disabled)")
    if made.ignore:
        parts.append(f"(ignored {made.ignore} more times)")
    if made.hits:
        parts.append(f"(hit {made.hits} times)")
    if made.note:
        parts.append(f"({made.note})")
    return " ".join(parts)


def _each(change: Callable[[BreakpointSet, int], None], done: str) -> Callable[[Shell, str], Reply]:
    def work(shell: Shell, rest: str) -> Reply:
        wanted = [number_of(word, "a breakpoint's number") for word in rest.split()]
        numbers = wanted or [made.number for made in shell.session.breakpoints]
        for number in numbers:
            change(shell.session.breakpoints, number)
            if change is BreakpointSet.delete:
                shell.scripts.pop(number, None)
        count = "1 breakpoint" if len(numbers) == 1 else f"{len(numbers)} breakpoints"
        return Reply.of(f"{done} {count}", data=numbers)

    return work


def _condition(shell: Shell, rest: str) -> Reply:
    number, _, text = needs(rest, "which breakpoint: condition N [EXPR]").partition(" ")
    at = number_of(number, "a breakpoint's number")
    shell.session.breakpoints.condition(at, text.strip().removeprefix("if ") or None)
    return Reply([line_of(_one(shell, at))])


def _ignore(shell: Shell, rest: str) -> Reply:
    words = rest.split()
    if len(words) != 2:
        raise DebugError("write `ignore N COUNT`")
    at = number_of(words[0], "a breakpoint's number")
    shell.session.breakpoints.ignore(at, number_of(words[1]))
    return Reply([line_of(_one(shell, at))])


def _one(shell: Shell, number: int) -> Breakpoint:
    found = next((made for made in shell.session.breakpoints if made.number == number), None)
    if found is None:
        raise DebugError(f"there is no breakpoint {number}; `info breaks` lists them")
    return found


def _commands(shell: Shell, rest: str) -> Reply:
    every = list(shell.session.breakpoints)
    if not rest and every:
        return shell.collect(every[-1].number)
    number = number_of(needs(rest, "which breakpoint: commands N"), "a breakpoint's number")
    return shell.collect(_one(shell, number).number)


def _hits(shell: Shell, rest: str) -> Reply:
    number = number_of(needs(rest, "which breakpoint: hits N"), "a breakpoint's number")
    found = shell.session.inspect.hits(number)
    lines = [shell.session.inspect.line(entry) for entry in found] or ["it would stop nowhere"]
    return Reply(lines, data=[entry.seq for entry in found])


def _save(shell: Shell, rest: str) -> Reply:
    word, _, name = rest.partition(" ")
    if word != "breakpoints" or not name.strip():
        raise DebugError("write `save breakpoints FILE`")
    lines = shell.session.breakpoints.specs()
    path = Path(name.strip())
    try:
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    except (OSError, ValueError) as error:  # ValueError: no file can have this name
        why = getattr(error, "strerror", None) or "that is no name of a file"
        raise DebugError(f"{path} cannot be written: {why}; name another file") from error
    return Reply.of(f"wrote {len(lines)} to {path}; `source {path}` sets them again")


_FORM: Final = (
    "LOC is a node (`tools`, `model:exit`), tool:NAME, tool:NAME:after, hook:NAME, model:request, "
    "model:response, route:LABEL, agent:NAME, handoff, interrupt, retry, compact, run, or "
    "FILE:LINE (`tools.py:12`, `agents.yaml:14`); * means any name"
)

STOP_COMMANDS: Final = (
    Command(
        ("break", "b"),
        "stops",
        "break LOC [if EXPR] [hit N]",
        f"stop there; {_FORM}",
        _add("break"),
    ),
    Command(("tbreak", "tb"), "stops", "tbreak LOC [if EXPR]", "stop there once", _add("tbreak")),
    Command(
        ("watch", "wa"),
        "stops",
        "watch CHANNEL[.path] [if EXPR]",
        "stop after it was written; backwards, this finds who wrote it",
        _add("watch"),
    ),
    Command(
        ("catch",), "stops", "catch WHAT [if EXPR]", f"stop at {', '.join(CATCHES)}", _add("catch")
    ),
    Command(
        ("log", "dprintf"),
        "stops",
        'log LOC "text {expr}" [if EXPR]',
        "say something there and go on; of what is recorded it is said at once",
        _add("log"),
    ),
    Command(("condition", "cond"), "stops", "condition N [EXPR]", "change a condition", _condition),
    Command(("ignore",), "stops", "ignore N COUNT", "pass it so many times", _ignore),
    Command(
        ("enable", "en"),
        "stops",
        "enable [N…]",
        "switch on",
        _each(BreakpointSet.enable, "enabled"),
    ),
    Command(
        ("disable", "dis"),
        "stops",
        "disable [N…]",
        "switch off",
        _each(BreakpointSet.disable, "disabled"),
    ),
    Command(
        ("delete", "d"), "stops", "delete [N…]", "remove", _each(BreakpointSet.delete, "deleted")
    ),
    Command(
        ("commands",), "stops", "commands [N]", "do the lines up to `end` at each stop", _commands
    ),
    Command(("hits",), "stops", "hits N", "list where it would have stopped", _hits),
    Command(("save",), "stops", "save breakpoints FILE", "write them to a file", _save),
)
