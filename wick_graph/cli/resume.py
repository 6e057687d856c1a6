"""`wick resume`: go on in a thread, wherever it stopped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from wick_graph.cli import asking, output
from wick_graph.cli.agents import DEFAULT_FILE
from wick_graph.cli.trusting import load_trusted
from wick_graph.cli.turns import Turns, Where, show_flags, watched, why

if TYPE_CHECKING:
    from wick_graph.loading import Agents
    from wick_graph.store import SqlSaver, ThreadInfo

_APPROVE: Final[Any] = typer.Option("--approve", metavar="ID", help="Let this call run.")
_REJECT: Final[Any] = typer.Option(
    "--reject", metavar="ID[=WHY]", help="Do not let this call run; the model reads why."
)
_ANSWER: Final[Any] = typer.Option(
    "--answer", metavar="ID=TEXT", help="Answer a question, or a call in its tool's place."
)
_EDIT: Final[Any] = typer.Option(
    "--edit", metavar="ID=JSON", help="Let this call run with these arguments."
)
_ALL: Final[Any] = typer.Option("--all-approve", help="Let every call run that waits.")


def resume(
    thread_id: Annotated[str, typer.Argument(metavar="THREAD", show_default=False)],
    approve: Annotated[list[str] | None, _APPROVE] = None,
    reject: Annotated[list[str] | None, _REJECT] = None,
    answer: Annotated[list[str] | None, _ANSWER] = None,
    edit: Annotated[list[str] | None, _EDIT] = None,
    all_approve: Annotated[bool, _ALL] = False,
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    model: Annotated[str | None, output.MODEL] = None,
    as_json: Annotated[bool, output.RESULT_AS_JSON] = False,
    stream: Annotated[bool | None, output.STREAM] = None,
    trust: Annotated[bool, output.TRUST] = False,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Go on in a thread, wherever it stopped.

    After a crash, a failure or a cancelled run it goes on where it stands. Questions that wait
    are asked at a terminal, or answered by options; an ID may be cut short.

    Exit codes: 0 answered or waiting, 1 the run failed, 2 the command or the configuration is
    wrong, 130 cancelled, 143 ended by SIGTERM.
    """
    flags: dict[str, Any] = {"approve": approve, "reject": reject, "answer": answer, "edit": edit}
    wanted = Wanted(thread_id, config, model, as_json, stream, trust)
    _go_on(wanted, lambda asked: asking.from_flags(asked, **flags, all_approve=all_approve))


def retry(
    thread_id: Annotated[str, typer.Argument(metavar="THREAD", show_default=False)],
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    model: Annotated[str | None, output.MODEL] = None,
    as_json: Annotated[bool, output.RESULT_AS_JSON] = False,
    stream: Annotated[bool | None, output.STREAM] = None,
    trust: Annotated[bool, output.TRUST] = False,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Run a thread's last step again, although it is poisoned.

    A thread is poisoned when its runs took the process down too often. That is forgotten.

    Exit codes: as of `wick resume`.
    """
    _go_on(Wanted(thread_id, config, model, as_json, stream, trust), lambda _: {}, force=True)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The options that both commands have."""

    thread_id: str
    config: Path
    model: str | None
    as_json: bool
    stream: bool | None
    trust: bool


def _go_on(wanted: Wanted, answered: Callable[..., dict[str, Any]], *, force: bool = False) -> None:
    with load_trusted(wanted.config, model=wanted.model, trust=wanted.trust) as agents:
        info = _known(agents, wanted.thread_id)
        asked = asking.in_order(_waiting(agents.store, wanted.thread_id))
        answers = answered(asked)
        where = Where(
            thread_id=wanted.thread_id,
            agent_id=_agent_of(info, agents),
            config=wanted.config,
            model=wanted.model,
            kept=True,
        )
        tokens = not wanted.as_json if wanted.stream is None else wanted.stream
        code = _resume(agents, where, info, asked, answers, wanted.as_json, tokens, force=force)
    raise typer.Exit(code)


def _resume(
    agents: Agents,
    where: Where,
    info: ThreadInfo,
    asked: list[Any],
    answers: dict[str, Any],
    as_json: bool,
    tokens: bool,
    *,
    force: bool = False,
) -> int:
    """Say why the thread stopped and go on, or say what it waits for; return the exit code."""
    if not as_json:
        _say_why(info, agents[where.agent_id], len(asked))
    if asked and not answers and not as_json and asking.can_ask():
        answers = asking.ask(asked)
    if info.status == "waiting" and asked and not answers:
        _leave(where, info, asked, as_json)
        return 0
    if info.stopped_because == "done" and not as_json:
        output.say("there is nothing to go on with; send a new text")
        where.point()
        return 0

    def work(turns: Turns) -> None:
        turns.go_on(info.stopped_because, answers, force=force)

    return watched(agents, where, work, as_json, tokens)


def _known(agents: Agents, thread_id: str) -> ThreadInfo:
    """Find a thread; a store that is not there is not made.

    Raises:
        ThreadNotFoundError: There is no such thread.
    """
    from wick_graph.errors import ThreadNotFoundError
    from wick_graph.result import checked_thread_id
    from wick_graph.store.database.opening import dialect_of

    checked_thread_id(thread_id)
    there = dialect_of(agents.config.store_url).exists()
    info = agents.store.threads.get(thread_id) if there else None
    if info is None:
        raise ThreadNotFoundError(
            f"there is no thread {thread_id}; `wick threads list` shows those there are"
        )
    return info


def _waiting(store: SqlSaver, thread_id: str) -> list[Any]:
    from wick_graph import keys
    from wick_graph.graph.answers import waiting

    config: Any = keys.with_configurable(None, **{keys.THREAD_ID: thread_id})
    return list(waiting(store.get_tuple(config)))


def _agent_of(info: ThreadInfo, agents: Agents) -> str:
    from wick_graph.errors import ConfigError

    if info.agent not in agents.config.agents:
        raise ConfigError(
            f"{agents.config.source}: thread {info.thread_id} is of the agent {info.agent}, "
            f"which is not there; it has {', '.join(agents.config.agents)}"
        )
    return info.agent or ""


def _say_why(info: ThreadInfo, agent: Any, questions: int) -> None:
    """Say why a thread stopped, as far as is known."""
    if info.status == "running":
        text = "no end of its last run is on record; its process died, or is still at work"
    elif info.status == "failed":
        text = f"failed: {info.last_error or 'nobody noted why'}"
    else:
        reason = "interrupted" if info.status == "waiting" else info.stopped_because or "done"
        text = why(reason, agent, questions)
        if reason == "limit" and info.last_error:
            text = f"limit: {info.last_error}"
    output.say(f"stopped: {text}")


def _leave(where: Where, info: ThreadInfo, asked: list[Any], as_json: bool) -> None:
    """Show the questions that nobody answered."""
    if as_json:
        shown = [{"id": question.id, "value": question.value} for question in asked]
        facts = {"thread_id": info.thread_id, "stopped_because": "interrupted"}
        output.print_json({**facts, "interrupts": shown})
        return
    for question in asked:
        for line in asking.describe(question.id, question.value):
            output.say(line)
    show_flags(asked)
    where.point(waits=True)
