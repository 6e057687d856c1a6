"""Metrics of a server in Prometheus' text format: what happened in it, and the runs of workers."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from wick_graph.service.options import LOCAL
from wick_graph.store.server_rows import QUEUED, RUNNING

if TYPE_CHECKING:
    from wick_graph.service.service import Service

MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

BUCKETS: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of the run durations, in seconds."""


class Histogram:
    """A histogram of durations.

    Args:
        name: The metric's name; it ends in `_seconds`.
        bounds: Upper bounds of the buckets, in seconds.
    """

    def __init__(self, name: str, bounds: Sequence[float]) -> None:
        self._name, self._bounds = name, bounds
        self._counts: Counter[float] = Counter()
        self._total = 0.0

    def note(self, seconds: float) -> None:
        """Count a duration."""
        self._total += seconds
        self._counts[next((bound for bound in self._bounds if seconds <= bound), math.inf)] += 1

    def lines(self) -> Iterator[str]:
        """Yield the metric lines."""
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
        whole: The metrics of the whole server, which count everything too.
    """

    def __init__(self, whole: Metrics | None = None) -> None:
        self._whole = whole
        self.requests: Counter[tuple[str, int]] = Counter()
        """By method and status."""
        self.runs: Counter[str] = Counter()
        """By why they stopped."""
        self.events = 0
        """Events sent to readers."""
        self.counts: Counter[str] = Counter(take_overs=0, leases_lost=0, dead=0)
        """Runs taken over from a dead process, lost to another one, and ended as deadly."""
        self._took = Histogram("wick_run_seconds", BUCKETS)

    def answered(self, method: str, status: int) -> None:
        """Count a request."""
        self.requests[method, status] += 1
        if self._whole is not None:
            self._whole.answered(method, status)

    def sent(self) -> None:
        """Count an event sent to a reader."""
        self.events += 1
        if self._whole is not None:
            self._whole.sent()

    def count(self, what: str) -> None:
        """Count one of `counts`."""
        self.counts[what] += 1
        if self._whole is not None:
            self._whole.count(what)

    def ran(self, status: str, seconds: float) -> None:
        """Count an ended run."""
        if self._whole is not None:
            self._whole.ran(status, seconds)
        self.runs[status] += 1
        self._took.note(seconds)

    def lines(self) -> Iterator[str]:
        """Yield the metric lines."""
        yield "# TYPE wick_requests_total counter"
        for (method, status), count in sorted(self.requests.items()):
            yield f'wick_requests_total{{method="{method}",status="{status}"}} {count}'
        yield "# TYPE wick_runs_total counter"
        for why, count in sorted(self.runs.items()):
            yield f'wick_runs_total{{stopped_because="{why}"}} {count}'
        yield "# TYPE wick_events_sent_total counter"
        yield f"wick_events_sent_total {self.events}"
        for what, count in self.counts.items():
            yield from (f"# TYPE wick_{what}_total counter", f"wick_{what}_total {count}")
        yield from self._took.lines()


def metrics_text(service: Service, tenant: str) -> str:
    """Return a tenant's metrics; for the tenant `local`, those of the whole server."""
    metrics, mine = service.metrics_of(tenant), None if tenant == LOCAL else tenant
    now = ["# TYPE wick_runs_live gauge", f"wick_runs_live {service.live_runs(mine)}"]
    if mine is None:
        now += ["# TYPE wick_tenants_open gauge", f"wick_tenants_open {service.open_tenants()}"]
        now += service.watchdog.lines()
    return "\n".join([*metrics.lines(), *now, ""])


WORKERS: Final = "workers/"
"""How the keys of facts begin with what live workers say of themselves."""

NOTED_SECONDS: Final = 60.0
"""Seconds after which a worker that says nothing is no longer counted."""


async def queue_text(service: Service, tenant: str) -> str:
    """Return the metrics of the runs of workers, from the database; `local` gets all tenants'."""
    saver, found = service.local.saver, dict[str, list[str]]()
    now = saver.clock()

    def add(name: str, value: float, owner: str | None = None) -> None:
        where = "" if owner is None else f'{{tenant="{re.sub(_QUOTED, "_", owner)}"}}'
        found.setdefault(f"wick_{name}", []).append(f"wick_{name}{where} {value:g}")

    oldest = 0.0
    for name, status, count, since in await saver.streams.run(saver.streams.unfinished):
        if tenant in (LOCAL, name):
            add("slots_used" if status == RUNNING else f"{status}_runs", count, name)
            if status == QUEUED:
                oldest = max(oldest, now - since)
                add("queued_oldest_seconds", max(0.0, now - since), name)
    add("queue_oldest_seconds", oldest)
    if tenant == LOCAL:
        notes = await saver.mailbox.run(saver.mailbox.facts, WORKERS)
        alive = [one for one in notes.values() if one["at"] > now - NOTED_SECONDS]
        add("workers", len(alive))
        for what in ("slots", "take_overs", "leases_lost", "dead"):
            add(f"workers_{what}", sum(one[what] for one in alive))
    lines = ((f"# TYPE {kind} gauge", *values) for kind, values in sorted(found.items()))
    return "".join(f"{line}\n" for group in lines for line in group)


_QUOTED: Final = r'["\\\n]'
