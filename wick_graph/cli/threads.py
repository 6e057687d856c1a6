"""`wick threads` and `wick store`: the threads of a store, its keys, checks and repair."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from wick_graph.cli import output, run
from wick_graph.cli.select import DEFAULT_FILE, known, opened, read
from wick_graph.cli.watch import headline

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from wick_graph.config import AgentsFile
    from wick_graph.store import SqlSaver, ThreadInfo
    from wick_graph.store.verify import Finding


# --- Facts about a thread: as data, as a table row, and line by line.


_WORDS: Final = 60
"""Characters of a first message that replace a missing title."""


def state_of(store: SqlSaver, thread_id: str) -> tuple[Mapping[str, Any], list[Any]]:
    """Read a thread's last state and its open questions."""
    from wick_graph import langgraph_config
    from wick_graph.engine.answers import waiting

    config: Any = langgraph_config.with_configurable(
        None, **{langgraph_config.THREAD_ID: thread_id}
    )
    saved = store.get_tuple(config)
    if saved is None:
        return {}, []
    asked = [interrupt.value for interrupt in waiting(saved)]
    return saved.checkpoint["channel_values"], asked


def _title(store: SqlSaver, info: ThreadInfo) -> str:
    """Return a thread's title, or the first words of the user."""
    if info.title:
        return info.title
    values, _ = state_of(store, info.thread_id)
    said = (message.text for message in values.get("messages") or () if message.type == "human")
    return output.shorten(next(said, ""), _WORDS)


def facts_of(store: SqlSaver, info: ThreadInfo) -> dict[str, Any]:
    """Return the facts of a listing about a thread as plain data."""
    return {
        "thread_id": info.thread_id,
        "agent": info.agent,
        "title": _title(store, info),
        "status": info.status,
        "stopped_because": info.stopped_because,
        "last_error": info.last_error,
        "parent": info.parent,
        "created": _written(info.created),
        "last_access": _written(info.last_access),
        "expires_at": None if info.expires_at is None else _written(info.expires_at),
        "pinned": info.pinned,
        "steps": info.steps,
    }


def _written(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")


def as_row(facts: Mapping[str, Any], now: datetime) -> tuple[str, ...]:
    """Return the cells of a listing."""
    return (
        facts["thread_id"],
        facts["agent"] or "-",
        _status(facts),
        str(facts["steps"]),
        _near(datetime.fromisoformat(facts["last_access"]), now, 1),
        _expiry(facts, now, 1),
        f"↳ {facts['parent']}: {facts['title']}" if facts["parent"] else facts["title"],
    )


def as_lines(
    facts: Mapping[str, Any], waits_for: list[Any], now: datetime
) -> list[tuple[str, str]]:
    """Return all facts as lines of name and value, without empty ones."""
    used = facts["usage"]
    tokens = (
        f"{used.get('input_tokens', 0)} read, {used.get('output_tokens', 0)} written, "
        f"in {used.get('calls', 0)} model calls"
    )
    lines = [
        ("thread", facts["thread_id"]),
        ("title", facts["title"]),
        ("agent", facts["agent"]),
        ("status", _status(facts)),
        ("last error", facts["last_error"]),
        ("waits for", "; ".join(map(headline, waits_for))),
        ("parent", facts["parent"]),
        ("sub-agents", ", ".join(facts.get("children") or ())),
        ("created", _when(facts["created"], now, 2)),
        ("last used", _when(facts["last_access"], now, 2)),
        ("expires", _expiry(facts, now, 2)),
        ("steps", str(facts["steps"])),
        ("tokens", tokens if used else ""),
    ]
    return [(name, " ".join(value.split())) for name, value in lines if value]


def _status(facts: Mapping[str, Any]) -> str:
    why = facts["stopped_because"]
    plain = why in (None, "done", facts["status"]) or facts["status"] in ("running", "waiting")
    return str(facts["status"]) if plain else f"{facts['status']} ({why})"


def _expiry(facts: Mapping[str, Any], now: datetime, parts: int) -> str:
    if facts["pinned"]:
        return "never (pinned)"
    if facts["status"] in ("running", "waiting"):
        return f"not while {facts['status']}"
    return "never" if facts["expires_at"] is None else _when(facts["expires_at"], now, parts)


def _when(written: str, now: datetime, parts: int) -> str:
    """Write a time both as local time and relative to now."""
    moment = datetime.fromisoformat(written)
    return f"{moment.astimezone():%Y-%m-%d %H:%M} ({_near(moment, now, parts)})"


def _near(moment: datetime, now: datetime, parts: int) -> str:
    distance = (moment - now).total_seconds()
    return f"in {_span(distance, parts)}" if distance >= 0 else f"{_span(-distance, parts)} ago"


def _span(seconds: float, most: int) -> str:
    """Write a duration in at most `most` of its largest units, rounded down."""
    units = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
    rest, parts = int(seconds), list[str]()
    for unit, size in units:
        count, rest = divmod(rest, size)
        if count or parts:
            parts.append(f"{count}{unit}")
        if len(parts) == most:
            break
    return "".join(part for part in parts if not part.startswith("0")) or "0s"


# --- `wick threads fork|export|import|pin|rename|vacuum|du`: copy, move and keep threads.


_ID: Final[Any] = typer.Argument(metavar="ID", help="The thread's id.", show_default=False)

_UNITS: Final = ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "kB"))


def fork(
    thread_id: Annotated[str, _ID],
    target: Annotated[
        str, typer.Argument(metavar="NEW", help="The fork's id.", show_default=False)
    ],
    at: Annotated[
        str | None,
        typer.Option(
            "--at", metavar="CHECKPOINT", help="Fork at this checkpoint.  [default: the latest]"
        ),
    ] = None,
    as_json: Annotated[bool, output.AS_JSON] = False,
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Fork a thread at a checkpoint.

    The new thread continues from there. Tool calls that have run in one thread do not run again in
    the other.
    """
    from wick_graph.engine.result import checked_thread_id

    checked_thread_id(target)
    with opened(config) as store:
        store, info = known(store, thread_id)
        thread_id = info.thread_id
        made = store.threads.fork(thread_id, target, at)
        if as_json:
            output.print_json({"thread_id": target, "parent": thread_id, "steps": made.steps})
        else:
            output.print_line(f"forked {thread_id} as {target} ({made.steps} steps)")


def export(
    thread_id: Annotated[str, _ID],
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="The exported file.",
            show_default=False,
            callback=output.no_dash,
        ),
    ],
    plain: Annotated[
        bool,
        typer.Option("--plain", help="Do not encrypt the file, even if the store is encrypted."),
    ] = False,
    as_json: Annotated[bool, output.AS_JSON] = False,
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Export a thread to a file, with its ledger and journal.

    The file is a SQLite database; `wick threads import` reads it into any store. If the store is
    encrypted, the file is encrypted with the same keys.
    """
    from wick_graph.store.maintenance import export_thread

    with opened(config) as store:
        store, info = known(store, thread_id)
        thread_id = info.thread_id
        export_thread(store, thread_id, file, plain=plain)
        if as_json:
            size = file.stat().st_size
            output.print_json({"thread_id": thread_id, "file": str(file), "bytes": size})
        else:
            output.print_line(f"exported {thread_id} to {file} ({info.steps} steps)")


def take(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The exported file.", show_default=False)
    ],
    thread_id: Annotated[
        str | None,
        typer.Option(
            "--thread", "-t", metavar="ID", help="Thread to import, if the file has several."
        ),
    ] = None,
    to: Annotated[
        str | None, typer.Option("--as", metavar="NEW", help="Import it under this id.")
    ] = None,
    keys: Annotated[
        str | None,
        typer.Option(
            "--keys",
            metavar="PLACE",
            help="Keys of the file, if not those of the store: file:PATH.",
        ),
    ] = None,
    as_json: Annotated[bool, output.AS_JSON] = False,
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Import a thread from a file that `wick threads export` wrote."""
    from wick_graph.engine.result import checked_thread_id
    from wick_graph.store.maintenance import import_thread

    for given in (thread_id, to):
        if given is not None:
            checked_thread_id(given)
    with opened(config, make=True) as store:
        assert store is not None
        made = import_thread(store, file, thread_id, to=to, keys=keys)
        if as_json:
            output.print_json({"thread_id": made, "file": str(file)})
        else:
            output.print_line(f"imported {made} from {file}")


def pin(
    thread_id: Annotated[str, _ID],
    off: Annotated[bool, typer.Option("--off", help="Let it expire again.")] = False,
    as_json: Annotated[bool, output.AS_JSON] = False,
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Keep a thread from expiring."""
    with opened(config) as store:
        store, info = known(store, thread_id)
        thread_id = info.thread_id
        store.threads.pin(thread_id, not off)
        if as_json:
            output.print_json({"thread_id": thread_id, "pinned": not off})
        else:
            output.print_line(f"{'unpinned' if off else 'pinned'} {thread_id}")


def rename(
    thread_id: Annotated[str, _ID],
    title: Annotated[
        str, typer.Argument(metavar="TITLE", help="The new title.", show_default=False)
    ],
    as_json: Annotated[bool, output.AS_JSON] = False,
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Change the title of a thread."""
    with opened(config) as store:
        store, info = known(store, thread_id)
        thread_id = info.thread_id
        store.threads.rename(thread_id, title or None)
        if as_json:
            output.print_json({"thread_id": thread_id, "title": title or None})
        else:
            output.print_line(f"renamed {thread_id}")


def vacuum(
    as_json: Annotated[bool, output.AS_JSON] = False,
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Return the space of deleted threads to the file system."""
    before = _on_disk(config)
    with opened(config) as store:
        if store is not None:
            store.threads.vacuum()
    after = _on_disk(config)  # SQLite removes the log when the file is closed
    if as_json:
        output.print_json({"before": before, "after": after})
    elif before is None or after is None:
        output.print_line("done" if store is not None else "no threads yet")
    else:
        output.print_line(f"{_size(before)} before, {_size(after)} now")


def usage(
    as_json: Annotated[bool, output.AS_JSON] = False,
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Show the size of each thread, largest first.

    Does not count the overhead of the database around its rows.
    """
    with opened(config) as store:
        found = {} if store is None else store.threads.sizes()
        total = {thread: sum(parts.values()) for thread, parts in found.items()}
        order = sorted(total, key=lambda thread: (-total[thread], thread))
        if as_json:
            rows = [{"thread_id": t, "bytes": total[t], "parts": found[t]} for t in order]
            output.print_json({"threads": rows, "on_disk": _on_disk(config)})
        elif not order:
            output.print_line("no threads yet")
        else:
            output.table(("THREAD", "SIZE", "PARTS"), [_row(t, found[t]) for t in order])
            if (size := _on_disk(config)) is not None:
                output.say(f"{_size(size)} on disk")


def _row(thread: str, parts: dict[str, int]) -> tuple[str, ...]:
    shown = sorted((-size, part) for part, size in parts.items() if size)
    text = ", ".join(f"{part} {_size(-size)}" for size, part in shown)
    return thread, _size(sum(parts.values())), text


def _size(count: int) -> str:
    for unit, name in _UNITS:
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} B"


def _on_disk(config: Path) -> int | None:
    """Return the size of the store's file; None if it is a server's database or does not exist."""
    from wick_graph.store.saver import dialect_of

    path: Path | None = getattr(dialect_of(read(config).store_url), "path", None)
    if path is None or not path.exists():
        return None
    beside = path.with_name(path.name + "-wal")
    return path.stat().st_size + (beside.stat().st_size if beside.exists() else 0)


# --- `wick threads`: list, show, delete and prune the threads of a store.


app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)


@app.callback()
def threads(app: Annotated[str | None, output.APP] = None) -> None:
    """Manage threads: list, show, fork, move, delete."""


app.command("resume", options_metavar="[OPTIONS]")(run.resume)

app.command("retry", options_metavar="[OPTIONS]")(run.retry)

app.command("fork")(fork)

app.command("export")(export)

app.command("import")(take)

app.command("pin")(pin)

app.command("rename")(rename)

app.command("vacuum")(vacuum)

app.command("du")(usage)

_NONE: Final = "no threads yet"


@app.command("list")
def list_threads(
    agent: Annotated[
        str | None, typer.Option("--agent", help="Only threads of this agent.")
    ] = None,
    status: Annotated[
        Literal["idle", "running", "waiting", "failed"] | None,
        typer.Option("--status", help="Only threads with this status."),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=1_000_000, help="Show at most this many.")
    ] = 50,
    as_json: Annotated[bool, output.AS_JSON] = False,
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """List threads and when they expire, most recently used first."""
    with opened(config) as store:
        found: list[dict[str, Any]] = []
        if store is not None:
            infos = store.threads.list(limit=limit + 1, agent=agent, status=status)
            found = [facts_of(store, info) for info in infos[:limit]]
            if len(infos) > limit:
                output.say(f"there are more threads than these {limit}: see --limit", dim=True)
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
    thread_id: Annotated[str, _ID],
    as_json: Annotated[bool, output.AS_JSON] = False,
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Show a thread's details and messages."""
    from wick_graph.journal import Journal
    from wick_graph.journal.links import children_of
    from wick_graph.messages import pretty_print, to_wick

    with opened(config) as store:
        store, info = known(store, thread_id)
        values, waits_for = state_of(store, info.thread_id)
        messages = list(values.get("messages") or ())
        children = list(children_of(Journal(store, info.thread_id)))
        facts = {**facts_of(store, info), "usage": values.get("usage") or {}, "children": children}
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
    thread_ids: Annotated[list[str], _ID],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: Annotated[bool, output.AS_JSON] = False,
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Delete threads permanently.

    If one of them does not exist, none is deleted. With --yes, the ids must be whole.
    """
    with opened(config) as store:
        infos = [known(store, given, exact=yes)[1] for given in dict.fromkeys(thread_ids)]
        wanted = list(dict.fromkeys(info.thread_id for info in infos))
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
        bool, typer.Option("--dry-run", help="Only list what would be deleted.")
    ] = False,
    as_json: Annotated[bool, output.AS_JSON] = False,
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Delete expired threads.

    Running, waiting and pinned threads stay. A thread counts as idle if the process of its run
    has died.
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
    """Ask the person at the terminal for confirmation.

    Raises:
        ConfigError: Standard input is not a terminal.
    """
    import sys

    from wick_graph.errors import ConfigError

    if not output.is_terminal(sys.stdin):
        raise ConfigError("no terminal to confirm on; pass --yes to delete")
    for info in infos:
        output.say(f"{info.thread_id} ({info.status}, {info.steps} steps)")
    count = "this thread" if len(infos) == 1 else f"these {len(infos)} threads"
    return typer.confirm(f"Delete {count} permanently?", err=True)


def _now(store: SqlSaver | None) -> datetime:
    """Read the store's clock, which decides what has expired."""
    return datetime.now(UTC) if store is None else datetime.fromtimestamp(store.clock(), UTC)


# --- `wick store key|rotate|migrate|verify|repair`: a store's keys, schema, checks and repair.


store_app = typer.Typer(
    help="Manage the store: encryption keys, schema, checks, repair.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_TO: Final[Any] = typer.Option(
    "--to", metavar="FILE", help="Put the key at the top of this file, readable by you only."
)


@store_app.command("key")
def key(
    to: Annotated[Path | None, _TO] = None,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Create an encryption key and print it, or put it into a file.

    A key has 32 random bytes. The first key of a file is the current one.
    """
    from wick_graph.store.encryption import Keys, add_key, new_key

    if to is None:
        output.print_line(new_key())
        return
    add_key(to)
    keys = Keys.from_file(to)
    output.print_line(f"{to} holds {', '.join(keys.ids)}; {keys.ids[0]} is the current one")


@store_app.command("rotate")
def rotate(
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    as_json: Annotated[bool, output.AS_JSON] = False,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Re-encrypt the store with the current key; older keys are then no longer needed."""
    from wick_graph.errors import StorageError
    from wick_graph.store.verify import rotate as rotate_store

    with opened(config) as store:
        if store is None:
            raise StorageError("there is no store yet; run an agent first, then rotate its keys")
        changed = rotate_store(store)
    if as_json:
        output.print_json({"rows": changed})
    else:
        output.print_line(f"{changed} rows re-encrypted")


@store_app.command("migrate")
def migrate(
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    as_json: Annotated[bool, output.AS_JSON] = False,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Bring the store's tables up to the newest schema; programs may work meanwhile.

    A SQLite file is brought up to date whenever it is opened; PostgreSQL only by this command.
    """
    from wick_graph.store.saver import dialect_of

    version = dialect_of(_file_with_store(config).store_url).migrate()
    if as_json:
        output.print_json({"schema": version})
    else:
        output.print_line(f"the store has schema {version}")


@store_app.command("verify")
def verify(
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    as_json: Annotated[bool, output.AS_JSON] = False,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Check the whole store for damaged, missing or foreign data; nothing is changed.

    Exit codes: 0 the store is intact, 1 something was found.
    """
    from wick_graph.errors import StorageError
    from wick_graph.store import SqlSaver
    from wick_graph.store.verify import Finding, Report
    from wick_graph.store.verify import verify as verify_store

    file = _file_with_store(config)
    report = Report()
    try:
        with SqlSaver.from_url(file.store_url, keys=file.keys_source, read_only=True) as store:
            report = verify_store(store, _progress("verified"))
    except StorageError as error:
        report.findings.append(Finding(what=str(error)))
    if as_json:
        said = {"threads": report.threads, "rows": report.rows}
        output.print_json({**said, "findings": _as_data(report.findings)})
    else:
        _print_findings(report.findings)
        found = len(report.findings)
        what = "is whole" if not found else f"has {found} finding{'s' * (found != 1)}"
        output.print_line(f"the store {what} ({report.threads} threads, {report.rows} rows)")
    if not report.is_whole:
        raise typer.Exit(1)


@store_app.command("repair")
def repair(
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="FILE|URL",
            help="The new store; if it is a file, it must not exist yet.",
        ),
    ],
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    as_json: Annotated[bool, output.AS_JSON] = False,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Copy what is intact in a damaged store to a new one, and list what is lost.

    The damaged store is not changed. To use the new one, name it in agents.yaml.

    Exit codes: 0 nothing is lost, 1 something is.
    """
    from wick_graph.store.maintenance import repair as repair_store

    file = _file_with_store(config)
    url = to if "://" in to else f"sqlite:///{Path(to).absolute()}"
    progress = _progress("saved")
    made = repair_store(file.store_url, url, keys=file.keys_source, progress=progress)
    if as_json:
        said = {"threads": made.threads, "steps": made.steps, "to": url}
        output.print_json({**said, "lost": _as_data(made.lost)})
    else:
        _print_findings(made.lost)
        output.print_line(f"saved {made.threads} threads with {made.steps} steps to {to}")
    if made.lost:
        raise typer.Exit(1)


def _file_with_store(config: Path) -> AgentsFile:
    from wick_graph.errors import StorageError
    from wick_graph.store.saver import dialect_of

    file = read(config)
    if not dialect_of(file.store_url).exists():
        raise StorageError("there is no store yet; run an agent first")
    return file


def _progress(verb: str) -> Any:
    """Return a function that shows progress at a terminal."""
    import sys
    import time

    last = [time.monotonic()]

    def said(done: int, of: int) -> None:
        if output.is_terminal(sys.stderr) and time.monotonic() - last[0] >= 1:
            last[0] = time.monotonic()
            output.say(f"{verb} {done} of {of} threads")

    return said


def _as_data(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    return [
        {"table": one.table, "thread": one.thread, "step": one.step, "what": one.what}
        for one in findings
    ]


def _print_findings(findings: Sequence[Finding]) -> None:
    for one in findings:
        named = (("thread", one.thread), ("step", one.step), ("table", one.table))
        where = ", ".join(f"{name} {value}" for name, value in named if value is not None)
        output.print_line(f"{where}: {one.what}" if where else one.what)
