"""Who asks, and what of the service is theirs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.routing import APIRoute
from starlette.routing import Match
from starlette.types import Scope as AsgiScope

from wick_graph.agent import Agent
from wick_graph.server.guard import Caller, Needs
from wick_graph.server.options import ServerOptions
from wick_graph.server.problems import Problem
from wick_graph.server.service import Service, Tenant
from wick_graph.store import SqlSaver
from wick_graph.store.keeping.streams import Streams
from wick_graph.store.keeping.tokens import Scope
from wick_graph.store.threads import ThreadInfo


@dataclass(frozen=True, slots=True)
class Asker:
    """A caller with its tenant; what a route gets."""

    caller: Caller
    tenant: Tenant
    service: Service

    @property
    def options(self) -> ServerOptions:
        """How the server is run."""
        return self.service.options

    @property
    def saver(self) -> SqlSaver:
        """The tenant's store."""
        return self.tenant.saver

    @property
    def streams(self) -> Streams:
        """The tenant's streams."""
        return self.tenant.saver.streams

    async def agent(self, agent_id: str | None) -> Agent:
        """Return an agent, the default one where none is named.

        Raises:
            Problem: There is no such agent, or it cannot be built.
        """
        return await self.tenant.agents.ready(agent_id or self.tenant.agents.default_id)

    async def thread(self, thread_id: str) -> ThreadInfo:
        """Return a thread.

        Raises:
            Problem: There is no such thread.
        """
        found = await self.saver.threads.aget(thread_id)
        if found is None:
            raise Problem(404, "thread not found")
        return found

    async def agent_of(self, thread_id: str) -> Agent:
        """Return the agent that a thread belongs to.

        Raises:
            Problem: There is no such thread, or the agent is gone.
        """
        thread = await self.thread(thread_id)
        rows = await self.streams.run(self.streams.of_thread, thread_id, 1)
        named = rows[0].asked["agent"] if rows else thread.agent
        return await self.agent(named if named in self.tenant.agents else None)

    def must(self, scope: Scope) -> None:
        """Refuse a caller who may not do something.

        Raises:
            Problem: The token's scope does not allow it.
        """
        self.caller.must_have(scope)

    async def must_go_on(self, thread_id: str, agent: Agent) -> None:
        """Refuse an agent that is not the one under which the thread waits.

        Raises:
            Problem: There is no such thread, or it waits for a decision under another agent.
        """
        thread = await self.thread(thread_id)
        if thread.status == "waiting" and thread.agent not in (None, agent.name):
            raise Problem(
                409,
                f"the thread waits under the agent {thread.agent}, not {agent.name}; "
                "answer under that one, or send a new message",
            )


def _asker(*scopes: Scope) -> Callable[[Request], Awaitable[Asker]]:
    async def asker(request: Request) -> Asker:  # async: nothing here is worth a thread
        caller: Any = request.scope["state"]["caller"]
        caller.must_have(*scopes)
        return Asker(caller, request.scope["state"]["tenant"], request.app.state.service)

    asker.needs = scopes  # type: ignore[attr-defined]  # the guard asks before it reads a body
    return asker


def needed_by(routes: Iterable[APIRoute]) -> Needs:
    """Return what names the scopes of which a request's route needs one."""
    found = [
        (route, next(s for part in route.dependant.dependencies if (s := _needs(part.call))))
        for route in routes
        if any(_needs(part.call) for part in route.dependant.dependencies)
    ]

    def needs(scope: AsgiScope) -> tuple[Scope, ...] | None:
        for route, wanted in found:
            if route.matches(scope)[0] is Match.FULL:
                return wanted
        return None

    return needs


def _needs(call: Any) -> tuple[Scope, ...] | None:
    return getattr(call, "needs", None)


Reader = Annotated[Asker, Depends(_asker("read"))]
Runner = Annotated[Asker, Depends(_asker("run"))]
Answerer = Annotated[Asker, Depends(_asker("run", "approve"))]
"""Who may answer: a question needs `run`, a call that waits needs `approve`."""
Admin = Annotated[Asker, Depends(_asker("admin"))]
