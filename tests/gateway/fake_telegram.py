"""A Bot API on loopback: hands out updates, forgets what is confirmed, records every call."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

TOKEN = "4242424242:AAF-the-secret-half_of-a-bot-token-1"
SECRET = TOKEN.partition(":")[2]

Answer = tuple[int, dict[str, Any]]


def refused(status: int, description: str, **parameters: int) -> Answer:
    """An answer that refuses a call."""
    more = {"parameters": parameters} if parameters else {}
    return status, {"ok": False, "error_code": status, "description": description, **more}


class FakeTelegram:
    """What the platform knows: updates that are not confirmed, calls, scripted answers."""

    def __init__(self) -> None:
        self.url = ""
        self.waiting: list[dict[str, Any]] = []
        """Updates that no poll has confirmed."""
        self.offsets: list[int | None] = []
        """The offset of each poll, in order."""
        self.polls: asyncio.Queue[int | None] = asyncio.Queue()
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.sent: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue()
        self.answers: dict[str, list[Answer]] = defaultdict(list)
        """Answers by method, instead of the usual ones; each is given once."""
        self.hung = False
        """Whether polls get no answer, not even an empty one."""
        self.files: dict[str, bytes] = {}
        self.uploads: list[tuple[str, bytes]] = []
        self._ids, self._messages = itertools.count(1000), itertools.count(500)
        self._new = asyncio.Event()
        self._poller = 0

    def put(self, **update: Any) -> int:
        """Let an update come; return its id."""
        number = next(self._ids)
        self.waiting.append({"update_id": number, **update})
        self._new.set()
        return number

    def say(self, text: str | None = "hi", *, sender: int = 7, chat: int = 7, **more: Any) -> int:
        """Let a message come."""
        message = message_of(sender, chat, next(self._messages), **more)
        return self.put(message=message if text is None else {**message, "text": text})

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer a call of the Bot API."""
        if request.match_info["token"] != TOKEN:
            return _json(refused(401, "Unauthorized"))
        method = request.match_info["method"]
        fields = await self._fields(request)
        self.calls.append((method, fields))
        if method == "getUpdates":
            return _json(await self._updates(fields))
        self.sent.put_nowait((method, fields))
        if self.answers[method]:
            return _json(self.answers[method].pop(0))
        return _json((200, {"ok": True, "result": self._result(method, fields)}))

    async def file(self, request: web.Request) -> web.StreamResponse:
        """Hand out a file."""
        found = self.files.get(request.match_info["path"])
        if request.match_info["token"] != TOKEN or found is None:
            raise web.HTTPNotFound
        return web.Response(body=found)

    async def _fields(self, request: web.Request) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        for key, value in (await request.post()).items():
            if isinstance(value, web.FileField):
                self.uploads.append((value.filename, value.file.read()))
                continue
            text = str(value)
            fields[key] = json.loads(text) if text[:1] in "[{" else text
        return fields

    async def _updates(self, fields: dict[str, Any]) -> Answer:
        offset = int(fields["offset"]) if "offset" in fields else None
        self.offsets.append(offset)
        self.polls.put_nowait(offset)
        if self.answers["getUpdates"]:
            return self.answers["getUpdates"].pop(0)
        self.waiting = [one for one in self.waiting if one["update_id"] >= (offset or 0)]
        self._poller += 1
        mine = self._poller
        self._new.set()  # ends the poll of another process
        while self.hung or not self.waiting:
            self._new.clear()
            await self._new.wait()
            if mine != self._poller:
                why = "Conflict: terminated by other getUpdates request; make sure that only one"
                return refused(409, why)
        return 200, {"ok": True, "result": self.waiting[: int(fields["limit"])]}

    def resume(self) -> None:
        """Let polls be answered again."""
        self.hung = False
        self._new.set()

    def _result(self, method: str, fields: dict[str, Any]) -> Any:
        if method == "getMe":
            return {"id": 42, "is_bot": True, "first_name": "Wick", "username": "wick_bot"}
        if method == "getFile":
            return {"file_id": fields["file_id"], "file_unique_id": "u", "file_path": "docs/f.bin"}
        if method == "answerCallbackQuery":
            return True
        return message_of(42, int(fields["chat_id"]), next(self._messages), text="…")


def message_of(sender: int, chat: int, number: int, **more: Any) -> dict[str, Any]:
    """A message as the Bot API writes it."""
    kind = "private" if chat > 0 else "supergroup"
    named = {"first_name": "Ann"} if chat > 0 else {"title": "Group"}
    return {
        "message_id": number,
        "date": 1_700_000_000,
        "chat": {"id": chat, "type": kind, **named},
        "from": {"id": sender, "is_bot": False, "first_name": "Ann", "last_name": "Lee"},
        **more,
    }


def _json(answer: Answer) -> web.Response:
    return web.json_response(answer[1], status=answer[0])


@asynccontextmanager
async def fake_telegram() -> AsyncIterator[FakeTelegram]:
    """Serve a Bot API on loopback."""
    fake = FakeTelegram()
    app = web.Application()
    app.router.add_post("/bot{token}/{method}", fake.handle)
    app.router.add_get("/file/bot{token}/{path:.*}", fake.file)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.01)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield fake
    finally:
        await runner.cleanup()
