"""A secret in the context of a run: no byte of what the program keeps or tells has it."""

from __future__ import annotations

import asyncio
import logging
import secrets
import traceback
import zlib
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.engine.typed_process import BERN, City
from wick_graph import Agent, SqlSaver, ToolContext, tool
from wick_graph.config import load_config
from wick_graph.errors import WickError
from wick_graph.events import Done
from wick_graph.hooks import ApprovalHook, OutputGuardrail, TracingHook
from wick_graph.server.app import create_app
from wick_graph.service.options import ServerOptions
from wick_graph.service.service import Service
from wick_graph.store.encryption import Keys
from wick_graph.subagents import Background, Handoff, Subagent, delegation
from wick_graph.testing import ScriptedModel, call, error
from wick_graph.tracing import recording
from wick_graph.tracing.otel import OtelRecorder, RequestTracer

CITY = City(name="Bern", people=134_000)
SECRET = "canary4711ofthecontext"
"""Plain letters: no form of text changes them."""


@dataclass
class Ctx:
    user: str
    key: str = SECRET


@tool(replay="safe")
def whoami(ctx: ToolContext) -> str:
    """Say who asks."""
    return f"You are {ctx.context.user}."


@tool(replay="safe")
def boom(ctx: ToolContext) -> str:
    """Fail with the secret in a local variable."""
    held = ctx.context
    raise RuntimeError(f"no {len(held.key)}")


class Told(logging.Handler):
    """All that is logged, as it is written and as it is given."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines += [self.format(record), repr(vars(record))]
        if record.exc_info and record.exc_info[1] is not None:
            self.lines += traceback.format_exception(record.exc_info[1])


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[Told]:
    """Log everything; compress nothing, so that what is stored can be read."""
    monkeypatch.setattr(zlib, "compress", lambda data, *_: data + b" ")
    handler, root = Told(), logging.getLogger()
    level = root.level
    root.setLevel(logging.DEBUG)
    root.addHandler(handler)
    yield handler
    root.removeHandler(handler)
    root.setLevel(level)


class Spans:
    def __init__(self) -> None:
        self.exporter, self.provider = InMemorySpanExporter(), TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def text(self) -> str:
        return "".join(span.to_json() for span in self.exporter.get_finished_spans())


def kept_in(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.name: path.read_bytes() for path in files}


def must_not_tell(found: dict[str, bytes], spans: Spans, told: Told, seen: str) -> None:
    """Check that the secret is nowhere, and that what lies beside it is where it may be."""
    assert "wick.db" in found
    assert [name for name, data in found.items() if SECRET.encode() in data] == []
    text = spans.text()
    assert seen in text
    assert SECRET not in text
    assert told.lines
    assert [line[:200] for line in told.lines if SECRET in line] == []


GO = call("transfer_to_billing")


def desk(store: SqlSaver, *steps: Any) -> Agent[City, Ctx]:
    """An agent with another below it and one that takes over; each calls both tools."""
    tools: list[Any] = [whoami, boom]
    how: dict[str, Any] = {"context_schema": Ctx, "tools": tools, "store": store}
    how["journal"] = "full"
    both = [call("whoami"), call("boom")]
    clerk: Agent[str, Ctx] = Agent("clerk", ScriptedModel([*both, "Done."]), **how)
    below = {"clerk": Subagent(clerk, "Knows.")}
    billing: Agent[str, Ctx] = Agent(
        "billing", ScriptedModel([*both, call("City", **BERN)], cursor="fifo"), **how
    )
    return Agent(
        "desk",
        ScriptedModel([*steps], cursor="fifo"),
        output_type=City,
        hooks=[
            TracingHook(),
            ApprovalHook({"whoami": True}),
            OutputGuardrail(lambda text: None),
            Background(below),
        ],
        handoffs={"billing": Handoff(billing, "Money.")},
        **{**how, "tools": [*tools, delegation(below)]},
    )


STEPS = (
    call("boom"),
    call("delegate_to_agent", agent="clerk", task="Who asks?"),
    call("start_async_task", agent="clerk", task="Who asks?"),
    GO,
)


def ask(agent: Agent[City, Ctx], how: str, answer: Any = None) -> Any:
    """Go on as long as someone must approve; return the result."""
    context = Ctx("ada")
    result = agent.invoke("Who am I?", thread_id="t", context=context)
    while result.interrupts:
        given = {one.id: {"decision": "approve"} for one in result.interrupts}
        if how == "stream":
            *_, last = agent.stream_resume("t", given, context=context)
            assert isinstance(last, Done)
            result = last.result
        else:
            result = agent.resume("t", given, context=context)
    return result


@pytest.mark.parametrize(
    "keys", [None, Keys([secrets.token_bytes(32)])], ids=["plain", "encrypted"]
)
@pytest.mark.parametrize("how", ["invoke", "stream"])
def test_python_keeps_it_nowhere(keys: Keys | None, how: str, tmp_path: Path, told: Told) -> None:
    spans, url = Spans(), f"sqlite:///{tmp_path / 'wick.db'}"
    recorder = OtelRecorder(spans.provider.get_tracer("test"), content=True)
    with recording(recorder):
        with SqlSaver.from_url(url, keys=keys) as store:
            agent = desk(store, *STEPS)
            assert ask(agent, how).output == CITY
            failing = desk(store, call("boom"), error(RuntimeError("no model")))
            with pytest.raises(WickError):
                failing.invoke("Who am I?", thread_id="u", context=Ctx("ada"))
            with pytest.raises(WickError):
                agent.invoke("?", thread_id="u", context={"key": [SECRET]})
            found = kept_in(tmp_path)  # with its log, before it is folded in
        must_not_tell(found, spans, told, "You are ada.")
        assert (b"You are ada." in b"".join(found.values())) is (keys is None)
    must_not_tell(kept_in(tmp_path), spans, told, "You are ada.")


APP = """
from dataclasses import dataclass
from wick_graph import ToolContext, tool

@dataclass
class Ctx:
    user: str
    key: str

@tool(replay="safe")
def whoami(ctx: ToolContext) -> str:
    "Say who asks."
    return f"You are {ctx.context.user}."

@tool(replay="safe")
def boom(ctx: ToolContext) -> str:
    "Fail."
    held = ctx.context
    raise RuntimeError(f"no {len(held.key)}")
"""
AGENTS = """\
store: sqlite:///wick.db
store_keys: file:wick.keys
defaults:
  model: scripted:both.yaml
  tools: ['MODULE:whoami', 'MODULE:boom']
  context: {use: 'MODULE:Ctx', subject: user}
agents:
  desk:
    model: scripted:desk.yaml
    subagents: {clerk: {description: Knows.}}
    handoffs: {billing: Money.}
    output: {schema: {title: City, type: object, properties: {name: {type: string}}}}
  billing: {model: 'scripted:billing.yaml', approvals: {whoami: true}}
  clerk: {}
"""
DESK = """
steps:
- calls: [{tool: delegate_to_agent, args: {agent: clerk, task: Tell.}}]
- calls: [{tool: boom}]
- calls: [{tool: transfer_to_billing}]
"""
BOTH = """
steps:
- calls: [{tool: whoami}]
- calls: [{tool: boom}]
"""
GIVEN = {
    "messages": [{"role": "user", "content": "Who am I?"}],
    "context": {"key": SECRET},
    "thread_id": "t",
}


async def ask_over_http(service: Service) -> list[str]:
    """Ask, approve, ask wrongly, and read all that the service tells; return it."""
    door = httpx.ASGITransport(create_app(service), raise_app_exceptions=False)
    bodies: list[str] = []
    async with httpx.AsyncClient(
        transport=door, base_url="http://127.0.0.1", trust_env=False, timeout=60
    ) as http:
        asked = await http.post("/agents/desk/invoke", json=GIVEN)
        bodies.append(asked.text)
        while asked.json().get("interrupts"):
            answer = {one["id"]: {"decision": "approve"} for one in asked.json()["interrupts"]}
            body = {"thread_id": "t", "answer": answer}
            asked = await http.post("/agents/desk/resume", json=body)
            bodies.append(asked.text)
        assert asked.json()["structured_response"] == {"name": "Bern"}, asked.text
        streamed = await http.post("/agents/clerk/stream", json={**GIVEN, "thread_id": "u"})
        wrong = await http.post("/agents/desk/invoke", json={**GIVEN, "context": {"key": [SECRET]}})
        assert wrong.status_code == 400
        bodies += [streamed.text, wrong.text]
        for path in ("/threads", "/threads/t", "/threads/t/messages", "/runs", "/metrics"):
            bodies.append((await http.get(path)).text)
    return bodies


def test_a_server_keeps_and_tells_it_nowhere(tmp_path: Path, told: Told) -> None:
    module = f"secret_{secrets.token_hex(4)}"  # a process loads only one module of a name
    (tmp_path / f"{module}.py").write_text(APP)
    (tmp_path / "wick.keys").write_text(b64encode(secrets.token_bytes(32)).decode())
    (tmp_path / "wick.keys").chmod(0o600)
    texts = {
        "agents": AGENTS.replace("MODULE", module),
        "desk": DESK,
        "both": f"{BOTH}- Done.\n",
        "billing": f"{BOTH}- calls: [{{tool: City, args: {{name: Bern}}}}]\n",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    spans = Spans()
    service = Service(
        load_config(tmp_path / "agents.yaml"),
        ServerOptions(auth=False),
        tracer=RequestTracer(spans.provider),
    )
    try:
        bodies = asyncio.run(ask_over_http(service))
        assert "You are local." in "".join(bodies)
        assert [body[:200] for body in bodies if SECRET in body] == []
        must_not_tell(kept_in(tmp_path), spans, told, "execute_tool whoami")
    finally:
        service.local.close()
    must_not_tell(kept_in(tmp_path), spans, told, "execute_tool whoami")
