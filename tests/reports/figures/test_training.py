"""Figures of training: drawn from one point on, left out without data, the same bytes every time."""

import pytest

from reports.figures.training import of_training
from tests.helpers.reports.reports_example import block, drawn, example, releases


@pytest.mark.slow
def test_figures_are_the_same_every_time() -> None:
    again = of_training(example())
    assert set(again) == {"training", "fine_tuning", "epsilon", "participation", "round_minutes"}
    assert drawn().items() >= again.items()


def test_one_point_is_enough_and_none_draws_nothing() -> None:
    histogram = releases(participation={"participation_histogram": {"1": 10}, "timetable": None})
    one = example(curves={name: points[:1] for name, points in block("curves").items()}, **histogram)
    assert len(of_training(one)) == 4
    empty = {"curves": {name: [] for name in block("curves")}, "accounting": block("accounting", curve=[])}
    unseen = {"participation_histogram": {}, "timetable": None}
    assert of_training(example(**empty, **releases(participation=unseen))) == {}
    clocked = releases(participation={"participation_histogram": {}})
    (picture,) = of_training(example(**empty, **clocked))
    assert picture == "round_minutes"


@pytest.mark.slow
def test_a_clip_norm_that_moves_is_drawn() -> None:
    points = [
        {"step": step, "validation_recall": 0.1, "clip_norm": 1 / (1 + step), "clip_estimate": 0.5} for step in (0, 1)
    ]
    figures = of_training(example(curves=block("curves") | {"fine_tuning": points}))
    assert "goes from 1 to 0.5" in figures["clip_norm"]
