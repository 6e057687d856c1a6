"""Telegram, by its Bot API: polls for updates, and confirms each only after it is stored."""

from __future__ import annotations

import asyncio
import html
import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeVar

from aiogram import Bot, exceptions, methods, types
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.utils.token import TokenValidationError, validate_token
from pydantic import field_validator

from wick_graph.config.fields import Block, Text
from wick_graph.config.gateway import ChannelConfig
from wick_graph.core.redaction import REDACTOR
from wick_graph.errors import ConfigError, DeliveryError, RefusedError, ToolError
from wick_graph.gateway.channels.connected import (
    CALL,
    MARKS,
    STALLED,
    UPLOAD,
    ConnectedChannel,
    Sleep,
    safe_base,
    sendable,
)
from wick_graph.gateway.channels.files import file_to_send, not_fetched, safe_name, store, too_large
from wick_graph.gateway.channels.registry import read_options
from wick_graph.gateway.messages import InboundMessage, OutboundMessage

POLL: Final = 30
"""Seconds that Telegram may hold a poll open."""

CONFLICT: Final = 30.0
"""Seconds to the next poll if another process polls with the same token."""

_CALL, _UPLOAD = int(CALL), int(UPLOAD)
_MOST_PHOTO: Final = 10 * 1024 * 1024
_PHOTOS: Final = frozenset({".jpg", ".jpeg", ".png", ".webp"})
_POSTS: Final = ["message", "edited_message", "channel_post", "edited_channel_post"]
_CHAT: Final = re.compile(r"(-?[0-9]{1,20})(?::([0-9]{1,20}))?")
_NATIVE: Final = re.compile(r"(-?[0-9]+):([0-9]+)(?::.*)?")
_DESCRIBED: Final = ("sticker", "location", "contact", "poll", "dice", "story", "checklist")
_REFUSALS: Final = (
    *(exceptions.TelegramBadRequest, exceptions.TelegramForbiddenError),
    exceptions.TelegramEntityTooLarge,
)
_log: Final = logging.getLogger(__name__)

T = TypeVar("T")


class TelegramOptions(Block):
    """The `options:` of a Telegram channel."""

    base_url: Text = "https://api.telegram.org"
    """Where the Bot API is; `http` only on this machine."""

    _is_safe = field_validator("base_url")(safe_base)


class _RawUpdates(methods.GetUpdates):
    """Updates as data: one that the library cannot read must not hide the others."""

    __returning__ = list[dict[str, Any]]


class TelegramChannel(ConnectedChannel):
    """A bot of Telegram.

    Args:
        name: Its key under `channels:`.
        config: Its block; `token` is the bot's.
        sleep: Waits for some seconds; tests give their own.

    Raises:
        ConfigError: The token is missing or has a wrong form, or an option is invalid.
    """

    limit = 4096
    caption = 1024
    idempotent = False

    def __init__(self, name: str, config: ChannelConfig, *, sleep: Sleep = asyncio.sleep) -> None:
        super().__init__(name, sleep)
        options = read_options(TelegramOptions, name, config.options)
        token = config.token.get_secret_value() if config.token else ""
        try:
            validate_token(token)
        except TokenValidationError:
            raise ConfigError(
                f"channels.{name}.token is missing or has another form than 123456:ABC…; set it "
                "to the token that @BotFather gave"
            ) from None
        REDACTOR.learn([token])
        self._secret = token.partition(":")[2]
        self._session = AiohttpSession(api=TelegramAPIServer.from_base(options.base_url))
        self._bot = Bot(token, session=self._session)
        self._username = ""
        self._offset: int | None = None

    async def stop(self) -> None:
        """Stop to receive; what Telegram was not told to forget comes again."""
        await super().stop()
        await self._close()

    async def _log_in(self) -> None:
        me = await self._ask(methods.GetMe())
        self._username = me.username or str(me.id)

    # --- Receive.

    async def _connect(self) -> None:
        """Poll once."""
        for raw in await self._updates(self._offset):
            message = self._read(raw)
            if message is not None:
                await self._receive(message)
                if "callback_query" in raw:
                    number = str(raw["callback_query"]["id"])
                    answer = methods.AnswerCallbackQuery(callback_query_id=number)
                    self._spawn(self._confirm(self._ask(answer)))
            self._offset = int(raw["update_id"]) + 1  # the next poll confirms up to here
        self._well()

    async def _updates(self, offset: int | None) -> list[dict[str, Any]]:
        """Poll once; give up if nothing at all is answered."""
        if not self._username:
            await self._log_in()
        asked = [*_POSTS, "callback_query"]
        poll = _RawUpdates(offset=offset, limit=100, timeout=POLL, allowed_updates=asked)
        call = asyncio.ensure_future(self._ask(poll, int(STALLED) * 2))
        try:
            if not await self._in_time(call, STALLED):
                raise DeliveryError(
                    f"Telegram has not answered a poll of the channel {self.name} within "
                    f"{STALLED:g} s; check the network",
                    retry_after=0,
                )
            found: Any = call.result()
            return list(found)
        finally:
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)

    def _read(self, raw: Mapping[str, Any]) -> InboundMessage | None:
        try:
            return incoming(types.Update.model_validate(raw), self.name, self._username)
        except Exception as error:  # nothing in an update may stop those behind it
            what, why = raw.get("update_id"), type(error).__name__
            _log.error("the channel %s dropped update %s, unreadable: %s", self.name, what, why)
            return None

    # --- Send.

    async def send(self, message: OutboundMessage, key: str) -> str:
        """Send a message: a text, or a file with a short text.

        Raises:
            DeliveryError: It was not sent, or it is unknown whether it was.
        """
        part = replace(message, content=sendable(message))
        common = self._common(part)
        formatted = as_html(part.content)
        method, seconds = _method(part, formatted or part.content, formatted and "HTML", common)
        sent = await self._attempt(method, seconds)
        if isinstance(sent, exceptions.TelegramBadRequest) and "parse entities" in sent.message:
            sent = await self._attempt(*_method(part, part.content, None, common))
        if isinstance(sent, exceptions.TelegramMigrateToChat):
            common["chat_id"] = sent.migrate_to_chat_id
            sent = await self._attempt(*_method(part, part.content, None, common))
        if isinstance(sent, exceptions.ClientDecodeError) and _is_ok(sent.data):
            return ""  # it was sent; only the library cannot read the answer
        if isinstance(sent, Exception):
            raise self._failure(sent)
        return f"{sent.chat.id}:{sent.message_id}"

    def _common(self, part: OutboundMessage) -> dict[str, Any]:
        """Return what all methods take: the chat, the topic, the answered message, buttons."""
        chat = _CHAT.fullmatch(part.chat_id)
        if chat is None:
            raise DeliveryError(
                f"{part.chat_id!r:.80} is no chat of Telegram; write its number", permanent=True
            )
        if not all(1 <= len(code.encode("utf-8", "replace")) <= 64 for _, code in part.buttons):
            why = "the code of a button is empty or has more than 64 bytes; shorten it"
            raise DeliveryError(why, permanent=True)
        button = types.InlineKeyboardButton
        rows = [[button(text=label or code, callback_data=code)] for label, code in part.buttons]
        to = _NATIVE.fullmatch(part.reply_to)
        reply = None
        if to is not None and to[1] == chat[1]:
            reply = types.ReplyParameters(message_id=int(to[2]), allow_sending_without_reply=True)
        return {
            "chat_id": int(chat[1]),
            "message_thread_id": int(chat[2]) if chat[2] else None,
            "reply_parameters": reply,
            "reply_markup": types.InlineKeyboardMarkup(inline_keyboard=rows) if rows else None,
        }

    # --- Files.

    async def fetch(self, attachment: Mapping[str, Any], folder: Path, most: int) -> Path:
        """Download a file into a folder, as `FetchingChannel` says; at most 20 MB."""
        if int(attachment.get("size") or 0) > most:
            raise RefusedError(too_large(attachment, most))
        try:
            found = await self._ask(methods.GetFile(file_id=str(attachment["id"])))
        except DeliveryError as error:
            failure = self._not_fetched(attachment, str(error))
        else:
            url = self._session.api.file_url(self._bot.token, found.file_path or "")
            try:
                return await store(
                    self._session.stream_content(url, timeout=_UPLOAD), attachment, folder, most
                )
            except (ToolError, ConfigError):
                raise
            except Exception as error:  # its text has the address, with the token
                failure = self._not_fetched(attachment, type(error).__name__)
        raise failure

    def _not_fetched(self, attachment: Mapping[str, Any], why: str) -> ToolError:
        if "too big" in why:
            return RefusedError(too_large(attachment, 20 * 1024 * 1024))
        return not_fetched(attachment, why)

    # --- Call the Bot API.

    async def _attempt(
        self, method: methods.TelegramMethod[T], seconds: int = _CALL
    ) -> T | Exception:
        """Call a method; return the library's error if it raises one."""
        try:
            return await self._bot(method, request_timeout=seconds)
        except Exception as error:
            return error

    async def _ask(self, method: methods.TelegramMethod[T], seconds: int = _CALL) -> T:
        return await self._call(self._bot(method, request_timeout=seconds), seconds)

    def _failure(self, error: Exception) -> DeliveryError:
        told = error.message if isinstance(error, exceptions.TelegramAPIError) else ""
        said = self._clean(told)[:200]
        match error:
            case exceptions.TelegramRetryAfter():
                wait = float(error.retry_after)
                return DeliveryError(f"Telegram asks to wait {wait:g} s", retry_after=wait)
            case exceptions.TelegramConflictError() if "webhook" in said:
                why = "Telegram sends the updates of its bot to a webhook; remove the webhook"
                return DeliveryError(f"the channel {self.name}: {why}", retry_after=CONFLICT)
            case exceptions.TelegramConflictError():
                why = "another process polls Telegram with the same token; stop one of the two"
                return DeliveryError(f"the channel {self.name}: {why}", retry_after=CONFLICT)
            case exceptions.TelegramUnauthorizedError() | exceptions.TelegramNotFound():
                why = f"Telegram refuses the token of the channel {self.name}; ask @BotFather for"
                return self._token_refused(f"{why} the current one")
            case _ if isinstance(error, _REFUSALS):
                return DeliveryError(f"Telegram refuses the message: {said}", permanent=True)
            case exceptions.TelegramNetworkError() | OSError():
                return DeliveryError("Telegram cannot be reached; check the network")
            case exceptions.ClientDecodeError():
                return DeliveryError("Telegram's answer cannot be read; check base_url")
            case exceptions.TelegramAPIError():
                return DeliveryError(f"Telegram fails: {said}")
        return DeliveryError(f"the call to Telegram failed ({type(error).__name__})")

    def _clean(self, text: str) -> str:
        return text.replace(self._secret, "[token]")

    async def _close(self) -> None:
        client = await self._session.create_session()  # `AiohttpSession.close` waits 250 ms
        await client.close()


def _is_ok(answer: Any) -> bool:
    return isinstance(answer, dict) and answer.get("ok") is True


# --- Pure: from updates to messages, from messages to methods.


def incoming(update: types.Update, channel: str, username: str = "") -> InboundMessage | None:
    """Return the message of an update; None if it has nothing that a person wrote or pressed."""
    if update.callback_query is not None:
        return _pressed(update.callback_query, channel)
    edited = update.edited_message or update.edited_channel_post
    message = update.message or update.channel_post or edited
    if message is None:
        return None
    attached = _attachments(message)
    content = message.text or message.caption or _described(message)
    if not content and not attached:
        return None
    user, chat = message.from_user, message.sender_chat
    if user is None and chat is None:
        return None
    native = f"{message.chat.id}:{message.message_id}"
    reply = message.reply_to_message
    topic = message.message_thread_id if message.is_topic_message else None
    forwarded = message.forward_origin or message.via_bot or message.is_automatic_forward
    metadata = {
        "native_id": f"{native}:{update.update_id}" if edited else native,
        "sent": _seconds(message.edit_date if edited else message.date),
        "sender_name": chat.full_name if chat else user.full_name if user else "",
        "group": message.chat.type != "private",
        "topic": str(topic) if topic else "",
        "forwarded": bool(forwarded),
        "forward_origin": message.forward_origin.type if message.forward_origin else "",
        # an anonymous administrator and a channel write through a bot of Telegram's own
        "bot": bool(user and user.is_bot and chat is None),
        "edited": bool(edited),
        "channel_post": bool(update.channel_post or update.edited_channel_post),
        "reply_to": f"{message.chat.id}:{reply.message_id}" if reply else "",
        "album": message.media_group_id or "",
        "attachments": attached,
    }
    return InboundMessage(
        channel=channel,
        # all who write in the name of a chat share one user id, which must not be allowed
        sender_id=str(chat.id if chat else user.id if user else ""),
        chat_id=str(message.chat.id),
        content=_without_username(content, username),
        metadata={key: value for key, value in metadata.items() if value or key == "group"},
    )


def _pressed(query: types.CallbackQuery, channel: str) -> InboundMessage | None:
    message = query.message
    if message is None or not query.data:
        return None
    topic = isinstance(message, types.Message) and message.is_topic_message
    metadata = {
        "native_id": f"{message.chat.id}:{message.message_id}:{query.id}",
        "sender_name": query.from_user.full_name,
        "group": message.chat.type != "private",
        "topic": str(getattr(message, "message_thread_id", "")) if topic else "",
        "bot": query.from_user.is_bot,
        "button": query.data,
    }
    return InboundMessage(
        channel=channel,
        sender_id=str(query.from_user.id),
        chat_id=str(message.chat.id),
        content=query.data,
        metadata={key: value for key, value in metadata.items() if value or key == "group"},
    )


def _attachments(message: types.Message) -> list[dict[str, Any]]:
    """List what a message carries; a name is made safe, size and type are claims."""
    sizes = message.photo or []
    found: dict[str, Any] = {
        "photo": max(sizes, key=lambda size: size.width * size.height, default=None),
        "document": None if message.animation else message.document,  # Telegram gives both
        **{kind: getattr(message, kind) for kind in ("animation", "audio", "video", "voice")},
        "video_note": message.video_note,
    }
    made = {"photo": ("photo.jpg", "image/jpeg"), "voice": ("voice.ogg", "audio/ogg")}
    return [
        {
            "id": file.file_id,
            "kind": kind,
            "name": safe_name(getattr(file, "file_name", None) or made.get(kind, (kind,))[0]),
            "size": file.file_size or 0,
            "type": getattr(file, "mime_type", None) or made.get(kind, ("", ""))[1],
        }
        for kind, file in found.items()
        if file is not None
    ]


def _described(message: types.Message) -> str:
    """Describe what is neither text nor a file; empty for Telegram's own notices."""
    kind = next((kind for kind in _DESCRIBED if getattr(message, kind, None)), "")
    if message.location:
        return f"[location {message.location.latitude}, {message.location.longitude}]"
    return (message.sticker and message.sticker.emoji) or (kind and f"[{kind}]")


def _without_username(text: str, username: str) -> str:
    """Return `/new` for `/new@my_bot`, as clients write it in groups."""
    found = re.match(r"(/\w{1,32})@(\w+)", text)
    ours = found and username and found[2].lower() == username.lower()
    return found[1] + text[found.end() :] if found and ours else text


def _seconds(date: datetime | int | None) -> float:
    return date.timestamp() if isinstance(date, datetime) else float(date or 0)


def as_html(text: str) -> str | None:
    """Return simple Markdown as Telegram's HTML; None if it has no marks, or unclear ones.

    Only blocks of code, code and bold text become marks; all else is escaped.
    """
    made, at = [], 0
    for found in MARKS.finditer(text):
        made.append(html.escape(text[at : found.start()], quote=False))
        language, block, code, bold = found.groups()
        inner = html.escape(next(x for x in (block, code, bold) if x is not None), quote=False)
        if block is not None:
            named = f'<code class="language-{language}">{inner}</code>' if language else inner
            made.append(f"<pre>{named}</pre>")
        else:
            made.append(f"<code>{inner}</code>" if code is not None else f"<b>{inner}</b>")
        at = found.end()
    rest = html.escape(text[at:], quote=False)
    unclear = "```" in "".join(made[::2]) + rest
    return "".join([*made, rest]) if made and not unclear else None


def _method(
    part: OutboundMessage, text: str, mode: str | None, common: Mapping[str, Any]
) -> tuple[methods.TelegramMethod[types.Message], int]:
    """Return the method that sends a part, and the seconds that it may take."""
    if not part.media:
        # Telegram would open the addresses in a text, and so tell them what the text holds
        quiet = types.LinkPreviewOptions(is_disabled=True)
        plain = methods.SendMessage(
            text=text, parse_mode=mode, link_preview_options=quiet, **common
        )
        return plain, _CALL
    path, name = file_to_send(part.media[0])
    file = types.FSInputFile(path, filename=name)  # the library writes it unescaped
    caption = {"caption": text or None, "parse_mode": mode, **common}
    if path.suffix.lower() in _PHOTOS and path.stat().st_size <= _MOST_PHOTO:
        return methods.SendPhoto(photo=file, **caption), _UPLOAD
    return methods.SendDocument(document=file, **caption), _UPLOAD
