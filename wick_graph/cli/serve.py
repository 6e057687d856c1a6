"""`wick serve`: the agents over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import typer

from wick_graph.cli import output
from wick_graph.cli.agents import DEFAULT_FILE
from wick_graph.cli.trusting import trusted_file
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
_ALLOW_CALLBACK: Final[Any] = typer.Option(
    "--allow-callback",
    metavar="ORIGIN",
    help="Where HTTP tools may be though it is private, such as http://127.0.0.1:9100.",
)
_DRAIN: Final[Any] = typer.Option(
    "--drain", metavar="SECONDS", min=0, help="For running steps to end after SIGTERM."
)
_HEADER: Final[Any] = typer.Option(
    "--header-timeout", metavar="SECONDS", min=0.1, help="For a request's head, or its body."
)
_PING: Final[Any] = typer.Option(
    "--ping", metavar="SECONDS", min=0.1, help="Between comments on a stream that is silent."
)
_SEND: Final[Any] = typer.Option(
    "--send-timeout",
    metavar="SECONDS",
    min=0.1,
    help="Until a reader who takes nothing is cut off.",
)
_RATE: Final[Any] = typer.Option(
    "--requests-per-minute", metavar="N", min=1, help="Of one token, or address, at most."
)
_ON_DISCONNECT: Final[Any] = typer.Option(
    "--on-disconnect",
    metavar="continue|cancel",
    help="What becomes of a run whose reader leaves, where the request does not say.",
)
_OTEL: Final[Any] = typer.Option(
    "--otel", help="Send traces by OpenTelemetry, as the variables OTEL_… say."
)
_RELOAD: Final[Any] = typer.Option("--reload", help="Read the file anew when it changes.")


def serve(
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    host: Annotated[str, _HOST] = "127.0.0.1",
    port: Annotated[int, _PORT] = DEFAULT_PORT,
    no_auth: Annotated[bool, _NO_AUTH] = False,
    allow_host: Annotated[list[str] | None, _ALLOW_HOST] = None,
    allow_origin: Annotated[list[str] | None, _ALLOW_ORIGIN] = None,
    allow_callback: Annotated[list[str] | None, _ALLOW_CALLBACK] = None,
    drain: Annotated[float, _DRAIN] = 20.0,
    header_timeout: Annotated[float, _HEADER] = 10.0,
    ping: Annotated[float, _PING] = 15.0,
    send_timeout: Annotated[float, _SEND] = 30.0,
    requests_per_minute: Annotated[int, _RATE] = 6_000,
    on_disconnect: Annotated[str, _ON_DISCONNECT] = "continue",
    reload: Annotated[bool, _RELOAD] = False,
    otel: Annotated[bool, _OTEL] = False,
    model: Annotated[str | None, output.MODEL] = None,
    trust: Annotated[bool, output.TRUST] = False,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Serve the agents over HTTP until SIGTERM or Ctrl-C.

    Asks for a token (`wick token create`); runs go on without their readers, and after a crash.
    """
    server = _server()
    options = server.ServerOptions(
        host=host,
        port=port,
        auth=not no_auth,
        allowed_hosts=tuple(allow_host or ()),
        allowed_origins=tuple(allow_origin or ()),
        allowed_callbacks=tuple(allow_callback or ()),
        on_disconnect=on_disconnect,
        reload=reload,
        otel=otel,
        limits=server.Limits(
            drain=drain,
            header=header_timeout,
            ping=ping,
            send=send_timeout,
            requests_per_minute=requests_per_minute,
        ),
    )
    service = server.Service(trusted_file(config, trust=trust), options, model=model, path=config)

    def ready(address: str) -> None:
        output.say(f"serving {', '.join(service.local.agents)} on {address}, {_terms(service)}")

    server.serving.serve(service, ready=ready)


def _server() -> Any:
    """Return the package of the server, an optional part.

    Raises:
        ConfigError: What it is made with is not installed.
    """
    from wick_graph.errors import ConfigError

    try:
        import wick_graph.server.serving
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"wick serve needs {error.name}; install it with: pip install 'wick-graph[server]'"
        ) from None
    return wick_graph.server


def _terms(service: Any) -> str:
    """Say who may use it, and what its agents may do here."""
    levels = sorted({level for level in service.sandbox_levels() if level})
    runs = f"commands run at level {', '.join(levels)}" if levels else "no agent runs commands"
    if not service.options.auth:
        return f"without tokens, {runs}"
    known = sum(1 for token in service.tokens.list() if token.revoked is None)
    made = f"{known} of them" if known else "none yet: wick token create"
    return f"with tokens ({made}), {runs}"
