"""Browsers that have signed in to the page: a cookie and a second secret each, for twelve hours.

Cookies know no ports, so another server on this machine may get ours: its name holds this server's
instance, and without the second secret, which the page keeps for its own origin, it opens nothing.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

LASTS: Final = 12 * 3600
"""Seconds that a browser stays signed in."""

LINK_LASTS: Final = 600
"""Seconds in which a one-time link is to be used."""

LINK: Final = "wl_"
"""Prefix of a one-time link's token."""

_MOST: Final = 100
"""Browsers per token; the oldest are signed out."""


@dataclass(frozen=True, slots=True)
class Signed:
    """Who a browser has signed in as."""

    tenant: str
    scope: str
    token: str
    """The token's id; empty for a link, which ends with the server."""


@dataclass(slots=True)
class _Browser:
    signed: Signed
    secret: bytes
    expires: float


@dataclass(slots=True)
class SignIns:
    """The browsers that have signed in to one server; only hashes are kept."""

    clock: Callable[[], float] = time.monotonic
    instance: str = field(default_factory=lambda: secrets.token_hex(6))
    """Distinguishes this server's cookie from those of others on the same machine."""
    _browsers: OrderedDict[bytes, _Browser] = field(default_factory=OrderedDict)
    _links: dict[bytes, tuple[Signed, float]] = field(default_factory=dict)

    def name(self, *, secure: bool) -> str:
        """Return the cookie's name; behind TLS a browser takes it from this host alone."""
        return f"__Host-wick_{self.instance}" if secure else f"wick_{self.instance}"

    def begin(self, signed: Signed) -> tuple[str, str]:
        """Sign a browser in; return its cookie's value and its second secret."""
        self._drop_old()
        same = [key for key, held in self._browsers.items() if held.signed == signed]
        for key in same[: max(0, len(same) - _MOST + 1)]:
            del self._browsers[key]
        cookie, secret = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        expires = self.clock() + LASTS
        self._browsers[_hash(cookie)] = _Browser(signed, _hash(secret), expires)
        return cookie, secret

    def find(self, cookies: str, secret: str) -> Signed | None:
        """Return who sends these cookies and this secret; None if no browser has signed in so."""
        self._drop_old()
        for value in self._own(cookies):
            held = self._browsers.get(_hash(value))
            if held is not None and hmac.compare_digest(held.secret, _hash(secret)):
                return held.signed
        return None

    def end(self, cookies: str) -> None:
        """Sign a browser out."""
        for value in self._own(cookies):
            self._browsers.pop(_hash(value), None)

    def link(self, signed: Signed) -> str:
        """Make the token of a one-time link."""
        made = LINK + secrets.token_urlsafe(32)
        self._links[_hash(made)] = signed, self.clock() + LINK_LASTS
        return made

    def redeem(self, token: str) -> Signed | None:
        """Use a one-time link; None if it is unknown, used, or too old."""
        signed, expires = self._links.pop(_hash(token), (None, 0.0))
        return signed if expires > self.clock() else None

    def _own(self, cookies: str) -> list[str]:
        """List the values of our cookies: others may be malformed, or have our name for a path."""
        names = (self.name(secure=True), self.name(secure=False))
        pairs = (part.strip().partition("=") for part in cookies.split(";"))
        return [value for name, _, value in pairs if name in names]

    def _drop_old(self) -> None:
        now = self.clock()
        while self._browsers and next(iter(self._browsers.values())).expires <= now:
            self._browsers.popitem(last=False)


def _hash(text: str) -> bytes:
    return sha256(text.encode("utf-8", "surrogatepass")).digest()
