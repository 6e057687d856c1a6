"""One turn: messages of a chat become an input, and a result becomes answers."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from langchain_core.messages import HumanMessage

from wick_graph.core.redaction import REDACTOR
from wick_graph.errors import WickError
from wick_graph.gateway.announcements import for_model
from wick_graph.gateway.messages import InboundMessage
from wick_graph.gateway.people import lowest, sender_facts
from wick_graph.hooks.prompt_files import as_data, one_line

_NAME: Final = 80

_IMAGES: Final = {".png": "png", ".jpg": "jpeg", ".jpeg": "jpeg", ".gif": "gif", ".webp": "webp"}

_MAX_IMAGE: Final = 4 * 2**20
"""Bytes of a picture that a model is shown; a larger one is named only."""


def target_of(message: InboundMessage) -> tuple[str, str]:
    """Return the channel and the chat that a turn answers; with the topic, if there is one."""
    if message.channel == "system":  # its chat is `channel:chat_id`
        channel, _, chat = message.chat_id.partition(":")
        return channel, chat
    topic = message.metadata.get("topic")
    return message.channel, f"{message.chat_id}:{topic}" if topic else message.chat_id


def origin_of(message: InboundMessage, session: str) -> dict[str, Any]:
    """Return where a turn is held, from what was stored with its message alone.

    A task reports to the place that it was given; jobs and heartbeats are the owner's own.
    """
    about = message.metadata
    channel, chat = target_of(message)
    place = {"channel": channel, "chat_id": chat, "session": session}
    if message.channel == "system":
        held = {"sender_id": message.sender_id, "role": "owner", "owner": True, "group": False}
        return {**(about.get("origin") or held), **place}
    return {
        **place,
        "sender_id": message.sender_id,
        "sender_name": one_line(str(about.get("sender_name") or ""), _NAME),
        "group": about.get("group") is not False,
        "role": lowest(about.get("role")),
        "owner": about.get("owner") is True,
    }


def human_of(message: InboundMessage, media: Mapping[str, Any], *, images: bool) -> HumanMessage:
    """Return a message as the thread keeps it: in groups its sender is named.

    `media` says what became of its files: `paths`, `said` in voice messages, and `notes`.
    """
    about = message.metadata
    role = lowest(about.get("role"))
    text = "\n\n".join(filter(None, [message.content, *media.get("said", ())]))
    if message.channel == "system":
        return HumanMessage(for_model(message) if about.get("kind") == "task" else text)
    if role == "untrusted" and text:
        text = as_data("message", text)
    if about.get("group") is not False:
        name = one_line(str(about.get("sender_name") or message.sender_id), _NAME)
        text = f"[from {name} ({one_line(message.sender_id, _NAME)})]\n{text}"
    paths = [*message.media, *media.get("paths", ())]
    lines = [f"- {one_line(path, 300)}" for path in paths]
    lines += [f"- {one_line(note, 300)}" for note in media.get("notes", ())]
    if lines:
        text = "\n".join([text, "", "[files that came with the message]", *lines]).strip()
    blocks = [block for path in paths if images and (block := _picture(Path(path))) is not None]
    content: Any = [{"type": "text", "text": text}, *blocks] if blocks else text or "[no text]"
    return HumanMessage(content, additional_kwargs=sender_facts(message, role))


def _picture(path: Path) -> dict[str, Any] | None:
    kind = _IMAGES.get(path.suffix.lower())
    try:
        if kind is None or path.stat().st_size > _MAX_IMAGE:
            return None
        data = base64.b64encode(path.read_bytes()).decode()
    except OSError:  # someone has removed it
        return None
    return {"type": "image", "base64": data, "mime_type": f"image/{kind}"}


def failure(error: BaseException) -> str:
    """Return the answer after a failed turn; only our own errors are quoted in full."""
    told = str(error) if isinstance(error, WickError) else f"an error of {type(error).__name__}"
    return f"Error processing message: {REDACTOR.text(told)}"
