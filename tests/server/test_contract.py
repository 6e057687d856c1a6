"""The server against its own description: every operation, all checks, nothing left out."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute

from tests.server.support import Served, serving
from wick_graph.errors import ConfigError
from wick_graph.server import schemas
from wick_graph.server.app import ROUTES
from wick_graph.tools.http import HTTPTool

EXAMPLES = 50
AGENTS = """\
store: sqlite:///wick.db
defaults: {ttl: never, tools: [calculate]}
agents:
  default:
    model: scripted:demo
    backend: {type: local, workdir: ./files}
  careful: {model: 'scripted:demo', approvals: {calculate: true}}
"""
ENDLESS = (
    *("/agents/events", "/ui/api/v1/threads/{thread_id}/events"),
    *("/langgraph/threads/{thread_id}/stream", "/langgraph/threads/{thread_id}/stream/events"),
)
"""Streams without an end: `test_event_bus.py`, `test_page_api.py`, `test_langgraph.py`."""
NEW_TURNS = (
    "^/(langgraph/(threads/[^/]+/)?(runs(/wait|/stream|/batch)?|state)|(ag-ui|ai-sdk)/[^/]+)$"
)
"""What takes a whole conversation or state: which of it is new or fits, no schema can say."""
KNOWN = 60
"""Things of each kind that are there to be found: each is taken away, or answered, once."""


def found_by(served: Served, token: str) -> str:
    """Make what a caller may ask for, and a configuration that names it in half of the requests."""
    (served.path / "files" / "docs").mkdir(parents=True)
    for name in ("a.txt", "docs/b.txt"):
        (served.path / "files" / name).write_text("text\n", "utf-8")
    ask: Any = {"messages": [{"role": "user", "content": "What is 21*2?"}]}
    names: dict[str, list[str]] = {"tools": [], "questions": [], "threads": [], "runs": []}
    with served.http(token) as http:
        for number in range(KNOWN):
            name = f"weather{number}"
            tool = {"name": name, "description": "Say it.", "parameters": {}}
            address = {"callback_url": "https://tools.example.com"}
            for agent in (None, "default", "careful"):
                made = {**tool, **address, "agent_id": agent}
                assert http.post("/agents/tools/register", json=made).status_code == 200
            names["tools"].append(name)
            asked = http.post("/agents/careful/invoke", json=ask).json()
            thread = asked["thread_id"]
            names["questions"].append(http.get(f"/threads/{thread}/approvals").json()[0]["id"])
            done = http.post("/agents/default/invoke", json=ask).json()
            names["threads"].append(done["thread_id"])
            names["runs"].append(done["run_id"])
    names |= {"agents": ["default", "careful"], "paths": [".", "a.txt", "docs", "docs/b.txt"]}
    lines = [
        f"[dictionaries.{key}]\nvalues = {json.dumps(values)}\n" for key, values in names.items()
    ]
    bound = {
        "path.agent_id": "agents",
        "query.agent_id": "agents",
        "path.name": "tools",
        "path.request_id": "questions",
        "path.thread_id": "threads",
        "path.run_id": "runs",
        "path.trace_id": "runs",
        "path.model": "agents",
        "query.path": "paths",
        "body.agent_id": "agents",
        "body.model": "agents",
        "body.path": "paths",
    }
    lines.append("[parameters]")
    for key, name in bound.items():
        lines.append(f'"{key}" = {{ dictionary = "{name}", probability = 0.5 }}')
    # which result answers which call of the same chain, no schema can say
    for where in ('include-path = "/v1/chat/completions"', f'include-path-regex = "{NEW_TURNS}"'):
        lines.append(f"[[operations]]\n{where}")
        taken = '["2xx", "400", "401", "403", "404", "409", "429", "5xx"]'
        lines.append(f"checks.positive_data_acceptance.expected-statuses = {taken}")
        lines.append("warnings = false")  # that most lists of messages are no chain
    return "\n".join(lines) + "\n"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_N6_schemathesis_finds_nothing(tmp_path: Path) -> None:
    flags = ("--requests-per-minute", "10000000")
    with serving(tmp_path, *flags, agents=AGENTS) as served:
        token = served.wick("token", "create", "--scope", "admin")
        (tmp_path / "schemathesis.toml").write_text(found_by(served, token), "utf-8")
        with served.http(token) as http:
            paths = http.get("/openapi.json").json()["paths"]
        done = subprocess.run(
            [
                *(sys.executable, "-m", "schemathesis.cli"),
                *("--config-file", "schemathesis.toml", "run", f"{served.url}/openapi.json"),
                *("--header", f"Authorization: Bearer {token}"),
                *("--checks", "all", "--max-examples", str(EXAMPLES), "--continue-on-failure"),
                *(
                    *(word for path in ENDLESS for word in ("--exclude-path", path)),
                    "--seed",
                    "1",
                    "--workers",
                    "2",
                    "--generation-database",
                    ":memory:",
                ),
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=840,
        )
        with served.http() as http:
            health = http.get("/health").json()
    said = done.stdout[-30_000:] + done.stderr[-2_000:]
    print(done.stdout[-1_500:])
    assert done.returncode == 0, said
    assert "No issues found" in done.stdout, said
    count = sum(len(operations) for operations in paths.values())
    tested = count - len(ENDLESS)
    assert f"Selected: {tested}/{count}" in done.stdout, said
    assert f"Tested: {tested}" in done.stdout, said
    assert health == {"status": "ok"}


def test_N6_nothing_is_left_out_of_the_description(shared: Served) -> None:
    with shared.http() as http:
        paths = http.get("/openapi.json").json()["paths"]
    for route in (route for router in ROUTES for route in router.routes):
        assert isinstance(route, APIRoute)
        path = route.path.rstrip("/")  # a path with a slash at its end is the one without
        assert route.include_in_schema or path != route.path, route.path
        assert {method.lower() for method in route.methods or ()} <= set(paths[path]), route.path


@pytest.mark.parametrize(
    "url",
    [
        *("https://tools.example.com", "HTTP://a", "http://a:80/x", "http://[::1]:8080/a/b.c/"),
        *("http://127.0.0.1:65535", "http://a:00080", "https://a/.x/y.", "http://a_b-c.d/~!$%&'()"),
        *("", "http://", "https://-a", "ftp://a", "http://a:0", "http://a:00000", "http://a:65536"),
        *("http://a:100000", "http://u:p@a", "http://a/..", "http://a/b..c", "http://a?x", "//a"),
        *("http://a/x?y", "http://a/#x", "http://a/\\x", "http://a/x y", "http://ä", "http://a\n"),
        *("http://a:", "http://a/\x7f", "http://[::1", "http:///x", f"http://{'a' * 254}"),
    ],
)
def test_N6_the_description_takes_the_addresses_that_are_taken(url: str) -> None:
    try:
        HTTPTool(name="x", description="x", parameters={}, callback_url=url)
        taken = True
    except ConfigError:
        taken = False
    assert (re.fullmatch(schemas.ADDRESS.strip("^$"), url) is not None) == taken
