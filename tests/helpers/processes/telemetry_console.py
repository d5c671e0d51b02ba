"""Spans and metrics on a console, as OpenTelemetry's own exporters write them, as plain values."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

CONSOLE = {"OTEL_TRACES_EXPORTER": "console", "OTEL_METRICS_EXPORTER": "console"}


@dataclass(frozen=True)
class Signals:
    """Attributes, ids, status and microseconds of every span; name, value and labels of every point of a metric."""

    spans: list[dict]
    metrics: list[tuple[str, float, dict]]


def signals_on(console: str) -> Signals:
    """All spans and metrics among a console's lines, in their order."""
    spans: list[dict] = []
    metrics: list[tuple[str, float, dict]] = []
    for content in _objects(console):
        if "context" in content:
            lasted = datetime.fromisoformat(content["end_time"]) - datetime.fromisoformat(content["start_time"])
            about = {"status": content["status"], "microseconds": lasted // timedelta(microseconds=1)}
            spans.append({name: content["context"][name] for name in ("trace_id", "span_id")} | about)
            spans[-1] |= content["attributes"]
        for group in content.get("resource_metrics", []):
            for metric in (metric for scope in group["scope_metrics"] for metric in scope["metrics"]):
                for point in metric["data"]["data_points"]:
                    metrics.append((metric["name"], point.get("value", point.get("sum")), point["attributes"]))
    return Signals(spans, metrics)


def _objects(console: str) -> Iterator[dict]:
    """JSON objects that begin a line; an object's own lines are indented."""
    for begin in re.finditer(r"^\{", console, flags=re.MULTILINE):
        yield json.JSONDecoder().raw_decode(console, begin.start())[0]
