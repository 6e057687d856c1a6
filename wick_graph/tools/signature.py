"""From a function's type hints: the JSON schema of its arguments, and their conversion."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Final, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticUndefined

from wick_graph.errors import ConfigError, ToolError
from wick_graph.tools.calling import takes_context, with_context
from wick_graph.tools.docstring import parse
from wick_graph.tools.protocol import ToolContext

_BY_NAME: Final = frozenset(
    {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
)


class _Schema(GenerateJsonSchema):
    """Without titles made up from names, and without warnings about defaults."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012  (pydantic reads it as a class attribute)

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Signature:
    """What a model may pass to a function, and how that becomes the function's arguments."""

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
            ToolError: A value is of the right JSON type and still none that the function takes.
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
        fn: A function whose parameters can all be passed by name.
        scope: Names that its annotations may use beside those of its module.

    Raises:
        ConfigError: A parameter is of a kind or a type that a model cannot pass.
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
    """Put pydantic's first five complaints in one line."""
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
    """Return a parameter as a field of a model; what its hint says comes before the docstring."""
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
        with suppress(ValueError):  # a function's own name is still empty while it is decorated
            found[name] = cell.cell_contents
    return found


def _model(name: str, fields: dict[str, Any]) -> tuple[type[BaseModel], dict[str, Any]]:
    try:
        model = create_model(
            name,
            __config__=ConfigDict(arbitrary_types_allowed=False, protected_namespaces=()),
            **fields,
        )
        schema = model.model_json_schema(schema_generator=_Schema)
    except (PydanticUserError, TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0].partition(". ")[0]
        raise ConfigError(
            f"tool {name}: a parameter's type has no JSON schema ({reason}); "
            "use str, int, float, bool, list, dict, Literal, Enum, datetime or a pydantic model"
        ) from error
    schema.pop("title", None)
    schema.pop("description", None)
    return model, inlined(schema)


def inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """Put definitions where they are used, since small models do not follow references.

    A schema that contains itself is returned as it is.
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
