"""`wick journal`: what a thread's runs did, one line for each moment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wick_graph.cli import output
from wick_graph.cli.agents import DEFAULT_FILE
from wick_graph.cli.stores import check_ids, opened, unknown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from wick_graph.journal import Journal
    from wick_graph.journal.entry import Entry


def journal(
    thread_id: Annotated[str, typer.Argument(metavar="THREAD", show_default=False)],
    run: Annotated[
        str | None, typer.Option("--run", "-r", help="Only this run: its number or its id.")
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option("--kind", "-k", help="Only moments such as `tool` or `model.request`."),
    ] = None,
    after: Annotated[int | None, typer.Option("--after", help="Only later moments.")] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="At most so many.")
    ] = None,
    as_json: Annotated[bool, output.AS_JSON] = False,
    as_jsonl: Annotated[
        bool, typer.Option("--jsonl", help="Print one JSON object a line.")
    ] = False,
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Show what happened in a thread, moment by moment.

    Works on the database alone; nothing is run. Secrets are hidden.
    """
    from wick_graph.errors import ConfigError
    from wick_graph.journal import Journal

    if as_json and as_jsonl:
        raise ConfigError("--json and --jsonl are two forms of the same; give one of them")
    check_ids([thread_id])
    with opened(config) as store:
        if store is None or store.threads.get(thread_id) is None:
            raise unknown(thread_id)
        found = Journal(store, thread_id)
        wanted: int | str | None = int(run) if run is not None and run.isdigit() else run
        moments = found.moments(wanted, kind, after, limit)
        if as_json or as_jsonl:
            _as_json(found, moments, lines=as_jsonl)
        elif not _as_text(found, moments):
            some = any((run, kind, after))
            output.say("no such moments" if some else "nothing is recorded in this thread")


def _as_json(journal: Journal, moments: Iterator[Entry], *, lines: bool) -> None:
    from wick_graph.exports.masked import Hider

    hider = Hider.of(journal)  # what is read from checkpoints holds secrets still
    shown = (hider.value(journal.to_dict(moment)) for moment in moments)
    if not lines:
        output.print_json([*shown])
        return
    for one in shown:
        output.print_json(one, indent=None)


def _as_text(journal: Journal, moments: Iterator[Entry]) -> bool:
    """Print a line for each moment; False where there is none."""
    from wick_graph.exports.masked import Hider
    from wick_graph.journal.entry import GAP
    from wick_graph.journal.show import line_from

    hider, found = Hider.of(journal), False
    for moment in moments:
        told = {} if moment.kind == GAP else hider.value(journal.details(moment))
        output.print_line(hider.value(line_from(moment, told)))
        found = True
    return found
