"""The report's own arithmetic: the loss of a person with several devices."""

import pytest
from mpmath import erfc, exp, mp, mpf, sqrt

from pipeline.stages.report import group_losses


def delta_of(distance: mpf, epsilon: mpf) -> mpf:
    """The exact delta of two unit normals so far apart (Balle and Wang 2018), in 40 digits."""

    def below(x: mpf) -> mpf:
        return erfc(-x / sqrt(2)) / 2

    return below(distance / 2 - epsilon / distance) - exp(epsilon) * below(-distance / 2 - epsilon / distance)


@pytest.mark.parametrize(("rho", "delta"), [(0.5, 1e-6), (0.05, 1e-10), (2.0, 1e-5)])
def test_several_devices_lose_what_normals_so_many_times_as_far_apart_lose(rho: float, delta: float) -> None:
    groups = group_losses(rho, delta)
    assert [group.devices for group in groups] == [2, 3]
    with mp.workdps(40):
        for group in groups:
            apart = group.devices * sqrt(2 * mpf(rho))
            assert float(delta_of(apart, mpf(group.epsilon))) == pytest.approx(delta, rel=1e-6)
