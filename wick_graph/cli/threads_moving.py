"""`wick threads fork|export|import|pin|unpin|rename|vacuum|du`: threads as things one keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import typer

from wick_graph.cli import output
from wick_graph.cli.agents import DEFAULT_FILE
from wick_graph.cli.stores import known, opened

_ID: Final[Any] = typer.Argument(metavar="ID", show_default=False)
_UNITS: Final = ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "kB"))


def fork(
    thread_id: Annotated[str, _ID],
    target: Annotated[str, typer.Argument(metavar="NEW", show_default=False)],
    at: Annotated[
        str | None, typer.Option("--at", metavar="CHECKPOINT", help="Go on from here.")
    ] = None,
    as_json: Annotated[bool, output.AS_JSON] = False,
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Make a thread that goes on where another stands, or stood.

    Without --at it goes on from the latest checkpoint. Calls that have run in the one do not run
    again in the other.
    """
    from wick_graph.result import checked_thread_id

    checked_thread_id(target)
    with opened(config) as store:
        store, _ = known(store, thread_id)
        made = store.threads.fork(thread_id, target, at)
        if as_json:
            output.print_json({"thread_id": target, "parent": thread_id, "steps": made.steps})
        else:
            output.print_line(f"forked {thread_id} as {target} ({made.steps} steps)")


def export(
    thread_id: Annotated[str, _ID],
    file: Annotated[Path, typer.Argument(metavar="FILE", show_default=False)],
    plain: Annotated[
        bool, typer.Option("--plain", help="Do not encrypt the file, though the store is.")
    ] = False,
    as_json: Annotated[bool, output.AS_JSON] = False,
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Write a thread to a file, with its ledger and its journal.

    The file is a SQLite database of its own; `wick threads import` takes it over into any store.
    That of an encrypted store is encrypted with the same keys.
    """
    from wick_graph.store.moving import export_thread

    with opened(config) as store:
        store, info = known(store, thread_id)
        export_thread(store, thread_id, file, plain=plain)
        if as_json:
            size = file.stat().st_size
            output.print_json({"thread_id": thread_id, "file": str(file), "bytes": size})
        else:
            output.print_line(f"exported {thread_id} to {file} ({info.steps} steps)")


def take(
    file: Annotated[Path, typer.Argument(metavar="FILE", show_default=False)],
    thread_id: Annotated[
        str | None, typer.Option("--thread", "-t", metavar="ID", help="Which of the file's.")
    ] = None,
    to: Annotated[
        str | None, typer.Option("--as", metavar="NEW", help="The id that it gets here.")
    ] = None,
    keys: Annotated[
        str | None,
        typer.Option("--keys", metavar="PLACE", help="The file's, if not the store's: file:PATH."),
    ] = None,
    as_json: Annotated[bool, output.AS_JSON] = False,
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Take a thread over from a file that `wick threads export` wrote."""
    from wick_graph.result import checked_thread_id
    from wick_graph.store.moving import import_thread

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
        store, _ = known(store, thread_id)
        store.threads.pin(thread_id, not off)
        if as_json:
            output.print_json({"thread_id": thread_id, "pinned": not off})
        else:
            output.print_line(f"{'unpinned' if off else 'pinned'} {thread_id}")


def rename(
    thread_id: Annotated[str, _ID],
    title: Annotated[str, typer.Argument(metavar="TITLE", show_default=False)],
    as_json: Annotated[bool, output.AS_JSON] = False,
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Give a thread another title."""
    with opened(config) as store:
        store, _ = known(store, thread_id)
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
    """Give the space of deleted threads back to the file system."""
    before = _on_disk(config)
    with opened(config) as store:
        if store is not None:
            store.threads.vacuum()
    after = _on_disk(config)  # the log of a SQLite file goes when the file is closed
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
    """Show what each thread takes up, the largest first.

    What the database needs around its rows is not counted.
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
            output.table(("THREAD", "SIZE", "OF WHICH"), [_row(t, found[t]) for t in order])
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
    """Return the size of the store's file; None of a server's database, and where there is none."""
    from wick_graph.config import load_config
    from wick_graph.store.database.opening import dialect_of

    path: Path | None = getattr(dialect_of(load_config(config).store_url), "path", None)
    if path is None or not path.exists():
        return None
    beside = path.with_name(path.name + "-wal")
    return path.stat().st_size + (beside.stat().st_size if beside.exists() else 0)
