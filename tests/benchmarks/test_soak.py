"""The soak's verdict: what leaks is said to leak, and what does not is not, on samples whose growth is known."""

from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

from benchmarks.stack.growth import Sample, Trend, picture, table, trends

COUNTED = range(0, 51, 2)


def samples(**grows: object) -> list[Sample]:
    """A soak whose memory wavers by 3 MiB around 200 and whose rows grow by 300 a launch, but for what ``grows``."""
    rng = np.random.default_rng(3)
    usual = {
        "memory/mlflow": lambda launches: 200 + rng.normal(scale=3),
        "files/mlflow": lambda launches: 15 + rng.integers(0, 2),
        "rows/airflow.log": lambda launches: 300 * launches,
        "load": lambda launches: launches,
    }
    return [
        Sample(launches, 60.0 * launches, {name: float(of(launches)) for name, of in (usual | grows).items()})
        for launches in [*COUNTED, COUNTED[-1]]
    ]


def verdicts(made: list[Sample]) -> dict[str, Trend]:
    return {trend.name: trend for trend in trends(made)}


def test_what_wavers_is_flat_and_what_each_launch_adds_is_constant() -> None:
    told = verdicts(samples())
    assert {name: trend.said for name, trend in told.items()} == {
        "memory/mlflow": "flat",
        "files/mlflow": "flat",
        "rows/airflow.log": "constant",
        "rows/airflow, all tables": "constant",
    }
    assert told["rows/airflow.log"].slope.value == pytest.approx(300)
    assert not any(trend.leaks for trend in told.values())


@pytest.mark.parametrize(
    ("name", "of"),
    [
        ("memory/mlflow", lambda launches: 200 + 0.6 * launches),
        ("files/mlflow", lambda launches: 15 + launches // 4),
        ("rows/airflow.log", lambda launches: 3 * launches**2),
        ("left/temporary files", lambda launches: launches),
        ("processes/all of the stack", lambda launches: 12 + launches // 8),
    ],
)
def test_what_leaks_is_told(name: str, of: object) -> None:
    leaks = [trend.name for trend in trends(samples(**{name: of})) if trend.leaks and "all tables" not in trend.name]
    assert leaks == [name]


def test_what_fills_before_the_warm_up_ends_is_no_leak_and_one_busy_moment_neither() -> None:
    told = verdicts(
        samples(**{"memory/mlflow": lambda launches: min(200, 100 + 13 * launches) + 900 * (launches == 30)})
    )
    assert told["memory/mlflow"].said == "flat"
    assert told["memory/mlflow"].at_rest == (100, 200)


def test_what_launches_under_way_have_added_is_counted_by_their_tasks() -> None:
    """Four launches that end together: rows came before the launches did."""
    together = {
        "rows/airflow.celery_taskmeta": lambda launches: 18 * launches,
        "rows/airflow.log": lambda launches: 300 * launches,
    }
    made = samples(**together)
    made = [replace(each, launches=each.launches // 4 * 4) for each in made[:-2]] + made[-2:]
    told = verdicts(made)["rows/airflow.log"]
    assert (told.slope.value, told.slope.low, told.slope.high) == pytest.approx((300, 300, 300))


def test_an_interval_that_holds_the_limit_is_not_told_either_way() -> None:
    rng = np.random.default_rng(1)
    told = verdicts(samples(**{"memory/mlflow": lambda launches: 200 + rng.normal(scale=60)}))["memory/mlflow"]
    assert told.slope.low < 0.25 < told.slope.high
    assert (told.leaks, told.said) == (False, "not told: its interval is too wide")


def test_too_short_a_soak_is_refused() -> None:
    with pytest.raises(ValueError, match="a slope needs six"):
        trends(samples()[:8])


@pytest.mark.slow
def test_the_table_and_the_picture_have_what_was_measured() -> None:
    made = samples(**{"memory/mlflow": lambda launches: 200 + launches})
    drawn = table(made)
    assert "| memory of its own: mlflow, MiB | 200 | 210 | 248 | 250 | 1 (1 to 1) | grows |" in drawn
    assert "| rows: airflow.log | 0 | 15,000 | 300 (300 to 300) | 300, 300 | constant |" in drawn
    assert "200 to 250 MiB" in (ElementTree.fromstring(picture(made))[1].text or "")
