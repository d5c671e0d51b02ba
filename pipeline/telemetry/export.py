"""OpenTelemetry's providers as the settings ask for them; nothing of it is imported where they ask for none.

The providers are our own and not the process's, so that no library's spans leave through them.
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
    if where == Telemetry():
        return None
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES go before ours.
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
    """The context that a launch's spans share: nobody has to carry it from stage to stage."""
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

            return ConsoleSpanExporter(out=sys.stderr)  # standard output is the answer's
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
