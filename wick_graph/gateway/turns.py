"""One turn: messages of a chat become an input, and a result becomes answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from langchain_core.messages import HumanMessage

from wick_graph.errors import WickError
from wick_graph.gateway.announcements import for_model
from wick_graph.gateway.channels.protocol import Channel
from wick_graph.gateway.channels.split import parts
from wick_graph.gateway.messages import InboundMessage, OutboundMessage
from wick_graph.hooks.prompt_files import one_line
from wick_graph.store.mailbox import Draft

_NAME: Final = 80

_LIMIT: Final = 4000
"""Characters of one message to a channel that does not run here."""


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
    if message.channel == "system":
        held = {"sender_id": message.sender_id, "role": "owner", "group": False}
        held |= dict(about.get("origin") or {})
        return {**held, "channel": channel, "chat_id": chat, "session": session}
    return {
        "channel": channel,
        "chat_id": chat,
        "session": session,
        "sender_id": message.sender_id,
        "sender_name": one_line(str(about.get("sender_name") or ""), _NAME),
        "group": bool(about.get("group")),
        "role": str(about.get("role") or "untrusted"),
    }


def human_of(message: InboundMessage) -> HumanMessage:
    """Return a message as the thread keeps it: in groups its sender is named."""
    about = message.metadata
    text = for_model(message) if about.get("kind") == "task" else message.content
    if about.get("group"):
        name = one_line(str(about.get("sender_name") or message.sender_id), _NAME)
        text = f"[from {name} ({one_line(message.sender_id, _NAME)})]\n{text}"
    if message.media:
        names = "\n".join(f"- {path}" for path in message.media)
        text = f"{text}\n\n[files that came with the message]\n{names}".strip()
    kept = {key: about[key] for key in ("native_id", "sent", "role", "forwarded") if about.get(key)}
    kept |= {"channel": message.channel, "sender_id": message.sender_id}
    return HumanMessage(text or "[media]", additional_kwargs={"metadata": kept})


def drafts_of(
    key: str, message: OutboundMessage, channels: Mapping[str, Channel]
) -> Sequence[Draft]:
    """Cut a message into rows of the outbox, each as long as its channel takes."""
    channel = channels.get(message.channel)
    chat = f"{message.channel}:{message.chat_id}"
    made = parts(message, _LIMIT if channel is None else channel.limit)
    return [Draft(key=f"{key}/{n}", chat=chat, message=one.to_json()) for n, one in enumerate(made)]


def failure(error: BaseException) -> str:
    """Return the answer to a person whose turn failed; only our own errors are told in full."""
    told = str(error) if isinstance(error, WickError) else f"an error of {type(error).__name__}"
    return f"Error processing message: {told}"
