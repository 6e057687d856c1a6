"""`wick worker`, `wick runs`: processes that execute runs of servers, and what became of runs."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from wick_graph.cli import output
from wick_graph.cli.select import DEFAULT_FILE, opened, trusted_file

if TYPE_CHECKING:
    from wick_graph.config import AgentsFile
    from wick_graph.worker.queue import RunQueue

_SLOTS: Final[Any] = typer.Option(
    "--slots", metavar="N", min=1, max=1000, help="Runs at a time.  [default: workers.slots, 50]"
)

_TENANTS: Final[Any] = typer.Option(
    "--tenants", metavar="NAMES", help="Only runs of these tenants, with commas between them."
)

_DRAIN: Final[Any] = typer.Option(
    "--drain", metavar="TIME", help="The longest time for calls to end after SIGTERM."
)

_ALONE: Final[Any] = typer.Option("--alone", hidden=True)

_DEAD: Final[Any] = typer.Option("--dead", help="Only runs that killed their processes.")

_TENANT: Final[Any] = typer.Option("--tenant", metavar="NAME", help="The tenant of the runs.")

_LIMIT: Final[Any] = typer.Option("--limit", metavar="N", min=1, max=10_000, help="At most.")


def worker(
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    slots: Annotated[int | None, _SLOTS] = None,
    tenants: Annotated[str, _TENANTS] = "",
    drain: Annotated[str, _DRAIN] = "60s",
    otel: Annotated[
        bool, typer.Option("--otel", help="Export traces, as wick serve does.")
    ] = False,
    model: Annotated[str | None, output.MODEL] = None,
    trust: Annotated[bool, output.TRUST] = False,
    alone: Annotated[tuple[str, str, str, str] | None, _ALONE] = None,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Execute runs of servers until SIGTERM or Ctrl-C; needs PostgreSQL.

    The servers are started with `wick serve --workers external`. A worker that stops gives its
    runs to others as soon as their calls have ended; so does one that dies, after its lease.
    """
    from wick_graph.durations import seconds
    from wick_graph.service.options import Limits, ServerOptions
    from wick_graph.service.service import Service

    file = trusted_file(config, trust=trust)
    queue = queue_of(file)
    with contextlib.closing(queue):
        options = ServerOptions(otel=otel, limits=Limits(drain=seconds(drain) or 1e9))
        service = Service(file, options, model=model, path=config, queue=queue)
        if alone is not None:
            from wick_graph.worker.worker import alone as work_alone

            asyncio.run(work_alone(service, *alone))
            return
        from wick_graph.worker.worker import Worker

        again = [sys.executable, "-m", "wick_graph", "worker", "--config", str(config)]
        again += [*(("--model", model) if model else ()), *(("--trust",) if trust else ())]
        names = [name.strip() for name in tenants.split(",") if name.strip()]
        made = Worker(service, queue, slots=slots, tenants=names or None, alone=[*again, "--alone"])
        service.when_ready = lambda: output.say(f"working for {', '.join(service.local.agents)}")
        asyncio.run(made.run())


def queue_of(file: AgentsFile) -> RunQueue:
    """Open the queue of a file's store.

    Raises:
        ConfigError: The store is not PostgreSQL, or procrastinate is not installed.
        StorageError: The database cannot be used.
    """
    from wick_graph.worker.queue import RunQueue

    return RunQueue(file)


def runs(
    dead: Annotated[bool, _DEAD] = False,
    tenant: Annotated[str, _TENANT] = "local",
    limit: Annotated[int, _LIMIT] = 100,
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    as_json: Annotated[bool, output.AS_JSON] = False,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """List the latest runs of servers.

    A dead run killed its processes, at last one that ran nothing else; `wick threads retry` begins
    it again.
    """
    from datetime import UTC, datetime

    found = []
    with opened(config, tenant=tenant) as store:
        if store is not None:
            found = [row for row in store.streams.latest(limit) if row.dead or not dead]
    made = [
        {
            "run_id": row.run_id,
            "thread_id": row.thread_id,
            "agent": row.asked["agent"],
            "status": row.status,
            "dead": row.dead,
            "started": datetime.fromtimestamp(row.started, UTC).isoformat(),
        }
        for row in found
    ]
    if as_json:
        output.print_json(made)
        return
    for one in made:
        state = "dead" if one["dead"] else one["status"]
        output.print_line(f"{one['run_id']}  {one['thread_id']}  {one['agent']}  {state}")
