"""From a name, a map or a chat model to a model that is ready to be called."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from langchain_core.language_models import BaseChatModel

from wick_graph.constants import DEFAULT_CONTEXT_WINDOW
from wick_graph.errors import ConfigError, ModelError
from wick_graph.models.call import bind
from wick_graph.models.demo import demo_model
from wick_graph.models.providers import PROVIDERS, build, find_model, key_of, load
from wick_graph.models.retry import RetryPolicy
from wick_graph.models.scripted import ScriptedModel
from wick_graph.models.spec import AUTO, ModelSpec, parse

if TYPE_CHECKING:
    from langchain_core.runnables import Runnable

    from wick_graph.tools.bound import BoundTool


# --- Bind tools and settings to models once for each combination, not once for each call.


class Binder:
    """Remember bound models by the identity of model and tools."""

    def __init__(self) -> None:
        self._made: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    def bind(
        self,
        option: ModelChoice,
        tools: Sequence[BoundTool],
        settings: Mapping[str, Any],
        withheld: bool,
    ) -> Runnable[Any, Any]:
        """Return the model with these tools and settings bound to it."""
        key = (id(option.model), tuple(map(id, tools)), withheld, repr(sorted(settings.items())))
        known = self._made.get(key)
        if known is None:
            if len(self._made) > 256:  # settings that differ on every call must not pile up
                self._made.clear()
            schemas = [tool.schema for tool in tools]
            bound = bind(option.model, schemas, withheld=withheld, settings=settings)
            known = self._made[key] = (bound, option.model, tuple(tools))  # keeps the ids alive
        runnable: Runnable[Any, Any] = known[0]
        return runnable


DEMO: Final = "scripted:demo"

_DEMO_NOTICE: Final = (
    "No model key and no Ollama found: using the scripted demo model "
    "(set WICK_MODEL=provider:model for a real one)."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChoice:
    """A model that is ready to be called, and what the engine must know about it."""

    model: BaseChatModel
    name: str
    """As it is shown: `openai:gpt-5`; a model that the caller built shows its own name."""
    context_window: int = DEFAULT_CONTEXT_WINDOW
    """Tokens."""
    max_tokens: int | None = None
    """Cap on one reply; None for the model's own."""
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    fallbacks: tuple[ModelChoice, ...] = ()
    """Called in this order after this model has failed for good."""
    notice: str | None = None
    """One line for the user at the terminal."""


def resolve_model(
    spec: str | Mapping[str, Any] | BaseChatModel,
    *,
    base_dir: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> ModelChoice:
    """Build the model that a name or a map describes, or take a ready LangChain model.

    `auto` is `WICK_MODEL`, else the first provider with a key, else an Ollama that answers, else
    the scripted demo, with a notice. An explicit name gives that model or an error. `scripted:`
    paths start at `base_dir`, or in the current directory; `env` replaces the process's
    environment.

    Raises:
        ModelError: the model cannot be found or built; the text says what to install or set.
        ConfigError: a map has an unknown key or a value of the wrong kind.
    """
    if isinstance(spec, BaseChatModel):
        return ModelChoice(model=spec, name=_own_name(spec), context_window=_window(spec, None))
    if not isinstance(spec, str | Mapping):
        raise ConfigError(
            "model must be a name like openai:gpt-5, a map, or a LangChain chat model, "
            f"not a {type(spec).__name__}."
        )
    surroundings = os.environ if env is None else env
    return _resolve(parse(spec), base_dir or Path(), surroundings)


def _resolve(spec: ModelSpec, base_dir: Path, env: Mapping[str, str]) -> ModelChoice:
    notice = None
    if spec.provider == AUTO:
        found, notice = _auto(env)
        spec = _over(found, spec)
    if spec.provider == "scripted":
        model, cap = _scripted(spec.model, base_dir), spec.max_tokens
    else:
        model, cap = build(spec, env)
    return ModelChoice(
        model=model,
        name=spec.name,
        context_window=_window(model, spec),
        max_tokens=cap,
        retry=RetryPolicy() if spec.retries is None else RetryPolicy(attempts=spec.retries + 1),
        fallbacks=tuple(_fallback(entry, base_dir, env) for entry in spec.fallbacks),
        notice=notice,
    )


def _auto(env: Mapping[str, str]) -> tuple[ModelSpec, str | None]:
    """Return the model that `auto` finds, and a notice for the user."""
    named = env.get("WICK_MODEL", "").strip()
    if named and named != AUTO:
        return parse(named), None
    missing = None
    for name, provider in PROVIDERS.items():
        if not key_of(provider, env):
            continue
        try:
            load(name)
        except ModelError as error:
            missing = missing or str(error)
            continue
        return ModelSpec(provider=name, model=provider.default_model), None
    local = find_model(env)
    if local:
        try:
            load("ollama")
        except ModelError as error:
            missing = missing or str(error)
        else:
            return ModelSpec(provider="ollama", model=local), None
    return parse(DEMO), f"{missing} Using the scripted demo model." if missing else _DEMO_NOTICE


def _over(found: ModelSpec, given: ModelSpec) -> ModelSpec:
    """Return the found model with the settings given beside `auto`."""
    bare = ModelSpec()
    kept = ("provider", "model", "named")
    settings = {
        f.name: getattr(given, f.name)
        for f in fields(given)
        if f.name not in kept and getattr(given, f.name) != getattr(bare, f.name)
    }
    return replace(found, **settings)


def _fallback(entry: Any, base_dir: Path, env: Mapping[str, str]) -> ModelChoice:
    if isinstance(entry, BaseChatModel):
        return resolve_model(entry)
    if not isinstance(entry, str | Mapping):
        raise ConfigError("model.fallbacks must hold names or maps of models.")
    spec = parse(entry)
    if spec.provider == AUTO:
        raise ConfigError("model.fallbacks must name its models: auto could be the scripted demo.")
    return _resolve(spec, base_dir, env)


def _scripted(place: str, base_dir: Path) -> BaseChatModel:
    if place == "demo":
        return demo_model()
    path = base_dir / place
    if not path.is_file():
        raise ModelError(f"scripted:{place} names a file that does not exist: {path}.")
    return ScriptedModel.from_yaml(path)


def _window(model: BaseChatModel, spec: ModelSpec | None) -> int:
    """Return the window in tokens: configured, else from LangChain's profile, else the default."""
    configured = spec and (spec.context_window or spec.params.get("num_ctx"))
    for size in (configured, (model.profile or {}).get("max_input_tokens")):
        if isinstance(size, int) and not isinstance(size, bool) and size > 0:
            return size
    return DEFAULT_CONTEXT_WINDOW


def _own_name(model: BaseChatModel) -> str:
    for attribute in ("model_name", "model", "name"):
        value = getattr(model, attribute, None)
        if isinstance(value, str) and value:
            return value
    return type(model).__name__
