"""Derive the JSON schema of arguments from a function's signature and docstring."""

from __future__ import annotations

import functools
import inspect
import re
import types
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticUndefined

from wick_graph.errors import ConfigError, ToolError
from wick_graph.tools.protocol import ToolContext

# --- Parse docstrings in Google's style: what a tool does, and what its arguments mean.


_SECTION: Final = re.compile(
    r"(Args|Arguments|Parameters|Returns|Return|Yields|Raises|Examples?|Attributes|See Also):\s*"
)

_ARGUMENTS: Final = frozenset({"Args", "Arguments", "Parameters"})

_PARAMETER: Final = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")


def parse(docstring: str | None) -> tuple[str, dict[str, str]]:
    """Return the text before the first section, and the descriptions of the arguments by name."""
    about: list[str] = []
    arguments: list[str] = []
    section = ""
    for line in inspect.cleandoc(docstring or "").splitlines():
        heading = _SECTION.fullmatch(line)
        if heading:
            section = heading[1]
        elif not section:
            about.append(line)
        elif section in _ARGUMENTS:
            arguments.append(line)
    return "\n".join(about).strip(), _descriptions(arguments)


def _descriptions(lines: list[str]) -> dict[str, str]:
    """Read `name (type): text` at the least indent; deeper lines continue the text."""
    filled = [line for line in lines if line.strip()]
    indent = min((len(line) - len(line.lstrip()) for line in filled), default=0)
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in filled:
        text = line[indent:]
        match = _PARAMETER.fullmatch(text)
        if match and not text[0].isspace():
            current = found.setdefault(match[1], [])
            current.append(match[2])
        else:
            current.append(text.strip())
    return {name: " ".join(filter(None, parts)) for name, parts in found.items()}


# --- How to call a function: with a dictionary of arguments, or with arguments by name.


Execute = Callable[[dict[str, Any], ToolContext | None], Any]
"""Calls a function of any form."""

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def is_async(fn: Callable[..., Any]) -> bool:
    """Return whether a call returns a coroutine, also through `partial` and `__call__`."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    call = fn if inspect.isroutine(fn) else type(fn).__call__
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(call)


def takes_context(hint: Any) -> bool:
    """Return whether a type hint asks for the `ToolContext`, also as `ToolContext | None`."""
    if hint is ToolContext:
        return True
    if get_origin(hint) in (Annotated, Union, types.UnionType):
        return any(takes_context(part) for part in get_args(hint))
    return False


def with_context(names: tuple[str, ...], ctx: ToolContext | None) -> dict[str, Any]:
    """Return the keyword arguments with the context.

    Raises:
        ToolError: A parameter needs the context, but there is none.
    """
    if names and ctx is None:
        raise ToolError("this tool needs a ToolContext; pass one, or call the function itself")
    return dict.fromkeys(names, ctx)


def adapt(fn: Callable[..., Any], parameters: Mapping[str, Any], name: str) -> tuple[Execute, bool]:
    """Return how to call a function, and whether it refuses unknown arguments.

    Raises:
        ConfigError: The function takes neither the schema's properties nor `args`.
    """
    declared = list(_signature(fn, name).parameters.values())
    properties = set(parameters.get("properties", {}))
    positional = [p for p in declared if p.kind in _POSITIONAL]
    takes_dict = bool(positional) and positional[0].name == "args"
    if not takes_dict and (call := _by_name(fn, declared, properties)) is not None:
        return call
    others = [p for p in declared if p.kind == p.VAR_POSITIONAL]
    needed = [
        p for p in declared if p.default is p.empty and p.kind in (*_POSITIONAL, p.KEYWORD_ONLY)
    ]
    clash = not takes_dict and any(p.name in properties for p in declared)
    if clash or not (positional or others) or len(needed) > 2:
        raise ConfigError(
            f"tool {name}: its function takes neither the arguments that the parameters name, "
            "nor (args), nor (args, ctx); rename its parameters"
        )
    if len(positional) > 1 or others:
        return (lambda args, ctx: fn(args, ctx)), False
    return (lambda args, ctx: fn(args)), False


def _by_name(
    fn: Callable[..., Any], declared: list[inspect.Parameter], properties: set[str]
) -> tuple[Execute, bool] | None:
    """Pass arguments by name, if the schema and the function match."""
    hints = _parameter_hints(fn)
    contexts = tuple(p.name for p in declared if takes_context(hints.get(p.name)))
    mine = [p for p in declared if p.name not in contexts]
    open_ended = any(p.kind == p.VAR_KEYWORD for p in mine)
    nameable = {p.name for p in mine if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    needed = {
        p.name
        for p in mine
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    }
    if not needed <= (properties & nameable) or not (open_ended or properties <= nameable):
        return None
    return (lambda args, ctx: fn(**args, **with_context(contexts, ctx))), not open_ended


def _signature(fn: Callable[..., Any], name: str) -> inspect.Signature:
    try:
        return inspect.signature(fn)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"tool {name}: its function has no readable signature; wrap it in a def"
        ) from error


def _parameter_hints(fn: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(fn, include_extras=True)
    except (NameError, TypeError, AttributeError):
        return {}  # an unreadable hint does not ask for the context


# --- The JSON schema of a function's arguments from its type hints, and their conversion.


_BY_NAME: Final = frozenset(
    {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
)


class _Schema(GenerateJsonSchema):
    """A generator without titles from names and without warnings about defaults."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012  (pydantic reads it as a class attribute)

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Signature:
    """The arguments that a model may pass to a function, and their conversion."""

    description: str
    """The docstring up to its first section."""
    parameters: dict[str, Any]
    model: type[BaseModel]
    names: tuple[str, ...]
    """The function's parameters in the order of the model's fields."""
    contexts: tuple[str, ...]
    """Parameters that take the `ToolContext`."""

    def arguments(self, args: Mapping[str, Any], ctx: ToolContext | None) -> dict[str, Any]:
        """Convert a call's arguments to what the function declares, defaults filled in.

        Raises:
            ToolError: A value has the right JSON type, but the function cannot take it.
        """
        try:
            made = self.model.model_validate(dict(args))
        except ValidationError as error:
            raise ToolError(f"invalid arguments: {explain(error)}") from error
        values = {name: getattr(made, _field(i)) for i, name in enumerate(self.names)}
        return values | with_context(self.contexts, ctx)


def read_signature(fn: Callable[..., Any], scope: Mapping[str, Any] | None = None) -> Signature:
    """Read a function's signature.

    Args:
        fn: A function with named parameters only.
        scope: Names that its annotations may use besides those of its module.

    Raises:
        ConfigError: A model cannot pass a parameter of this kind or type.
    """
    name = getattr(fn, "__name__", repr(fn))
    about, docs = parse(inspect.getdoc(fn))
    hints = _hints(fn, name, scope)
    contexts: list[str] = []
    names: list[str] = []
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(fn).parameters.values():
        hint = hints.get(parameter.name, Any)
        if parameter.kind not in _BY_NAME:
            shown = parameter.replace(annotation=parameter.empty)
            raise ConfigError(
                f"tool {name}: parameter {shown} cannot be passed by name; "
                "give the function named parameters only"
            )
        if takes_context(hint):
            contexts.append(parameter.name)
            continue
        fields[_field(len(names))] = _declared(parameter, hint, docs.get(parameter.name))
        names.append(parameter.name)
    model, schema = _model(name, fields)
    return Signature(about, schema, model, tuple(names), tuple(contexts))


def explain(error: ValidationError) -> str:
    """Join pydantic's first five errors in one line."""
    details = error.errors(include_url=False, include_context=False, include_input=False)
    parts = [f"{_place(detail['loc'])}{detail['msg']}" for detail in details[:5]]
    return "; ".join(parts) + ("; and more" if len(details) > 5 else "")


def _place(loc: tuple[int | str, ...]) -> str:
    return f"{'.'.join(map(str, loc))}: " if loc else ""


def _field(i: int) -> str:
    """Name a field so that no parameter's name can clash with pydantic's own."""
    return f"argument_{i}"


def _declared(
    parameter: inspect.Parameter, hint: Any, description: str | None
) -> tuple[Any, FieldInfo]:
    """Return a parameter as a field of a model; its hint overrides the docstring."""
    default = parameter.default
    more: dict[str, Any] = {}
    if isinstance(default, FieldInfo):
        hint = Annotated[hint, default]
        if default.default_factory is not None:
            more["default_factory"] = default.default_factory
        default = default.default
    if default is not inspect.Parameter.empty and default is not PydanticUndefined:
        more["default"] = default
    said = [part for part in get_args(hint)[1:] if isinstance(part, FieldInfo) and part.description]
    if description and not said:
        more["description"] = description
    return hint, Field(alias=parameter.name, **more)


def _closed_over(fn: Any) -> dict[str, Any]:
    cells = getattr(fn, "__closure__", None) or ()
    names = fn.__code__.co_freevars if cells else ()
    found = {}
    for name, cell in zip(names, cells, strict=True):
        with suppress(ValueError):  # the function's own name is still unbound during decoration
            found[name] = cell.cell_contents
    return found


def _is_runtime(hint: Any) -> bool:
    """Say whether a type is LangChain's `ToolRuntime`, without loading it."""
    kind = get_origin(hint) or hint
    return getattr(kind, "__name__", "") == "ToolRuntime"


def _model(name: str, fields: dict[str, Any]) -> tuple[type[BaseModel], dict[str, Any]]:
    try:
        model = create_model(
            name,
            __config__=ConfigDict(arbitrary_types_allowed=False, protected_namespaces=()),
            **fields,
        )
        schema = model.model_json_schema(schema_generator=_Schema)
    except (PydanticUserError, TypeError, ValueError) as error:
        if any(_is_runtime(hint) for hint, _ in fields.values()):
            raise ConfigError(
                f"tool {name}: only LangChain's tools get a ToolRuntime; make it with LangChain's "
                "@tool, or take a ToolContext instead"
            ) from error
        reason = str(error).partition("\n")[0].partition(". ")[0]
        raise ConfigError(
            f"tool {name}: a parameter's type has no JSON schema ({reason}); "
            "use str, int, float, bool, list, dict, Literal, Enum, datetime or a pydantic model"
        ) from error
    schema.pop("title", None)
    schema.pop("description", None)
    return model, inlined(schema)


def inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """Inline definitions, since small models do not follow references.

    A recursive schema is returned unchanged.
    """
    definitions = schema.get("$defs")
    if not definitions:
        return schema

    def walk(node: Any, inside: tuple[str, ...]) -> Any:
        if isinstance(node, list):
            return [walk(item, inside) for item in node]
        if not isinstance(node, dict):
            return node
        rest = {key: walk(value, inside) for key, value in node.items() if key != "$ref"}
        if not isinstance(ref := node.get("$ref"), str):
            return {**rest, "$ref": ref} if "$ref" in node else rest
        name = ref.rpartition("/")[2]
        if name in inside:
            raise RecursionError
        found = walk(definitions[name], (*inside, name))
        return {**{key: value for key, value in found.items() if key != "title"}, **rest}

    try:
        result = walk({k: v for k, v in schema.items() if k != "$defs"}, ())
    except RecursionError:
        return schema
    return dict(result)


def _hints(fn: Callable[..., Any], name: str, scope: Mapping[str, Any] | None) -> dict[str, Any]:
    target = inspect.unwrap(fn)
    names = {**(scope or {}), **_closed_over(target)}
    try:
        return get_type_hints(target, localns=names or None, include_extras=True)
    except NameError as error:
        raise ConfigError(
            f"tool {name}: its type hints use {error.name!r}, which cannot be found; "
            "import it outside of TYPE_CHECKING and define it at module level"
        ) from error
