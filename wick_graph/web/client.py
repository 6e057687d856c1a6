"""An HTTP client for untrusted addresses.

It resolves a name once, checks every address found, and connects to a checked one; each redirect
passes the same checks. It reads nothing from the environment (no proxy, `.netrc` or certificates),
and keeps no cookies or connections between requests.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import zlib
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final
from urllib.parse import urljoin

import httpx

from wick_graph.errors import ConfigError, RefusedError, ToolError
from wick_graph.web.addresses import INTERNAL, METADATA, Target, is_metadata, refusal

# --- Read the body of an answer up to a limit.


ACCEPTED: Final = "identity, gzip"
"""Accepted encodings of an answer."""


async def read_body(response: httpx.Response, limit: int) -> bytes:
    """Return an answer's decoded body.

    Raises:
        ToolError: It is longer than `limit` bytes before or after decoding, incomplete, or has an
            encoding other than gzip.
    """
    declared = response.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise _too_long(limit)
    body = bytearray()
    async for part in _decoded(response, limit):
        body += part
        if len(body) > limit:
            raise _too_long(limit)
    return bytes(body)


def _too_long(limit: int) -> ToolError:
    return ToolError(f"the answer is longer than {limit} bytes")


async def _decoded(response: httpx.Response, limit: int) -> AsyncIterator[bytes]:
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity", "gzip", "x-gzip"):
        raise ToolError(f"the answer is encoded as {encoding!r:.80}, which was not requested")
    inflate = Inflate(limit) if encoding.endswith("gzip") else None
    size = 0
    async for part in response.aiter_raw():
        size += len(part)
        if size > limit:
            raise _too_long(limit)
        yield part if inflate is None else inflate(part)
    if inflate is not None and size and not inflate.complete:
        raise ToolError("the answer breaks off inside its gzip data")


class Inflate:
    """A gzip decoder that returns at most one byte more than the limit at a time."""

    def __init__(self, limit: int) -> None:
        self._zlib: Final = zlib.decompressobj(wbits=31)
        self._limit: Final = limit
        self._decode: Final[Callable[[bytes, int], bytes]] = self._zlib.decompress

    @property
    def complete(self) -> bool:
        """Whether the data is complete."""
        return self._zlib.eof

    def __call__(self, part: bytes) -> bytes:
        """Decode a part.

        Raises:
            ToolError: It is not gzip.
        """
        try:
            return self._decode(part, self._limit + 1)
        except zlib.error:
            raise ToolError("the answer claims to be gzip but is not") from None


TIMEOUT_SECONDS: Final = 120.0
"""Seconds for a request with all redirects, from the name look-up to the last byte."""

MAX_BYTES: Final = 1024 * 1024
"""Bytes of an answer's decoded body."""

MAX_REDIRECTS: Final = 3

MAX_HEADERS: Final = 256

PORTS: Final = (80, 443)

_MOVED: Final = (301, 302, 303, 307, 308)

_PLAIN: Final = frozenset({"accept", "content-type"})
"""Headers that may follow a redirect to another origin; none is a credential."""

_OURS: Final = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "upgrade", "accept-encoding"}
)


@dataclass(frozen=True, slots=True)
class Answer:
    """A server's answer."""

    status: int
    url: str
    """The address that answered, after redirects."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers by lower-case name."""
    body: bytes = field(default=b"", repr=False)


class Client:
    """Send requests to public addresses and to allowed origins.

    Args:
        allow: Origins such as `http://127.0.0.1:9100`; they may be private and use any port. An
            origin with a host name allows the addresses of the name, except link-local, multicast
            and reserved ones. One with an IP address also allows every name that resolves to this
            address and port. Cloud metadata addresses are never allowed.
        key: For errors: the setting in which a person allows an origin.
        ports: Allowed ports of all other origins.
        timeout: Seconds for a whole request.
        max_bytes: Most bytes of an answer's decoded body.
        certificates: Trusted certificates, instead of those that come with `httpx`.

    Raises:
        ConfigError: An entry of `allow` is not an origin, or a limit is not above 0.
    """

    def __init__(
        self,
        *,
        allow: Iterable[str] = (),
        key: str = "allow",
        ports: Collection[int] = PORTS,
        timeout: float = TIMEOUT_SECONDS,
        max_bytes: int = MAX_BYTES,
        certificates: ssl.SSLContext | None = None,
    ) -> None:
        if isinstance(allow, str):
            raise ConfigError(f"allow takes a list of origins: write [{allow!r}]")
        if not timeout > 0 or max_bytes < 1:
            raise ConfigError("timeout and max_bytes must be above 0")
        self.allow: Final = frozenset(map(_origin, allow))
        self._key: Final = key
        self.ports: Final = frozenset(ports)
        self.timeout: Final = timeout
        self.max_bytes: Final = max_bytes
        self._certificates: Final = certificates

    async def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: bytes = b"",
        seconds: float | None = None,
    ) -> Answer:
        """Send a request, follow at most three redirects, and return the last answer.

        After a redirect to another origin, only the headers `Accept` and `Content-Type` are sent. A
        redirect from `https` to `http` is refused. `seconds` overrides `timeout`.

        Raises:
            RefusedError: An address, or one that a redirect leads to, is not allowed.
            ToolError: There is no answer in time, or it breaks a rule or a limit. The text is one
                sentence without header values.
        """
        try:
            async with asyncio.timeout(seconds or self.timeout) as limit:
                return await self._follow(method, url, dict(headers or {}), content)
        except TimeoutError:
            if not limit.expired():
                raise
            late = seconds or self.timeout
            raise ToolError(f"no whole answer came within {late:g} s") from None

    async def _follow(
        self, method: str, url: str, headers: dict[str, str], content: bytes
    ) -> Answer:
        try:
            target = Target.parse(url)
            for _ in range(MAX_REDIRECTS + 1):
                answer = await self._once(method, target, headers, content)
                location = answer.headers.get("location")
                if answer.status not in _MOVED or location is None:
                    return answer
                before, target = target, _next(target, location)
                if target.origin != before.origin:
                    headers = {k: v for k, v in headers.items() if k.lower() in _PLAIN}
                if answer.status == 303 or (answer.status < 303 and method == "POST"):
                    method, content = "GET", b""
        except ConfigError as error:
            raise ToolError(str(error)) from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            kind = type(error).__name__
            raise ToolError(f"{target.authority} cannot be reached ({kind})") from None
        raise ToolError(f"{target.authority} redirects more than {MAX_REDIRECTS} times")

    async def _once(
        self, method: str, target: Target, headers: Mapping[str, str], content: bytes
    ) -> Answer:
        """Send one request, only to the checked address."""
        address = await self._address(target)
        netloc = f"[{address}]" if ":" in address else address
        own = {"Host": target.authority, "Accept-Encoding": ACCEPTED, "Connection": "close"}
        request = httpx.Request(
            method,
            f"{target.scheme}://{netloc}:{target.port}{target.path}",
            headers={**headers, **own},
            content=content or None,
            # the certificate must match the name, whatever address the connection uses
            extensions={"sni_hostname": target.host.rstrip(".")},
        )
        async with httpx.AsyncHTTPTransport(
            verify=self.verify(target), trust_env=False
        ) as transport:
            response = await transport.handle_async_request(request)
            try:
                return await self._answer(response, target)
            finally:
                await response.aclose()

    async def _answer(self, response: httpx.Response, target: Target) -> Answer:
        if len(response.headers) > MAX_HEADERS:
            raise ToolError(f"{target.authority} sent more than {MAX_HEADERS} headers")
        moved = response.status_code in _MOVED and "location" in response.headers
        body = b"" if moved else await read_body(response, self.max_bytes)
        return Answer(response.status_code, str(target), dict(response.headers), body)

    async def check(self, url: str, seconds: float) -> None:
        """Check that requests to a URL are allowed; send none.

        Args:
            url: The URL.
            seconds: Time limit for looking up its host.

        Raises:
            RefusedError: It is not allowed; the error names the setting that allows it, if any.
            ToolError: It is not a URL, or its host cannot be found.
        """
        try:
            async with asyncio.timeout(seconds):
                await self._address(Target.parse(url))
        except ConfigError as error:
            raise ToolError(str(error)) from None
        except TimeoutError:
            raise ToolError(f"the host was not found within {seconds:g} s") from None

    async def _address(self, target: Target) -> str:
        """Return an address of the target; check all its addresses."""
        return await asyncio.to_thread(self.address, target)

    def address(self, target: Target) -> str:
        """Return an address of the target; check all its addresses.

        Raises:
            RefusedError: One is not allowed.
            ToolError: Its host cannot be found.
        """
        if is_metadata(target.host):
            raise RefusedError(_never(target))
        try:
            found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            raise ToolError(f"the host {target.host} cannot be found") from None
        addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
        if not addresses:
            raise ToolError(f"the host {target.host} has no address")
        if any(map(is_metadata, addresses)):
            raise RefusedError(_never(target))
        for address in addresses:
            if (why := self._refusal(target, address)) is not None:
                raise RefusedError(
                    f"{target.origin} is refused: {why}; "
                    f"if it is meant, add {target.origin!r} to {self._key}"
                )
        return addresses[0]

    def verify(self, target: Target) -> ssl.SSLContext | bool:
        """Return the trusted certificates for a target."""
        return target.scheme == "https" and (self._certificates or _certificates())

    def _refusal(self, target: Target, address: str) -> str | None:
        if target.at(address) in self.allow:
            return None
        kind, named = refusal(address), target.origin in self.allow
        if kind is not None and not (named and kind in INTERNAL):
            return f"its address {address} is {kind}"
        if target.port not in self.ports and not named:
            return f"port {target.port} is none of {', '.join(map(str, sorted(self.ports)))}"
        return None


def check_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return headers after checking them.

    Raises:
        ConfigError: A name or a value is invalid, or the client sets the header itself.
    """
    for name, value in headers.items():
        token = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
        if not token or not (value.isascii() and value.isprintable()):
            raise ConfigError(
                f"the header {name!r:.80} has characters that are not allowed in a header"
            )
        if name.lower() in _OURS:
            raise ConfigError(f"the header {name} is set by the client; leave it out")
    return dict(headers)


def _origin(text: str) -> str:
    target = Target.parse(text)
    if target.path != "/":
        raise ConfigError(f"allow takes origins: write {target.origin!r}, not {text!r:.200}")
    return target.origin


def _never(target: Target) -> str:
    return f"{target.origin} is refused: its address is {METADATA}, which is never allowed"


def _next(target: Target, location: str) -> Target:
    following = Target.parse(urljoin(str(target), location.partition("#")[0]))
    if target.scheme == "https" and following.scheme == "http":
        raise RefusedError(f"{target.authority} redirects from https to http, which is refused")
    return following


@lru_cache(maxsize=1)
def _certificates() -> ssl.SSLContext:
    """Load the library's certificates; ignore environment variables."""
    return httpx.create_ssl_context(trust_env=False)
