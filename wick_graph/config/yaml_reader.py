"""Strict YAML: plain data with a line for every key; environment variables."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

import yaml
from yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    CollectionStartEvent,
    DocumentStartEvent,
    Event,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
)

from wick_graph.errors import ConfigError

# --- The place of a value in its file, as errors show it: `agents.yaml:12: agents.x.model`.


KeyPath: TypeAlias = tuple[str | int, ...]
"""Keys and list positions from the top of the file; `()` is the file itself."""

_PLAIN_KEY: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")

_SHOWN: Final = 40
"""Characters of a strange key that an error shows."""

_STEPS: Final = 12
"""Steps of a path that an error shows; no block of the schema lies deeper."""


@dataclass(frozen=True, kw_only=True)
class Places:
    """The lines of one file by key path, and the paths that the file spells differently."""

    source: str
    """The file's name in errors."""
    lines: Mapping[KeyPath, int] = field(default_factory=dict)
    """First line of each key and list item, counted from 1."""
    written_at: Mapping[KeyPath, KeyPath] = field(default_factory=dict)
    """Prefixes that the file spells differently: a key taken from `defaults:`, a single agent."""

    def origin(self, path: KeyPath) -> KeyPath:
        """Translate a path of the loaded configuration into the path in the file."""
        for length in (3, 2):
            prefix = self.written_at.get(path[:length])
            if prefix is not None and len(path) >= length:
                return prefix + path[length:]
        return path

    def line(self, path: KeyPath) -> int | None:
        """Find the line of a path or, if it is missing, of the nearest block around it."""
        here = self.origin(path)
        while here and here not in self.lines:
            here = here[:-1]
        return self.lines.get(here)

    def sentence(self, path: KeyPath, text: str) -> str:
        """Put file, line and key path in front of a text."""
        line = self.line(path)
        where = one_line(self.source) + ("" if line is None else f":{line}")
        keys = key_path(self.origin(path))
        return f"{where}: {keys}: {text}" if keys else f"{where}: {text}"

    def error(self, path: KeyPath, text: str) -> ConfigError:
        """Make the error for one path; the caller raises it."""
        return ConfigError(self.sentence(path, text))


def key_path(path: KeyPath) -> str:
    """Spell a path for people: `agents.default.tools[0]`."""
    parts = [f"[{step}]" if isinstance(step, int) else f".{show_key(step)}" for step in path]
    if len(parts) > _STEPS:
        parts[_STEPS:] = ["…"]
    return "".join(parts).removeprefix(".")


def show_key(key: str) -> str:
    """Show a key on one line: an ordinary one as it is, others quoted, escaped and cut."""
    if _PLAIN_KEY.fullmatch(key):
        return key
    return json.dumps(key if len(key) <= _SHOWN else key[:_SHOWN] + "…", ensure_ascii=True)


def one_line(text: str) -> str:
    """Escape line breaks and unprintable characters."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


# --- `${NAME}` in the few fields that may take a value from the environment.


ENV_FIELDS: Final = frozenset(
    {"store", "model", "base_url", "api_key", "url", "workdir", "image", "token", "secret"}
)
"""The fields in which `${NAME}` is replaced; in every other field it stays text.

Their values appear in no `repr` and no error.
"""

_REFERENCE: Final = re.compile(
    r"\$\$\{|\$\{(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\})?"
)


def expand(text: str, env: Mapping[str, str]) -> str:
    """Replace `${NAME}` and `${NAME:-default}`; `$${` means a literal `${`.

    The default counts if the variable is unset or empty, as in a shell. The value of a variable
    is not expanded again.

    Raises:
        ValueError: a variable is not set; the text names it, never a value.
    """

    def value(found: re.Match[str]) -> str:
        name, default = found["name"], found["default"]
        if found[0] == "$${":
            return "${"
        if name is None:
            raise ValueError("has a ${ that is not ${NAME} or ${NAME:-default}; write $${ for a ${")
        if default is not None:
            return env.get(name) or default
        if name not in env:
            raise ValueError(
                f"the environment variable {name} is not set; set it or write a default"
            )
        return env[name]

    return _REFERENCE.sub(value, text)


def is_literal(text: str) -> bool:
    """Say whether any part of a value is in the file itself, not in a variable."""
    return bool(_REFERENCE.sub(lambda found: found["default"] or "", text).strip())


# --- Strict YAML: plain data with a line for every key, without surprises.
#
# Refused, because a reader of the file would not see what they do: aliases, anchors, tags, merge
# keys, duplicate keys, keys that are not text, a second document, control characters. Of the plain
# scalars only `true`, `false`, `null`, `~`, decimal integers and decimal fractions have a meaning;
# `no`, `on`, `012`, `1:30`, dates and `.inf` stay text. The builder reads the parser's events one
# by one, so that a file which nests too deeply costs no more than its first levels.


MAX_BYTES: Final = 256 * 1024
"""Size of a configuration file; checked before anything is parsed."""

MAX_DEPTH: Final = 32
"""Blocks and lists inside one another."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_UNPRINTABLE: Final = re.compile(
    "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
)

_INTEGER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,17})", re.ASCII)

_FLOAT: Final = re.compile(
    r"-?(?:0|[1-9][0-9]{0,30})(?:\.[0-9]{1,30})?(?:[eE][-+]?[0-9]{1,3})?", re.ASCII
)

_WORDS: Final = {"true": True, "false": False}

_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})


class Tree(NamedTuple):
    """The data of a file, and the line of each key."""

    data: Any
    lines: dict[KeyPath, int]


def read_yaml(text: str, source: str) -> Tree:
    """Read one YAML (or JSON) document into dictionaries, lists and scalars.

    Returns None as data for an empty document.

    Raises:
        ConfigError: the text is larger than `MAX_BYTES`, deeper than `MAX_DEPTH`, not YAML, or
            uses one of the refused features.
    """
    text = text.removeprefix("\ufeff")
    _check_text(text, source)
    builder = _Builder(source)
    # make the error here and raise it below, so that it keeps no parser state as its context
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.feed(event)
    except yaml.YAMLError as exc:
        failure = _not_yaml(exc, source, text)
    except ConfigError as exc:
        failure = exc
    except (ValueError, OverflowError):
        # the pure Python parser refuses "\UFFFFFFFF" this way
        failure = ConfigError(f"{one_line(source)}: not valid YAML")
    else:
        return Tree(builder.root, builder.lines)
    raise failure


def _check_text(text: str, source: str) -> None:
    shown = one_line(source)
    if len(text) > MAX_BYTES or len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise ConfigError(f"{shown}: larger than {MAX_BYTES // 1024} kB; split it up")
    strange = _UNPRINTABLE.search(text)
    if strange:
        line = text.count("\n", 0, strange.start()) + 1
        char = f"U+{ord(strange.group()):04X}"
        raise ConfigError(f"{shown}:{line}: the character {char} is not allowed; remove it")


def _not_yaml(exc: yaml.YAMLError, source: str, text: str) -> ConfigError:
    # only the parser's message: its snippet would quote the file, and perhaps an API key
    mark = getattr(exc, "problem_mark", None)
    where = one_line(source) + (f":{mark.line + 1}" if mark is not None else "")
    problem = getattr(exc, "problem", None)
    if mark is not None and re.match(" *\t", "".join(text.split("\n")[mark.line : mark.line + 1])):
        problem = "a line begins with a tab; indent with spaces"
    return ConfigError(f"{where}: not valid YAML" + (f": {one_line(problem)}" if problem else ""))


def _line(event: Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1


class _Frame:
    """One open block or list; `key` is the key that waits for its value."""

    __slots__ = ("items", "key", "path")

    def __init__(self, items: dict[str, Any] | list[Any], path: KeyPath) -> None:
        self.items = items
        self.path = path
        self.key: str | None = None


class _Builder:
    """Turn the parser's events into a tree, one event at a time."""

    def __init__(self, source: str) -> None:
        self.root: Any = None
        self.lines: dict[KeyPath, int] = {}
        self._source = source
        self._open: list[_Frame] = []
        self._documents = 0

    def feed(self, event: Event) -> None:
        """Process the next event.

        Raises:
            ConfigError: the event uses a refused feature.
        """
        if isinstance(event, NodeEvent):
            self._refuse_sharing(event)
        if isinstance(event, ScalarEvent):
            self._scalar(event)
        elif isinstance(event, CollectionStartEvent):
            self._start(event)
        elif isinstance(event, CollectionEndEvent):
            self._open.pop()
        elif isinstance(event, DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                raise self._error(event, (), "a second document; keep one to a file")

    def _error(self, event: Event, path: KeyPath, text: str) -> ConfigError:
        here = {path: _line(event)}
        return Places(source=self._source, lines=here).error(path, text)

    def _here(self) -> KeyPath:
        """Return the next value's path, or the block's path if a key comes next."""
        if not self._open:
            return ()
        frame = self._open[-1]
        if isinstance(frame.items, list):
            return (*frame.path, len(frame.items))
        return frame.path if frame.key is None else (*frame.path, frame.key)

    def _wants_key(self) -> bool:
        if not self._open:
            return False
        frame = self._open[-1]
        return isinstance(frame.items, dict) and frame.key is None

    def _refuse_sharing(self, event: NodeEvent) -> None:
        if isinstance(event, AliasEvent):
            text = "aliases (*name) are not allowed; write the value out"
        elif event.anchor is not None:
            text = "anchors (&name) are not allowed; write the value out"
        elif getattr(event, "tag", None) is not None:
            text = "tags (!name) are not allowed; remove it"
        else:
            return
        raise self._error(event, self._here(), text)

    def _start(self, event: CollectionStartEvent) -> None:
        path = self._here()
        if self._wants_key():
            raise self._error(event, path, "a key must be text, not a list or a block")
        if len(self._open) >= MAX_DEPTH:
            raise self._error(event, path, f"nested deeper than {MAX_DEPTH} levels")
        items: dict[str, Any] | list[Any] = {} if isinstance(event, MappingStartEvent) else []
        self._put(event, path, items)
        self._open.append(_Frame(items, path))

    def _scalar(self, event: ScalarEvent) -> None:
        path = self._here()
        if _UNPRINTABLE.search(event.value):
            raise self._error(event, path, "a control character is not allowed here; remove it")
        plain = event.implicit[0]
        if self._wants_key():
            self._key(event, path, plain)
        else:
            self._put(event, path, resolve_plain(event.value) if plain else event.value)

    def _key(self, event: ScalarEvent, path: KeyPath, plain: bool) -> None:
        key: str = event.value
        if plain and key == "<<":
            raise self._error(event, path, "merge keys (<<) are not allowed; write the keys out")
        if plain and not isinstance(resolve_plain(key), str):
            raise self._error(
                event, path, f"the key {show_key(key)} must be text; put it in quotes"
            )
        full = (*path, key)
        if full in self.lines:
            first = self.lines[full]
            raise self._error(event, full, f"duplicate key, first at line {first}; keep one")
        self.lines[full] = _line(event)
        self._open[-1].key = key

    def _put(self, event: Event, path: KeyPath, value: Any) -> None:
        if not self._open:
            self.root = value
            return
        frame = self._open[-1]
        if isinstance(frame.items, list):
            self.lines[path] = _line(event)
            frame.items.append(value)
        elif frame.key is not None:
            frame.items[frame.key] = value
            frame.key = None


def resolve_plain(text: str) -> str | int | float | bool | None:
    """Return the value of an unquoted scalar; everything unlisted stays text."""
    if text in _WORDS:
        return _WORDS[text]
    if text in _NULLS:
        return None
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text) and not text.lstrip("-").isdigit():
        number = float(text)
        return number if math.isfinite(number) else text
    return text
