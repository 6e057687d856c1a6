"""The page: its files, signing in, and its API over the recordings of threads.

Reading needs the scope `read`, a session `debug`, and what a session executes `run` as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from importlib.resources import files
from typing import Annotated, Any, Final, ParamSpec, TypeVar

from fastapi import APIRouter, Depends, HTTPException, Path, Query, Request, Response
from pydantic import Field
from starlette.responses import RedirectResponse, StreamingResponse

from wick_graph.debug import DebugSession, protocol
from wick_graph.debug.answers import Answers, Showing
from wick_graph.engine.result import new_thread_id
from wick_graph.errors import DebugError, StorageError, ThreadBusyError, ThreadNotFoundError
from wick_graph.exports.plain import Hider, plain
from wick_graph.journal.value_store import Mask, known_secrets
from wick_graph.picture import Picture, overlay_of, picture_of
from wick_graph.picture.formats import drawn
from wick_graph.server import schemas
from wick_graph.server.guard import API, PAGE, Admin, Debugging, Reader, RequestContext
from wick_graph.server.recordings import Recordings, Session, answers_of, is_admitted
from wick_graph.server.sign_in import LASTS, Signed, SignIns
from wick_graph.service.options import LOCAL, Problem
from wick_graph.service.runs import RunRequest
from wick_graph.store.server_rows import SCOPES

# --- The files of the page: they hold no data, and need no token.


file_router: Final = APIRouter()

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
"""The page loads its own files and talks to its own origin, and nothing else."""

_KINDS: Final = {"css": "text/css", "js": "text/javascript"}


def _files() -> dict[str, tuple[bytes, str]]:
    """Read the files of the page by their names, each with its media type."""
    root = files("wick_graph.server").joinpath("page")
    found = {}
    for name, folder in (("", "small"), ("vendor/", "vendor")):
        for one in root.joinpath(folder).iterdir():
            kind = _KINDS.get(one.name.rpartition(".")[2])
            if kind is not None:
                found[name + one.name] = one.read_bytes(), f"{kind}; charset=utf-8"
    index = root.joinpath("index.html").read_bytes()
    found["index.html"] = index, "text/html; charset=utf-8"
    return found


_FILES: Final = _files()


@file_router.get(PAGE, include_in_schema=False)
async def to_page() -> Response:
    """Lead to the page."""
    return RedirectResponse(f"{PAGE}/", 308)


@file_router.get(f"{PAGE}/", include_in_schema=False)
@file_router.get(f"{PAGE}/{{name:path}}", include_in_schema=False)
async def file(name: str = "") -> Response:
    """Return a file of the page."""
    if f"{PAGE}/{name}".startswith(f"{API}/"):  # a path of the page alone: the guard leads others
        raise HTTPException(405)
    found = _FILES.get(name or "index.html")
    if found is None:
        raise Problem(404, "not found")
    headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-cache"}
    return Response(found[0], media_type=found[1], headers=headers)


# --- Signing in.


router: Final = APIRouter(tags=["page"], prefix=API)


class SignInAnswer(schemas.Answer):
    """A browser has signed in."""

    secret: str
    """The second secret: the page sends it with each request, as `X-Wick-Secret`."""
    tenant: str
    """The tenant."""
    scopes: list[str]
    """What the token allows."""


class WhoAnswer(schemas.Answer):
    """Who asks."""

    tenant: str
    """The tenant."""
    scopes: list[str]
    """What may be done."""


@router.post("/sign-in", response_model=SignInAnswer)
async def sign_in(context: Reader, request: Request, response: Response) -> Any:
    """Sign a browser in by a token in `Authorization`; its cookie lasts for 12 hours."""
    origin = request.headers.get("origin", "")
    if origin.rpartition("//")[2].lower() != request.headers["host"].lower():
        raise Problem(403, "sign in from the page itself")
    caller, sign_ins = context.caller, _sign_ins(request)
    signed = Signed(caller.tenant, caller.scope, caller.token)
    cookie, secret = sign_ins.begin(signed)
    secure = origin.startswith("https://")
    response.set_cookie(
        sign_ins.name(secure=secure),
        cookie,
        max_age=LASTS,
        path="/" if secure else API,
        secure=secure,
        httponly=True,
        samesite="strict",
    )
    return {"secret": secret, "tenant": caller.tenant, "scopes": _scopes(context)}


@router.delete("/sign-in", status_code=204, response_class=Response)
async def sign_out(context: Reader, request: Request) -> Response:
    """Sign this browser out."""
    _sign_ins(request).end("; ".join(request.headers.getlist("cookie")))
    return Response(status_code=204)


@router.get("/me", response_model=WhoAnswer)
async def who(context: Reader) -> Any:
    """Say who asks."""
    return {"tenant": context.caller.tenant, "scopes": _scopes(context)}


def _scopes(context: RequestContext) -> list[str]:
    return [scope for scope in SCOPES if context.caller.allows(scope)]


def _sign_ins(request: Request) -> SignIns:
    found: SignIns = request.app.state.sign_ins
    return found


# --- Threads and their recordings.


Seq = Annotated[int, Path(ge=1, le=2**32 - 1, description="The moment's number.")]

Offset = Annotated[int, Query(ge=0, le=2**31, description="Items before the first one.")]

Items = Annotated[int, Query(ge=1, le=protocol.MOST, description="The most to return.")]

StatePath = Annotated[
    str, Query(max_length=1_000, description="A path, as in `messages[-1].content`.")
]

_LINES: Final[dict[int | str, dict[str, Any]]] = {
    200: {"content": {"application/x-ndjson": {}}, "description": "Hits, one JSON object a line."}
}

_FILE: Final[dict[int | str, dict[str, Any]]] = {
    200: {"content": {"text/html": {}}, "description": "A file that loads nothing."}
}

P = ParamSpec("P")

T = TypeVar("T")


async def _asked(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Ask beside the event loop; what is not recorded is not found."""
    try:
        return await asyncio.to_thread(work, *args, **kwargs)
    except (ThreadBusyError, ThreadNotFoundError):
        raise
    except (DebugError, StorageError) as error:
        raise Problem(404, str(error)) from None


async def _of_thread(context: Reader, request: Request, thread_id: schemas.ThreadIdPath) -> Answers:
    return await answers_of(context, request, thread_id)


Asked = Annotated[Answers, Depends(_of_thread)]
"""The answers about the thread of a path."""

_THREAD: Final = "/threads/{thread_id}"

_MOMENT: Final = _THREAD + "/moments/{seq}"


@router.get(f"{_THREAD}/recording")
async def recording(context: Reader, asked: Asked) -> protocol.RecordingAnswer:
    """Describe a thread's recording."""
    return await _asked(asked.recording)


@router.get(f"{_THREAD}/moments")
async def moments(
    context: Reader,
    asked: Asked,
    after: Annotated[int, Query(ge=0, le=2**32, description="Only later moments.")] = 0,
    limit: Items = 200,
    node: Annotated[str, Query(max_length=200, description="Only of this node.")] = "",
) -> protocol.MomentPage:
    """Return a page of moments; its cost does not grow with the thread."""
    return await _asked(asked.moments, after, limit, node)


@router.get(f"{_THREAD}/overview")
async def overview(context: Reader, asked: Asked) -> protocol.OverviewAnswer:
    """Return the numbers of the moments to look at first."""
    return await _asked(asked.overview)


@router.get(_MOMENT)
async def moment(context: Reader, asked: Asked, seq: Seq) -> protocol.MomentAnswer:
    """Return a moment with all that is recorded of it."""
    return await _asked(asked.moment, seq)


@router.get(f"{_MOMENT}/request")
async def request_at(context: Reader, asked: Asked, seq: Seq) -> protocol.RequestAnswer:
    """Return the request to the model at a moment."""
    return await _asked(asked.request, seq)


@router.get(f"{_MOMENT}/blame")
async def blame(
    context: Reader,
    asked: Asked,
    seq: Seq,
    offset: Annotated[int | None, Query(ge=0, le=2**31, description="The first part.")] = None,
    limit: Items = 100,
) -> protocol.BlameAnswer:
    """Return the parts of a request, each with its source; the last ones by default."""
    return await _asked(asked.blame, seq, offset, limit)


@router.get(f"{_MOMENT}/state")
async def state(
    context: Reader,
    asked: Asked,
    seq: Seq,
    path: StatePath = "",
    offset: Offset = 0,
    limit: Items = 100,
) -> protocol.ValueAnswer:
    """Return the state at a moment, or the value at a path in it."""
    return await _asked(asked.state, seq, path, offset, limit)


@router.get(f"{_MOMENT}/diff")
async def diff(
    context: Reader,
    asked: Asked,
    seq: Seq,
    to: Annotated[int | None, Query(ge=1, le=2**32, description="The other moment.")] = None,
) -> protocol.DiffAnswer:
    """List the changes that a moment's step made, or those up to another moment."""
    return await _asked(asked.diff, seq, to)


@router.get(f"{_MOMENT}/writes")
async def writes(context: Reader, asked: Asked, seq: Seq) -> protocol.WritesAnswer:
    """List the writes that the state at a moment does not include yet."""
    return await _asked(asked.writes, seq)


@router.get(f"{_MOMENT}/why")
async def why(context: Reader, asked: Asked, seq: Seq, path: StatePath) -> protocol.WhyAnswer:
    """List the causes of a value in the state, the nearest first."""
    return await _asked(asked.why, seq, path)


@router.get(f"{_MOMENT}/route")
async def route(context: Reader, asked: Asked, seq: Seq) -> protocol.RouteAnswer:
    """Return the router's decision of a moment."""
    return await _asked(asked.route, seq)


@router.get(f"{_MOMENT}/tokens")
async def tokens(context: Reader, asked: Asked, seq: Seq) -> protocol.TokensAnswer:
    """List the usage of the model calls of a moment's branch."""
    return await _asked(asked.tokens, seq)


@router.get(f"{_MOMENT}/preview")
async def preview(context: Reader, asked: Asked, seq: Seq) -> protocol.PreviewAnswer:
    """List what a fork from a moment would execute; this executes nothing."""
    return await _asked(asked.preview, seq)


@router.get(f"{_MOMENT}/move")
async def move(
    context: Reader,
    asked: Asked,
    seq: Seq,
    verb: Annotated[protocol.Verb, Query(description="The move.")],
) -> protocol.StopAnswer:
    """Return where a verb leads from a moment; this executes nothing."""
    return await _asked(asked.move, seq, verb)


@router.get(f"{_THREAD}/blobs/{{name}}")
async def blob(
    context: Reader,
    asked: Asked,
    name: Annotated[str, Path(pattern="^[0-9a-f]{64}$", description="The text's hash.")],
    offset: Offset = 0,
) -> protocol.BlobAnswer:
    """Return 65,536 characters of a text that an answer cut."""
    return await _asked(asked.blob, name, offset)


@router.get(f"{_THREAD}/search", response_class=Response, responses=_LINES)
async def search(
    context: Reader,
    request: Request,
    asked: Asked,
    q: Annotated[str, Query(min_length=1, max_length=200, description="The text.")],
    after: Annotated[int, Query(ge=0, le=2**32, description="Only later moments.")] = 0,
) -> Response:
    """Search a thread's moments; hits come as they are found, until the client leaves."""

    async def lines() -> AsyncIterator[bytes]:
        found = asked.search(q, after)
        with suppress(ThreadBusyError, ThreadNotFoundError):  # it was taken over, or deleted
            while await is_admitted(context, request) and (
                (hits := await asyncio.to_thread(next, found, None)) is not None
            ):
                yield b"".join(hit.model_dump_json().encode() + b"\n" for hit in hits) or b"\n"

    return StreamingResponse(lines(), media_type="application/x-ndjson")


@router.get(f"{_THREAD}/graph")
async def graph(
    context: Reader, request: Request, thread_id: schemas.ThreadIdPath
) -> dict[str, Any]:
    """Return the agent's graph as data, with its layout and the thread laid over it."""
    picture = await _picture(context, request, thread_id)
    return await _asked(lambda: drawn(picture()))


@router.get(f"{_THREAD}/export", response_class=Response, responses=_FILE)
async def export(
    context: Reader, request: Request, asked: Asked, thread_id: schemas.ThreadIdPath
) -> Response:
    """Return the recording of a thread as one file for a browser without a server.

    Secrets are hidden; the file says in how many values.
    """
    picture = None
    with suppress(Problem):  # its agent is not served here
        picture = await _picture(context, request, thread_id)
    page = await _asked(lambda: asked.file(None if picture is None else picture()))
    return Response(page, media_type="text/html", headers={"Content-Disposition": "attachment"})


async def _picture(
    context: RequestContext, request: Request, thread_id: str
) -> Callable[[], Picture]:
    """Return what draws the graph of a thread's agent, with the thread laid over it.

    Raises:
        Problem: The agent is not served here.
    """
    agent_id = (await context.thread(thread_id)).agent
    own = _graph_of(request)
    if own is None and (agent_id is None or agent_id not in context.tenant.agents):
        raise Problem(404, "the agent of this thread is not served here")
    agent = await context.agent(agent_id) if own is None else None

    def made() -> Picture:
        if agent is None:
            built = own.copy({"checkpointer": context.saver})
        else:
            built = agent.graph if agent.spec.guest else agent.graph_over(context.saver)
        picture = picture_of(built)
        with suppress(ThreadNotFoundError):  # a run that is held at its beginning
            picture = picture.with_run(overlay_of(built, thread_id))
        return picture

    return made


@router.get("/agents/{agent_id}/graph")
async def graph_of_agent(context: Reader, agent_id: schemas.AgentIdPath) -> dict[str, Any]:
    """Return an agent's graph as data, with its layout."""
    agent = await context.agent(agent_id)
    return await _asked(lambda: drawn(picture_of(agent.graph)))


# --- Runs side by side, traces, and the gateway's boxes.


@router.get(f"{_THREAD}/compare")
async def compare(
    context: Reader,
    request: Request,
    asked: Asked,
    run: Annotated[int, Query(ge=0, le=2**31, description="A run of the thread.")],
    theirs: Annotated[int, Query(ge=0, le=2**31, description="The other run.")],
    other: Annotated[str | None, Query(max_length=200, description="The other thread.")] = None,
) -> protocol.CompareAnswer:
    """Compare two runs, or the branches of runs of two threads."""
    second = asked if other is None else await answers_of(context, request, other)
    return await _asked(asked.compare, run, second, theirs)


_CHATS: Final = 200
"""Most chats to look up the gateway's threads of."""


@router.get("/gateway")
async def gateway(context: Admin) -> dict[str, Any]:
    """Return the gateway's boxes: what came, what goes out, dead letters, jobs, chats' threads."""
    box = context.saver.mailbox

    def looked() -> dict[str, Any]:
        found = {"inbox": box.inbox(), "outbox": box.outbox(), "dead": box.outbox("dead")}
        configured = context.service.file.cron if context.tenant.name == LOCAL else {}
        jobs = {name: job.model_dump(mode="json") for name, job in configured.items()}
        jobs |= {k.partition("/")[2]: fact.get("job") for k, fact in box.facts("cron/").items()}
        return {
            **{name: [asdict(row) for row in rows] for name, rows in found.items()},
            "counts": box.counts(),
            "cron": jobs,
            "running": {name: about.get("channels") or {} for name, about in box.alive().items()},
            "threads": {fact["key"]: fact["thread"] for fact in box.facts("session/").values()},
        }

    found = await box.run(looked)
    chats = [*dict.fromkeys(row["chat"] for row in (*found["inbox"], *found["outbox"]))]
    named = {chat: chat for chat in chats[:_CHATS]} | found["threads"]
    asked = context.saver.threads.aget
    found["threads"] = {key: one for key, one in named.items() if await asked(one) is not None}
    hider = Hider(Mask(b"", known_secrets(), inside=True))
    return dict(Showing(hider).value(plain(found)))


@router.post("/gateway/outbox/{row}/resend", status_code=204, response_class=Response)
async def resend(
    context: Admin, row: Annotated[int, Path(ge=1, le=2**31, description="The message.")]
) -> Response:
    """Send a dead letter again."""
    if not await context.saver.mailbox.run(context.saver.mailbox.resend, row):
        raise Problem(404, "there is no such dead letter")
    return Response(status_code=204)


# --- Sessions: the debugger, of one user at a time.


class SessionForm(schemas.Form):
    """Open a session."""


class NewSessionForm(schemas.Form):
    """Open a session over a new thread."""

    agent: Annotated[str, Field(max_length=200)]
    """The agent that runs in it."""


class CommandForm(schemas.Form):
    """A command of the debugger."""

    line: Annotated[str, Field(min_length=1, max_length=100_000)]
    """As in a terminal: `next`, `break tool:* if error`, `run TEXT`, `fork`; or `hold`."""
    at: Annotated[int, Field(ge=1, le=2**32), schemas.FROM_WHOLE] | None = None
    """The moment of the cursor."""


SessionName = Annotated[str, Path(pattern="^[0-9a-f]{16}$", description="The session.")]

_SESSION: Final = "/sessions/{session}"


async def _begun(
    context: RequestContext,
    request: Request,
    answers: Answers,
    opened: Callable[[], DebugSession],
    name: str | None,
) -> protocol.SessionAnswer:
    """Open a session; what it executes needs the scope `run`, and an answer `approve`."""
    caller, kept = context.caller, None
    agent = await context.agent(name) if name in context.tenant.agents else None
    graph = _graph_of(request)
    if agent is not None:
        asked = RunRequest(agent_id=agent.name, kind="resume")
        kept = (await context.with_context(agent, asked, answers.thread_id)).context

    def made_agent() -> Any:
        caller.require("run")
        if graph is not None:
            return graph
        if agent is None:
            raise DebugError("the agent of this thread is not served here; nothing can run")
        return agent.graph if agent.spec.guest else agent.graph_over(context.saver)

    needs = "the token's scope does not allow answers; this needs approve"
    refused = {} if caller.allows("approve") else {"answer": needs}

    def made() -> Session:
        debugger, tenant = opened(), context.tenant
        debugger.context = kept
        return Session(tenant.name, answers, debugger, made_agent, refused, tenant.runs.holders)

    held = await _asked(_recordings(request).begin, made, context.tenant.name, answers.thread_id)
    return await _asked(answers.described, held.name, held.debugger)


@router.post(f"{_THREAD}/sessions", status_code=201)
async def begin(
    context: Debugging,
    request: Request,
    thread_id: schemas.ThreadIdPath,
    form: SessionForm,
) -> protocol.SessionAnswer:
    """Open a session over a thread; refused while another is open or a run goes on."""
    answers = await answers_of(context, request, thread_id)
    if await context.saver.leases.aepoch(thread_id) is not None:
        raise ThreadBusyError("thread is busy")
    agent = (await context.thread(thread_id)).agent
    return await _begun(context, request, answers, answers.session, agent)


@router.post("/sessions", status_code=201)
async def begin_anew(
    context: Debugging, request: Request, form: NewSessionForm
) -> protocol.SessionAnswer:
    """Open a session over a new thread; `run TEXT` begins its first run, which is held."""
    if form.agent not in _sessions_of(context, request):
        raise Problem(404, "agent not found")
    thread_id = new_thread_id()
    answers = _recordings(request).fresh(context.saver, thread_id)
    opened = partial(DebugSession, thread_id=thread_id)
    return await _begun(context, request, answers, opened, form.agent)


@router.get("/sessions")
async def session_agents(context: Debugging, request: Request) -> list[str]:
    """List the agents, or the graphs, that a session can run."""
    return _sessions_of(context, request)


def _sessions_of(context: RequestContext, request: Request) -> list[str]:
    return [*request.app.state.graphs] or [*context.tenant.agents]


def _graph_of(request: Request) -> Any:
    """Return the LangGraph graph that all sessions run; None if they run agents."""
    return next(iter(request.app.state.graphs.values()), None)


@router.get(_SESSION)
async def session(
    context: Debugging, request: Request, session: SessionName
) -> protocol.ConsoleAnswer:
    """Return the reply to the last command, if it goes on; 60 silent seconds end a session."""
    held = await _asked(_recordings(request).session, context.tenant.name, session)
    return await held.answer()


@router.post(_SESSION)
async def command(
    context: Debugging, request: Request, session: SessionName, form: CommandForm
) -> protocol.ConsoleAnswer:
    """Give a command; moves over what is recorded execute nothing."""
    held = await _asked(_recordings(request).session, context.tenant.name, session)
    held.begin(form.line.strip(), form.at)
    return await held.answer()


@router.delete(_SESSION, status_code=204, response_class=Response)
async def end(context: Debugging, request: Request, session: SessionName) -> Response:
    """Close a session; a run of its own that it holds is kept for later."""
    await _asked(_recordings(request).end, context.tenant.name, session)
    return Response(status_code=204)


def _recordings(request: Request) -> Recordings:
    found: Recordings = request.app.state.recordings
    return found
