"""`wick threads`: look at the threads of a store, and delete them."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from wick_graph.cli import output
from wick_graph.cli.agents import DEFAULT_FILE
from wick_graph.cli.thread_facts import as_lines, as_row, facts_of, state_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from wick_graph.store import SqlSaver, ThreadInfo

app = typer.Typer(
    help="List, show and delete threads.",
    rich_markup_mode=None,
)

_NONE: Final = "no threads yet"
_EVERY: Final = 1_000_000


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
    with _store(config) as store:
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

    _check_ids([thread_id])
    with _store(config) as store:
        info = None if store is None else store.threads.get(thread_id)
        if store is None or info is None:
            raise _unknown(thread_id)
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
        output.write(pretty_print(messages))


@app.command("delete")
def delete(
    thread_ids: Annotated[list[str], typer.Argument(metavar="ID", show_default=False)],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Delete threads for good.

    If one of them does not exist, none is deleted.
    """
    wanted = list(dict.fromkeys(thread_ids))
    _check_ids(wanted)
    with _store(config) as store:
        known = {} if store is None else {i.thread_id: i for i in store.threads.list(limit=_EVERY)}
        for thread_id in wanted:
            if thread_id not in known:
                raise _unknown(thread_id)
        if not yes and not _agreed([known[thread_id] for thread_id in wanted]):
            output.say("nothing is deleted")
            raise typer.Exit(output.FAILED)
        assert store is not None
        for thread_id in wanted:
            store.threads.delete(thread_id)
            output.print_line(f"deleted {thread_id}")


@app.command("prune")
def prune(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be deleted.")
    ] = False,
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Delete the threads whose time is up.

    Running, waiting and pinned threads stay.
    """
    with _store(config) as store:
        if store is None:
            gone: list[str] = []
        elif dry_run:
            now = _now(store)
            every = store.threads.list(limit=_EVERY)
            gone = [info.thread_id for info in every if _is_due(info, now)]
        else:
            gone = store.sweep()
        verb = "would delete" if dry_run else "deleted"
        for thread_id in gone:
            output.print_line(f"{verb} {thread_id}")
        output.print_line(f"{verb} {len(gone)} thread{'s' * (len(gone) != 1)}")


@contextmanager
def _store(config: Path) -> Iterator[SqlSaver | None]:
    """Open the file's store, or give None where no thread was ever stored: nothing is created."""
    from wick_graph.config import load_config
    from wick_graph.store import SqlSaver
    from wick_graph.store.sqlite import path_of

    url = load_config(config).store_url
    path = path_of(url)
    if path is None or not path.exists():
        yield None
        return
    with SqlSaver.from_url(url) as store:
        yield store


def _check_ids(thread_ids: list[str]) -> None:
    from wick_graph.result import checked_thread_id

    for thread_id in thread_ids:
        checked_thread_id(thread_id)


def _unknown(thread_id: str) -> Exception:
    from wick_graph.errors import ThreadNotFoundError

    return ThreadNotFoundError(
        f"there is no thread {thread_id}; `wick threads list` shows those there are"
    )


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


def _is_due(info: ThreadInfo, now: datetime) -> bool:
    if info.pinned or info.status in ("running", "waiting"):
        return False
    return info.expires_at is not None and info.expires_at <= now
