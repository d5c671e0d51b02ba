"""The forecast: curves that pass their points, and never fall."""

import pytest

from federated.planning import gain


def test_a_curve_passes_its_points_and_goes_on() -> None:
    line = ((10.0, 1.0), (100.0, 2.0), (1_000.0, 2.5))
    assert [gain.at(line, size) for size, _ in line] == pytest.approx([1.0, 2.0, 2.5])
    assert gain.at(line, 10_000) == pytest.approx(3.0)
    assert gain.at(line, 1e-9) == 0.0


def test_more_people_and_a_longer_way_never_gain_less() -> None:
    sizes = [1.5**step for step in range(40)]
    for way in (gain.counts, gain.training, gain.both):
        points = [way(size).points for size in sizes]
        assert points == sorted(points)
        assert points[0] == 0.0


def test_a_quarter_of_the_rho_is_half_the_people() -> None:
    assert gain.heard(1_000, 0.125) == pytest.approx(gain.heard(500, 0.5))
