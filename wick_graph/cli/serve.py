"""`wick serve`: the agents over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import typer

from wick_graph.cli import output
from wick_graph.cli.agents import DEFAULT_FILE
from wick_graph.constants import DEFAULT_PORT

_HOST: Final[Any] = typer.Option("--host", metavar="ADDRESS", help="Where to listen.")
_PORT: Final[Any] = typer.Option("--port", metavar="PORT", min=0, max=65535, help="0 takes any.")
_NO_AUTH: Final[Any] = typer.Option(
    "--no-auth", help="Ask for no token; only on a loopback address."
)
_ALLOW_HOST: Final[Any] = typer.Option(
    "--allow-host", metavar="NAME", help="A name under which the server is reached."
)
_ALLOW_ORIGIN: Final[Any] = typer.Option(
    "--allow-origin", metavar="ORIGIN", help="A page's origin that may use the server."
)
_DRAIN: Final[Any] = typer.Option(
    "--drain", metavar="SECONDS", min=0, help="For running steps to end after SIGTERM."
)
_HEADER: Final[Any] = typer.Option(
    "--header-timeout", metavar="SECONDS", min=0.1, help="For a request's head, or its body."
)
_RATE: Final[Any] = typer.Option(
    "--requests-per-minute", metavar="N", min=1, help="Of one token, or address, at most."
)
_RELOAD: Final[Any] = typer.Option("--reload", help="Read the file anew when it changes.")


def serve(
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    host: Annotated[str, _HOST] = "127.0.0.1",
    port: Annotated[int, _PORT] = DEFAULT_PORT,
    no_auth: Annotated[bool, _NO_AUTH] = False,
    allow_host: Annotated[list[str] | None, _ALLOW_HOST] = None,
    allow_origin: Annotated[list[str] | None, _ALLOW_ORIGIN] = None,
    drain: Annotated[float, _DRAIN] = 20.0,
    header_timeout: Annotated[float, _HEADER] = 10.0,
    requests_per_minute: Annotated[int, _RATE] = 6_000,
    reload: Annotated[bool, _RELOAD] = False,
    model: Annotated[str | None, output.MODEL] = None,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Serve the agents over HTTP until SIGTERM or Ctrl-C.

    Asks for a token (`wick token create`); runs go on without their readers, and after a crash.
    """
    from wick_graph.config import load_config
    from wick_graph.errors import ConfigError

    try:
        from wick_graph.server import Limits, ServerOptions, Service
        from wick_graph.server.serving import serve as serve_forever
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"wick serve needs {error.name}; install it with: pip install 'wick-graph[server]'"
        ) from None
    options = ServerOptions(
        host=host,
        port=port,
        auth=not no_auth,
        allowed_hosts=tuple(allow_host or ()),
        allowed_origins=tuple(allow_origin or ()),
        reload=reload,
        limits=Limits(drain=drain, header=header_timeout, requests_per_minute=requests_per_minute),
    )
    service = Service(load_config(config), options, model=model, path=config)

    def ready(address: str) -> None:
        output.say(f"serving {', '.join(service.local.agents)} on {address}, {_terms(service)}")

    serve_forever(service, ready=ready)


def _terms(service: Any) -> str:
    """Say who may use it, and what its agents may do here."""
    levels = sorted({level for level in service.sandbox_levels() if level})
    runs = f"commands run at level {', '.join(levels)}" if levels else "no agent runs commands"
    if not service.options.auth:
        return f"without tokens, {runs}"
    known = sum(1 for token in service.tokens.list() if token.revoked is None)
    made = f"{known} of them" if known else "none yet: wick token create"
    return f"with tokens ({made}), {runs}"
