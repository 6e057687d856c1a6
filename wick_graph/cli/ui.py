"""`wick ui`: the page in the browser, over a server on loopback."""

from __future__ import annotations

import sys
import webbrowser
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from wick_graph.cli import output
from wick_graph.cli.recorded import graph_named
from wick_graph.cli.select import DEFAULT_FILE, known
from wick_graph.cli.serve import served, server_package, take_served

if TYPE_CHECKING:
    from wick_graph.server.sign_in import Signed

_WHAT: Final[Any] = typer.Argument(
    metavar="[FILE|TARGET]",
    help="A .wickrun file, or agents made in Python: module:name.  [default: agents.yaml]",
    show_default=False,
)

_THREAD: Final[Any] = typer.Option("--thread", "-t", metavar="ID", help="Show this thread.")

_PORT: Final[Any] = typer.Option(
    "--port", metavar="PORT", min=0, max=65535, help="Port of 127.0.0.1; 0 picks a free one."
)

_OPEN: Final[Any] = typer.Option(
    "--open/--no-open", help="Open the browser.  [default: at a terminal]", show_default=False
)

_NONE: Final = "recording"
"""The agent of a server that only shows a file; a token that only reads cannot run it."""


def ui(
    target: Annotated[str | None, _WHAT] = None,
    thread: Annotated[str | None, _THREAD] = None,
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    port: Annotated[int, _PORT] = 0,
    open_browser: Annotated[bool | None, _OPEN] = None,
    model: Annotated[str | None, output.MODEL] = None,
    trust: Annotated[bool, output.TRUST] = False,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Show threads and runs in the browser until Ctrl-C.

    The address that it prints works once, for ten minutes. A .wickrun file is only shown; a
    LangGraph graph without messages runs in sessions of the debugger.
    """
    from wick_graph.engine.guest import lacks_messages
    from wick_graph.errors import ConfigError

    server = server_package("wick ui")
    options = server.ServerOptions(host="127.0.0.1", port=port)
    graphs: dict[str, Any] = {}
    with ExitStack() as stack:
        if target is not None and target.endswith(".wickrun"):
            if thread is not None:
                raise ConfigError("name a file or a thread, not both")
            service, signed, thread = _of_file(server, options, Path(target), stack)
        else:
            take_served(target)
            graph = graph_named(None) if target is not None else None
            if graph is not None and lacks_messages(graph):
                service = _of_graph(server, options, target or "")
                graphs[graph.get_name()] = graph
            else:
                service = served(server, target, options, config, model, trust=trust)
            signed = _signed("local", "admin")
            if thread is not None:
                thread = known(service.local.saver, thread)[1].thread_id
        app = server.create_app(service)
        app.state.graphs.update(graphs)

        def ready(address: str) -> None:
            link = f"{address}/ui/#link={app.state.sign_ins.link(signed)}"
            if thread is not None:
                link += f"&thread={thread}"
            output.say("the page is open at this address, once:")
            output.print_line(link)
            if output.is_terminal(sys.stdout) if open_browser is None else open_browser:
                webbrowser.open(link)

        server.process.serve(app, service, ready=ready)


def _of_file(server: Any, options: Any, path: Path, stack: ExitStack) -> tuple[Any, Signed, str]:
    """Serve a copy of a recording, which can only be read."""
    from wick_graph.config import AgentsFile
    from wick_graph.engine.agent import Agent
    from wick_graph.exports.wickrun import open_wickrun

    recording = stack.enter_context(open_wickrun(path))
    file = AgentsFile.of_code(path.name, {_NONE: _NONE}, recording.url)
    service = server.Service(file, options, given={_NONE: Agent(_NONE, "scripted:demo")})
    signed = _signed(str(recording.manifest.get("tenant") or "local"), "read")
    return service, signed, recording.thread_id


def _of_graph(server: Any, options: Any, target: str) -> Any:
    """Serve the recordings of a graph that is no agent; sessions of the debugger run it."""
    from wick_graph.config import AgentsFile
    from wick_graph.engine.agent import Agent
    from wick_graph.foreign.copies import RECORDED, open_store

    open_store(None).close()  # it makes the folder
    file = AgentsFile.of_code(target, {_NONE: _NONE}, f"sqlite:///{RECORDED}")
    return server.Service(file, options, given={_NONE: Agent(_NONE, "scripted:demo")})


def _signed(tenant: str, scope: str) -> Signed:
    from wick_graph.server.sign_in import Signed

    return Signed(tenant, scope, "")
