"""A file of OTLP's JSON lines as plain values."""

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Told:
    """Attributes of every span, with ids, status and nanoseconds; name, value and labels of every point of a metric."""

    spans: list[dict]
    metrics: list[tuple[str, float, dict]]


def told(path: Path) -> Told:
    """All that a file says, in its order."""
    spans: list[dict] = []
    metrics: list[tuple[str, float, dict]] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        content = json.loads(line)
        for group in content.get("resourceSpans", []):
            for span in (span for scope in group["scopeSpans"] for span in scope["spans"]):
                ids = {name: span[name] for name in ("traceId", "spanId", "status")}
                ids["nanoseconds"] = int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"])
                spans.append(ids | _plain(span.get("attributes", [])))
        for group in content.get("resourceMetrics", []):
            for metric in (metric for scope in group["scopeMetrics"] for metric in scope["metrics"]):
                for point in metric.get("gauge", metric.get("histogram"))["dataPoints"]:
                    value = point.get("asDouble", point.get("asInt", point.get("sum")))
                    metrics.append((metric["name"], float(value), _plain(point.get("attributes", []))))
    return Told(spans, metrics)


def _plain(attributes: list[dict]) -> dict:
    def value(of: dict) -> object:
        ((kind, content),) = of.items()
        return int(content) if kind == "intValue" else content

    return {pair["key"]: value(pair["value"]) for pair in attributes}
