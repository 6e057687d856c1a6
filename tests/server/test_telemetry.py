"""OpenTelemetry: one span of each request, and the spans of its run below it."""

from __future__ import annotations

import asyncio
import http.server
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.server.support import AGENTS, SECONDS, TALK, serving
from tests.source import ROOT
from wick_graph.config import load_config
from wick_graph.server import ServerOptions, Service, create_app
from wick_graph.tracing.otel import RequestTracer

ASK = {"messages": [{"role": "user", "content": "What is 21*2, by the way zwetschge?"}]}
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
CALLER = {"traceparent": f"00-{TRACE}-{PARENT}-01"}


@pytest.fixture
def memory() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def traced(tmp_path: Path, memory: InMemorySpanExporter) -> Iterator[httpx.AsyncClient]:
    """A service of this process, its spans kept in memory."""
    texts = {"agents": AGENTS, "talk": TALK, "slow": "steps: [{error: 'RuntimeError: 4711'}]"}
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(text, "utf-8")
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    service = Service(
        load_config(tmp_path / "agents.yaml"),
        ServerOptions(auth=False),
        tracer=RequestTracer(provider),
    )
    door = httpx.ASGITransport(create_app(service), raise_app_exceptions=False)
    yield httpx.AsyncClient(
        transport=door, base_url="http://127.0.0.1", trust_env=False, timeout=60
    )
    service.local.close()
    provider.shutdown()


def told(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def server_span(memory: InMemorySpanExporter) -> ReadableSpan:
    (found,) = (span for span in memory.get_finished_spans() if span.kind.name == "SERVER")
    return found


async def test_the_spans_of_a_run_belong_to_its_request(
    traced: httpx.AsyncClient, memory: InMemorySpanExporter
) -> None:
    got = await traced.post("/agents/default/invoke", json=ASK, headers=CALLER)
    request, spans = server_span(memory), memory.get_finished_spans()
    assert got.status_code == 200
    assert request.name == "POST /agents/{agent_id}/invoke"
    assert told(request) == {
        "http.request.method": "POST",
        "http.route": "/agents/{agent_id}/invoke",
        "http.response.status_code": 200,
    }
    assert request.parent is not None
    assert f"{request.parent.span_id:016x}" == PARENT
    names = [span.name for span in spans if span is not request]
    assert sorted(name.split()[0] for name in names) == ["chat", "chat", "execute_tool"]
    for span in spans:
        assert f"{span.context.trace_id:032x}" == TRACE
        assert span is request or (span.parent and span.parent.span_id) == request.context.span_id
        assert "zwetschge" not in span.to_json()
    runs = {told(span)["wick.run_id"] for span in spans if span is not request}
    assert runs == {got.json()["run_id"]}


@pytest.mark.sisters(5)
@pytest.mark.parametrize(
    "header",
    [
        *(None, "", "x", "00-0-0-01", f"00-{'0' * 32}-{PARENT}-01", f"ff-{TRACE}-{PARENT}-01"),
        f"00-{TRACE}-{PARENT}-01, 00-{TRACE}-{PARENT}-01",
    ],
)
async def test_without_a_caller_s_trace_a_request_begins_one(
    traced: httpx.AsyncClient, memory: InMemorySpanExporter, header: str | None
) -> None:
    headers = {} if header is None else {"traceparent": header}
    assert (await traced.get("/threads", headers=headers)).status_code == 200
    assert server_span(memory).parent is None


async def test_requests_at_the_same_moment_have_traces_of_their_own(
    traced: httpx.AsyncClient, memory: InMemorySpanExporter
) -> None:
    await asyncio.gather(*(traced.post("/agents/invoke", json=ASK) for _ in range(5)))
    spans = memory.get_finished_spans()
    traces = {span.context.trace_id for span in spans}
    assert len(traces) == 5
    assert all([s.context.trace_id for s in spans].count(trace) == 4 for trace in traces)


@pytest.mark.sisters
@pytest.mark.parametrize(
    ("path", "status", "name", "failed"),
    [
        ("/agents/slow/invoke", 500, "POST /agents/{agent_id}/invoke", True),
        ("/agents/nobody/invoke", 404, "POST /agents/{agent_id}/invoke", False),
        ("/no/such/path", 404, "POST", False),
    ],
)
async def test_how_a_request_ended(
    traced: httpx.AsyncClient,
    memory: InMemorySpanExporter,
    path: str,
    status: int,
    name: str,
    failed: bool,
) -> None:
    assert (await traced.post(path, json=ASK)).status_code == status
    span = server_span(memory)
    assert (span.name, told(span)["http.response.status_code"]) == (name, status)
    assert (span.status.status_code.name == "ERROR") is failed
    assert told(span).get("error.type") == ("500" if failed else None)
    assert not any("RuntimeError: 4711" in found.to_json() for found in memory.get_finished_spans())


class Receiver(http.server.ThreadingHTTPServer):
    """Takes traces over HTTP, as a collector does."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Take)
        self.resources: list[Any] = []

    def spans(self) -> list[tuple[str, Any]]:
        return [
            (attribute.value.string_value, span)
            for resource in self.resources
            for attribute in resource.resource.attributes
            if attribute.key == "service.name"
            for scope in resource.scope_spans
            for span in scope.spans
        ]


class _Take(http.server.BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.resources += ExportTraceServiceRequest.FromString(body).resource_spans
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.mark.sisters
@pytest.mark.parametrize("on", [True, False])
def test_traces_go_to_a_collector_only_if_asked_for(tmp_path: Path, on: bool) -> None:
    with Receiver() as receiver:
        threading.Thread(target=receiver.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{receiver.server_address[1]}"
        flags = ("--no-auth", *(("--otel",) if on else ()))
        with serving(tmp_path, *flags, env={"OTEL_EXPORTER_OTLP_ENDPOINT": address}) as served:
            with served.http() as client:
                told = client.post("/agents/default/stream", json=ASK, headers=CALLER)
            assert told.status_code == 200
            assert served.stop()[0] == 0
        receiver.shutdown()
    spans = receiver.spans()
    if not on:
        assert spans == []
        return
    assert {service for service, _ in spans} == {"wick"}
    assert {span.trace_id.hex() for _, span in spans} == {TRACE}
    assert sorted(span.name.split()[0] for _, span in spans) == [
        *("POST", "chat", "chat", "execute_tool")
    ]


@pytest.mark.slow
def test_without_the_extra_it_is_named() -> None:
    program = (
        "import sys; sys.modules['opentelemetry.sdk'] = None; "
        "sys.argv = ['wick', 'serve', '--otel', '--no-auth', '--port', '0']; "
        "from wick_graph.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode != 0
    assert 'pip install "wick-graph[otel]"' in done.stderr
    assert "Traceback" not in done.stderr
