"""`${NAME}`: where it counts, what it may look like, and that a value never shows."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from wick_graph.config import AgentsFile, ModelConfig, describe, load_config, parse_config
from wick_graph.errors import ConfigError

CANARY = "sk-canary-3f9a"


def parse(text: str, **env: str) -> AgentsFile:
    return parse_config(text, source="agents.yaml", base_dir=Path("/srv"), env=env)


def model_of(file: AgentsFile) -> ModelConfig:
    model = file.agent().model
    assert isinstance(model, ModelConfig)
    return model


EVERYWHERE = """\
store: postgresql://u:${X}@db/wick
agents:
  a:
    model:
      model: ${X}
      base_url: http://${X}/v1
      api_key: ${X}
      fallbacks:
        - {model: "${X}", base_url: "https://${X}", api_key: "${X}"}
    backend: {type: docker, workdir: "/${X}", image: "${X}:1"}
  b:
    model: ollama:${X}
"""


def test_replaces_in_the_declared_fields() -> None:
    file = parse(EVERYWHERE, X=CANARY)
    a, b = file.agent("a"), file.agent("b")
    assert isinstance(a.model, ModelConfig)
    assert a.backend is not None
    (fallback,) = a.model.fallbacks
    assert not isinstance(fallback, str)
    keys = [model.api_key for model in (a.model, fallback)]
    assert [key and key.get_secret_value() for key in keys] == [CANARY, CANARY]
    assert file.store == f"postgresql://u:{CANARY}@db/wick"
    assert (a.model.model, fallback.model, b.model) == (CANARY, CANARY, f"ollama:{CANARY}")
    assert (a.model.base_url, fallback.base_url) == (f"http://{CANARY}/v1", f"https://{CANARY}")
    assert (a.backend.workdir, a.backend.image) == (f"/{CANARY}", f"{CANARY}:1")


def test_stays_text_everywhere_else() -> None:
    text = (
        "name: ${X}\nsystem_prompt: Say ${X} and ${Y:-y} and $${Z}\ntools: ['${X}']\n"
        "skills: {paths: ['${X}']}\nmodel: {model: m, provider: '${X}', params: {a: '${X}'}}\n"
    )
    agent = parse(text, X=CANARY).agent()
    assert agent.name == "${X}"
    assert agent.system_prompt == "Say ${X} and ${Y:-y} and $${Z}"
    assert agent.tools == ("${X}",)
    assert agent.skills is not None
    assert agent.skills.paths == ("${X}",)
    assert isinstance(agent.model, ModelConfig)
    assert (agent.model.provider, agent.model.params) == ("${X}", {"a": "${X}"})


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        pytest.param("${X}", "value", id="whole"),
        pytest.param("a${X}b${X}", "avaluebvalue", id="inside"),
        pytest.param("${NONE:-other}", "other", id="default-for-unset"),
        pytest.param("${EMPTY:-other}", "other", id="default-for-empty"),
        pytest.param("${X:-other}", "value", id="default-not-needed"),
        pytest.param("m${NONE:-}", "m", id="empty-default"),
        pytest.param("$${X}", "${X}", id="escaped"),
        pytest.param("$$${X}", "$${X}", id="escaped-after-dollar"),
        pytest.param("$X $ $$", "$X $ $$", id="no-braces"),
        pytest.param("${NESTED}", "${X}", id="once-only"),
        pytest.param("{X}", "{X}", id="no-dollar"),
    ],
)
def test_forms(written: str, expected: str) -> None:
    file = parse(f"model: '{written}'", X="value", EMPTY="", NESTED="${X}")
    assert file.agent().model == expected


@pytest.mark.parametrize("written", ["${", "${}", "${X", "${1X}", "${X-y}", "${X:?y}", "${ X }"])
def test_malformed_references(written: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(f"name: x\nmodel: '{written}'", X=CANARY)
    assert str(caught.value) == (
        "agents.yaml:2: model: has a ${ that is not ${NAME} or ${NAME:-default}; write $${ for a ${"
    )


def test_a_missing_variable_is_named_with_its_place() -> None:
    text = "agents:\n  a:\n    model:\n      model: m\n      api_key: ${OPENAI_KEY}\n"
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert str(caught.value) == (
        "agents.yaml:5: agents.a.model.api_key: the environment variable OPENAI_KEY is not set; "
        "set it or write a default"
    )


def test_a_missing_variable_in_defaults_is_told_once() -> None:
    text = "defaults:\n  model: ${M}\nagents:\n  a: {}\n  b: {}\n  c: {model: m}\n"
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert str(caught.value).startswith("agents.yaml:2: defaults.model: the environment variable M")
    assert "\n" not in str(caught.value)


def test_an_empty_key_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"model\.api_key: must not be empty"):
        parse("model: {model: m, api_key: '${X}'}", X="")


def test_the_process_environment_is_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WICK_TEST_MODEL_NAME", "a:b")
    file = tmp_path / "agents.yaml"
    file.write_text("model: ${WICK_TEST_MODEL_NAME}\n", encoding="utf-8")
    assert load_config(file).agent().model == "a:b"
    with pytest.raises(ConfigError, match="WICK_TEST_MODEL_NAME is not set"):
        load_config(file, env={})


def test_no_env_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".env").write_text("SECRET_FROM_FILE=x\nOPENAI_BASE_URL=y\n", encoding="utf-8")
    file = tmp_path / "agents.yaml"
    file.write_text("model: ${SECRET_FROM_FILE}\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="SECRET_FROM_FILE is not set"):
        load_config(file)


def shown(error: BaseException) -> Iterator[str]:
    """Everything that a log could show of an error and of what hangs on it."""
    yield "".join(traceback.format_exception(error))
    seen: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        current = pending.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        yield from (str(current), repr(current), repr(vars(current)))
        pending += [current.__cause__, current.__context__]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("model: {model: m, api_key: '${X}', retries: -1}", id="beside-an-error"),
        pytest.param("model: {model: m, api_key: ['${X}', sk-canary-3f9a]}", id="wrong-type"),
        pytest.param("model: {model: m, base_url: '${X}'}", id="wrong-url"),
        pytest.param("model: m\nstore: '${X}'", id="wrong-store"),
        pytest.param("model: {model: m, api_key: '${X}', api_kee: sk-canary-3f9a}", id="misspelt"),
        pytest.param("model: {model: m, api_key: '${X}${NONE}'}", id="missing-beside"),
        pytest.param("model: {model: m, api_key: '${NONE:?sk-canary-3f9a}'}", id="malformed"),
        pytest.param("model: {model: m, api_key: sk-canary-3f9a: x}", id="not-yaml"),
        pytest.param("model: {model: m, api_key: sk-canary-3f9a\n", id="not-yaml-open"),
        pytest.param("model: {model: m, api_key: &k sk-canary-3f9a}", id="anchor"),
        pytest.param("model: {model: m, api_key: !sk-canary-3f9a x}", id="tag"),
        pytest.param("model: {model: m, api_key: *sk-canary-3f9a }", id="alias"),
        pytest.param("model: {model: m, params: {token: sk-canary-3f9a}}\nttl: x", id="params"),
        pytest.param("backend: {type: sk-canary-3f9a}", id="wrong-word"),
    ],
)
def test_a_value_never_shows_in_an_error(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text, X=CANARY)
    for view in shown(caught.value):
        # the test's own source is part of a traceback, its data are not
        assert CANARY not in view


def test_a_value_never_shows_in_a_repr() -> None:
    file = parse(EVERYWHERE, X=CANARY)
    assert isinstance(file.agent("a").model, ModelConfig)
    blocks: list[object] = [file, *file.agents.values(), file.agent("a").model]
    for view in (show(block) for block in blocks for show in (repr, str)):
        assert CANARY not in view
        assert view
    literal = parse(f"model: {{model: m, api_key: {CANARY}, params: {{token: {CANARY}}}}}")
    assert CANARY not in repr(literal) + str(literal) + repr(describe(literal))


def test_a_secret_survives_a_copy() -> None:
    model = model_of(parse("model: {model: m, api_key: '${X}'}", X=CANARY))
    copied = pickle.loads(pickle.dumps(model)).api_key
    assert copied.get_secret_value() == CANARY
