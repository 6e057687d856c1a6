"""Telegram, by its Bot API: polls for updates, and confirms each only after it is stored."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from aiogram import Bot, exceptions, methods, types
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer

from wick_graph.config.fields import Block
from wick_graph.errors import DeliveryError
from wick_graph.gateway.channels import connected, files
from wick_graph.gateway.channels.connected import BaseUrl, ConnectedChannel, Post, inbound
from wick_graph.gateway.messages import InboundMessage

POLL: Final = 30
"""Seconds that Telegram may hold a poll open."""

CONFLICT: Final = 30.0
"""Seconds to the next poll if another process polls with the same token."""

_MOST_PHOTO: Final = 10 * 1024 * 1024
_PHOTOS: Final = frozenset({".jpg", ".jpeg", ".png", ".webp"})
_WANTED: Final = (
    *("message", "edited_message", "channel_post", "edited_channel_post", "callback_query"),
)
_CARRIED: Final = ("photo", "document", "animation", "audio", "video", "voice", "video_note")
_NAMELESS: Final = {"photo": ("photo.jpg", "image/jpeg"), "voice": ("voice.ogg", "audio/ogg")}
_DESCRIBED: Final = ("sticker", "location", "contact", "poll", "dice", "story", "checklist")
_STATUS: Final[Mapping[type[Exception], int]] = {
    exceptions.TelegramBadRequest: 400,
    exceptions.TelegramEntityTooLarge: 413,
    exceptions.TelegramForbiddenError: 403,
    exceptions.TelegramNotFound: 401,  # no such token
    exceptions.TelegramUnauthorizedError: 401,
}

T = TypeVar("T")


class TelegramOptions(Block):
    """The `options:` of a Telegram channel."""

    base_url: BaseUrl = "https://api.telegram.org"


class _RawUpdates(methods.GetUpdates):
    """Updates as data: one that the library cannot read must not hide the others."""

    __returning__ = list[dict[str, Any]]


class TelegramChannel(ConnectedChannel):
    """A bot of Telegram; its `token` is the bot's."""

    limit = 4096
    caption = 1024
    platform = "Telegram"
    network = (OSError, exceptions.TelegramNetworkError)
    options = TelegramOptions
    secrets = (("token", r"(?a)[0-9]+:([\w-]+)", "the token that @BotFather gave"),)
    chats = r"(?P<chat>-?[0-9]{1,20})(?::(?P<topic>[0-9]{1,20}))?"
    most_code = 64

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        api = TelegramAPIServer.from_base(self._options.base_url)
        self._session = AiohttpSession(api=api, timeout=connected.UPLOAD)
        self._bot = Bot(self._secrets["token"], session=self._session)
        self._username = ""
        self._offset: int | None = None

    async def stop(self) -> None:
        """Stop to receive; what Telegram was not told to forget comes again."""
        await super().stop()
        client = await self._session.create_session()  # `AiohttpSession.close` waits 250 ms
        await client.close()

    async def _log_in(self) -> None:
        me = await self._ask(methods.GetMe())
        self._username = me.username or str(me.id)

    async def _ask(self, method: methods.TelegramMethod[T], seconds: float = connected.CALL) -> T:
        return await self._call(self._bot(method), seconds)

    async def _connect(self) -> None:
        """Poll once; the next poll confirms what was stored."""
        if not self._username:
            await self._log_in()
        poll = _RawUpdates(offset=self._offset, limit=100, timeout=POLL, allowed_updates=[*_WANTED])
        found: Any = await self._ask(poll, connected.STALLED)
        for raw in found:
            number = int(raw["update_id"])
            read = partial(incoming, raw, self.name, self._username)
            made = await self._take_in(read, f"update {number}")
            if made and "callback_query" in raw:
                pressed = str(raw["callback_query"]["id"])
                self._spawn(self._ask(methods.AnswerCallbackQuery(callback_query_id=pressed)))
            self._offset = number + 1
        self._well()

    def _failure(self, error: Exception) -> DeliveryError:
        match error:
            case exceptions.TelegramConflictError():
                why = "another process polls Telegram with the same token; stop one of the two"
                if "webhook" in error.message:
                    why = "Telegram sends the bot's updates to a webhook; remove the webhook"
                return DeliveryError(f"the channel {self.name}: {why}", retry_after=CONFLICT)
            case exceptions.TelegramRetryAfter():
                return self._answered(429, "", error.retry_after)
            case exceptions.ClientDecodeError():
                return DeliveryError("Telegram's answer cannot be read; check options.base_url")
            case exceptions.TelegramAPIError() if (
                type(error) is not exceptions.TelegramNetworkError
            ):
                return self._answered(_STATUS.get(type(error), 500), error.message)
        return super()._failure(error)

    # --- Send, fetch.

    async def _send(self, post: Post) -> str:
        html = as_html(post.text)
        sent = await self._attempt(post, html)
        if isinstance(sent, exceptions.TelegramBadRequest) and "parse entities" in sent.message:
            sent = await self._attempt(post, None)
        if isinstance(sent, exceptions.TelegramMigrateToChat):
            sent = await self._attempt(replace(post, chat=str(sent.migrate_to_chat_id)), html)
        data = sent.data if isinstance(sent, exceptions.ClientDecodeError) else None
        if isinstance(data, dict) and data.get("ok") is True:
            return ""  # it was sent; only the library cannot read the answer
        if isinstance(sent, Exception):
            raise self._failure(sent)
        return f"{sent.chat.id}:{sent.message_id}"

    async def _attempt(self, post: Post, html: str | None) -> types.Message | Exception:
        """Send a message, as HTML if there is some; return the library's error if it raises one."""
        try:
            async with asyncio.timeout(connected.UPLOAD if post.file else connected.CALL):
                return await self._bot(_method(post, html))
        except Exception as error:
            return error

    async def _load(self, attachment: Mapping[str, Any], most: int) -> bytes:
        try:
            found = await self._ask(methods.GetFile(file_id=str(attachment["id"])))
        except DeliveryError as error:
            if "too big" in str(error):
                raise files.too_large(attachment, 20 * 1024 * 1024) from None
            raise
        url = self._session.api.file_url(self._bot.token, found.file_path or "")
        chunks = self._session.stream_content(url, timeout=int(connected.UPLOAD))
        return await files.collect(chunks, attachment, most)


# --- Pure: from updates to messages, from messages to methods.


def incoming(raw: Mapping[str, Any], channel: str, username: str = "") -> InboundMessage | None:
    """Return the message of an update; None if it has nothing that a person wrote or pressed."""
    update = types.Update.model_validate(raw)
    if update.callback_query is not None:
        return _pressed(update.callback_query, channel)
    edited = update.edited_message or update.edited_channel_post
    message = update.message or update.channel_post or edited
    if message is None:
        return None
    attached = _attachments(message)
    content = message.text or message.caption or _described(message)
    user, chat = message.from_user, message.sender_chat
    if not (content or attached) or (user is None and chat is None):
        return None
    native = f"{message.chat.id}:{message.message_id}"
    reply = message.reply_to_message
    return inbound(
        channel,
        # all who write in the name of a chat share one user id, which must not be allowed
        str(chat.id if chat else user.id if user else ""),
        str(message.chat.id),
        _without_username(content, username),
        group=message.chat.type != "private",
        native_id=f"{native}:{update.update_id}" if edited else native,
        sent=float(message.edit_date or 0) if edited else message.date.timestamp(),
        sender_name=chat.full_name if chat else user.full_name if user else "",
        topic=_topic(message),
        forwarded=bool(message.forward_origin or message.via_bot or message.is_automatic_forward),
        # an anonymous administrator and a channel write through a bot of Telegram's own
        bot=bool(user and user.is_bot and chat is None),
        edited=bool(edited),
        channel_post=bool(update.channel_post or update.edited_channel_post),
        reply_to=f"{message.chat.id}:{reply.message_id}" if reply else "",
        attachments=attached,
    )


def _pressed(query: types.CallbackQuery, channel: str) -> InboundMessage | None:
    message = query.message
    if message is None or not query.data:
        return None
    return inbound(
        channel,
        str(query.from_user.id),
        str(message.chat.id),
        query.data,
        group=message.chat.type != "private",
        native_id=f"{message.chat.id}:{message.message_id}:{query.id}",
        sender_name=query.from_user.full_name,
        topic=_topic(message),
        bot=query.from_user.is_bot,
        button=query.data,
    )


def _topic(message: types.MaybeInaccessibleMessageUnion) -> str:
    within = isinstance(message, types.Message) and message.is_topic_message
    return str(getattr(message, "message_thread_id", None) or "") if within else ""


def _attachments(message: types.Message) -> list[dict[str, Any]]:
    found: dict[str, Any] = {kind: getattr(message, kind) for kind in _CARRIED}
    sizes = message.photo or []
    found["photo"] = max(sizes, key=lambda size: size.width * size.height, default=None)
    if message.animation:
        found["document"] = None  # Telegram gives both
    made = []
    for kind, file in found.items():
        if file is not None:
            name, mime = _NAMELESS.get(kind, (kind, ""))
            name = getattr(file, "file_name", None) or name
            mime = getattr(file, "mime_type", None) or mime
            made.append(files.attachment(file.file_id, name, file.file_size, mime))
    return made


def _described(message: types.Message) -> str:
    """Describe what is neither text nor a file; empty for Telegram's own notices."""
    kind = next((kind for kind in _DESCRIBED if getattr(message, kind, None)), "")
    if message.location:
        return f"[location {message.location.latitude}, {message.location.longitude}]"
    return (message.sticker and message.sticker.emoji) or (kind and f"[{kind}]")


def _without_username(text: str, username: str) -> str:
    """Return `/new` for `/new@my_bot`, as clients write it in groups."""
    ours = rf"(?i)^(/\w{{1,32}})@{re.escape(username)}\b"
    return re.sub(ours, r"\1", text) if username else text


def as_html(text: str) -> str | None:
    """Return simple Markdown as Telegram's HTML; None if it has no marks, or unclear ones."""

    def block(language: str, lines: str) -> str:
        named = f'<code class="language-{language}">{lines}</code>' if language else lines
        return f"<pre>{named}</pre>"

    made = connected.formatted(text, block, "<code>{}</code>", "<b>{}</b>")
    return made if "<" in made and "```" not in made else None


def _method(post: Post, html: str | None) -> methods.TelegramMethod[types.Message]:
    """Return the method that sends a message."""
    button = types.InlineKeyboardButton
    rows = [[button(text=label, callback_data=code)] for label, code in post.buttons]
    reply, text = post.answered(post.chat), html or post.text
    common: dict[str, Any] = {
        "chat_id": int(post.chat),
        "message_thread_id": int(post.topic) if post.topic else None,
        "reply_parameters": reply
        and types.ReplyParameters(message_id=reply, allow_sending_without_reply=True),
        "reply_markup": types.InlineKeyboardMarkup(inline_keyboard=rows) if rows else None,
        "parse_mode": "HTML" if html else None,
    }
    if post.file is None:
        # Telegram would open the addresses in a text, and so tell them what the text holds
        quiet = types.LinkPreviewOptions(is_disabled=True)
        return methods.SendMessage(text=text, link_preview_options=quiet, **common)
    path, name = post.file
    file = types.FSInputFile(path, filename=name)  # the library writes it unescaped
    common["caption"] = text or None
    if path.suffix.lower() in _PHOTOS and path.stat().st_size <= _MOST_PHOTO:
        return methods.SendPhoto(photo=file, **common)
    return methods.SendDocument(document=file, **common)
