"""OpenTelemetry's providers as the settings ask for them; nothing of it is imported where they ask for none.

The providers are our own and not the process's, so that no library's spans leave through them.
"""

import functools
import hashlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.settings import Telemetry
from pipeline.telemetry.allowed import METRICS, SPAN, Value, only

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import Histogram
    from opentelemetry.metrics import _Gauge as Gauge
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import MetricExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span

_SCOPE = "tacit"
# Its own JSON spells these in base 16, where protobuf's has base 64.
_IDS = frozenset({"traceId", "spanId", "parentSpanId"})


@dataclass(frozen=True)
class Emitter:
    """What spans and metrics go through.

    Guarantee: only what ``allowed.only`` lets through, whatever is handed in.
    """

    traces: "TracerProvider"
    metrics: "MeterProvider"
    instruments: "Mapping[str, Gauge | Histogram]"

    def begin(self, launch_id: str, attributes: Mapping[str, Value]) -> "Span":
        """A span of the launch's trace, which is the same for all its stages, on any machine."""
        return self.traces.get_tracer(_SCOPE).start_span(SPAN, _trace_of(launch_id), attributes=only(attributes))

    def end(self, span: "Span", attributes: Mapping[str, Value], failed: bool) -> None:
        """End a span, which lasted as long as may be told; a failed one has no words of the error."""
        from opentelemetry.trace import Status, StatusCode

        said = only(attributes)
        span.set_attributes(said)
        span.set_status(Status(StatusCode.ERROR if failed else StatusCode.OK))
        began = getattr(span, "start_time", None)  # of one that a sampler left out there is none
        span.end(began and began + round(1e9 * float(said.get("tacit.stage.duration", 0))))

    def record(self, metrics: Mapping[str, Value], labels: Mapping[str, Value]) -> None:
        """Set gauges and add to histograms, those of them that are on the list."""
        said = only(labels)
        for name, value in only(metrics).items():
            if name in METRICS:
                instrument = self.instruments[name]
                put = getattr(instrument, "record" if METRICS[name].kind == "histogram" else "set")
                put(value, said)

    def flush(self) -> None:
        """Send what is there: the process may end with the stage."""
        self.traces.force_flush()
        self.metrics.force_flush()


@functools.cache
def emitter(where: Telemetry) -> Emitter | None:
    """The process's emitter; None where nobody asked for one."""
    if where == Telemetry(file=None):
        return None
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES go before ours.
    resource = Resource({"service.name": "tacit"}).merge(OTELResourceDetector().detect())
    traces = TracerProvider(resource=resource)
    for exporter in _span_exporters(where):
        traces.add_span_processor(BatchSpanProcessor(exporter))
    readers = [PeriodicExportingMetricReader(exporter) for exporter in _metric_exporters(where)]
    metrics = MeterProvider(readers, resource)
    meter = metrics.get_meter(_SCOPE)
    instruments: dict[str, Gauge | Histogram] = {
        name: meter.create_histogram(name, each.unit, each.about)
        if each.kind == "histogram"
        else meter.create_gauge(name, each.unit, each.about)
        for name, each in METRICS.items()
    }
    return Emitter(traces, metrics, instruments)


def _trace_of(launch_id: str) -> "Context":
    """The context that a launch's spans share: nobody has to carry it from stage to stage."""
    from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

    digest = hashlib.sha256(b"tacit trace " + launch_id.encode()).digest()
    trace, span = int.from_bytes(digest[:16], "big"), int.from_bytes(digest[16:24], "big")
    return set_span_in_context(NonRecordingSpan(SpanContext(trace, span, True, TraceFlags(TraceFlags.SAMPLED))))


def _span_exporters(where: Telemetry) -> "list[SpanExporter]":
    exporters: list[SpanExporter] = []
    if where.traces == "otlp":
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        exporters.append(OTLPSpanExporter())
    if where.traces == "console":
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        exporters.append(ConsoleSpanExporter(out=sys.stderr))  # standard output is the answer's
    return [*exporters, *([_spans_to(where.file)] if where.file else [])]


def _metric_exporters(where: Telemetry) -> "list[MetricExporter]":
    exporters: list[MetricExporter] = []
    if where.metrics == "otlp":
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

        exporters.append(OTLPMetricExporter())
    if where.metrics == "console":
        from opentelemetry.sdk.metrics.export import ConsoleMetricExporter

        exporters.append(ConsoleMetricExporter(out=sys.stderr))
    return [*exporters, *([_metrics_to(where.file)] if where.file else [])]


def _spans_to(path: Path) -> "SpanExporter":
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    class ToFile(SpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            _append(path, encode_spans(spans))
            return SpanExportResult.SUCCESS

    return ToFile()


def _metrics_to(path: Path) -> "MetricExporter":
    from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
    from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, MetricsData

    class ToFile(MetricExporter):
        def export(self, metrics_data: MetricsData, timeout_millis: float = 0, **_more: object) -> MetricExportResult:
            _append(path, encode_metrics(metrics_data))
            return MetricExportResult.SUCCESS

        def force_flush(self, timeout_millis: float = 0) -> bool:
            return True

        def shutdown(self, timeout_millis: float = 0, **_more: object) -> None:
            return

    return ToFile()


def _append(path: Path, message: Any) -> None:
    """One line, written whole, so that several processes may share the file: OTLP's file format."""
    from google.protobuf.json_format import MessageToDict

    content = _with_ids(MessageToDict(message, use_integers_for_enums=True))
    line = json.dumps(content, separators=(",", ":")) + "\n"
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(handle, line.encode())
    finally:
        os.close(handle)


def _with_ids(content: Any) -> Any:
    import base64

    if isinstance(content, list):
        return [_with_ids(each) for each in content]
    if not isinstance(content, dict):
        return content
    return {
        name: base64.b64decode(value).hex() if name in _IDS else _with_ids(value) for name, value in content.items()
    }
