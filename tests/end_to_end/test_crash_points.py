"""A launch that is killed, or whose disk is full, at a system call drawn by chance; the benchmark tries the others."""

import random

import pytest

from tests.helpers.launches.crashes import Undisturbed, disturbed, undisturbed
from tests.helpers.processes.crash_points import CrashPoint, Fault
from tests.helpers.processes.forked import Forked

DRAWN = 30

pytestmark = [pytest.mark.slow, pytest.mark.services]


@pytest.fixture(scope="module")
def whole(strace: None, tmp_path_factory: pytest.TempPathFactory, forked: Forked) -> Undisturbed:
    return undisturbed("counts", tmp_path_factory.mktemp("crashes"), forked.tacit)


@pytest.mark.parametrize("number", range(DRAWN))
def test_the_same_command_finishes_a_launch_that_crashed_with_one_spend_and_the_same_bits(
    whole: Undisturbed, number: int
) -> None:
    point, fault = drawn(whole, random.Random(number))
    assert list(disturbed(whole, point, fault)) == [], f"{fault} at {point}"


def drawn(whole: Undisturbed, chance: random.Random) -> tuple[CrashPoint, Fault]:
    """Draw a kind of crash point, one of its points and a fault."""
    kinds = sorted({point.kind for point in whole.points})
    kind = chance.choice(kinds)
    point = chance.choice([point for point in whole.points if point.kind == kind])
    return point, chance.choice(point.faults)
