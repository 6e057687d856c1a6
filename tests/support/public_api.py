"""The public interface as text: what the packages promise, the commands, HTTP, and agents.yaml.

`python -m tests.support.public_api` writes `tests/public_api.txt` anew. The text tells where a
name is imported from, never in which module it is made, so that inner moves do not show.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import json
import logging
import sys
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final, get_origin

import typer.main
from pydantic import BaseModel
from typer.core import TyperGroup

from tests.source import ROOT
from wick_graph.cli.app import app
from wick_graph.config import parse_config
from wick_graph.server import Service, create_app

SNAPSHOT: Final = ROOT / "tests" / "public_api.txt"
RENEW: Final = "python -m tests.support.public_api"
PACKAGES: Final = (
    "wick_graph",
    *(
        f"wick_graph.{name}"
        for name in (
            *("events", "hooks", "testing", "debug", "client", "web", "tools", "subagents"),
            *("middleware", "tracing", "messages", "config", "models", "backends"),
            *("backends.docker", "picture", "journal", "server", "store", "expressions"),
        )
    ),
)
"""What is imported from; `__all__` says what."""
NAMES: Final = (
    *("wick_graph.loading:Agents", "wick_graph.cli:main", "wick_graph.store.verify:rotate"),
    *("wick_graph.tools.builtin_tools:calculate", "wick_graph.tools.mcp:McpServer"),
    *("wick_graph.pytest_plugin:wick_runs", "wick_graph.pytest_plugin:wick_cassette"),
)
"""What is imported from elsewhere."""
LOGGERS: Final = ("wick_graph.audit",)
"""What applications listen to."""
_SILENT: Final = frozenset(
    {"__init__", "__post_init__", "__repr__", "__deepcopy__", "__getattr__", "__init_subclass__"}
    | {"__hash__", "__reduce__", "__get_pydantic_core_schema__", "__subclasshook__"}
)
"""Special methods that nobody calls by their names, nor by an operator."""
Lines = Iterator[str]


def public_api() -> str:
    """Return the whole interface, a line for each thing that can be used."""
    known: dict[int, str] = {}
    packages = (_package(name, known) for name in PACKAGES)
    parts = (*packages, _elsewhere(), _commands(), _http(), _yaml())
    return "\n".join(line.rstrip() for part in parts for line in [*part, ""])


def difference(before: str, after: str) -> str:
    """Say what differs, and how it is renewed; empty if nothing does."""
    found = difflib.unified_diff(
        before.splitlines(), after.splitlines(), "tests/public_api.txt", "the code", "", "", 2, ""
    )
    told = "\n".join(found)
    return told and f"{told}\n\nif this is meant, say so in CHANGELOG.md and run: {RENEW}"


# --- Python --------------------------------------------------------------------------------------


def _package(name: str, known: dict[int, str]) -> Lines:
    """Tell what a package promises; of what another one has told already, only where."""
    module = import_module(name)
    yield f"== {name}"
    for one in sorted(_promised(module)):
        value = getattr(module, one)
        first = known.setdefault(id(value), f"{name}.{one}") if callable(value) else ""
        if first in ("", f"{name}.{one}"):
            yield from _named(one, value)
        else:
            yield f"{one} is {first}"


def _promised(module: ModuleType) -> list[str]:
    if hasattr(module, "__all__"):
        return list(module.__all__)
    own = {n: v for n, v in vars(module).items() if not n.startswith("_")}
    return [n for n, v in own.items() if getattr(v, "__module__", "") == module.__name__]


def _elsewhere() -> Lines:
    yield "== elsewhere"
    for place in NAMES:
        module, name = place.split(":")
        yield from _named(place, getattr(import_module(module), name))
    made = logging.getLogger().manager.loggerDict
    yield from (f"logger {name}" for name in LOGGERS if name in made)


def _named(name: str, value: Any) -> Lines:
    if isinstance(value, ModuleType):
        yield f"module {name}"
    elif isinstance(value, type) and get_origin(value) is None:
        yield from _class(name, value)
    elif inspect.isroutine(inspect.unwrap(value)) if callable(value) else False:
        yield f"{_function(name, inspect.unwrap(value))}"
    elif _is_plain(value):
        yield f"{name} = {_plain(value)}"
    else:
        yield f"{name}: {type(value).__name__}"


def _class(name: str, cls: type) -> Lines:
    """Tell a class with all that it has from ours, whichever of its ancestors it has it from."""
    ours = [one for one in cls.__mro__ if _is_ours(one)]
    bases = [b for one in ours for b in one.__bases__ if not _is_ours(b) and b is not object]
    named = dict.fromkeys(b.__name__ for b in bases if b.__module__ != "typing")
    caught = [b.__name__ for b in ours[1:] if issubclass(b, BaseException)]
    yield f"class {name}({', '.join([*caught, *named])})"
    made = list(_made(cls, ours))
    yield from (f"    {line}" for line in made)
    members: dict[str, str] = {}
    for one in reversed(ours):
        for field, annotation in inspect.get_annotations(one).items():
            if not (field.startswith("_") or _is_given(cls, field)):
                members[field] = f"{field}: {annotation}{_default(one, field)}"
        for member, value in vars(one).items():
            line = _member(member, value)
            if line:
                members[member] = line
            elif member in members and value is None:
                del members[member]  # taken back, such as `__hash__`
    yield from (f"    {members[member]}" for member in sorted(members))


def _is_ours(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == "wick_graph"


def _made(cls: type, ours: list[type]) -> Lines:
    """Tell how an object is made."""
    own = next((one for one in ours if "__init__" in vars(one)), None)
    if own is not None and _is_written(vars(own)["__init__"]):
        yield _function("__init__", vars(own)["__init__"])
    elif dataclasses.is_dataclass(cls):
        empty = inspect.Parameter.empty
        made = inspect.signature(cls).replace(return_annotation=empty)
        yield f"fields{_signature(made)}"


def _is_given(cls: type, field: str) -> bool:
    """Say whether a field stands in the signature of its dataclass."""
    fields = getattr(cls, "__dataclass_fields__", {})
    return field in fields and fields[field].init


def _member(name: str, value: Any) -> str:
    """Tell a member of a class; empty if it is nobody's business."""
    special = name.startswith("__") and name.endswith("__")
    if name in _SILENT or (name.startswith("_") and not special):
        return ""
    if isinstance(value, classmethod | staticmethod):
        return f"@{type(value).__name__} {_function(name, value.__func__)}"
    if isinstance(value, property | cached_property):
        read = value.func if isinstance(value, cached_property) else value.fget
        is_set = isinstance(value, property) and value.fset is not None
        returned = _function(name, read).partition(" -> ")[2]
        return f"@property {name} -> {returned}{' (settable)' if is_set else ''}"
    if inspect.isfunction(value) and (not special or _is_written(value)):
        return _function(name, value)
    if isinstance(value, Enum):
        return f"{name} = {value.value!r}"
    return f"{name} = {_plain(value)}" if not special and _is_plain(value) else ""


def _is_written(function: Any) -> bool:
    """Say whether we wrote it, and no decorator of a library."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return code is not None and Path(code.co_filename).is_relative_to(ROOT / "wick_graph")


def _function(name: str, function: Any) -> str:
    kind = "async def" if inspect.iscoroutinefunction(function) else "def"
    return f"{kind} {name}{_signature(inspect.signature(function))}"


def _signature(signature: inspect.Signature) -> str:
    """Spell a signature as it is written, without what an interpreter or a move would change."""
    empty = inspect.Parameter.empty

    def shown(value: Any) -> Any:
        return value if value is empty else _Text(value if isinstance(value, str) else "…")

    made = [
        p.replace(
            annotation=shown(p.annotation),
            default=empty if p.default is empty else shown(_default_text(p.default)),
        )
        for p in signature.parameters.values()
        if not p.name.startswith("_")
    ]
    returned = shown(signature.return_annotation)
    return str(signature.replace(parameters=made, return_annotation=returned))


class _Text:
    """Stands in a signature for what is shown by this text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _default_text(value: Any) -> str:
    return _plain(value) if _is_plain(value) else "…"


def _default(cls: type, field: str) -> str:
    value = cls.__dict__.get(field, ...)
    if issubclass(cls, BaseModel) and field in cls.model_fields:
        value = cls.model_fields[field].get_default()
    if isinstance(value, dataclasses.Field) or inspect.ismemberdescriptor(value) or value is ...:
        return ""
    return f" = {_plain(value)}" if _is_plain(value) else ""


def _is_plain(value: Any) -> bool:
    if isinstance(value, str | int | float | bytes | None):
        return True
    if isinstance(value, Mapping):
        return all(map(_is_plain, value)) and all(map(_is_plain, value.values()))
    return isinstance(value, tuple | list | frozenset | set) and all(map(_is_plain, value))


def _plain(value: Any) -> str:
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, frozenset | set):
        return f"{{{', '.join(sorted(map(_plain, value)))}}}"
    if isinstance(value, Mapping):
        return json.dumps(dict(value), sort_keys=True, default=str)
    return repr(value)


# --- the command line ----------------------------------------------------------------------------


def _commands() -> Lines:
    yield "== wick"
    yield from _command("wick", typer.main.get_command(app), None)


def _command(name: str, command: Any, above: Any) -> Lines:
    """Tell a command by its help, and those below it."""
    width = {"terminal_width": 100, "max_content_width": 100}
    with command.make_context(name, [], parent=above, resilient_parsing=True, **width) as here:
        yield f"$ {here.command_path} --help"
        yield from (f"    {line}" for line in command.get_help(here).splitlines())
        if isinstance(command, TyperGroup):
            for inner in sorted(command.commands):
                yield from _command(inner, command.commands[inner], here)


# --- HTTP, and agents.yaml -----------------------------------------------------------------------


def _http() -> Lines:
    agents = "agents: {a: {model: 'scripted:demo'}}\nstore: 'sqlite://'"
    service = Service(parse_config(agents, source="agents.yaml", base_dir=Path()))
    described = create_app(service).openapi()
    yield "== HTTP"
    for path, operations in sorted(described["paths"].items()):
        for method, operation in sorted(operations.items()):
            yield f"{method.upper()} {path}"
            errors = [
                status
                for status, answer in operation["responses"].items()
                if "ErrorAnswer" in json.dumps(answer)
            ]
            rest = {s: a for s, a in operation["responses"].items() if s not in errors}
            yield from (f"    {line}" for line in _flat({**operation, "responses": rest}))
            yield f"    ErrorAnswer: {', '.join(sorted(errors))}"
    yield "== HTTP: schemas"
    yield from _schemas(described["components"]["schemas"])


def _yaml() -> Lines:
    yield "== agents.yaml (docs/agents.schema.json)"
    schema = json.loads((ROOT / "docs" / "agents.schema.json").read_text(encoding="utf-8"))
    yield from _schemas({**schema.pop("$defs"), "the file": schema})


def _schemas(schemas: Mapping[str, Any]) -> Lines:
    for name, schema in sorted(schemas.items()):
        yield name
        yield from (f"    {line}" for line in _flat(schema))


_PROSE: Final = ("description", "title", "summary", "examples", "operationId")


def _flat(value: Any, at: str = "") -> Lines:
    """Tell each leaf by its path, without what is said about it in prose."""
    if isinstance(value, dict) and value:
        for key in sorted(value):
            if key not in _PROSE or at.endswith("properties"):
                yield from _flat(value[key], f"{at}.{key}" if at else key)
    elif isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        for number, item in enumerate(value):
            name = item.get("name", number) if isinstance(item, dict) else number
            yield from _flat(item, f"{at}[{name}]")
    else:
        yield f"{at}: {json.dumps(value, ensure_ascii=False)}"


if __name__ == "__main__":
    SNAPSHOT.write_text(public_api(), encoding="utf-8")
    sys.stdout.write(f"{SNAPSHOT.relative_to(ROOT)} is written\n")
