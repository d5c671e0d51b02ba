"""Spans and metrics of stages: what they say, where they go, and that nothing else gets out."""

import http.server
import io
import threading
from collections.abc import Callable, Iterator
from itertools import count
from types import SimpleNamespace

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from pipeline.ground.errors import BudgetExceeded
from pipeline.ground.settings import Settings, Telemetry
from pipeline.launch.config import launch_id
from pipeline.run import runner
from pipeline.run.stage import Stage, Stages
from pipeline.telemetry import export, signals, work
from pipeline.telemetry.allowed import ATTRIBUTES, METRICS, only
from tests.helpers.launches.pipeline_launch import Calls, Counted, launch_config, spend
from tests.helpers.launches.stages import stages_of
from tests.helpers.processes.telemetry_console import CONSOLE, Signals, signals_on
from tests.helpers.telemetry.prometheus import prometheus_name

CONFIG = launch_config()
ID = launch_id(CONFIG)
SECRET = "a word that somebody typed"


TO_CONSOLE = Telemetry("console", "console")


@pytest.fixture
def console(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], str]]:
    """Everything that spans and metrics say, on the console."""
    for name, value in CONSOLE.items():
        monkeypatch.setenv(name, value)
    stream = io.StringIO()
    monkeypatch.setattr(export, "sys", SimpleNamespace(stderr=stream))

    def said() -> str:
        made = export.emitter(TO_CONSOLE)
        assert made is not None
        made.flush()
        return stream.getvalue()

    yield said
    over(TO_CONSOLE)


def over(where: Telemetry) -> None:
    """End the threads of an emitter."""
    made = export.emitter(where)
    assert made is not None
    made.traces.shutdown()
    made.metrics.shutdown()
    export.emitter.cache_clear()


def run(name: str, settings: Settings, stages: Stages) -> None:
    runner.run_stage(name, CONFIG, ID, settings, stages)


def values(metrics: Signals, name: str) -> set[float]:
    return {value for metric, value, _ in metrics.metrics if metric == name}


def test_stages_are_spans_of_one_trace(console: Callable[[], str], settings: Settings) -> None:
    calls = Calls()
    for name in ("ingest_private", "plan", "fine_tune"):
        run(name, settings, calls.stages)
    seen = signals_on(console())
    assert [span["stage"] for span in seen.spans] == ["ingest_private", "plan", "fine_tune"]
    assert len({span["trace_id"] for span in seen.spans}) == 1
    trained = seen.spans[-1]
    expected = {"launch_id": ID, "attempt": 1, "locale": "en-US", "features": "NWP"}
    expected |= {
        "tacit.stage.exit_code": 0,
        "tacit.rounds.total": 8,
        "tacit.devices.goal": 2,
        "tacit.noise.multiplier": 6.0,
    }
    assert {name: trained[name] for name in expected} == expected
    assert trained["tacit.stage.duration"] >= 0
    assert trained["tacit.memory.peak"] > 1e7
    assert values(seen, "tacit.stage.exit_code") == {0}


@pytest.mark.parametrize("loss", [{"epsilon": 12.9}, {"epsilon": 4.9, "rho": 0.5}], ids=["with words", "noised"])
def test_a_decision_tells_the_loss_to_all_releases(loss: dict[str, float], console: Callable[[], str]) -> None:
    headline = {"decision": "launch", "guarantee": "12.90 (local words 8.00)", "delta": 1e-6} | loss
    with signals.watched(ID, "decide", "en-US", ("NWP",), None) as finished:
        finished({"decision": "launch", "headline": headline, "spend": None}, reused=False)
    told = {name: value for name, value, _ in signals_on(console()).metrics if name.startswith("tacit.loss")}
    assert told == {f"tacit.loss.{name}": value for name, value in loss.items()}


def test_a_spend_tells_the_share_left_of_the_scarcest_part_of_its_budget(
    console: Callable[[], str], settings: Settings
) -> None:
    """Of rho 0.4 in all 0.15 is left; words, which this launch does not find, have all of their budget."""
    ceilings = {"max_rho": 0.4, "population_max_rho": 0.4, "population_max_discovery_epsilon": 8.0}
    config, calls = launch_config(policy=ceilings), Calls()
    for name in ("ingest_private", "plan", "fine_tune"):
        runner.run_stage(name, config, launch_id(config), settings, calls.stages)
    told = [(value, labels) for name, value, labels in signals_on(console()).metrics if name == "tacit.budget.left"]
    assert [value for value, _ in told] == pytest.approx([0.15 / 0.4] * len(told))
    assert {labels["population"] for _, labels in told} == {config.population}


def test_times_have_two_digits(console: Callable[[], str], settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading what people typed takes as long as there is text."""
    for module in (runner, signals):
        ticks = count(0.0, 123.456)
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=ticks.__next__))
    assert runner.run_stage("ingest_private", CONFIG, ID, settings, Calls().stages).record.seconds == 120
    (span,) = signals_on(console()).spans
    assert (span["tacit.stage.duration"], span["microseconds"]) == (120, 120 * 10**6)
    assert len(f"{span['tacit.memory.peak']:.0f}".rstrip("0")) <= 2
    with work.at(ID, "fine_tune", "en-US", ("NWP",)):
        signals.progress({"round": 1, "rounds": 8, "seconds": 0.1234})
    assert values(signals_on(console()), "tacit.round.duration") == {0.12}


def test_rounds_are_told_as_they_end(console: Callable[[], str]) -> None:
    with work.at(ID, "fine_tune", "en-US", ("NWP",)):
        signals.progress({"round": 1, "rounds": 8, "seconds": 2.0, "validation_loss": 5.0})
        signals.progress({"round": 2, "rounds": 8, "seconds": 4.0})
        signals.progress({"step": 7, "seconds": 9.0})
    seen = signals_on(console())
    assert max(values(seen, "tacit.rounds.done")) == 2
    assert values(seen, "tacit.round.duration") == {6.0}  # of a histogram its sum
    assert {name for name, _, _ in seen.metrics} == {"tacit.rounds.done", "tacit.rounds.total", "tacit.round.duration"}


def test_an_error_is_a_code_and_a_class_and_none_of_its_words(console: Callable[[], str], settings: Settings) -> None:
    def plan(ctx: object) -> Counted:
        raise ValueError(f"text: {SECRET!r} cannot be read")

    def fine_tune(ctx: object) -> Counted:
        raise type(SECRET.replace(" ", "_"), (Exception,), {})(SECRET)

    for stage in (plan, fine_tune):
        with pytest.raises(Exception, match=SECRET):
            run(stage.__name__, settings, stages_of({stage.__name__: stage}))
    text = console()
    assert SECRET not in text
    assert SECRET.replace(" ", "_") not in text
    seen = signals_on(text)
    assert [(span["error_type"], span["tacit.stage.exit_code"]) for span in seen.spans] == [
        ("ValueError", 65),
        ("other", 1),
    ]
    assert all(span["status"] == {"status_code": "ERROR"} for span in seen.spans)


def test_a_refused_spend_is_named(console: Callable[[], str], settings: Settings) -> None:
    stages = stages_of({"fine_tune": Calls().fine_tune}, Stage("fine_tune", "", planned=lambda config, run: spend(0.4)))
    config = launch_config(policy={"max_rho": 0.2, "population_max_rho": 0.3})
    with pytest.raises(BudgetExceeded):
        runner.run_stage("fine_tune", config, launch_id(config), settings, stages)
    ends = [labels for name, _, labels in signals_on(console()).metrics if name == "tacit.stage.exit_code"]
    assert {labels["error_type"] for labels in ends} == {"BudgetExceeded"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("text", "hello"),
        ("launch_id", "two words"),
        ("stage", "see you at eight"),
        ("features", "NWP+hello"),
        ("locale", "hello"),
        ("error_type", "hello"),
        ("tacit.loss.rho", "hello"),
        ("tacit.loss.rho", float("nan")),
        ("tacit.rounds.done", True),
        ("attempt", -1),
        ("tacit.validation.loss", 0.5),
    ],
)
def test_what_is_not_on_the_list_is_dropped(name: str, value: object) -> None:
    assert only({name: value, "stage": "plan"} if name != "stage" else {name: value}).get(name) is None  # type: ignore[dict-item]


def test_whoever_hands_something_else_in_it_does_not_get_out(console: Callable[[], str]) -> None:
    made = export.emitter(TO_CONSOLE)
    assert made is not None
    span = made.begin(ID, {"stage": "plan", "text": SECRET, "launch_id": SECRET})
    made.end(span, {"words": SECRET}, failed=False)
    made.record({"tacit.rounds.done": 3, SECRET: 4}, {"stage": SECRET, "device": SECRET})
    text = console()
    assert SECRET not in text
    (seen,) = signals_on(text).spans
    assert seen["stage"] == "plan"


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
