"""Discord on loopback: its REST calls, its gateway, its files; it records every call."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from typing import Any

import discord
import yarl
from aiohttp import WSMsgType, web

from wick_graph.gateway.channels import discord as channel

TOKEN = "MTIz-the-first-part.of-a-bot.token-that-is-secret"
ME, ANN, GUILD, ROOM, THREAD = 42, 7, 900, 901, 902

Answer = tuple[int, Any, dict[str, str]]


def person(number: int = ANN, **more: Any) -> dict[str, Any]:
    name = {"username": f"user{number}", "discriminator": "0", "avatar": None, "global_name": "Ann"}
    return {"id": str(number), **name, **more}


BOT = person(ME, bot=True, global_name="Wick")


def snowflake(seconds_ago: float = 0) -> int:
    """An id that is so old."""
    at = datetime.now(UTC).timestamp() - seconds_ago
    return discord.utils.time_snowflake(datetime.fromtimestamp(at, UTC))


def refused(status: int, text: str = "no", **headers: str) -> Answer:
    return status, {"code": 50000, "message": text}, headers


def limited(seconds: float) -> Answer:
    return 429, {"message": "slow", "retry_after": seconds, "global": False}, {"Via": "1.1 google"}


class FakeDiscord:
    """What the platform knows: chats with their messages, sessions, scripted answers."""

    def __init__(self) -> None:
        self.url = ""
        self.token = TOKEN
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.sent: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue()
        self.answers: dict[str, list[Answer]] = defaultdict(list)
        """Answers by method and path, instead of the usual ones; each is given once."""
        self.direct: dict[int, int] = {}
        """Direct chats by person."""
        self.messages: dict[int, list[dict[str, Any]]] = defaultdict(list)
        self.known: dict[str, dict[str, Any]] = {}
        """Sent messages by nonce, as Discord enforces it."""
        self.files: dict[str, bytes] = {}
        self.uploads: list[tuple[str, bytes]] = []
        self.types: dict[str, str] = {}
        self.sockets: list[web.WebSocketResponse] = []
        self.identified: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.hung = False
        """Whether the gateway says nothing after its hello."""
        self.events: list[dict[str, Any]] = []
        """Events of the session, for a resume."""
        self._ids = itertools.count(1)

    # --- What happens on the platform.

    def message(self, text: str = "hi", *, sender: int = ANN, room: int = 0, **more: Any) -> Any:
        """A message as the API writes it; without a room it is in the direct chat."""
        number = more.pop("number", None) or snowflake(more.pop("ago", 0)) + next(self._ids)
        return {
            "id": str(number),
            "channel_id": str(room or self.dm(sender)),
            "author": person(sender),
            "content": text,
            "timestamp": discord.utils.snowflake_time(number).isoformat(),
            "edited_timestamp": None,
            "tts": False, "mention_everyone": False, "mentions": [], "mention_roles": [],
            "attachments": [], "embeds": [], "pinned": False, "type": 0,
            **more,
        }  # fmt: skip

    def dm(self, sender: int) -> int:
        return self.direct.setdefault(sender, 5000 + sender)

    def keep(self, made: dict[str, Any]) -> dict[str, Any]:
        """Let a message be in the history only."""
        self.messages[int(made["channel_id"])].append(made)
        return made

    async def say(self, text: str = "hi", **more: Any) -> dict[str, Any]:
        """Let a message come by the gateway."""
        made = self.keep(self.message(text, **more))
        guild = {"guild_id": str(GUILD)} if int(made["channel_id"]) in (ROOM, THREAD) else {}
        await self.event("MESSAGE_CREATE", {**made, **guild})
        return made

    async def event(self, name: str, data: Any) -> None:
        one = {"op": 0, "t": name, "s": len(self.events) + 2, "d": data}
        self.events.append(one)
        for socket in self.sockets:
            if not socket.closed:
                await socket.send_json(one)

    async def drop(self, code: int = 1001) -> None:
        """End all connections."""
        for socket in self.sockets:
            await socket.close(code=code)

    async def press(self, code: str, *, sender: int = ANN, room: int = 0, **more: Any) -> None:
        place = room or self.dm(sender)
        chat = self.chat(place)
        user = {"member": {"user": person(sender), "roles": [], "joined_at": None, "flags": 0,
                           "deaf": False, "mute": False, "permissions": "0"},
                "guild_id": str(GUILD)} if room else {"user": person(sender)}  # fmt: skip
        await self.event(
            "INTERACTION_CREATE",
            {
                "id": "77", "application_id": "1", "type": 3, "token": "press-token", "version": 1,
                "data": {"custom_id": code, "component_type": 2}, "channel_id": str(place),
                "channel": chat, "message": self.message("May I?", room=place, author=BOT),
                "entitlements": [], "authorizing_integration_owners": {}, "context": 1,
                "attachment_size_limit": 1000, "app_permissions": "0", **user, **more,
            },
        )  # fmt: skip

    def chat(self, number: int) -> dict[str, Any]:
        """A chat as the API writes it."""
        if number in (ROOM, THREAD):
            in_guild = {"id": str(number), "guild_id": str(GUILD), "name": "room", "type": 0,
                        "position": 0, "permission_overwrites": [], "nsfw": False,
                        "parent_id": None}  # fmt: skip
            return in_guild if number == ROOM else {**in_guild, **self.thread()}
        person_id = next((who for who, one in self.direct.items() if one == number), ANN)
        return {"id": str(number), "type": 1, "recipients": [person(person_id)]}

    def thread(self) -> dict[str, Any]:
        return {
            "id": str(THREAD), "guild_id": str(GUILD), "parent_id": str(ROOM), "name": "t",
            "owner_id": "7", "type": 11, "message_count": 0, "member_count": 1,
            "rate_limit_per_user": 0, "thread_metadata": {
                "archived": False, "auto_archive_duration": 60, "locked": False,
                "archive_timestamp": "2026-01-01T00:00:00+00:00",
            },
        }  # fmt: skip

    # --- REST.

    async def handle(self, request: web.Request) -> web.StreamResponse:
        method = f"{request.method} /{request.match_info['path']}"
        data = await self._data(request)
        self.calls.append((method, data))
        path = request.match_info["path"].split("/")
        known = request.headers.get("Authorization") == f"Bot {self.token}"
        if not (known or method.startswith("POST /interactions")):
            return _json({"message": "401: Unauthorized", "code": 0}, 401)
        if self.answers[method]:
            status, body, headers = self.answers[method].pop(0)
            return _json(body, status, headers)
        made = self._result(request, path, data)
        self.sent.put_nowait((method, data))
        return web.Response(status=204) if made is None else _json(made)

    def _result(self, request: web.Request, path: list[str], data: dict[str, Any]) -> Any:
        match path:
            case ["users", "@me"]:
                return BOT
            case ["oauth2", "applications", "@me"]:
                return {"id": "1", "name": "Wick", "icon": None, "description": "", "flags": 0,
                        "bot_public": False, "bot_require_code_grant": False, "summary": "",
                        "verify_key": "", "owner": person(), "team": None}  # fmt: skip
            case ["users", "@me", "channels"]:
                return self.chat(self.dm(int(data["recipient_id"])))
            case ["channels", number]:
                return self.chat(int(number))
            case ["channels", number, "messages"] if request.method == "GET":
                found = self.messages[int(number)][::-1]
                return found[: int(request.query.get("limit", 50))]
            case ["interactions", *_]:
                return {"interaction": {"id": "77", "type": 3, "response_message_loading": False,
                                        "response_message_ephemeral": False}}  # fmt: skip
            case ["channels", number, "messages", one]:
                return next(m for m in self.messages[int(number)] if m["id"] == one)
            case ["channels", number, "messages"]:
                if data.get("enforce_nonce") and data["nonce"] in self.known:
                    return self.known[data["nonce"]]
                made = self.message(data.get("content") or "", room=int(number), author=BOT)
                self.known[str(data.get("nonce"))] = made
                return {**made, "nonce": data.get("nonce")}
        return None

    async def _data(self, request: web.Request) -> dict[str, Any]:
        if request.content_type == "multipart/form-data":
            fields = await request.post()
            for one in fields.values():
                if isinstance(one, web.FileField):
                    self.uploads.append((one.filename, one.file.read()))
            return dict(json.loads(str(fields["payload_json"])))
        return dict(await request.json()) if request.can_read_body else {}

    async def file(self, request: web.Request) -> web.StreamResponse:
        self.calls.append(("file", dict(request.headers)))
        name = request.match_info["path"]
        if name == "moved":
            raise web.HTTPFound("/files/other")
        if name not in self.files:
            raise web.HTTPNotFound
        return web.Response(body=self.files[name], content_type=self.types.get(name))

    # --- The gateway.

    async def gateway(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_json({"op": 10, "d": {"heartbeat_interval": 41250}})
        async for frame in socket:
            if frame.type is not WSMsgType.TEXT:
                break
            asked = json.loads(frame.data)
            if asked["op"] in (2, 6):
                self.identified.put_nowait(asked)
            if self.hung:
                continue
            if asked["op"] == 1:
                await socket.send_json({"op": 11})
            elif asked["op"] == 2:
                await self._begin(socket, asked["d"])
            elif asked["op"] == 6:
                for one in [one for one in self.events if one["s"] > asked["d"]["seq"]]:
                    await socket.send_json(one)
                await socket.send_json({"op": 0, "t": "RESUMED", "s": 10_000, "d": {}})
                self.sockets.append(socket)
        return socket

    async def _begin(self, socket: web.WebSocketResponse, asked: dict[str, Any]) -> None:
        if asked["token"] != self.token:
            await socket.close(code=4004)
            return
        ready = {
            "v": 10, "user": BOT, "guilds": [{"id": str(GUILD), "unavailable": True}],
            "session_id": "s", "resume_gateway_url": self.ws,
            "application": {"id": "1", "flags": 0},
        }  # fmt: skip
        self.events.clear()
        await socket.send_json({"op": 0, "t": "READY", "s": 1, "d": ready})
        guild = {
            "id": str(GUILD), "name": "G", "owner_id": "7", "member_count": 2, "members": [],
            "channels": [self.chat(ROOM)], "threads": [self.thread()], "roles": [], "emojis": [],
            "features": [], "premium_tier": 0, "preferred_locale": "en-US", "large": False,
            "unavailable": False, "voice_states": [], "presences": [], "stage_instances": [],
            "guild_scheduled_events": [], "stickers": [], "soundboard_sounds": [],
            "verification_level": 0, "default_message_notifications": 0, "nsfw_level": 0,
            "explicit_content_filter": 0, "afk_timeout": 0, "mfa_level": 0,
        }  # fmt: skip
        await socket.send_json({"op": 0, "t": "GUILD_CREATE", "s": 1, "d": guild})
        self.sockets.append(socket)

    @property
    def ws(self) -> str:
        return self.url.replace("http", "ws", 1) + "/gateway"


def _json(body: Any, status: int = 200, more: dict[str, str] | None = None) -> web.Response:
    headers = {"Content-Type": "application/json", **(more or {})}  # exactly this one is read
    return web.Response(body=json.dumps(body).encode(), status=status, headers=headers)


@contextmanager
def pointed_at(url: str) -> Iterator[None]:
    """Let the library speak with a fake: it has no setting for that."""
    base, gateway = discord.http.Route.BASE, discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY
    discord.http.Route.BASE = f"{url}/api"
    discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY = yarl.URL(
        url.replace("http", "ws", 1) + "/gateway"
    )
    channel.CDN.add(url)
    try:
        yield
    finally:
        discord.http.Route.BASE = base
        discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY = gateway
        channel.CDN.discard(url)


@asynccontextmanager
async def fake_discord() -> AsyncIterator[FakeDiscord]:
    """Serve Discord on loopback, and let the library speak with it."""
    fake = FakeDiscord()
    app = web.Application()
    app.router.add_route("*", "/api/{path:.*}", fake.handle)
    app.router.add_get("/gateway", fake.gateway)
    app.router.add_get("/gateway/", fake.gateway)
    app.router.add_get("/files/{path:.*}", fake.file)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.01)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        with pointed_at(fake.url):
            yield fake
    finally:
        await runner.cleanup()
