"""Tokens: who may speak to a server. Of a token only a hash is kept.

A token is `wk_<id>_<secret>` with 256 random bits in the secret, so a plain hash is enough: there
is nothing to guess. The id finds the row; the secret is compared in constant time.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, get_args

from sqlalchemy import insert, select, update

from wick_graph.errors import ConfigError
from wick_graph.store.checkpoints.core import Core
from wick_graph.store.database import server_sql
from wick_graph.store.database.compiling import checked, compiled
from wick_graph.store.database.schema import tokens
from wick_graph.store.values.rows import bytes_text, text_bytes

Scope = Literal["read", "run", "approve", "admin"]
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
"""All include `read`, and `admin` includes all. `run` and `approve` are apart."""
_FORM: Final = re.compile(r"wk_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")
_TENANT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def includes(held: str, wanted: Scope) -> bool:
    """Say whether a token's scope allows what needs another one."""
    scopes = held.split(",")
    return wanted in scopes or "admin" in scopes or (wanted == "read" and scopes != [""])


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenInfo:
    """A token, without what it takes to use it."""

    id: str
    tenant: str
    name: str
    scope: str
    """One of `SCOPES`, or several with commas between them."""
    created: datetime
    expires: datetime | None
    revoked: datetime | None


class Tokens:
    """The tokens of a database, of all tenants."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def create(
        self, tenant: str, *, name: str = "", scope: str = "run", lasts: float | None = None
    ) -> tuple[str, TokenInfo]:
        """Make a token and return it, this once, with what is known of it; `lasts` is in seconds.

        The scope is one of `SCOPES`, or several with commas between them: `run,approve`.

        Raises:
            ConfigError: The tenant's name or the scope is refused.
        """
        if not _TENANT.fullmatch(tenant):
            raise ConfigError(
                f"the tenant {tenant!r:.80} is refused; use 1 to 64 letters, digits, and _ . -, "
                "and begin with a letter or digit"
            )
        unknown = next((one for one in scope.split(",") if one not in SCOPES), None)
        if unknown is not None:
            raise ConfigError(f"the scope {unknown!r:.80} is none of {', '.join(SCOPES)}")
        key, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
        with self._core.writing() as db:
            now = self._core.now()
            row = {
                "tenant": text_bytes(tenant),
                "token": text_bytes(key),
                "hash": _hash(secret),
                "name": text_bytes(name),
                "scopes": ",".join(one for one in SCOPES if one in scope.split(",")),
                "created": now,
                "expires": None if lasts is None else now + lasts,
            }
            db.execute(*compiled(insert(tokens).values(**checked(tokens, row, new=True))))
            made = self._one(db, key)
        assert made is not None
        return f"wk_{key}_{secret}", made[0]

    def check(self, token: str) -> TokenInfo | None:
        """Return whose token it is; None for one that is unknown, expired or revoked.

        An unknown id takes as long as a wrong secret.
        """
        form = _FORM.fullmatch(token)
        key, secret = form.groups() if form else ("", "")
        with self._core.reading() as db:
            found = self._one(db, key)
            now = self._core.now()
        info, expected = found or (None, bytes(32))
        if not hmac.compare_digest(_hash(secret), expected) or info is None:
            return None
        if info.revoked is not None:
            return None
        return None if info.expires is not None and info.expires.timestamp() <= now else info

    def list(self, tenant: str | None = None) -> list[TokenInfo]:
        """Return tokens, the oldest first; those of one tenant, if one is named."""
        query = select(*server_sql.TOKEN_COLUMNS).order_by(tokens.c.rid)
        if tenant is not None:
            query = query.where(tokens.c.tenant == text_bytes(tenant))
        with self._core.reading() as db:
            return [_info(row)[0] for row in db.execute(*compiled(query)).fetchall()]

    def revoke(self, key: str) -> bool:
        """End a token by its id, or by the token itself; False if there is none such."""
        form = _FORM.fullmatch(key)
        with self._core.writing() as db:
            mine = (tokens.c.token == text_bytes(form[1] if form else key),)
            ended = update(tokens).where(*mine)
            ended = ended.values(**checked(tokens, {"revoked": self._core.now()}))
            return bool(db.execute(*compiled(ended)).rowcount)

    def _one(self, db: Any, key: str) -> tuple[TokenInfo, bytes] | None:
        row = db.execute(server_sql.TOKEN, (text_bytes(key),)).fetchone()
        return None if row is None else _info(row)


def _info(row: Sequence[Any]) -> tuple[TokenInfo, bytes]:
    key, tenant, name, scope, created, expires, revoked, hashed = row
    info = TokenInfo(
        id=bytes_text(key),
        tenant=bytes_text(tenant),
        name=bytes_text(name),
        scope=scope,
        created=datetime.fromtimestamp(created, UTC),
        expires=None if expires is None else datetime.fromtimestamp(expires, UTC),
        revoked=None if revoked is None else datetime.fromtimestamp(revoked, UTC),
    )
    return info, bytes(hashed)


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
