"""A real MCP server for tests: `python server.py [port]`; without a port it speaks over stdio."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from mcp.server.mcpserver import Image, MCPServer
from mcp.types import ToolAnnotations

app = MCPServer("tests")


@app.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: float, b: float) -> str:
    """Add two numbers."""
    return f"{a + b:g}"


@app.tool()
def whoami() -> str:
    """Say which process this is, and what it knows."""
    return (
        f"{os.getpid()} {os.environ.get('GREETING', '-')} {os.environ.get('SECRET_API_KEY', '-')}"
    )


@app.tool()
def die(marker: str) -> str:
    """Note that the call came, and die in the middle of it."""
    with Path(marker).open("a", encoding="utf-8") as file:
        file.write("x")
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


@app.tool()
def sleep(seconds: float) -> str:
    """Take one's time."""
    time.sleep(seconds)
    return "awake"


@app.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("no luck")


@app.tool()
def picture() -> Image:
    """Draw."""
    return Image(data=b"\x89PNG", format="png")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        app.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        app.run("stdio")
