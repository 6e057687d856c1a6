"""What a server is told when it starts; every limit has a name."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Final, Literal, get_args

from wick_graph.constants import DEFAULT_PORT
from wick_graph.errors import ConfigError

DEFAULT_HOST: Final = "127.0.0.1"
OnDisconnect = Literal["continue", "cancel"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one server takes on; times are in seconds, sizes in bytes."""

    body: int = 4 * 1024 * 1024
    """A request's body."""
    depth: int = 64
    """Containers inside containers in a body."""
    values: int = 20_000
    """Keys, items and containers of a body together."""
    runs: int = 1_000
    """Runs that go on at once."""
    runs_per_tenant: int = 500
    threads_per_tenant: int = 100_000
    connections: int = 4_000
    """Open connections; one more is answered with 503."""
    requests_per_minute: int = 6_000
    """Of one token (or address, without tokens) over a minute."""
    header: float = 10.0
    """Until the head of a request is complete, and between two pieces of its body."""
    idle: float = 15.0
    """Of a kept connection between two requests."""
    ping: float = 15.0
    """Between two comments on a stream that has nothing to say."""
    send: float = 30.0
    """That a stream's reader may leave a piece unread."""
    drain: float = 20.0
    """For running steps to end after SIGTERM."""
    events_kept_of_runs: int = 20
    """Runs of a thread whose events can be read again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """How a server is run.

    Raises:
        ConfigError: It would be open to the network without tokens, or a value is none of those
            that there are.
    """

    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    auth: bool = True
    """False: whoever reaches it is the tenant `local` with all rights."""
    allowed_hosts: tuple[str, ...] = ()
    """Names under which it is reached, beside `localhost`, the loopback addresses and `host`."""
    allowed_origins: tuple[str, ...] = ()
    """Origins of web pages that may use it, such as `https://example.org`."""
    allowed_callbacks: tuple[str, ...] = ()
    """Origins of HTTP tools that may be private, beside those of agents.yaml."""
    on_disconnect: OnDisconnect = "continue"
    """What becomes of a run whose reader leaves, where the request does not say."""
    reload: bool = False
    """Read agents.yaml anew when it changes."""
    otel: bool = False
    """Send traces by OpenTelemetry, as the variables OTEL_… say; needs the extra `otel`."""
    limits: Limits = Limits()

    def __post_init__(self) -> None:
        if self.on_disconnect not in get_args(OnDisconnect):
            raise ConfigError(
                f"on_disconnect is {' or '.join(get_args(OnDisconnect))}, "
                f"and not {self.on_disconnect!r:.40}"
            )
        if not self.auth and not is_loopback(self.host):
            raise ConfigError(
                f"a server without tokens on {self.host} would be open to everybody who reaches "
                "it; leave out --no-auth, or bind 127.0.0.1"
            )


def is_loopback(host: str) -> bool:
    """Say whether an address to bind is reached from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
