"""The backend that runs commands in containers; it needs the extra `docker`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wick_graph.lazy import load_when_used

if TYPE_CHECKING:
    from wick_graph.backends.docker.backend import DockerBackend, Sandboxes
    from wick_graph.backends.docker.container import BoxOptions
    from wick_graph.backends.docker.engine import reap

__all__ = ["BoxOptions", "DockerBackend", "Sandboxes", "reap"]

if not TYPE_CHECKING:
    __getattr__ = load_when_used(
        __name__,
        {
            "wick_graph.backends.docker.backend": ("DockerBackend", "Sandboxes"),
            "wick_graph.backends.docker.container": ("BoxOptions",),
            "wick_graph.backends.docker.engine": ("reap",),
        },
    )
