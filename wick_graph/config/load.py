"""Load `agents.yaml`: read, merge the defaults, validate, report errors with file and line."""

from __future__ import annotations

import copy
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from wick_graph.config.fields import CODE_TAG, UNION_TAGS, Reading, slug, starts_of
from wick_graph.config.schema import (
    AgentConfig,
    AgentsFile,
    BackendConfig,
    BudgetConfig,
    ContextConfig,
    IndexConfig,
    JournalConfig,
    LongTermConfig,
    McpServerConfig,
    MemoryConfig,
    MiddlewareConfig,
    ModelConfig,
    ModelTarget,
    OwnCode,
    RetentionConfig,
    SearchConfig,
    SkillsConfig,
    SubagentConfig,
)
from wick_graph.config.yaml_reader import (
    MAX_BYTES,
    KeyPath,
    Places,
    Tree,
    is_literal,
    key_path,
    one_line,
    read_yaml,
)
from wick_graph.errors import ConfigError, did_you_mean
from wick_graph.machine import user_id

# --- From pydantic's errors to sentences with a file, a line and a key path.


_MOST: Final = 20
"""Errors that are listed one by one."""

_BLOCKS: Final[Mapping[str, type[BaseModel]]] = {
    "defaults": AgentConfig,
    "model": ModelConfig,
    "fallbacks": ModelTarget,
    "backend": BackendConfig,
    "skills": SkillsConfig,
    "memory": MemoryConfig,
    "long_term": LongTermConfig,
    "index": IndexConfig,
    "hooks": OwnCode,
    "middleware": MiddlewareConfig,
    "mcp_servers": McpServerConfig,
    "subagents": SubagentConfig,
    "retention": RetentionConfig,
    "search": SearchConfig,
    "budget": BudgetConfig,
    "context": ContextConfig,
    "journal": JournalConfig,
}

_REFUSED: Final = frozenset({"class_path"})
"""Keys under which other programs name code to load."""

_SENTENCES: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "missing": lambda _: "is missing; add it",
    "string_type": lambda _: "must be text; put it in quotes if it is text",
    "string_too_short": lambda _: "must not be empty",
    "string_too_long": lambda ctx: f"must have at most {ctx['max_length']} characters",
    "string_pattern_mismatch": lambda ctx: f"must fit the pattern {ctx['pattern']}",
    "too_short": lambda _: "must not be empty",
    "too_long": lambda ctx: f"must have at most {ctx['max_length']} entries",
    "int_type": lambda _: "must be a whole number",
    "int_from_float": lambda _: "must be a whole number",
    "float_type": lambda _: "must be a number",
    "finite_number": lambda _: "must be a finite number",
    "bool_type": lambda _: "must be true or false",
    "tuple_type": lambda _: "must be a list",
    "dict_type": lambda _: "must be a block of keys",
    "model_type": lambda _: "must be a block of keys",
    "literal_error": lambda ctx: "must be " + ctx["expected"].replace("'", ""),
    "greater_than": lambda ctx: f"must be more than {ctx['gt']:g}",
    "greater_than_equal": lambda ctx: f"must be {ctx['ge']:g} or more",
    "less_than_equal": lambda ctx: f"must be {ctx['le']:g} or less",
    "value_error": lambda ctx: str(ctx["error"]),
}


def config_error(error: ValidationError, places: Places, *, within: KeyPath = ()) -> ConfigError:
    """Make one error from all that pydantic found: a line for each, in the order of the file.

    The text never holds a value of the file.

    Args:
        error: pydantic's error.
        places: the lines of the file.
        within: path of the validated block, if it is not the whole file.
    """
    found: dict[KeyPath, tuple[int, KeyPath, ErrorDetails]] = {}
    for details in error.errors(include_url=False):
        path = within + _in_file(details)
        found.setdefault(places.origin(path), (places.line(path) or 0, path, details))
    ordered = sorted(found.values(), key=lambda entry: entry[0])
    lines = [
        places.sentence(path, _text(path, details, places)) for _, path, details in ordered[:_MOST]
    ]
    if len(ordered) > _MOST:
        lines.append(f"{one_line(places.source)}: {len(ordered) - _MOST} more; correct these first")
    return ConfigError("\n".join(lines))


def _in_file(details: ErrorDetails) -> KeyPath:
    """Remove pydantic's own steps from a location: the form of a model, the mark of a key."""
    path = tuple(step for step in details["loc"] if step not in UNION_TAGS)
    # a key may be called [key] itself; only the error of a key has the key as its input
    of_a_key = path[1:] and path[-1] == "[key]" and details["input"] == path[-2]
    return path[:-1] if of_a_key else path


def _text(path: KeyPath, details: ErrorDetails, places: Places) -> str:
    kind = details["type"]
    if kind == "extra_forbidden":
        return _unknown(path, places, OwnCode if CODE_TAG in details["loc"] else None)
    if path == ("agents",) and kind in ("missing", "too_short"):
        return "needs at least one agent, as agents: {default: {model: auto}}"
    sentence = _SENTENCES.get(kind)
    return sentence(details.get("ctx", {})) if sentence else "is not valid here"


def _unknown(path: KeyPath, places: Places, block: type[BaseModel] | None) -> str:
    key, parent = str(path[-1]), path[:-1]
    if key in _REFUSED:
        return "unknown key; name your own code as module:name under tools, hooks or model"
    if not parent and key in AgentConfig.model_fields:
        return "unknown key here; move it under agents.<id> or defaults"
    keys = list((block or _block(parent)).model_fields)
    if parent and len(places.origin(path)) == 1 and places.lines:
        # the file is one agent: its keys and the file's own are side by side
        if key in AgentsFile.model_fields:
            return "is only for a file with agents:"
        keys += AgentsFile.model_fields
    return "unknown key" + (did_you_mean(key, keys) or f"; valid keys: {', '.join(keys)}")


def _block(parent: KeyPath) -> type[BaseModel]:
    if not parent:
        return AgentsFile
    if len(parent) == 2 and parent[0] == "agents":
        return AgentConfig
    names = (step for step in reversed(parent) if isinstance(step, str) and step in _BLOCKS)
    return _BLOCKS[next(names, "defaults")]


# --- From `agents.yaml` to an `AgentsFile`: read, merge the defaults, validate.
#
# Warnings about the file itself say who can change it, and which secrets it exposes.


_MOST_COPIES: Final = 200_000
"""Most values in `defaults:`, counted once for each agent: a small file stays small in memory."""

_OF_FILE: Final = (
    *(
        "store",
        "store_keys",
        "store_warm_bytes",
        "long_term",
        "callbacks",
        "limits",
        "pool",
        "workers",
    ),
)
"""Keys that belong to the file even if the file is one agent."""


def load_config(path: str | Path, env: Mapping[str, str] | None = None) -> AgentsFile:
    """Load a configuration file; `${NAME}` is looked up in `env`, by default the process's.

    Reads no other file: no `.env`, no include.

    Raises:
        ConfigError: with file, line and key path; one line for each fault.
    """
    file = Path(path)
    text, status = _read(file, str(path))
    return _load(text, str(path), file.absolute().parent, env, status, file.absolute())


def parse_config(
    text: str, *, source: str, base_dir: Path, env: Mapping[str, str] | None = None
) -> AgentsFile:
    """Load a configuration from a text; relative paths in it start at `base_dir`.

    Raises:
        ConfigError: as in `load_config`, with `source` in place of the file's name.
    """
    return _load(text, source, base_dir, env, None)


def agent_config(keys: Mapping[str, Any], *, source: str = "Agent") -> AgentConfig:
    """Check the keys of one agent given in Python; `${NAME}` stays text.

    Raises:
        ConfigError: with `source` and the key, one line for each fault.
    """
    try:
        return AgentConfig.model_validate(dict(keys))
    except ValidationError as exc:
        places = Places(source=source, written_at={("agents", source): ()})
        failure = config_error(exc, places, within=("agents", source))
    raise failure


def describe(agents_file: AgentsFile) -> list[dict[str, Any]]:
    """List the agents with id, name, model and tools, as plain data for JSON."""
    return [
        {
            "id": agent_id,
            "name": config.name,
            "model": _model_name(config.model),
            "tools": list(config.tools),
        }
        for agent_id, config in agents_file.agents.items()
    ]


def _model_name(model: str | ModelConfig | OwnCode) -> str:
    if isinstance(model, str):
        return model
    if isinstance(model, OwnCode):
        return model.use
    return f"{model.provider}:{model.model}" if model.provider else model.model


def _read(file: Path, shown: str) -> tuple[str, os.stat_result]:
    shown = one_line(shown)
    try:
        status = file.stat()
        # check before opening: to open a pipe would wait for its writer
        data = _first_bytes(file) if stat.S_ISREG(status.st_mode) else b""
    except FileNotFoundError:
        raise ConfigError(f"{shown}: no such file; run wick init, or name another one") from None
    except OSError as exc:
        raise ConfigError(f"{shown}: cannot be read: {exc.strerror or exc}") from exc
    except ValueError:
        raise ConfigError(f"{shown}: not a possible file name; name another one") from None
    if stat.S_ISDIR(status.st_mode):
        raise ConfigError(f"{shown}: is a folder; name the file in it")
    if not stat.S_ISREG(status.st_mode):
        raise ConfigError(f"{shown}: is not a regular file; name another one")
    return _decode(data, shown), status


def _first_bytes(file: Path) -> bytes:
    with file.open("rb") as stream:
        return stream.read(MAX_BYTES + 1)


def _decode(data: bytes, shown: str) -> str:
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{shown}: larger than {MAX_BYTES // 1024} kB; split it up")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as exc:
        line = data.count(b"\n", 0, exc.start) + 1
    raise ConfigError(f"{shown}:{line}: not UTF-8; save the file in that encoding")


def _load(
    text: str,
    source: str,
    base_dir: Path,
    env: Mapping[str, str] | None,
    status: os.stat_result | None,
    path: Path | None = None,
) -> AgentsFile:
    tree = read_yaml(text, source)
    top = _top(tree, source)
    _check_copies(top, Places(source=source, lines=tree.lines))
    data, written_at = _arrange(top)
    places = Places(source=source, lines=tree.lines, written_at=written_at)
    reading = Reading(
        env=os.environ if env is None else env,
        base_dir=base_dir,
        places=places,
        notices=file_notices(tree.data, status, source),
        path=path,
        starts=starts_of(data.get("agents")),
    )
    try:
        loaded = AgentsFile.model_validate(data, context=reading)
    except ValidationError as exc:
        failure = config_error(exc, places)
    else:
        _ = loaded.store_url  # its error belongs here, not to the first run
        return loaded
    # outside the except: pydantic's error holds values of the file and must not be our context
    raise failure


def _top(tree: Tree, source: str) -> dict[str, Any]:
    shown = one_line(source)
    if tree.data is None:
        raise ConfigError(f"{shown}: is empty; add agents: with at least one agent")
    if not isinstance(tree.data, dict):
        kind = "list" if isinstance(tree.data, list) else "single value"
        raise ConfigError(f"{shown}: must be a block of keys at the top, not a {kind}")
    return tree.data


def _check_copies(top: dict[str, Any], places: Places) -> None:
    agents = top.get("agents")
    if isinstance(agents, dict) and _size(top.get("defaults")) * len(agents) > _MOST_COPIES:
        raise places.error(("defaults",), f"too large to be copied into {len(agents)} agents")


def _size(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(_size(inner) for inner in value.values())
    return 1 + sum(_size(inner) for inner in value) if isinstance(value, list) else 1


def _arrange(top: dict[str, Any]) -> tuple[dict[str, Any], dict[KeyPath, KeyPath]]:
    """Convert both forms of a file into one, with the defaults merged into every agent.

    Returns it with the prefixes of key paths that the file spells differently.
    """
    if "agents" not in top and set(top) - {*_OF_FILE, "defaults"}:
        return _single(top)
    written_at: dict[KeyPath, KeyPath] = {}
    data = dict(top)
    defaults = data["defaults"] = _or_empty(data.get("defaults"))
    if isinstance(data.get("agents"), dict):
        data["agents"] = {
            agent_id: _merge(agent_id, defaults, _or_empty(own), written_at)
            for agent_id, own in data["agents"].items()
        }
    return data, written_at


def _single(top: dict[str, Any]) -> tuple[dict[str, Any], dict[KeyPath, KeyPath]]:
    agent = {key: value for key, value in top.items() if key not in _OF_FILE}
    name = agent.get("name")
    agent_id = slug(name) if isinstance(name, str) else "default"
    data: dict[str, Any] = {"agents": {agent_id: agent}}
    data |= {key: top[key] for key in _OF_FILE if key in top}
    return data, {("agents", agent_id): ()}


def _or_empty(block: Any) -> Any:
    """Read a key with nothing below it, such as comments only, as an empty block."""
    return {} if block is None else block


def _merge(agent_id: str, defaults: Any, own: Any, written_at: dict[KeyPath, KeyPath]) -> Any:
    if not isinstance(defaults, dict) or not isinstance(own, dict):
        return own
    inherited = [key for key in defaults if key not in own]
    for key in inherited:
        written_at["agents", agent_id, key] = ("defaults", key)
    return {**copy.deepcopy({key: defaults[key] for key in inherited}), **own}


_ROOT_UID: Final = 0

_SECRET_KEY: Final = re.compile(r"(?i)(?:^|[_-])(?:api_?key|token|secret|password|authorization)$")
"""Keys of free-form settings with a secret as their value."""

_PASSWORD_IN_URL: Final = re.compile(r"://[^/@\s:]*:(?P<password>[^/@\s]+)@")


def file_notices(data: Any, status: os.stat_result | None, source: str) -> tuple[str, ...]:
    """List warnings for the owner of a configuration file.

    Args:
        data: the file's data, before any variable is replaced.
        status: of the open file; None if the text came from elsewhere.
        source: the file's name in the warnings.
    """
    if status is None or (user := user_id()) is None:
        return ()
    source = one_line(source)
    secrets = [key_path(path) for path in _plain_secrets(data, ())]
    holds = f" and holds a secret in plain text ({secrets[0]})" if secrets else ""
    advice = "; write ${NAME} there" if secrets else ""
    notices: list[str] = []
    if status.st_mode & stat.S_IWOTH:
        notices.append(
            f"{source} can be changed by every user of this machine{holds}; "
            f"run chmod o-w on it{advice}"
        )
    if secrets and status.st_uid not in (user, _ROOT_UID):
        notices.append(f"{source} belongs to another user{holds}{advice}")
    return tuple(notices)


def _plain_secrets(value: Any, path: KeyPath) -> Iterator[KeyPath]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _plain_secrets(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _plain_secrets(inner, (*path, index))
    elif isinstance(value, str) and _is_secret(path, value):
        yield path


def _is_secret(path: KeyPath, value: str) -> bool:
    name = next((step for step in reversed(path) if isinstance(step, str)), "")
    if _SECRET_KEY.search(name):
        return is_literal(value)
    password = _PASSWORD_IN_URL.search(value)
    return password is not None and is_literal(password["password"])
