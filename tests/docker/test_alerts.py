"""Each alert fires on series that the product itself emits, and neither before its cause nor after it.

Names and labels come from the code that exports them: tacit's signals, Airflow's own meter, the exporters beside the
databases. Values over time are the case's; `promtool` runs the rules over both.
"""

import io
import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from pipeline.ground.errors import BudgetExceeded, LedgerTampered
from pipeline.ground.settings import Telemetry
from pipeline.telemetry import export, signals, work
from tests.helpers.processes.ports import free_port
from tests.helpers.processes.server import until
from tests.helpers.processes.telemetry_console import CONSOLE, signals_on
from tests.helpers.telemetry.prometheus import prometheus_name

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "docker" / "telemetry" / "rules.yaml"
AIRFLOW = ROOT / ".venv" / "airflow" / "bin" / "python"
ID = "en-US-0123abcd-20261101"
# The calls of Airflow's scheduler and dag-processor, through Airflow's own meter (3.3.2).
METER = """
import json
from airflow._shared.observability.metrics.otel_logger import SafeOtelLogger
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from tests.helpers.telemetry.prometheus import prometheus_name
from tests.helpers.telemetry.prometheus import prometheus_name

reader = InMemoryMetricReader()
stats = SafeOtelLogger(MeterProvider([reader]))
stats.incr("scheduler_heartbeat", 1, 1)
stats.gauge("pool.queued_slots", 1, tags={"pool_name": "gpu"})
stats.gauge("pool.queued_slots", 1, tags={"pool_name": "cpu"})
stats.incr("task_instances_without_heartbeats_killed", tags={"dag_id": "en-US", "task_id": "fine_tune"})
stats.gauge("dag_processing.import_errors", 1)
(group,) = json.loads(reader.get_metrics_data().to_json())["resource_metrics"]
print(json.dumps([metric for scope in group["scope_metrics"] for metric in scope["metrics"]]))
"""


@dataclass(frozen=True)
class Case:
    """Values of a series over minutes, and minutes at which its alert is silent and fires."""

    metric: str
    values: str
    silent: int
    fires: int
    also: dict[str, str] = field(default_factory=dict)  # further metrics of the alert's expression
    labels: str = ""  # of the series, for a metric that has several


CASES = {
    "LaunchHeld": Case("tacit_launch_held", "0x60 1x60", 59, 65),
    "StageFailed": Case("tacit_stage_exit_code", "_x9 65 _x100", 60, 15, labels='error_type="ValueError"'),
    "StageBug": Case("tacit_stage_exit_code", "_x9 1 _x100", 60, 15, labels='error_type="other"'),
    "StageTriedAgain": Case("tacit_stage_exit_code", "_x9 75 _x100", 60, 15, labels='attempt="2"'),
    "BudgetUsedUp": Case("tacit_stage_exit_code", "_x9 65 _x100", 5, 15, labels='error_type="BudgetExceeded"'),
    "LedgerNotTrusted": Case("tacit_stage_exit_code", "_x9 65 _x100", 5, 15, labels='error_type="LedgerTampered"'),
    "BudgetLow": Case("tacit_budget_left", "0.33 _x120 0.05 _x120", 60, 130),
    "TrainingStalled": Case("tacit_rounds_done", "1 2 3x398", 180, 360, {"tacit_rounds_total": "8x400"}),
    "StageNearMemoryLimit": Case("tacit_memory_peak_bytes", "8000000000x60 16000000000x60", 59, 65),
    "SchedulerSilent": Case("airflow_scheduler_heartbeat_total", "0+12x300 3600x300", 200, 400),
    "QueueStuck": Case("airflow_pool_queued_slots", "0x100 1x600", 400, 500, labels='pool_name="gpu"'),
    "WorkerLost": Case("airflow_task_instances_without_heartbeats_killed_total", "_x99 1x500", 98, 105),
    "LaunchFileBroken": Case("airflow_dag_processing_import_errors", "0x100 1x500", 100, 115),
    "DatabaseDown": Case("pg_up", "1x100 0x100", 100, 105),
}


def stage(name: str, error: Exception | None = None, attempt: int = 1, **result: object) -> None:
    """A stage of a launch that ends, by the code that watches every stage."""
    work.attempt(attempt)
    with suppress(Exception), signals.watched(ID, name, "en-US", ("NWP",), None) as finished:
        if error:
            raise error
        finished(result, reused=False)


def ours() -> None:
    """Everything that an alert asks for, as stages say it."""
    stage("plan", ValueError("text"))
    stage("discover", KeyError("text"))
    stage("report", OSError("text"), attempt=2)
    stage("fine_tune", BudgetExceeded("text"))
    stage("count", LedgerTampered("text"))
    stage("decide", decision="hold")
    with work.at(ID, "fine_tune", "en-US", ("NWP",)):
        signals.progress({"round": 1, "rounds": 8, "seconds": 2.0})
        signals.budget("en-US", lambda: 0.05)


@pytest.fixture(scope="module")
def series() -> set[str]:
    """Series of tacit and of Airflow, as Prometheus names them."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CONSOLE.items():
            patch.setenv(name, value)
        stream = io.StringIO()
        patch.setattr(export, "sys", SimpleNamespace(stderr=stream))
        ours()
        made = export.emitter(Telemetry("console", "console"))
        assert made is not None
        made.flush()
        made.traces.shutdown()
        made.metrics.shutdown()
        export.emitter.cache_clear()
        work.attempt(1)
    return {shown(prometheus_name(name), labels) for name, _, labels in signals_on(stream.getvalue()).metrics}


@pytest.fixture(scope="module")
def airflows() -> set[str]:
    if not AIRFLOW.exists():
        pytest.skip("the Airflow environment is not built; run `make setup`")
    done = subprocess.run([AIRFLOW, "-c", METER], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return {
        shown(
            metric["name"].replace(".", "_") + ("_total" if metric["data"].get("is_monotonic") else ""),
            point["attributes"],
        )
        for metric in json.loads(done.stdout)
        for point in metric["data"]["data_points"]
    }


def shown(name: str, labels: dict[str, object]) -> str:
    pairs = [f'{label}="{value}"' for label, value in sorted(labels.items())]
    return f"{name}{{{', '.join(pairs)}}}"


def chosen(series: set[str], metric: str, labels: str) -> str:
    """The one series of a metric that has these labels."""
    found = [each for each in series if each.startswith(f"{metric}{{") and labels in each]
    assert found, f"nothing emits {metric} with {labels or 'any label'}"
    return min(found)


def seen(promtool: Path, folder: Path, alert: str, case: Case, series: set[str]) -> None:
    inputs = {chosen(series, case.metric, case.labels): case.values}
    inputs |= {chosen(series, metric, ""): values for metric, values in case.also.items()}
    firing = f'count(ALERTS{{alertname="{alert}", alertstate="firing"}})'
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in inputs.items()],
        "promql_expr_test": [
            {"expr": firing, "eval_time": f"{case.silent}m", "exp_samples": []},
            {"expr": firing, "eval_time": f"{case.fires}m", "exp_samples": [{"labels": "{}", "value": 1}]},
        ],
    }
    file = folder / "test.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [test]}))
    done = subprocess.run([promtool, "test", "rules", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{inputs}\n{done.stdout}{done.stderr}"


@pytest.mark.slow
@pytest.mark.services
@pytest.mark.parametrize("alert", [name for name, case in CASES.items() if case.metric.startswith("tacit_")])
def test_an_alert_about_launches_fires_on_what_stages_emit(
    promtool: Path, tmp_path: Path, series: set[str], alert: str
) -> None:
    seen(promtool, tmp_path, alert, CASES[alert], series)


@pytest.mark.slow
@pytest.mark.services
@pytest.mark.parametrize("alert", [name for name, case in CASES.items() if case.metric.startswith("airflow_")])
def test_an_alert_about_airflow_fires_on_what_its_meter_emits(
    promtool: Path, tmp_path: Path, airflows: set[str], alert: str
) -> None:
    seen(promtool, tmp_path, alert, CASES[alert], airflows)


@pytest.mark.slow
@pytest.mark.services
@pytest.mark.parametrize("database", ["postgres", "redis"])
def test_a_database_that_is_down_fires_by_what_its_exporter_says(
    promtool: Path, debian: Callable[[str], Path], tmp_path: Path, database: str
) -> None:
    """The exporter runs against a port where nothing answers; of what it says comes the series."""
    program, port, nobody = debian(f"prometheus-{database}-exporter"), free_port(), free_port()
    variables = {"DATA_SOURCE_NAME": f"postgresql://postgres:x@127.0.0.1:{nobody}/postgres?sslmode=disable"}
    variables |= {"REDIS_ADDR": f"redis://127.0.0.1:{nobody}", "PATH": os.environ["PATH"]}
    exporter = subprocess.Popen(
        [program, f"--web.listen-address=127.0.0.1:{port}"], env=variables, stderr=subprocess.DEVNULL
    )
    try:
        text = until(lambda: scraped(port), 30)
    finally:
        exporter.terminate()
        exporter.wait(10)
    metric = {"postgres": "pg_up", "redis": "redis_up"}[database]
    assert f"\n{metric} 0\n" in text
    case = Case(metric, CASES["DatabaseDown"].values, CASES["DatabaseDown"].silent, CASES["DatabaseDown"].fires)
    seen(promtool, tmp_path, "DatabaseDown", case, {shown(metric, {"job": database})})


def scraped(port: int) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
            return answer.read().decode()
    except OSError:
        time.sleep(0.2)
        return ""


def test_every_alert_has_a_case() -> None:
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    assert {rule["alert"] for group in groups for rule in group["rules"]} == CASES.keys()


@pytest.mark.slow
@pytest.mark.services
def test_the_rules_are_prometheus_s(promtool: Path) -> None:
    done = subprocess.run([promtool, "check", "rules", RULES], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
