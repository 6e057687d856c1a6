"""`wick debug`: step through a run, recorded or live, in the terminal."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from wick_graph.cli import output
from wick_graph.cli.recorded import (
    graph_named,
    json_of,
    needs_graph,
    picture_alone,
    run_to_end,
    saver_with,
)
from wick_graph.cli.select import (
    DEFAULT_FILE,
    known,
    load_trusted,
    looked_at,
    opened,
    pick,
    refuse_graphs,
    take_target,
    with_threads,
)
from wick_graph.cli.select import target as code_named

if TYPE_CHECKING:
    from wick_graph.debug.terminal import Shell


COMMAND_FAILED: Final = 1

RUN_FAILED: Final = 2

STOPPED: Final = 3
"""Exit code of `--batch` if the script ends at a breakpoint."""

_SAID: Final = 500
"""Most characters of a graph's error."""

_HINT: Final = "a recorded thread opens without its agent: wick debug --thread ID, or --last"

Level = Literal["steps", "full"]

_TARGET: Final[Any] = typer.Argument(
    metavar="AGENT|FILE",
    help="An agent (an id in agents.yaml, or module:name), or a .wickrun file.",
)

_TEXT: Final[Any] = typer.Argument(
    metavar="INPUT", help="Start a run with this message, and stop at its first step."
)

_THREAD: Final[Any] = typer.Option(
    "--thread", "-t", metavar="ID", help="Open the recording of this thread."
)

_BREAK: Final[Any] = typer.Option(
    "--break", "-b", metavar="LOC", help="Set a breakpoint at this location."
)

_COMMAND: Final[Any] = typer.Option(
    "--command", "-e", metavar="CMDS", help="Run these commands: 'CMD; CMD'."
)

_SCRIPT: Final[Any] = typer.Option(
    "--script", "-x", metavar="FILE", help="Run the commands of this file."
)

_ENTRY: Final[Any] = typer.Option(
    "--stop-on-entry/--no-stop", help="Stop at the first step of INPUT."
)

_REPLAY: Final[Any] = typer.Option("--replay", help="Run again, with answers from the recording.")

_RECORD: Final[Any] = typer.Option(
    "--record", help="How much live runs record.", show_default=False
)

_INPUT: Final[Any] = typer.Option(
    "--input", metavar="JSON", help="Run a LangGraph graph with this input, and record it."
)

_BATCH: Final[Any] = typer.Option("--batch", help="Run the commands and exit with a code.")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What to debug."""

    target: str | None
    text: str | None
    thread: str | None
    last: bool
    config: Path
    record: Level | None
    trust: bool = False
    input: str | None = None
    context: Path | None = None
    held: bool = False
    """Whether a graph is held where it should stop, and not run to its end first."""

    @property
    def file(self) -> Path | None:
        """The recording, if one is named instead of an agent."""
        named = self.target is not None and self.target.endswith(".wickrun")
        return Path(str(self.target)) if named else None

    @property
    def agent(self) -> str | None:
        """The agent, if one is named."""
        return None if self.file is not None else self.target


def debug(
    target: Annotated[str | None, _TARGET] = None,
    text: Annotated[str | None, _TEXT] = None,
    thread: Annotated[str | None, _THREAD] = None,
    last: Annotated[
        bool, typer.Option("--last", help="Open the most recently used thread.")
    ] = False,
    breaks: Annotated[list[str] | None, _BREAK] = None,
    command: Annotated[list[str] | None, _COMMAND] = None,
    script: Annotated[Path | None, _SCRIPT] = None,
    stop_on_entry: Annotated[bool, _ENTRY] = True,
    replay: Annotated[bool, _REPLAY] = False,
    given: Annotated[str | None, _INPUT] = None,
    record: Annotated[Level | None, _RECORD] = None,
    batch: Annotated[bool, _BATCH] = False,
    mi: Annotated[bool, typer.Option("--mi", help="Speak JSON, one object per line.")] = False,
    context: Annotated[Path | None, output.CONTEXT] = None,
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    trust: Annotated[bool, output.TRUST] = False,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Step through a run, forwards and backwards.

    Moving through a recording runs nothing, and needs no key and no network. A LangGraph graph
    is held at each `--break`, or by `run` in the debugger; else it runs to its end, and its
    recording is opened.

    Exit codes of --batch: 0 all commands ran, 1 a command was refused, 2 the run failed or the
    script or its target was refused, 3 the script ended at a breakpoint.
    """
    wanted = _Wanted(
        target=take_target(target),
        text=text,
        thread=thread,
        last=last,
        config=config,
        record=record,
        trust=trust,
        input=given,
        context=context,
        held=bool(breaks),
    )
    graph = _graph(wanted)
    begin = [f"break {place}" for place in breaks or ()]
    begin += ["replay"] if replay else []
    runs = (text or given) if graph is None or wanted.held else None
    begin += [f"run {runs}"] if runs else []
    begin += ["continue"] if runs and not stop_on_entry else []
    with _shell(wanted, graph) as shell:
        lines = _lines(command or (), script, begin)
        if mi:
            _machine(shell, lines)
        elif batch or not output.is_terminal(sys.stdin):
            _batch(shell, [*lines], read=not command and script is None)
        else:
            _terminal(shell, [*lines])


def _lines(command: Iterable[str], script: Path | None, begin: list[str]) -> Iterator[str]:
    from wick_graph.debug.terminal.change_commands import lines_of
    from wick_graph.debug.terminal.registry import commands_in

    yield from begin
    if script is not None:
        yield from lines_of(script)
    for text in command:
        yield from commands_in(text)


def _batch(shell: Shell, lines: list[str], *, read: bool) -> None:
    """Run the commands; without any, read them from standard input."""
    from wick_graph.debug.terminal.shell import HIT

    _show_output(shell)
    given = (line for line in [*lines] if line)
    for part in (given, sys.stdin if read else ()):
        if not _done(shell, part):
            break
    stop = shell.last_stop
    code = COMMAND_FAILED if shell.failed else 0
    if not code and stop is not None:
        code = RUN_FAILED if stop.reason == "failed" else STOPPED if stop.reason in HIT else 0
    if code:
        raise typer.Exit(code)


def _done(shell: Shell, lines: Iterable[str]) -> bool:
    """Run commands and print their output; False after `quit`."""
    from wick_graph.debug.terminal import Reply

    for _, reply in shell.run(lines):
        if not isinstance(reply, Reply):
            output.complain(str(reply))
            continue
        for said in reply.lines:
            output.print_line(said)
        if reply.quits:
            return False
    return True


def _terminal(shell: Shell, lines: list[str]) -> None:
    from wick_graph.debug.terminal.shell import talk

    shell.interactive = True
    _show_output(shell)
    for said in _greeting(shell):
        output.print_line(said)
    if _done(shell, lines):
        talk(shell, output.print_line, output.complain)


def _greeting(shell: Shell) -> Iterator[str]:
    session = shell.session
    if session.journal is not None and (runs := session.journal.runs()):
        run = runs[-1]
        yield (
            f"{session.thread_id}: run {run.number} of {run.agent} with {run.model}, "
            f"{run.stopped_because or run.status}; {session.journal.last()} moments"
        )
    if session.here is not None:
        yield session.inspect.line(session.here)
    yield "`help` lists the commands; moving runs nothing"


def _machine(shell: Shell, lines: Iterable[str]) -> None:
    from wick_graph.debug.terminal.registry import on_ctrl_c
    from wick_graph.debug.terminal.shell import answer, output_of, refused
    from wick_graph.errors import WickError

    shell.interactive = True  # Ctrl-C, which a program may send, stops a live run
    shell.session.outputs.listen(lambda said: output.print_json(output_of(said), indent=None))
    try:
        given = [*lines]
    except WickError as error:  # a program cannot read sentences
        given = []
        output.print_json(refused(error), indent=None)
    with on_ctrl_c(lambda presses: None):  # the run to stop may already have ended
        for line in chain(given, sys.stdin):  # a program may wait for each answer
            if not line.strip():
                continue
            told, over = answer(shell, line.strip())
            output.print_json(told, indent=None)
            if over:
                return


def _show_output(shell: Shell) -> None:
    shell.session.outputs.listen(lambda said: output.print_line(said.text))


def _graph(wanted: _Wanted) -> Any:
    """Return the LangGraph graph that is to be debugged; None for an agent or a recording.

    Raises:
        ConfigError: An input is given, and there is no graph to give it to.
    """
    graph = graph_named(wanted.agent)
    if graph is None and wanted.input is not None:
        needs_graph()
    return graph


def _recorded(wanted: _Wanted, graph: Any, stack: ExitStack) -> tuple[Any, Any]:
    """Run a graph and open its recording, open that of a thread, or wait for `run`.

    Raises:
        ConfigError: The input is invalid.
    """
    from wick_graph.debug import DebugSession, record
    from wick_graph.hooks.prompt_files import one_line
    from wick_graph.journal.tracebacks import message_of

    if wanted.thread is not None and wanted.text is None and wanted.input is None:
        saver = saver_with(wanted.thread, graph.checkpointer, stack)
        session = stack.enter_context(DebugSession.open(saver, wanted.thread))
        session.agent = graph
        return session, saver
    if wanted.held or (wanted.text is None and wanted.input is None):
        return stack.enter_context(DebugSession(graph)), None
    given, name = _input_of(wanted), wanted.thread or f"rec_{secrets.token_hex(6)}"
    with record() as recording:
        try:
            run_to_end(graph, given, name)
        except Exception as error:  # the graph's own; the recording shows where it came from
            said = one_line(message_of(error), _SAID)
            output.say(f"the run failed: {type(error).__name__}: {said}")
    stack.callback(recording.close)
    for problem in recording.problems:
        output.say(problem)
    session = stack.enter_context(recording.session())
    session.agent = graph
    journal = session.journal
    return session, None if journal is None else journal.saver


def _input_of(wanted: _Wanted) -> Any:
    from wick_graph.errors import ConfigError

    if wanted.input is None:
        return {"messages": [("user", wanted.text)]}
    if wanted.text is not None:
        raise ConfigError("give a message or --input JSON, not both")
    return json_of(wanted.input, "--input")


@contextmanager
def _shell(wanted: _Wanted, graph: Any) -> Iterator[Shell]:
    from wick_graph.cli.run import context_of
    from wick_graph.debug.terminal import Shell

    # The agent may be made later, but must outlive the session: it releases the held run.
    with ExitStack() as agents, ExitStack() as stack:
        if graph is None:
            session, saver = _session(wanted, stack)
        else:
            session, saver = _recorded(wanted, graph, stack)
        session.context = context_of(wanted.context)
        doors = _Doors(wanted, agents, session, saver).made()
        for banner in session.banners:
            output.say(banner)
        shell = Shell(session, doors)
        stack.callback(shell.close)
        yield shell


def _session(wanted: _Wanted, stack: ExitStack) -> tuple[Any, Any]:
    from wick_graph.debug import DebugSession
    from wick_graph.errors import ConfigError, WickError
    from wick_graph.exports.wickrun import open_wickrun

    past = wanted.thread is not None or wanted.last
    if wanted.file is not None:
        if past:
            raise ConfigError("name a file or a thread, not both")
        recording = stack.enter_context(open_wickrun(wanted.file))
        session = DebugSession.open(recording.saver, recording.thread_id)
        return stack.enter_context(session), recording.saver
    if past:
        store = stack.enter_context(opened(with_threads(wanted.config, wanted.thread)))
        thread = wanted.thread or _latest(store)
        saver, info = known(store, thread)
        refuse_graphs("debug", wanted.agent or info.agent)
        return stack.enter_context(DebugSession.open(saver, info.thread_id)), saver
    try:
        agent = _agent(wanted, stack, wanted.agent)
    except WickError:
        if code_named() is None:
            output.say(_HINT)
        raise
    return stack.enter_context(DebugSession(agent)), agent.store


def _latest(saver: Any) -> str:
    """Return the most recently used thread.

    Raises:
        ConfigError: There is none.
    """
    from wick_graph.errors import ConfigError

    found = [] if saver is None else saver.threads.list(limit=1)
    if not found:
        raise ConfigError("there are no threads yet; name an agent to run: wick debug AGENT")
    return str(found[0].thread_id)


def _agent(wanted: _Wanted, stack: ExitStack, name: str | None) -> Any:
    """Make an agent that may run tools.

    Raises:
        WickError: No agent has this name, or its model cannot be built.
    """
    from dataclasses import replace

    past = wanted.thread is not None or wanted.last
    made = load_trusted(wanted.config, trust=wanted.trust, with_file=past)
    agents = stack.enter_context(made)
    agent_id = pick(name, agents.config)
    refuse_graphs("debug", agent_id)
    agent = agents[agent_id]
    if wanted.record is not None:
        agent.spec = replace(agent.spec, journal=replace(agent.spec.journal, level=wanted.record))
    return agent


@dataclass(frozen=True, slots=True)
class _Doors:
    """What the command line offers to the shell."""

    wanted: _Wanted
    stack: ExitStack
    session: Any
    saver: Any

    def made(self) -> Any:
        from wick_graph.debug.terminal.shell import Doors

        return Doors(
            agent=self.agent, look=self.look, export=self.export, draw=self.draw, edit=_edited
        )

    def agent(self) -> Any:
        if self.wanted.file is not None:
            self.check_thread()
        return _agent(self.wanted, self.stack, self.name())

    def check_thread(self) -> None:
        """Check that the thread of a file is here: its agent would run another one of the same id.

        Raises:
            DebugError: It is not.
        """
        from wick_graph.debug.sources import has_thread_of
        from wick_graph.errors import DebugError

        journal, config = self.session.journal, self.wanted.config
        with opened(config) as store:
            if store is not None and has_thread_of(store, journal):
                return
        raise DebugError(
            f"the store of {config} does not have the thread of this file (one of the same id is "
            "another), so nothing is run; bring the thread there with `wick threads export` and "
            "`wick threads import`, and open it: wick debug --thread ID"
        )

    def look(self) -> Any:
        trust = self.wanted.trust
        return looked_at(self.name(), self.wanted.config, trust=trust, with_file=True)[1]

    def name(self) -> str | None:
        """Return the agent's name: the one given, else the recorded one."""
        if self.wanted.agent is not None or code_named() is not None:
            return self.wanted.agent
        journal = self.session.journal
        runs = [] if journal is None else journal.runs()
        return runs[-1].agent if runs else None

    def export(self, form: str, file: Path | None) -> list[str]:
        from wick_graph.cli.export import Source, default_name, write
        from wick_graph.errors import DebugError

        journal = self.session.journal
        if journal is None:
            raise DebugError("nothing is recorded yet")
        source = Source(
            journal=journal,
            saver=journal.saver if self.saver is None else self.saver,
            config=self.wanted.config,
            is_file=self.wanted.file is not None,
        )
        where = file or Path(default_name(form, journal.thread_id))  # type: ignore[arg-type]  # the shell has checked it
        return write(source, form, where)  # type: ignore[arg-type]  # as above

    def draw(self) -> list[str]:
        from wick_graph.cli.export import Source, picture_of_thread
        from wick_graph.errors import DebugError
        from wick_graph.picture import as_text, overlay_of, picture_of, recorded_overlay

        journal = self.session.journal
        graph = graph_named(self.wanted.agent)
        if graph is not None and journal is not None and journal.runs():
            drawn = picture_alone(graph, self.wanted.agent)
            shown = drawn.with_run(recorded_overlay(graph, journal))
            return as_text(shown).splitlines()
        agent = self.session.agent
        if agent is None and (self.wanted.agent or code_named()) is not None:
            agent = self.look()
        if agent is None:
            source = Source(journal=journal, saver=self.saver, config=self.wanted.config)
            picture = picture_of_thread(source)
        elif journal is None:
            picture = picture_of(agent.graph)
        else:
            built = agent.graph_over(self.saver)
            picture = picture_of(built).with_run(overlay_of(built, journal.thread_id))
        if picture is None:
            raise DebugError(
                f"the agent of this thread is not in {self.wanted.config}; name it: "
                "wick debug module:name --thread ID"
            )
        return as_text(picture).splitlines()


def _edited(text: str) -> str | None:
    """Open a text in `$VISUAL` or `$EDITOR`; return None if it is unchanged.

    Raises:
        DebugError: Neither variable is set, or the editor fails.
    """
    import os
    import shlex
    import subprocess
    import tempfile

    from wick_graph.errors import DebugError

    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not editor:
        raise DebugError("no editor is configured; set EDITOR, or write `set PATH = JSON`")
    with tempfile.TemporaryDirectory(prefix="wick-") as folder:
        path = Path(folder) / "value.json"
        path.write_text(text, encoding="utf-8")
        try:
            subprocess.run([*shlex.split(editor), str(path)], check=True)
        except (OSError, ValueError, subprocess.CalledProcessError) as error:
            raise DebugError(f"the editor {editor} failed: {error}") from error
        after = path.read_text(encoding="utf-8")
    return None if after == text else after
