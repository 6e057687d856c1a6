"""Field types of the configuration blocks, and the base class of every block."""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from wick_graph import durations
from wick_graph.config.yaml_reader import ENV_FIELDS, Places, expand, show_key
from wick_graph.errors import ExpressionError
from wick_graph.expressions import compile_expression
from wick_graph.types import AGENT_ID_PATTERN

# --- The programs that a file of agents starts, and the code that it loads.


@dataclass(frozen=True, slots=True)
class Starts:
    """The sections of a file that start programs or load code, as they are written.

    They hold variables by name: another value of a variable does not make another file.
    """

    sections: Mapping[str, Any] = field(default_factory=dict)
    """By key path, such as `agents.default.mcp_servers.files`."""

    def __bool__(self) -> bool:
        return bool(self.sections)

    @property
    def loads_code(self) -> bool:
        """Whether code is loaded even if an agent is only shown."""
        return any(".mcp_servers." not in key for key in self.sections)

    def lines(self) -> list[str]:
        """Describe each program and piece of code in one line."""
        return [f"{key}: {_shown(section)}" for key, section in self.sections.items()]


def starts_of(agents: Any) -> Starts:
    """Find what the agents of a file start.

    Args:
        agents: The block `agents:` with the defaults merged in, before it is checked.
    """
    return Starts(dict(_sections(agents)))


def _sections(agents: Any) -> Iterator[tuple[str, Any]]:
    for agent_id, agent in agents.items() if isinstance(agents, dict) else ():
        if not isinstance(agent, dict):
            continue
        servers = agent.get("mcp_servers")
        for name, server in servers.items() if isinstance(servers, dict) else ():
            if isinstance(server, dict) and server.get("command"):
                yield f"agents.{agent_id}.mcp_servers.{name}", server
        for key in ("model", "context"):
            entry = agent.get(key)
            if isinstance(entry, dict) and "use" in entry:
                yield f"agents.{agent_id}.{key}", entry
        for key in ("tools", "hooks", "middleware"):
            entries = agent.get(key)
            for index, entry in enumerate(entries if isinstance(entries, list) else ()):
                if isinstance(entry, dict) or (key == "tools" and is_code(entry)):
                    yield f"agents.{agent_id}.{key}.{index}", entry


def _shown(section: Any) -> str:
    if isinstance(section, str):
        return section
    if "command" in section:
        words = section["command"]
        return " ".join(map(str, words)) if isinstance(words, list) else str(words)
    args = section.get("args")
    return f"{section.get('use', '')}{f' {json.dumps(args, default=str)}' if args else ''}"


# --- One's own code: `module:name`.


REFERENCE: Final = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*")

_FORM: Final = "write module:name, with a module beside the file or an installed one"


def is_code(value: Any) -> bool:
    """Say whether a value is meant to name code, as `module:name` does."""
    return isinstance(value, str) and bool({":", "/", "\\"} & set(value))


def check_code(text: str) -> str:
    """Return the name of one's own code if it has the right form.

    Raises:
        ValueError: It is a path, or private, or has another form.
    """
    if "/" in text or "\\" in text or ".." in text or text.partition(":")[0].endswith(".py"):
        raise ValueError(f"{show_key(text)} is a path; {_FORM}")
    if not REFERENCE.fullmatch(text):
        raise ValueError(f"{show_key(text)} names no code; {_FORM}")
    if any(part.startswith("_") for part in re.split(r"[.:]", text)):
        raise ValueError(f"{show_key(text)} is private; name something public")
    return text


def check_tool(name: str) -> str:
    """Return a name under `tools:` if it may be of a built-in tool, or of one's own code.

    Raises:
        ValueError: It names code in another form than `module:name`.
    """
    return check_code(name) if is_code(name) else name


def code_in(value: Any) -> Iterator[str]:
    """Yield each `module:name` after a `use:` in arguments, at any depth."""
    if isinstance(value, Mapping):
        use = value.get("use")
        if isinstance(use, str) and ":" in use and value.keys() <= {"use", "args"}:
            yield use
        for inner in value.values():
            yield from code_in(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from code_in(inner)


def check_args(args: dict[str, Any]) -> dict[str, Any]:
    """Return arguments if each `module:name` after a `use:` in them has the right form.

    Raises:
        ValueError: One has not.
    """
    for found in code_in(args):
        check_code(found)
    return args


# --- The database URL of a configuration; a relative SQLite file belongs to the YAML file's
# folder.


_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

DEFAULT_STORE: Final = "sqlite:///checkpoints/wick.db"


def check_store(url: str) -> str:
    """Return a database URL if it has the right form.

    Raises:
        ValueError: it has no scheme; the text never quotes the URL, which may hold a password.
    """
    scheme, found, _ = url.partition("://")
    if not found or not scheme:
        raise ValueError(f"must be a database URL such as {DEFAULT_STORE}")
    return url


def check_keys(source: str) -> str:
    """Return a source of keys if it has the right form.

    Raises:
        ValueError: it is neither `file:PATH` nor `env:NAME`; the text never quotes it, since it
            may be a key by mistake.
    """
    kind, _, name = source.partition(":")
    if not (name and kind == "file") and not (kind == "env" and _VARIABLE.fullmatch(name)):
        raise ValueError(
            "must say where the keys are: file:PATH or env:NAME; never write a key in this file"
        )
    return source


def resolve_keys(source: str, base_dir: Path) -> str:
    """Make the path of a relative file of keys absolute."""
    kind, _, name = source.partition(":")
    return f"file:{base_dir.absolute() / name}" if kind == "file" else source


def resolve_store(url: str, base_dir: Path) -> str:
    """Make the path of a relative SQLite URL absolute, also `~/`; every other URL stays as it is.

    Raises:
        ValueError: the folder's name holds a `?`, which no SQLite URL can express.
    """
    scheme, _, rest = url.partition(":///")
    if scheme.split("+")[0] != "sqlite" or not rest:
        return url
    name, mark, query = rest.partition("?")
    if not name or name == ":memory:" or name.startswith("file:") or Path(name).is_absolute():
        return url
    home = Path.home() / name[2:] if name.startswith("~/") else None
    path = str(home or base_dir.absolute() / name)
    if "?" in path:
        raise ValueError("cannot be in a folder with a ? in its name; rename the folder")
    return f"{scheme}:///{path}{mark}{query}"


# --- The types of values in a configuration, and the base of every block.


RESERVED_IDS: Final = frozenset(
    {
        "approvals",
        "cancel",
        "events",
        "files",
        "flow",
        "hitl",
        "hooks",
        "invoke",
        "messages",
        "resume",
        "runs",
        "skills",
        "slides",
        "stream",
        "threads",
        "tools",
        "traces",
    }
)
"""Words that follow `/agents/` in a URL and so cannot be an agent's id."""

_TOOL_PATTERN: Final = re.compile(r"[a-zA-Z0-9_*?\[\]!-]{1,64}")

AGENT_ID: Final = AGENT_ID_PATTERN

_HIDDEN: Final = ENV_FIELDS | {"params", "env", "headers", "args"}

NAME_TAG: Final = "\0name"

BLOCK_TAG: Final = "\0block"

CODE_TAG: Final = "\0code"

UNION_TAGS: Final = frozenset({NAME_TAG, BLOCK_TAG, CODE_TAG})
"""Steps that pydantic adds to a location and that no file has."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What the models need while a file is read: pydantic's validation context."""

    env: Mapping[str, str]
    base_dir: Path
    places: Places
    notices: tuple[str, ...] = field(default=())
    path: Path | None = None
    """The file itself; None for a text."""
    starts: Starts = field(default_factory=Starts)


def slug(name: str) -> str:
    """Turn a name into an agent id; `default` if nothing usable is left."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    made = re.sub(r"[^a-z0-9_]+", "-", plain)[:64].strip("-_")
    return made if AGENT_ID.fullmatch(made) and made not in RESERVED_IDS else "default"


def check_agent_id(value: str) -> str:
    """Return an agent's id if a URL can hold it.

    Raises:
        ValueError: it cannot; the text suggests another id.
    """
    if value in RESERVED_IDS:
        raise ValueError(f"a reserved word cannot be an agent's id; write {value}-agent")
    if not AGENT_ID.fullmatch(value):
        raise ValueError(
            "an agent's id has up to 64 lower-case letters, digits, - and _; "
            f"write {slug(value)} and put the rest under name:"
        )
    return value


def check_name(value: str) -> str:
    """Return the name of a channel or of a job.

    Raises:
        ValueError: it has other characters than an agent's id; the text suggests another name.
    """
    if not AGENT_ID.fullmatch(value):
        raise ValueError(
            f"a name has up to 64 lower-case letters, digits, - and _; write {slug(value)}"
        )
    return value


def check_once(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return names without duplicates.

    Raises:
        ValueError: a name is listed twice; the text names the first one.
    """
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"lists {show_key(name)} twice; keep one")
        seen.add(name)
    return names


def check_http_url(value: str) -> str:
    """Return a URL if it is an HTTP one.

    Raises:
        ValueError: it is not; the text never quotes it.
    """
    if not re.match(r"https?://[^\s/]", value):
        raise ValueError("must be a URL that begins with http:// or https://")
    return value


def check_origins(values: tuple[str, ...]) -> tuple[str, ...]:
    """Return origins: each a scheme, a host and perhaps a port, and nothing after them.

    Raises:
        ValueError: an entry is not an origin; the text names the first one.
    """
    for value in values:
        if not re.fullmatch(r"https?://[^\s/?#@]+/?", value):
            raise ValueError(
                f"has {show_key(value)}, which is not an origin; write it as http://127.0.0.1:9100"
            )
    return values


def check_patterns(rules: dict[str, Any]) -> dict[str, Any]:
    """Return rules with keys that can match tool names.

    Raises:
        ValueError: a key cannot match one; the text names the first such key.
    """
    for name in rules:
        if not _TOOL_PATTERN.fullmatch(name):
            raise ValueError(
                f"has the key {show_key(name)}, which fits no tool; "
                "write a tool's name, or a pattern such as fs_*"
            )
    return rules


def check_regexes(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Return patterns that are valid regular expressions.

    Raises:
        ValueError: a pattern is invalid; the text names the first one.
    """
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as problem:
            raise ValueError(
                f"has {show_key(pattern)}, which is not a regular expression: {problem}"
            ) from None
    return patterns


def _approval_rule(value: Any) -> Any:
    if isinstance(value, str):
        try:
            compile_expression(value)
        except ExpressionError as error:
            raise ValueError(f"is not an expression, at {error}") from None
    elif not isinstance(value, bool):
        raise ValueError("must be true, false, or an expression in quotes")
    return value


def _limit(value: Any) -> float:
    found = durations.seconds(value)
    if found is None:
        raise ValueError("cannot be never; write a duration such as 60s")
    return found


def _each_expanded(value: Any, info: ValidationInfo) -> Any:
    reading = info.context
    if not isinstance(value, dict) or not isinstance(reading, Reading):
        return value
    return {k: expand(v, reading.env) if isinstance(v, str) else v for k, v in value.items()}


def form_of(value: Any) -> str:
    """Return the tag of a model's form: a name or a block."""
    return BLOCK_TAG if isinstance(value, (dict, BaseModel)) else NAME_TAG


def form_of_model(value: Any) -> str:
    """Return the tag of a model's form: a name, a block, or one's own code."""
    keys = value if isinstance(value, dict) else getattr(value, "model_fields_set", ())
    return CODE_TAG if "use" in keys else form_of(value)


Text = Annotated[str, Field(min_length=1)]

Texts = Annotated[tuple[Text, ...], Strict(False)]
"""A list; kept as a tuple, so that agents cannot change each other's lists."""


def _written(pattern: str, *examples: str) -> WithJsonSchema:
    number = {"type": "number", "exclusiveMinimum": 0, "maximum": durations.LONGEST_SECONDS}
    text = {"type": "string", "pattern": pattern, "maxLength": durations.LONGEST_TEXT}
    return WithJsonSchema({"anyOf": [number, text], "examples": [*examples]})


Duration = Annotated[
    Annotated[float, Field(gt=0)] | None,
    BeforeValidator(durations.seconds),
    _written(durations.PATTERN, "30s", "5m", "1h", "7d", "never"),
]
"""Seconds; None is `never`."""

Limit = Annotated[
    float,
    Field(gt=0),
    BeforeValidator(_limit),
    _written(durations.LIMIT_PATTERN, "30s", "5m"),
]
"""Seconds; never unlimited."""

ApprovalRule = Annotated[bool | str, BeforeValidator(_approval_rule)]
"""Whether a call needs approval: always, never, or if an expression on its arguments holds."""

Variables = Annotated[dict[Text, str], BeforeValidator(_each_expanded)]
"""Texts by name, with `${NAME}` in them replaced; never shown."""

Tokens = Annotated[int, Field(ge=1, le=1_000_000_000)]

Temperature = Annotated[float, Field(ge=0, le=2)]


class Block(BaseModel):
    """Base of every block: closed, strict, immutable; hides values from the environment."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        hide_input_in_errors=True,
        allow_inf_nan=False,
    )

    @field_validator("*", mode="before")
    @classmethod
    def _from_environment(cls, value: Any, info: ValidationInfo) -> Any:
        reading = info.context
        if info.field_name in ENV_FIELDS and isinstance(value, str) and reading is not None:
            return expand(value, reading.env)
        return value

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        return [pair for pair in super().__repr_args__() if pair[0] not in _HIDDEN]


class SchemaGenerator(GenerateJsonSchema):
    """Describe blocks by the texts below their fields, and without titles that repeat a key.

    Pydantic would read the texts from the sources at every start of a process.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._classes_in = cache(classes_in)  # for as long as one schema is made

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Return whether a field has a title: never."""
        return False

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """Describe a block."""
        made = super().model_schema(schema)
        made.pop("title", None)
        model = schema["cls"]
        named = {name: field.alias or name for name, field in model.model_fields.items()}
        fields = {name: made["properties"].get(key, {}) for name, key in named.items()}
        for kind in model.__mro__:
            if issubclass(kind, Block) and (
                own := self._classes_in(kind.__module__).get(kind.__qualname__)
            ):
                describe(fields, own)
        return made


def classes_in(module: str) -> dict[str, ast.ClassDef]:
    """Return the classes in the source of a module; none of an installation without sources."""
    try:
        source = ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError, KeyError):
        return {}
    return {part.name: part for part in source.body if isinstance(part, ast.ClassDef)}


def describe(fields: Mapping[str, dict[str, Any]], source: ast.ClassDef) -> None:
    """Add the text below each field in the source of a model to its schema."""
    for place, said in pairwise(source.body):
        if isinstance(place, ast.AnnAssign) and isinstance(said, ast.Expr):
            text = said.value.value if isinstance(said.value, ast.Constant) else None
            if isinstance(text, str):
                name = ast.unparse(place.target)
                fields.get(name, {}).setdefault("description", inspect.cleandoc(text))
