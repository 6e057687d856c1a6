"""The JSON schema of agents.yaml: what editors accept is what the loader accepts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from tests.source import ROOT
from wick_graph.cli.app import call
from wick_graph.config import parse_config
from wick_graph.errors import ConfigError

COMMITTED = ROOT / "docs" / "agents.schema.json"


@pytest.fixture(scope="module")
def schema() -> Any:
    return json.loads(COMMITTED.read_text("utf-8"))


def accepted(schema: Any, text: str) -> bool:
    return bool(Draft202012Validator(schema).is_valid(yaml.safe_load(text)))


def loaded(text: str) -> bool:
    try:
        parse_config(text, source="x", base_dir=Path(), env={"KEY": "value"})
    except ConfigError:
        return False
    return True


def test_the_committed_schema_is_what_the_command_prints(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call(["schema"]) == 0
    printed = capsys.readouterr().out
    hint = "run: wick schema > docs/agents.schema.json"
    assert printed == COMMITTED.read_text("utf-8"), hint


def test_the_schema_is_one_and_describes_its_keys(schema: Any) -> None:
    Draft202012Validator.check_schema(schema)
    agent = schema["$defs"]["AgentConfig"]["properties"]
    assert "Model calls in one run" in agent["max_iterations"]["description"]
    assert "calculate" in agent["tools"]["items"]["anyOf"][0]["enum"]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param((ROOT / "agents.yaml").read_text("utf-8"), id="the sample"),
        "agents: {a: }",
        "defaults:\nagents: {a: {model: 'openai:gpt-5'}}",
        "name: x\nmodel: auto\nstore: sqlite://",
        "agents: {a: {ttl: 1h30m, tool_timeout: never, max_iterations: 3}}",
        "agents: {a: {model: {model: m, api_key: '${KEY}', timeout: 30s, fallbacks: [a:b]}}}",
        "agents: {a: {budget: 0.5}, b: {budget: {tokens: 5, per: thread}}}",
        "agents: {a: {backend: {type: local, workdir: w}, skills: {paths: [s]}}}",
    ],
)
def test_what_is_right_is_accepted(schema: Any, text: str) -> None:
    assert loaded(text)
    assert accepted(schema, text)


@pytest.mark.parametrize(
    "text",
    [
        "agents: {}",
        "agents: {a: {modle: x}}",
        "agents: {A B: {}}",
        "agents: {a: {max_iterations: 0}}",
        "agents: {a: {ttl: soon}}",
        "agents: {a: {model: {temperature: 1}}}",
        "agents: {a: {backend: {type: cloud}}}",
        "agents: {a: {budget: -1}}",
        "name: x\nagent: {}",
    ],
)
def test_what_is_wrong_is_refused(schema: Any, text: str) -> None:
    assert not loaded(text)
    assert not accepted(schema, text)
