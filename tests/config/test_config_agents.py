"""What a file says of its agents: the forms it may have, every key, defaults."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.config.parsing import parse
from wick_graph.config import AgentConfig, BackendConfig, ModelConfig, describe, load_config, slug
from wick_graph.errors import ConfigError

REPO = Path(__file__).parents[2]

CODE_ASSISTANT = """\
name: code-assistant
model: claude-sonnet-4-20250514
system_prompt: "You are a coding assistant."
context_window: 128000          # a comment
backend:
  type: docker
  image: python:3.12-slim
  workdir: /workspace
skills:
  paths:
    - /workspace/skills
memory:
  paths:
    - /workspace/AGENTS.md
"""


# forms


def test_the_sample_of_one_agent_loads() -> None:
    file = parse(CODE_ASSISTANT)
    agent = file.agents["code-assistant"]
    assert list(file.agents) == ["code-assistant"]
    assert agent.model == "claude-sonnet-4-20250514"
    assert agent.system_prompt == "You are a coding assistant."
    assert agent.context_window == 128_000
    assert agent.backend == BackendConfig(
        type="docker", image="python:3.12-slim", workdir="/workspace"
    )
    assert agent.skills is not None
    assert agent.skills.paths == ("/workspace/skills",)
    assert agent.memory is not None
    assert agent.memory.paths == ("/workspace/AGENTS.md",)
    assert agent.model_fields_set == {
        "name", "model", "system_prompt", "context_window", "backend", "skills", "memory"
    }  # fmt: skip


def test_the_shipped_file_loads_without_a_notice() -> None:
    file = load_config(REPO / "agents.yaml", env={})
    assert list(file.agents) == ["default", "ollama"]
    assert file.store_url == f"sqlite:///{REPO}/checkpoints/wick.db"
    assert file.default_id == "default"
    default = file.agent()
    assert (default.model, default.tools) == ("auto", ("calculate", "ls"))
    assert default.system_prompt
    assert (default.ttl, "ttl" in default.model_fields_set) == (3600.0, True)
    assert not [notice for notice in file.notices if "secret" in notice]


def test_the_shipped_second_agent() -> None:
    ollama = load_config(REPO / "agents.yaml", env={}).agents["ollama"]
    assert ollama.name == "Ollama Local"
    assert ollama.model == "ollama:llama3.1:8b"
    assert list(ollama.tools) == ["calculate"]
    assert ollama.backend == BackendConfig(type="local", workdir="./workspace")


def test_the_least_file_has_the_defaults() -> None:
    agent = parse("agents:\n  a:\n").agent("a")
    assert agent.model_dump() == {
        "name": "a", "model": "auto", "system_prompt": "", "tools": (), "backend": None,
        "approvals": {}, "search": None,
        "skills": None, "memory": None, "recall": (), "context_window": None, "max_iterations": 25,
        "protect": (), "writable": (),
        "ttl": 3600.0, "max_tokens": None, "temperature": None, "tool_timeout": 300.0,
        "budget": None, "journal": "steps", "deadline": None, "retention": None,
        "hooks": (), "middleware": (), "mcp_servers": {}, "subagents": {}, "handoffs": {},
        "allow_client_system": True, "context": None, "output": None,
    }  # fmt: skip
    assert agent.model_fields_set == set()


def test_every_key_of_an_agent() -> None:
    file = parse(
        """
agents:
  a:
    name: A
    model:
      provider: openai
      model: small
      base_url: http://127.0.0.1:8080/v1
      api_key: none
      temperature: 1
      max_tokens: 100
      timeout: 30s
      context_window: 8192
      retries: 0
      fallbacks: [ollama:x, {provider: openai, model: y}]
      params: {seed: 7, stop: [a, b]}
    tools: [calculate]
    max_iterations: 1000
    ttl: never
    max_tokens: 64
    temperature: 0.5
    tool_timeout: 90
    allow_client_system: false
"""
    )
    agent = file.agents["a"]
    model = agent.model
    assert isinstance(model, ModelConfig)
    assert (model.temperature, model.timeout, model.retries) == (1, 30.0, 0)
    assert model.fallbacks[0] == "ollama:x"
    assert [getattr(target, "model", target) for target in model.fallbacks] == ["ollama:x", "y"]
    assert model.params == {"seed": 7, "stop": ["a", "b"]}
    assert (agent.ttl, agent.tool_timeout, agent.temperature) == (None, 90.0, 0.5)
    assert agent.allow_client_system is False
    assert describe(file) == [
        {"id": "a", "name": "A", "model": "openai:small", "tools": ["calculate"]}
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("name: x", "auto", id="nothing-said"),
        pytest.param("model: a:b", "a:b", id="name"),
        pytest.param(
            "model: a:b\ntemperature: 0\nmax_tokens: 5\ncontext_window: 9",
            {"model": "a:b", "temperature": 0, "max_tokens": 5, "context_window": 9},
            id="name-and-settings",
        ),
        pytest.param(
            "model: {model: b, temperature: 0.5, api_key: k, timeout: 1m, retries: 0}\n"
            "temperature: 1\nmax_tokens: 5",
            {"model": "b", "temperature": 0.5, "api_key": "k", "timeout": 60.0, "retries": 0,
             "max_tokens": 5},
            id="the-block-wins",
        ),
        pytest.param(
            "model: {model: b, fallbacks: [c:d, {model: e, api_key: k}]}",
            {"model": "b", "fallbacks": ["c:d", {"model": "e", "api_key": "k"}]},
            id="fallbacks",
        ),
    ],
)  # fmt: skip
def test_a_model_with_its_settings(text: str, expected: object) -> None:
    assert parse(text).agent().model_spec() == expected


@pytest.mark.parametrize(
    ("name", "agent_id"),
    [
        ("code-assistant", "code-assistant"),
        ("Code Assistant!", "code-assistant"),
        ("Café №1", "cafe-no1"),
        ("日本語", "default"),
        ("Tools", "default"),
        ("--", "default"),
        ("x" * 100, "x" * 64),
    ],
)
def test_one_agent_is_called_by_the_slug_of_its_name(name: str, agent_id: str) -> None:
    assert slug(name) == agent_id
    assert list(parse(f"name: {name!r}").agents) == [agent_id]


def test_one_agent_without_a_name_is_the_default() -> None:
    file = parse("model: a:b\nstore: sqlite:///x.db\n")
    assert (file.default_id, file.agent().name) == ("default", "default")
    assert file.store_url == "sqlite:////srv/x.db"


def test_the_first_agent_is_the_default_where_none_is_called_so() -> None:
    assert parse("agents: {b: {}, a: {}}").default_id == "b"
    assert parse("agents: {b: {}, default: {}}").default_id == "default"


def test_an_unknown_agent_gets_the_nearest_id() -> None:
    file = parse("agents: {default: {}, coder: {}}")
    with pytest.raises(ConfigError, match=r"^agents.yaml: no agent codr; did you mean coder\?$"):
        file.agent("codr")
    with pytest.raises(ConfigError, match=r"^agents.yaml: no agent x; it has default, coder$"):
        file.agent("x")


def test_models_are_frozen() -> None:
    agent = parse("name: x").agent()
    with pytest.raises(ValidationError):
        agent.model = "other"


# defaults


DEFAULTS = """\
defaults:
  ttl: 7d
  model: {model: m, params: {stop: [a], nested: {k: [1]}}}
  backend: {type: docker, image: i}
  tools: [ls]
agents:
  a: {}
  b:
  c: {backend: {type: local}, ttl: 1h, tools: []}
  d: {backend: null}
"""


def test_an_agents_own_key_replaces_the_default() -> None:
    file = parse(DEFAULTS)
    assert file.agents["a"].ttl == file.agents["b"].ttl == 604_800.0
    assert (file.agents["c"].ttl, file.agents["c"].tools) == (3600.0, ())
    assert file.agents["c"].backend == BackendConfig(type="local")
    assert file.agents["d"].backend is None
    assert file.defaults.backend == BackendConfig(type="docker", image="i")


def test_what_was_said_is_known_after_the_merge() -> None:
    file = parse(DEFAULTS)
    assert file.agents["a"].model_fields_set == {"ttl", "model", "backend", "tools"}
    backend = file.agents["c"].backend
    assert backend is not None
    assert backend.model_fields_set == {"type"}
    assert file.agents["a"].name == "a"


def test_each_agent_has_copies_of_its_own() -> None:
    def params(config: AgentConfig) -> dict[str, Any]:
        assert isinstance(config.model, ModelConfig)
        return config.model.params

    file = parse(DEFAULTS)
    params(file.agents["a"])["nested"]["k"].append(2)
    params(file.agents["a"])["stop"].append("b")
    assert file.agents["a"].backend is not file.agents["b"].backend
    for other in (file.agents["b"], file.agents["c"], file.defaults):
        assert params(other) == {"stop": ["a"], "nested": {"k": [1]}}
