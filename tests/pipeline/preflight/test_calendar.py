"""A calendar of launches: hours, waits and the first date that finds the pool full."""

import json
from datetime import UTC, date, datetime, time
from pathlib import Path

import pytest

from pipeline.ground import clock
from pipeline.launch.config import LaunchConfig, load_launch
from pipeline.preflight.calendar import Calendar, calendar
from pipeline.stages.graph import STAGES
from tests.helpers.launches.command import ended

LAUNCHES = Path("dags/launches").absolute()
TODAY, LIMIT, STAGES_ON_GPU = date(2026, 12, 1), 12, 6
LAUNCH = STAGES_ON_GPU * LIMIT


def of(tmp_path: Path, slots: int, *files: LaunchConfig) -> Calendar:
    pools = tmp_path / "pools.json"
    pools.write_text(json.dumps({"gpu": {"slots": slots}}), encoding="utf-8")
    return calendar({f"file{number:02}": each for number, each in enumerate(files)}, STAGES, pools, TODAY)


def on(schedule: str, device: str = "cuda") -> LaunchConfig:
    config = load_launch(LAUNCHES / "de-DE.yaml")
    runtime = config.runtime.model_copy(update={"device": device})
    return config.model_copy(update={"schedule": schedule, "runtime": runtime})


@pytest.mark.parametrize(("slots", "files"), [(1, 9), (1, 11), (2, 18), (2, 22)])
def test_a_month_is_full_where_the_hours_asked_for_exceed_it(tmp_path: Path, slots: int, files: int) -> None:
    made = of(tmp_path, slots, *[on("@monthly")] * files)
    first = [turn for turn in made.turns if turn.date == TODAY]
    assert [turn.waits_days for turn in first] == [number // slots * LAUNCH / 24 for number in range(files)]
    assert [turn.takes_days - turn.waits_days for turn in first] == [LAUNCH / 24] * files
    # The last turn of December begins after January does.
    fits = -(-files // slots) * LAUNCH <= 31 * 24
    assert (made.full is None) is fits
    if made.full:
        assert (made.full.date, made.full.launch) == (date(2027, 1, 1), f"file{files - files % slots - slots:02}")


def test_launches_of_other_dates_wait_only_for_what_is_left(tmp_path: Path) -> None:
    made = of(tmp_path, 1, on("0 0 2 * *"), on("0 0 4 * *"), on("0 0 20 * *"))
    assert [(turn.date.day, turn.waits_days, turn.takes_days) for turn in made.turns] == [
        (2, 0.0, 3.0),
        (4, 1.0, 4.0),
        (20, 0.0, 3.0),
    ]


def test_a_week_is_too_short_for_three_launches_at_their_limits(tmp_path: Path) -> None:
    assert of(tmp_path, 1, *[on("0 0 * * 1")] * 2).full is None
    full = of(tmp_path, 1, *[on("0 0 * * 1")] * 3).full
    assert full is not None
    assert (full.date, full.launch) == (date(2026, 12, 14), "file02")


def test_a_launch_without_a_gpu_takes_nothing_of_the_pool(tmp_path: Path) -> None:
    turns = of(tmp_path, 1, on("@monthly"), on("@monthly", "cpu")).turns
    assert [turn.hours for turn in turns if turn.date == TODAY] == [LAUNCH, 0]
    assert {turn.takes_days for turn in turns if not turn.hours} == {0.0}


def test_a_file_without_a_schedule_is_in_no_calendar(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="schedule: file00 has none"):
        of(tmp_path, 1, load_launch(LAUNCHES / "demo-en-US.yaml"))


def test_the_command_shows_the_production_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POOLS", raising=False)
    monkeypatch.setattr(clock, "now", lambda: datetime.combine(TODAY, time(), UTC))
    files = [str(LAUNCHES / f"{name}.yaml") for name in ("en-US", "es-ES", "pt-BR", "fr-FR", "de-DE")]
    shown = ended("--quiet", "plan", *files, code=0).stdout
    assert "Slots of pool gpu (POOLS): 1." in shown
    assert f"At most {5 * LAUNCH} hours are asked for in these 31 days, which have {31 * 24}." in shown
    assert "Within a year no launch finds its file's launch before unfinished." in shown
    told = json.loads(ended("--quiet", "plan", *files, "--json", code=0).stdout)
    assert [turn["takes_days"] for turn in told["turns"]] == [3.0, 6.0, 9.0, 12.0, 15.0]
    assert told["full"] is None
    refused = ended("--quiet", "plan", *files, "--devices", "9", code=65).stderr
    assert "devices, out: of one launch file" in refused
