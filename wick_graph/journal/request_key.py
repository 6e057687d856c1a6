"""The key of a request: equal for equal requests in every process, without revealing them.

It covers what the model reads: the messages without their ids and metadata, the tools in OpenAI's
form, and the settings. It is computed before secrets are hidden, so that a replay finds it again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final

import ormsgpack
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage

from wick_graph.messages.base import changed
from wick_graph.messages.content import flat, is_deep

KEY_BYTES: Final = 16

_NONE: Final = bytes(KEY_BYTES)


def digest(value: Any) -> bytes:
    """Return a digest of data; data that is not plain counts as its text."""
    return blake2b(packed(value), digest_size=KEY_BYTES).digest()


def packed(value: Any) -> bytes:
    """Encode plain data, the same in every process."""
    hidden: list[BaseException] = []

    def text(other: Any) -> str:
        try:
            return str(other)
        except BaseException as error:
            if isinstance(error, MemoryError) or not isinstance(error, Exception):
                hidden.append(error)  # such as Ctrl-C; ormsgpack hides what a hook raises
            raise

    try:
        return ormsgpack.packb(value, default=text, option=ormsgpack.OPT_SORT_KEYS)
    except (TypeError, ValueError, RecursionError):  # keys that are not texts, infinite numbers
        if hidden:
            raise hidden[0] from None
        if is_deep(value):  # only its type counts, not its content
            return packed(flat(value))
        return json.dumps(value, sort_keys=True, default=str).encode("utf-8", "surrogatepass")


def unpacked(data: bytes) -> Any:
    """Undo `packed`."""
    if data[:1] in b"{[":
        return json.loads(data)
    return ormsgpack.unpackb(data)


def read_of(message: BaseMessage) -> bytes:
    """Encode the parts of a message that a model reads."""
    parts: list[Any] = [message.type, message.content, message.name]
    if isinstance(message, AIMessage):
        parts.append([[call["id"], call["name"], call["args"]] for call in message.tool_calls])
    elif isinstance(message, ToolMessage):
        parts += (message.tool_call_id, message.status)
    return packed(parts)


def tools_digest(schemas: Sequence[Mapping[str, Any]]) -> bytes:
    """Return a digest of tools in OpenAI's form."""
    return digest([schema.get("function", schema) for schema in schemas])


def request_key(
    secret: bytes,
    messages: Sequence[BaseMessage],
    tools: Sequence[Mapping[str, Any]] = (),
    settings: Mapping[str, Any] | None = None,
) -> bytes:
    """Return the key of a request."""
    return Fingerprint(secret).key(messages, tools_digest(tools), digest(dict(settings or {})))


class Fingerprint:
    """Computes request keys of a growing thread, reading only the new messages each time."""

    __slots__ = ("_chain", "_secret", "_seen", "_system")

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._seen: list[BaseMessage] = []
        self._chain: list[bytes] = []
        self._system: tuple[Any, bytes] = None, _NONE

    def continues(self, other: Fingerprint) -> bool:
        """Return whether this computes the same keys as another one."""
        return self._secret == other._secret

    def key(self, messages: Sequence[BaseMessage], tools: bytes, settings: bytes) -> bytes:
        """Return the key of a request from the digests of its tools and settings."""
        system = _NONE
        if messages and isinstance(messages[0], SystemMessage):  # each request has a new one
            system, messages = self._digest_of(messages[0]), messages[1:]
        last = self._extended(messages)
        return blake2b(
            system + last + tools + settings, digest_size=KEY_BYTES, key=self._secret
        ).digest()

    def _digest_of(self, system: SystemMessage) -> bytes:
        if self._system[0] != system.content:
            read = blake2b(read_of(system), digest_size=KEY_BYTES).digest()
            self._system = system.content, read
        return self._system[1]

    def _extended(self, messages: Sequence[BaseMessage]) -> bytes:
        new = changed(self._seen, messages)
        start = min(new[0] if new else len(messages), len(messages))
        del self._chain[start:], self._seen[start:]
        last = self._chain[-1] if self._chain else _NONE
        for message in messages[start:]:
            last = blake2b(last + read_of(message), digest_size=KEY_BYTES).digest()
            self._chain.append(last)
        self._seen += messages[start:]
        return last
