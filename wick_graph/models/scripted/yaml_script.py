"""Scripts as YAML, so that an agent's file can name one as its model.

    steps:
      - A plain text.
      - {text: Let me look., calls: [{tool: ls, args: {path: .}}]}
      - {call: calculate, args: {expression: 21*2}}
      - {rate_limit: 0.5}
      - {delay: 0.1, text: "The end."}
    lanes:
      - {name: summary, when: {purpose: summarize}, cursor: fifo, steps: [A summary.]}

A step has one kind and perhaps options; `delay` goes with every kind.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml
from langchain_core import exceptions as langchain_exceptions

from wick_graph.errors import ConfigError
from wick_graph.models.scripted import script as make
from wick_graph.models.scripted.script import Lane, Step, StepLike

Script = tuple[list[Step], list[Lane], dict[str, Any]]
"""The steps of the main lane, the other lanes, and the model's settings."""

_SETTINGS: Final = ("model_name", "cursor", "profile", "record_calls", "chunk_delay")

_TEXT: Final = frozenset({"chunks", "finish"})
"""What a text alone has."""

_REPLY: Final = _TEXT | {"text", "call", "args", "calls", "usage", "id", "unchecked"}


def read_script(path: Path) -> Script:
    """Read a script; raises `ConfigError` with the file and, if known, the line."""
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except OSError as problem:
        raise ConfigError(
            f"the script {path} cannot be read ({problem.strerror}): check its path"
        ) from problem
    except (yaml.YAMLError, UnicodeDecodeError) as problem:
        raise ConfigError(f"the script {path} is not valid YAML: {problem}") from problem
    steps, lanes, settings = script_from(content, str(path))
    return steps, lanes, {"model_name": f"scripted:{path.name}", **settings}


def script_from(content: object, source: str) -> Script:
    """Build a script from plain data; raises `ConfigError` with `source` and the step."""
    if not isinstance(content, Mapping):
        raise ConfigError(f"{source}: a script is a mapping with 'steps' or 'lanes'")
    _only(content, {"steps", "lanes", *_SETTINGS}, source)
    settings = {key: content[key] for key in _SETTINGS if key in content}
    steps = _steps(content.get("steps", []), f"{source}: steps")
    lanes = [
        _lane(one, f"{source}: lanes[{at}]")
        for at, one in enumerate(_list(content.get("lanes", []), f"{source}: lanes"))
    ]
    if not steps and not lanes:
        raise ConfigError(f"{source}: the script is empty: give it 'steps' or 'lanes'")
    return steps, lanes, settings


class _Loader(yaml.SafeLoader):
    """A loader that refuses a duplicate key in a mapping: one of the two would be lost."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!r} is given twice", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _lane(data: object, where: str) -> Lane:
    if not isinstance(data, Mapping):
        raise ConfigError(f"{where}: a lane is a mapping with 'name' and 'steps'")
    _only(data, {"name", "when", "cursor", "steps"}, where)
    steps = _steps(data.get("steps", []), f"{where}.steps")
    try:
        return Lane(
            str(data.get("name", "")), steps, when=data.get("when"), cursor=data.get("cursor")
        )
    except ConfigError as problem:
        raise ConfigError(f"{where}: {problem}") from problem


def _steps(data: object, where: str) -> list[Step]:
    return [_step(one, f"{where}[{at}]") for at, one in enumerate(_list(data, where))]


def _step(data: object, where: str) -> Step:
    try:
        return make.as_step(_build(data, where))
    except (TypeError, ValueError) as problem:
        said = str(problem)
        raise ConfigError(said if said.startswith(where) else f"{where}: {said}") from problem


def _build(data: object, where: str) -> StepLike:
    if isinstance(data, str):
        return data
    if not isinstance(data, Mapping):
        raise ConfigError(f"a step is a text or a mapping, not {type(data).__name__}")
    if "delay" in data:
        rest = {key: value for key, value in data.items() if key != "delay"}
        return make.delay(float(data["delay"]), _build(rest, where))
    if data and data.keys() <= _REPLY:
        return _reply(data)
    if len(data) != 1:
        raise ConfigError(
            f"a step has one kind, this one has the keys {', '.join(map(str, data)) or 'none'}"
        )
    kind, value = next(iter(data.items()))
    if kind == "attempts":
        return make.attempts(*_steps(value, f"{where}.attempts"))
    if kind not in _FAULTS:
        known = ", ".join(["text", "call", "calls", "delay", "attempts", *_FAULTS])
        raise ConfigError(f"there is no step {kind!r}: use one of {known}")
    return _FAULTS[kind](value)


def _reply(data: Mapping[str, Any]) -> Step:
    options = {key: data[key] for key in ("usage", "id", "unchecked") if key in data}
    if isinstance(options.get("usage"), list):
        options["usage"] = tuple(options["usage"])
    if "call" in data:
        wanted: list[Any] = [(data["call"], data.get("args") or {})]
    else:
        wanted = [_call(one) for one in _list(data.get("calls", []), "calls")]
    if wanted:
        _only(data, _REPLY - _TEXT - ({"calls"} if "call" in data else {"args"}), "a call")
        return make.calls(*wanted, text=str(data.get("text", "")), **options)
    _only(data, _REPLY - {"args", "unchecked"}, "a text")
    only = {key: data[key] for key in _TEXT if key in data}
    return make.text(str(data.get("text", "")), **only, **options)


def _call(data: object) -> make.CallLike:
    if not isinstance(data, Mapping) or "tool" not in data:
        raise ConfigError("each of 'calls' is a mapping with 'tool' and perhaps 'args' and 'id'")
    _only(data, {"tool", "args", "id"}, "a call")
    made = (str(data["tool"]), data.get("args") or {})
    return (*made, str(data["id"])) if "id" in data else made


def _options(name: str, *, plain: str = "") -> Callable[[Any], StepLike]:
    """Call a step function with a mapping of its arguments, or with one plain value."""
    function: Callable[..., StepLike] = getattr(make, name)

    def build(value: Any) -> StepLike:
        if isinstance(value, Mapping):
            return function(**value)
        return function() if value is None or value is True else function(**{plain: value})

    return build


def _error(value: Any) -> StepLike:
    if not isinstance(value, Mapping):
        return make.error(str(value))
    _only(value, {"type", "text"}, "an error")
    name = str(value.get("type", "RuntimeError"))
    kind = getattr(langchain_exceptions, name, None) or getattr(builtins, name, None)
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        raise ConfigError(
            f"there is no error {name!r}: name one of Python's or of langchain_core.exceptions"
        )
    return make.error(kind(str(value.get("text", ""))))


_FAULTS: Final[dict[str, Callable[[Any], StepLike]]] = {
    "error": _error,
    "rate_limit": _options("rate_limit", plain="retry_after"),
    "timeout": _options("timeout"),
    "cut_stream": _options("cut_stream", plain="after_chunks"),
    "malformed_args": _options("malformed_args", plain="tool"),
    "unknown_tool": _options("unknown_tool", plain="name"),
    "empty": _options("empty"),
    "context_overflow": _options("context_overflow", plain="above_tokens"),
}


def _list(data: object, where: str) -> Sequence[Any]:
    if isinstance(data, str) or not isinstance(data, Sequence):
        raise ConfigError(f"{where} must be a list")
    return data


def _only(data: Mapping[Any, Any], known: set[str] | frozenset[str], where: str) -> None:
    for key in data:
        if key not in known:
            raise ConfigError(f"{where} has no key {key!r}: it has {', '.join(sorted(known))}")
