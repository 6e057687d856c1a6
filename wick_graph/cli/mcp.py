"""`wick mcp`: the agents as an MCP server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import typer

from wick_graph.cli import output
from wick_graph.cli.agents import DEFAULT_FILE
from wick_graph.cli.trusting import load_trusted

_PORT: Final[Any] = typer.Option(
    "--port",
    metavar="PORT",
    min=1,
    max=65535,
    help="Speak HTTP on this port of 127.0.0.1, at /mcp, not standard input and output.",
)


def mcp(
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    port: Annotated[int | None, _PORT] = None,
    model: Annotated[str | None, output.MODEL] = None,
    trust: Annotated[bool, output.TRUST] = False,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Be an MCP server whose tools are the agents."""
    from wick_graph.errors import ConfigError

    try:
        from wick_graph.mcp.face import face
    except ImportError:
        raise ConfigError('wick mcp needs the MCP SDK; pip install "wick-graph[mcp]"') from None
    with load_trusted(config, model=model, trust=trust) as agents:
        if port is None:
            face(agents).run("stdio")
        else:
            face(agents).run("streamable-http", host="127.0.0.1", port=port)
