"""A model as a configuration names it: `provider:model`, a bare name, or a map."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from wick_graph.durations import seconds
from wick_graph.errors import ConfigError, ModelError, did_you_mean

ALIASES: Final = {"google_genai": "google", "google-genai": "google"}
"""Other spellings of the known providers' names."""

PROVIDERS: Final = ("openai", "anthropic", "google", "ollama", "scripted")
"""Providers that an error message lists; LangChain's others work too."""

AUTO: Final = "auto"
"""The model's name that leaves the choice to wick_graph."""

_BARE: Final = (
    (re.compile(r"claude-", re.IGNORECASE), "anthropic"),
    (re.compile(r"gpt-|chatgpt-|o\d", re.IGNORECASE), "openai"),
    (re.compile(r"gemini-", re.IGNORECASE), "google"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """One model, checked for form, not yet built."""

    provider: str = ""
    model: str = ""
    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    temperature: float | None = None
    max_tokens: int | None = None
    timeout: float | None = None
    """Seconds without a byte from the provider, not of the whole call."""
    context_window: int | None = None
    retries: int | None = None
    """Further attempts after the first; None for the default policy."""
    fallbacks: tuple[Any, ...] = ()
    params: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Passed to the model's class as they are."""
    named: bool = True
    """False if the provider is only assumed to be OpenAI-compatible because of `base_url`."""

    @property
    def name(self) -> str:
        """The model as it is shown: `openai:gpt-5`."""
        return f"{self.provider}:{self.model}"


def parse(spec: str | Mapping[str, Any]) -> ModelSpec:
    """Read a model's name or map.

    A name is split at its first colon, so that `ollama:llama3.1:8b` is `llama3.1:8b` at Ollama.

    Raises:
        ModelError: the name lacks the provider or the model.
        ConfigError: a map has an unknown key or a value of the wrong kind.
    """
    if isinstance(spec, str):
        return ModelSpec(**_split(spec))
    return _from_map(spec)


def _split(text: str) -> dict[str, Any]:
    name = text.strip()
    if name == AUTO:
        return {"provider": AUTO, "model": AUTO}
    if not name:
        raise ModelError(f"The model's name is empty: write provider:model, {_listed()}.")
    provider, colon, model = name.partition(":")
    if not colon:
        for pattern, known in _BARE:
            if pattern.match(name):
                return {"provider": known, "model": name}
        guess = f"; did you mean {name}:MODEL?" if name in PROVIDERS else "."
        raise ModelError(
            f"The model {name!r} names no provider: write provider:model, {_listed()}{guess}"
        )
    provider, model = provider.strip().lower(), model.strip()
    if not provider or not model:
        missing = "model" if provider else "provider"
        raise ModelError(f"The model {name!r} has no {missing}: write provider:model, {_listed()}.")
    return {"provider": ALIASES.get(provider, provider), "model": model}


def unknown_provider(provider: str) -> ModelError:
    """Phrase the refusal of an unknown provider, with the nearest known one."""
    return ModelError(
        f"No provider is called {provider!r}{did_you_mean(provider, PROVIDERS)}; {_listed()}."
    )


def _listed() -> str:
    return f"where provider is one of {', '.join(PROVIDERS)}"


def _from_map(spec: Mapping[str, Any]) -> ModelSpec:
    for key in spec:
        if key not in _READERS:
            word = str(key)
            raise ConfigError(
                f"model has no key {word!r}{did_you_mean(word, _READERS)}; "
                f"its keys are {', '.join(_READERS)}."
            )
    read: dict[str, Any] = {
        key: _READERS[key](key, value) for key, value in spec.items() if value is not None
    }
    model = read.get("model")
    if not model:
        raise ConfigError("model.model is missing: give the provider's name of the model.")
    provider = read.get("provider")
    if provider:
        provider = provider.lower()
        read["provider"] = ALIASES.get(provider, provider)
    elif read.get("base_url"):
        read |= _compatible(model)
    else:
        read |= _split(model)
    return ModelSpec(**read)


def _compatible(model: str) -> dict[str, Any]:
    """Keep a model's name whole if it has its own address, unless it names a known provider.

    So `qwen2.5:1.5b` stays whole, and `ollama:qwen2.5:1.5b` is Ollama at that address.
    """
    prefix = model.partition(":")[0].lower()
    if prefix in PROVIDERS or prefix in ALIASES:
        return _split(model)
    return {"provider": "openai", "model": model, "named": False}


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"model.{key} must be a text, not {_kind(value)}.")
    return value.strip()


def _url(key: str, value: Any) -> str:
    text = _text(key, value)
    try:
        parts = urlsplit(text)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname)
        _ = parts.port  # raises if it is not a number
    except ValueError:
        fits = False
    if not fits:
        raise ConfigError(f"model.{key} must be an address like http://127.0.0.1:8080/v1.")
    return text


def _number(key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ConfigError(f"model.{key} must be a number, not {_kind(value)}.")
    if value < 0:
        raise ConfigError(f"model.{key} must not be negative.")
    return value


def _positive(key: str, value: Any) -> int:
    count = _whole(key, value)
    if count < 1:
        raise ConfigError(f"model.{key} must be at least 1.")
    return count


def _whole(key: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConfigError(f"model.{key} must be a whole number, zero or more.")
    return value


def _duration(key: str, value: Any) -> float:
    try:
        found = seconds(value)
    except ConfigError as error:
        raise ConfigError(f"model.{key}: {error}.") from None
    if not found:
        raise ConfigError(f"model.{key} must be longer than zero and not never: write 60s.")
    return found


def _fallbacks(key: str, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise ConfigError(f"model.{key} must be a list of models.")
    return tuple(value)


def _params(key: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise ConfigError(f"model.{key} must be a map of names to values.")
    for name in value:
        if name in _READERS:
            raise ConfigError(f"model.params.{name} belongs one level up, as model.{name}.")
    return dict(value)


def _kind(value: Any) -> str:
    return f"a {type(value).__name__}"


_READERS: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    "provider": _text,
    "model": _text,
    "base_url": _url,
    "api_key": _text,
    "temperature": _number,
    "max_tokens": _positive,
    "timeout": _duration,
    "context_window": _positive,
    "retries": _whole,
    "fallbacks": _fallbacks,
    "params": _params,
}
