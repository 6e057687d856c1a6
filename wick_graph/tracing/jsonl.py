"""A recorder that writes each span and event as a line of JSON."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from wick_graph.errors import ConfigError


class JsonlRecorder:
    """Append to a file that only its owner may read; each line is a whole one.

    A span is `{"kind": "span", "name", "start", "duration_ms", "attributes"}`, an event
    `{"kind": "event", "name", "at", "attributes"}`; times are UTC in ISO form.

    Args:
        path: The file; it is made if it is not there.
        content: Whether texts themselves are recorded, and not their lengths and hashes alone.

    Raises:
        ConfigError: The file cannot be opened for writing.
    """

    def __init__(self, path: str | Path, *, content: bool = False) -> None:
        self.content = content
        self._lock = threading.Lock()
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        try:
            self._fd = os.open(path, flags, 0o600)
        except OSError as error:
            why = error.strerror
            raise ConfigError(f"the trace file {path} cannot be opened: {why}") from error

    def start_span(self, name: str) -> _Span:
        """Begin a span; it is written when it ends."""
        return _Span(self, name)

    def record_event(self, name: str, metadata: Mapping[str, Any]) -> None:
        """Write an event."""
        at = datetime.now(UTC).isoformat()
        self.write({"kind": "event", "name": name, "at": at, "attributes": dict(metadata)})

    def write(self, line: Mapping[str, Any]) -> None:
        """Write a line in one call, so that lines of several processes do not mix."""
        text = json.dumps(line, ensure_ascii=False, default=str, separators=(",", ":"))
        data = (text + "\n").encode("utf-8", "replace")
        with self._lock:
            if self._fd >= 0:
                os.write(self._fd, data)

    def close(self) -> None:
        """Close the file; what comes later is not recorded."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class _Span:
    def __init__(self, recorder: JsonlRecorder, name: str) -> None:
        self._recorder = recorder
        self._name = name
        self._start = datetime.now(UTC).isoformat()
        self._began = time.perf_counter()
        self._attributes: dict[str, Any] = {}
        self._ended = False

    def set(self, key: str, value: Any) -> Self:
        self._attributes[key] = value
        return self

    def end(self) -> None:
        if self._ended:
            return
        self._ended = True
        self._recorder.write(
            {
                "kind": "span",
                "name": self._name,
                "start": self._start,
                "duration_ms": round((time.perf_counter() - self._began) * 1000, 3),
                "attributes": self._attributes,
            }
        )
