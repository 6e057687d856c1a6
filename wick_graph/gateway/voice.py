"""Voice messages: which files they are, and their text by an OpenAI-compatible endpoint."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from pathlib import Path
from typing import Final

import httpx

from wick_graph.config.gateway import TranscriptionConfig
from wick_graph.core.redaction import REDACTOR
from wick_graph.errors import RefusedError, ToolError
from wick_graph.web import Client, Target

NOT_READ: Final = "a voice message, which cannot be listened to here; ask for a text"
"""What the agent is told of a voice message if there is no `transcription:`."""

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
            plain = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            data = file.read(most + 1) if plain else b""
    except (OSError, ValueError):
        data = b""
    if 0 < len(data) <= most:
        return data
    why = f"has more than {most} bytes" if data else "is missing or empty"
    raise RefusedError(f"the recording {why}; send another one")
