"""The FastAPI application: routes, the guard before them, and one form for every error."""

from __future__ import annotations

import ast
import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from itertools import chain
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse

from wick_graph import __version__
from wick_graph.config import schema as config_schema
from wick_graph.config.fields import UNION_TAGS, classes_in, describe
from wick_graph.debug import DebugSession, protocol
from wick_graph.errors import WickError
from wick_graph.server import schemas
from wick_graph.server.guard import OPEN, Guard, Traced, needed_by
from wick_graph.server.limits import Budgets
from wick_graph.server.protocols import a2a, ag_ui, ai_sdk, openai
from wick_graph.server.protocols.langgraph import protocol as langgraph_protocol
from wick_graph.server.protocols.langgraph import runs as langgraph_runs
from wick_graph.server.protocols.langgraph import threads as langgraph_threads
from wick_graph.server.recordings import Recordings
from wick_graph.server.routes import agents, operations, page, page_stream, runs, threads
from wick_graph.server.routes.agents import file_router, tool_router
from wick_graph.server.routes.runs import approval_router
from wick_graph.server.routes.tenant import tenant_router
from wick_graph.server.sign_in import SignIns
from wick_graph.service.options import OPENAI_PATH, Problem, error_body, problem_of
from wick_graph.service.service import Service

ROUTES: Final = (
    operations.health_router,
    tool_router,
    operations.trace_router,
    file_router,
    approval_router,
    tenant_router,  # before a path with any agent's id
    agents.agent_router,
    runs.run_router,
    threads.router,
    openai.router,
    ag_ui.router,
    ai_sdk.router,
    a2a.router,
    langgraph_runs.router,
    langgraph_threads.router,
    langgraph_protocol.router,
    page.router,
    page_stream.router,
)

_DESCRIBED: Final = (schemas, agents, page, protocol, config_schema)
"""Modules with bodies; their fields have texts below them."""

_ERRORS: Final = {
    400: "The request is refused.",
    401: "A valid token is needed.",
    403: "The token does not allow it.",
    404: "There is nothing of that name.",
    408: "The body came too slowly.",
    409: "The thread is busy, or its state does not allow this.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    429: "Too many requests, bytes or runs.",
    500: "The run failed.",
    503: "The server cannot do this now.",
}

_REF: Final = "#/components/schemas/{model}"

_CORS: Final[dict[str, Any]] = {
    "allow_methods": ["GET", "POST", "PUT", "PATCH", "DELETE"],
    "allow_headers": [
        *("Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID", "X-Thread-Id"),
        *("X-Api-Key", "A2A-Version"),
    ],
    "expose_headers": [
        "Content-Location",
        "Location",
        "Retry-After",
        "X-Request-Id",
        "X-Run-Id",
        "X-Thread-Id",
    ],
}


def create_app(service: Service) -> FastAPI:
    """Build the application that serves a service's agents."""

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with service.running():
            yield
            await asyncio.to_thread(app.state.recordings.close)

    app = FastAPI(
        title="wick",
        version=__version__,
        summary="Agents over HTTP.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        # FastAPI would make those of an included router anew, in 60 ms for each application.
        routes=[*chain.from_iterable(router.routes for router in (*ROUTES, page.file_router))],
    )
    app.state.service = service
    app.state.sign_ins = sign_ins = SignIns()
    app.state.langgraph_seen = langgraph_protocol.Seen()
    app.state.graphs = {}  # LangGraph graphs that sessions of the page run, by name
    app.state.recordings = Recordings(DebugSession.open)
    app.add_exception_handler(RequestValidationError, _refused)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Problem, _problem)
    app.add_exception_handler(WickError, _problem)
    budgets = Budgets()
    service.jobs.append(lambda: budgets.share(service.local.saver))
    checks: Any = {"needs": needed_by(_routes()), "sign_ins": sign_ins, "budgets": budgets}
    app.add_middleware(Guard, service=service, **checks)
    if service.tracer is not None:
        app.add_middleware(Traced, tracer=service.tracer)
    if service.options.allowed_origins:  # browsers send a preflight request without a token
        app.add_middleware(CORSMiddleware, allow_origins=service.options.allowed_origins, **_CORS)
    _describe(app, service)
    return app


def _answers() -> dict[str, dict[str, Any]]:
    """Describe the errors by a reference: of a model FastAPI makes a field for each route."""
    body = {"application/json": {"schema": {"$ref": _REF.format(model="ErrorAnswer")}}}
    return {str(number): {"description": told, "content": body} for number, told in _ERRORS.items()}


def _describe(app: FastAPI, service: Service) -> None:
    """Complete the OpenAPI description: security, JSON errors, and no 422 answers."""
    make = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is not None:  # FastAPI keeps it
            return app.openapi_schema
        schema = make()
        for methods in schema["paths"].values():
            for operation in methods.values():
                operation["responses"] = dict(sorted((_answers() | operation["responses"]).items()))
                operation["responses"].pop("422", None)
                for status, answer in operation["responses"].items():
                    if int(status) >= 400:  # whatever the type of an answer, errors are JSON
                        kind = next(iter(answer["content"].values()))
                        answer["content"] = {"application/json": kind}
                for parameter in operation.get("parameters", ()):
                    _never_null(parameter["schema"])
        models = schema["components"]["schemas"]
        made = models_json_schema([(schemas.ErrorAnswer, "serialization")], ref_template=_REF)
        models.update(made[1]["$defs"])
        schema["components"]["schemas"] = models = dict(sorted(models.items()))
        _explain(models)
        if service.options.auth:
            parts = schema.setdefault("components", {})
            parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            schema["security"] = [{"token": []}]
            for path in OPEN:
                schema["paths"][path]["get"]["security"] = []
        return schema

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's documented way


def _explain(models: dict[str, Any]) -> None:
    """Add the text below each field in the source."""
    for classes in (classes_in(module.__name__) for module in _DESCRIBED):
        for name in models.keys() & classes.keys():
            family = [name]
            for kind in family:  # which grows by its bases
                family += {*map(ast.unparse, classes[kind].bases)} & {*classes}
                describe(models[name].get("properties", {}), classes[kind])


def _never_null(schema: dict[str, Any]) -> None:
    """Remove `null` from a parameter's schema: it may be missing, but never null."""
    kinds = [kind for kind in schema.get("anyOf", ()) if kind.get("type") != "null"]
    if len(kinds) == 1:
        del schema["anyOf"]
        schema.update(kinds[0])


async def _problem(request: Request, error: Exception) -> JSONResponse:
    problem = problem_of(error)
    if problem.status >= 500:
        number = request.scope["state"]["request_id"]
        problem.more = {**problem.more, "request_id": number}
    return _answer(request, problem)


def _answer(request: Request, problem: Problem) -> JSONResponse:
    body = error_body(problem, request.url.path)
    return JSONResponse(body, problem.status, headers=dict(problem.headers))


async def _http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    words = {404: "not found", 405: "method not allowed"}
    text = words.get(error.status_code, str(error.detail))
    headers = dict(error.headers or {})
    if error.status_code == 405:
        headers["Allow"] = ", ".join(_methods(request))
    return _answer(request, Problem(error.status_code, text, headers=headers))


def _methods(request: Request) -> list[str]:
    """List the methods of a path; a fixed path precedes one with a parameter."""
    fitting = [r for r in _routes() if r.path_regex.match(request.url.path)]
    path = min((route.path for route in fitting), key=lambda path: path.count("{"), default="")
    return sorted({method for r in fitting if r.path == path for method in r.methods or ()})


def _routes() -> Iterator[APIRoute]:
    every = (route for router in ROUTES for route in router.routes)
    return (route for route in every if isinstance(route, APIRoute))


async def _refused(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    found = error.errors()[0]
    where, *names = found["loc"]
    named = where == "body" and names and isinstance(names[0], str)
    openai_s = request.url.path.startswith(OPENAI_PATH)
    more = {"param": names[0]} if named and openai_s else {}
    return _answer(request, Problem(400, _sentence(found), more))


def _sentence(found: Any) -> str:
    """Describe the first error of a request; field errors of messages name the message."""
    place, text = [*found["loc"]], str(found["msg"])
    if place[:2] == ["body", "messages"] and len(place) > 2:
        named = f"message[{place[2]}]: " + ".".join(map(str, place[3:4]))
    else:
        named = ".".join(str(step) for step in place[1:] or place if step not in UNION_TAGS)
    if found["type"] == "extra_forbidden":
        text = "unknown field"
    elif found["type"] == "missing":
        text = "is required"
    named = named.rstrip(": ") if not named.endswith("]") else named
    return f"{named}: {text[:1].lower()}{text[1:]}"[:500]
