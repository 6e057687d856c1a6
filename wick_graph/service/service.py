"""The service: the agents and runs of each tenant, start-up, recovery and shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict, deque
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from functools import partial
from pathlib import Path
from typing import Any, Final

from wick_graph.config import AgentsFile, digest_of, is_trusted, load_config
from wick_graph.config.trusted import code_of
from wick_graph.constants import SWEEP_INTERVAL_SECONDS
from wick_graph.engine.agent import Agent
from wick_graph.errors import (
    ConfigError,
    StorageError,
    ThreadBusyError,
    ThreadNotFoundError,
    WickError,
)
from wick_graph.loading import Agents
from wick_graph.service.event_log import EventBus
from wick_graph.service.folders import config_for
from wick_graph.service.metrics import NOTED_SECONDS, WORKERS, Histogram, Metrics
from wick_graph.service.options import LOCAL, Problem, ServerOptions, log
from wick_graph.service.runs import PLACED, Queue, Runs
from wick_graph.service.tenants import CHANGES, TenantAgents, shared_by
from wick_graph.store import SqlSaver
from wick_graph.store.notices import Notices, topic
from wick_graph.store.saver import dialect_of
from wick_graph.tools.toolsets import ToolStore
from wick_graph.tracing import NULL_RECORDER, recording
from wick_graph.tracing.otel import RequestTracer
from wick_graph.web import Client

# --- The lag of the event loop: what blocks it, blocks every caller.


BOUNDS: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the lag buckets, in seconds."""

_WINDOW: Final = 60.0
"""Seconds over which the worst lag is reported."""


class Watchdog:
    """Measure how late a short sleep ends.

    Args:
        every: Seconds between two measurements.
        warn: Seconds of lag that are logged.
    """

    def __init__(self, every: float = 0.1, warn: float = 1.0) -> None:
        self._every, self._warn = every, warn
        self._lags = Histogram("wick_loop_lag_seconds", BOUNDS)
        self._worst: deque[tuple[float, float]] = deque()
        """Time and size of each lag that no later one exceeds."""

    @property
    def worst(self) -> float:
        """The largest lag of the last minute, in seconds."""
        return self._worst[0][1] if self._worst else 0.0

    async def watch(self) -> None:
        """Measure until cancelled."""
        while True:
            before = time.monotonic()
            await asyncio.sleep(self._every)
            now = time.monotonic()
            self.note(now, max(0.0, now - before - self._every))

    def note(self, now: float, lag: float) -> None:
        """Count a lag."""
        self._lags.note(lag)
        while self._worst and self._worst[-1][1] <= lag:
            self._worst.pop()
        self._worst.append((now, lag))
        while self._worst[0][0] < now - _WINDOW:
            self._worst.popleft()
        if lag >= self._warn:
            log.warning("the event loop was blocked for %.2f s; every caller waited", lag)

    def lines(self) -> Iterator[str]:
        """Yield the metric lines."""
        yield from self._lags.lines()
        yield "# TYPE wick_loop_lag_max_seconds gauge"
        yield f"wick_loop_lag_max_seconds {self.worst:.6f}"


_CALLBACKS: Final = "callbacks: allow: in agents.yaml, or start wick serve with --allow-callback"

_TENANTS: Final = 64
"""Idle tenants to keep open."""

_READ: Final = 0.5
"""Seconds between two checks of the configuration file for changes."""

_REFRESH: Final = (2.0, 15.0)
"""Seconds after which a request looks for changes at other servers; with notices, the second."""

_CHECKED: Final = 1.0
"""Seconds for which a check of the database is good."""

_ANSWERS: Final = 3.0
"""Seconds for the database to answer a check."""

_LOOK: Final = 10.0
"""Seconds between two searches for runs of dead servers."""


class Tenant:
    """One tenant's agents, threads and runs; no other tenant can reach them."""

    def __init__(self, name: str, service: Service) -> None:
        self.name = name
        self.bus = EventBus()
        self.agents = TenantAgents(
            Agents(
                config_for(service.file, name),
                model=service.model,
                tenant=name,
                given=service.given,
                common=service.tools,
            ),
            whole=lambda: service.file,
            rules=lambda: service.callbacks,
            tell=self.bus.tell,
            protect=service.bind_backends,
        )
        self.saver: SqlSaver = self.agents.store
        self.saver.notices = service.notices
        self.runs = Runs(
            name,
            self.saver,
            service.options.limits,
            service.metrics_of(name),
            self.bus.tell,
            service.queue,
        )
        self.runs.machine = self.agents.machine
        self.agents.take_over(self.saver.mailbox.fact(CHANGES))
        self._due = time.monotonic() + _REFRESH[self.saver.notices.works]
        self._notices = contextlib.ExitStack()
        self.recovering = asyncio.Lock()
        self.users = 0
        """Requests and jobs that use the tenant now."""

    @property
    def is_idle(self) -> bool:
        """Whether the tenant can be closed until it is needed again."""
        runs, agents = self.runs, self.agents
        return not (self.users or runs.live or runs.holders or agents.changed or agents.busy)

    def listen(self) -> None:
        """Take over at once what the tenant changes at other servers."""
        loop = asyncio.get_running_loop()

        def soon() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                asyncio.run_coroutine_threadsafe(self.refresh(now=True), loop)

        listening = self.saver.notices.listening(topic(CHANGES, self.name), soon)
        self._notices.enter_context(listening)

    async def refresh(self, *, now: bool = False) -> None:
        """Take over what the tenant has changed at other servers, if it is time, or `now`."""
        if not (now or time.monotonic() >= self._due):
            return
        self._due = time.monotonic() + _REFRESH[self.saver.notices.works]
        try:
            box = self.saver.mailbox
            kept = await box.run(box.fact, CHANGES)
            await asyncio.to_thread(self.agents.take_over, kept)
        except StorageError as error:  # each user of the store gets it too
            log.error("the agents of the tenant %s are not refreshed: %s", self.name, error)

    async def recover(self, runs: Collection[str] | None = None) -> None:
        """Recover the runs of dead servers, or those of them; not those of agents unknown here."""
        streams = self.saver.streams
        async with self.recovering:
            await self.refresh(now=True)
            for row in await streams.run(streams.running):
                if runs is not None and row.run_id not in runs:
                    continue
                if row.asked["agent"] not in self.agents:
                    continue  # a server that knows the agent recovers it
                try:
                    await self.runs.recover(self.agents.ready, row)
                except (ThreadBusyError, ThreadNotFoundError):
                    continue  # another process has it, or its thread was deleted
                except StorageError as error:
                    log.error("run %s will be recovered later: %s", row.run_id, error)

    def close(self) -> None:
        """Stop the tenant's containers; close its files and its store."""
        self._notices.close()
        self.agents.close()


class Service:
    """The agents, tenants and runs of a server."""

    def __init__(
        self,
        file: AgentsFile,
        options: ServerOptions | None = None,
        *,
        model: str | None = None,
        path: Path | None = None,
        tracer: RequestTracer | None = None,
        given: Mapping[str, Agent] | None = None,
        tools: ToolStore | None = None,
        queue: Queue | None = None,
    ) -> None:
        self.queue = queue
        """Where runs go that workers execute; without one, this process executes them."""
        self.tools = tools
        """Tools that the program gives to the agents of all tenants."""
        self.options = options or ServerOptions()
        self.given = given or {}
        """Agents made in Python, by id; each tenant has its own copy."""
        _check_given(self.given, several_tenants=self.options.auth)
        self.file = file
        self.model, self._path = model, path
        if file.vouched is None:  # creating the server trusts the file in its present state
            digest_of(file)
        self._seen: dict[str, Sequence[int]] = {}
        """The stamps of the file and its modules when they were read."""
        if path is not None:
            self._watch(path, file)
        self.tracer = RequestTracer.exporting() if self.options.otel and not tracer else tracer
        """Records the spans of requests and runs, or None."""
        _ = self.callbacks  # report its mistakes now
        self._tenants: OrderedDict[str, Tenant] = OrderedDict()
        self._metrics: dict[str, Metrics] = {LOCAL: Metrics()}
        """By tenant; those of `local` are of the whole server."""
        if queue is not None:
            queue.limits = lambda: self.file.limits
        self.gives_back = False
        """Whether runs go on elsewhere once their calls have ended, when this process stops."""
        self.jobs: list[Callable[[], Coroutine[Any, Any, None]]] = []
        """What a door does in the background while the service runs."""
        self.slots = 0
        """The runs that this process executes at a time, as a worker; 0 for a server."""
        self.recovers = queue is None
        """Whether this process looks for runs of dead ones; otherwise workers do."""
        self.watchdog = Watchdog()
        self.draining = False
        """Whether new runs are refused."""
        self.stop_now = asyncio.Event()
        """Set to stop waiting for running steps."""
        self.when_ready: Callable[[], None] = lambda: None
        """Called once requests are answered."""
        self._check: tuple[float, asyncio.Future[None]] | None = None
        """When the database was checked last, and the result."""
        self._opening = asyncio.Lock()
        self.notices = Notices(dialect_of(file.store_url))
        """Hints to other servers and workers of the database, and theirs."""
        if queue is not None:
            queue.tell = partial(self.notices.tell, PLACED)
        self.local = self._tenants[LOCAL] = Tenant(LOCAL, self)
        self.local.agents.build_all()

    @property
    def callbacks(self) -> Client:
        """The client for HTTP tools registered from now on.

        Raises:
            ConfigError: An allowed origin is not an origin.
        """
        allow = (*self.file.callbacks.allow, *self.options.allowed_callbacks)
        return Client(allow=allow, key=_CALLBACKS)

    @property
    def tokens(self) -> Any:
        """The access tokens of this server."""
        return self.local.saver.tokens

    @contextlib.asynccontextmanager
    async def using(self, name: str) -> AsyncIterator[Tenant]:
        """Keep a tenant open within the block.

        May close the tenant that has been idle longest.
        """
        if name not in self._tenants:
            async with self._opening:
                if name not in self._tenants:
                    self._tenants[name] = await asyncio.to_thread(Tenant, name, self)
                    self._tenants[name].listen()
        tenant = self._tenants[name]
        self._tenants.move_to_end(name)
        tenant.users += 1
        try:
            await self._close_idle()
            await tenant.refresh()
            yield tenant
        finally:
            tenant.users -= 1

    async def _close_idle(self) -> None:
        while len(self._tenants) > _TENANTS:
            idle = (key for key, found in self._tenants.items() if key != LOCAL and found.is_idle)
            if (name := next(idle, None)) is None:
                return
            await asyncio.to_thread(self._tenants.pop(name).close)

    def bind_backends(self) -> None:
        """Close what governs agents to the agents of all open tenants.

        Raises:
            ConfigError: An agent's commands could write it.
        """
        for tenant in [*self._tenants.values()]:
            tenant.agents.bind_backends()

    def metrics_of(self, tenant: str) -> Metrics:
        """Return a tenant's metrics, which outlive its closing."""
        return self._metrics.setdefault(tenant, Metrics(self._metrics[LOCAL]))

    def live_runs(self, tenant: str | None = None) -> int:
        """Count the live runs of this process, of all tenants or of one."""
        found = self._tenants.items()
        return sum(len(one.runs.live) for name, one in found if tenant in (None, name))

    def sandbox_levels(self) -> list[str]:
        """Name the sandbox levels at which the agents may run commands."""
        return self.local.agents.levels

    def open_tenants(self) -> int:
        """Count the tenants with an open store."""
        return len(self._tenants)

    async def unready(self) -> str | None:
        """Return why no requests can be served now; None if they can. All callers share a check."""
        if self.draining:
            return "the server is stopping"
        known, now = self._check, time.monotonic()
        if known is None or (known[1].done() and now >= known[0] + _CHECKED):
            work = self.local.saver.streams.run(self.local.saver.check)
            known = self._check = now, asyncio.ensure_future(work)
            known[1].add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            async with asyncio.timeout(_ANSWERS):
                await asyncio.shield(known[1])
        except TimeoutError:
            return "the database does not answer"
        except StorageError as error:  # its text names the database
            log.error("the server is not ready: %s", error)
            return "the database cannot be used"
        return None

    def check_open(self) -> None:
        """Check that the server is not stopping.

        Raises:
            Problem: It is.
        """
        if self.draining:
            raise Problem(503, "the server is stopping; try again", headers={"Retry-After": "5"})

    def check_capacity(self) -> None:
        """Check that the server accepts a new run.

        Raises:
            Problem: The server is stopping, or has too many runs.
        """
        self.check_open()
        if sum(one.runs.count for one in self._tenants.values()) >= self.options.limits.runs:
            raise Problem(
                503, "the server has too many runs; try again", headers={"Retry-After": "1"}
            )

    async def recover(self) -> None:
        """Recover the runs of dead servers, of every tenant."""
        streams, found = self.local.saver.streams, dict[str, set[str]]()
        for name, _, run_id in await streams.run(streams.orphans):
            found.setdefault(name, set()).add(run_id)
        for name, runs in found.items():
            try:
                async with self.using(name) as tenant:
                    await tenant.recover(runs)
            except Exception as error:  # recover the other tenants all the same
                log.error("cannot recover the runs of the tenant %s: %s", name, error)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the service: recover and sweep; at the end let running steps finish."""
        try:
            with recording(self.tracer.recorder if self.tracer else NULL_RECORDER):
                async with self._running():
                    yield
        finally:
            if self.tracer is not None:
                await asyncio.to_thread(self.tracer.close)

    @contextlib.asynccontextmanager
    async def _running(self) -> AsyncIterator[None]:
        self.notices.start()
        self.local.listen()
        if self.recovers:
            await self.recover()  # if it fails, no coroutine is left that was never begun
        jobs = [self._keep_sweeping(), self.watchdog.watch()]
        if self.recovers:
            jobs.append(self._keep_recovering())
        jobs += [job() for job in self.jobs]
        if self.slots:
            jobs.append(self._keep_noting())
        if self.options.reload and self._path is not None:
            jobs.append(self._keep_reading(self._path))
        tasks = [asyncio.create_task(job) for job in jobs]
        self.when_ready()
        try:
            yield
        finally:
            self.draining = True
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await self.drain(self.options.limits.drain)
            self.close()

    def close(self) -> None:
        """Close the stores and files of a service that does not run."""
        for tenant in self._tenants.values():
            tenant.close()
        self.notices.close()

    async def drain(self, seconds: float) -> None:
        """Let runs end for some seconds, then suspend the others until the next start."""
        self.draining = True
        for tenant in [*self._tenants.values()]:
            with contextlib.suppress(StorageError):  # then a kill while draining counts as a crash
                await tenant.saver.leases.anote_shutdown()
        soon, tenants = self.gives_back, [*self._tenants.values()]
        left = [tenant.runs.suspend(seconds, self.stop_now, soon=soon) for tenant in tenants]
        await asyncio.gather(*left)
        for tenant in self._tenants.values():
            tenant.bus.close()

    async def _keep_recovering(self) -> None:
        while True:
            await asyncio.sleep(_LOOK)
            try:
                await self.recover()
            except Exception as error:  # the next search may succeed
                log.error("cannot search for runs to recover: %s", error)

    async def _keep_noting(self) -> None:
        """Say in the database what this worker does, for the metrics of servers."""
        saver = self.local.saver
        box, key = saver.mailbox, WORKERS + saver.streams.server
        try:
            while True:
                note = {"at": saver.clock(), "slots": self.slots, **self._metrics[LOCAL].counts}
                with contextlib.suppress(StorageError):
                    await box.run(box.put_fact, key, note)
                await asyncio.sleep(NOTED_SECONDS / 4)
        finally:
            with contextlib.suppress(StorageError):
                await box.run(box.drop_fact, key)

    async def _keep_sweeping(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_INTERVAL_SECONDS)
            streams = self.local.saver.streams
            try:
                for name in await streams.run(streams.tenants_to_sweep):
                    async with self.using(name) as tenant:
                        await asyncio.to_thread(tenant.saver.sweep)
            except Exception as error:  # the next sweep may succeed
                log.error("cannot delete expired threads: %s", error)

    async def _keep_reading(self, path: Path) -> None:
        while True:
            now = await asyncio.to_thread(_stamps, [*self._seen])
            if now != self._seen:
                self._seen = now
                await self._read_again(path)
            await asyncio.sleep(_READ)

    def _watch(self, path: Path, file: AgentsFile) -> None:
        """Watch the file, and the modules beside it that it names."""
        known = self._seen.get(str(path))
        self._seen = _stamps([str(path), *code_of(file).hashes])
        if known is not None:  # what was written since is still to be read
            self._seen[str(path)] = known

    async def _read_again(self, path: Path) -> None:
        """Reload the file, if it can be read and all its agents can be built."""
        try:
            file, agents = await asyncio.to_thread(self._built, path)
        except Exception as error:  # whatever is wrong with the file, the server keeps the old one
            why = error if isinstance(error, WickError) else f"{type(error).__name__}: {error}"
            log.error("the configuration was not reloaded: %s", why)
            return
        async with self._opening:  # a tenant that opens meanwhile would keep the old file
            self.file = file
            for tenant in [*self._tenants.values()]:
                mine = tenant is self.local
                made = agents if mine else tenant.agents.of(config_for(file, tenant.name))
                await asyncio.to_thread(tenant.agents.replace, made)
        log.info("%s was reloaded: %s", path, ", ".join(file.agents))

    def _built(self, path: Path) -> tuple[AgentsFile, Agents]:
        file = load_config(path).adding(self.file.additions)
        self._watch(path, file)
        digest = digest_of(file)
        known = self.file.vouched
        if (known is None or digest != known.digest) and not is_trusted(file, digest):
            raise ConfigError(
                f"{path} starts programs or code that is not trusted in its present state; "
                "review it, run wick trust, and save it again"
            )
        store = (self.file.store_url, self.file.keys_source)
        if (file.store_url, file.keys_source) != store:
            raise ConfigError(f"{path} names another store; restart the server to use it")
        return file, self.local.agents.of(file, built=True)


def _check_given(given: Mapping[str, Agent], *, several_tenants: bool) -> None:
    """Check that agents made in Python keep tenants apart.

    Raises:
        ConfigError: One of them has a store or state of its own.
    """
    for agent_id, agent in given.items():
        if agent.given_store is not None and not isinstance(agent.given_store, str):
            remedy = (
                f"compile the graph {agent_id} without a checkpointer"
                if agent.spec.guest
                else f"leave store= of the agent {agent_id} out, or make it a database URL"
            )
            raise ConfigError(f"the server keeps the threads of each tenant apart; {remedy}")
        if several_tenants and (what := shared_by(agent)):
            raise ConfigError(
                f"the tenants of the server would share the {what} of the agent {agent_id}; "
                "declare it in agents.yaml, or serve one tenant alone with auth off"
            )


def _stamps(paths: Sequence[str]) -> dict[str, Sequence[int]]:
    return {path: _stamp(Path(path)) for path in paths}


def _stamp(path: Path) -> Sequence[int]:
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_size, found.st_ino
