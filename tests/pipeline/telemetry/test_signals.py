"""Spans and metrics of stages: what they say, where they go, and that nothing else gets out."""

import http.server
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from pipeline import runner
from pipeline.config import launch_id
from pipeline.errors import BudgetExceeded
from pipeline.runner import Stages
from pipeline.settings import Settings, Telemetry
from pipeline.stage import StageSpend
from pipeline.telemetry import export, signals, work
from pipeline.telemetry.allowed import ATTRIBUTES, METRICS, only, prometheus_name
from tests.helpers.launches.pipeline_launch import Calls, Counted, launch_config, spend
from tests.helpers.processes.telemetry_file import Told, told

CONFIG = launch_config()
ID = launch_id(CONFIG)
SECRET = "a word that somebody typed"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = tmp_path / "telemetry.jsonl"
    monkeypatch.setenv("TACIT_TELEMETRY_FILE", str(path))
    yield path
    over(Telemetry(file=path))


def over(where: Telemetry) -> None:
    """End the threads of an emitter."""
    made = export.emitter(where)
    assert made is not None
    made.traces.shutdown()
    made.metrics.shutdown()
    export.emitter.cache_clear()


def run(name: str, settings: Settings, stages: Stages) -> None:
    runner.run_stage(name, CONFIG, ID, settings, stages)


def values(metrics: Told, name: str) -> set[float]:
    return {value for metric, value, _ in metrics.metrics if metric == name}


def test_stages_are_spans_of_one_trace_with_what_they_spent(file: Path, settings: Settings) -> None:
    calls = Calls()
    for name in ("ingest_private", "plan", "fine_tune"):
        run(name, settings, calls.stages)
    seen = told(file)
    assert [span["stage"] for span in seen.spans] == ["ingest_private", "plan", "fine_tune"]
    assert len({span["traceId"] for span in seen.spans}) == 1
    assert all(len(span["traceId"]) == 32 and len(span["spanId"]) == 16 for span in seen.spans)
    trained = seen.spans[-1]
    expected = {"launch_id": ID, "attempt": 1, "locale": "en-US", "features": "NWP", "unit": "device"}
    expected |= {"tacit.spend.rho": 0.25, "tacit.spend.epsilon": 2.0, "tacit.stage.exit_code": 0}
    expected |= {"tacit.rounds.total": 8, "tacit.devices.goal": 2, "tacit.noise.multiplier": 6.0}
    assert {name: trained[name] for name in expected} == expected
    assert trained["tacit.stage.duration"] >= 0
    assert trained["tacit.memory.peak"] > 1e7
    assert values(seen, "tacit.spend.rho") == {0.25}
    assert values(seen, "tacit.stage.exit_code") == {0}


def test_times_have_two_digits(file: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading what people typed takes as long as there is text."""
    for module in (runner, signals):
        ticks = count(0.0, 123.456)
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=ticks.__next__))
    assert runner.run_stage("ingest_private", CONFIG, ID, settings, Calls().stages).record.seconds == 120
    (span,) = told(file).spans
    assert (span["tacit.stage.duration"], span["nanoseconds"]) == (120, 120 * 10**9)
    assert len(f"{span['tacit.memory.peak']:.0f}".rstrip("0")) <= 2
    with work.at(ID, "fine_tune", "en-US", ("NWP",)):
        signals.progress({"round": 1, "rounds": 8, "seconds": 0.1234})
    made = export.emitter(Telemetry(file=file))
    assert made is not None
    made.flush()
    assert values(told(file), "tacit.round.duration") == {0.12}


def test_rounds_are_told_as_they_end(file: Path) -> None:
    with work.at(ID, "fine_tune", "en-US", ("NWP",)):
        signals.progress({"round": 1, "rounds": 8, "seconds": 2.0, "validation_loss": 5.0})
        signals.progress({"round": 2, "rounds": 8, "seconds": 4.0})
        signals.progress({"step": 7, "seconds": 9.0})
    made = export.emitter(Telemetry(file=file))
    assert made is not None
    made.flush()
    seen = told(file)
    assert max(values(seen, "tacit.rounds.done")) == 2
    assert values(seen, "tacit.round.duration") == {6.0}  # of a histogram its sum
    assert {name for name, _, _ in seen.metrics} == {"tacit.rounds.done", "tacit.rounds.total", "tacit.round.duration"}


def test_an_error_is_a_code_and_a_class_and_none_of_its_words(file: Path, settings: Settings) -> None:
    def plan(ctx: object) -> Counted:
        raise ValueError(f"text: {SECRET!r} cannot be read")

    def fine_tune(ctx: object) -> Counted:
        raise type(SECRET.replace(" ", "_"), (Exception,), {})(SECRET)

    for stage in (plan, fine_tune):
        with pytest.raises(Exception, match=SECRET):
            run(stage.__name__, settings, Stages(functions={stage.__name__: stage}, spends={}))
    text = file.read_text(encoding="utf-8")
    assert SECRET not in text
    assert SECRET.replace(" ", "_") not in text
    seen = told(file)
    assert [(span["error_type"], span["tacit.stage.exit_code"]) for span in seen.spans] == [
        ("ValueError", 65),
        ("other", 1),
    ]
    assert all(span["status"] == {"code": 2} for span in seen.spans)


def test_a_refused_spend_is_named(file: Path, settings: Settings) -> None:
    stages = Stages(
        functions={"fine_tune": Calls().fine_tune},
        spends={"fine_tune": StageSpend(planned=lambda config, run: spend(0.4), inputs=())},
    )
    config = launch_config(policy={"max_rho": 0.2, "population_max_rho": 0.3})
    with pytest.raises(BudgetExceeded):
        runner.run_stage("fine_tune", config, launch_id(config), settings, stages)
    (metric,) = (labels for name, _, labels in told(file).metrics if name == "tacit.stage.exit_code")
    assert metric["error_type"] == "BudgetExceeded"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("text", "hello"),
        ("launch_id", "two words"),
        ("stage", "hello"),
        ("features", "NWP+hello"),
        ("locale", "hello"),
        ("error_type", "hello"),
        ("tacit.spend.rho", "hello"),
        ("tacit.spend.rho", float("nan")),
        ("tacit.rounds.done", True),
        ("attempt", -1),
        ("tacit.validation.loss", 0.5),
    ],
)
def test_what_is_not_on_the_list_is_dropped(name: str, value: object) -> None:
    assert only({name: value, "stage": "plan"} if name != "stage" else {name: value}).get(name) is None  # type: ignore[dict-item]


def test_whoever_hands_something_else_in_it_does_not_get_out(file: Path) -> None:
    made = export.emitter(Telemetry(file=file))
    assert made is not None
    span = made.begin(ID, {"stage": "plan", "text": SECRET, "launch_id": SECRET})
    made.end(span, {"words": SECRET}, failed=False)
    made.record({"tacit.rounds.done": 3, SECRET: 4}, {"stage": SECRET, "device": SECRET})
    made.flush()
    assert SECRET not in file.read_text(encoding="utf-8")
    (span_told,) = told(file).spans
    assert span_told["stage"] == "plan"


@pytest.fixture
def collector() -> Iterator[tuple[str, dict[str, bytes]]]:
    """A server that takes what OTLP sends it."""
    taken: dict[str, bytes] = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            taken[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", taken
        server.shutdown()
        thread.join()


def test_a_collector_gets_both_by_the_standard_s_variables(
    collector: tuple[str, dict[str, bytes]], settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, taken = collector
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "keyboards")
    run("ingest_private", settings, Calls().stages)
    over(Telemetry("otlp", "otlp"))
    spans = ExportTraceServiceRequest.FromString(taken["/v1/traces"]).resource_spans[0]
    assert [span.name for span in spans.scope_spans[0].spans] == ["tacit.stage"]
    assert {pair.key: pair.value.string_value for pair in spans.resource.attributes}["service.name"] == "keyboards"
    metrics = ExportMetricsServiceRequest.FromString(taken["/v1/metrics"]).resource_metrics[0].scope_metrics[0].metrics
    assert {"tacit.stage.duration", "tacit.stage.exit_code"} <= {metric.name for metric in metrics} <= METRICS.keys()


def test_nobody_asked_so_there_is_nothing(settings: Settings) -> None:
    assert export.emitter(Telemetry()) is None
    signals.progress({"round": 1})


def test_names_for_prometheus() -> None:
    assert prometheus_name("tacit.stage.duration") == "tacit_stage_duration_seconds"
    assert prometheus_name("tacit.memory.peak") == "tacit_memory_peak_bytes"
    assert prometheus_name("tacit.launch.held") == "tacit_launch_held"
    assert METRICS.keys() <= ATTRIBUTES.keys()
