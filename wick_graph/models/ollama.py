"""Where an Ollama server is, whether it answers, and which of its models can be used."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import httpx

from wick_graph.errors import ModelError

PORT: Final = 11_434
PROBE_SECONDS: Final = 0.3
"""How long a server may take to list its models before it counts as not there."""
_MOST_BYTES: Final = 1_000_000
_ANY_ADDRESS: Final = frozenset({"", "0.0.0.0", "::"})
"""Where a server may listen but nobody can call; it is then on this machine."""


def server_url(given: str | None, env: Mapping[str, str]) -> str:
    """Give the server's address: the given one, else `OLLAMA_HOST`, else this machine.

    `OLLAMA_HOST` has the forms that Ollama itself reads: a host, a host and port, a port alone
    (`:11500`), or a whole address.

    Raises:
        ModelError: if it has none of these forms.
    """
    if given:
        return given.rstrip("/")
    host = env.get("OLLAMA_HOST", "").strip()
    try:
        return _normalise(host)
    except ValueError:
        raise ModelError(
            f"OLLAMA_HOST is no address: {host!r}; write it like 127.0.0.1:{PORT}."
        ) from None


def _normalise(host: str) -> str:
    whole = "://" in host
    parts = urlsplit(host if whole else f"http://{host}")
    if parts.scheme not in ("http", "https"):
        raise ValueError(host)
    name = parts.hostname or ""
    if name in _ANY_ADDRESS:
        name = "127.0.0.1"
    if ":" in name:
        name = f"[{name}]"
    port = parts.port or ({"http": 80, "https": 443}[parts.scheme] if whole else PORT)
    sign_in, at, _ = parts.netloc.rpartition("@")
    place = f"{sign_in}{at}{name}:{port}"
    return urlunsplit((parts.scheme, place, parts.path.rstrip("/"), "", ""))


def find_model(env: Mapping[str, str]) -> str | None:
    """Ask the server for its models and choose one: the first that says it can call tools.

    Where the server does not say so of any, it is the first that is not made for embeddings.
    Returns None when nobody answers within a fraction of a second, or with anything else.
    """
    try:
        listing = json.loads(_fetch(f"{server_url(None, env)}/api/tags"))
        models = [m for m in listing["models"] if isinstance(m["name"], str)]
    except (OSError, httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError):
        return None
    able = [m for m in models if "tools" in (m.get("capabilities") or ())]
    chosen = able or [m for m in models if not _embeds(m)]
    return str(chosen[0]["name"]) if chosen else None


def _fetch(url: str) -> bytes:
    """The body of an answer that comes whole and in time, else an error."""
    until = time.monotonic() + PROBE_SECONDS
    body = b""
    limits = httpx.Timeout(PROBE_SECONDS / 2)
    with httpx.stream("GET", url, timeout=limits, trust_env=False) as answer:
        answer.raise_for_status()
        for piece in answer.iter_bytes():
            body += piece
            if time.monotonic() > until or len(body) > _MOST_BYTES:
                raise TimeoutError(url)
    return body


def _embeds(model: Mapping[str, Any]) -> bool:
    family = str((model.get("details") or {}).get("family", ""))
    return "bert" in family or "embed" in str(model["name"])
