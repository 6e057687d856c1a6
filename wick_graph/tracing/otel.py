"""OpenTelemetry spans of runs and of HTTP requests."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final, Self

from wick_graph.errors import ConfigError, missing_extra

# --- A recorder of OpenTelemetry spans, named by the GenAI conventions.


_NAMES: Final[Mapping[str, str]] = {
    "agent": "gen_ai.agent.name",
    "thread_id": "gen_ai.conversation.id",
    "provider": "gen_ai.provider.name",
    "model": "gen_ai.request.model",
    "response_model": "gen_ai.response.model",
    "response_id": "gen_ai.response.id",
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cache_read_tokens": "gen_ai.usage.cache_read.input_tokens",
    "cache_write_tokens": "gen_ai.usage.cache_creation.input_tokens",
    "tool_name": "gen_ai.tool.name",
    "tool_call_id": "gen_ai.tool.call.id",
    "tool_args": "gen_ai.tool.call.arguments",
    "output_preview": "gen_ai.tool.call.result",
    "content_preview": "gen_ai.output.messages",
    "error_type": "error.type",
}
"""Our attribute names and the conventions'; all others become `wick.<name>`."""

_TEXTS: Final = frozenset({"error", "tool_error", "why"})
"""Attributes with free text from outside: a model, a provider, a file."""

_OPERATIONS: Final[Mapping[str, tuple[str, str]]] = {
    "llm.call": ("chat", "model"),
    "tool.call": ("execute_tool", "tool_name"),
}
"""Our spans: the conventions' operation, and the attribute that completes the span's name."""

_PROVIDERS: Final[Mapping[str, str]] = {
    "anthropic": "anthropic",
    "google_genai": "gcp.gemini",
    "google_vertexai": "gcp.vertex_ai",
    "mistralai": "mistral_ai",
    "openai": "openai",
    "xai": "x_ai",
}


class OtelRecorder:
    """Make a span for each model and tool call, below the span around the run.

    Spans go where the application's OpenTelemetry SDK sends them. Needs the extra `otel`.

    Args:
        tracer: The application's tracer; by default one of the global provider.
        content: Whether to export texts and arguments instead of their lengths and hashes.

    Raises:
        ConfigError: OpenTelemetry is not installed.
    """

    def __init__(self, tracer: Any = None, *, content: bool = False) -> None:
        try:
            from opentelemetry import context, trace  # noqa: PLC0415  # an optional extra
        except ImportError as error:
            raise missing() from error
        self.content = content
        self._trace, self._context = trace, context
        self._tracer = tracer or trace.get_tracer("wick_graph")

    def start_span(self, name: str) -> _Span:
        """Start a span and make it the parent of later spans until it ends."""
        operation, _ = _OPERATIONS.get(name, (name, ""))
        kind = self._trace.SpanKind.CLIENT if operation == "chat" else None
        span = self._tracer.start_span(operation, kind=kind or self._trace.SpanKind.INTERNAL)
        return _Span(self._trace, self._context, span, name, self.content)

    def record_event(self, name: str, metadata: Mapping[str, Any]) -> None:
        """Add an event to the current span."""
        span = self._trace.get_current_span()
        told = {
            k: v for fact in metadata.items() for k, v in _exported(*fact, self.content).items()
        }
        span.add_event(name, {f"wick.{key}": _plain(value) for key, value in told.items()})


class _Span:
    def __init__(self, trace: Any, context: Any, span: Any, name: str, content: bool) -> None:
        self._trace, self._context, self._span, self._content = trace, context, span, content
        self._operation, self._subject = _OPERATIONS.get(name, ("", ""))
        self._token = context.attach(trace.set_span_in_context(span))
        self._ended = False
        if self._operation:
            span.set_attribute("gen_ai.operation.name", self._operation)
        if self._operation == "execute_tool":
            span.set_attribute("gen_ai.tool.type", "function")

    def set(self, key: str, value: Any) -> Self:
        if key == self._subject and self._operation:
            self._span.update_name(f"{self._operation} {value}")
        if key == "provider":
            value = _PROVIDERS.get(value, value)
        if key == "content_preview":
            value = [{"role": "assistant", "parts": [{"type": "text", "content": value}]}]
        if key in ("error", "tool_error"):
            said = str(value) if self._content else None
            self._span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, said))
        if key == "finish_reason":
            self._span.set_attribute("gen_ai.response.finish_reasons", [str(value)])
            return self
        for name, fact in _exported(key, value, self._content).items():
            self._span.set_attribute(_NAMES.get(name, f"wick.{name}"), _plain(fact))
        return self

    def end(self) -> None:
        if self._ended:
            return
        self._ended = True
        # A cancelled run may end in another context than its first; the span is valid all the same.
        with suppress(ValueError):
            self._context.detach(self._token)
        self._span.end()


def _exported(key: str, value: Any, content: bool) -> dict[str, Any]:
    """Return the attributes to export; unwanted text becomes its length and hash."""
    if content or key not in _TEXTS:
        return {key: value}
    said = str(value)
    hashed = hashlib.sha256(said.encode("utf-8", "replace")).hexdigest()[:16]
    return {f"{key}_length": len(said), f"{key}_hash": hashed}


def _plain(value: Any) -> Any:
    """Convert a value to an attribute."""
    if isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        return list(value)
    return json.dumps(value, ensure_ascii=False, default=str)


# --- OpenTelemetry spans of a server's requests, the parents of the spans of their runs.


NAME: Final = "wick"
"""The service's name, unless OTEL_SERVICE_NAME gives one."""

_CARRIED: Final = ("traceparent", "tracestate")


class RequestTracer:
    """Make a server span for each request, below the span in its `traceparent` header.

    Needs the extra `otel`.

    Args:
        provider: The destination of spans; the caller must shut it down.

    Raises:
        ConfigError: OpenTelemetry is not installed.
    """

    def __init__(self, provider: Any) -> None:
        try:
            from opentelemetry import trace  # noqa: PLC0415  # an optional extra
            from opentelemetry.trace.propagation import (  # noqa: PLC0415  # as above
                tracecontext,
            )
        except ImportError as error:
            raise missing() from error
        self._trace: Final = trace
        self._carrier: Final = tracecontext.TraceContextTextMapPropagator()
        self._provider: Final = provider
        self._tracer: Final = provider.get_tracer("wick_graph.server")
        self._ours = False
        self.recorder: Final = OtelRecorder(provider.get_tracer("wick_graph"))
        """Records the spans of runs; exports lengths and hashes of texts, never the texts."""

    @classmethod
    def exporting(cls) -> Self:
        """Export spans by OTLP over HTTP, as the variables OTEL_… configure.

        Raises:
            ConfigError: OpenTelemetry is not installed.
        """
        try:
            from opentelemetry.exporter.otlp.proto.http import (  # noqa: PLC0415  # an optional extra
                trace_exporter,
            )
            from opentelemetry.sdk.resources import Resource  # noqa: PLC0415  # as above
            from opentelemetry.sdk.trace import TracerProvider, export  # noqa: PLC0415  # as above
        except ImportError as error:
            raise missing() from error
        resource = Resource.create()
        if str(resource.attributes.get("service.name", "")).startswith("unknown_service"):
            resource = resource.merge(Resource({"service.name": NAME}))
        provider = TracerProvider(resource=resource)
        exporter = trace_exporter.OTLPSpanExporter()
        provider.add_span_processor(export.BatchSpanProcessor(exporter))
        made = cls(provider)
        made._ours = True
        return made

    @contextmanager
    def request(self, method: str, headers: Mapping[str, str]) -> Iterator[RequestSpan]:
        """Keep a span open for a request; spans that begin in the block are below it."""
        carried = {name: headers[name] for name in _CARRIED if name in headers}
        with self._tracer.start_as_current_span(
            method,
            context=self._carrier.extract(carried),
            kind=self._trace.SpanKind.SERVER,
            attributes={"http.request.method": method},
            record_exception=False,  # its text may be confidential
            set_status_on_exception=False,
        ) as span:
            yield RequestSpan(span, self._trace, method)

    def close(self) -> None:
        """Send the remaining spans, if this object set up the export."""
        if self._ours:
            self._provider.shutdown()


def current_traceparent() -> str:
    """Return the current span as W3C's header has it; empty for none, or without OpenTelemetry."""
    if "opentelemetry.trace" not in sys.modules:  # then no span has begun
        return ""
    from opentelemetry.trace.propagation import tracecontext  # noqa: PLC0415  # an optional extra

    carrier: dict[str, str] = {}
    tracecontext.TraceContextTextMapPropagator().inject(carrier)
    return carrier.get("traceparent", "")


@contextmanager
def carried(traceparent: str) -> Iterator[None]:
    """Begin the spans of the block, and of tasks made in it, below a span of another process."""
    if not traceparent or "opentelemetry.trace" not in sys.modules:
        yield
        return
    from opentelemetry import context  # noqa: PLC0415  # an optional extra
    from opentelemetry.trace.propagation import tracecontext  # noqa: PLC0415  # as above

    carrier = {"traceparent": traceparent}
    token = context.attach(tracecontext.TraceContextTextMapPropagator().extract(carrier))
    try:
        yield
    finally:
        context.detach(token)


class RequestSpan:
    """The span of one request."""

    def __init__(self, span: Any, trace: Any, method: str) -> None:
        self._span, self._trace, self._method = span, trace, method

    def routed(self, path: str) -> None:
        """Record the route as a template, without ids."""
        self._span.update_name(f"{self._method} {path}")
        self._span.set_attribute("http.route", path)

    def answered(self, status: int) -> None:
        """Record the answer's status."""
        self._span.set_attribute("http.response.status_code", status)
        if status >= 500:
            self.failed(str(status))

    def failed(self, kind: str) -> None:
        """Record a failure, but only its kind."""
        self._span.set_attribute("error.type", kind)
        self._span.set_status(self._trace.Status(self._trace.StatusCode.ERROR))


def missing() -> ConfigError:
    """Return the error that names the extra."""
    return ConfigError(missing_extra("an OTLP trace", "OpenTelemetry", "otel"))
