"""OpenTelemetry providers by the settings; OpenTelemetry is imported only if the settings ask for it.

The providers belong to tacit and are not the process's global ones, so no library's spans leave through them.
"""

import functools
import hashlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipeline.ground.settings import Telemetry
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


@dataclass(frozen=True)
class Emitter:
    """Exporter of spans and metrics.

    Guarantee: it exports only attributes that ``allowed.only`` passes.
    """

    traces: "TracerProvider"
    metrics: "MeterProvider"
    instruments: "Mapping[str, Gauge | Histogram]"

    def begin(self, launch_id: str, attributes: Mapping[str, Value]) -> "Span":
        """Begin a span in the launch's trace, which all its stages share, on any machine."""
        return self.traces.get_tracer(_SCOPE).start_span(SPAN, _trace_of(launch_id), attributes=only(attributes))

    def end(self, span: "Span", attributes: Mapping[str, Value], failed: bool) -> None:
        """End a span with its rounded duration; a failed span has no error message."""
        from opentelemetry.trace import Status, StatusCode

        said = only(attributes)
        span.set_attributes(said)
        span.set_status(Status(StatusCode.ERROR if failed else StatusCode.OK))
        began = getattr(span, "start_time", None)  # a span that the sampler dropped has none
        span.end(began and began + round(1e9 * float(said.get("tacit.stage.duration", 0))))

    def record(self, metrics: Mapping[str, Value], labels: Mapping[str, Value]) -> None:
        """Set gauges and add to histograms, for metrics on the allowlist."""
        said = only(labels)
        for name, value in only(metrics).items():
            if name in METRICS:
                instrument = self.instruments[name]
                put = getattr(instrument, "record" if METRICS[name].kind == "histogram" else "set")
                put(value, said)

    def flush(self) -> None:
        """Send pending data, as the process may end with the stage."""
        self.traces.force_flush()
        self.metrics.force_flush()


@functools.cache
def emitter(where: Telemetry) -> Emitter | None:
    """Return the process's emitter; None if the settings ask for none."""
    if where == Telemetry():
        return None
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES take precedence.
    resource = Resource({"service.name": "tacit"}).merge(OTELResourceDetector().detect())
    traces = TracerProvider(resource=resource)
    if spans := _span_exporter(where):
        traces.add_span_processor(BatchSpanProcessor(spans))
    numbers = _metric_exporter(where)
    metrics = MeterProvider([PeriodicExportingMetricReader(numbers)] if numbers else [], resource)
    meter = metrics.get_meter(_SCOPE)
    instruments: dict[str, Gauge | Histogram] = {
        name: meter.create_histogram(name, each.unit, each.about)
        if each.kind == "histogram"
        else meter.create_gauge(name, each.unit, each.about)
        for name, each in METRICS.items()
    }
    return Emitter(traces, metrics, instruments)


def _trace_of(launch_id: str) -> "Context":
    """Context shared by a launch's spans, derived from its id so that stages need not pass it on."""
    from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

    digest = hashlib.sha256(b"tacit trace " + launch_id.encode()).digest()
    trace, span = int.from_bytes(digest[:16], "big"), int.from_bytes(digest[16:24], "big")
    return set_span_in_context(NonRecordingSpan(SpanContext(trace, span, True, TraceFlags(TraceFlags.SAMPLED))))


def _span_exporter(where: Telemetry) -> "SpanExporter | None":
    match where.traces:
        case "otlp":
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

            return OTLPSpanExporter()
        case "console":
            from opentelemetry.sdk.trace.export import ConsoleSpanExporter

            return ConsoleSpanExporter(out=sys.stderr)  # standard output is for the command's answer
    return None


def _metric_exporter(where: Telemetry) -> "MetricExporter | None":
    match where.metrics:
        case "otlp":
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

            return OTLPMetricExporter()
        case "console":
            from opentelemetry.sdk.metrics.export import ConsoleMetricExporter

            return ConsoleMetricExporter(out=sys.stderr)
    return None
