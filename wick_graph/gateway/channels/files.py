"""Store what senders attach: under a safe name, of a bounded size, of the type that it claims."""

from __future__ import annotations

import asyncio
import json
import os
import re
import unicodedata
from collections.abc import AsyncIterable, Collection, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import httpx

from wick_graph.backends.root import Root
from wick_graph.config.gateway import TranscriptionConfig
from wick_graph.core.redaction import REDACTOR
from wick_graph.errors import DeliveryError, RefusedError, ToolError
from wick_graph.web import Client, Target

_LONGEST: Final = 80

_RESERVED: Final = re.compile(r"(?i)(?:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?")
"""Names of devices on Windows."""

_BEGINS: Final = {
    "image/gif": re.compile(rb"GIF8[79]a"),
    "image/jpeg": re.compile(rb"\xff\xd8\xff"),
    "image/png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "image/webp": re.compile(rb"RIFF....WEBP", re.DOTALL),
}
"""How files of these types begin; they are what models are shown."""

_SECONDS: Final = 300.0
"""How long a download may take."""


def safe_name(name: str) -> str:
    """Return a file's name without folders, control characters and signs that mean something."""
    last = re.split(r"[/\\]", unicodedata.normalize("NFC", name))[-1]
    seen = "".join(char for char in last if unicodedata.category(char)[0] != "C")
    kept = re.sub(r"[^\w.+ -]", "_", seen).strip(". ")
    stem, dot, suffix = kept.rpartition(".")
    if dot and len(suffix) <= 10:
        kept = f"{stem[: _LONGEST - 11].rstrip('. ')}.{suffix}"
    kept = kept[:_LONGEST].strip(". ")
    return f"_{kept}" if _RESERVED.fullmatch(kept) else kept or "file"


def store(data: bytes, attachment: Mapping[str, Any], folder: Path) -> Path:
    """Write a file that a sender attached into a folder, and return its path.

    The name ends in a hash of the attachment's id: fetched again, it replaces itself, and never
    another file. No link is followed, the folder itself included.

    Raises:
        RefusedError: It says that it is an image, and is none.
        ToolError: The folder cannot be written to.
    """
    begin = _BEGINS.get(str(attachment.get("type")))
    if begin is not None and not begin.match(data):
        kind = f"is not of the type {attachment['type']} that it claims; send it as what it is"
        raise RefusedError(f"{_named(attachment)} {kind}")
    name = Path(safe_name(str(attachment.get("name") or "")))
    mark = sha256(str(attachment["id"]).encode("utf-8", "replace")).hexdigest()[:12]
    rel = f"{folder.name}/{name.stem}-{mark}{name.suffix}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with Root(folder.parent) as root:
        root.make_dir(folder.name)
        root.remove(rel)
        root.replace(rel, data)
    return folder.parent / rel


async def collect(chunks: AsyncIterable[bytes], attachment: Mapping[str, Any], most: int) -> bytes:
    """Return what comes.

    Raises:
        RefusedError: It has more than `most` bytes, whatever was announced.
    """
    data = bytearray()
    async for chunk in chunks:
        data += chunk
        if len(data) > most:
            raise too_large(attachment, most)
    return bytes(data)


async def download(
    url: str,
    origins: Collection[str],
    attachment: Mapping[str, Any],
    most: int,
    headers: Mapping[str, str] | None = None,
) -> bytes:
    """Download a file from one of some origins; follow no redirect.

    Raises:
        RefusedError: It is elsewhere, or has more than `most` bytes.
        DeliveryError: There is none.
    """
    if not url.startswith(tuple(f"{origin}/" for origin in origins)):
        raise RefusedError(f"{_named(attachment)} is on no host of the platform; upload it there")
    async with (
        httpx.AsyncClient(timeout=_SECONDS, trust_env=False) as client,
        client.stream("GET", url, headers=dict(headers or {})) as answer,
    ):
        if answer.status_code != 200:
            raise DeliveryError(f"HTTP {answer.status_code}")
        kind = answer.headers.get("content-type", "")
        if kind.startswith("text/html") and "html" not in str(attachment.get("type")):
            raise DeliveryError("the answer is a page")
        return await collect(answer.aiter_bytes(), attachment, most)


def too_large(attachment: Mapping[str, Any], most: int) -> RefusedError:
    """Say that a file is too large."""
    return RefusedError(f"{_named(attachment)} has more than {most} bytes; send a smaller one")


def not_fetched(attachment: Mapping[str, Any], why: str) -> ToolError:
    """Say that a file cannot be downloaded."""
    return ToolError(f"{_named(attachment)} cannot be downloaded ({why}); ask to send it again")


def _named(attachment: Mapping[str, Any]) -> str:
    return f"the file {safe_name(str(attachment.get('name') or ''))}"


def attachment(number: str, name: str | None, size: int | None, mime: str | None) -> dict[str, Any]:
    """Describe what a message carries; the name is made safe, size and type are claims."""
    kind = (mime or "").partition(";")[0].strip()
    return {"id": number, "name": safe_name(name or ""), "size": size or 0, "type": kind}


def file_to_send(path: str) -> tuple[Path, str]:
    """Return a file that shall be sent, and its safe name.

    Raises:
        DeliveryError: It is missing or empty.
    """
    file = Path(path)
    name = safe_name(file.name)
    with suppress(OSError, ValueError):
        if file.is_file() and file.stat().st_size:
            return file, name
    raise DeliveryError(f"the file {name} is missing or empty; name another", permanent=True)


# --- Voice messages: which files they are, and their text by an OpenAI-compatible endpoint.


NOT_READ: Final = "a voice message, which cannot be listened to here; ask for a text"
"""What the agent reads about a voice message if there is no `transcription:`."""

MAX_CHARS: Final = 20_000

_VOICE: Final = frozenset({".flac", ".m4a", ".mp3", ".mpga", ".oga", ".ogg", ".opus", ".wav"})
_SENT: Final = (_VOICE - {".oga", ".opus"}) | {".mp4", ".mpeg", ".webm"}  # what endpoints know
_PLAIN: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


def is_voice(path: Path, kind: str = "") -> bool:
    """Return whether a stored file is recorded speech; `kind` is the type that it claims."""
    suffix = path.suffix.lower()
    return suffix in _VOICE or (suffix in {*_SENT, ""} and kind.startswith("audio/"))


def client_of(config: TranscriptionConfig) -> Client:
    """Make the client for an endpoint; the owner has named it, so it may be a private one."""
    return Client(allow=[Target.parse(config.url).origin], timeout=config.timeout)


async def transcribe(path: Path, config: TranscriptionConfig, client: Client) -> str:
    """Return the text of a recording, which is as much data as its sender's other texts.

    Raises:
        RefusedError: It is no file, or too large.
        ToolError: The endpoint gives no text.
    """
    data = await asyncio.to_thread(_read, path, config.most_bytes)
    suffix, url = path.suffix.lower(), f"{config.url.rstrip('/')}/audio/transcriptions"
    form = {"model": config.model, "response_format": "json"}
    file = (f"voice{suffix if suffix in _SENT else '.ogg'}", data)
    made = httpx.Request("POST", url, data=form, files={"file": file})
    headers = {"Accept": "application/json", "Content-Type": made.headers["content-type"]}
    if config.api_key is not None:
        REDACTOR.learn([config.api_key.get_secret_value()])
        headers["Authorization"] = f"Bearer {config.api_key.get_secret_value()}"
    answer = await client.send("POST", url, headers=headers, content=made.read())
    if not 200 <= answer.status < 300:
        raise ToolError(f"the transcription endpoint answered with status {answer.status}")
    try:
        text = json.loads(answer.body)["text"].strip()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        text = ""
    if not text:
        raise ToolError("the transcription endpoint gave no words; send a text instead")
    more = len(text) - MAX_CHARS
    return f"{text[:MAX_CHARS]}\n[truncated: {more:,} more characters]" if more > 0 else text


def _read(path: Path, most: int) -> bytes:
    """Read a file, never what a link names."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | _PLAIN), "rb") as file:
            data = file.read(most + 1) or b""
    except (OSError, ValueError):
        data = b""
    if 0 < len(data) <= most:
        return data
    why = f"has more than {most} bytes" if data else "is missing or empty"
    raise RefusedError(f"the recording {why}; send another one")
