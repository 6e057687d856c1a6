"""Commands that move: through the recording, and on where a run is held."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from wick_graph.debug.policy import Mock, Policy
from wick_graph.debug.sources import other_code
from wick_graph.debug.terminal.registry import Command
from wick_graph.debug.terminal.reply import Reply
from wick_graph.debug.terminal.words import json_of, needs, words_of
from wick_graph.debug.types import How
from wick_graph.errors import DebugError
from wick_graph.result import checked_thread_id

if TYPE_CHECKING:
    from wick_graph.debug.session import DebugSession
    from wick_graph.debug.terminal.shell import Shell

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
        return shell.stopped(shell.wait(lambda: shell.session.verb(name)))

    return work


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
    return shell.stopped(shell.wait(lambda: session.run(words[0], thread_id=thread)))


def _live(shell: Shell, rest: str) -> Reply:
    shell.needs_agent()
    plan, shell.plan = shell.plan, None
    return shell.stopped(shell.wait(lambda: shell.session.live(plan)))


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
    lines = [*shell.plan.text.splitlines(), *(f"  {one.text}" for one in shell.plan.will_execute)]
    return Reply([*lines, "nothing has run yet; `live` runs it"])


def _replay(shell: Shell, rest: str) -> Reply:
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
    """Say where a replay and its recording part."""
    journal = original.journal
    if journal is not None and len(journal.runs()) > 1 and run is None:
        return "`compare` shows the difference"
    first = original.compare(original, replayed).first
    return "it did what was recorded" if first is None else f"it differs: {first}"


def _leave(shell: Shell, rest: str) -> Reply:
    shell.leave()
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


COMMANDS: Final = (
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
    Command(("run", "r"), "run", "run TEXT", "ask the agent, and stop where the run begins", _run),
    Command(
        ("live",),
        "run",
        "live",
        "really go on: where the thread stands, or with the fork that was prepared; it is held at "
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
    Command(("leave",), "run", "leave", "go back from a replay to its recording", _leave),
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
