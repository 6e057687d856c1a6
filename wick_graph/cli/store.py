"""`wick store key|rotate`: the keys of an encrypted store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import typer

from wick_graph.cli import output
from wick_graph.cli.agents import DEFAULT_FILE
from wick_graph.cli.stores import opened

app = typer.Typer(help="The keys of an encrypted store.", no_args_is_help=True)
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
