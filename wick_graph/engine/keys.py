"""Idempotency keys: the ids that derive from them, and the hash of an input.

A key is any text of the caller's, so it may hold lone surrogates.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from hashlib import blake2b, sha1
from typing import Any, Final

_OURS: Final = uuid.UUID("6f2b8f0e-51d5-4c55-9b5e-0f2f6f5a7d41")


def run_id_of(thread_id: str, key: str) -> str:
    """Make a run's id from its thread and the caller's key."""
    # as `uuid5`, which takes no lone surrogates
    name = f"{thread_id}\0{key}".encode("utf-8", "surrogatepass")
    made = sha1(_OURS.bytes + name, usedforsecurity=False).digest()
    return str(uuid.UUID(bytes=made[:16], version=5))


def thread_id_of(agent: str, key: str) -> str:
    """Make the thread id for a run with a key but no thread, the same each time."""
    made = blake2b(f"{agent}\0{key}".encode("utf-8", "surrogatepass"), digest_size=8)
    return f"th_{made.hexdigest()}"


def input_hash(input: Mapping[str, Any]) -> str:
    """Hash an input's messages without their ids, and its other channels but the origin."""
    said: list[Any] = [[message.type, message.content] for message in input.get("messages") or ()]
    said += [[key, value] for key, value in input.items() if key not in ("messages", "origin")]
    text = json.dumps(said, sort_keys=True, default=str)
    return blake2b(text.encode(), digest_size=8).hexdigest()
