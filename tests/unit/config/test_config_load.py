"""A configuration as a whole: forms, places of errors, defaults, files."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from wick_graph.config import (
    AgentConfig,
    AgentsFile,
    BackendConfig,
    ModelConfig,
    agent_config,
    describe,
    load_config,
    nearest,
    parse_config,
    slug,
)
from wick_graph.errors import ConfigError

REPO = Path(__file__).parents[3]

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


def parse(text: str, base_dir: Path = Path("/srv")) -> AgentsFile:
    return parse_config(text, source="agents.yaml", base_dir=base_dir, env={})


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    return str(caught.value)


def write(folder: Path, text: str) -> Path:
    file = folder / "agents.yaml"
    file.write_text(text, encoding="utf-8")
    return file


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
        "skills": None, "memory": None, "context_window": None, "max_iterations": 25,
        "ttl": 3600.0, "max_tokens": None, "temperature": None, "tool_timeout": 300.0,
        "budget": None, "journal": "steps", "deadline": None, "retention": None,
        "middleware": (), "mcp_servers": {}, "subagents": {},
        "allow_client_system": True,
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


# places of errors


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "agents:\n  default:\n    system_promt: x\n",
            "agents.yaml:3: agents.default.system_promt: unknown key; did you mean system_prompt?",
            id="F6-agent",
        ),
        pytest.param(
            "agents:\n  a: {model: m,\n    tool: [x]}\n",
            "agents.yaml:3: agents.a.tool: unknown key; did you mean tools?",
            id="F6-flow",
        ),
        pytest.param(
            "defaults:\n  max_iteration: 3\nagents: {a: {}, b: {}}\n",
            "agents.yaml:2: defaults.max_iteration: unknown key; did you mean max_iterations?",
            id="F6-defaults-once",
        ),
        pytest.param(
            "agents:\n  a:\n    model:\n      model: m\n      baseUrl: x\n",
            "agents.yaml:5: agents.a.model.baseUrl: unknown key; did you mean base_url?",
            id="F6-model",
        ),
        pytest.param(
            "agents:\n  a:\n    model:\n      model: m\n      fallbacks:\n      - x\n"
            "      - model: y\n        api-key: z\n",
            "agents.yaml:8: agents.a.model.fallbacks[1].api-key: unknown key; "
            "did you mean api_key?",
            id="F6-fallback",
        ),
        pytest.param(
            "agents:\n  backend:\n    bakend: {type: local}\n",
            "agents.yaml:3: agents.backend.bakend: unknown key; did you mean backend?",
            id="F6-agent-called-like-a-block",
        ),
        pytest.param(
            "name: x\nbackend:\n  type: local\n  work_dir: .\n",
            "agents.yaml:4: backend.work_dir: unknown key; did you mean workdir?",
            id="F6-backend",
        ),
        pytest.param(
            "name: x\nskills: {path: [a], paths: []}\n",
            "agents.yaml:2: skills.path: unknown key; did you mean paths?",
            id="F6-skills",
        ),
        pytest.param(
            "agnets:\n  a: {}\n",
            "agents.yaml:1: agnets: unknown key; did you mean agents?",
            id="F6-top",
        ),
        pytest.param(
            "agents: {a: {}}\nstorage: x\n",
            "agents.yaml:2: storage: unknown key; did you mean store?",
            id="F6-top-with-agents",
        ),
        pytest.param(
            "agents: {a: {}}\nmodel: x\n",
            "agents.yaml:2: model: unknown key here; move it under agents.<id> or defaults",
            id="F6-wrong-level",
        ),
        pytest.param(
            "name: x\ndefaults: {}\n",
            "agents.yaml:2: defaults: is of use only beside agents:",
            id="F6-defaults-alone",
        ),
        pytest.param(
            "name: x\nmemory: {paths: [], zzz: 1}\n",
            "agents.yaml:2: memory.zzz: unknown key; valid keys: paths",
            id="F6-nothing-near",
        ),
        pytest.param(
            'name: x\n"a\\nb\\tc": 1\n',
            'agents.yaml:2: "a\\nb\\tc": unknown key; valid keys: name, model, system_prompt, '
            "tools, backend, skills, memory, context_window, max_iterations, ttl, max_tokens, "
            "temperature, tool_timeout, deadline, retention, budget, approvals, middleware, "
            "mcp_servers, subagents, search, journal, allow_client_system, store, store_keys, "
            "defaults, agents",
            id="F6-strange-key",
        ),
        *(
            pytest.param(
                f"agents:\n  a:\n    {key}: [evil.Mod]\n",
                f"agents.yaml:3: agents.a.{key}: code is never loaded from a configuration file; "
                "pass hooks= in Python",
                id=f"F9-{key}",
            )
            for key in ("hooks", "class_path")
        ),
        pytest.param(
            "agents:\n  a:\n    tools:\n      - ls\n      - 7\n",
            "agents.yaml:5: agents.a.tools[1]: must be text; put it in quotes if it is",
            id="list-item",
        ),
        pytest.param(
            "agents:\n  a: {tools: [ls,\n\n    7]}\n",
            "agents.yaml:4: agents.a.tools[1]: must be text; put it in quotes if it is",
            id="list-item-flow",
        ),
        pytest.param(
            "name: x\ntools: [ls, calculate, ls]\n",
            "agents.yaml:2: tools: lists ls twice; keep one",
            id="tool-twice",
        ),
        pytest.param(
            "agents:\n  a:\n    model:\n      provider: openai\n",
            "agents.yaml:3: agents.a.model.model: is missing; add it",
            id="missing",
        ),
        pytest.param(
            "agents:\n  a:\n    model: {model: m, fallbacks: [{model: n, fallbacks: []}]}\n",
            "agents.yaml:3: agents.a.model.fallbacks[0].fallbacks: unknown key; valid keys: "
            "provider, model, base_url, api_key, temperature, max_tokens, timeout, "
            "context_window, retries, params",
            id="fallback-of-a-fallback",
        ),
        pytest.param(
            "name: x\nbackend: {workdir: .}\n",
            "agents.yaml:2: backend.type: is missing; add it",
            id="backend-type",
        ),
        pytest.param(
            "name: x\nbackend: {type: remote}\n",
            "agents.yaml:2: backend.type: must be local or docker",
            id="backend-word",
        ),
        pytest.param(
            "name: x\nmax_iterations: 0\n",
            "agents.yaml:2: max_iterations: must be 1 or more",
            id="iterations-low",
        ),
        pytest.param(
            "name: x\nmax_iterations: 1001\n",
            "agents.yaml:2: max_iterations: must be 1000 or less",
            id="iterations-high",
        ),
        pytest.param(
            "defaults:\n  ttl: soon\nagents:\n  a: {}\n",
            "agents.yaml:2: defaults.ttl: not a duration; write 30s, 5m, 1h, 7d, never, "
            "or a number of seconds",
            id="defaults-value",
        ),
        pytest.param(
            "model: {model: m, timeout: never}\n",
            "agents.yaml:1: model.timeout: cannot be never; write a duration such as 60s",
            id="timeout-never",
        ),
        pytest.param(
            "model: {model: m, base_url: localhost}\n",
            "agents.yaml:1: model.base_url: must be a URL that begins with http:// or https://",
            id="base-url",
        ),
        pytest.param(
            "name: x\nstore: wick.db\n",
            "agents.yaml:2: store: must be a database URL such as sqlite:///checkpoints/wick.db",
            id="store",
        ),
        pytest.param(
            "agents: {}\n",
            "agents.yaml:1: agents: needs at least one agent, as agents: {default: {model: auto}}",
            id="no-agent",
        ),
        pytest.param(
            "store: sqlite:///x.db\n",
            "agents.yaml: agents: needs at least one agent, as agents: {default: {model: auto}}",
            id="only-a-store",
        ),
        pytest.param(
            "agents: [a]\n", "agents.yaml:1: agents: must be a block of keys", id="agents-list"
        ),
        pytest.param(
            "agents:\n  a: gpt\n", "agents.yaml:2: agents.a: must be a block of keys", id="agent"
        ),
        pytest.param(
            "agents:\n  a: {}\n  Code Bot: {}\n",
            'agents.yaml:3: agents."Code Bot": an agent\'s id has up to 64 lower-case letters, '
            "digits, - and _; write code-bot and put the rest under name:",
            id="id-form",
        ),
        *(
            pytest.param(
                f"agents:\n  {word}: {{}}\n",
                f"agents.yaml:2: agents.{word}: a reserved word cannot be an agent's id; "
                f"write {word}-agent",
                id=f"id-{word}",
            )
            for word in ("invoke", "stream", "events", "traces", "tools", "messages")
        ),
    ],
)
def test_an_error_names_file_line_and_key_path(text: str, expected: str) -> None:
    assert refusal(text) == expected


def test_several_errors_have_a_line_each_in_the_order_of_the_file() -> None:
    text = "defaults:\n  ttl: x\nagents:\n  a:\n    tools: ls\n    nmae: y\n  b:\n    ttl: 1\n"
    assert [line.split(": ")[:2] for line in refusal(text).splitlines()] == [
        ["agents.yaml:2", "defaults.ttl"],
        ["agents.yaml:5", "agents.a.tools"],
        ["agents.yaml:6", "agents.a.nmae"],
    ]


def test_many_errors_are_cut_off() -> None:
    lines = refusal("".join(f"k{i}: 1\n" for i in range(50))).splitlines()
    assert len(lines) == 21
    assert lines[-1] == "agents.yaml: 30 more; correct these first"


def test_the_name_of_the_file_cannot_break_the_line() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config("nmae: x", source="a\nb.yaml", base_dir=Path(), env={})
    assert str(caught.value) == r"a\nb.yaml:1: nmae: unknown key; did you mean name?"


def test_unknown_tools_are_placed_later() -> None:
    file = parse(
        "defaults:\n  tools: [ls, calulate]\nagents:\n  a: {}\n  b: {}\n"
        "  c:\n    tools:\n      - zzz\n"
    )
    file.check_tools(["ls", "calulate", "zzz"])
    with pytest.raises(ConfigError) as caught:
        file.check_tools(["calculate", "ls"])
    assert str(caught.value) == (
        "agents.yaml:2: defaults.tools[1]: unknown tool calulate; did you mean calculate?\n"
        "agents.yaml:8: agents.c.tools[0]: unknown tool zzz; known tools: calculate, ls"
    )
    with pytest.raises(ConfigError, match=r"^agents.yaml:8: agents.c.tools\[0\]"):
        file.check_tools(["calculate", "ls"], "c")


def test_lines_of_keys_are_known_afterwards() -> None:
    file = parse("agents:\n  a:\n    model: m\n    tools:\n      - ls\n      - calculate\n")
    assert file.line(("agents", "a", "tools", 1)) == 6
    assert file.line(("agents", "a", "ttl")) == 2
    error = file.error(("agents", "a", "model"), "no such model")
    assert str(error) == "agents.yaml:3: agents.a.model: no such model"


def test_keys_from_python_get_the_same_sentences() -> None:
    assert agent_config({"name": "x", "ttl": "1h"}).ttl == 3600.0
    assert agent_config({"model": "${HOME}"}).model == "${HOME}"
    with pytest.raises(ConfigError) as caught:
        agent_config({"temprature": 1, "temperature": float("nan")})
    assert set(str(caught.value).splitlines()) == {
        "Agent: temprature: unknown key; did you mean temperature?",
        "Agent: temperature: must be a finite number",
    }


@pytest.mark.parametrize(
    ("word", "words", "expected"),
    [
        ("modle", ["model", "name"], "model"),
        ("MODEL", ["model"], "model"),
        ("xyz", ["model"], None),
        ("", ["model"], None),
        ("model", [], None),
        ("m" * 100_000, ["m" * 99_999], None),
    ],
)
def test_nearest(word: str, words: list[str], expected: str | None) -> None:
    assert nearest(word, words) == expected


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


# the store


@pytest.mark.parametrize(
    ("store", "expected"),
    [
        pytest.param(None, "sqlite:////srv/checkpoints/wick.db", id="default"),
        pytest.param("sqlite:///x/y.db", "sqlite:////srv/x/y.db", id="relative"),
        pytest.param("sqlite:///x.db?a=b", "sqlite:////srv/x.db?a=b", id="query"),
        pytest.param("sqlite+pysqlite:///x.db", "sqlite+pysqlite:////srv/x.db", id="driver"),
        pytest.param("sqlite:////var/x.db", "sqlite:////var/x.db", id="absolute"),
        pytest.param("sqlite:///:memory:", "sqlite:///:memory:", id="memory"),
        pytest.param("sqlite://", "sqlite://", id="memory-short"),
        pytest.param("sqlite:///file:x?uri=true", "sqlite:///file:x?uri=true", id="uri"),
        pytest.param("postgresql://u@h/db", "postgresql://u@h/db", id="postgresql"),
        pytest.param("postgresql:///db", "postgresql:///db", id="postgresql-local"),
    ],
)
def test_a_relative_database_belongs_to_the_files_folder(store: str | None, expected: str) -> None:
    line = "" if store is None else f"store: {json.dumps(store)}\n"
    assert parse(f"{line}name: x\n").store_url == expected


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        pytest.param("file:own.keys", "file:/srv/own.keys", id="relative"),
        pytest.param("file:/etc/wick.keys", "file:/etc/wick.keys", id="absolute"),
        pytest.param("env:WICK_KEYS", "env:WICK_KEYS", id="variable"),
    ],
)
@pytest.mark.parametrize("agents", ["name: x\n", "agents: {x: {}}\n"], ids=["one", "several"])
def test_a_file_of_keys_belongs_to_the_files_folder(
    written: str, expected: str, agents: str
) -> None:
    assert parse(f"store_keys: {written}\n{agents}").keys_source == expected
    assert parse(agents).keys_source is None


def test_an_empty_store_is_the_default_one() -> None:
    assert parse("store:\nname: x\n").store_url == "sqlite:////srv/checkpoints/wick.db"


def test_a_folder_that_no_url_can_express_is_refused() -> None:
    text = "name: x\nstore: sqlite:///x.db\n"
    with pytest.raises(ConfigError, match=r"^agents.yaml:2: store: cannot stand in a folder with"):
        parse(text, Path("/srv/what?"))


# files


def test_paths_belong_to_the_folder_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf").mkdir()
    write(tmp_path / "conf", "name: x\n")
    file = load_config("conf/agents.yaml", env={})
    assert file.base_dir == tmp_path / "conf"
    assert file.source == "conf/agents.yaml"
    assert file.store_url == f"sqlite:///{tmp_path}/conf/checkpoints/wick.db"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    pipe, latin, big = tmp_path / "pipe", tmp_path / "latin.yaml", tmp_path / "big.yaml"
    os.mkfifo(pipe)
    latin.write_bytes(b"name: x\nsystem_prompt: caf\xe9\n")
    big.write_bytes(b"#" * (256 * 1024 + 1))
    expected = {
        tmp_path / "none.yaml": ": no such file; create it or name another one",
        tmp_path: ": is a folder; name the file in it",
        pipe: ": is not a regular file; name another one",
        Path("/dev/zero"): ": is not a regular file; name another one",
        latin: ":2: not UTF-8; save the file in that encoding",
        big: ": larger than 256 kB; split it up",
        latin / "x": ": cannot be read: Not a directory",
    }
    for path, text in expected.items():
        with pytest.raises(ConfigError) as caught:
            load_config(path, env={})
        assert str(caught.value) == f"{path}{text}"


def test_a_file_name_with_a_nul(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not a possible file name"):
        load_config(f"{tmp_path}/a\0b", env={})


PLAIN = "model: {model: m, api_key: sk-123}\n"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        pytest.param(PLAIN, "model.api_key", id="key"),
        pytest.param("model: {model: m, params: {auth_token: t}}", "model.params.auth_token",
                     id="params"),
        pytest.param("agents: {a: {model: {model: m, fallbacks: [{model: n, api_key: k}]}}}",
                     "agents.a.model.fallbacks[0].api_key", id="fallback"),
        pytest.param("name: x\nstore: postgresql://u:pw@h/d", "store", id="password-in-url"),
        pytest.param("model: {model: m, api_key: '${X:-sk-123}'}", "model.api_key", id="default"),
        pytest.param("model: {model: m, api_key: '${X}'}", None, id="from-environment"),
        pytest.param("name: x\nstore: postgresql://u:${X}@h/d", None, id="url-from-environment"),
        pytest.param("name: x\nmax_tokens: 5", None, id="max-tokens"),
    ],
)  # fmt: skip
def test_a_file_that_everyone_can_change(tmp_path: Path, text: str, secret: str | None) -> None:
    file = write(tmp_path, text)
    file.chmod(0o644)
    assert load_config(file, env={"X": "x"}).notices == ()
    file.chmod(file.stat().st_mode | stat.S_IWOTH)
    (notice,) = load_config(file, env={"X": "x"}).notices
    assert notice.startswith(f"{file} can be changed by every user of this machine")
    assert (f"holds a secret in plain text ({secret})" in notice) == (secret is not None)
    assert "123" not in notice


@pytest.mark.parametrize(("text", "warned"), [(PLAIN, True), ("name: x\n", False)])
def test_a_file_of_somebody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, warned: bool
) -> None:
    file = write(tmp_path, text)
    if os.getuid() == 0:
        os.chown(file, 12_345, -1)
    link = tmp_path / "link.yaml"
    link.symlink_to(file)
    owner = file.stat().st_uid
    monkeypatch.setattr(os, "getuid", lambda: owner)
    assert load_config(file, env={}).notices == ()
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    for path in (file, link):
        notices = load_config(path, env={}).notices
        assert [f"{path} belongs to another user" in notice for notice in notices] == (
            [True] if warned else []
        )


def test_a_text_has_no_notices() -> None:
    assert parse(PLAIN).notices == ()
