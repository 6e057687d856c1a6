"""Counters of the server, in the text form that Prometheus reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from wick_graph.server.service import Service

MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of the times that runs took, in seconds."""


class Metrics:
    """What has happened since the server started."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        """By method and status."""
        self.runs: Counter[str] = Counter()
        """By why they stopped."""
        self.events = 0
        """Sent to readers."""
        self._took: Counter[float] = Counter()
        self._total = 0.0

    def ran(self, status: str, seconds: float) -> None:
        """Count a run that has ended."""
        self.runs[status] += 1
        self._total += seconds
        self._took[next((b for b in BUCKETS if seconds <= b), float("inf"))] += 1

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
        yield "# TYPE wick_run_seconds histogram"
        below = 0
        for bound in BUCKETS:
            below += self._took[bound]
            yield f'wick_run_seconds_bucket{{le="{bound}"}} {below}'
        count = sum(self._took.values())
        yield f'wick_run_seconds_bucket{{le="+Inf"}} {count}'
        yield f"wick_run_seconds_sum {self._total:.6f}"
        yield f"wick_run_seconds_count {count}"


def text(service: Service) -> str:
    """Return all numbers of a service."""
    now = (
        *("# TYPE wick_runs_live gauge", f"wick_runs_live {service.live_runs()}"),
        *("# TYPE wick_tenants_open gauge", f"wick_tenants_open {service.open_tenants()}"),
    )
    return "\n".join([*service.metrics.lines(), *service.watchdog.lines(), *now, ""])
