"""Check a call's arguments against a JSON schema; refuse schemas that are a risk."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from wick_graph.constants import TOO_DEEP
from wick_graph.errors import ConfigError
from wick_graph.messages.content import is_deep

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

# --- Check a call's arguments against a JSON schema; errors tell a model how to correct them.


MAX_PROBLEMS: Final = 5

_SHOWN_CHARS: Final = 80

_KNOWN_SHOWN: Final = 20

_LIMITS: Final = {
    "minimum": "must be at least {}",
    "maximum": "must be at most {}",
    "exclusiveMinimum": "must be greater than {}",
    "exclusiveMaximum": "must be less than {}",
    "multipleOf": "must be a multiple of {}",
    "minLength": "must have at least {} characters",
    "maxLength": "must have at most {} characters",
    "minItems": "must have at least {} items",
    "maxItems": "must have at most {} items",
    "pattern": "must match the pattern {}",
    "const": "must be {}",
}


class ArgumentCheck:
    """A compiled schema that checks arguments.

    Args:
        parameters: A JSON schema of type `object`; every `$ref` points into itself.
        closed: Whether to refuse unknown arguments if the schema does not say.

    Raises:
        ConfigError: It is not such a schema.
    """

    def __init__(self, parameters: Mapping[str, Any], *, closed: bool = False) -> None:
        from jsonschema.validators import Draft202012Validator, validator_for  # noqa: PLC0415  # slow, and seldom used
        from referencing import Registry  # noqa: PLC0415  # slow, and seldom used

        schema = dict(parameters)
        if closed:
            schema.setdefault("additionalProperties", False)
        if schema.get("type", "object") != "object":
            raise ConfigError('parameters must be a JSON schema with "type": "object"')
        kind = validator_for(schema, default=Draft202012Validator)
        _check_schema(kind, schema)
        self._schema: Final = schema
        # An empty registry: no `$ref` is ever fetched.
        self._validator: Final = _own(kind)(schema, registry=Registry())
        self._plain: Final = _Plain.of(schema)

    def __call__(self, args: Any) -> str | None:
        """Return what is wrong with the arguments, at most five problems, or None."""
        if not isinstance(args, dict):
            return f"invalid arguments: expected an object, got {_came(args)}"
        if any(type(value) in (dict, list) for value in args.values()) and is_deep(args):
            return f"invalid arguments: {TOO_DEEP}"
        if self._plain is not None and self._plain.fit(args):
            return None
        try:
            errors = self._validator.iter_errors(args)
            problems = list(islice(self._problems(errors), MAX_PROBLEMS + 1))
        except RecursionError:
            return f"invalid arguments: {TOO_DEEP}"
        except OverflowError:
            return "invalid arguments: a number is too large"
        if not problems:
            return None
        more = "; and more" if len(problems) > MAX_PROBLEMS else ""
        return "invalid arguments: " + "; ".join(problems[:MAX_PROBLEMS]) + more

    def _problems(self, errors: Iterable[ValidationError]) -> Iterator[str]:
        for error in errors:
            for leaf in _leaves(error):
                yield from self._say(leaf)

    def _say(self, error: ValidationError) -> Iterator[str]:
        path = _path(error.absolute_path)
        schema = error.schema if isinstance(error.schema, Mapping) else {}
        if error.validator == "required":
            # One error per missing name, which is only in its text.
            names: list[str] = error.validator_value  # type: ignore[assignment]  # a checked schema
            missing = next((n for n in names if error.message.startswith(repr(n))), "?")
            form = self._form(schema.get("properties", {}).get(missing, {}))
            yield f"{_join(path, missing)}: missing{f', expected {form}' if form else ''}"
        elif _is_unknown(error):
            known = list(schema.get("properties", {}))
            given: dict[str, Any] = error.instance  # type: ignore[assignment]  # by the keyword
            for name in (n for n in given if n not in known):
                yield f"{_join(path, _cut(name))}: unknown argument{_known(known)}"
        elif error.validator in ("type", "anyOf", "oneOf", "enum"):
            form = self._form(schema)
            yield f"{path or 'arguments'}: expected {form}, got {_came(error.instance)}"
        else:
            yield f"{path or 'arguments'}: {_limit(error)}"

    def _form(self, schema: Any) -> str:
        """Describe in a few words what a schema expects; empty if it accepts anything."""
        if not isinstance(schema, Mapping):
            return ""
        if "$ref" in schema:
            return self._form(_resolver(self._schema).lookup(schema["$ref"]).contents)
        if "const" in schema:
            return _json(schema["const"])
        if "enum" in schema:
            return "one of " + ", ".join(_json(v) for v in schema["enum"][:_KNOWN_SHOWN])
        for key in ("anyOf", "oneOf"):
            if key in schema:
                return " or ".join(dict.fromkeys(filter(None, map(self._form, schema[key]))))
        kind = schema.get("type", "")
        return kind if isinstance(kind, str) else " or ".join(kind)


@dataclass(frozen=True, slots=True)
class _Plain:
    """The types of a schema without other rules: arguments that fit need no further check.

    It is stricter than the schema: an argument that does not fit may still be valid.
    """

    types: dict[str, frozenset[type]]
    """Allowed types of each argument; empty allows any type."""
    required: frozenset[str]
    closed: bool

    @classmethod
    def of(cls, schema: Mapping[str, Any]) -> _Plain | None:
        """Read a schema; None if it has other rules."""
        properties = schema.get("properties", {})
        parts = (schema, _PARTS), *((part, _WORDS) for part in properties.values())
        if not all(isinstance(part, Mapping) and part.keys() <= words for part, words in parts):
            return None
        kinds = {name: _kind(part) for name, part in properties.items()}
        more = schema.get("additionalProperties", True)
        if type(more) is not bool or not all(kind in _TYPES for kind in kinds.values()):
            return None
        types = {name: _TYPES[kind] for name, kind in kinds.items()}
        return cls(types, frozenset(schema.get("required", ())), closed=not more)

    def fit(self, args: dict[Any, Any]) -> bool:
        """Return whether arguments are certainly valid."""
        for name, value in args.items():
            types = self.types.get(name)
            if self.closed if types is None else types and type(value) not in types:
                return False
        return self.required <= args.keys()


def _kind(schema: Mapping[str, Any]) -> str | None:
    kind = schema.get("type")
    return kind if isinstance(kind, str | None) else "one of several"


_WORDS: Final = frozenset({"type", "title", "description", "default", "examples"})

_PARTS: Final = _WORDS | {"properties", "required", "additionalProperties"}

_TYPES: Final[Mapping[str | None, frozenset[type]]] = {
    None: frozenset(),
    "string": frozenset({str}),
    "integer": frozenset({int}),
    "number": frozenset({int, float}),
    "boolean": frozenset({bool}),
    "null": frozenset({type(None)}),
    "array": frozenset({list}),
    "object": frozenset({dict}),
}
"""Python types with a certain JSON type; a float may be an integer in JSON."""


def _leaves(error: ValidationError) -> Iterator[ValidationError]:
    """Descend into the alternative of an `anyOf` that the value most likely meant."""
    if error.validator not in ("anyOf", "oneOf") or not error.context:
        yield error
        return
    branches: dict[Any, list[ValidationError]] = {}
    for inner in error.context:
        branches.setdefault(inner.schema_path[0], []).append(inner)
    meant = [branch for branch in branches.values() if not any(map(_other_kind, branch))]
    if meant:
        for inner in min(meant, key=lambda branch: sum(map(_other_shape, branch))):
            yield from _leaves(inner)
    else:
        yield error


def _other_kind(error: ValidationError) -> bool:
    return not error.relative_path and error.validator in ("type", "const", "enum")


def _is_unknown(error: ValidationError) -> bool:
    schema = error.schema
    return (
        error.validator == "additionalProperties"
        and error.validator_value is False
        and not (isinstance(schema, Mapping) and "patternProperties" in schema)
    )


def _other_shape(error: ValidationError) -> bool:
    return error.validator in ("const", "enum", "required", "additionalProperties")


def _limit(error: ValidationError) -> str:
    template = _LIMITS.get(str(error.validator))
    if template is None:
        return _cut(error.message, 200)
    return f"{template.format(_json(error.validator_value))}, got {_came(error.instance)}"


def _path(parts: Iterable[str | int]) -> str:
    path = ""
    for part in parts:
        path = f"{path}[{part}]" if isinstance(part, int) else _join(path, _cut(part))
    return path


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _known(names: Sequence[str]) -> str:
    if not names:
        return ", there are no arguments"
    more = ", …" if len(names) > _KNOWN_SHOWN else ""
    return f", known are {', '.join(names[:_KNOWN_SHOWN])}{more}"


def _came(value: Any) -> str:
    """Describe a value: a scalar by its value, anything else by its kind."""
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return f"an array of {len(value)} items" if len(value) != 1 else "an array of 1 item"
    if isinstance(value, str):
        return f"the string {_json(_cut(value))}"
    if isinstance(value, bool):
        return f"the boolean {_json(value)}"
    return f"the number {_cut(_json(value))}"


def _cut(text: str, limit: int = _SHOWN_CHARS) -> str:
    return text if len(text) <= limit else text[:limit] + "…"


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=repr)
    except ValueError:  # an integer with more digits than Python writes
        return "…"


def _resolver(schema: Mapping[str, Any]) -> Any:
    """Return what looks up the references of a schema in itself, by the draft that it names."""
    from referencing import Registry, Resource  # noqa: PLC0415  # slow, and seldom used
    from referencing.jsonschema import DRAFT202012  # noqa: PLC0415  # slow, and seldom used

    resource: Resource[Any] = Resource.from_contents(schema, DRAFT202012)
    return Registry[Any]().with_resource("", resource).crawl().resolver_with_root(resource)


@cache
def _own(kind: Any) -> Any:
    """Return a validator in which no keyword takes more than linear time."""
    from jsonschema.validators import extend  # noqa: PLC0415  # slow, and seldom used

    extended: Any = extend  # it has no types
    made = extended(
        kind,
        {
            "uniqueItems": _unique,
            "pattern": _pattern,
            "patternProperties": _pattern_properties,
            "additionalProperties": _additional_properties,
        },
    )
    evolve = made.evolve

    def evolve_own(self: Any, **changes: Any) -> Any:
        """Descend into a part; a `$schema` in it would bring jsonschema's own keywords back."""
        part = changes.get("schema")
        if isinstance(part, Mapping) and "$schema" in part:
            changes["schema"] = {name: one for name, one in part.items() if name != "$schema"}
        return evolve(self, **changes)

    made.evolve = evolve_own
    return made


def _unique(validator: Any, wanted: Any, items: Any, schema: Any) -> Iterator[ValidationError]:
    from jsonschema.exceptions import ValidationError  # noqa: PLC0415  # slow, and seldom used

    if wanted and isinstance(items, list) and len({*map(_hashed, items)}) < len(items):
        yield ValidationError(f"{items!r:.200} has non-unique elements")


def _hashed(value: Any) -> Any:
    """Return what is equal for equal JSON: `1` and `1.0` are, `1` and `true` are not."""
    if isinstance(value, dict):
        return dict, frozenset((key, _hashed(one)) for key, one in value.items())
    if isinstance(value, list):
        return list, tuple(map(_hashed, value))
    return isinstance(value, bool), value


def _pattern(validator: Any, wanted: str, text: Any, schema: Any) -> Iterator[ValidationError]:
    from jsonschema.exceptions import ValidationError  # noqa: PLC0415  # slow, and seldom used

    if isinstance(text, str) and not _Pattern.of(wanted).fits(text):
        yield ValidationError(f"{text!r:.200} does not match {wanted!r:.200}")


def _pattern_properties(validator: Any, wanted: Any, held: Any, schema: Any) -> Iterator[Any]:
    for text, part in wanted.items() if isinstance(held, dict) else ():
        for name in filter(_Pattern.of(text).fits, held):
            yield from validator.descend(held[name], part, path=name, schema_path=text)


def _additional_properties(validator: Any, wanted: Any, held: Any, schema: Any) -> Iterator[Any]:
    from jsonschema.exceptions import ValidationError  # noqa: PLC0415  # slow, and seldom used

    if not isinstance(held, dict):
        return
    known = schema.get("properties", {})
    patterns = [*map(_Pattern.of, schema.get("patternProperties", ()))]
    more = [name for name in held if name not in known]
    more = [name for name in more if not any(one.fits(name) for one in patterns)]
    if isinstance(wanted, Mapping):
        for name in more:
            yield from validator.descend(held[name], wanted, path=name)
    elif not wanted and more:
        yield ValidationError(f"{', '.join(map(repr, more))} is not expected"[:200])


# --- Regular expressions, by RE2: a search takes linear time, whatever they are.

_NOT_SIGNS: Final = "^(?!^[-+.]*$)"
"""Begins pydantic's patterns of a `Decimal`: the text is not made of signs alone."""

_AHEAD: Final = re.compile(r"\(\?=\[\\d\.\]\{1,\d+\}0\*\$\)")
"""Another part of these patterns; the parts behind it hold the limit too."""

_UNITS: Final = re.compile(r"\\u([0-9a-fA-F]{4})|\\(.)|(\[\^?\]?)|(\])|[^\[\]\\]+", re.DOTALL)

_CLASSES: Final = {"d": r"\p{Nd}", "w": r"\pL\pM\pN_", "s": r"\s\v\pZ"}
"""What Python and pydantic mean by a class of characters; RE2 means ASCII."""

_PATTERN_BYTES: Final = 1 << 18
"""Memory of a compiled expression; a larger one is refused."""


@dataclass(frozen=True, slots=True)
class _Pattern:
    """A compiled expression."""

    fits: Any
    """Returns whether it is found in a text."""

    @classmethod
    @lru_cache(128)
    def of(cls, text: str) -> _Pattern:
        """Compile an expression.

        Raises:
            ConfigError: RE2 refuses it.
        """
        import re2  # type: ignore[import-untyped]  # noqa: PLC0415  # seldom used, and without types

        options = re2.Options()
        options.log_errors, options.never_capture = False, True
        options.max_mem = _PATTERN_BYTES
        signed = not text.startswith(_NOT_SIGNS)
        plain = text if signed else _AHEAD.sub("", f"^{text.removeprefix(_NOT_SIGNS)}")
        try:
            search = re2.compile(_wide(plain).encode("utf-8", "surrogatepass"), options).search
        except re2.error as error:
            why = error.args[0].decode("utf-8", "replace")
            raise ConfigError(
                f"the pattern {text!r:.200} is refused: {why}; write it without look-around, "
                "references to groups and long repetitions, so that a search takes linear time"
            ) from None

        def fits(given: str) -> bool:
            found = search(given.encode("utf-8", "surrogatepass")) is not None
            return found and (signed or bool(given.strip("-+.")))

        return cls(fits)


def _wide(text: str) -> str:
    """Return an expression for RE2 with Python's classes of characters."""
    made: list[str] = []
    within = False
    for unit in _UNITS.finditer(text):
        point, escaped, opens, closes = unit.groups()
        if opens and not within:
            within = True
        elif closes and within:
            within = False
        if point:
            made.append(f"\\x{{{point}}}")
        elif escaped in _CLASSES:
            made.append(_CLASSES[escaped] if within else f"[{_CLASSES[escaped]}]")
        elif escaped and not within and (inverted := _CLASSES.get(escaped.lower())):
            made.append(f"[^{inverted}]")
        else:
            made.append(r"\z" if escaped == "Z" else unit[0])
    return "".join(made)


_KEPT: Final = 1024

_valid: Final[dict[bytes, None]] = {}
"""Digests of schemas that are valid: agents share tools, and a check takes milliseconds."""


def _check_schema(kind: Any, schema: Mapping[str, Any]) -> None:
    from jsonschema.exceptions import SchemaError  # noqa: PLC0415  # slow, and seldom used

    digest = _digest(schema)
    if digest in _valid:
        return
    try:
        kind.check_schema(schema)
    except SchemaError as error:
        raise ConfigError(
            f"parameters are not a valid JSON schema at {error.json_path}: {error.message}"
        ) from error
    _refuse_risks(schema)
    if len(_valid) >= _KEPT:
        _valid.clear()
    if digest is not None:
        _valid[digest] = None


def _digest(schema: Mapping[str, Any]) -> bytes | None:
    """Identify a schema by all that it holds, types included; None if it cannot be written."""
    try:
        return sha256(repr(schema).encode("utf-8", "surrogatepass")).digest()
    except (RecursionError, ValueError):
        return None


_FOLLOWED: Final = frozenset({"patternProperties", "unevaluatedProperties"})
"""Together, even in different parts, jsonschema searches with Python's expressions."""


def _refuse_risks(schema: Mapping[str, Any]) -> None:
    """Refuse references that lead nowhere, and expressions with a search that may take forever."""
    from referencing.exceptions import Unresolvable  # noqa: PLC0415  # slow, and seldom used

    resolver, pending, words = _resolver(schema), list[Any]([schema]), set[str]()
    while pending:
        node = pending.pop()
        if isinstance(node, list):
            pending.extend(node)
        if not isinstance(node, Mapping):
            continue
        pending.extend(node.values())
        _check_patterns(node)
        words |= _FOLLOWED & node.keys()
        for ref in (node.get("$ref"), node.get("$dynamicRef")):
            try:
                if isinstance(ref, str):
                    resolver.lookup(ref)
            except Unresolvable as error:
                raise ConfigError(
                    f"parameters refer to {ref!r}, which they lack; put it under $defs"
                ) from error
    if words == _FOLLOWED:
        raise ConfigError(
            "unevaluatedProperties in a schema with patternProperties is refused; "
            "use additionalProperties"
        )


def _check_patterns(schema: Mapping[str, Any]) -> None:
    """Refuse expressions with a search that may take forever."""
    if isinstance(text := schema.get("pattern"), str):
        _Pattern.of(text)
    if isinstance(named := schema.get("patternProperties"), Mapping):
        for text in named:
            _Pattern.of(str(text))


# --- Refuse foreign schemas that could hang, bloat or misdirect the check of arguments.


MAX_SCHEMA_BYTES: Final = 64 * 1024

MAX_PARTS: Final = 10_000
"""Subschemas that a check may visit, counted once per reference."""

MAX_DEPTH: Final = 60

_NAMED: Final = (
    *("properties", "patternProperties", "$defs", "definitions"),
    *("dependentSchemas", "dependencies"),
)
"""Keywords with subschemas under arbitrary names; the drafts before 2019 have the last one."""

_LISTED: Final = (
    *("allOf", "anyOf", "oneOf", "prefixItems", "items"),
    *("type", "disallow", "extends"),  # of draft 3
)

_SINGLE: Final = (
    *("items", "additionalItems", "additionalProperties", "unevaluatedItems", "contains", "if"),
    *("unevaluatedProperties", "propertyNames", "not", "then", "else", "extends"),
)

_REFUSED: Final = {
    "$dynamicRef": "only plain references into the schema itself are followed",
    "$recursiveRef": "only plain references into the schema itself are followed",
    "$id": "only plain references into the schema itself are followed",
    "id": "only plain references into the schema itself are followed",
}


def check_foreign(parameters: Mapping[str, Any]) -> None:
    """Refuse a foreign schema unless it is harmless.

    Raises:
        ConfigError: It is not JSON, is larger than 64 KiB, has an expression that RE2 refuses,
            refers out of itself or in a circle, or unfolds to more than 10,000 parts.
    """
    try:
        size = len(json.dumps(parameters))
    except (TypeError, ValueError, RecursionError):
        raise ConfigError("the parameters are not JSON") from None
    if size > MAX_SCHEMA_BYTES:
        raise ConfigError(f"the parameters are larger than {MAX_SCHEMA_BYTES // 1024} KiB")
    _Weigher(parameters).weigh(parameters, ())


class _Weigher:
    def __init__(self, root: Mapping[str, Any]) -> None:
        try:
            self._resolver: Final = _resolver(root)
        except Exception:  # it follows keywords, whatever they hold
            raise ConfigError("the parameters are no JSON schema; correct them") from None
        self._known: Final[dict[int, int]] = {}

    def weigh(self, schema: Any, above: tuple[int, ...]) -> int:
        """Count the parts of an unfolded schema."""
        if not isinstance(schema, Mapping):
            return 1
        me = id(schema)
        if me in above:
            raise ConfigError(
                "the parameters refer to themselves in a circle, as a type that holds itself does; "
                "write out as many levels as are needed"
            )
        if len(above) >= MAX_DEPTH:
            raise ConfigError(f"the parameters are nested more than {MAX_DEPTH} deep")
        if me not in self._known:
            _check_keywords(schema)
            parts = [*_inside(schema), *self._referred(schema)]
            self._known[me] = 1 + sum(self.weigh(part, (*above, me)) for part in parts)
        if self._known[me] > MAX_PARTS:
            raise ConfigError(f"the parameters unfold to more than {MAX_PARTS} parts")
        return self._known[me]

    def _referred(self, schema: Mapping[str, Any]) -> Iterator[Any]:
        from referencing.exceptions import Unresolvable  # noqa: PLC0415  # slow, and seldom used

        if "$ref" not in schema:
            return
        ref = schema["$ref"]
        if not isinstance(ref, str) or not ref.startswith("#"):
            raise ConfigError(
                f"the parameters refer to {ref!r:.200}; only references into the schema itself, "
                "such as '#/$defs/name', are followed"
            )
        try:
            yield self._resolver.lookup(ref).contents
        except Unresolvable:
            raise ConfigError(f"the parameters refer to {ref!r:.200}, which they lack") from None


def _check_keywords(schema: Mapping[str, Any]) -> None:
    for keyword, why in _REFUSED.items():
        if isinstance(schema.get(keyword), str | Mapping):
            raise ConfigError(f"the parameters use {keyword!r}: {why}; leave it out")
    _check_patterns(schema)


def _inside(schema: Mapping[str, Any]) -> Iterator[Any]:
    for keyword in _NAMED:
        held = schema.get(keyword)
        if isinstance(held, Mapping):
            yield from held.values()
    for keyword in _LISTED:
        held = schema.get(keyword)
        if isinstance(held, list):
            yield from held
    for keyword in _SINGLE:
        if isinstance(schema.get(keyword), Mapping):
            yield schema[keyword]
