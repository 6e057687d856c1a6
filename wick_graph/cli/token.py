"""`wick token create|list|revoke`: who may speak to the server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from wick_graph.cli import output
from wick_graph.cli.agents import DEFAULT_FILE
from wick_graph.cli.stores import opened

if TYPE_CHECKING:
    from wick_graph.store import SqlSaver
    from wick_graph.store.keeping.tokens import TokenInfo

app = typer.Typer(help="Who may speak to the server.", no_args_is_help=True)
_TENANT: Final[Any] = typer.Option("--tenant", metavar="NAME", help="Whose threads it reaches.")
_SCOPE: Final[Any] = typer.Option(
    "--scope", help="read, run, approve, run,approve, or admin (all)."
)
_NAME: Final[Any] = typer.Option("--name", help="What to call it in listings.")
_FOR: Final[Any] = typer.Option("--for", metavar="TIME", help="How long it lasts: 30d, or never.")
_OUT: Final[Any] = typer.Option("--out", metavar="FILE", help="Write it to a file of your own.")
_ID: Final[Any] = typer.Argument(metavar="ID", help="The token's id, or the token itself.")


@app.command("create")
def create(
    tenant: Annotated[str, _TENANT] = "local",
    scope: Annotated[str, _SCOPE] = "run",
    name: Annotated[str, _NAME] = "",
    lasts: Annotated[str, _FOR] = "never",
    out: Annotated[Path | None, _OUT] = None,
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    as_json: Annotated[bool, output.AS_JSON] = False,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Make a token and print it, this once: only a hash of it is kept."""
    from wick_graph.config.durations import seconds

    with _store(config) as store:
        token, info = store.tokens.create(
            tenant,
            name=name,
            scope=scope,
            lasts=seconds(lasts),
        )
    if out is not None:
        _write(out, token)
    if as_json:
        shown = {} if out is not None else {"token": token}
        output.print_json({**facts(info), **shown})
    elif out is None:
        output.print_line(token)


@app.command("list")
def list_tokens(
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    as_json: Annotated[bool, output.AS_JSON] = False,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """List the tokens, without what it takes to use them."""
    with _store(config) as store:
        found = [facts(info) for info in store.tokens.list()]
    if as_json:
        output.print_json(found)
        return
    for info in found:
        state = "revoked" if info["revoked"] else f"until {info['expires'] or 'revoked'}"
        name = f"  {info['name']}" if info["name"] else ""
        output.print_line(f"{info['id']}  {info['tenant']}  {info['scope']}  {state}{name}")


@app.command("revoke")
def revoke(
    token: Annotated[str, _ID],
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """End a token at once."""
    from wick_graph.errors import ConfigError

    with _store(config) as store:
        if not store.tokens.revoke(token):
            raise ConfigError("there is no such token; see wick token list")


def facts(info: TokenInfo) -> dict[str, Any]:
    """Give what is known of a token as plain data."""
    return {
        "id": info.id,
        "tenant": info.tenant,
        "name": info.name,
        "scope": info.scope,
        "created": info.created.isoformat(),
        "expires": None if info.expires is None else info.expires.isoformat(),
        "revoked": None if info.revoked is None else info.revoked.isoformat(),
    }


def _write(path: Path, token: str) -> None:
    """Write a token to a new file that nobody else can read."""
    import os

    from wick_graph.errors import ConfigError

    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(token + "\n")


@contextmanager
def _store(config: Path) -> Iterator[SqlSaver]:
    with opened(config, make=True) as store:
        assert store is not None  # it is made
        yield store
