"""`wick threads`: look at the threads of a store, and delete them."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from wick_graph.cli import output
from wick_graph.cli.agents import DEFAULT_FILE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from wick_graph.store import SqlSaver, ThreadInfo

app = typer.Typer(
    help="List, show and delete threads.",
    rich_markup_mode=None,
)

_NONE: Final = "no threads yet"
_EVERY: Final = 1_000_000
_WORDS: Final = 60
"""Characters of a first message that stand in for a title."""


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
            found = [{**_facts(info), "title": _title(store, info)} for info in infos]
        if as_json:
            output.print_json(found)
        elif not found:
            filtered = store is not None and (agent is not None or status is not None)
            output.print_line("no such threads" if filtered else _NONE)
        else:
            now = _now(store)
            headers = ("THREAD", "AGENT", "STATUS", "STEPS", "LAST USED", "EXPIRES", "TITLE")
            output.table(headers, [_row(facts, now) for facts in found])


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
        values, waits_for = _state(store, thread_id)
        messages = list(values.get("messages") or ())
        facts = {**_facts(info), "title": _title(store, info), "usage": values.get("usage") or {}}
        if as_json:
            shown = [to_wick(message) for message in messages]
            output.print_json({**facts, "waits_for": waits_for, "messages": shown})
            return
        lines = _about(facts, waits_for, _now(store))
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


def _state(store: SqlSaver, thread_id: str) -> tuple[Mapping[str, Any], list[Any]]:
    """Read a thread's last state, and the questions that wait for an answer."""
    saved = store.get_tuple({"configurable": {"thread_id": thread_id}})
    if saved is None:
        return {}, []
    asked = [
        getattr(interrupt, "value", interrupt)
        for _, channel, value in saved.pending_writes or ()
        if channel == "__interrupt__"
        for interrupt in (value if isinstance(value, list | tuple) else [value])
    ]
    return saved.checkpoint["channel_values"], asked


def _title(store: SqlSaver, info: ThreadInfo) -> str:
    """Give a thread's title, or the first words that a person wrote in it."""
    if info.title:
        return info.title
    values, _ = _state(store, info.thread_id)
    said = (message.text for message in values.get("messages") or () if message.type == "human")
    return output.shorten(next(said, ""), _WORDS)


def _facts(info: ThreadInfo) -> dict[str, Any]:
    return {
        "thread_id": info.thread_id,
        "agent": info.agent,
        "title": info.title,
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


def _row(facts: Mapping[str, Any], now: datetime) -> tuple[str, ...]:
    return (
        facts["thread_id"],
        facts["agent"] or "-",
        _status(facts),
        str(facts["steps"]),
        _near(datetime.fromisoformat(facts["last_access"]), now),
        _expiry(facts, now),
        facts["title"],
    )


def _about(facts: Mapping[str, Any], waits_for: list[Any], now: datetime) -> list[tuple[str, str]]:
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
        ("waits for", "; ".join(map(str, waits_for))),
        ("parent", facts["parent"]),
        ("created", _when(facts["created"], now)),
        ("last used", _when(facts["last_access"], now)),
        ("expires", _expiry(facts, now)),
        ("steps", str(facts["steps"])),
        ("tokens", tokens if used else ""),
    ]
    return [(name, " ".join(value.split())) for name, value in lines if value]


def _status(facts: Mapping[str, Any]) -> str:
    why = facts["stopped_because"]
    plain = why in (None, "done", facts["status"]) or facts["status"] in ("running", "waiting")
    return str(facts["status"]) if plain else f"{facts['status']} ({why})"


def _expiry(facts: Mapping[str, Any], now: datetime) -> str:
    if facts["pinned"]:
        return "never (pinned)"
    if facts["status"] in ("running", "waiting"):
        return f"not while {facts['status']}"
    return "never" if facts["expires_at"] is None else _when(facts["expires_at"], now)


def _when(written: str, now: datetime) -> str:
    """Write a moment absolutely, in local time, and relative to now."""
    moment = datetime.fromisoformat(written)
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S} ({_near(moment, now)})"


def _near(moment: datetime, now: datetime) -> str:
    distance = (moment - now).total_seconds()
    return f"in {_span(distance)}" if distance >= 0 else f"{_span(-distance)} ago"


def _span(seconds: float) -> str:
    """Write a span in its largest unit, and the next one below it."""
    units = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
    rest, parts = round(seconds), list[str]()
    for unit, size in units:
        count, rest = divmod(rest, size)
        if count or parts:
            parts.append(f"{count}{unit}")
        if len(parts) == 2:
            break
    return "".join(part for part in parts if not part.startswith("0")) or "0s"
