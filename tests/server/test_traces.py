"""Traces: what the journal knows of a run, over HTTP, whichever process ran it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.support import Served, serving
from tests.support.waiting import until
from wick_graph import load

pytestmark = pytest.mark.xdist_group("traces")  # they share a server

SECRET = "sk-proj-1234567890abcdefghijklmnopqrstuv"
LONG = "word " * 400
AGENTS = """\
store: sqlite:///wick.db
defaults: {ttl: never, tools: [calculate]}
agents:
  default: {model: 'scripted:talk.yaml'}
  boss: {model: 'scripted:boss.yaml', subagents: {worker: {description: Does work.}}}
  worker: {model: 'scripted:worker.yaml'}
  broken: {model: 'scripted:broken.yaml'}
  slow: {model: 'scripted:slow.yaml'}
"""
FILES: dict[str, Any] = {
    "agents": AGENTS,
    "talk": f"""\
steps:
  - {{text: Let me see., calls: [{{tool: calculate, args: {{expression: 21*2}}}}]}}
  - {{calls: [{{tool: calculate, args: {{expression: "{SECRET}"}}}}]}}
  - "{LONG}"
""",
    "boss": """\
steps:
  - {calls: [{tool: delegate_to_agent, args: {agent: worker, task: Work.}}]}
  - Done.
""",
    "worker": "steps: [Worked.]\n",
    "broken": "steps: [{error: {type: ValueError, text: the key is wrong}}]\n",
    "slow": f"chunk_delay: 0.05\nsteps: ['{' '.join(f'word{n}' for n in range(400))}']\n",
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path = tmp_path_factory.mktemp("traced")
    with serving(path, **FILES) as made:
        yield made


@pytest.fixture
def http(served: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.url, timeout=60) as client:
        yield client


def ask(http: httpx.Client, agent: str = "default", text: str = "What is it?") -> dict[str, Any]:
    body = {"messages": [{"role": "user", "content": text}]}
    made: dict[str, Any] = http.post(f"/agents/{agent}/invoke", json=body).json()
    return made


def trace(http: httpx.Client, run_id: str) -> dict[str, Any]:
    answer = http.get(f"/agents/traces/{run_id}")
    assert answer.status_code == 200, answer.text
    made: dict[str, Any] = answer.json()
    return made


def spans(found: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [span["metadata"] for span in found["spans"] if span["name"] == name]


def test_a_trace_tells_arguments_counts_lengths_and_previews(http: httpx.Client) -> None:
    answer = ask(http)
    found = trace(http, answer["run_id"])
    first, _, last = spans(found, "llm.call")
    assert (first["message_count"], first["content_length"]) == (1, len("Let me see."))
    assert (first["content_preview"], first["tool_calls_count"]) == ("Let me see.", 1)
    assert first["tool_calls"] == ["calculate"]
    assert last["message_count"] == 5
    assert last["content_length"] == len(LONG)
    assert last["content_preview"] == LONG[:500] + "...(truncated)"
    tool, _ = spans(found, "tool.call")
    assert tool["tool_name"] == "calculate"
    assert tool["tool_args"] == {"expression": "21*2"}
    assert tool["tool_call_id"] == answer["tool_calls"][0]["id"]
    assert (tool["output_length"], tool["output_preview"]) == (2, "42")
    assert found["output"] == LONG[:500] + "...(truncated)"
    assert "What is it?" in json.dumps(found["input"])
    assert found["agent_id"] == "default"
    assert found["model"]
    assert found["error"] is None
    hooks = {span["name"] for span in found["spans"] if span["name"].startswith("hook.")}
    assert "hook.wrap_model_call/summarization" in hooks
    for span in found["spans"]:
        assert span["end_time"] >= span["start_time"]
        assert span["duration_ms"] >= 0


def test_a_failed_call_says_why_and_secrets_stay_hidden(http: httpx.Client) -> None:
    found = trace(http, ask(http)["run_id"])
    failed = spans(found, "tool.call")[1]
    assert failed["status"] == "error"
    assert failed["tool_error"]
    assert failed["tool_args"]["expression"].startswith("•••")
    assert SECRET not in json.dumps(found)


def test_a_failed_run_says_why(http: httpx.Client) -> None:
    answer = ask(http, "broken")
    found = trace(http, answer["run_id"])
    assert found["status"] == "failed"
    assert "the key is wrong" in found["error"]
    assert any("the key is wrong" in span["metadata"].get("error", "") for span in found["spans"])


def test_the_run_of_a_sub_agent_has_a_trace_of_its_own(http: httpx.Client) -> None:
    found = trace(http, ask(http, "boss")["run_id"])
    (below,) = found["subagents"]
    assert spans(found, "tool.call")[0]["output_preview"] == "Worked."
    child = trace(http, below["trace_id"])
    assert (child["agent_id"], child["thread_id"]) == ("worker", below["thread_id"])
    assert spans(child, "llm.call")[0]["content_preview"] == "Worked."
    assert below["trace_id"] in [row["trace_id"] for row in http.get("/agents/traces").json()]


@pytest.mark.slow
def test_runs_of_other_processes_and_after_a_restart(served: Served, tmp_path: Path) -> None:
    """A run of this process, over the server's database; then the server is started again."""
    with load(served.path / "agents.yaml") as agents:
        result = agents["default"].invoke("From elsewhere?", thread_id="elsewhere")
    with httpx.Client(base_url=served.url, timeout=60) as http:
        before = trace(http, result.run_id)
        assert (before["agent_id"], before["thread_id"]) == ("default", "elsewhere")
        assert len(spans(before, "llm.call")) == 3
        assert http.get("/agents/traces").json()[0]["trace_id"] == result.run_id
    served.kill()
    served.start()
    with httpx.Client(base_url=served.url, timeout=60) as http:
        assert trace(http, result.run_id) == before
        unknown = http.get("/agents/traces/00000000-0000-4000-8000-000000000000")
        assert (unknown.status_code, unknown.json()) == (404, {"error": "trace not found"})


def test_a_run_that_was_killed_has_the_spans_that_it_came_to(served: Served) -> None:
    with httpx.Client(base_url=served.url, timeout=60) as http:
        body = {"messages": [{"role": "user", "content": "Slowly."}], "thread_id": "killed"}
        with http.stream("POST", "/agents/slow/stream", json=body) as stream:
            run = stream.headers["x-run-id"]
            next(stream.iter_lines())
            served.kill()
    served.start()
    with httpx.Client(base_url=served.url, timeout=60) as http:
        until(lambda: http.get(f"/runs/{run}").json()["status"] == "done", "the run goes on")
        found = trace(http, run)
        assert spans(found, "llm.call")[-1]["content_preview"].startswith("word0 word1")
        assert spans(found, "run")[-1]["stopped_because"] == "done"
