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
from jsonschema import Draft202012Validator
from pydantic import ValidationError

from tests.server.support import Served, serving
from wick_graph.errors import ConfigError
from wick_graph.server import schemas
from wick_graph.server.app import ROUTES
from wick_graph.server.protocols.a2a import RpcForm
from wick_graph.server.protocols.langgraph.asking import AskForm
from wick_graph.server.protocols.langgraph.protocol import OrderForm
from wick_graph.server.protocols.langgraph.threads import HistoryForm, ItemForm
from wick_graph.server.routes.agents import AgentForm
from wick_graph.server.routes.page import CommandForm
from wick_graph.server.schemas import Form, SkillForm
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
    *("/agents/events", "/ui/api/v1/stream"),
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
    # which result answers which call of the same chain, no schema can say, nor that the file of a
    # skill names it as the address does
    for where in (
        'include-path = "/v1/chat/completions"',
        f'include-path-regex = "{NEW_TURNS}"',
        'include-path = "/skills/{name}"\ninclude-method = "PUT"',
    ):
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


def test_N6_the_description_names_bounds_as_json_schema_does(shared: Served) -> None:
    with shared.http() as http:
        described = http.get("/openapi.json").json()
    level: list[Any] = [described]
    for part in level:
        if isinstance(part, dict) and isinstance(part.get("type"), str):
            assert not {"ge", "gt", "le", "lt"} & {*part}, part
            assert part["type"] == "string" or not {"minLength", "maxLength"} & {*part}, part
        if isinstance(part, dict | list):
            level += part.values() if isinstance(part, dict) else part
    order = described["components"]["schemas"]["OrderForm"]["properties"]["id"]
    assert (order["minimum"], order["maximum"]) == (0, 2**53 - 1)


FALLBACK = {"model": "c", "retries": 7.0}


@pytest.mark.parametrize(
    ("form", "body"),
    [
        (CommandForm, {"line": "next", "at": 7.0}),
        (RpcForm, {"jsonrpc": "2.0", "method": "ListTasks", "id": 7.0}),
        (OrderForm, {"method": "run.start", "id": 7.0}),
        (HistoryForm, {"limit": 7.0}),
        (AgentForm, {"agent_id": "a", "max_iterations": 7.0}),
        (AgentForm, {"agent_id": "a", "model": {"model": "b", "max_tokens": 7.0}}),
        (
            AgentForm,
            {
                "agent_id": "a",
                "model": {"model": "b", "fallbacks": [{"model": "c", "retries": 7.0}]},
            },
        ),
    ],
)
def test_N6_a_number_without_a_fraction_is_whole(form: type[Form], body: Any) -> None:
    taken = form.model_validate(body)
    assert taken == form.model_validate_json(json.dumps(body).replace("7.0", "7"))
    with pytest.raises(ValidationError, match=r"integer|whole"):
        form.model_validate_json(json.dumps(body).replace("7.0", "7.5"))


@pytest.mark.parametrize(
    ("form", "body", "key", "taken", "refused"),
    [
        (ItemForm, {"namespace": ["a"], "key": "b", "value": {}}, "index", False, (0, 0.0, True)),
        (AskForm, {"assistant_id": "a"}, "checkpoint_during", True, (1, 1.0, False)),
    ],
)
def test_N6_a_number_is_no_boolean(
    form: type[Form], body: Any, key: str, taken: bool, refused: tuple[Any, ...]
) -> None:
    assert form.model_validate({**body, key: taken})
    for value in refused:
        with pytest.raises(ValidationError):
            form.model_validate({**body, key: value})


TEXTS = {"SKILL.md": "text"}


@pytest.mark.parametrize(
    ("body", "taken"),
    [
        ({"files": TEXTS}, True),
        ({"archive": "UEs="}, True),
        ({"files": TEXTS, "archive": None}, True),
        ({"files": None, "archive": "UEs="}, True),
        ({"files": TEXTS, "archive": "UEs="}, False),
        ({"files": None, "archive": None}, False),
        ({}, False),
        ({"files": {**TEXTS, **{f"{number}.md": "" for number in range(200)}}}, False),
    ],
)
def test_N6_the_description_takes_files_or_an_archive(body: Any, taken: bool) -> None:
    described = Draft202012Validator(SkillForm.model_json_schema())
    assert described.is_valid(body) is taken
    try:
        SkillForm.model_validate(body)
        assert taken
    except ValidationError:
        assert not taken
