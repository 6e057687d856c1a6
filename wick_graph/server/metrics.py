"""Counters of the server, in the text form that Prometheus reads."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from wick_graph.server.tenancy import LOCAL

if TYPE_CHECKING:
    from wick_graph.server.service import Service

MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of the times that runs took, in seconds."""


class Histogram:
    """How long something took, each time.

    Args:
        name: Of the metric; it ends in `_seconds`.
        bounds: Upper bounds of the times that are counted apart, in seconds.
    """

    def __init__(self, name: str, bounds: Sequence[float]) -> None:
        self._name, self._bounds = name, bounds
        self._counts: Counter[float] = Counter()
        self._total = 0.0

    def note(self, seconds: float) -> None:
        """Count a time."""
        self._total += seconds
        self._counts[next((bound for bound in self._bounds if seconds <= bound), math.inf)] += 1

    def lines(self) -> Iterator[str]:
        """Yield the lines of what was counted."""
        yield f"# TYPE {self._name} histogram"
        below = 0
        for bound in self._bounds:
            below += self._counts[bound]
            yield f'{self._name}_bucket{{le="{bound}"}} {below}'
        count = self._counts.total()
        yield f'{self._name}_bucket{{le="+Inf"}} {count}'
        yield f"{self._name}_sum {self._total:.6f}"
        yield f"{self._name}_count {count}"


class Metrics:
    """What has happened since the server started.

    Args:
        whole: Those of the whole server, in which everything is counted too.
    """

    def __init__(self, whole: Metrics | None = None) -> None:
        self._whole = whole
        self.requests: Counter[tuple[str, int]] = Counter()
        """By method and status."""
        self.runs: Counter[str] = Counter()
        """By why they stopped."""
        self.events = 0
        """Sent to readers."""
        self._took = Histogram("wick_run_seconds", BUCKETS)

    def answered(self, method: str, status: int) -> None:
        """Count a request."""
        self.requests[method, status] += 1
        if self._whole is not None:
            self._whole.answered(method, status)

    def sent(self) -> None:
        """Count an event that was sent to a reader."""
        self.events += 1
        if self._whole is not None:
            self._whole.sent()

    def ran(self, status: str, seconds: float) -> None:
        """Count a run that has ended."""
        if self._whole is not None:
            self._whole.ran(status, seconds)
        self.runs[status] += 1
        self._took.note(seconds)

    def lines(self) -> Iterator[str]:
        """Yield the lines of what was counted."""
        yield "# TYPE wick_requests_total counter"
        for (method, status), count in sorted(self.requests.items()):
            yield f'wick_requests_total{{method="{method}",status="{status}"}} {count}'
        yield "# TYPE wick_runs_total counter"
        for why, count in sorted(self.runs.items()):
            yield f'wick_runs_total{{stopped_because="{why}"}} {count}'
        yield "# TYPE wick_events_sent_total counter"
        yield f"wick_events_sent_total {self.events}"
        yield from self._took.lines()


def text(service: Service, tenant: str) -> str:
    """Return a tenant's own numbers; for who runs the server, those of all of it."""
    metrics, mine = service.metrics_of(tenant), None if tenant == LOCAL else tenant
    now = ["# TYPE wick_runs_live gauge", f"wick_runs_live {service.live_runs(mine)}"]
    if mine is None:
        now += ["# TYPE wick_tenants_open gauge", f"wick_tenants_open {service.open_tenants()}"]
        now += service.watchdog.lines()
    return "\n".join([*metrics.lines(), *now, ""])
