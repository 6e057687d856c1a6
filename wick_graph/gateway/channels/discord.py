"""Discord, by its gateway: it confirms nothing, so each connection begins with the last day."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from datetime import datetime, timedelta
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Final

import aiohttp
import discord
from pydantic import Field, Strict

from wick_graph.config.fields import Block
from wick_graph.config.gateway import ChannelConfig
from wick_graph.core.redaction import REDACTOR
from wick_graph.errors import ConfigError, DeliveryError
from wick_graph.gateway.channels import connected, files
from wick_graph.gateway.channels.connected import ConnectedChannel
from wick_graph.gateway.channels.registry import read_options
from wick_graph.gateway.messages import InboundMessage, OutboundMessage

SILENT: Final = 60.0
"""Seconds without a sign of life after which the library gives a connection up."""

CDN: Final = {"https://cdn.discordapp.com", "https://media.discordapp.net"}
"""Where attachments may be."""

_CHAT: Final = re.compile(r"([1-9][0-9]{0,18})(?::([1-9][0-9]{0,18}))?")
_NATIVE: Final = re.compile(r"([1-9][0-9]{0,18}):([1-9][0-9]{0,18})(?::(.+))?")
_WRITTEN: Final = (discord.MessageType.default, discord.MessageType.reply)

discord.VoiceClient.warn_nacl = discord.VoiceClient.warn_dave = False  # no voice here


class DiscordOptions(Block):
    """The `options:` of a Discord channel."""

    channels: Annotated[tuple[Annotated[int, Field(ge=1, strict=False)], ...], Strict(False)] = ()
    """Channels of servers in which all messages count; elsewhere those that mention the bot."""


class _Client(discord.Client):
    """The library's client; it hands events over in their order, and starts no tasks for them."""

    def __init__(self, hand_over: Callable[..., None], *, contents: bool) -> None:
        intents = discord.Intents(guilds=True, guild_messages=True, dm_messages=True)
        intents.message_content = contents  # Discord grants it only on request
        super().__init__(intents=intents, max_messages=None, heartbeat_timeout=SILENT)
        self.http.max_ratelimit_timeout = 1.0  # the library would wait up to 30 s by itself
        self._hand_over = hand_over

    def dispatch(self, event: str, /, *args: Any, **kwargs: Any) -> None:
        self._hand_over(event, *args)


class DiscordChannel(ConnectedChannel):
    """A bot of Discord.

    Args:
        name: Its key under `channels:`.
        config: Its block; `token` is the bot's.
        sleep: Waits for some seconds; tests give their own.

    Raises:
        ConfigError: The token is missing, or an option is invalid.
    """

    limit = 2000
    caption = 2000
    idempotent = True
    platform = "Discord"
    network = (OSError, aiohttp.ClientError)

    def __init__(
        self, name: str, config: ChannelConfig, *, sleep: connected.Sleep = asyncio.sleep
    ) -> None:
        super().__init__(name, sleep)
        self._channels = read_options(DiscordOptions, name, config.options).channels
        self._people = [int(one) for one in (*config.owner, *config.allow_from) if one.isdecimal()]
        self._token = config.token.get_secret_value().strip() if config.token else ""
        REDACTOR.learn([self._token])
        if not re.fullmatch(r"[!-~]{20,200}", self._token):
            raise ConfigError(str(self._refused()))
        self._client: _Client | None = None
        self._live, self._me = False, 0
        self._direct: deque[int] = deque(maxlen=connected.CHATS)
        """Direct chats that were seen since the start."""
        self._nonces: deque[str] = deque(maxlen=1000)

    # --- Connect.

    async def _log_in(self) -> None:
        async with self._logged_in():
            pass

    @contextlib.asynccontextmanager
    async def _logged_in(self) -> AsyncIterator[_Client]:
        client = _Client(self._hear, contents=bool(self._channels))
        try:
            await self._call(client.login(self._token))
            self._me = client.user.id if client.user else 0
            yield client
        finally:
            with contextlib.suppress(Exception):  # a goodbye that may get no answer
                await asyncio.wait_for(client.close(), 0.5)
            await client.http.close()

    def _connected(self) -> contextlib.AbstractAsyncContextManager[_Client]:
        """Return the client; after `stop`, and before a connection, one for a single call."""
        return contextlib.nullcontext(self._client) if self._client else self._logged_in()

    async def _connect(self) -> None:
        """Connect; the library connects again, but would try ever more rarely."""
        self._live, lost = False, 0
        async with self._logged_in() as self._client:
            ends = asyncio.ensure_future(self._call(self._client.connect(), None))
            try:
                while not await self._in_time(ends, connected.STALLED):
                    lost = 0 if self._live else lost + 1
                    if lost == 2:
                        raise self._failure(TimeoutError())
                await ends
            finally:
                self._client = None
                ends.cancel()
                await asyncio.gather(ends, return_exceptions=True)

    def _refused(self) -> DeliveryError:
        why = f"channels.{self.name}.token is missing, or Discord refuses it; set it to the token"
        return self._token_refused(f"{why} of the bot in the Developer Portal")

    def _failure(self, error: Exception) -> DeliveryError:
        match error:
            case discord.LoginFailure() | discord.HTTPException(status=401):
                return self._refused()
            case discord.ConnectionClosed(code=4004):
                return self._refused()
            case discord.PrivilegedIntentsRequired():
                why = "turn on Message Content Intent in the Developer Portal, or leave out"
                said = f"Discord shows the channel {self.name} no texts; {why} options.channels"
                return DeliveryError(said, retry_after=60.0)
            case discord.RateLimited():
                return connected.asks_to_wait("Discord", float(error.retry_after))
            case discord.HTTPException(status=429):
                given = error.response.headers.get("Retry-After", "")
                wait = float(given) if re.fullmatch(r"[0-9]{1,6}(\.[0-9]+)?", given) else 60.0
                return connected.asks_to_wait("Discord", wait)
            case discord.HTTPException() if error.status < 500:
                said = " ".join(error.text.replace(self._token, "[token]").split())[:200]
                return DeliveryError(f"Discord refuses the call: {said}", permanent=True)
            case discord.HTTPException():
                return DeliveryError(f"Discord fails: HTTP {error.status}")
        return super()._failure(error)

    # --- Receive.

    def _hear(self, event: str, *args: Any) -> None:
        if event in ("connect", "resumed"):
            self._live = True
            self._well()
        elif event == "disconnect":
            self._live = False
            self._say(f"the channel {self.name} lost Discord, and connects again")
        jobs: Mapping[str, Callable[..., Any]] = {
            "connect": self._read_history,
            "message": self._take,
            "raw_message_edit": self._take_edit,
            "interaction": self._press,
        }
        if event in jobs:
            self._jobs.put_nowait(partial(jobs[event], *args))

    async def _take(self, message: discord.Message, *, edited: bool = False) -> None:
        nonce = str(message.nonce or "")
        if message.author.id == self._me and nonce.startswith("wick-"):
            if nonce not in self._nonces:
                said = "another process sends through the bot of the channel %s; stop one of them"
                self._log.warning(said, self.name)
            return
        read = partial(incoming, message, self.name, self._me, self._channels, edited=edited)
        made = await self._take_in(read)
        if made and made.metadata["group"] is False and message.channel.id not in self._direct:
            self._direct.append(message.channel.id)

    async def _take_edit(self, payload: discord.RawMessageUpdateEvent) -> None:
        if payload.message.edited_at:  # else a preview was added
            await self._take(payload.message, edited=True)

    async def _press(self, interaction: discord.Interaction) -> None:
        """Store a press, then confirm it: one that is lost is shown to the person as failed."""
        if await self._take_in(partial(pressed, interaction, self.name)):
            self._spawn(self._confirm(interaction.response.defer()))

    async def _read_history(self) -> None:
        """Take the last day of the chats that are known; the inbox drops what it has."""
        if (client := self._client) is None:
            return
        after = discord.utils.utcnow() - timedelta(seconds=connected.HISTORY)
        chats: list[Callable[[], Any]] = [
            *(partial(client.create_dm, discord.Object(one)) for one in self._people),
            *(partial(client.fetch_channel, one) for one in (*self._channels, *self._direct)),
        ]
        read = {0}
        for chat in chats[: connected.CHATS]:
            try:
                place = await self._patiently(chat)
                found = (
                    [] if place.id in read else await self._patiently(partial(_last, place, after))
                )
                read.add(place.id)
            except DeliveryError as error:
                self._log.warning("the channel %s cannot look back: %s", self.name, error)
                continue
            for message in found:
                if message.author.id != self._me:
                    await self._take(message)

    # --- Send.

    async def send(self, message: OutboundMessage, key: str) -> str:
        """Send a message; Discord knows it again for some minutes by its key.

        Raises:
            DeliveryError: It was not sent, or it is unknown whether it was.
        """
        text, more = connected.sendable(message), dict[str, Any]()
        chat = _CHAT.fullmatch(message.chat_id)
        if chat is None:
            raise connected.no_chat(message.chat_id, "Discord")
        to, reply = int(chat[2] or chat[1]), _NATIVE.fullmatch(message.reply_to)
        if reply is not None and int(reply[1]) == to:
            more["reference"] = discord.MessageReference(
                message_id=int(reply[2]), channel_id=to, fail_if_not_exists=False
            )
        if message.buttons:
            more["view"] = _view(message.buttons)
        media = [files.file_to_send(path) for path in message.media[:1]]
        nonce = "wick-" + sha256(key.encode("utf-8", "replace")).hexdigest()[:20]
        self._nonces.append(nonce)
        async with self._connected() as client:
            for path, name in media:
                more["file"] = discord.File(path, filename=name)
            call = client.get_partial_messageable(to).send(
                text,
                nonce=nonce,
                allowed_mentions=discord.AllowedMentions.none(),
                suppress_embeds=True,  # Discord would open the addresses in the text
                **more,
            )
            return f"{to}:{(await self._call(call, connected.UPLOAD)).id}"

    async def fetch(self, attachment: Mapping[str, Any], folder: Path, most: int) -> Path:
        """Download a file, as `FetchingChannel` says; ask for its address, which ends in a day."""
        place = _NATIVE.fullmatch(str(attachment["id"]))
        if place is None:
            raise files.not_fetched(attachment, "its id is of no file")
        try:
            async with self._connected() as client:
                chat = client.get_partial_messageable(int(place[1]))
                message = await self._call(chat.fetch_message(int(place[2])))
        except DeliveryError as error:
            raise files.not_fetched(attachment, str(error)) from None
        urls = [file.url for file in _files(message) if str(file.id) == place[3]]
        if not urls:
            raise files.not_fetched(attachment, "it was removed")
        return await files.download(urls[0], CDN, attachment, folder, most)


async def _last(place: Any, after: datetime) -> list[discord.Message]:
    """Return the newest messages of a chat, oldest first."""
    found = place.history(limit=connected.MESSAGES, after=after, oldest_first=False)
    return [message async for message in found][::-1]


def _view(buttons: Collection[tuple[str, str]]) -> discord.ui.View:
    connected.check_buttons(buttons, 100)
    view = discord.ui.View(timeout=None)
    for label, code in buttons:
        view.add_item(discord.ui.Button(label=(label or code)[:80], custom_id=code))
    view.stop()  # else the library keeps it forever, and waits for presses
    return view


# --- Pure: from what the library makes to messages.


def incoming(
    message: discord.Message,
    channel: str,
    me: int,
    channels: Collection[int] = (),
    *,
    edited: bool = False,
) -> InboundMessage | None:
    """Return a message; None if it is a notice, empty, or in a server and not for the bot."""
    place, shots, reply = message.channel, message.message_snapshots, message.reference
    group = not isinstance(place, discord.DMChannel)
    chat, topic = _place(place)
    heard = not group or any(user.id == me for user in message.mentions)
    if message.type not in _WRITTEN or not (heard or {chat, topic} & {*map(str, channels)}):
        return None
    texts = [re.sub(rf"^<@!?{me}>\s*", "", message.content), *(shot.content for shot in shots)]
    content, attached = "\n".join(filter(None, texts)), _attachments(message)
    if message.author.id == me or not (content or attached):
        return None
    date = (edited and message.edited_at) or message.created_at
    return connected.inbound(
        channel,
        str(message.author.id),
        chat,
        content,
        group=group,
        native_id=f"{place.id}:{message.id}" + (f":{date.timestamp()}" if edited else ""),
        sent=date.timestamp(),
        sender_name=message.author.display_name,
        topic=topic,
        forwarded=bool(shots),
        bot=message.author.bot or message.webhook_id is not None,
        edited=edited,
        reply_to=reply and not shots and f"{reply.channel_id}:{reply.message_id}",
        attachments=attached,
    )


def pressed(interaction: discord.Interaction, channel: str) -> InboundMessage | None:
    """Return the press of a button; None for other interactions."""
    data: Mapping[str, Any] = {**(interaction.data or {})}
    message, user = interaction.message, interaction.user
    if message is None or data.get("component_type") != discord.ComponentType.button.value:
        return None
    chat, topic = _place(interaction.channel or message.channel)
    return connected.inbound(
        channel,
        str(user.id),
        chat,
        str(data["custom_id"]),
        group=not isinstance(interaction.channel, discord.DMChannel),
        native_id=f"{message.channel.id}:{message.id}:{interaction.id}",
        sender_name=user.display_name,
        topic=topic,
        bot=user.bot,
        button=str(data["custom_id"]),
    )


def _place(channel: Any) -> tuple[str, str]:
    """Return the ids of a chat and of its thread."""
    if isinstance(channel, discord.Thread):
        return str(channel.parent_id), str(channel.id)
    return str(channel.id), ""


def _files(message: discord.Message) -> list[discord.Attachment]:
    forwarded = [file for shot in message.message_snapshots for file in shot.attachments]
    return [*message.attachments, *forwarded]


def _attachments(message: discord.Message) -> list[dict[str, Any]]:
    place = f"{message.channel.id}:{message.id}"
    return [
        files.attachment(
            f"{place}:{file.id}",
            file.filename,
            file.size,
            file.content_type or "",
            voice=file.is_voice_message(),
        )
        for file in _files(message)
    ]
