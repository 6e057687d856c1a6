"""`wick serve`, `tools`, `mcp`, `acp`, `token`: servers and their access tokens."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from wick_graph.cli import output
from wick_graph.cli.select import (
    DEFAULT_FILE,
    AgentArgument,
    from_code,
    load_trusted,
    opened,
    pick,
    take_target,
    trusted_file,
)
from wick_graph.cli.select import target as code_named
from wick_graph.constants import DEFAULT_PORT

if TYPE_CHECKING:
    from wick_graph.loading import Agents
    from wick_graph.store import SqlSaver
    from wick_graph.store.server_rows import TokenInfo


# --- `wick token create|list|revoke`: access tokens of the server.


token_app = typer.Typer(
    help="Manage access tokens of the server.", no_args_is_help=True, rich_markup_mode=None
)

_TENANT: Final[Any] = typer.Option(
    "--tenant", metavar="NAME", help="The tenant that the token belongs to."
)

_SCOPE: Final[Any] = typer.Option(
    "--scope", help="read, run, approve, debug, several as run,approve, or admin (all)."
)

_NAME: Final[Any] = typer.Option("--name", help="Name of the token in listings.")

_FOR: Final[Any] = typer.Option("--for", metavar="TIME", help="Lifetime, such as 30d, or never.")

_OUT: Final[Any] = typer.Option(
    "--out", metavar="FILE", help="Write the token to this new file, readable by you only."
)

_ID: Final[Any] = typer.Argument(metavar="ID", help="The token's id, or the token itself.")


@token_app.command("create")
def create(
    tenant: Annotated[str, _TENANT] = "local",
    scope: Annotated[str, _SCOPE] = "run",
    name: Annotated[str, _NAME] = "",
    lasts: Annotated[str, _FOR] = "never",
    out: Annotated[Path | None, _OUT] = None,
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    app: Annotated[str | None, output.APP] = None,
    as_json: Annotated[bool, output.AS_JSON] = False,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Create a token and print it once; only its hash is stored."""
    import os

    from wick_graph.durations import seconds
    from wick_graph.errors import ConfigError

    if (time := seconds(lasts)) == 0:
        raise ConfigError("a token for 0 s would never work; give it longer, such as --for 1h")
    with _new_file(out) as file, _store(config) as store:
        token, info = store.tokens.create(tenant, name=name, scope=scope, lasts=time)
        if file is not None:
            try:
                os.write(file, f"{token}\n".encode("ascii"))
            except OSError as error:
                store.tokens.revoke(info.id)
                raise ConfigError(f"cannot write {out}: {error.strerror}") from None
    if as_json:
        shown = {} if out is not None else {"token": token}
        output.print_json({**facts(info), **shown})
    elif out is None:
        output.print_line(token)


@token_app.command("list")
def list_tokens(
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    app: Annotated[str | None, output.APP] = None,
    as_json: Annotated[bool, output.AS_JSON] = False,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """List the tokens without their secrets."""
    with _store(config) as store:
        found = [facts(info) for info in store.tokens.list()]
    if as_json:
        output.print_json(found)
        return
    for info in found:
        state = "revoked" if info["revoked"] else f"until {info['expires'] or 'revoked'}"
        name = f"  {' '.join(info['name'].split())}" if info["name"] else ""
        output.print_line(f"{info['id']}  {info['tenant']}  {info['scope']}  {state}{name}")


@token_app.command("revoke")
def revoke(
    token: Annotated[str, _ID],
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    app: Annotated[str | None, output.APP] = None,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Revoke a token at once."""
    from wick_graph.errors import ConfigError

    with _store(config) as store:
        if not store.tokens.revoke(token):
            raise ConfigError("there is no such token; see wick token list")


def facts(info: TokenInfo) -> dict[str, Any]:
    """Return what is known of a token as plain data."""
    return {
        "id": info.id,
        "tenant": info.tenant,
        "name": info.name,
        "scope": info.scope,
        "created": info.created.isoformat(),
        "expires": None if info.expires is None else info.expires.isoformat(),
        "revoked": None if info.revoked is None else info.revoked.isoformat(),
    }


@contextmanager
def _new_file(path: Path | None) -> Iterator[int | None]:
    """Yield a new file, open, that only its owner can read; it goes again if the block fails.

    It is made before the token, so that each token that is stored reaches its owner.
    """
    import os

    from wick_graph.errors import ConfigError

    if path is None:
        yield None
        return
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None
    try:
        yield handle
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(handle)


@contextmanager
def _store(config: Path) -> Iterator[SqlSaver]:
    with opened(config, make=True) as store:
        assert store is not None  # it is made
        yield store


# --- `wick mcp`: the agents as an MCP server.


_SERVED: Final[Any] = typer.Argument(
    metavar="[TARGET]",
    help="Agents made in Python: module:name or file.py:name.  [default: those of the file]",
    show_default=False,
)

_MCP_PORT: Final[Any] = typer.Option(
    "--port",
    metavar="PORT",
    min=1,
    max=65535,
    help="Serve HTTP on this port of 127.0.0.1, at /mcp, instead of standard input and output.",
)


def mcp(
    target: Annotated[str | None, _SERVED] = None,
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    port: Annotated[int | None, _MCP_PORT] = None,
    model: Annotated[str | None, output.MODEL] = None,
    trust: Annotated[bool, output.TRUST] = False,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Run an MCP server that offers each agent as a tool."""
    from wick_graph.errors import ConfigError, missing_extra
    from wick_graph.machine import listener

    try:
        from wick_graph.protocols.mcp import mcp_server
    except ImportError:
        raise ConfigError(missing_extra("wick mcp", "the MCP SDK", "mcp")) from None
    take_served(target)
    with load_trusted(config, model=model, trust=trust) as agents:
        _check_contexts(agents)
        server = mcp_server(agents, _outputs(agents))
        if port is None:
            server.run("stdio")
        else:
            listener("127.0.0.1", port).close()  # the SDK says in its own way that it is taken
            server.run("streamable-http", host="127.0.0.1", port=port)


def _outputs(agents: Agents) -> dict[str, Any]:
    """Return what the agents give in place of texts, by id, without building the agents."""
    from wick_graph.hooks.from_config import output_of
    from wick_graph.models.structured import Output

    made: dict[str, Any] = {}
    for agent_id in agents:
        if (agent := agents.given.get(agent_id)) is not None:
            made[agent_id] = agent.spec.output
        elif options := output_of(agent_id, agents.config):
            made[agent_id] = Output(*options.values())
    return {agent_id: output for agent_id, output in made.items() if output is not None}


def _check_contexts(agents: Agents) -> None:
    """Refuse an agent that needs a context: MCP's callers give none.

    Raises:
        ConfigError: One does.
    """
    from wick_graph.core.context import ContextSchema
    from wick_graph.errors import ConfigError
    from wick_graph.loading import code_loader

    for agent_id in agents:
        if (agent := agents.given.get(agent_id)) is not None:
            schema = agent.spec.context
        else:
            config = agents.config.agent(agent_id).context
            use = config and code_loader(agent_id, agents.config)(config.use)
            schema = ContextSchema.of(use) if use is not None else None
        try:
            if schema is not None:
                schema.read(agent_id, None)
        except ConfigError as error:
            why = str(error).removesuffix("; pass context=")
            raise ConfigError(
                f"{why}; over MCP no caller gives one, so give its fields defaults"
            ) from None


# --- `wick acp`: the agents in an editor.


def acp(
    agent: AgentArgument = None,
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    model: Annotated[str | None, output.MODEL] = None,
    trust: Annotated[bool, output.TRUST] = False,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Speak the Agent Client Protocol with the editor that starts this command.

    Without AGENT, the editor offers all agents of the file as modes of a session.
    """
    from wick_graph.errors import ConfigError, missing_extra

    try:
        from wick_graph.protocols.acp import serve as answer
        from wick_graph.protocols.streams import StandardStreams
    except ImportError:
        raise ConfigError(missing_extra("wick acp", "the ACP SDK", "acp")) from None
    from wick_graph.service import service as services
    from wick_graph.service.options import ServerOptions

    streams = StandardStreams()  # before anything that may print is loaded
    agent_id = take_target(agent)
    options = ServerOptions(auth=False)
    service = served(services, code_named(), options, config, model, trust=trust)
    chosen = None if agent_id is None else pick(agent_id, service.file)
    with output.terminable():
        asyncio.run(answer(service, chosen, streams))


# --- `wick tools`: Python functions as tools that agents elsewhere call over HTTP.


PORT: Final = 9100

tools_app = typer.Typer(
    help="Serve Python functions as tools.", no_args_is_help=True, rich_markup_mode=None
)

_HOST: Final[Any] = typer.Option("--host", metavar="ADDRESS", help="Address to listen on.")

_PORT: Final[Any] = typer.Option(
    "--port", metavar="PORT", min=0, max=65535, help="Port to listen on; 0 picks a free one."
)


@tools_app.callback()
def tools() -> None:
    """Serve Python functions as tools."""


@tools_app.command("serve")
def serve_tools(
    module: Annotated[
        str, typer.Argument(metavar="MODULE", help="A file or a module.", show_default=False)
    ],
    host: Annotated[str, _HOST] = "127.0.0.1",
    port: Annotated[int, _PORT] = PORT,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Serve a module's functions as tools until SIGTERM or Ctrl-C.

    MODULE is a file such as tools.py or a module name, optionally followed by :FUNCTION. Without
    FUNCTION, every function marked with @tool is served; if none is, every public function.
    Register them with `wick serve` by POST /agents/tools/register. No token is required: anyone
    who can reach the port may call the tools.
    """
    from wick_graph.errors import ConfigError, missing_extra

    try:
        from wick_graph.server.tool_server import serve_tools
        from wick_graph.service.options import is_loopback
    except ModuleNotFoundError as error:
        name = str(error.name)
        raise ConfigError(missing_extra("wick tools serve", name, "server")) from None

    def ready(names: Sequence[str], origin: str) -> None:
        output.say(f"serving {', '.join(names)} on {origin}")
        if is_loopback(host):
            output.say(f"agents call them once {origin} is allowed: wick serve --allow-callback")
        else:
            output.say("they ask for no token: anyone who can reach this address may call them")

    serve_tools(functions(module), host, port, ready)


def functions(target: str) -> list[Any]:
    """Return the functions of a target: `tools.py`, `package.module`, or either with `:name`.

    Raises:
        ConfigError: The module or name does not exist, cannot be loaded, or has no function.
    """
    from wick_graph.errors import ConfigError
    from wick_graph.targets import load_module
    from wick_graph.tools import FuncTool

    place, _, name = target.partition(":")
    module = load_module(place)
    if name:
        if not hasattr(module, name):
            raise ConfigError(f"{place} has no {name}")
        return [getattr(module, name)]
    values = [value for key, value in vars(module).items() if not key.startswith("_")]
    found: list[Any] = [value for value in values if isinstance(value, FuncTool)]
    if not found:
        own = (value for value in values if inspect.isfunction(value))
        found = [value for value in own if value.__module__ == module.__name__]
    if not found:
        raise ConfigError(f"{place} has no public function; write one, or mark one with @tool")
    return found


# --- `wick serve`: the agents over HTTP.


_NO_AUTH: Final[Any] = typer.Option(
    "--no-auth", help="Do not require a token; only on a loopback address."
)

_ALLOW_HOST: Final[Any] = typer.Option(
    "--allow-host", metavar="NAME", help="Accept requests for this host name. Repeatable."
)

_ALLOW_ORIGIN: Final[Any] = typer.Option(
    "--allow-origin", metavar="ORIGIN", help="Allow web pages of this origin. Repeatable."
)

_ALLOW_CALLBACK: Final[Any] = typer.Option(
    "--allow-callback",
    metavar="ORIGIN",
    help="Allow HTTP tools at this private origin, such as http://127.0.0.1:9100. Repeatable.",
)

_DRAIN: Final[Any] = typer.Option(
    "--drain", metavar="SECONDS", min=0, help="Seconds for running steps to end after SIGTERM."
)

_HEADER: Final[Any] = typer.Option(
    "--header-timeout",
    metavar="SECONDS",
    min=0.1,
    help="Seconds for a client to send a request's headers, and again for its body.",
)

_PING: Final[Any] = typer.Option(
    "--ping", metavar="SECONDS", min=0.1, help="Seconds between pings on a silent stream."
)

_SEND: Final[Any] = typer.Option(
    "--send-timeout",
    metavar="SECONDS",
    min=0.1,
    help="Seconds before a stalled client is disconnected.",
)

_RATE: Final[Any] = typer.Option(
    "--requests-per-minute",
    metavar="N",
    min=1,
    help="Requests allowed per token, or per address without tokens.",
)

_ON_DISCONNECT: Final[Any] = typer.Option(
    "--on-disconnect",
    metavar="continue|cancel",
    help="What to do with a run when its client disconnects, unless the request says.",
)

_OTEL: Final[Any] = typer.Option(
    "--otel", help="Export traces with OpenTelemetry; configure it with the OTEL_… variables."
)

_WORKERS: Final[Any] = typer.Option(
    "--workers",
    metavar="embedded|external",
    help="Who executes runs: the server, or `wick worker`.  [default: workers.mode, embedded]",
)

_RELOAD: Final[Any] = typer.Option(
    "--reload", help="Reload the configuration file when it changes."
)


def serve(
    target: Annotated[str | None, _SERVED] = None,
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
    workers: Annotated[str | None, _WORKERS] = None,
    model: Annotated[str | None, output.MODEL] = None,
    trust: Annotated[bool, output.TRUST] = False,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Serve the agents over HTTP until SIGTERM or Ctrl-C.

    Clients need a token (`wick token create`). Runs continue when their client disconnects, and
    after a crash of the server.
    """
    from wick_graph.errors import ConfigError

    server = server_package("wick serve")
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
    take_served(target)
    if target is not None and reload:
        raise ConfigError("--reload reloads a file; restart the server to reload Python")
    service = served(server, target, options, config, model, trust=trust, workers=workers)

    def ready(address: str) -> None:
        output.say(f"serving {', '.join(service.local.agents)} on {address}, {_terms(service)}")

    server.process.serve(server.create_app(service), service, ready=ready)


def served(
    server: Any,
    target: str | None,
    options: Any,
    config: Path,
    model: str | None,
    *,
    trust: bool,
    workers: str | None = None,
) -> Any:
    """Build the service for the agents of the target, else of the file.

    Raises:
        ConfigError: Workers cannot execute the runs.
    """
    from wick_graph.errors import ConfigError

    if workers not in (None, "embedded", "external"):
        raise ConfigError(f"--workers is embedded or external, not {workers!r:.40}")
    if target is None:
        file = trusted_file(config, trust=trust)
        queue = None
        if (workers or file.workers.mode) == "external":
            from wick_graph.cli.worker import queue_of

            queue = queue_of(file)
        return server.Service(file, options, model=model, path=config, queue=queue)
    if workers == "external":
        raise ConfigError("workers read agents from a file; drop --workers, or serve a file")
    agents = from_code(model, trust=trust)
    return server.Service(
        agents.config, options, model=agents.model, given=agents.given, tools=agents.tools
    )


def take_served(target: str | None) -> None:
    """Take agents made in Python.

    Raises:
        ConfigError: The argument is not a target, or names one agent of several.
    """
    from wick_graph.errors import ConfigError

    if target is None:
        return
    one = take_target(target)
    if (source := code_named()) is None:
        raise ConfigError(f"{target!r:.80} is not a target; write module:name or file.py:name")
    if one is not None:
        raise ConfigError(f"all agents of {source} are served; leave #{one} out")


def server_package(command: str) -> Any:
    """Return the package of the server, which is optional.

    Raises:
        ConfigError: A library that it needs is not installed.
    """
    from wick_graph.errors import ConfigError, missing_extra

    try:
        import wick_graph.server.process
    except ModuleNotFoundError as error:
        raise ConfigError(missing_extra(command, str(error.name), "server")) from None
    return wick_graph.server


def _terms(service: Any) -> str:
    """Describe who may use the server, and how its agents may run commands."""
    levels = sorted({level for level in service.sandbox_levels() if level})
    runs = f"commands run at level {', '.join(levels)}" if levels else "no agent runs commands"
    if not service.options.auth:
        return f"without tokens, {runs}"
    known = sum(1 for token in service.tokens.list() if token.revoked is None)
    made = f"{known} of them" if known else "none yet: wick token create"
    return f"with tokens ({made}), {runs}"
