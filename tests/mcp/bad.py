"""MCP servers that break something: `python bad.py HOW [port]`; without a port over stdio."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

MEGABYTES = 150
TOOLS = [{"name": "big", "description": "Say much.", "inputSchema": {"type": "object"}}]


def answer(request: dict[str, Any], how: str) -> bytes:
    """Answer the questions of a session well, and a call as `how` says."""
    method, number = request.get("method"), request.get("id")
    if method == "initialize":
        version = request["params"]["protocolVersion"]
        about = {"name": "bad", "version": "1"}
        result: Any = {
            "protocolVersion": version,
            "capabilities": {"tools": {}},
            "serverInfo": about,
        }
    elif method == "tools/list":
        result = {"tools": TOOLS}
        if how == "list":
            many = [{**TOOLS[0], "name": f"t{n}", "description": "x" * 1_000} for n in range(2_000)]
            result = {"tools": many, "nextCursor": "more"}
    elif method == "tools/call":
        text = "x" * (MEGABYTES * 2**20) if how == "huge" else "fine"
        result = {"content": [{"type": "text", "text": text}]}
        if how == "parts":
            result["_meta"] = {"x": [[]] * 500_000}
    elif number is None:
        return b""
    else:  # whoever asks a server of today's versions first would wait ten seconds for silence
        error = {"code": -32601, "message": "Method not found"}
        return json.dumps({"jsonrpc": "2.0", "id": number, "error": error}).encode() + b"\n"
    return json.dumps({"jsonrpc": "2.0", "id": number, "result": result}).encode() + b"\n"


def over_stdio(how: str) -> None:
    """Speak over standard input and output."""
    if how == "garbage":
        sys.stdout.write("this is no JSON\n" * 1_000)
    if how == "stays":
        Path("pid").write_text(str(os.getpid()), "ascii")
    for line in sys.stdin:
        request = json.loads(line)
        if how == "hang":
            time.sleep(3_600)
        if how in ("endless", "flood") and request.get("method") == "tools/call":
            note = {
                "jsonrpc": "2.0",
                "method": "notifications/message",
                "params": {"data": 1},
            }
            piece = json.dumps(note) + "\n" if how == "flood" else "x" * 65_536
            while True:
                sys.stdout.write(piece)
        if how == "dies" and request.get("method") == "tools/list":
            sys.exit(1)
        sys.stdout.write(answer(request, how).decode())
        sys.stdout.flush()
    if how == "stays":
        time.sleep(3_600)


class Handler(BaseHTTPRequestHandler):
    """Speak over HTTP."""

    how = ""

    def do_POST(self) -> None:
        """Answer a message."""
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.how == "hang":
            time.sleep(3_600)
        body = answer(request, self.how)
        self.send_response(200 if body else 202)
        self.send_header("Content-Type", "application/json")
        if self.how == "encoded":
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


if __name__ == "__main__":
    if len(sys.argv) > 2:
        Handler.how = sys.argv[1]
        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        print(server.server_port, flush=True)
        threading.Thread(target=server.serve_forever).start()
    else:
        over_stdio(sys.argv[1])
