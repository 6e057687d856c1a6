"""The engine's own system call filter, made narrower: no socket that leaves the container.

AF_VSOCK reaches the machine below, whatever network namespace stands around. Docker refuses it by
itself. Podman's filter does not, but is a file that can be read, and Podman takes another one by
its path.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from wick_graph.backends.docker.engine import Engine
from wick_graph.errors import ConfigError

_ALLOW: Final = "SCMP_ACT_ALLOW"
_NETLINK: Final = 16
_FAMILIES: Final = (1, 2, 10, _NETLINK)
"""UNIX, INET, INET6 and NETLINK, as at the other levels."""
_AUDIT: Final = 9
"""The protocol of NETLINK that asks for a capability."""
_CALLS: Final = frozenset({"socket", "socketcall"})
"""The second makes sockets for programs of 32 bits, of a family that no filter can see."""


@contextmanager
def narrowed(engine: Engine) -> Iterator[list[str]]:
    """Give the options by which a container gets the filter, if the engine needs any.

    Raises:
        ConfigError: The engine's own filter cannot be read.
    """
    path = engine.filter_path()
    if not path:
        yield []
        return
    try:
        profile = narrower(json.loads(Path(path).read_text("utf-8")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"the engine's system call filter {path} cannot be read ({type(error).__name__}); "
            "containers are launched only with a filter that holds sockets"
        ) from error
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as made:
        json.dump(profile, made)
        made.flush()
        yield [f"seccomp={made.name}"]


def narrower(profile: dict[str, Any]) -> dict[str, Any]:
    """Return a filter that allows sockets of four families alone."""
    kept = []
    for rule in profile["syscalls"]:
        names = [name for name in rule["names"] if name not in _CALLS]
        if names:
            kept.append({**rule, "names": names})
    return {**profile, "syscalls": [*kept, *(_allowed(family) for family in _FAMILIES)]}


def _allowed(family: int) -> dict[str, Any]:
    args = [{"index": 0, "value": family, "op": "SCMP_CMP_EQ"}]
    if family == _NETLINK:
        args.append({"index": 2, "value": _AUDIT, "op": "SCMP_CMP_NE"})
    return {"names": ["socket"], "action": _ALLOW, "args": args}
