"""The row of a launch in MLflow's table, from results as stages write them."""

import json
from pathlib import Path

import pytest

from pipeline.run.run_dir import RESULT, RunDir, StageRecord
from pipeline.tracking import table


def record(stage: str, **result: object) -> StageRecord:
    fixed = {
        "launch_id": "a-0123abcd",
        "config_digest": "",
        "inputs": {},
        "outputs": {},
        "started_at": "",
        "seconds": 1.0,
        "processor": "any",
    }
    return StageRecord(stage=stage, private_outputs=False, result=result, **fixed)


def arm(metric: str, value: float, name: str = "private") -> dict[str, object]:
    return {"arm": name, "metric": metric, "value": value, "low": value - 0.1, "high": value + 0.1}


def test_training_gives_the_columns_of_the_papers_table():
    trained = {"rounds": 800, "observed_mins": 31, "observed_max_participations": 4, "report_goal": 6500}
    row = table.columns(record("fine_tune", **trained, headline={"rho": 0.5, "epsilon": 12.89, "delta": 1e-10}))
    assert row == {
        "rounds": 800,
        "MinS": 31,
        "MaxP": 4,
        "report_goal": 6500,
        "rho": 0.5,
        "epsilon": 12.89,
        "delta": 1e-10,
    }


def test_the_comparison_gives_recall_and_rates_of_this_launch_with_their_intervals():
    arms = [arm("top1_recall", 0.5), arm("prate", 0.25), arm("words_modified", 0.75), arm("top1_recall", 0.9, "start")]
    row = table.columns(record("ab_test", arms=arms, top1_gain=0.02, top1_gain_low=0.012, top1_gain_high=0.03))
    assert row == {
        "top1_recall": 0.5,
        "top1_recall_low": 0.4,
        "top1_recall_high": 0.6,
        "PRate": 0.25,
        "PRate_low": 0.15,
        "PRate_high": 0.35,
        "WMR": 0.75,
        "WMR_low": 0.65,
        "WMR_high": 0.85,
        "top1_gain_low": 0.012,
        "top1_gain_high": 0.03,
        "gain": "+2.0±1.0",
    }


def test_a_decided_launch_says_what_it_gained_and_where_its_report_is():
    tags = {"decision": "launch", "gain": "+2.0±1.0", "loss": "epsilon 12.89 (local words 8.00) at delta 1e-06"}
    said = "**Launch**, +2.0±1.0 points of top-1 recall over the starting point; one device loses "
    before, after = (table.description(tags, "7", run) for run in (None, "ab"))
    assert before == f"{said}{tags['loss']}."
    assert "report" not in before
    assert after == f"{before}\n\n**[Read the report](#/experiments/7/runs/ab/artifacts/report.html)**"


def test_charts_are_of_numbers_that_a_launch_logs():
    charts = json.loads(table.experiment_tags("7", "en-US")["mlflow.sharedViewState.launches"])["compareRunCharts"]
    logged = {f"{stage}_curve/{name}" for stage, names in table.CURVES.items() for name in names} | table.METRICS.keys()
    assert {chart["metricKey"] for chart in charts} <= logged


@pytest.mark.parametrize(
    ("stage", "result", "decision", "before", "expected"),
    [
        ("plan", {}, None, "SCHEDULED", "SCHEDULED"),
        ("plan", {}, None, "FAILED", "SCHEDULED"),
        ("count", {}, "hold", "KILLED", "KILLED"),
        ("count", {}, "launch", "FINISHED", "FINISHED"),
        ("report", {}, "launch", "KILLED", "SCHEDULED"),
        ("report", {}, "hold", "SCHEDULED", "KILLED"),
        ("publish", {"published": True}, "launch", "SCHEDULED", "FINISHED"),
        ("publish", {"published": False}, "hold", "SCHEDULED", "KILLED"),
    ],
)
def test_the_status_after_each_stage(stage, result, decision, before, expected):
    assert table.status_after(record(stage, **result), decision, before) == expected


def test_a_stage_that_runs_was_not_interrupted(tmp_path: Path):
    """Wherever it runs: who holds its lock may be a process of another host, which nobody sees here."""
    run = RunDir(tmp_path, "tiny-1")
    assert table.interrupted_stage(run.path) is None
    with run.lock("plan"):
        (run.path / "private" / "plan" / ".lock").write_text("4000000")  # no process of this machine
        assert table.interrupted_stage(run.path) is None
    assert table.interrupted_stage(run.path) == "plan"
    (run.public("plan") / RESULT).write_text("{}")
    assert table.interrupted_stage(run.path) is None


def test_the_table_begins_with_decision_gain_and_guarantee():
    view = json.loads(table.experiment_tags("7", "en-US")["mlflow.sharedViewState.launches"])
    assert view["columnOrder"][:3] == ["tags.`decision`", "tags.`gain`", "tags.`guarantee`"]
    of_the_papers = [f"metrics.`{name}`" for name in ("rounds", "MinS", "MaxP", "report_goal", "rho")]
    assert [name for name in view["columnOrder"] if name in of_the_papers] == of_the_papers
    assert view["columnWidths"].keys() <= set(view["columnOrder"])
    first_line = table.experiment_note("7", "en-US").partition("\n")[0]
    assert first_line.count("&workflowType=machine_learning") == 2, "not for GenAI"
