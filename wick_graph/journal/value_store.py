"""The journal's values: masked, then stored once per content."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from hashlib import blake2b
from itertools import compress, repeat
from typing import Any, Final
from weakref import WeakKeyDictionary

from langchain_core.messages import BaseMessage
from pydantic import BaseModel, SecretStr

from wick_graph.core.redaction import ODD_CASES, PATTERNS, REDACTOR, WORDS
from wick_graph.errors import StorageError
from wick_graph.store.codec import Codec, fold, unfold
from wick_graph.tools.bound import BoundTool

# --- Secrets never reach the journal: they are replaced before anything is written.
#
# Secrets are: environment variables with a name such as `…_API_KEY`, each `SecretStr` of the
# agent's model, texts that match a pattern of the configuration or the form of a well-known kind of
# key, and any text under a name such as `password`. Each is replaced by three dots and a keyed
# hash, so that equal secrets have equal marks, and none can be guessed.


Mark = tuple[int, str]
"""A secret's length and keyed hash: with the text and the key, it locates the secret."""

DOTS: Final = "•••"

SHORTEST: Final = 6
"""Least characters of a known secret; a shorter one would match everywhere."""

_HASH_BYTES: Final = 4

_DEEPEST: Final = 60

_SHORT: Final = 64
"""Characters of a text that is remembered."""

_MOST_SHORT: Final = 4_096

_NAME: Final = (
    r"(?:password|passwd|passphrase|secret|api[_-]?key|access[_-]?key|private[_-]?key"
    r"|token|authorization|credentials?)"
)

_SECRET_NAME: Final = re.compile(rf"(?i)(?:.*[_-])?{_NAME}")
"""Names of environment variables and text fields with secret values."""

_FIELD: Final = re.compile(
    rf"""(?isx) (?<![^\W_]) {_NAME} \\*["']\s{{0,9}}:\s{{0,9}}
    (?P<deep>\\*) (?P<quote>["']) (?!\ufffd)
    (?P<secret> (?:
        (?!(?P=quote)) [^\\] | \\+ (?!(?P=quote)|\\)
      | (?!(?P=deep)(?P=quote)) \\+ (?P=quote) (?!(?:\s|\\+n){{0,9}}(?:[,}})\]]|\Z))
      | (?:(?P=deep){{2}}\\\\)* (?P=deep){{2}}\\(?P=quote)
      | (?:(?P=deep){{2}}\\\\)+ (?=(?P=deep)(?P=quote))
    )+ )"""
)
"""A text field with such a name in JSON, or in what Python shows of a dict, that is in a text; or
in such a text inside it. With `deep` backslashes before the quotes of its value, one of the value
has `2 * deep + 1`, and a backslash is `2 * deep + 2`. A dict in JSON, or JSON in a dict, has other
numbers: a quote behind a backslash ends a value only where a value may end. No value begins with
what is left of a byte that is no text: between texts that are stored one behind the other."""


_NAMES: Final = ("passw", "passph", "secret", "key", "token", "authori", "credential")

_MAYBE_NAMED: Final = re.compile("(?i)" + "|".join(_NAMES))

_HINTS: Final = tuple(
    {
        *(word for words in WORDS.values() for word in words),
        *(*(name.encode() for name in _NAMES), *ODD_CASES),
    }
)
"""Data without any of these, in lower case, holds no known form of a key and no name of a secret.
To look for them takes a tenth of the patterns' own search."""


def _has_hint(data: bytes) -> bool:
    # `in` first tries a number, and makes an error of each hint, which costs more than the search
    return max(map(data.lower().find, _HINTS)) >= 0


def is_secret_name(name: str) -> bool:
    """Return whether a text under a name is a secret."""
    return _SECRET_NAME.fullmatch(name) is not None


def known_secrets(model: Any = None, env: Mapping[str, str] | None = None) -> frozenset[str]:
    """Collect the known secrets of this process."""
    found = set(_own_secrets() if env is None else _secrets_among(env))
    found.update(_secrets_of(model))
    found.update(REDACTOR.known)  # fallback models, for example
    return _shared(frozenset(value for value in found if len(value) >= SHORTEST))


@lru_cache(maxsize=64)
def _shared(secrets: frozenset[str]) -> frozenset[str]:
    """Return one object for equal secrets: the mask of each run holds them."""
    return secrets


def _secrets_among(env: Mapping[str, str]) -> frozenset[str]:
    return frozenset(value for name, value in env.items() if _SECRET_NAME.fullmatch(name))


def _own_secrets() -> frozenset[str]:
    """Return the secrets in the environment; look again only if a variable has changed."""
    raw = getattr(os.environ, "_data", None)  # a dict, which is compared in C
    if raw is None:
        return _secrets_among(os.environ)
    if not _looked or _looked[0][0] != raw:
        _looked[:] = [(dict(raw), _secrets_among(os.environ))]
    return _looked[0][1]


_looked: Final[list[tuple[dict[Any, Any], frozenset[str]]]] = []
"""The variables at the last look, and the secrets among them."""


def _secrets_of(model: Any) -> Iterator[str]:
    fields = type(model).model_fields if isinstance(model, BaseModel) else ()
    values: list[Any] = [*map(getattr, repeat(model), fields, repeat(None))]
    for value in compress(values, map(isinstance, values, repeat(SecretStr))):
        yield value.get_secret_value()


class Mask:
    """Finds and hides secrets in data before it is written."""

    __slots__ = ("_inside", "_key", "_own", "_short", "_unseen", "regex", "seen")

    def __init__(
        self,
        key: bytes,
        secrets: Iterable[str] = (),
        patterns: Iterable[str] = (),
        *,
        inside: bool = False,
    ) -> None:
        """Take what is hidden; with `inside`, fields of JSON that is in a text are hidden too."""
        self._key, self._inside = key, inside
        self.regex: Final = _compiled(frozenset(secrets), tuple(patterns))
        self._own: Final = _own_regex(frozenset(secrets), tuple(patterns))
        self._short: dict[str, str] = {}
        """Short texts, which come again and again, without their secrets."""
        self._unseen = frozenset(secrets)
        self.seen: list[Mark] = []
        """The known secrets that are in the state unhidden."""

    def see(self, value: Any) -> None:
        """Look for known secrets in data that enters the state unhidden.

        An export elsewhere does not know the secrets, and finds them by their marks.
        """
        if not self._unseen:
            return
        for text in texts_of(value):
            for secret in [secret for secret in self._unseen if secret in text]:
                self._unseen -= {secret}
                self.seen.append((len(secret), self._hash(secret)))

    def marked(self, texts: Iterable[str], marks: Iterable[Mark]) -> Iterator[str]:
        """Find the secrets with these marks in texts; stop after the last one."""
        wanted = set(marks)
        for text in texts:
            for length in {length for length, _ in wanted}:
                for at in range(len(text) - length + 1):
                    mark = length, self._hash(part := text[at : at + length])
                    if mark in wanted:
                        wanted.discard(mark)
                        yield part
            if not wanted:
                return

    def is_clean(self, data: bytes) -> bool:
        """Return whether encoded data certainly holds nothing that `value` would change."""
        if _has_hint(data):
            text = data.decode("utf-8", "replace")
            return self.regex.search(text) is None and _MAYBE_NAMED.search(text) is None
        own = self._own
        return own is None or own.search(data.decode("utf-8", "replace")) is None

    def text(self, text: str) -> str:
        """Return a text without its secrets; one without any is the same object."""
        if len(text) > _SHORT:
            return self._masked(text)
        made = self._short.get(text)
        if made is None:
            if len(self._short) >= _MOST_SHORT:
                self._short.clear()
            made = self._short[text] = self._masked(text)
        return text if made == text else made

    def _masked(self, text: str) -> str:
        if not _has_hint(text.encode("utf-8", "surrogatepass")):
            own = self._own
            if own is None or own.search(text) is None:
                return text
        made = self.regex.sub(lambda found: self._hidden(found[0]), text)
        return _FIELD.sub(self._without, made) if self._inside else made

    def _without(self, field: re.Match[str]) -> str:
        return field[0][: -len(field["secret"])] + self._hidden(field["secret"])

    def value(self, value: Any, depth: int = 0) -> Any:
        """Return data without its secrets; data without any stays the same object."""
        if isinstance(value, str):
            return self.text(value)
        if depth > _DEEPEST:
            return DOTS
        if isinstance(value, dict):
            made = {self.value(k, depth + 1): self._field(k, v, depth) for k, v in value.items()}
            return made if made != value else value
        if isinstance(value, list | tuple):
            parts = [self.value(item, depth + 1) for item in value]
            return type(value)(parts) if parts != list(value) else value
        if isinstance(value, BaseMessage):
            fields = {name: self.value(v, depth + 1) for name, v in value.__dict__.items()}
            changed = {name: v for name, v in fields.items() if v is not value.__dict__[name]}
            return value.model_copy(update=changed) if changed else value
        if isinstance(value, bytes):
            return DOTS if self.regex.search(value.decode("utf-8", "replace")) else value
        return value

    def _field(self, name: Any, value: Any, depth: int) -> Any:
        if isinstance(value, str) and isinstance(name, str) and _SECRET_NAME.fullmatch(name):
            return self._hidden(value) if value else value
        return self.value(value, depth + 1)

    def _hidden(self, secret: str) -> str:
        return secret if secret.startswith(DOTS) else DOTS + self._hash(secret)

    def _hash(self, secret: str) -> str:
        data = secret.encode("utf-8", "surrogatepass")
        return blake2b(data, digest_size=_HASH_BYTES, key=self._key).hexdigest()


def texts_of(value: Any, depth: int = 0) -> Iterator[str]:
    """Yield every text in a value of the state."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, bytes):
        yield value.decode("utf-8", "replace")
    elif depth > _DEEPEST:
        return
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from texts_of(name, depth + 1)
            yield from texts_of(item, depth + 1)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from texts_of(item, depth + 1)
    elif isinstance(value, BaseMessage):
        yield from texts_of(value.__dict__, depth + 1)


@lru_cache(maxsize=64)
def _compiled(secrets: frozenset[str], patterns: tuple[str, ...]) -> re.Pattern[str]:
    # of the others, field names are more reliable than texts
    forms = [PATTERNS[kind] for kind in WORDS]
    return _any_of([*_own_forms(secrets, patterns), *forms])


@lru_cache(maxsize=64)
def _own_regex(secrets: frozenset[str], patterns: tuple[str, ...]) -> re.Pattern[str] | None:
    """Return what finds known secrets and the configuration's patterns; None without any."""
    own = _own_forms(secrets, patterns)
    return _any_of(own) if own else None


def _own_forms(secrets: frozenset[str], patterns: tuple[str, ...]) -> list[str]:
    return [*map(re.escape, sorted(secrets, key=len, reverse=True)), *patterns]


def _any_of(forms: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{part})" for part in forms))


# --- The journal's values: small ones in the moment, larger ones once per content.


INLINE: Final = 64
"""Largest size in bytes of a value inside its moment."""

MAX_VALUE: Final = 1_048_576
"""Largest size in bytes of a value; of a larger one only size and beginning are kept."""

HEAD: Final = 4_096
"""Characters of the kept beginning of a too large value."""

HASH_BYTES: Final = 16

CUT: Final = "not_kept"
"""The key of the substitute for a value that is too large or cannot be stored."""

_COMPRESSED: Final = 512

_MANY: Final = 20_000

_TEXTS: Final = 256

_HERE: Final = b"="

_THERE: Final = b"#"

_PLAIN: Final = b"\x00"

_ZLIB: Final = b"\x01"


_CLEAN: Final[WeakKeyDictionary[BoundTool, tuple[re.Pattern[str], bytes]]] = WeakKeyDictionary()
"""Packed schemas, and what found no secret in them."""


class ValueStore:
    """Turns values into references, and collects the content that is new."""

    __slots__ = ("_codec", "_key", "_known", "_new", "_texts", "mask")

    def __init__(self, codec: Codec, mask: Mask, key: bytes = b"") -> None:
        """Set the codec, the mask, and the key of content hashes, empty if they are not keyed."""
        self._codec = codec
        self._key = key
        self.mask = mask
        self._known: set[bytes] = set()
        self._texts: dict[str, bytes] = {}
        self._new: list[tuple[bytes, bytes]] = []

    def keep(self, value: Any) -> bytes:
        """Store a value without its secrets, and return its reference."""
        if type(value) is not str:
            return self._kept(self._packed(value))
        known = self._texts.get(value)  # prompt sections repeat with every request
        if known is None:
            if len(self._texts) > _TEXTS:
                self._texts.clear()
            known = self._texts[value] = self._kept(self._packed(value))
        return known

    def keep_schema(self, tool: BoundTool) -> bytes:
        """Store a tool's schema; one without a secret is packed and searched once in a process."""
        known = _CLEAN.get(tool)
        if known is None or known[0] is not self.mask.regex:
            packed = self._packed(tool.schema)
            if packed != self._codec.pack(tool.schema):  # it is masked with this thread's key
                return self._kept(packed)
            known = _CLEAN[tool] = self.mask.regex, packed
        return self._kept(known[1])

    def holds_whole(self, value: Any) -> bool:
        """Return whether `keep` stores a value unchanged: without a secret, and not cut."""
        try:
            packed = self._codec.pack(value)
        except StorageError:
            return False
        return len(packed) <= MAX_VALUE and bool(self.mask.value(value) == value)

    def keep_as_is(self, value: Any) -> bytes:
        """Store data of names and references alone, and return its reference."""
        return self._kept(self._codec.pack(value))

    def _kept(self, packed: bytes) -> bytes:
        if len(packed) <= INLINE:
            return _HERE + packed
        hashed = blake2b(packed, digest_size=HASH_BYTES, key=self._key).digest()
        if hashed not in self._known:
            if len(self._known) > _MANY:
                self._known.clear()
            self._known.add(hashed)
            self._new.append((hashed, _body(packed)))
        return _THERE + hashed

    def put(self, hashed: bytes, content: bytes) -> None:
        """Add a row with a name of its own, which is not content."""
        self._new.append((hashed, content))

    def take(self) -> list[tuple[bytes, bytes]]:
        """Return the new content since the last call."""
        taken, self._new = self._new, []
        return taken

    def _packed(self, value: Any) -> bytes:
        try:
            packed = self._codec.pack(value)
        except StorageError as error:
            packed = self._codec.pack(_stand_in(type(value).__name__, str(error), _shown(value)))
        if len(packed) > MAX_VALUE:
            kind, head = type(value).__name__, _beginning(value)
            packed = self._codec.pack(_stand_in(kind, f"{len(packed)} bytes are too many", head))
        if self.mask.is_clean(packed):
            return packed
        return self._codec.pack(self.mask.value(self._codec.unpack(packed)))


def unpacked(codec: Codec, reference: bytes, blob: Any) -> Any:
    """Return the value of a reference; `blob` gives a blob's bytes by its hash.

    Raises:
        StorageError: The content is missing or damaged.
    """
    if reference[:1] == _HERE:
        return codec.unpack(reference[1:])
    body: bytes = blob(reference[1:])
    data = unfold(body[1:]) if body[:1] == _ZLIB else body[1:]
    return codec.unpack(data)


def _body(packed: bytes) -> bytes:
    if len(packed) > _COMPRESSED and (small := fold(packed, 6)) is not None:
        return _ZLIB + small
    return _PLAIN + packed


def _stand_in(kind: str, why: str, head: str) -> dict[str, str]:
    return {CUT: kind, "why": why, "head": head[:HEAD]}


def _beginning(value: Any) -> str:
    text = getattr(value, "content", value)
    if isinstance(text, dict):
        text = text.get("output", text)
    return text[:HEAD] if isinstance(text, str) else _shown(text)[:HEAD]


def _shown(value: Any) -> str:
    try:
        return repr(value)
    except RecursionError:
        return "…"
