"""From a model's name or map to a model."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import GenericFakeChatModel
from langchain_ollama import ChatOllama
from langchain_openai import ChatOpenAI

from wick_graph.constants import DEFAULT_CONTEXT_WINDOW, LOOP_MAX_TOKENS
from wick_graph.errors import ConfigError, ModelError, WickError
from wick_graph.models import ModelChoice, RetryPolicy, resolve_model
from wick_graph.testing import ScriptedModel

KEYS = {"OPENAI_API_KEY": "sk-o", "ANTHROPIC_API_KEY": "sk-a", "GOOGLE_API_KEY": "sk-g"}
NOBODY = {"OLLAMA_HOST": "http://127.0.0.1:1"}


def resolve(spec: Any, **env: str) -> ModelChoice:
    return resolve_model(spec, env=env or KEYS)


def openai_of(choice: ModelChoice) -> ChatOpenAI:
    assert isinstance(choice.model, ChatOpenAI)
    return choice.model


def ollama_of(choice: ModelChoice) -> ChatOllama:
    assert isinstance(choice.model, ChatOllama)
    return choice.model


@pytest.mark.parametrize(
    ("spec", "name", "sent"),
    [
        pytest.param("openai:gpt-4.1-mini", "openai:gpt-4.1-mini", "gpt-4.1-mini", id="openai"),
        pytest.param(" OpenAI:gpt-4o ", "openai:gpt-4o", "gpt-4o", id="spelling"),
        pytest.param("gpt-4o", "openai:gpt-4o", "gpt-4o", id="D-22-gpt"),
        pytest.param("o3-mini", "openai:o3-mini", "o3-mini", id="D-22-o"),
        pytest.param(
            "claude-sonnet-4-20250514",
            "anthropic:claude-sonnet-4-20250514",
            "claude-sonnet-4-20250514",
            id="LL-10",
        ),
        pytest.param("ollama:llama3.1:8b", "ollama:llama3.1:8b", "llama3.1:8b", id="LL-08"),
        pytest.param({"model": "openai:gpt-4o"}, "openai:gpt-4o", "gpt-4o", id="LL-09"),
        pytest.param({"model": "gpt-4o"}, "openai:gpt-4o", "gpt-4o", id="map-bare"),
        pytest.param(
            {"provider": "ollama", "model": "qwen2.5:1.5b"},
            "ollama:qwen2.5:1.5b",
            "qwen2.5:1.5b",
            id="map-provider",
        ),
        pytest.param(
            {"model": "qwen2.5:1.5b", "base_url": "http://127.0.0.1:1/v1"},
            "openai:qwen2.5:1.5b",
            "qwen2.5:1.5b",
            id="compatible",
        ),
    ],
)
def test_a_model_is_found_by_its_name(spec: Any, name: str, sent: str) -> None:
    choice = resolve(spec)
    given = getattr(choice.model, "model_name", None) or getattr(choice.model, "model", None)
    assert (choice.name, given, choice.notice) == (name, sent, None)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        pytest.param("opnai:gpt-4", "did you mean openai?", id="D-22-typo"),
        pytest.param("nobody:x", "openai, anthropic, google, ollama", id="unknown"),
        pytest.param("llama3", "names no provider", id="D-22-bare"),
        pytest.param("ollama", "did you mean ollama:MODEL?", id="provider-alone"),
        pytest.param("openai:", "has no model", id="no-model"),
        pytest.param(":gpt-4", "has no provider", id="no-provider"),
        pytest.param("", "empty", id="empty"),
        pytest.param("scripted:nowhere.yaml", "nowhere.yaml", id="no-script"),
        pytest.param("groq:x", "pip install langchain-groq", id="other-package"),
    ],
)
def test_a_name_that_means_nothing_is_refused(spec: str, says: str) -> None:
    with pytest.raises(ModelError) as caught:
        resolve(spec)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        ("openai:gpt-4o", "OPENAI_API_KEY"),
        ("anthropic:claude-x", "ANTHROPIC_API_KEY"),
        ({"model": "openai:gpt-4o", "api_key": ""}, "OPENAI_API_KEY"),
    ],
)
def test_a_missing_key_is_named(spec: Any, names: str) -> None:
    with pytest.raises(ModelError) as caught:
        resolve(spec, **NOBODY, OPENAI_API_KEY=" ")
    assert f"set {names}" in str(caught.value)
    assert len(str(caught.value)) < 120


@pytest.mark.parametrize(
    ("spec", "module", "extra"),
    [
        ("openai:gpt-4o", "langchain_openai", "openai"),
        ("anthropic:claude-x", "langchain_anthropic", "anthropic"),
        ("google:gemini-2.5-flash", "langchain_google_genai", "google"),
        ("ollama:llama3", "langchain_ollama", "ollama"),
    ],
)
def test_a_missing_package_is_named(
    spec: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ModelError) as caught:
        resolve(spec)
    assert f'pip install "wick-graph[{extra}]"' in str(caught.value)


def test_a_key_is_never_in_an_error_or_a_repr() -> None:
    secret = "sk-very-secret"
    spec = {"model": "openai:gpt-4o", "api_key": secret}
    assert secret not in repr(resolve(spec))
    with pytest.raises(ModelError) as caught:
        resolve(spec | {"params": {"n": 0}})
    assert secret not in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"temprature": 1}, "did you mean temperature?"),
        ({"base_url": "localhost:8080"}, "http://127.0.0.1:8080/v1"),
        ({"base_url": "http://127.0.0.1:port"}, "base_url"),
        ({"temperature": "hot"}, "temperature must be a number"),
        ({"temperature": True}, "temperature must be a number"),
        ({"temperature": -1}, "temperature must not be negative"),
        ({"max_tokens": 0}, "max_tokens must be at least 1"),
        ({"max_tokens": 1.5}, "max_tokens must be a whole number"),
        ({"context_window": "big"}, "context_window must be a whole number"),
        ({"timeout": "soon"}, "model.timeout: not a duration"),
        ({"timeout": "never"}, "model.timeout must be longer"),
        ({"retries": -1}, "retries must be a whole number"),
        ({"fallbacks": "gpt-4o"}, "fallbacks must be a list"),
        ({"fallbacks": [3]}, "fallbacks must hold names or maps"),
        ({"fallbacks": ["auto"]}, "auto could be the scripted demo"),
        ({"params": [1]}, "params must be a map"),
        ({"params": {"temperature": 1}}, "model.temperature"),
        ({"api_key": 7}, "api_key must be a text"),
        ({"model": None}, "model.model is missing"),
    ],
)
def test_a_map_with_a_mistake_is_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve({"model": "openai:gpt-4o"} | wrong)
    assert says in str(caught.value)


def test_something_else_is_refused() -> None:
    with pytest.raises(ConfigError, match="not a int"):
        resolve_model(7)  # type: ignore[arg-type]  # on purpose


def test_a_map_reaches_the_model() -> None:
    choice = resolve(
        {
            "provider": "openai",
            "model": "gpt-4o",
            "api_key": "mine",
            "temperature": 0.25,
            "max_tokens": 77,
            "timeout": "45s",
            "context_window": 9_000,
            "retries": 5,
            "params": {"seed": 3},
        }
    )
    model = openai_of(choice)
    assert model.openai_api_key is not None
    assert model.openai_api_key.get_secret_value() == "mine"  # type: ignore[union-attr]  # no callable
    assert (model.temperature, model.max_tokens, model.seed) == (0.25, 77, 3)
    assert (model.request_timeout, model.stream_chunk_timeout) == (45.0, 45.0)
    assert (choice.context_window, choice.max_tokens) == (9_000, 77)
    assert choice.retry == RetryPolicy(attempts=6)


@pytest.mark.parametrize("spec", ["openai:gpt-4o", "anthropic:claude-x"])
def test_the_sdk_does_not_retry_by_itself(spec: str) -> None:
    assert getattr(resolve(spec).model, "max_retries", None) == 0


@pytest.mark.parametrize(
    ("spec", "window"),
    [
        pytest.param("anthropic:claude-haiku-4-5", 200_000, id="from-the-profile"),
        pytest.param("openai:unheard-of", DEFAULT_CONTEXT_WINDOW, id="by-default"),
        pytest.param({"model": "claude-haiku-4-5", "context_window": 5}, 5, id="as-configured"),
        pytest.param({"model": "ollama:x", "params": {"num_ctx": 6}}, 6, id="ollama-parameter"),
    ],
)
def test_the_context_window_is_known(spec: Any, window: int) -> None:
    assert resolve(spec).context_window == window


@pytest.mark.parametrize(
    ("spec", "cap"),
    [
        pytest.param("openai:gpt-4.1-mini", LOOP_MAX_TOKENS, id="usual"),
        pytest.param("anthropic:claude-haiku-4-5", LOOP_MAX_TOKENS, id="anthropic"),
        pytest.param("openai:gpt-5", None, id="reasoning-counts-against-it"),
        pytest.param({"model": "gpt-5", "max_tokens": 9}, 9, id="as-configured"),
    ],
)
def test_replies_are_capped(spec: Any, cap: int | None) -> None:
    choice = resolve(spec)
    assert choice.max_tokens == cap
    assert getattr(choice.model, "max_tokens", None) == cap


def test_ollama_is_told_what_it_needs_in_its_own_words() -> None:
    spec = {
        "model": "ollama:qwen3",
        "context_window": 16_000,
        "api_key": "k",
        "timeout": 5,
        "temperature": 0,
    }
    model = ollama_of(resolve(spec))
    assert (model.num_ctx, model.num_predict, model.temperature) == (16_000, LOOP_MAX_TOKENS, 0)
    assert model.client_kwargs is not None
    assert model.client_kwargs["timeout"] == 5
    assert model.client_kwargs["headers"]["Authorization"] == "Bearer k"


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("", "http://127.0.0.1:11434"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        (":11500", "http://127.0.0.1:11500"),
        ("box", "http://box:11434"),
        ("box:80", "http://box:80"),
        ("http://box", "http://box:80"),
        ("https://box/ollama/", "https://box:443/ollama"),
        ("[::1]:9", "http://[::1]:9"),
    ],
)
def test_ollama_host_is_honoured(host: str, url: str) -> None:
    choice = resolve("ollama:llama3", OLLAMA_HOST=host)
    assert ollama_of(choice).base_url == url


@pytest.mark.parametrize("host", ["ftp://box", "http://box:port", "http://[::1"])
def test_an_ollama_host_that_is_no_address_is_refused(host: str) -> None:
    with pytest.raises(ModelError, match="OLLAMA_HOST"):
        resolve("ollama:llama3", OLLAMA_HOST=host)


def test_a_server_of_ones_own_is_not_sent_the_key_for_openai() -> None:
    model = openai_of(resolve({"model": "m", "base_url": "http://127.0.0.1:1/v1"}))
    assert model.root_client.api_key == "none"


def test_openai_at_another_address_is_sent_its_key() -> None:
    spec = {"provider": "openai", "model": "m", "base_url": "http://127.0.0.1:1/v1"}
    assert openai_of(resolve(spec)).root_client.api_key == "sk-o"


def test_the_environment_moves_openai() -> None:
    choice = resolve("openai:m", OPENAI_BASE_URL="http://127.0.0.1:1/v1")
    assert openai_of(choice).openai_api_base == "http://127.0.0.1:1/v1"


def test_fallbacks_are_built_in_order() -> None:
    choice = resolve({"model": "gpt-4o", "fallbacks": ["claude-x", {"model": "ollama:llama3"}]})
    assert [f.name for f in choice.fallbacks] == ["anthropic:claude-x", "ollama:llama3"]


def test_a_fallback_that_cannot_be_built_is_told_at_once() -> None:
    with pytest.raises(ModelError, match="ANTHROPIC_API_KEY"):
        resolve({"model": "gpt-4o", "fallbacks": ["claude-x"]}, OPENAI_API_KEY="k")


def test_a_ready_model_is_taken_as_it_is() -> None:
    model = GenericFakeChatModel(messages=iter(["x"]), profile={"max_input_tokens": 77})
    choice = resolve_model(model)
    assert choice.model is model
    assert (choice.name, choice.context_window) == ("GenericFakeChatModel", 77)
    assert resolve_model(resolve("openai:gpt-4o").model).name == "gpt-4o"


def test_a_script_lies_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "script.yaml").write_text("steps:\n  - text: Hello\n", encoding="utf-8")
    choice = resolve_model("scripted:script.yaml", base_dir=tmp_path, env={})
    assert isinstance(choice.model, ScriptedModel)
    assert choice.name == "scripted:script.yaml"
    assert choice.model.invoke("hi").text == "Hello"


@pytest.mark.parametrize(
    ("env", "name"),
    [
        pytest.param({"WICK_MODEL": "ollama:llama3"} | KEYS, "ollama:llama3", id="named"),
        pytest.param(KEYS, "openai:gpt-4.1-mini", id="openai-first"),
        pytest.param({"ANTHROPIC_API_KEY": "k"}, "anthropic:claude-haiku-4-5", id="anthropic"),
        pytest.param(
            {"WICK_MODEL": "auto", "OPENAI_API_KEY": "k"}, "openai:gpt-4.1-mini", id="auto"
        ),
    ],
)
def test_auto_takes_what_is_there(env: dict[str, str], name: str) -> None:
    choice = resolve_model("auto", env=NOBODY | env)
    assert (choice.name, choice.notice) == (name, None)


def test_auto_without_anything_is_the_demo_and_says_so() -> None:
    choice = resolve_model("auto", env=NOBODY)
    assert choice.name == "scripted:demo"
    assert choice.notice == (
        "No model key and no Ollama found: using the scripted demo model "
        "(set WICK_MODEL=provider:model for a real one)."
    )


def test_auto_says_why_a_key_was_of_no_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "langchain_openai", None)
    choice = resolve_model("auto", env=NOBODY | {"OPENAI_API_KEY": "k"})
    assert choice.name == "scripted:demo"
    assert 'pip install "wick-graph[openai]"' in str(choice.notice)


def test_settings_beside_auto_are_kept() -> None:
    choice = resolve_model({"model": "auto", "temperature": 0.5, "retries": 0}, env=KEYS)
    assert (choice.name, choice.retry.attempts) == ("openai:gpt-4.1-mini", 1)
    assert openai_of(choice).temperature == 0.5


@pytest.mark.parametrize("named", ["openai:gpt-4o", "opnai:x", "llama3", "scripted:gone.yaml"])
def test_a_named_model_is_never_the_demo(named: str) -> None:
    with pytest.raises(WickError):
        resolve_model("auto", env=NOBODY | {"WICK_MODEL": named})


def test_auto_does_not_wait_for_an_ollama_that_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        env = {"OLLAMA_HOST": f"127.0.0.1:{silent.getsockname()[1]}"}
        assert resolve_model("auto", env=env).name == "scripted:demo"


def test_google_is_built_like_the_others() -> None:
    google = pytest.importorskip("langchain_google_genai")
    choice = resolve({"model": "google_genai:gemini-2.5-flash", "max_tokens": 8, "timeout": 3})
    assert isinstance(choice.model, google.ChatGoogleGenerativeAI)
    assert (choice.name, choice.max_tokens) == ("google:gemini-2.5-flash", 8)
    assert choice.context_window == 1_048_576
    assert choice.model.max_retries == 1


def test_anthropic_is_built_offline() -> None:
    url = "http://127.0.0.1:1"
    choice = resolve({"model": "anthropic:claude-haiku-4-5", "base_url": url, "timeout": 3})
    assert isinstance(choice.model, ChatAnthropic)
    assert choice.model.anthropic_api_url == url
    assert choice.model.default_request_timeout == 3


def test_no_provider_is_imported_before_it_is_needed() -> None:
    code = (
        "import sys, wick_graph.models, wick_graph.models.call\n"
        "known = ('langchain_openai', 'langchain_anthropic', 'langchain_google_genai',"
        " 'langchain_ollama', 'openai', 'anthropic', 'ollama', 'tiktoken')\n"
        "print([name for name in known if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
