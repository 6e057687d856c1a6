"""The providers on loopback, as strict as their references: 200, or 400 and the broken rule."""

from __future__ import annotations

import hashlib
import json
import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from tests.providers import rules
from tests.providers.speech import SPEAKERS, Said
from tests.support.provider import Provider, Request
from tests.support.wire import Reply

_GEMINI: Final = re.compile(r"/v1(?:beta)?/models/[^/]+:(generateContent|streamGenerateContent)")
_PROTOCOLS: Final = {
    "/v1/chat/completions": "openai",
    "/v1/responses": "responses",
    "/v1/messages": "anthropic",
    "/api/chat": "ollama",
}
_RULES: Final[Mapping[str, rules.Rule]] = {
    "openai": rules.openai_chat,
    "responses": rules.openai_responses,
    "anthropic": rules.anthropic,
    "gemini": rules.gemini,
    "gemini events": rules.gemini,
    "ollama": rules.ollama,
}
_LOOK_BACK: Final = 20
"""Blocks before a mark in which Anthropic looks for something that is cached."""


class Strict(Provider):
    """One server for all providers; what a script says next, else a short answer."""

    lifetime = 900.0  # one server serves the whole matrix

    def __init__(self) -> None:
        self.refused: list[str] = []
        """The rules that were broken, in the providers' words."""
        self.used: list[dict[str, int]] = []
        """What each request to Anthropic found in the cache, and put there, in characters."""
        self.asked: list[Any] = []
        self.failing_after: int | None = None
        """So many requests are answered before one fails."""
        self._sayings: deque[Said] = deque()
        self._cached: set[str] = set()
        super().__init__()

    def protocol_of(self, path: str) -> str | None:
        found = _GEMINI.fullmatch(path)
        if found is None:
            return _PROTOCOLS.get(path)
        return "gemini" if found[1] == "generateContent" else "gemini events"

    def will_say(self, *sayings: Said | str) -> None:
        self._sayings.extend(Said(text=s) if isinstance(s, str) else s for s in sayings)

    def forget(self) -> None:
        self._sayings.clear()
        self.refused.clear()
        self.asked.clear()
        self.failing_after = None

    def next_reply(self, request: Request) -> Reply:
        protocol = self.protocol_of(request.path) or ""
        if self.failing_after == 0:
            self.failing_after = None
            return Reply(status=400, body=_error(protocol, "made to fail"))
        if self.failing_after is not None:
            self.failing_after -= 1
        self.asked.append(request.body)
        broken = _RULES[protocol](request.body)
        if broken is not None:
            self.refused.append(f"{protocol}: {broken}")
            return Reply(status=400, body=_error(protocol, broken))
        usage = self._usage(request.body) if protocol == "anthropic" else {}
        said = self._sayings.popleft() if self._sayings else Said(text="Fine.")
        if (request.body.get("thinking") or {}).get("type") == "enabled" and not said.thought:
            said = replace(said, thought="Let me think.")
        body = SPEAKERS[protocol](said, request.body, usage)
        streams = protocol == "gemini events" or (
            protocol != "ollama" and request.body.get("stream")
        )
        kind = "text/event-stream" if streams else "application/json"
        return Reply(
            body=body, content_type="application/x-ndjson" if protocol == "ollama" else kind
        )

    def _usage(self, body: Mapping[str, Any]) -> dict[str, int]:
        """Count what is cached: the longest known prefix that a mark of this request reaches."""
        blocks = list(blocks_of(body))
        ends = [i for i, (_, marked) in enumerate(blocks) if marked]
        if "cache_control" in body:
            ends.append(len(blocks) - 1)
        keys, sizes, total, state = [], [], 0, hashlib.sha256()
        for text, _ in blocks:
            state.update(text.encode() + b"\0")
            total += len(text)
            keys.append(state.hexdigest())
            sizes.append(total)
        known = [
            sizes[at]
            for end in ends
            for at in range(end, max(end - _LOOK_BACK, -1), -1)
            if keys[at] in self._cached
        ]
        self._cached.update(keys[end] for end in ends)
        read, whole = max(known, default=0), sizes[max(ends)] if ends else 0
        written = max(whole - read, 0)
        self.used.append({"read": read, "written": written, "rest": total - read - written})
        return {
            "input_tokens": total - read - written,
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": written,
        }


def blocks_of(body: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yield what a prompt consists of in Anthropic's order: tools, system, messages."""
    system = body.get("system") or []
    system = [{"type": "text", "text": system}] if isinstance(system, str) else system
    parts = [("tool", tool) for tool in body.get("tools", ())]
    parts += [("system", block) for block in system]
    for message in body["messages"]:
        content = message["content"]
        content = [{"type": "text", "text": content}] if isinstance(content, str) else content
        parts += [(message["role"], block) for block in content]
    for kind, part in parts:
        plain = {key: value for key, value in part.items() if key != "cache_control"}
        yield f"{kind} {json.dumps(plain, sort_keys=True)}", "cache_control" in part


def _error(protocol: str, text: str) -> bytes:
    said: dict[str, Any] = {"message": text, "type": "invalid_request_error", "code": None}
    if protocol == "ollama":
        return json.dumps({"error": text}).encode()
    if protocol == "anthropic":
        return json.dumps({"type": "error", "error": said}).encode()
    if protocol.startswith("gemini"):
        said = {"code": 400, "message": text, "status": "INVALID_ARGUMENT"}
    return json.dumps({"error": said}).encode()
