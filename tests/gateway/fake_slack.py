"""Slack on loopback: its Web API, Socket Mode, files; it records calls and confirmations."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import WSMsgType, web

TOKEN, APP_TOKEN = "xoxb-1-bot-token-that-is-secret", "xapp-1-app-token-that-is-secret"
TICKET = "a-ticket-that-is-secret"
ME, ANN, DIRECT, ROOM = "U0WICK", "U0ANN", "D0ANN", "C0ROOM"

Answer = tuple[int, dict[str, Any], dict[str, str]]


def refused(error: str, status: int = 200, **headers: str) -> Answer:
    """An answer that refuses a call."""
    given = {key.replace("_", "-"): value for key, value in headers.items()}
    return status, {"ok": False, "error": error}, given


class FakeSlack:
    """What the platform knows: conversations, connections, envelopes, scripted answers."""

    def __init__(self) -> None:
        self.url = ""
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.sent: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue()
        self.answers: dict[str, list[Answer]] = defaultdict(list)
        """Answers by method, instead of the usual ones; each is given once."""
        self.history: dict[str, list[dict[str, Any]]] = {DIRECT: [], ROOM: []}
        self.replies: dict[str, list[dict[str, Any]]] = {}
        self.sockets: list[web.WebSocketResponse] = []
        self.hellos: asyncio.Queue[int] = asyncio.Queue()
        self.confirmed: list[str] = []
        self.confirmations: asyncio.Queue[str] = asyncio.Queue()
        self.others = 0
        """Connections of other processes."""
        self.deaf = False
        """Whether it answers no pings."""
        self.info: dict[str, Any] = {}
        """What is known of the file."""
        self.files: dict[str, tuple[bytes, str]] = {}
        self.file_headers: list[dict[str, str]] = []
        self.uploads: list[bytes] = []
        self._ids = itertools.count(1)

    # --- What happens on the platform.

    def message(self, text: str = "hi", *, room: str = DIRECT, ago: float = 0, **more: Any) -> Any:
        """A message as an event has it."""
        ts = f"{time.time() - ago + next(self._ids) / 1e6:.6f}"
        return {"type": "message", "channel": room, "user": ANN, "text": text, "ts": ts, **more}

    def keep(self, made: dict[str, Any]) -> dict[str, Any]:
        """Let a message be in the history only; there, it does not name its channel."""
        self.history[made["channel"]].insert(0, {k: v for k, v in made.items() if k != "channel"})
        return dict(made)

    async def say(self, text: str = "hi", **more: Any) -> dict[str, Any]:
        made = self.message(text, **more)
        await self.event(made)
        return dict(made)

    async def event(self, event: dict[str, Any]) -> str:
        return await self.envelope("events_api", {"type": "event_callback", "event": event})

    async def press(self, code: str, *, user: str = ANN, room: str = DIRECT, **more: Any) -> str:
        action = {"type": "button", "value": code, "action_id": "wick-0", "action_ts": "9.9"}
        payload = {
            "type": "block_actions", "user": {"id": user, "name": "ann"}, "channel": {"id": room},
            "message": {"ts": "5.5", **more}, "actions": [action],
        }  # fmt: skip
        return await self.envelope("interactive", payload)

    async def envelope(self, kind: str, payload: dict[str, Any]) -> str:
        number = f"e{next(self._ids)}"
        await self.frame({"type": kind, "envelope_id": number, "payload": payload})
        return number

    async def frame(self, data: dict[str, Any]) -> None:
        await next(one for one in self.sockets[::-1] if not one.closed).send_json(data)

    async def drop(self) -> None:
        for socket in self.sockets:
            await socket.close()

    # --- The Web API.

    async def handle(self, request: web.Request) -> web.StreamResponse:
        method = request.match_info["method"]
        given = request.headers.get("Authorization", "")
        data = await self._data(request)
        self.calls.append((method, data))
        wanted = APP_TOKEN if method == "apps.connections.open" else TOKEN
        if self.answers[method]:
            status, body, headers = self.answers[method].pop(0)
            return web.json_response(body, status=status, headers=headers)
        if given != f"Bearer {wanted}":
            return web.json_response({"ok": False, "error": "invalid_auth"})
        self.sent.put_nowait((method, data))
        return web.json_response({"ok": True, **self._result(method, data)})

    async def _data(self, request: web.Request) -> dict[str, Any]:
        if request.content_type == "application/json":
            return dict(await request.json())
        form = await request.post()
        return {**request.query, **{key: str(value) for key, value in form.items()}}

    def _result(self, method: str, data: dict[str, Any]) -> dict[str, Any]:
        match method:
            case "auth.test":
                return {"user_id": ME, "bot_id": "B0WICK"}
            case "apps.connections.open":
                return {"url": self.url.replace("http", "ws", 1) + f"/link/?ticket={TICKET}"}
            case "users.conversations":
                return {"channels": [{"id": one} for one in self.history]}
            case "conversations.history":
                past = self.history[data["channel"]]
                return {"messages": [m for m in past if m["ts"] >= data["oldest"]]}
            case "conversations.replies":
                return {"messages": self.replies[data["ts"]]}
            case "chat.postMessage":
                return {"ts": f"1000.{next(self._ids):06}", "channel": data["channel"]}
            case "files.info":
                return {"file": self.info}
            case "files.getUploadURLExternal":
                return {"upload_url": f"{self.url}/upload", "file_id": "F9"}
            case "files.completeUploadExternal":
                return {"files": [{"id": "F9"}]}
        return {}

    async def upload(self, request: web.Request) -> web.StreamResponse:
        self.uploads.append(await request.read())
        return web.Response(text="OK")

    async def file(self, request: web.Request) -> web.StreamResponse:
        self.file_headers.append(dict(request.headers))
        name = request.match_info["path"]
        if name == "moved":
            raise web.HTTPFound("/files/other")
        if name not in self.files:
            raise web.HTTPNotFound
        body, kind = self.files[name]
        return web.Response(body=body, content_type=kind)

    # --- Socket Mode.

    async def link(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(autoping=False)
        await socket.prepare(request)
        self.sockets.append(socket)
        live = sum(not one.closed for one in self.sockets) + self.others
        await socket.send_json({"type": "hello", "num_connections": live})
        self.hellos.put_nowait(live)
        async for frame in socket:
            if frame.type is WSMsgType.PING and not self.deaf:
                await socket.pong(frame.data)
            elif frame.type is WSMsgType.TEXT:
                number = json.loads(frame.data)["envelope_id"]
                self.confirmed.append(number)
                self.confirmations.put_nowait(number)
        return socket


@asynccontextmanager
async def fake_slack() -> AsyncIterator[FakeSlack]:
    """Serve Slack on loopback."""
    fake = FakeSlack()
    app = web.Application()
    app.router.add_route("*", "/api/{method}", fake.handle)
    app.router.add_get("/link/", fake.link)
    app.router.add_post("/upload", fake.upload)
    app.router.add_get("/files/{path:.*}", fake.file)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.01)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield fake
    finally:
        await runner.cleanup()
