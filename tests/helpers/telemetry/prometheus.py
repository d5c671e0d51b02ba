"""Names of metrics in Prometheus."""

from pipeline.telemetry.allowed import METRICS


def prometheus_name(metric: str) -> str:
    """Name of a metric after ingestion by OTLP."""
    suffix = {"s": "_seconds", "By": "_bytes", "": ""}[METRICS[metric].unit]
    return metric.replace(".", "_") + suffix
