"""HTTP clients as one would write them in an afternoon. Some attacks must succeed against these."""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit

import httpx


def reads_the_text(url: str) -> str:
    """Look at the host's text; what is no address is a name, and names are fine."""
    host = urlsplit(url).hostname or ""
    try:
        if ipaddress.ip_address(host).is_private:
            raise PermissionError(host)
    except ValueError:
        if host == "localhost":
            raise PermissionError(host) from None
    return httpx.get(url, trust_env=False).text


def resolves_and_goes_on(url: str, harmless: str) -> str:
    """Resolve the name, check its addresses, and let the library resolve it again."""
    host = urlsplit(url).hostname or ""
    found = {str(entry[4][0]) for entry in socket.getaddrinfo(host, None)}
    if found != {harmless}:
        raise PermissionError(host)
    return httpx.get(url, trust_env=False).text
