"""HTTP tools: their calls are forwarded to another server."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, Final

from wick_graph.constants import MAX_ANSWER_PARTS, MAX_RESULT_CHARS
from wick_graph.core.redaction import Redactor
from wick_graph.errors import ConfigError, ToolError
from wick_graph.messages.content import json_parts
from wick_graph.tools.arguments import check_foreign
from wick_graph.tools.protocol import ToolContext, ToolOptions
from wick_graph.tools.result import framed, to_text
from wick_graph.types import Replay
from wick_graph.web import Answer, Client, Target, check_headers

MAX_ERROR_CHARS: Final = 2_000
"""Characters of a server's text in an error."""

HEALTH_SECONDS: Final = 3.0

MARGIN_SECONDS: Final = 5.0
"""Seconds by which the client's deadline, with the better error, precedes the tool's."""

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")

_KEY: Final = re.compile(r"[A-Za-z0-9:_-]{1,128}")


class HTTPTool:
    """Forward each call as `POST {callback_url}/tools/{name}` with `{"name", "args"}` in JSON.

    The server answers `{"result": …}` or `{"error": "…"}`. The model sees a result as framed data;
    an error, or any other answer, is a failed call. The arguments are only in the body, never in
    the URL or a header.

    Args:
        name: Lower case letters, digits and `_`, beginning with a letter.
        description: The tool's description for the model.
        parameters: A JSON schema of type `object`, without `pattern` and external `$ref`.
        callback_url: The server's URL, such as `https://tools.example.com`. Each call to a
            private address is refused unless the client allows it.
        client: The HTTP client with the rules; by default public addresses, ports 80 and 443.
        headers: Sent with each call; their values are hidden from the model.
        replay: See `ToolOptions`; with `key`, each call has an `Idempotency-Key` that stays the
            same if the call is repeated.
        retries: Further attempts after an error, if `replay` is not `never`.
        concurrency: Concurrent calls in this process; None for no limit.
        max_output: Code points of the result that the model sees; None for all.

    Raises:
        ConfigError: A part is refused, with the reason.
    """

    def __init__(
        self,
        name: str,
        description: str,
        parameters: Mapping[str, Any],
        callback_url: str,
        client: Client | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        replay: Replay = "never",
        retries: int = 0,
        concurrency: int | None = None,
        max_output: int | None = MAX_RESULT_CHARS,
    ) -> None:
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"the tool name {name!r:.80} is not usable for an HTTP tool; use up to 64 lower "
                "case letters, digits and '_', and begin with a letter"
            )
        try:
            check_foreign(parameters)
            self._url: Final = f"{_base(callback_url)}/tools/{name}"
            self._health: Final = f"{_base(callback_url)}/health"
            self._headers: Final = check_headers(headers or {})
        except ConfigError as error:
            raise ConfigError(f"tool {name}: {error}") from None
        self.name: Final = name
        self.description: Final = description
        self.parameters: Final = dict(parameters)
        self.callback_url: Final = callback_url
        self.client: Final = client or Client()
        options = ToolOptions(
            replay=replay,
            timeout=self.client.timeout + MARGIN_SECONDS,
            retries=retries,
            concurrency=concurrency,
            max_output=max_output,
        )
        self.replay: Final = options.replay
        self.timeout: Final = options.timeout
        self.retries: Final = options.retries
        self.concurrency: Final = options.concurrency
        self.max_output: Final = options.max_output
        self._secrets: Final = tuple(_secrets(self._headers))
        self._redactor: Final = Redactor(self._secrets)

    async def execute(self, args: dict[str, Any], ctx: ToolContext) -> str:
        """Forward a call and return the server's result.

        Raises:
            ToolError: The server answered `error`, or its answer is invalid.
        """
        headers = {**self._headers, "Content-Type": "application/json"}
        headers["Accept"] = "application/json"
        if self.replay == "key":
            headers["Idempotency-Key"] = _idempotency_key(ctx.key)
        body = json.dumps({"name": self.name, "args": args}).encode()
        answer = await self.client.send("POST", self._url, headers=headers, content=body)
        text = to_text(self._result(answer))
        for secret in self._secrets:
            text = text.replace(secret, "[redacted]")
        return framed(text, f"http tool {self.name}")

    async def health(self) -> str:
        """Ask the server for its health: `ok`, or what is wrong in a few words.

        An unsuccessful answer to `GET {callback_url}/health` is reported but is not an error, since
        this route is optional.
        """
        try:
            answer = await self.client.send("GET", self._health, seconds=HEALTH_SECONDS)
        except ToolError as error:
            return f"{error}; calls fail until it answers"
        return "ok" if 200 <= answer.status < 300 else f"answers with status {answer.status}"

    def _result(self, answer: Answer) -> Any:
        if not 200 <= answer.status < 300:
            raise self._error(f"answered with status {answer.status}", answer)
        if json_parts(answer.body, MAX_ANSWER_PARTS) > MAX_ANSWER_PARTS:
            raise self._error(f"sent more than {MAX_ANSWER_PARTS:,} keys and items", answer)
        try:
            said = json.loads(answer.body)
        except (ValueError, RecursionError):
            raise self._error("did not send JSON", answer) from None
        if not isinstance(said, dict) or not said.keys() & {"result", "error"}:
            raise self._error("sent JSON without result and error", answer)
        if said.get("error") is not None:
            raise ToolError(self._shown(to_text(said["error"])) or "the server says it failed")
        return said.get("result")

    def _error(self, what: str, answer: Answer) -> ToolError:
        body = self._shown(answer.body.decode("utf-8", "replace"))
        return ToolError(f"the server of {self.name} {what}{f': {body}' if body else ''}")

    def _shown(self, text: str) -> str:
        shown = self._redactor.text(text).strip()
        return shown if len(shown) <= MAX_ERROR_CHARS else f"{shown[:MAX_ERROR_CHARS]}…"

    def __repr__(self) -> str:
        return f"HTTPTool({self.name!r}, {self.callback_url!r})"


def _base(url: str) -> str:
    target = Target.parse(url)
    if "?" in target.path or ".." in target.path:
        raise ConfigError(f"{url!r:.200} has a query or '..'; pass only the server's base address")
    return str(target).rstrip("/")


def _secrets(headers: Mapping[str, str]) -> list[str]:
    """List the secrets in headers: whole values, and the words of long ones."""
    words = (word for value in headers.values() for word in (value, *value.split()))
    return [word for word in words if len(word) >= 8]


def _idempotency_key(key: str) -> str:
    if _KEY.fullmatch(key):
        return key
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
