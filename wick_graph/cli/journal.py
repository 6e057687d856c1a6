"""`wick journal`: what a thread's runs did, one line for each moment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wick_graph.cli import output
from wick_graph.cli.agents import DEFAULT_FILE
from wick_graph.cli.stores import check_ids, opened, unknown


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

    Works on the database alone; nothing is run.
    """
    from wick_graph.errors import ConfigError
    from wick_graph.journal import Journal
    from wick_graph.journal.show import line_of

    if as_json and as_jsonl:
        raise ConfigError("--json and --jsonl are two forms of the same; give one of them")
    check_ids([thread_id])
    with opened(config) as store:
        if store is None or store.threads.get(thread_id) is None:
            raise unknown(thread_id)
        found = Journal(store, thread_id)
        wanted: int | str | None = int(run) if run is not None and run.isdigit() else run
        moments = found.moments(wanted, kind, after, limit)
        if as_json:
            output.print_json([found.to_dict(moment) for moment in moments])
            return
        empty = True
        for moment in moments:
            empty = False
            if as_jsonl:
                output.print_json(found.to_dict(moment), indent=None)
            else:
                output.print_line(line_of(found, moment))
        if empty and not as_jsonl:
            some = any((run, kind, after))
            output.say("no such moments" if some else "nothing is recorded in this thread")
