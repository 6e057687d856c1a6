"""The container engine: its connection, and the owners of its containers."""

from __future__ import annotations

import importlib
import os
import platform
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from wick_graph import machine
from wick_graph.errors import ConfigError, missing_extra

OWNER: Final = "wick-graph.owner"
"""Label of a container with the process that owns it."""

USER: Final = "wick-graph.user"

MISSING: Final = missing_extra("the docker backend", "docker", "docker")

_USUAL: Final = "unix:///var/run/docker.sock"

_CALL_SECONDS: Final = 60

_OK: Final = 200

_FIX: Final = "start one that speaks Docker's API, and set DOCKER_HOST if it is not Docker"


_Socket = tuple[str, int, int]

_known: Final[dict[_Socket, tuple[bool, str]]] = {}
"""What the engines of this machine have said, by their sockets."""


class Engine:
    """A connection to an engine, made on first use.

    Args:
        host: Its address, such as `unix:///run/docker.sock`; None for the environment's.
    """

    def __init__(self, host: str | None = None) -> None:
        self._host: Final = host
        self._client: Any = None

    @property
    def client(self) -> Any:
        """Return the SDK's client.

        Raises:
            ConfigError: the SDK is not installed, or no engine answers.
        """
        if self._client is None:
            docker = sdk()
            self._must_be_there()
            try:
                self._client = self._connected(docker)
            except (docker.errors.DockerException, OSError, ValueError) as error:
                raise ConfigError(
                    f"no container engine answers ({_short(error)}); {_FIX}"
                ) from None
        return self._client

    def _connected(self, docker: Any) -> Any:
        """Connect by the form of the API that the engine names as it answers a ping.

        The SDK asks for the version itself, which takes Podman half a second.
        """
        client = self._in_form(docker, docker.constants.DEFAULT_DOCKER_API_VERSION)
        with closing(client):
            answer = client.api.get(f"{client.api.base_url}/_ping", timeout=_CALL_SECONDS)
        return self._in_form(docker, answer.headers.get("Api-Version") or "auto")

    def _in_form(self, docker: Any, version: str) -> Any:
        if self._host is None:
            return docker.from_env(timeout=_CALL_SECONDS, version=version)
        return docker.DockerClient(base_url=self._host, timeout=_CALL_SECONDS, version=version)

    @contextmanager
    def speaking(self, doing: str) -> Iterator[Any]:
        """Yield the client; turn its errors into one sentence.

        Raises:
            ConfigError: the engine refused, or went away.
        """
        client = self.client
        errors = sdk().errors
        try:
            yield client
        except errors.ImageNotFound as error:
            raise ConfigError(
                f"{doing} failed: the engine does not have the image; "
                f"build it or pull it first ({_short(error)})"
            ) from error
        except (errors.DockerException, OSError) as error:
            raise ConfigError(f"{doing} failed: {_short(error)}") from error

    @property
    def _address(self) -> str:
        return self._host or os.environ.get("DOCKER_HOST") or _USUAL

    def _must_be_there(self) -> None:
        kind, _, path = self._address.partition("://")
        if kind == "unix" and not Path(path).exists():
            raise ConfigError(f"no container engine answers (there is no {path}); {_FIX}")

    def facts(self) -> tuple[bool, str]:
        """Say whether an ordinary user runs the engine, and where Podman's system call filter is.

        That user is root in the containers. Other engines than Podman have no such file: `""`.
        Each answer takes Podman 0.2 s or more, so an engine of this machine is asked once for each
        socket that it makes.
        """
        socket = _identity(self._address)
        if socket not in _known:
            found = self._facts()
            if socket is None or socket != _identity(self._address):
                return found
            _known[socket] = found
        return _known[socket]

    def _facts(self) -> tuple[bool, str]:
        """Ask, Podman by its own name."""
        with self.speaking("asking the engine what it is") as client:
            own = f"{client.api.base_url}/v4.0.0/libpod/info"
            answer = client.api.get(own, timeout=_CALL_SECONDS)
            if answer.status_code == _OK:
                found = answer.json().get("host", {}).get("security", {})
                return bool(found.get("rootless")), str(found.get("seccompProfilePath") or "")
            options = client.info().get("SecurityOptions") or ()
        return any("rootless" in str(option) for option in options), ""

    def close(self) -> None:
        """Close the connection; the next use makes another."""
        client, self._client = self._client, None
        if client is not None:
            client.close()


def sdk() -> Any:
    """Import the SDK.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        return importlib.import_module("docker")
    except ModuleNotFoundError as error:
        raise ConfigError(MISSING) from error


def reap(host: str | None = None) -> int:
    """Remove the containers of processes that have ended; return their number.

    A container normally ends with the process that started it; this removes the others.
    """
    engine = Engine(host)
    count = 0
    try:
        with engine.speaking("removing what ended processes have left") as client:
            # Sparse: the SDK asks about each one otherwise, and fails if it has ended meanwhile.
            for box in client.containers.list(all=True, sparse=True, filters={"label": OWNER}):
                if not is_alive(str(box.attrs["Labels"].get(OWNER, ""))):
                    remove(box)
                    count += 1
    finally:
        engine.close()
    return count


def remove(box: Any) -> None:
    """Kill and remove a container; a missing one is not an error."""
    with suppress(sdk().errors.APIError):
        box.remove(force=True, v=True)


def owner() -> str:
    """Return a name of this process that no later process can have."""
    return f"{platform.node()}:{os.getpid()}:{machine.started(os.getpid())}"


def is_alive(name: str) -> bool:
    """Say whether the process of that name may still exist; another host's always may."""
    host, _, rest = name.rpartition(":")[0].rpartition(":")
    started = name.rpartition(":")[2]
    if host != platform.node() or not rest.isdigit():
        return bool(host)
    return machine.is_number_in_use(int(rest)) and machine.lives(int(rest), started) is not False


def _identity(address: str) -> _Socket | None:
    """Return what tells the socket of an engine from those before it; None for other addresses."""
    kind, _, path = address.partition("://")
    try:
        found = Path(path).stat() if kind == "unix" else None
    except OSError:
        return None
    return None if found is None else (address, found.st_ino, found.st_ctime_ns)


def _short(error: BaseException) -> str:
    text = str(getattr(error, "explanation", None) or error)
    return " ".join(text.split())[:300]
