"""From a name, a map or a chat model to a model that is ready to be called."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable, RunnableWithFallbacks
from langchain_core.runnables.base import RunnableBinding
from langchain_core.runnables.retry import RunnableRetry

from wick_graph.constants import DEFAULT_CONTEXT_WINDOW
from wick_graph.errors import ConfigError, ModelError
from wick_graph.models.call import bind
from wick_graph.models.providers import PROVIDERS, build, find_model, key_of, load
from wick_graph.models.retry import RetryPolicy
from wick_graph.models.spec import AUTO, ModelSpec, parse

if TYPE_CHECKING:
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
        settings = {**option.settings, **settings} if option.settings else settings
        own = tuple(map(id, option.configs))
        key = (
            id(option.model),
            own,
            tuple(map(id, tools)),
            withheld,
            repr(sorted(settings.items())),
        )
        known = self._made.get(key)
        if known is None:
            if len(self._made) > 256:  # settings that differ on every call must not pile up
                self._made.clear()
            schemas = [tool.schema for tool in tools]
            bound = bind(option.model, schemas, withheld=withheld, settings=settings)
            for given in option.configs:
                bound = RunnableBinding(
                    bound=bound, config=given.config, config_factories=given.config_factories
                )
            known = self._made[key] = (bound, option, tuple(tools))  # keeps the ids alive
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
    falls_back_on: tuple[type[BaseException], ...] = (Exception,)
    """Errors after which the fallbacks are called."""
    inner: ModelChoice | None = None
    """What is called in place of the model, as one attempt: a model with retries or fallbacks."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings that were bound to the model; those of a request win."""
    configs: tuple[RunnableBinding[Any, Any], ...] = ()
    """Wrappers, innermost first; calls of the model get their config."""
    notice: str | None = None
    """One line for the user at the terminal."""

    @property
    def reads_images(self) -> bool:
        """Whether all models that it may call are known to read pictures."""
        return all((one.model.profile or {}).get("image_inputs") for one in self.leaves())

    def leaves(self) -> Iterator[ModelChoice]:
        """Yield the choices that call a model themselves, in the order of their calls."""
        if self.inner is None:
            yield self
        for choice in (self.inner, *self.fallbacks):
            if choice is not None:
                yield from choice.leaves()


def resolve_model(
    spec: str | Mapping[str, Any] | Runnable[Any, Any],
    *,
    base_dir: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> ModelChoice:
    """Build the model that a name or a map describes, or take a ready LangChain model.

    A LangChain model may be wrapped by `with_fallbacks`, `with_retry`, `bind` and `with_config`.

    `auto` is `WICK_MODEL`, else the first provider with a key, else an Ollama that answers, else
    the scripted demo, with a notice. An explicit name gives that model or an error. `scripted:`
    paths start at `base_dir`, or in the current directory; `env` replaces the process's
    environment.

    Raises:
        ModelError: the model cannot be found or built; the text says what to install or set.
        ConfigError: a map has an unknown key or a value of the wrong kind.
    """
    if isinstance(spec, Runnable):
        return _unwrapped(spec)
    if not isinstance(spec, str | Mapping):
        raise ConfigError(
            "model must be a name like openai:gpt-5, a map, or a LangChain chat model, "
            f"not a {type(spec).__name__}."
        )
    surroundings = os.environ if env is None else env
    return _resolve(parse(spec), base_dir or Path(), surroundings)


# --- LangChain's wrappers of a model become the engine's own retries, fallbacks and settings.
#
# `bind_tools` on a wrapper fails or loses it, and LangChain's retries do not cover streams. So the
# wrappers are taken off, the tools are bound to the models inside, and the engine does the rest.


_TOOLS: Final = ("tools", "functions")

_ENDLESS: Final = 1_000_000
"""Attempts where LangChain sets no limit; the policy's total time ends them."""


def _unwrapped(given: Runnable[Any, Any]) -> ModelChoice:
    """Return the choice that a model and its wrappers describe.

    Raises:
        ConfigError: A wrapper is unknown, or binds tools.
    """
    if isinstance(given, BaseChatModel):
        return ModelChoice(model=given, name=_own_name(given), context_window=_window(given, None))
    if type(given) is RunnableWithFallbacks and given.exception_key is None:
        rest = tuple(_alone(_unwrapped(one)) for one in given.fallbacks)
        first, errors = _alone(_unwrapped(given.runnable)), tuple(given.exceptions_to_handle)
        return replace(first, fallbacks=rest, falls_back_on=errors)
    if type(given) is RunnableRetry:
        inner = _with_binding(_unwrapped(given.bound), given)
        plain = inner.inner is None and not inner.fallbacks and inner.retry.on is None
        return replace(inner if plain else _around(inner), retry=_policy(given))
    if isinstance(given, RunnableBinding) and type(given).invoke is RunnableBinding.invoke:
        return _with_binding(_unwrapped(given.bound), given)
    raise ConfigError(
        f"model is a {type(given).__name__}, to which no tools can be bound; give a chat model, "
        "bare or with with_fallbacks, with_retry, bind or with_config"
    )


def _alone(choice: ModelChoice) -> ModelChoice:
    """Return the choice as one that can have fallbacks, or be one."""
    return _around(choice) if choice.fallbacks else choice


def _around(choice: ModelChoice) -> ModelChoice:
    """Return a choice that calls another one, with its retries and fallbacks, as one attempt."""
    window, once = choice.context_window, RetryPolicy(attempts=1)
    return ModelChoice(
        model=choice.model, name=choice.name, context_window=window, retry=once, inner=choice
    )


def _policy(given: RunnableRetry[Any, Any]) -> RetryPolicy:
    on, waits = given.retry_exception_types, given.exponential_jitter_params or {}
    return RetryPolicy(
        attempts=given.max_attempt_number or _ENDLESS,
        base=waits.get("initial", 1.0) if given.wait_exponential_jitter else 0.0,
        cap=min(waits.get("max", 60.0), 60.0),
        on=on if callable(on) else on or (Exception,),
    )


def _with_binding(choice: ModelChoice, given: Any) -> ModelChoice:
    """Give each model of a choice the settings and the config of a binding around it."""
    settings: Mapping[str, Any] = given.kwargs
    if bound := [name for name in _TOOLS if name in settings]:
        raise ConfigError(
            f"model has {bound[0]} bound to it; give these to the agent, and the model without them"
        )
    configs = (given,) if given.config or given.config_factories else ()
    if not settings and not configs:
        return choice
    inner = None if choice.inner is None else _with_binding(choice.inner, given)
    return replace(
        choice,
        settings={**choice.settings, **settings},
        configs=(*choice.configs, *configs),
        inner=inner,
        fallbacks=tuple(_with_binding(one, given) for one in choice.fallbacks),
    )


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
    if isinstance(entry, Runnable):
        return _alone(_unwrapped(entry))
    if not isinstance(entry, str | Mapping):
        raise ConfigError("model.fallbacks must hold names or maps of models.")
    spec = parse(entry)
    if spec.provider == AUTO:
        raise ConfigError("model.fallbacks must name its models: auto could be the scripted demo.")
    return _resolve(spec, base_dir, env)


def _scripted(place: str, base_dir: Path) -> BaseChatModel:
    from wick_graph.models.demo import demo_model  # noqa: PLC0415  # slow, and seldom used
    from wick_graph.models.scripted import ScriptedModel  # noqa: PLC0415  # slow, and seldom used

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
