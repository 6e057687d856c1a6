"""A span of every request, around all that the server does for it."""

from __future__ import annotations

from typing import Any, Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from wick_graph.server.guard import method_of
from wick_graph.tracing import recording
from wick_graph.tracing.requests import RequestTracer


class Traced:
    """An ASGI application around another one."""

    def __init__(self, app: ASGIApp, tracer: RequestTracer) -> None:
        self._app: Final = app
        self._tracer: Final = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request inside of its span; a run that it begins takes the span along."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        tracer = self._tracer
        with (
            tracer.request(method_of(scope), Headers(scope=scope)) as span,
            recording(tracer.recorder),
        ):

            async def sending(message: Message) -> None:
                if message["type"] == "http.response.start":
                    span.answered(message["status"])
                await send(message)

            try:
                await self._app(scope, receive, sending)
            except Exception as error:
                span.failed(type(error).__name__)
                raise
            finally:
                route: Any = scope.get("route")
                if route is not None:
                    span.routed(route.path)
