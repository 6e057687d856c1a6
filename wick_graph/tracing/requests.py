"""Spans of the requests to a server, by OpenTelemetry; the spans of their runs belong to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Self

from wick_graph.errors import ConfigError
from wick_graph.tracing.otel import OtelRecorder

NAME: Final = "wick"
"""The service's name, where OTEL_SERVICE_NAME gives none."""
_CARRIED: Final = ("traceparent", "tracestate")


class RequestTracer:
    """Make a server span of each request; what the caller's `traceparent` names is its parent.

    The extra `otel` is needed.

    Args:
        provider: Where spans go; it stays the caller's to shut down.

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
        """Makes the spans of runs; it tells lengths and hashes of texts, never the texts."""

    @classmethod
    def exporting(cls) -> Self:
        """Send spans by OTLP over HTTP, as the variables OTEL_… say.

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
        """Have a span for a request; all that begins in the block belongs to it."""
        carried = {name: headers[name] for name in _CARRIED if name in headers}
        with self._tracer.start_as_current_span(
            method,
            context=self._carrier.extract(carried),
            kind=self._trace.SpanKind.SERVER,
            attributes={"http.request.method": method},
            record_exception=False,  # its text may hold what nobody should read
            set_status_on_exception=False,
        ) as span:
            yield RequestSpan(span, self._trace, method)

    def close(self) -> None:
        """Send what is left, if it was this object that set the sending up."""
        if self._ours:
            self._provider.shutdown()


class RequestSpan:
    """The span of one request."""

    def __init__(self, span: Any, trace: Any, method: str) -> None:
        self._span, self._trace, self._method = span, trace, method

    def routed(self, path: str) -> None:
        """Note which path it was, as a template: no ids are in it."""
        self._span.update_name(f"{self._method} {path}")
        self._span.set_attribute("http.route", path)

    def answered(self, status: int) -> None:
        """Note the answer's status."""
        self._span.set_attribute("http.response.status_code", status)
        if status >= 500:
            self.failed(str(status))

    def failed(self, kind: str) -> None:
        """Note that it failed, and the kind of failure alone."""
        self._span.set_attribute("error.type", kind)
        self._span.set_status(self._trace.Status(self._trace.StatusCode.ERROR))


def missing() -> ConfigError:
    """Make the error that names the extra."""
    return ConfigError("traces need OpenTelemetry: pip install 'wick-graph[otel]'")
