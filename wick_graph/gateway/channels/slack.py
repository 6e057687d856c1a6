"""Slack, by Socket Mode: confirms each envelope only after its message is stored."""

from __future__ import annotations

import contextlib
import json
import logging
import random
import re
import time
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any, Final

import aiohttp
from slack_sdk.errors import SlackApiError
from slack_sdk.socket_mode.response import SocketModeResponse
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from wick_graph.config.fields import Block
from wick_graph.config.gateway import Ids
from wick_graph.errors import DeliveryError
from wick_graph.gateway.channels import connected, files
from wick_graph.gateway.channels.connected import BaseUrl, ConnectedChannel, Post, inbound
from wick_graph.gateway.messages import InboundMessage
from wick_graph.web.addresses import Target

HEARTBEAT: Final = 30.0
"""Seconds between two pings; one without an answer within half of it ends the connection."""

CONFLICT: Final = 30.0
"""Seconds to the next try, and up to twice as many, if another process has a connection."""

_FILES: Final = ("https://files.slack.com", "https://files.slack-gov.com")
_WRITTEN: Final = ("", "bot_message", "file_share", "me_message", "thread_broadcast")
_STATUS: Final = {
    **dict.fromkeys(("account_inactive", "invalid_auth", "not_allowed_token_type"), 401),
    **dict.fromkeys(("not_authed", "token_expired", "token_revoked"), 401),
    **dict.fromkeys(("fatal_error", "internal_error", "request_timeout"), 500),
    **{"service_unavailable": 503, "ratelimited": 429},
}
"""What Slack says with the status 200, as the status that it means."""
_quiet: Final = logging.getLogger(f"{__name__}.library")
_quiet.setLevel(logging.WARNING)  # it would log addresses that hold a ticket


class SlackOptions(Block):
    """The `options:` of a Slack channel."""

    base_url: BaseUrl = "https://slack.com/api/"
    channels: Ids = ()
    """Channels in which all messages count; elsewhere those that mention the bot."""


class SlackChannel(ConnectedChannel):
    """A bot of Slack; its `token` is the bot's, its `secret` the app's."""

    limit = 4000
    caption = 4000
    platform = "Slack"
    network = (OSError, aiohttp.ClientError)
    options = SlackOptions
    secrets = (
        ("token", r"xoxb-[!-~]{6,250}", "the bot's token, xoxb-…, from OAuth & Permissions"),
        ("secret", r"xapp-[!-~]{6,250}", "the app's token, xapp-…, with connections:write"),
    )
    chats = r"(?P<chat>[CDG][A-Z0-9]{2,20})(?::(?P<topic>[0-9]{1,16}\.[0-9]{1,9}))?"

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        base, token = self._options.base_url, self._secrets["token"]
        self._channels = frozenset(self._options.channels)
        self._web = AsyncWebClient(
            token, base, int(connected.CALL), logger=_quiet, retry_handlers=[]
        )
        self._me = self._url = ""

    # --- Connect.

    async def _log_in(self) -> None:
        me = await self._web.auth_test()
        opened = await self._web.apps_connections_open(app_token=self._secrets["secret"])
        self._me, self._url = str(me["user_id"]), str(opened["url"])

    async def _connect(self) -> None:
        if not self._url:
            await self._call(self._log_in())
        url, self._url = self._url, ""  # each serves once
        short = aiohttp.ClientWSTimeout(ws_close=0.5)
        async with aiohttp.ClientSession() as session:
            opens = session.ws_connect(url, heartbeat=HEARTBEAT, timeout=short)
            async with await self._call(opens) as socket:
                await self._listen(socket)

    async def _listen(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        hello = await self._call(socket.receive_json())
        if int(hello.get("num_connections") or 1) > 1:
            said = f"Slack has another connection with the app token of channels.{self.name}; if"
            # it may be the one before; and two that begin at once must not do so forever
            wait = CONFLICT * (1 + random.random()) if self._failed else 5.0
            raise DeliveryError(f"{said} a process holds it, stop one of the two", retry_after=wait)
        self._well()
        self._jobs.put_nowait(self._read_history)
        while (frame := await socket.receive()).type is aiohttp.WSMsgType.TEXT:
            envelope = json.loads(frame.data)
            if envelope.get("type") == "disconnect":  # Slack asks to connect again
                return
            if "envelope_id" in envelope:
                self._jobs.put_nowait(partial(self._take, socket, envelope))
        raise DeliveryError(f"the channel {self.name} lost Slack, and connects again")

    def _failure(self, error: Exception) -> DeliveryError:
        if not isinstance(error, SlackApiError):
            return super()._failure(error)
        answer = error.response
        if not isinstance(answer, AsyncSlackResponse):
            return DeliveryError("Slack's answer cannot be read; check options.base_url")
        code = str(answer.get("error") or "")
        if not re.fullmatch(r"[a-z0-9_.]{1,80}", code):  # else it may hold anything
            code = f"HTTP {answer.status_code}"
        status = _STATUS.get(code, max(answer.status_code, 400))
        if status == 401 and "connections.open" in answer.api_url:
            return self._refused("secret")
        if code == "missing_scope":
            code = f"the app lacks the scope {str(answer.get('needed'))[:80]}"
        return self._answered(status, code, answer.headers.get("Retry-After"))

    # --- Receive.

    async def _take(
        self, socket: aiohttp.ClientWebSocketResponse, envelope: Mapping[str, Any]
    ) -> None:
        """Store what an envelope brings, then confirm it."""
        await self._take_in(partial(self._read, envelope))
        with contextlib.suppress(OSError, aiohttp.ClientError):  # then it comes again
            await socket.send_json(SocketModeResponse(envelope["envelope_id"]).to_dict())

    def _read(self, envelope: Mapping[str, Any]) -> InboundMessage | None:
        payload = envelope["payload"]
        if envelope["type"] == "events_api":
            return incoming(payload["event"], self.name, self._me, self._channels)
        return pressed(payload, self.name) if envelope["type"] == "interactive" else None

    async def _read_history(self) -> None:
        """Take the last day of the bot's conversations; the inbox drops what it has."""
        kinds, most = "im,mpim,private_channel,public_channel", connected.MESSAGES
        listed = await self._look_back(
            partial(self._web.users_conversations, types=kinds, limit=most)
        )
        chats = [str(chat["id"]) for chat in (listed or {"channels": ()})["channels"]]
        chats.sort(key=lambda chat: (chat[0] != "D", chat not in self._channels))
        for chat in chats[: connected.CHATS]:
            for one in await self._past(chat):
                event = {**one, "channel": chat}
                await self._take_in(partial(incoming, event, self.name, self._me, self._channels))

    async def _past(self, chat: str) -> list[dict[str, Any]]:
        """Return what was written after the bot joined, with answers in threads; oldest first."""
        asked: dict[str, Any] = {"channel": chat, "limit": connected.MESSAGES}
        asked["oldest"] = f"{time.time() - connected.HISTORY:.6f}"
        answer = await self._look_back(partial(self._web.conversations_history, **asked))
        found: list[dict[str, Any]] = []
        for one in answer["messages"] if answer else ():  # the newest comes first
            subtype = one.get("subtype")
            if subtype in ("channel_join", "group_join") and one.get("user") == self._me:
                break
            found.append(one)
        for ts in [one["ts"] for one in found if one.get("reply_count")]:
            replies = partial(self._web.conversations_replies, ts=ts, **asked)
            answer = await self._look_back(replies)
            found += [one for one in (answer["messages"] if answer else ()) if one["ts"] != ts]
        return sorted(found, key=lambda one: float(one["ts"]))

    # --- Send, fetch.

    async def _send(self, post: Post) -> str:
        text, chat = as_mrkdwn(post.text), post.chat
        to: dict[str, Any] = {"channel": chat, "thread_ts": post.topic or None}
        if post.file:
            path, name = post.file
            upload = self._web.files_upload_v2(
                file=str(path), filename=name, title=name, initial_comment=text or None, **to
            )
            await self._call(upload, connected.UPLOAD)
            return ""
        sent = await self._call(
            self._web.chat_postMessage(
                text=text,
                blocks=_blocks(text, post.buttons) if post.buttons else None,
                parse="none",
                link_names=False,
                unfurl_links=False,  # Slack would open the addresses in the text
                unfurl_media=False,
                **to,
            )
        )
        return f"{chat}:{sent['ts']}"

    async def _load(self, attachment: Mapping[str, Any], most: int) -> bytes:
        answer = await self._call(self._web.files_info(file=str(attachment["id"])))
        url = str(answer["file"].get("url_private_download") or answer["file"]["url_private"])
        origins = {*_FILES, Target.parse(self._options.base_url).origin}
        token = {"Authorization": f"Bearer {self._secrets['token']}"}
        return await files.download(url, origins, attachment, most, token)


# --- Pure: from events to messages, from messages to what Slack shows.


def incoming(
    event: Mapping[str, Any], channel: str, me: str, channels: Collection[str] = ()
) -> InboundMessage | None:
    """Return a message; None if it is a notice, empty, or in a channel and not for the bot."""
    chat, said = str(event["channel"]), event
    if event.get("type") not in ("message", "app_mention"):
        return None
    edited = event.get("subtype") == "message_changed"
    if edited:
        said, before = event["message"], event.get("previous_message") or {}
        if "edited" not in said or said.get("text") == before.get("text"):
            return None  # a preview was added
    sender, text = str(said.get("user") or said.get("bot_id") or ""), str(said.get("text") or "")
    group, ts, thread = not chat.startswith("D"), str(said["ts"]), said.get("thread_ts")
    heard = not group or chat in channels or f"<@{me}>" in text
    if not heard or sender in ("", me) or said.get("subtype", "") not in _WRITTEN:
        return None
    shared = [one for one in said.get("attachments") or () if one.get("is_share")]
    texts = [as_text(text, me), *(as_text(str(one.get("text") or ""), me) for one in shared)]
    content, attached = "\n".join(filter(None, texts)), _attachments(said.get("files") or ())
    if not content and not attached:
        return None
    at = str(said["edited"]["ts"]) if edited else ts
    return inbound(
        channel,
        sender,
        chat,
        content,
        group=group,
        native_id=f"{chat}:{ts}:{at}" if edited else f"{chat}:{ts}",
        sent=float(at),
        topic=thread if thread != ts else "",
        forwarded=bool(shared),
        bot=bool(said.get("bot_id")) or sender == "USLACKBOT",
        edited=edited,
        attachments=attached,
    )


def pressed(payload: Mapping[str, Any], channel: str) -> InboundMessage | None:
    """Return the press of a button; None for other interactions."""
    if payload.get("type") != "block_actions" or payload["actions"][0]["type"] != "button":
        return None
    action, message, chat = payload["actions"][0], payload["message"], payload["channel"]["id"]
    return inbound(
        channel,
        str(payload["user"]["id"]),
        chat,
        action["value"],
        group=not chat.startswith("D"),
        native_id=f"{chat}:{message['ts']}:{action['action_ts']}",
        sender_name=str(payload["user"].get("name") or ""),
        topic=message.get("thread_ts") if message.get("thread_ts") != message["ts"] else "",
        button=action["value"],
    )


def _attachments(listed: Collection[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        files.attachment(str(one["id"]), one.get("name"), one.get("size"), one.get("mimetype"))
        for one in listed
        if one.get("mode") not in ("tombstone", "hidden_by_limit")
    ]


def as_text(text: str, me: str) -> str:
    """Return what a person wrote, without Slack's marks and without the mention at its start."""
    text = re.sub(rf"^\s*<@{re.escape(me)}>[:,]?", "", text).strip()
    text = re.sub(r"<((?:https?|mailto):[^|>]+)>", r"\1", text)
    text = re.sub(r"<((?:https?|mailto):[^|>]+)\|([^>]*)>", r"\2 (\1)", text)
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def as_mrkdwn(text: str) -> str:
    """Return simple Markdown in Slack's form; nothing in it can be a mention or a link's label."""
    return connected.formatted(text, lambda _, lines: f"```\n{lines}\n```", "`{}`", "*{}*")


def _blocks(text: str, buttons: Collection[tuple[str, str]]) -> list[dict[str, Any]]:
    most = 600 if "&" in text else 3000  # a section takes 3000 characters; escaped ones are five
    parts = re.findall(rf"(?s)(?:&\w+;|.){{1,{most}}}", text)
    sections: list[dict[str, Any]] = [
        {"type": "section", "text": {"type": "mrkdwn", "text": part, "verbatim": True}}
        for part in parts
    ]
    elements = [
        {
            "type": "button",
            "text": {"type": "plain_text", "text": label[:75], "emoji": False},
            "value": code,
            "action_id": f"wick-{number}",
        }
        for number, (label, code) in enumerate(buttons)
    ]
    return [*sections, {"type": "actions", "elements": elements}]
