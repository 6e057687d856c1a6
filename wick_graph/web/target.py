"""Where a request goes: an address of the one strict form that every reader reads alike."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Self

from wick_graph.errors import ConfigError

_FORM: Final = re.compile(
    r"(?P<scheme>[Hh][Tt][Tt][Pp][Ss]?)://"
    r"(?P<host>\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,252}))"
    r"(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<path>(?:[/?](?:(?![\\#])[!-~])*)?)"
)
_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Target:
    """An HTTP address, taken apart."""

    scheme: str
    host: str
    """In lower case; an IPv6 address without its brackets."""
    port: int
    path: str
    """Path and query, as they were written."""

    @classmethod
    def parse(cls, url: str) -> Self:
        """Take an address apart.

        Raises:
            ConfigError: It is no absolute `http` or `https` address, or has a user, a fragment,
                or characters about which readers disagree.
        """
        found = _FORM.fullmatch(url)
        if found is None:
            raise ConfigError(
                f"{url!r:.200} is no usable address; write http://host/path or https://host/path, "
                "in ASCII, without user, password, fragment, spaces and backslashes"
            )
        scheme = found["scheme"].lower()
        port = int(found["port"]) if found["port"] else _PORTS[scheme]
        if not 0 < port < 65536:
            raise ConfigError(f"the port {port} of {url!r:.200} is none; take 1 to 65535")
        host, path = found["host"].lower().strip("[]"), found["path"]
        return cls(scheme, host, port, path if path.startswith("/") else f"/{path}")

    @property
    def authority(self) -> str:
        """Host and port, as the `Host` header names them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        """Scheme, host and port: what may be allowed, and what keeps its credentials."""
        return f"{self.scheme}://{self.authority}"

    def at(self, address: str) -> str:
        """Name the same origin by an IP address."""
        return Target(self.scheme, address.lower(), self.port, "/").origin

    def __str__(self) -> str:
        return f"{self.origin}{self.path}"
