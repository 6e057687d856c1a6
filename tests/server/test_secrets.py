"""O1: what is secret leaves by no exit of the server, whatever it looks like."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.server.support import serving

pytestmark = pytest.mark.xdist_group("secrets")  # they share a server

ASK = {"messages": [{"role": "user", "content": "Hello"}]}
SECRETS = {
    "key": "correct horse battery staple",
    "pattern": "sk-canary-aaaaaaaaaaaaaaaaaaaaaaaa",
    "fallback": "second horse battery staple",
    "search": "third horse battery staple",
    "environment": "sixth horse battery staple",
    "exporter": "seventh-horse-battery-staple",
}
"""Most of them look like nothing: only whoever knows them can hide them."""
AGENTS = """\
store: sqlite:///wick.db
defaults: {journal: full}
agents:
  default:
    model:
      model: openai:gpt-x
      base_url: ADDRESS
      api_key: ${KEY}
      retries: 0
      fallbacks: [{model: 'openai:gpt-y', base_url: ADDRESS, api_key: '${FALLBACK}', retries: 0}]
  patterned:
    model: {model: 'openai:gpt-x', base_url: ADDRESS, api_key: '${PATTERN}', retries: 0}
  served:
    model: scripted:search.yaml
    tools: [internet_search]
    search: {url: ADDRESS, api_key: '${SEARCH}', method: POST}
  failing: {model: 'scripted:failing.yaml'}
"""


SEARCH = "steps: [{calls: [{tool: internet_search, args: {query: x}}]}, 'That was all.']"


class _Echo(http.server.BaseHTTPRequestHandler):
    """Say what was sent, as careless servers do in their errors."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        sent = self.headers.get("authorization", "")
        body = json.dumps({"error": {"message": f"Incorrect API key provided: {sent}"}}).encode()
        self.send_response(401)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class _Collector(http.server.BaseHTTPRequestHandler):
    got: bytes = b""

    def do_POST(self) -> None:
        type(self).got += self.rfile.read(int(self.headers["content-length"]))
        self.send_response(500)  # so that the sender logs something
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def answering(handler: type[http.server.BaseHTTPRequestHandler]) -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture(scope="module")
def exits(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Use a server in every way, and return all that came out of it, by the exit."""
    folder, found = tmp_path_factory.mktemp("secrets"), {}
    _Collector.got = b""
    with answering(_Echo) as echo, answering(_Collector) as collector:
        env = {name.upper(): secret for name, secret in SECRETS.items()}
        env |= {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector,
            "OTEL_EXPORTER_OTLP_HEADERS": f"x-key={SECRETS['exporter']}",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
        }
        failing = json.dumps({"steps": [{"error": f"RuntimeError: {SECRETS['pattern']}"}]})
        texts = {"agents": AGENTS.replace("ADDRESS", echo), "failing": failing, "search": SEARCH}
        with serving(folder, "--host", "127.0.0.1", "--otel", env=env, **texts) as served:
            token = served.wick("token", "create", "--scope", "admin")
            found["token"] = token.split("_", 2)[2]
            with served.http(token) as client:
                said: dict[str, list[str]] = {"answers": [], "events": [], "readings": []}
                paths = ["/openapi.json", "/metrics", "/agents", "/threads", "/agents/traces"]
                for agent in ("default", "patterned", "served", "failing"):
                    asked = client.post(f"/agents/{agent}/invoke", json=ASK)
                    said["answers"].append(asked.text)
                    told = client.post(f"/agents/{agent}/stream", json=ASK)
                    said["events"].append(told.text)
                    run, thread = told.headers["x-run-id"], told.headers["x-thread-id"]
                    paths += [f"/runs/{run}", f"/runs/{run}/events", f"/agents/traces/{run}"]
                    paths += [f"/threads/{thread}{at}" for at in ("", "/state", "/history")]
                    paths += [f"/threads/{thread}{at}" for at in ("/runs", "/events", "/journal")]
                    paths += [f"/agents/{agent}", f"/agents/{agent}/flow"]
                    paths.append(f"/agents/tools/available?agent_id={agent}")
                said["readings"] = [client.get(path).text for path in paths]
                for body in ("{", '{"messages": 5}'):
                    headers = {"Content-Type": "application/json"}
                    refused = client.post("/agents/invoke", content=body, headers=headers)
                    said["answers"].append(refused.text)
            found["log"] = served.stop()[1]
        found |= {name: "\n".join(texts) for name, texts in said.items()}
        found["traces"] = _Collector.got.decode("latin-1")
        rows = b"".join(path.read_bytes() for path in folder.glob("wick.db*"))
        found["database"] = rows.decode("latin-1")
    return found


EXITS = ("log", "answers", "events", "readings", "traces", "database")


@pytest.mark.sisters(4)
@pytest.mark.parametrize("exit", [pytest.param(name, id=f"O1-{name}") for name in EXITS])
def test_O1_no_secret_leaves(exits: dict[str, str], exit: str) -> None:
    text = exits[exit]
    assert text
    for name, secret in {**SECRETS, "token": exits["token"]}.items():
        at = text.find(secret)
        assert at < 0, f"{name}: …{text[max(0, at - 200) : at + 60]}…"


def test_O1_there_was_something_to_hide(exits: dict[str, str]) -> None:
    """The servers behind did say it; without this the tests above would prove nothing."""
    assert exits["answers"].count("[redacted: known secret]") >= 1
    assert exits["events"].count("[redacted: known secret]") >= 1
    assert "Incorrect API key" in exits["answers"]
    assert "chat" in exits["traces"]
