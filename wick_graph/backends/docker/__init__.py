"""The backend whose commands run in a container; the extra `docker` brings what it needs."""

from __future__ import annotations

from wick_graph.backends.docker.backend import DockerBackend
from wick_graph.backends.docker.box import BoxOptions
from wick_graph.backends.docker.engine import reap
from wick_graph.backends.docker.sandboxes import Sandboxes

__all__ = ["BoxOptions", "DockerBackend", "Sandboxes", "reap"]
