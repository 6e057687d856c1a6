"""`internet_search` against a server on loopback."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import tracemalloc
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.engine.support import wild
from wick_graph import Agent
from wick_graph.cli.app import call
from wick_graph.config import SearchConfig, parse_config
from wick_graph.errors import ConfigError, ToolError
from wick_graph.testing import ScriptedModel
from wick_graph.tools import builtin
from wick_graph.tools.builtin_tools import MAX_ANSWER_BYTES, MAX_RESULTS, _asked, trimmed

SECRET = "sk-very-secret"


class Service:
    """A search service: what it was asked, and what it will answer."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.status = 200
        self.body = b'{"results": [{"title": "T", "url": "http://x", "content": "C"}]}'
        self.headers: dict[str, str] = {}
        self.url = ""


@pytest.fixture
def service() -> Iterator[Service]:
    made = Service()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            url = urlsplit(self.path)
            made.asked.append(
                {
                    "method": self.command,
                    "path": url.path,
                    "query": parse_qs(url.query),
                    "key": self.headers.get("Authorization"),
                    "body": json.loads(self.rfile.read(length) or "null"),
                }
            )
            self.send_response(made.status)
            for name, value in made.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(made.body)))
            self.end_headers()
            try:
                self.wfile.write(made.body)
            except OSError:  # the client had enough
                self.close_connection = True

        do_GET = do_POST = answer

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield made
    server.shutdown()
    thread.join()
    server.server_close()


def config_of(search: str, env: dict[str, str] | None = None) -> Any:
    text = f"agents:\n  default:\n    tools: [internet_search]\n    search: {search}\n"
    file = parse_config(text, source="agents.yaml", base_dir=Path.cwd(), env=env or {})
    return file.agent().search


def search(setting: Any, query: str = "wicks & wax") -> Any:
    (tool,) = builtin(["internet_search"], Path(), search=setting)
    return tool.call({"query": query}, None)  # type: ignore[arg-type]  # needs no context


def test_a_query_is_asked_and_the_results_are_read(service: Service) -> None:
    env = {"URL": f"{service.url}/find?format=json", "KEY": SECRET}
    setting = config_of("{url: '${URL}', api_key: '${KEY}'}", env)
    assert search(setting) == [{"title": "T", "url": "http://x", "text": "C"}]
    assert service.asked == [
        {
            "method": "GET",
            "path": "/find",
            "query": {"format": ["json"], "q": ["wicks & wax"]},
            "key": f"Bearer {SECRET}",
            "body": None,
        }
    ]
    assert SECRET not in repr(setting)


def test_a_query_can_be_posted(service: Service) -> None:
    search(config_of(f"{{url: '{service.url}', method: POST}}"))
    (asked,) = service.asked
    assert (asked["method"], asked["body"], asked["key"]) == ("POST", {"q": "wicks & wax"}, None)


def test_the_model_reads_what_was_found(service: Service) -> None:
    setting = config_of(f"{{url: '{service.url}'}}")
    tools = builtin(["internet_search"], Path(), search=setting)
    agent = Agent(model=ScriptedModel([wild("internet_search", q="x"), "Done."]), tools=tools)
    (called,) = agent.invoke("Go").tool_calls
    assert json.loads(called["output"]) == [{"title": "T", "url": "http://x", "text": "C"}]


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (500, b"{}", "answered with status 500"),
        (401, SECRET.encode(), "answered with status 401"),
        (302, b"{}", "answered with status 302"),
        (200, b"<html>", "did not send JSON"),
        (200, b"\xff", "did not send JSON"),
        (200, b"[" * 100_000, "did not send JSON"),
        (200, b'{"answer": 1}', "without a list of results"),
        (200, b"3", "without a list of results"),
        (200, b" " * (MAX_ANSWER_BYTES + 1), "sent more than 2 MB"),
    ],
)
def test_what_the_service_does_wrong_is_one_sentence(
    service: Service, status: int, body: bytes, says: str
) -> None:
    service.status, service.body = status, body
    service.headers = {"Location": f"{service.url}/elsewhere"}
    with pytest.raises(ToolError, match=says) as failed:
        search(config_of(f"{{url: '{service.url}', api_key: {SECRET}}}"))
    assert service.url not in str(failed.value)
    assert SECRET not in str(failed.value)
    assert len(service.asked) == 1, "a redirect is not followed"


@pytest.mark.parametrize(
    ("encoding", "body", "says"),
    [
        ("gzip", gzip.compress(b"[" + b" " * 2**26 + b"]"), "more than 2 MB"),
        ("br", b"x", "was not requested"),
        ("identity", b'{"results": [' + b"[]," * 600_000 + b"1]}", "keys and items"),
    ],
    ids=["gzip", "br", "identity"],  # the bytes of gzip have the time in them
)
def test_a_bomb_is_stopped_as_it_unfolds(
    service: Service, encoding: str, body: bytes, says: str
) -> None:
    service.headers = {"Content-Encoding": encoding} if encoding != "identity" else {}
    service.body = body
    search = SearchConfig(url=service.url)
    tracemalloc.start()
    try:
        with pytest.raises(ToolError, match=says):
            _asked(search, "x")
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 16 * 2**20


def test_a_compressed_answer_is_read(service: Service) -> None:
    service.headers, service.body = {"Content-Encoding": "gzip"}, gzip.compress(service.body)
    assert _asked(SearchConfig(url=service.url), "x")["results"][0]["title"] == "T"


def test_a_service_that_is_not_there_is_one_sentence() -> None:
    with pytest.raises(ToolError, match=r"cannot be reached \(ConnectError\)"):
        search(config_of("{url: 'http://127.0.0.1:1'}"))


def test_a_service_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wick_graph.tools.builtin_tools.MAX_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(ToolError, match="did not answer within"):
            search(config_of(f"{{url: 'http://127.0.0.1:{port}'}}"))


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ([{"name": "N", "link": "L", "snippet": "S"}], [{"title": "N", "url": "L", "text": "S"}]),
        ({"web": {"results": [{"title": "T", "description": "D"}]}}, [{"title": "T", "text": "D"}]),
        ({"organic": [{"href": "H", "body": " a \n b "}]}, [{"url": "H", "text": "a b"}]),
        ({"items": []}, []),
        ({"data": [3, None, {}, {"title": 3}, {"title": "T"}]}, [{"title": "T"}]),
    ],
)
def test_the_forms_of_services_are_read(answer: Any, expected: Any) -> None:
    assert trimmed(answer) == expected


def test_results_are_cut() -> None:
    many = trimmed([{"title": "t" * 9_000, "url": "u" * 9_000, "text": "x " * 9_000}] * 50)
    assert len(many) == MAX_RESULTS
    assert {name: len(text) for name, text in many[0].items()} == {
        "title": 200,
        "url": 2_000,
        "text": 600,
    }


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("{url: 'ftp://x'}", "agents.default.search.url: must be a URL"),
        ("{key: x}", "agents.default.search.url: is missing"),
        ("{url: 'http://x', apikey: y}", "search.apikey: unknown key; did you mean api_key?"),
        ("{url: 'http://x', method: PUT}", "search.method: must be GET or POST"),
        ("{url: '${NOWHERE}'}", "the environment variable NOWHERE is not set"),
        ("http://x", "agents.default.search: must be a block of keys"),
    ],
)
def test_a_wrong_setting_is_named(setting: str, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        config_of(setting)
    assert says in str(refused.value)


def test_a_tool_without_its_endpoint_is_refused_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "agents:\n  default:\n    model: scripted:demo\n    tools: [internet_search]\n"
    Path("agents.yaml").write_text(text, "utf-8")
    for command in (["run", "Hi"], ["validate"]):
        assert call(command) == 2
        assert capsys.readouterr().err == (
            "wick: agents.yaml:4: agents.default.tools: internet_search needs an endpoint to ask; "
            "add search: {url: https://…} to the agent\n"
        )
