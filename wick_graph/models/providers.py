"""The providers that we name, and how a model of theirs is built through LangChain.

A provider's package is imported when a model of it is built, never before.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from langchain.chat_models import init_chat_model
from langchain_core.language_models import BaseChatModel
from pydantic import ValidationError

from wick_graph.constants import LOOP_MAX_TOKENS
from wick_graph.errors import ModelError
from wick_graph.models.ollama import server_url
from wick_graph.models.spec import ModelSpec, unknown_provider


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """What we know of a provider beyond what LangChain does."""

    langchain: str
    """Its name in `init_chat_model`."""
    module: str
    extra: str
    """Its extra in `pip install "wick-graph[…]"`."""
    keys: tuple[str, ...] = ()
    """Environment variables that hold its key, the usual one first."""
    addresses: tuple[str, ...] = ()
    """Environment variables that move it to another address."""
    keyless: tuple[str, ...] = ()
    """Environment variables and parameters that stand for another way to sign in."""
    default_model: str = ""
    """What `auto` takes: small, calls tools, and is likely to be there for years."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Arguments that switch the SDK's own retries off, since the engine retries."""
    cap: str = "max_tokens"
    """The model's field for the length of a reply."""
    thinks_unasked: bool = False
    """True where reasoning models think by default, and thinking counts against the cap."""


_GATEWAY: Final = "LANGSMITH_GATEWAY"

PROVIDERS: Final[Mapping[str, Provider]] = {
    "openai": Provider(
        langchain="openai",
        module="langchain_openai",
        extra="openai",
        keys=("OPENAI_API_KEY",),
        addresses=("OPENAI_BASE_URL", "OPENAI_API_BASE"),
        keyless=(_GATEWAY, "default_headers"),
        default_model="gpt-4.1-mini",
        fixed={"max_retries": 0},
        thinks_unasked=True,
    ),
    "anthropic": Provider(
        langchain="anthropic",
        module="langchain_anthropic",
        extra="anthropic",
        keys=("ANTHROPIC_API_KEY",),
        addresses=("ANTHROPIC_BASE_URL", "ANTHROPIC_API_URL"),
        keyless=(_GATEWAY, "default_headers"),
        default_model="claude-haiku-4-5",
        fixed={"max_retries": 0},
    ),
    "google": Provider(
        langchain="google_genai",
        module="langchain_google_genai",
        extra="google",
        keys=("GOOGLE_API_KEY", "GEMINI_API_KEY"),
        keyless=(_GATEWAY, "GOOGLE_GENAI_USE_VERTEXAI", "vertexai", "credentials", "project"),
        default_model="gemini-2.5-flash",
        fixed={"max_retries": 1},  # attempts, not retries; its SDK reads 0 as its default of five
        cap="max_output_tokens",
        thinks_unasked=True,
    ),
    "ollama": Provider(
        langchain="ollama", module="langchain_ollama", extra="ollama", cap="num_predict"
    ),
}

_HAVE_MAX_RETRIES: Final = frozenset(
    {"azure_openai", "deepseek", "groq", "mistralai", "together", "xai"}
)
"""LangChain's other providers whose classes are known to take `max_retries`."""

_NO_KEY: Final = "none"
"""Sent to a server of one's own that asks for no key; the SDK insists on some text."""
_NEEDS_KEY: Final = "{model} needs a key: set {names}, or give the model as a map with an api_key."


def build(spec: ModelSpec, env: Mapping[str, str]) -> tuple[BaseChatModel, int | None]:
    """Build the model that a spec names, and tell the cap on its replies in tokens, if any.

    Raises:
        ModelError: if the provider is unknown, its package or its key is missing, or its class
            refuses an argument; the text names what to install or to set.
    """
    provider = PROVIDERS.get(spec.provider)
    if provider is None:
        return _create(spec, spec.provider, _common(spec)), spec.max_tokens
    load(spec.provider)
    arguments = _ollama(spec, env) if spec.provider == "ollama" else _hosted(spec, provider, env)
    cap = spec.max_tokens or LOOP_MAX_TOKENS
    model = _create(spec, provider.langchain, {provider.cap: cap} | arguments)
    if spec.max_tokens is None and provider.thinks_unasked and _reasons(model):
        setattr(model, provider.cap, None)
    return model, getattr(model, provider.cap, cap)


def load(name: str) -> None:
    """Import one of our providers' packages.

    Raises:
        ModelError: if it is not installed; the text is the command that installs it.
    """
    provider = PROVIDERS[name]
    try:
        importlib.import_module(provider.module)
    except ImportError:
        raise ModelError(
            f"Models of {name} need a package that is not installed: "
            f'pip install "wick-graph[{provider.extra}]".'
        ) from None


def key_of(provider: Provider, env: Mapping[str, str]) -> str:
    """Find the provider's key in the environment; an empty text if there is none."""
    return next((env[name] for name in provider.keys if env.get(name, "").strip()), "")


def _hosted(spec: ModelSpec, provider: Provider, env: Mapping[str, str]) -> dict[str, Any]:
    arguments = _common(spec) | dict(provider.fixed)
    moved = next((env[name] for name in provider.addresses if env.get(name, "").strip()), None)
    address = spec.base_url or moved
    if address:
        arguments["base_url"] = address
    key = spec.api_key or (key_of(provider, env) if spec.named else "")
    if not key and spec.provider == "openai" and address:
        key = _NO_KEY
    if key:
        arguments["api_key"] = key
    elif not any(env.get(name) or spec.params.get(name) for name in provider.keyless):
        raise ModelError(_NEEDS_KEY.format(model=spec.name, names=" or ".join(provider.keys)))
    if spec.provider == "openai":
        if spec.timeout:
            arguments["stream_chunk_timeout"] = spec.timeout
        if address:  # LangChain asks for token counts in streams only at OpenAI itself
            arguments["stream_usage"] = True
    return arguments | dict(spec.params)


def _common(spec: ModelSpec) -> dict[str, Any]:
    """The arguments that LangChain's classes have in common, as far as they are given."""
    given = {
        "temperature": spec.temperature,
        "max_tokens": spec.max_tokens if spec.provider not in PROVIDERS else None,
        "timeout": spec.timeout,
        "base_url": spec.base_url,
        "api_key": spec.api_key,
        "max_retries": 0 if spec.provider in _HAVE_MAX_RETRIES else None,
    }
    return {name: value for name, value in given.items() if value is not None} | dict(spec.params)


def _ollama(spec: ModelSpec, env: Mapping[str, str]) -> dict[str, Any]:
    client: dict[str, Any] = {}
    if spec.timeout:
        client["timeout"] = spec.timeout
    if spec.api_key:
        client["headers"] = {"Authorization": f"Bearer {spec.api_key}"}
    arguments: dict[str, Any] = {"base_url": server_url(spec.base_url, env)}
    if spec.temperature is not None:
        arguments["temperature"] = spec.temperature
    if spec.context_window:  # what is beyond its own, small default it cuts off without a word
        arguments["num_ctx"] = spec.context_window
    if client:
        arguments["client_kwargs"] = client
    return arguments | dict(spec.params)


def _reasons(model: BaseChatModel) -> bool:
    return bool((model.profile or {}).get("reasoning_output"))


def _create(spec: ModelSpec, langchain: str, arguments: dict[str, Any]) -> BaseChatModel:
    try:
        model: BaseChatModel = init_chat_model(spec.model, model_provider=langchain, **arguments)
    except ImportError as error:
        found = re.search(r"pip install ([\w-]+)", str(error))
        package = found[1] if found else f"langchain-{spec.provider.replace('_', '-')}"
        raise ModelError(
            f"Models of {spec.provider} need a package that is not installed: "
            f"pip install {package}."
        ) from None
    except ValidationError as error:
        raise ModelError(f"{spec.name} cannot be built: {_first(error)}.") from None
    except Exception as error:  # whatever a provider's class raises, also for a missing key
        if "Unsupported provider" in str(error):
            raise unknown_provider(spec.provider) from None
        raise ModelError(_refused(spec, error)) from None
    return model


def _first(error: ValidationError) -> str:
    """The first complaint, without the value complained of: it may be a secret."""
    found = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(str(part) for part in found["loc"])
    text = found["msg"].split("\n", 1)[0].rstrip(".")
    return f"{place}: {text}" if place else text


def _refused(spec: ModelSpec, error: Exception) -> str:
    text = str(error)
    variable = re.search(r"\b[A-Z][A-Z0-9_]*_(?:API_KEY|API_TOKEN|TOKEN)\b", text)
    if variable and not spec.api_key:
        return _NEEDS_KEY.format(model=spec.name, names=variable[0])
    line = text.split("\n", 1)[0][:200].rstrip(".") or type(error).__name__
    if spec.api_key:
        line = line.replace(spec.api_key, "…")
    return f"{spec.name} cannot be built: {line}."
