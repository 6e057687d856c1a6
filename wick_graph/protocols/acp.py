"""The agents behind ACP: an editor starts a process, and speaks on its standard input and output.

A session is a thread, and a prompt a run. A run depends neither on the editor nor on the process:
one that was cut off goes on when its session is loaded again. Files, terminals and MCP servers that
an editor offers are not used, since agents.yaml alone says what an agent can reach.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, cast

from acp import PROTOCOL_VERSION, RequestError, schema
from acp import helpers as make
from acp.agent.connection import AgentSideConnection
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from wick_graph import langgraph_config
from wick_graph.backends.local import LocalBackend
from wick_graph.engine.agent import Agent
from wick_graph.engine.result import new_thread_id
from wick_graph.engine.streaming import reasoning_of
from wick_graph.errors import ConfigError, ThreadBusyError, WickError
from wick_graph.hooks.approvals import KIND, shown_in
from wick_graph.loading import backends_in
from wick_graph.messages.content import visible
from wick_graph.models.call import CUT, FILTERED
from wick_graph.protocols.streams import StandardStreams
from wick_graph.service.detached import DetachedRun, wait_for_start
from wick_graph.service.event_log import TERMINAL, Wire, events_after
from wick_graph.service.options import LOCAL, Problem, problem_of
from wick_graph.service.runs import RunRequest
from wick_graph.service.service import Service
from wick_graph.store.server_rows import RUNNING, StreamRow

log: Final = logging.getLogger("wick_graph.acp")

_LEFT: Final = 5.0
"""Seconds for runs to end after the editor has gone."""

_PAUSES: Final = 20
"""Pauses in a run of another process, between two looks whether that process still lives."""

_PAGE: Final = 50

_CODES: Final[Mapping[int, int]] = {400: -32602, 404: -32002, 409: -32600}
"""JSON-RPC's codes, by the status of the answer over HTTP."""

_REASONS: Final[Mapping[str, schema.StopReason]] = {
    "cancelled": "cancelled",
    "limit": "max_turn_requests",
    CUT: "max_tokens",
    FILTERED: "refusal",
}

_OPTIONS: Final = (
    schema.PermissionOption(option_id="approve", name="Allow once", kind="allow_once"),
    schema.PermissionOption(option_id="reject", name="Reject", kind="reject_once"),
)


# --- Calls, messages and lists as an editor draws them.


_KINDS: Final[Mapping[str, schema.ToolKind]] = {
    "read_file": "read",
    "ls": "search",
    "glob": "search",
    "grep": "search",
    "write_file": "edit",
    "edit_file": "edit",
    "execute": "execute",
    "internet_search": "fetch",
    "write_todos": "think",
}

_STATUSES: Final[Mapping[str, schema.PlanEntryStatus]] = {
    "in_progress": "in_progress",
    "done": "completed",
}

_SUBJECTS: Final = ("path", "file_path", "pattern", "command", "query")
"""Arguments that say what a call is about."""

_TITLE: Final = 100


def _facts(folder: str | None, name: str, args: Mapping[str, Any]) -> dict[str, Any]:
    """Return the title, kind, places, input and content of a call; paths are below the folder."""
    subject = next((args[key] for key in _SUBJECTS if isinstance(args.get(key), str)), "")
    title = visible(f"{name} {subject}".strip().partition("\n")[0])
    path, at = args.get("path", args.get("file_path")), None
    if folder is not None and name in _KINDS and isinstance(path, str):
        at = os.path.normpath(path if path.startswith("/") else f"{folder}/{path}")
    return {
        "title": title if len(title) <= _TITLE else f"{title[: _TITLE - 1]}…",
        "kind": _KINDS.get(name, "other"),
        "locations": [] if at is None else [schema.ToolCallLocation(path=at)],
        "raw_input": dict(args),
        "content": [_change(at, name, args) or _text(_code(args))],
    }


def _change(at: str | None, name: str, args: Mapping[str, Any]) -> Any:
    """Return what a call changes in a file; None if it changes none."""
    old, new = args.get("old_text", args.get("old_string")), args.get("content")
    if name == "edit_file":
        new = args.get("new_text", args.get("new_string"))
    if at is None or name not in ("edit_file", "write_file") or not isinstance(new, str):
        return None
    return make.tool_diff_content(at, new, old if isinstance(old, str) else None)


def _text(text: str) -> Any:
    return make.tool_content(make.text_block(text))


def _code(value: Any) -> str:
    """Return data as a block of code, which nothing in it can end."""
    text = visible(json.dumps(value, ensure_ascii=False, indent=1, default=str))
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", text)), 0)
    return f"{fence}json\n{text}\n{fence}"


def _plan(todos: Any) -> Iterator[Any]:
    """Yield a list of work as a plan."""
    items = [one for one in todos if isinstance(one, Mapping)] if isinstance(todos, list) else []
    if items:
        yield make.update_plan(
            make.plan_entry(
                str(one.get("title", "")), status=_STATUSES.get(one.get("status", ""), "pending")
            )
            for one in items
        )


def _said(kind: str, text: str, key: str | None = None) -> Iterator[Any]:
    """Yield a piece of a message: of the `user`'s, of the `agent`'s, or a `thought`."""
    made = {
        "user": make.update_user_message_text,
        "agent": make.update_agent_message_text,
        "thought": make.update_agent_thought_text,
    }[kind](text)
    if text:
        yield made.model_copy(update={"message_id": key}) if key else made


class _Updates:
    """Turns stored messages and a run's events into updates; what was shown is not shown again."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self._known: set[str] = set()
        """Replies, and calls with a result, of the thread's last turn."""
        self._args: dict[str, Mapping[str, Any]] = {}
        self._below: dict[str, list[str]] = {}
        """What the agents that a call has asked do, by call."""
        self._held: list[Any] = []
        """Pieces that were written before the session was loaded: their reply may be void."""
        self._has_text = False
        self._output: Any = None

    def history(self, messages: Sequence[BaseMessage], todos: Any, *, ended: bool) -> Iterator[Any]:
        """Yield the updates of a thread, from its beginning.

        Args:
            messages: The thread's.
            todos: Its list of work.
            ended: Whether calls without a result get none.
        """
        results = {one.tool_call_id: one for one in messages if isinstance(one, ToolMessage)}
        for one in messages:
            key = one.id
            if isinstance(one, HumanMessage):
                self._known.clear()
                yield from _said("user", one.text, key)
            elif isinstance(one, AIMessage):
                self._known.add(key or "")
                yield from _said("thought", reasoning_of(one), key)
                yield from _said("agent", one.text, key)
                for call in one.tool_calls:
                    begun = self._begun(call, "failed" if ended else "pending")
                    if (result := results.get(call["id"] or "")) is not None:
                        self._known.add(result.tool_call_id)
                        made = _ended(result.tool_call_id, result.text, result.status == "error")
                        facts = (made.status, made.content, made.raw_output)
                        named = zip(("status", "content", "raw_output"), facts, strict=True)
                        begun = begun.model_copy(update=dict(named))
                    yield begun
        yield from _plan(todos)

    def of(self, event: Wire, *, is_old: bool) -> Iterator[Any]:
        """Yield the updates of an event, which may have been written before this process."""
        kind, data = event["event"], event.get("data", {})
        if kind in ("on_chat_model_start", "on_chat_model_retry"):
            if kind == "on_chat_model_retry" and self._has_text and not self._held:
                yield from _said("thought", "The model is asked again; its last words are void.")
            self._held, self._has_text = [], False
            return
        make_them = _MAKERS.get(kind)
        made = [] if make_them is None else [*make_them(self, event, data)]
        if is_old and kind == "on_chat_model_stream":
            self._held += made
            return
        yield from self._held
        self._held = []
        yield from made

    def _begun(self, call: Mapping[str, Any], status: schema.ToolCallStatus = "pending") -> Any:
        self._args[call["id"]] = call["args"]
        facts = _facts(self._folder, call["name"], call["args"])
        return make.start_tool_call(call["id"], status=status, **facts)

    def asked(self, question: Mapping[str, Any]) -> Any:
        """Return a call that waits for an approval, with why it does."""
        facts = _facts(self._folder, question["tool"], question["args"])
        below = "".join(f"{agent}: " for agent in question.get("agents") or ())
        facts["title"] = visible(below + facts["title"])
        whole = _text(_code(question["args"]))  # all of it, whatever the change shows
        changes = [one for one in facts["content"] if one.type == "diff"]
        facts["content"] = [_text(visible(question.get("why") or "")), *changes, whole]
        return schema.ToolCallUpdate(tool_call_id=question["call_id"], status="pending", **facts)

    def _piece(self, event: Wire, data: Mapping[str, Any]) -> Iterator[Any]:
        key = data.get("message_id")
        if key not in self._known:
            self._has_text = self._has_text or bool(data["delta"])
            yield from _said("thought", data.get("reasoning", ""), key)
            yield from _said("agent", data["delta"], key)

    def _reply(self, event: Wire, data: Mapping[str, Any]) -> Iterator[Any]:
        key = data.get("message_id")
        if key in self._known:
            return
        if not self._has_text:
            yield from _said("agent", data["content"], key)
        for call in data["tool_calls"]:
            yield self._begun(call)

    def _started(self, event: Wire, data: Mapping[str, Any]) -> Iterator[Any]:
        call = event["run_id"]
        if call not in self._known:
            facts = {} if call in self._args else _facts(self._folder, event["name"], data["args"])
            self._args[call] = data["args"]  # a person may have changed them
            yield make.update_tool_call(call, status="in_progress", **facts)

    def _result(self, event: Wire, data: Mapping[str, Any]) -> Iterator[Any]:
        call = event["run_id"]
        if call in self._known:
            return
        yield _ended(call, data["output"], "error" in data)
        if event.get("name") == "write_todos" and "error" not in data:
            yield from _plan(self._args.get(call, {}).get("todos"))

    def _inner(self, event: Wire, data: Mapping[str, Any]) -> Iterator[Any]:
        inner, call = data["event"], event["run_id"]
        if inner["event"] == "on_tool_start" and call not in self._known:
            title = _facts(self._folder, inner["name"], inner["data"]["args"])["title"]
            lines = self._below.setdefault(call, [])
            lines.append(f"{'/'.join(data['path'])}: {title}")
            yield make.update_tool_call(call, content=[_text("\n".join(lines))])

    def _typed(self, event: Wire, data: Mapping[str, Any]) -> Iterator[Any]:
        self._output = data["output"]
        yield from ()

    def _done(self, event: Wire, data: Mapping[str, Any]) -> Iterator[Any]:
        given, self._output = self._output, None
        if given is not None and data["stopped_because"] == "done":
            yield from _said("agent", _code(given))


_MAKERS: Final[Mapping[str, Any]] = {
    "on_chat_model_stream": _Updates._piece,
    "on_chat_model_end": _Updates._reply,
    "on_tool_start": _Updates._started,
    "on_tool_end": _Updates._result,
    "on_subagent": _Updates._inner,
    "on_output": _Updates._typed,
    "done": _Updates._done,
}


def _ended(call: str, output: str, failed: bool) -> Any:
    status: schema.ToolCallStatus = "failed" if failed else "completed"
    return make.update_tool_call(call, status=status, content=[_text(output)], raw_output=output)


def _content(prompt: Sequence[Any]) -> str | list[dict[str, Any]]:
    """Return a prompt as the content of a message.

    Raises:
        Problem: A block is of a kind that is not taken.
    """
    blocks: list[dict[str, Any]] = []
    for index, block in enumerate(prompt):
        if isinstance(block, schema.ImageContentBlock):
            url = f"data:{block.mime_type};base64,{block.data}"
            blocks.append({"type": "image_url", "image_url": {"url": url}})
            continue
        text = _text_of(block)
        if text is None:
            raise Problem(400, f"prompt[{index}]: {block.type} with binary data is not taken")
        if blocks and blocks[-1]["type"] == "text":
            blocks[-1]["text"] += text
        else:
            blocks.append({"type": "text", "text": text})
    only = blocks[0] if len(blocks) == 1 else {"type": ""}
    return str(only["text"]) if only["type"] == "text" else blocks


def _text_of(block: Any) -> str | None:
    if isinstance(block, schema.TextContentBlock):
        return block.text
    if isinstance(block, schema.ResourceContentBlock):
        return f"[@{block.name}]({block.uri})"
    if isinstance(block, schema.EmbeddedResourceContentBlock):
        found = block.resource
        if isinstance(found, schema.TextResourceContents):
            return f"\n<resource uri={json.dumps(found.uri)}>\n{found.text}\n</resource>\n"
    return None


# --- Sessions and prompts.


@dataclass(slots=True)
class _Session:
    """A thread that the editor has open."""

    key: str
    agent_id: str
    notices: list[str] = field(default_factory=list)
    """What to say about the session with its first prompt."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the turns that have begun are cancelled."""


@contextmanager
def _told() -> Iterator[None]:
    """Tell the editor our errors as sentences."""
    try:
        yield
    except (WickError, Problem) as error:
        found = problem_of(error)
        raise RequestError(_CODES.get(found.status, -32603), found.error) from None


class Door:
    """The agents of a service as one agent of ACP.

    Args:
        service: The agents, and their threads.
        agent_id: The one agent to offer; by default all, as modes of a session.
    """

    def __init__(self, service: Service, agent_id: str | None = None) -> None:
        self._service, self._tenant = service, service.local
        self._offered: Collection[str] = [*service.local.agents] if agent_id is None else [agent_id]
        self._first = agent_id or service.local.agents.default_id
        self._client: Any = None
        self._sessions: dict[str, _Session] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def on_connect(self, conn: Any) -> None:
        """Keep the way back to the editor."""
        self._client = conn

    async def initialize(self, protocol_version: int, **_: Any) -> schema.InitializeResponse:
        """Say what the agents can do."""
        return schema.InitializeResponse(
            protocol_version=min(protocol_version, PROTOCOL_VERSION),
            agent_info=schema.Implementation(name="wick_graph", version=version("wick-graph")),
            agent_capabilities=schema.AgentCapabilities(
                load_session=True,
                prompt_capabilities=schema.PromptCapabilities(image=True, embedded_context=True),
                session_capabilities=schema.SessionCapabilities(
                    list=schema.SessionListCapabilities()
                ),
            ),
            auth_methods=[],
        )

    async def new_session(
        self, cwd: str, mcp_servers: Any = None, **_: Any
    ) -> schema.NewSessionResponse:
        """Begin a session; its thread is made with the first prompt."""
        with _told():
            session = await self._opened(new_thread_id(), self._first, cwd, mcp_servers)
        return schema.NewSessionResponse(session_id=session.key, modes=self._modes(session))

    async def load_session(
        self, cwd: str, session_id: str, mcp_servers: Any = None, **_: Any
    ) -> schema.LoadSessionResponse:
        """Show a session from its beginning; a run that was cut off goes on afterwards."""
        with _told():
            agent_id = await self._agent_of(session_id)
            known = self._sessions.get(session_id)
            session = known or await self._opened(session_id, agent_id, cwd, mcp_servers)
            await self._show_history(session)
        return schema.LoadSessionResponse(modes=self._modes(session))

    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **_: Any
    ) -> schema.ListSessionsResponse:
        """List the threads, the latest first; none is bound to a folder of the editor."""
        with _told():
            try:
                before = None if cursor is None else datetime.fromisoformat(cursor)
            except ValueError:
                raise Problem(400, "cursor: it is not one of ours") from None
            found = await self._tenant.saver.threads.alist(_PAGE, before)
        return schema.ListSessionsResponse(
            sessions=[
                schema.SessionInfo(
                    session_id=one.thread_id,
                    cwd=cwd or str(Path.cwd()),
                    title=one.title,
                    updated_at=one.last_access.isoformat(),
                )
                for one in found
                if one.parent is None and one.agent in self._offered
            ],
            next_cursor=found[-1].last_access.isoformat() if len(found) == _PAGE else None,
        )

    async def set_session_mode(
        self, mode_id: str, session_id: str, **_: Any
    ) -> schema.SetSessionModeResponse:
        """Choose the agent that answers from now on."""
        with _told():
            session = await self._session(session_id)
            if mode_id not in self._offered:
                raise Problem(400, f"modeId: there is no agent {mode_id!r:.80}")
            await self._ready(mode_id)
        session.agent_id = mode_id
        return schema.SetSessionModeResponse()

    async def prompt(self, prompt: list[Any], session_id: str, **_: Any) -> schema.PromptResponse:
        """Run the agent on a message of the user, and show the run."""
        with _told():
            session = await self._session(session_id)
            stop, content = session.stop, _content(prompt)
            async with session.turn:
                updates = _Updates(self._folder(session.agent_id))
                for notice in session.notices:
                    await self._show(session, _said("thought", notice))
                session.notices = []
                row = None if stop.is_set() else await self._begun(session, content)
                why = (
                    "cancelled" if row is None else await self._to_end(session, row, updates, stop)
                )
        return schema.PromptResponse(stop_reason=why)

    async def cancel(self, session_id: str, **_: Any) -> None:
        """End the prompts of a session, and its run."""
        session = self._sessions.get(session_id)
        if session is None:
            return
        session.stop.set()
        session.stop = asyncio.Event()
        if session.turn.locked():
            await self._tenant.runs.cancel(session_id)

    # --- What they are made of.

    async def _ready(self, agent_id: str) -> Agent:
        agent = await self._tenant.agents.ready(agent_id)
        if agent.spec.context is not None:
            try:
                agent.spec.context.with_subject(agent_id, None, LOCAL)
            except ConfigError as error:
                why = str(error).removesuffix("; pass context=")
                raise ConfigError(
                    f"{why}; over ACP no editor gives one, so give its fields defaults"
                ) from None
        return agent

    async def _opened(self, key: str, agent_id: str, cwd: str, servers: Any) -> _Session:
        if not Path(cwd).is_absolute():
            raise Problem(400, "cwd: give an absolute path")
        await self._ready(agent_id)
        session = self._sessions[key] = _Session(key, agent_id)
        if names := ", ".join(str(one.name) for one in servers or ()):
            session.notices.append(f"MCP servers are named in agents.yaml; not used: {names}")
        folder = self._folder(agent_id)
        if folder is not None and os.path.commonpath([folder, cwd]) not in (folder, cwd):
            session.notices.append(f"The agent's files are those below {folder}, not {cwd}.")
        for notice in session.notices:
            log.warning("%s", notice)
        return session

    def _folder(self, agent_id: str) -> str | None:
        """Return the folder of an agent's files on this machine, if it has one."""
        hooks = self._tenant.agents[agent_id].hooks
        found = (one for one in backends_in(hooks) if isinstance(one, LocalBackend))
        return next((one.workdir for one in found), None)

    def _modes(self, session: _Session) -> schema.SessionModeState | None:
        if len(self._offered) == 1:
            return None
        return schema.SessionModeState(
            current_mode_id=session.agent_id,
            available_modes=[schema.SessionMode(id=one, name=one) for one in self._offered],
        )

    async def _agent_of(self, thread_id: str) -> str:
        """Return the agent of a thread.

        Raises:
            Problem: There is no such thread, or it is not one of the agents that are offered.
        """
        row = await self._last_run(thread_id)
        info = await self._tenant.saver.threads.aget(thread_id)
        if info is None:
            raise Problem(404, "session not found")
        agent_id = str(info.agent if row is None else row.asked["agent"])
        if agent_id not in self._offered:
            raise Problem(404, f"session not found: it is one of the agent {agent_id}")
        return agent_id

    async def _session(self, key: str) -> _Session:
        known = self._sessions.get(key)
        if known is None:
            known = self._sessions[key] = _Session(key, await self._agent_of(key))
        return known

    async def _last_run(self, thread_id: str) -> StreamRow | None:
        streams = self._tenant.saver.streams
        rows = await streams.run(streams.of_thread, thread_id, 1)
        return rows[0] if rows else None

    async def _state(self, session: _Session) -> Any:
        agent = await self._ready(session.agent_id)
        config: Any = langgraph_config.with_configurable(
            None, **{langgraph_config.THREAD_ID: session.key}
        )
        return await agent.graph.aget_state(config)

    async def _show(self, session: _Session, updates: Iterator[Any]) -> None:
        for update in updates:
            await self._client.session_update(session_id=session.key, update=update)

    async def _show_history(self, session: _Session) -> None:
        row = await self._last_run(session.key)
        row = row if row is not None and row.status == RUNNING else None
        streams = self._tenant.saver.streams
        until = 0 if row is None else await streams.run(streams.last, row)
        state = await self._state(session)
        held = state.values if isinstance(state.values, Mapping) else {}
        updates = _Updates(self._folder(session.agent_id))
        messages = [one for one in held.get("messages") or () if isinstance(one, BaseMessage)]
        ended = row is None and not state.interrupts
        await self._show(session, updates.history(messages, held.get("todos"), ended=ended))
        if row is not None:
            await self._show(session, _unseen(row, messages))
        if not (ended or session.turn.locked()):
            task = asyncio.create_task(self._go_on(session, row, updates, until))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _go_on(
        self, session: _Session, row: StreamRow | None, updates: _Updates, until: int
    ) -> None:
        """Show a run that was cut off, or ask what the thread waits for."""
        stop = session.stop
        async with session.turn:
            try:
                with _told():
                    if row is not None:
                        await self._recover(row)
                    await self._to_end(session, row, updates, stop, until)
            except RequestError as error:
                await self._show(session, _said("thought", f"The run has failed: {error}"))

    async def _recover(self, row: StreamRow) -> None:
        with suppress(ThreadBusyError):  # another process goes on with it
            await self._tenant.runs.recover(self._tenant.agents.ready, row)

    async def _begun(self, session: _Session, content: Any) -> StreamRow:
        """Begin a run with a message, or with the answer to the question that waits."""
        state = await self._state(session)
        waiting = [*state.interrupts]
        if len(waiting) == 1 and not _is_call(waiting[0]) and isinstance(content, str):
            return await self._start(session, kind="resume", answer={waiting[0].id: content})
        return await self._start(
            session, kind="message", messages=[{"role": "user", "content": content}]
        )

    async def _start(self, session: _Session, **asked: Any) -> StreamRow:
        self._service.check_capacity()
        agent = await self._ready(session.agent_id)
        if agent.spec.context is not None:
            asked["context"] = agent.spec.context.with_subject(agent.name, None, LOCAL)
        request = RunRequest(agent_id=session.agent_id, **asked)
        run = await self._tenant.runs.start(agent, request, session.key)
        assert isinstance(run, DetachedRun)  # without a key, no earlier run is found
        await wait_for_start(run)
        return run.row

    async def _to_end(
        self,
        session: _Session,
        row: StreamRow | None,
        updates: _Updates,
        stop: asyncio.Event,
        until: int = 0,
    ) -> schema.StopReason:
        """Show a run, and those that go on after its approvals; return why the last one ended.

        Without a run, the thread waits for an answer.
        """
        while True:
            data: Mapping[str, Any] = {"stopped_because": "interrupted"}
            if row is not None:
                if stop.is_set():  # it came before the run could be cancelled
                    await self._tenant.runs.cancel(session.key, row.run_id)
                data = (await self._follow(session, row, updates, until))["data"]
            why = "cancelled" if stop.is_set() else data["stopped_because"]
            if why == "interrupted":
                answers = await self._asked(session, updates, stop)
                if answers and not stop.is_set():
                    row, until = await self._start(session, kind="resume", answer=answers), 0
                    continue
                why = "cancelled" if answers is None or stop.is_set() else "done"
            if why != "cancelled" and "error" in data:
                raise RequestError(-32603, data["error"])
            return _REASONS.get(data.get("reason", "") if why == "done" else why, "end_turn")

    async def _follow(
        self, session: _Session, row: StreamRow, updates: _Updates, until: int
    ) -> Wire:
        """Show the events of a run, and return the last one."""
        live, pauses = self._tenant.runs.find(row), 0
        event_log = None if live is None else live.event_log
        async for found in events_after(self._tenant.saver, row, row.first - 1, event_log):
            if found is None:
                pauses += 1
                if event_log is None and pauses % _PAUSES == 0:
                    await self._recover(row)
                continue
            number, event = found
            await self._show(session, updates.of(event, is_old=number <= until))
            if event["event"] in TERMINAL:
                return event
        raise Problem(503, "the process stops; load the session again to go on")

    async def _asked(
        self, session: _Session, updates: _Updates, stop: asyncio.Event
    ) -> dict[str, Any] | None:
        """Ask for the approvals that wait; return the decisions, each bound to its call's hash.

        Questions are shown, and the next prompt answers: there are no decisions then. None if the
        user gave up.
        """
        state = await self._state(session)
        calls = [one for one in state.interrupts if _is_call(one)]
        made: dict[str, Any] = {}
        for one in calls:
            question = shown_in(session.key, one.value)
            decision = await self._permission(session, updates.asked(question), question, stop)
            if decision is None:
                return None
            made[one.id] = {"decision": decision, "hash": question.get("hash")}
        if not calls:
            for one in state.interrupts:
                await self._show(session, _said("agent", _question(one.value)))
        return made

    async def _permission(
        self, session: _Session, call: Any, question: Mapping[str, Any], stop: asyncio.Event
    ) -> str | None:
        offered = [one for one in _OPTIONS if one.option_id in question["decisions"]]
        answer = asyncio.ensure_future(
            self._client.request_permission(session_id=session.key, tool_call=call, options=offered)
        )
        stopped = asyncio.ensure_future(stop.wait())
        await asyncio.wait([answer, stopped], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not answer.done():
            answer.cancel()
            return None
        outcome = answer.result().outcome
        if not isinstance(outcome, schema.AllowedOutcome):
            return None
        return next((o.option_id for o in offered if o.option_id == outcome.option_id), None)

    async def close(self) -> None:
        """Stop showing runs; they go on."""
        for task in [*self._tasks]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _is_call(found: Any) -> bool:
    return isinstance(found.value, Mapping) and found.value.get("kind") == KIND


def _question(value: Any) -> str:
    if not isinstance(value, Mapping):
        return value if isinstance(value, str) else _code(value)
    options = [f"\n- {one}" for one in value.get("options") or ()]
    return f"{value.get('question') or _code(value)}{''.join(options)}"


def _unseen(row: StreamRow, messages: Sequence[BaseMessage]) -> Iterator[Any]:
    """Yield the message of a run that was cut off before its first step."""
    given = [one["content"] for one in row.asked.get("messages", ())]
    last = next((one for one in reversed(messages) if isinstance(one, HumanMessage)), None)
    for content in given:
        if last is None or last.content != content:
            yield from _said("user", HumanMessage(content).text)


async def serve(service: Service, agent_id: str | None, streams: StandardStreams) -> None:
    """Answer an editor until it goes; its runs go on for some seconds, then when they are loaded.

    Args:
        service: The agents.
        agent_id: The one agent to offer; None for all.
        streams: What the editor reads and writes.

    Raises:
        ConfigError: It cannot be read or written.
    """
    door = Door(service, agent_id)
    try:
        connection = AgentSideConnection(cast("Any", door), await streams.opened(), listening=False)
        try:
            await connection.listen()
        finally:
            await door.close()
            await connection.close()
    finally:
        await service.drain(_LEFT)
        service.close()
