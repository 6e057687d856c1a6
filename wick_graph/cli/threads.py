"""`wick threads`: look at the threads of a store, go on in them, keep them and delete them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from wick_graph.cli import output, resume, threads_moving
from wick_graph.cli.agents import DEFAULT_FILE
from wick_graph.cli.stores import known, opened
from wick_graph.cli.thread_facts import as_lines, as_row, facts_of, state_of

if TYPE_CHECKING:
    from wick_graph.store import SqlSaver, ThreadInfo

app = typer.Typer(
    help="List, show, fork, move and delete threads.",
    rich_markup_mode=None,
)

app.command("resume", options_metavar="[OPTIONS]")(resume.resume)
app.command("retry", options_metavar="[OPTIONS]")(resume.retry)
app.command("fork")(threads_moving.fork)
app.command("export")(threads_moving.export)
app.command("import")(threads_moving.take)
app.command("pin")(threads_moving.pin)
app.command("rename")(threads_moving.rename)
app.command("vacuum")(threads_moving.vacuum)
app.command("du")(threads_moving.usage)

_NONE: Final = "no threads yet"


@app.command("list")
def list_threads(
    agent: Annotated[str | None, typer.Option("--agent", help="Only this agent's.")] = None,
    status: Annotated[
        Literal["idle", "running", "waiting", "failed"] | None,
        typer.Option("--status", help="Only these."),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many.")] = 50,
    as_json: Annotated[bool, output.AS_JSON] = False,
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """List threads, and when each expires.

    The most recently used comes first.
    """
    with opened(config) as store:
        found: list[dict[str, Any]] = []
        if store is not None:
            infos = store.threads.list(limit=limit, agent=agent, status=status)
            found = [facts_of(store, info) for info in infos]
        if as_json:
            output.print_json(found)
        elif not found:
            filtered = store is not None and (agent is not None or status is not None)
            output.print_line("no such threads" if filtered else _NONE)
        else:
            now = _now(store)
            headers = ("THREAD", "AGENT", "STATUS", "STEPS", "LAST USED", "EXPIRES", "TITLE")
            output.table(headers, [as_row(facts, now) for facts in found])


@app.command("show")
def show(
    thread_id: Annotated[str, typer.Argument(metavar="ID", show_default=False)],
    as_json: Annotated[bool, output.AS_JSON] = False,
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Show what is known about a thread, and its messages."""
    from wick_graph.messages import pretty_print, to_wick

    with opened(config) as store:
        store, info = known(store, thread_id)
        values, waits_for = state_of(store, thread_id)
        messages = list(values.get("messages") or ())
        facts = {**facts_of(store, info), "usage": values.get("usage") or {}}
        if as_json:
            shown = [to_wick(message) for message in messages]
            output.print_json({**facts, "waits_for": waits_for, "messages": shown})
            return
        lines = as_lines(facts, waits_for, _now(store))
        width = max(len(name) for name, _ in lines)
        for name, value in lines:
            output.print_line(f"{name:<{width}}  {value}")
        output.print_line()
        output.write(output.safe(pretty_print(messages)))


@app.command("delete")
def delete(
    thread_ids: Annotated[list[str], typer.Argument(metavar="ID", show_default=False)],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Annotated[bool, output.AS_JSON] = False,
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Delete threads for good.

    If one of them does not exist, none is deleted.
    """
    wanted = list(dict.fromkeys(thread_ids))
    with opened(config) as store:
        infos = [known(store, thread_id)[1] for thread_id in wanted]
        if not yes and not _agreed(infos):
            output.say("nothing is deleted")
            raise typer.Exit(output.FAILED)
        assert store is not None
        for thread_id in wanted:
            store.threads.delete(thread_id)
            if not as_json:
                output.print_line(f"deleted {thread_id}")
        if as_json:
            output.print_json({"deleted": wanted})


@app.command("prune")
def prune(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be deleted.")
    ] = False,
    as_json: Annotated[bool, output.AS_JSON] = False,
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Delete the threads whose time is up.

    Running, waiting and pinned threads stay; a run whose process died counts as idle.
    """
    with opened(config) as store:
        if store is None:
            gone: list[str] = []
        elif dry_run:
            gone = store.threads.due()
        else:
            gone = store.sweep()
        if as_json:
            output.print_json({"would_delete" if dry_run else "deleted": gone})
            return
        verb = "would delete" if dry_run else "deleted"
        for thread_id in gone:
            output.print_line(f"{verb} {thread_id}")
        output.print_line(f"{verb} {len(gone)} thread{'s' * (len(gone) != 1)}")


def _agreed(infos: list[ThreadInfo]) -> bool:
    """Ask the person at the terminal; nobody there means no.

    Raises:
        ConfigError: Nobody can be asked.
    """
    import sys

    from wick_graph.errors import ConfigError

    if not output.is_terminal(sys.stdin):
        raise ConfigError("nobody can be asked here; add --yes to delete for good")
    for info in infos:
        output.say(f"{info.thread_id} ({info.status}, {info.steps} steps)")
    count = "this thread" if len(infos) == 1 else f"these {len(infos)} threads"
    return typer.confirm(f"Delete {count} for good?", err=True)


def _now(store: SqlSaver | None) -> datetime:
    """Read the store's clock: what it says decides what has expired."""
    return datetime.now(UTC) if store is None else datetime.fromtimestamp(store.clock(), UTC)
