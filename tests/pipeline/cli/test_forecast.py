"""``tacit ledger forecast``, and what ``tacit check`` says of a date: what is spent is known before it is."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from pipeline.ground import clock
from pipeline.ground.settings import load
from pipeline.launch.config import launch_id, load_launch
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.releases.training import training_rho
from tests.helpers.launches.command import ended
from tests.helpers.launches.pipeline_launch import RAW
from tests.helpers.launches.spends import device, item, reserve

BUDGET = {"budget": {"rho": 1.6, "days": 60}, "population_max_discovery_epsilon": 8.0}
POLICY = {name: value for name, value in RAW["policy"].items() if name != "population_max_rho"} | BUDGET


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TACIT_HOME", str(tmp_path))
    monkeypatch.setattr(clock, "now", lambda: datetime(2026, 11, 20, tzinfo=UTC))
    path = tmp_path / "trial.yaml"
    path.write_text(yaml.safe_dump(RAW | {"schedule": "@monthly", "policy": POLICY}), encoding="utf-8")
    ended("ledger", "init")
    return path


def forecast(file: Path, *dates: str, code: int = 0) -> dict:
    words = ("ledger", "forecast", str(file), "--from", dates[0], "--to", dates[-1], "--json")
    return json.loads(ended(*words, code=code).stdout)


def test_every_date_says_what_it_would_spend(file: Path):
    config = load_launch(file)
    rho = training_rho(config)
    said = forecast(file, "2026-09-15", "2026-11-30")
    assert [row["launch_id"] for row in said["dates"]] == [launch_id(config, day) for day in ("20261001", "20261101")]
    assert {(row["rho"], row["epsilon"], row["problem"]) for row in said["dates"]} == {(rho, 1.0, "")}
    assert (said["ok"], said["rho"], said["epsilon"], said["refused"]) == (True, 2 * rho, 2.0, 0)
    text = ended("ledger", "forecast", str(file), "--from", "2026-11-01", "--to", "2026-11-01").stdout
    assert "one device loses epsilon 3." in text
    assert "together, of the budgets" in text


def test_what_has_no_room_is_named_and_stops_whoever_asked(file: Path):
    rho = training_rho(load_launch(file))
    most = int(1.6 / rho)
    said = forecast(file, "2026-01-01", "2026-12-31", code=65)
    assert [bool(row["problem"]) for row in said["dates"]] == [False] * min(most, 8) + [True] * (12 - min(most, 8))
    assert said["rho"] == pytest.approx(rho * min(most, 8))


def test_a_check_of_a_date_says_it_too(file: Path):
    run_id = launch_id(load_launch(file), "20261101")
    checked = ended("check", str(file), "--date", "20261101", "--json")
    assert f"worst-case spend: {run_id}: one device loses epsilon" in checked.stderr
    assert "would spend" not in ended("check", str(file), "--json").stderr
    ledger = PrivacyLedger.of(load())
    ended(
        "ledger",
        "register",
        "chitchat:people",
        "--max-rho",
        "1.6",
        "--max-words-epsilon",
        "1e6",
        "--delta",
        "1e-4",
        "--max-discovery-epsilon",
        "8",
        "--window-days",
        "60",
    )
    policy = {"budget_rho": None, "population": "chitchat:people"}
    reserve(ledger, run_id, item(1.0), stage="discover", **policy)
    reserve(ledger, run_id, device(0.1), **policy)
    assert (
        f"{run_id}: spends nothing, as discover, fine_tune spent before"
        in ended("check", str(file), "--date", "20261101", "--json").stderr
    )
    file.write_text(file.read_text(encoding="utf-8").replace("seed: 7", "seed: 8"), encoding="utf-8")
    refused = ended("check", str(file), "--date", "20261101", "--json", code=65)
    assert f"was launched as {run_id}" in refused.stderr
    ended("check", str(file), "--date", "20261102", "--json")


@pytest.mark.parametrize(
    ("dates", "field"),
    [
        (("2026-11-31", "2026-12-01"), "--from"),
        (("2026-12-02", "2026-12-01"), "--to"),
        (("2026-01-01", "2046-01-01"), "--to"),
        (("2026-11-02", "2026-11-30"), "--to"),
    ],
)
def test_dates_that_are_none_are_refused(file: Path, dates: tuple[str, str], field: str):
    assert forecast(file, *dates, code=65)["error"].startswith(f"{field}: ")


def test_a_file_without_a_schedule_has_no_dates(file: Path):
    file.write_text(yaml.safe_dump(RAW), encoding="utf-8")
    assert forecast(file, "2026-11-01", "2026-11-02", code=65)["error"].startswith("schedule: ")


def test_a_date_that_is_none_is_refused(file: Path):
    for date in ("20261131", "20261399", "2026-11-01", "00000000"):
        assert "YYYYMMDD" in ended("check", str(file), "--date", date, "--json", code=65).stderr
