"""`wick export` and `wick journal`: a recorded thread as files, and line by line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal
from urllib.parse import quote

import typer

from wick_graph.cli import output
from wick_graph.cli.recorded import graph_named, picture_alone, saver_with
from wick_graph.cli.select import (
    DEFAULT_FILE,
    known,
    looked_at,
    opened,
    read,
    refuse_graphs,
    target,
)

if TYPE_CHECKING:
    from wick_graph.exports.plain import Hider
    from wick_graph.exports.testfile import FromCode, FromFile
    from wick_graph.journal import Journal
    from wick_graph.journal.entry import Entry
    from wick_graph.picture import Picture
    from wick_graph.store import SqlSaver


# --- `wick journal`: what a thread's runs did, one line per moment.


def journal(
    thread_id: Annotated[
        str, typer.Argument(metavar="THREAD", help="The thread's id.", show_default=False)
    ],
    run: Annotated[
        str | None, typer.Option("--run", "-r", help="Only this run (its number or id).")
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            "--kind", "-k", help="Only moments of this kind, such as `tool` or `model.request`."
        ),
    ] = None,
    after: Annotated[
        int | None, typer.Option("--after", help="Only moments after this number.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="Show at most this many.")
    ] = None,
    as_json: Annotated[bool, output.AS_JSON] = False,
    as_jsonl: Annotated[
        bool, typer.Option("--jsonl", help="Print one JSON object per line.")
    ] = False,
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    app: Annotated[str | None, output.APP] = None,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Show what happened in a thread, moment by moment.

    Reads the database only; nothing is run. Secrets are hidden.
    """
    from wick_graph.errors import ConfigError
    from wick_graph.journal import Journal

    if as_json and as_jsonl:
        raise ConfigError("--json and --jsonl exclude each other; pass one of them")
    with _kept(thread_id, config, "journal") as store_and_id:
        found = Journal(*store_and_id)
        wanted: int | str | None = int(run) if run is not None and run.isdigit() else run
        moments = found.moments(wanted, kind, after, limit)
        if as_json or as_jsonl:
            _as_json(found, moments, lines=as_jsonl)
        elif not _as_text(found, moments):
            some = any((run, kind, after))
            output.say("no such moments" if some else "nothing is recorded in this thread")


def _as_json(journal: Journal, moments: Iterator[Entry], *, lines: bool) -> None:
    from wick_graph.exports.plain import Hider

    hider = Hider.of(journal)  # checkpoints still contain secrets
    shown = (hider.value(journal.to_dict(moment)) for moment in moments)
    if not lines:
        output.print_json([*shown])
        return
    for one in shown:
        output.print_json(one, indent=None)


def _as_text(journal: Journal, moments: Iterator[Entry]) -> bool:
    """Print a line for each moment; False if there is none."""
    from wick_graph.exports.plain import Hider
    from wick_graph.journal.entry import GAP
    from wick_graph.journal.journal import line_from

    hider, found = Hider.of(journal), False
    for moment in moments:
        told = {} if moment.kind == GAP else hider.value(journal.details(moment))
        output.print_line(hider.value(line_from(moment, told)))
        for line in told.get("traceback", ()) if moment.kind != "run" else ():  # it is inside, too
            output.print_line(f"{'':>24}{line}")
        found = True
    return found


# --- `wick export`: a recorded thread as a page, a file, a test, a timeline, or lines.


Form = Literal["html", "wickrun", "pytest", "chrome", "jsonl"]

ENDINGS: Final[dict[Form, str]] = {
    "html": ".html",
    "wickrun": ".wickrun",
    "pytest": ".py",
    "chrome": ".trace.json",
    "jsonl": ".jsonl",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What to export."""

    journal: Journal
    saver: SqlSaver
    config: Path
    run: int | str | None = None
    agent: str | None = None
    """`module:name` of an agent made in code."""
    is_file: bool = False


def export(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="A .wickrun file.", show_default=False),
    ] = None,
    form: Annotated[Form, typer.Option("--to", help="Format to write.")] = "html",
    thread: Annotated[
        str | None,
        typer.Option("--thread", "-t", metavar="ID", help="Export this thread of the store."),
    ] = None,
    run: Annotated[
        str | None, typer.Option("--run", "-r", help="Only this run (its number or id).")
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="PATH",
            help="File to write to.",
            show_default=False,
            callback=output.no_dash,
        ),
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option("--agent", metavar="MODULE:NAME", help="For pytest: an agent made in code."),
    ] = None,
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    app: Annotated[str | None, output.APP] = None,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Export a recorded thread for other tools and machines.

    Formats: html, a self-contained page; wickrun, a file for `wick debug`; pytest, a test that
    replays a run; chrome, a timeline for Perfetto; jsonl, the moments. Secrets are hidden.
    """
    with _opened(file, thread, config) as (journal, saver):
        chosen: int | str | None = int(run) if run is not None and run.isdigit() else run
        source = Source(
            journal=journal,
            saver=saver,
            config=config,
            run=chosen,
            agent=agent,
            is_file=file is not None,
        )
        where = to or Path(f"{default_name(form, journal.thread_id)}")
        for line in write(source, form, where):
            output.print_line(line)


def default_name(form: Form, thread_id: str) -> str:
    """Return a file name for a thread; pytest only finds names that begin with `test_`."""
    safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in thread_id)
    name = f"test_{safe.replace('-', '_').replace('.', '_')}" if form == "pytest" else safe
    return name + ENDINGS[form]


def write(source: Source, form: Form, where: Path) -> list[str]:
    """Write a format to a file, and return what to tell the user.

    Raises:
        ConfigError: The file cannot be written, or an option that it needs is missing.
        ReplayError: The run cannot be replayed.
    """
    from wick_graph.errors import ConfigError, WickError
    from wick_graph.exports.plain import Hider

    hider = Hider.of(source.journal, _patterns(source), trusted=not source.is_file)
    if source.run is not None:
        source.journal.run(source.run)
    try:
        said = _WRITERS[form](source, where, hider)
    except WickError:
        raise
    except (OSError, ValueError) as error:  # ValueError: no file can have this name
        why = getattr(error, "strerror", None) or "that is not a valid file name"
        raise ConfigError(f"{where} cannot be written: {why}; name another file") from error
    hidden = [f"secrets are hidden in {hider.hidden} values"] if hider.hidden else []
    return [f"wrote {where}", *said, *hidden]


def _html(source: Source, where: Path, hider: Hider) -> list[str]:
    from wick_graph.exports.page import as_page
    from wick_graph.exports.plain import Hider
    from wick_graph.journal.links import related

    def put(file: Path, page: str) -> None:
        file.write_text(page, encoding="utf-8", errors="backslashreplace")

    others = {one.thread_id: one for one in related(source.journal)}
    names = {thread: default_name("html", f"{where.stem}.{thread}") for thread in others}
    pages = {thread: quote(name) for thread, name in names.items()}
    pages[source.journal.thread_id] = quote(where.name)
    put(where, as_page(source.journal, hider, source.run, picture_of_thread(source), pages))
    for thread, journal in others.items():
        own = Hider.of(journal, _patterns(source), trusted=not source.is_file)
        put(where.with_name(names[thread]), as_page(journal, own, pages=pages))
    return [f"wrote {where.with_name(name)}" for name in names.values()]


def _wickrun(source: Source, where: Path, hider: Hider) -> list[str]:
    from wick_graph.exports.wickrun import write_wickrun

    hidden = write_wickrun(source.journal, source.saver, where, hider)
    return ["it can be opened, but not replayed"] if hidden else []


def _pytest(source: Source, where: Path, hider: Hider) -> list[str]:
    from wick_graph.exports.testfile import write_test

    cassette = write_test(source.journal, source.saver, where, _agent(source), hider, source.run)
    return [f"wrote {cassette}"]


def _chrome(source: Source, where: Path, hider: Hider) -> list[str]:
    from wick_graph.exports.chrome import as_chrome

    made = as_chrome(source.journal, hider, source.run)
    where.write_text(made, encoding="utf-8", errors="backslashreplace")
    return []


def _jsonl(source: Source, where: Path, hider: Hider) -> list[str]:
    from wick_graph.exports.plain import as_jsonl

    with where.open("w", encoding="utf-8", errors="backslashreplace") as file:
        file.writelines(as_jsonl(source.journal, hider, source.run))
    return []


_WRITERS: Final[dict[Form, Callable[[Source, Path, Any], list[str]]]] = {
    "html": _html,
    "wickrun": _wickrun,
    "pytest": _pytest,
    "chrome": _chrome,
    "jsonl": _jsonl,
}


def _agent(source: Source) -> FromFile | FromCode:
    from wick_graph.errors import ConfigError
    from wick_graph.exports.testfile import FromCode, FromFile

    if source.agent is not None:
        module, _, name = source.agent.partition(":")
        parts = [*module.split("."), name]
        if not all(part.isidentifier() for part in parts):
            raise ConfigError(f"--agent takes module:name, not {source.agent}")
        return FromCode(module, name)
    if (named := target()) is not None:
        return _named_in_code(named)
    there = _agent_name(source)
    if there is None:
        raise ConfigError(
            f"the agent of this thread is not in {source.config}; say where it is made with "
            "--agent module:name"
        )
    if read(source.config).agents[there].mcp_servers:
        raise ConfigError(
            f"{there} has tools of MCP servers, which a test cannot start; make the agent in code "
            "and name it with --agent module:name"
        )
    return FromFile(source.config, there)


def _named_in_code(named: str) -> FromCode:
    """Return the agent of a target.

    Raises:
        ConfigError: It is one of several, or not in a module.
    """
    from wick_graph.cli.select import from_code
    from wick_graph.errors import ConfigError
    from wick_graph.exports.testfile import FromCode
    from wick_graph.targets import parse_target

    found = parse_target(named)
    alone = graph_named(None) is not None or len(from_code().given) == 1
    if found is None or found.place.endswith((".py", ".json")) or not alone:
        raise ConfigError(
            f"a test needs one agent of a module, and {named} is not one; name it with "
            "--agent module:name"
        )
    return FromCode(found.place, found.name)


def _agent_name(source: Source) -> str | None:
    """Return the thread's agent, if the configuration has it."""
    runs = source.journal.runs()
    there = source.config.exists() or target() is not None
    if not runs or not there or graph_named(None) is not None:
        return None
    name = runs[-1].agent
    return name if name in read(source.config).agents else None


def _patterns(source: Source) -> tuple[str, ...]:
    from wick_graph.hooks.from_config import journal_of

    name = _agent_name(source)
    if name is None:
        return ()
    if target() is not None:
        return looked_at(name, source.config)[1].spec.journal.redact
    return journal_of(read(source.config).agents[name]).redact


def picture_of_thread(source: Source) -> Picture | None:
    """Draw the thread's agent with the thread laid over it, if the configuration has the agent."""
    from wick_graph.picture import overlay_of, picture_of, recorded_overlay

    if (graph := graph_named(None)) is not None and source.journal.runs():
        return picture_alone(graph, None).with_run(recorded_overlay(graph, source.journal))
    name = _agent_name(source)
    if name is None:
        return None
    built = looked_at(name, source.config, with_file=True)[1].graph_over(source.saver)
    return picture_of(built).with_run(overlay_of(built, source.journal.thread_id))


@contextmanager
def _opened(
    file: Path | None, thread: str | None, config: Path
) -> Iterator[tuple[Journal, SqlSaver]]:
    from wick_graph.errors import ConfigError
    from wick_graph.exports.wickrun import open_wickrun
    from wick_graph.journal import Journal

    if file is None and thread is None:
        raise ConfigError("name what to export: --thread ID, or a .wickrun file")
    if file is not None and thread is not None:
        raise ConfigError(f"the file {file} and --thread exclude each other; pass one of them")
    if file is not None:
        with open_wickrun(file) as recording:
            yield recording.journal, recording.saver
        return
    assert thread is not None
    with _kept(thread, config, "export") as (saver, thread_id):
        yield Journal(saver, thread_id), saver


@contextmanager
def _kept(thread: str, config: Path, command: str) -> Iterator[tuple[SqlSaver, str]]:
    """Open the store that has a thread: the configured one, else one that has recordings."""
    from wick_graph.errors import ConfigError, ThreadNotFoundError

    with ExitStack() as stack:
        if (graph := graph_named(None)) is not None:
            yield saver_with(thread, graph.checkpointer, stack), thread
            return
        refuse_graphs(command)
        try:
            saver, info = known(stack.enter_context(opened(config)), thread)
        except (ConfigError, ThreadNotFoundError) as error:
            if config.exists() and isinstance(error, ConfigError):
                raise
            try:
                found = saver_with(thread, None, stack)
            except ThreadNotFoundError:
                raise error from None
            yield found, thread
            return
        refuse_graphs(command, info.agent)
        yield saver, info.thread_id
