"""Public IP addresses, and URLs in one strict form."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final, Self

from wick_graph.errors import ConfigError

# --- Which IP addresses are public, by IANA's registries of special-purpose addresses.


_V4: Final = tuple(
    (IPv4Network(network), kind)
    for kind, networks in {
        "unspecified": ("0.0.0.0/8",),
        "loopback": ("127.0.0.0/8",),
        "private": ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"),
        "shared": ("100.64.0.0/10",),
        "link-local": ("169.254.0.0/16",),
        "multicast": ("224.0.0.0/4",),
        "benchmarking": ("198.18.0.0/15",),
        "documentation": ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24"),
        "reserved": ("192.0.0.0/24", "192.88.99.0/24", "240.0.0.0/4"),
    }.items()
    for network in networks
)
"""IANA, IPv4 Special-Purpose Address Registry; 192.88.99.0/24 by RFC 7526."""

_V6: Final = tuple(
    (IPv6Network(network), kind)
    for kind, networks in {
        "unspecified": ("::/128",),
        "loopback": ("::1/128",),
        "private": ("fc00::/7", "64:ff9b:1::/48"),
        "link-local": ("fe80::/10", "fec0::/10"),
        "multicast": ("ff00::/8",),
        "documentation": ("2001:db8::/32", "3fff::/20"),
        "reserved": ("2001::/23",),
    }.items()
    for network in networks
)
"""IANA, IPv6 Special-Purpose Address Registry; 2001::/23 holds Teredo and ORCHID."""

_GLOBAL_V6: Final = IPv6Network("2000::/3")

_MAPPED: Final = IPv6Network("::ffff:0:0/96")

_NAT64: Final = IPv6Network("64:ff9b::/96")

_LOCAL_NAT64: Final = IPv6Network("64:ff9b:1::/48")

_COMPATIBLE: Final = IPv6Network("::/96")

_TEREDO: Final = IPv6Network("2001::/32")

_6TO4: Final = IPv6Network("2002::/16")

_ISATAP: Final = (0x0000_5EFE, 0x0200_5EFE)
"""Middle of an interface id that ends in an IPv4 address (RFC 5214)."""

METADATA: Final = "for cloud metadata"
"""Kind of an address at which a cloud hands out credentials; never allowed."""

_METADATA: Final = (
    *(IPv4Network("169.254.0.0/16"),),  # nearly all clouds, and all their other services
    *(IPv4Network("100.100.100.200"), IPv4Network("168.63.129.16"), IPv4Network("192.0.0.192")),
    *(IPv6Network("fd00:ec2::/32"), IPv6Network("fd20:ce::/32"), IPv6Network("fd00:42::42")),
    *(IPv6Network("fe80::a9fe:a9fe"),),
)
"""By provider, beside the link-local ones: Alibaba, Azure, Oracle; Amazon, Google, Scaleway; and
OpenStack."""

_NAMES: Final = frozenset(
    {
        *("metadata.google.internal", "metadata.goog", "instance-data.ec2.internal"),
        *("metadata.tencentyun.com", "metadata.packet.net", "metadata.platformequinix.com"),
    }
)
"""Names that only a cloud's own resolver knows; elsewhere they may lead anywhere."""

INTERNAL: Final = frozenset({"loopback", "private", "shared"})
"""Kinds of addresses that a user may allow on purpose."""


def refusal(address: str) -> str | None:
    """Return the kind of a non-public address; None if it is public.

    An IPv4 address inside an IPv6 one (mapped, NAT64, 6to4, ISATAP) decides for both.

    Raises:
        ValueError: It is not an IP address.
    """
    return _kind(ip_address(address.partition("%")[0]))


def is_metadata(host: str) -> bool:
    """Return whether a cloud hands out credentials at a name or an address.

    An IPv4 address counts at any place inside an IPv6 one.
    """
    name = host.lower().partition("%")[0].rstrip(".")
    try:
        address = ip_address(name)
    except ValueError:
        return name in _NAMES
    forms = [address, *_inner(address)]
    return any(form in network for form in forms for network in _METADATA)


def _inner(address: IPv4Address | IPv6Address) -> Iterator[IPv4Address]:
    """Yield the IPv4 addresses that an IPv6 address contains or may contain."""
    if isinstance(address, IPv4Address):
        return
    bits = int(address)
    if (found := _embedded(address)) is not None:
        yield found
    if address in _MAPPED or address in _COMPATIBLE:
        yield IPv4Address(bits & 0xFFFF_FFFF)
    if address in _TEREDO:
        yield IPv4Address(~bits & 0xFFFF_FFFF)
    if address in _LOCAL_NAT64:  # RFC 6052: eight bits in the middle are left out
        yield IPv4Address((bits >> 64 & 0xFFFF) << 16 | bits >> 40 & 0xFFFF)
        yield IPv4Address(bits & 0xFFFF_FFFF)


def _kind(address: IPv4Address | IPv6Address) -> str | None:
    if isinstance(address, IPv4Address):
        return _listed(address, _V4)
    if address in _MAPPED:
        return _kind(IPv4Address(int(address) & 0xFFFF_FFFF))
    inner = _embedded(address)
    if inner is not None and (kind := _kind(inner)) is not None:
        return kind
    if address in _NAT64:
        return None
    return _listed(address, _V6) or (None if address in _GLOBAL_V6 else "reserved")


def _embedded(address: IPv6Address) -> IPv4Address | None:
    bits = int(address)
    if address in _6TO4:
        return IPv4Address((bits >> 80) & 0xFFFF_FFFF)
    if address in _NAT64 or (bits >> 32) & 0xFFFF_FFFF in _ISATAP:
        return IPv4Address(bits & 0xFFFF_FFFF)
    return None


def _listed(
    address: IPv4Address | IPv6Address,
    table: Iterable[tuple[IPv4Network | IPv6Network, str]],
) -> str | None:
    return next((kind for network, kind in table if address in network), None)


# --- The target of a request: a URL in one strict form that every parser reads alike.


_FORM: Final = re.compile(
    r"(?P<scheme>[Hh][Tt][Tt][Pp][Ss]?)://"
    r"(?P<host>\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,252}))"
    r"(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<path>(?:[/?](?:(?![\\#])[!-~])*)?)"
)

_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Target:
    """The parts of an HTTP URL."""

    scheme: str
    host: str
    """In lower case; an IPv6 address without brackets."""
    port: int
    path: str
    """Path and query, unchanged."""

    @classmethod
    def parse(cls, url: str) -> Self:
        """Parse a URL.

        Raises:
            ConfigError: It is not an absolute `http` or `https` URL, or has a user, a fragment, or
                characters about which parsers disagree.
        """
        found = _FORM.fullmatch(url)
        if found is None:
            raise ConfigError(
                f"{url!r:.200} is not a usable address; write http://host/path or https://…, "
                "in ASCII, without user, password, fragment, spaces and backslashes"
            )
        scheme = found["scheme"].lower()
        port = int(found["port"]) if found["port"] else _PORTS[scheme]
        if not 0 < port < 65536:
            raise ConfigError(f"the port {port} of {url!r:.200} is invalid; use 1 to 65535")
        host, path = found["host"].lower().strip("[]"), found["path"]
        return cls(scheme, host, port, path if path.startswith("/") else f"/{path}")

    @property
    def authority(self) -> str:
        """Host and port, as in the `Host` header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        """Scheme, host and port: the unit of permission and of credentials."""
        return f"{self.scheme}://{self.authority}"

    def at(self, address: str) -> str:
        """Return the same origin with an IP address as its host."""
        return Target(self.scheme, address.lower(), self.port, "/").origin

    def __str__(self) -> str:
        return f"{self.origin}{self.path}"
