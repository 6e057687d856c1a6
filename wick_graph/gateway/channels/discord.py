"""Discord, by its gateway: it confirms nothing, so each connection begins with the last day."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from datetime import timedelta
from functools import partial
from hashlib import sha256
from typing import Annotated, Any, Final

import aiohttp
import discord
from pydantic import Field, Strict

from wick_graph.config.fields import Block
from wick_graph.errors import DeliveryError
from wick_graph.gateway.channels import connected, files
from wick_graph.gateway.channels.connected import ConnectedChannel, Post, inbound
from wick_graph.gateway.messages import InboundMessage

SILENT: Final = 60.0
"""Seconds without a sign of life after which the library gives a connection up."""

CDN: Final = {"https://cdn.discordapp.com", "https://media.discordapp.net"}
"""Where attachments may be."""

_FILE: Final = re.compile(r"([1-9][0-9]{0,18}):([1-9][0-9]{0,18}):(.+)")
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
    """A bot of Discord; its `token` is the bot's."""

    limit = 2000
    caption = 2000
    idempotent = True
    platform = "Discord"
    network = (OSError, aiohttp.ClientError)
    options = DiscordOptions
    secrets = (("token", r"[!-~]{20,200}", "the token of the bot in the Developer Portal"),)
    chats = r"(?P<chat>[1-9][0-9]{0,18})(?::(?P<topic>[1-9][0-9]{0,18}))?"
    most_code = 100

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._channels = tuple(map(str, self._options.channels))
        self._client: _Client | None = None
        self._patience = asyncio.Timeout(None)
        self._me = 0
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
            await self._call(client.login(self._secrets["token"]))
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
        async with self._logged_in() as self._client:
            try:
                async with asyncio.timeout(2 * connected.STALLED) as self._patience:
                    await self._client.connect()
            finally:
                self._client = None

    def _failure(self, error: Exception) -> DeliveryError:
        match error:
            case discord.LoginFailure() | discord.ConnectionClosed(code=4004):
                return self._refused("token")
            case discord.PrivilegedIntentsRequired():
                why = "turn on Message Content Intent in the Developer Portal, or leave out"
                said = f"Discord shows the channel {self.name} no texts; {why} options.channels"
                return DeliveryError(said, retry_after=60.0)
            case discord.RateLimited():
                return self._answered(429, "", error.retry_after)
            case discord.HTTPException():
                told = error.text if error.status < 500 else f"HTTP {error.status}"
                wait = error.response.headers.get("Retry-After")
                return self._answered(error.status, told, wait)
        return super()._failure(error)

    # --- Receive.

    def _hear(self, event: str, *args: Any) -> None:
        if event in ("connect", "resumed"):
            self._patience.reschedule(None)
            self._well()
        elif event == "disconnect":
            if self._patience.when() is None:
                self._patience.reschedule(asyncio.get_running_loop().time() + 2 * connected.STALLED)
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
        made = await self._take_in(partial(self._incoming, message, edited))
        if made and made.metadata["group"] is False and message.channel.id not in self._direct:
            self._direct.append(message.channel.id)

    async def _take_edit(self, payload: discord.RawMessageUpdateEvent) -> None:
        if payload.message.edited_at:  # else a preview was added
            await self._take(payload.message, edited=True)

    async def _press(self, interaction: discord.Interaction) -> None:
        """Store a press, then confirm it: one that is lost is shown to the person as failed."""
        if await self._take_in(partial(self._pressed, interaction)):
            self._spawn(self._call(interaction.response.defer()))

    async def _read_history(self) -> None:
        """Take the last day of the chats that are known; the inbox drops what it has."""
        if (client := self._client) is None:
            return
        people = [one for one in self._people if one.isdecimal()]
        chats: list[Callable[[], Any]] = [
            *(partial(client.create_dm, discord.Object(one)) for one in people),
            *(
                partial(client.fetch_channel, one)
                for one in (*map(int, self._channels), *self._direct)
            ),
        ]
        read = set()
        for chat in chats[: connected.CHATS]:
            place = await self._look_back(chat)
            if place is not None and place.id not in read:
                read.add(place.id)
                for message in await self._look_back(partial(_last, place)) or ():
                    if message.author.id != self._me:
                        await self._take(message)

    def _incoming(self, message: discord.Message, edited: bool) -> InboundMessage | None:
        """Return a message; None if it is a notice, empty, or in a server and not for the bot."""
        place, shots, reply = message.channel, message.message_snapshots, message.reference
        group, (chat, topic) = not isinstance(place, discord.DMChannel), _place(place)
        heard = not group or any(user.id == self._me for user in message.mentions)
        if message.type not in _WRITTEN or not (
            heard or {chat, topic}.intersection(self._channels)
        ):
            return None
        texts = [re.sub(rf"^<@!?{self._me}>\s*", "", message.content)]
        content = "\n".join(filter(None, [*texts, *(shot.content for shot in shots)]))
        attached = _attachments(message)
        if message.author.id == self._me or not (content or attached):
            return None
        date = (edited and message.edited_at) or message.created_at
        return inbound(
            self.name,
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

    def _pressed(self, interaction: discord.Interaction) -> InboundMessage | None:
        """Return the press of a button; None for other interactions."""
        data: Mapping[str, Any] = {**(interaction.data or {})}
        message, user = interaction.message, interaction.user
        if message is None or data.get("component_type") != discord.ComponentType.button.value:
            return None
        chat, topic = _place(interaction.channel or message.channel)
        return inbound(
            self.name,
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

    # --- Send, fetch.

    async def _send(self, post: Post) -> str:
        """Send a message; Discord knows it again for some minutes by its nonce."""
        more, to = dict[str, Any](), int(post.topic or post.chat)
        if reply := post.answered(str(to)):
            more["reference"] = discord.MessageReference(
                message_id=reply, channel_id=to, fail_if_not_exists=False
            )
        if post.buttons:
            more["view"] = _view(post.buttons)
        if post.file:
            more["file"] = discord.File(post.file[0], filename=post.file[1])
        nonce = "wick-" + sha256(post.key.encode("utf-8", "replace")).hexdigest()[:20]
        self._nonces.append(nonce)
        async with self._connected() as client:
            call = client.get_partial_messageable(to).send(
                post.text,
                nonce=nonce,
                allowed_mentions=discord.AllowedMentions.none(),
                suppress_embeds=True,  # Discord would open the addresses in the text
                **more,
            )
            return f"{to}:{(await self._call(call, connected.UPLOAD)).id}"

    async def _load(self, attachment: Mapping[str, Any], most: int) -> bytes:
        """Ask for the current address: each ends in a day."""
        if (place := _FILE.fullmatch(str(attachment["id"]))) is None:
            raise DeliveryError("its id is of no file")
        async with self._connected() as client:
            chat = client.get_partial_messageable(int(place[1]))
            message = await self._call(chat.fetch_message(int(place[2])))
        urls = [file.url for file in _files(message) if str(file.id) == place[3]]
        if not urls:
            raise DeliveryError("it was removed")
        return await files.download(urls[0], CDN, attachment, most)


async def _last(place: Any) -> list[discord.Message]:
    """Return the newest messages of a chat, oldest first."""
    after = discord.utils.utcnow() - timedelta(seconds=connected.HISTORY)
    found = place.history(limit=connected.MESSAGES, after=after, oldest_first=False)
    return [message async for message in found][::-1]


def _view(buttons: Collection[tuple[str, str]]) -> discord.ui.View:
    view = discord.ui.View(timeout=None)
    for label, code in buttons:
        view.add_item(discord.ui.Button(label=label[:80], custom_id=code))
    view.stop()  # else the library keeps it forever, and waits for presses
    return view


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
        files.attachment(f"{place}:{one.id}", one.filename, one.size, one.content_type)
        for one in _files(message)
    ]
