"""`wick store key|rotate|verify|repair`: the keys of a store, and whether it is whole."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from wick_graph.cli import output
from wick_graph.cli.agents import DEFAULT_FILE
from wick_graph.cli.stores import opened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wick_graph.config import AgentsFile
    from wick_graph.store.verifying import Finding

app = typer.Typer(help="Keys, checks and repair of the store.", no_args_is_help=True)
_TO: Final[Any] = typer.Option(
    "--to", metavar="FILE", help="Put it into a file that only you can read, before the others."
)


@app.command("key")
def key(
    to: Annotated[Path | None, _TO] = None,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Make a key of 32 random bytes and print it, or put it into a file.

    In a file that holds keys already it becomes the first, which is the current one.
    """
    from wick_graph.store.sealed.keyring import Keys, add_key, new_key

    if to is None:
        output.print_line(new_key())
        return
    add_key(to)
    keys = Keys.from_file(to)
    output.print_line(f"{to} holds {', '.join(keys.ids)}; {keys.ids[0]} is the current one")


@app.command("rotate")
def rotate(
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    as_json: Annotated[bool, output.AS_JSON] = False,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Encrypt anew what is not encrypted with the current key; the others are then not needed."""
    from wick_graph.errors import StorageError
    from wick_graph.store.rotating import rotate as rotate_store

    with opened(config) as store:
        if store is None:
            raise StorageError("there is no store yet, and so no key to change")
        changed = rotate_store(store)
    if as_json:
        output.print_json({"rows": changed})
    else:
        output.print_line(f"{changed} rows are encrypted anew")


@app.command("verify")
def verify(
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    as_json: Annotated[bool, output.AS_JSON] = False,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Read the whole store, and say what is damaged, missing or foreign; nothing is changed.

    The exit code is 1 where anything is.
    """
    from wick_graph.errors import StorageError
    from wick_graph.store import SqlSaver
    from wick_graph.store.verifying import Finding, Report
    from wick_graph.store.verifying import verify as verify_store

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


@app.command("repair")
def repair(
    to: Annotated[
        str,
        typer.Option("--to", metavar="FILE|URL", help="The new store: a file that is not there."),
    ],
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    as_json: Annotated[bool, output.AS_JSON] = False,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Save what is sound of a damaged store into a new one, and say what is lost.

    The damaged store is not changed. Name the new one in agents.yaml to go on with it. The exit
    code is 1 where anything is lost.
    """
    from wick_graph.store.repairing import repair as repair_store

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
    from wick_graph.config import load_config
    from wick_graph.errors import StorageError
    from wick_graph.store.database.opening import dialect_of

    file = load_config(config)
    if not dialect_of(file.store_url).exists():
        raise StorageError("there is no store yet, and so nothing to look through")
    return file


def _progress(verb: str) -> Any:
    """Return what tells a person at a terminal how far a long work is."""
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
