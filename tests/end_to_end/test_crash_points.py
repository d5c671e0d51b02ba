"""A launch that is killed, or whose disk is full, at a system call drawn by chance; the benchmark tries the others.

The stage runs again, and leaves the files and entries of one that nothing stopped: later stages read nothing else. That
the whole launch then ends alike is seen in a few.
"""

import random

import pytest

from tests.helpers.launches.crashes import Undisturbed, disturbed, undisturbed
from tests.helpers.processes.forked import Forked

DRAWN, EACH_TO_ITS_END = 12, 6

pytestmark = [pytest.mark.slow, pytest.mark.services]


@pytest.fixture(scope="module")
def whole(strace: None, tmp_path_factory: pytest.TempPathFactory, forked: Forked) -> Undisturbed:
    return undisturbed("counts", tmp_path_factory.mktemp("crashes"), forked.tacit)


@pytest.mark.parametrize("number", range(DRAWN))
def test_a_stage_or_launch_finishes_after_a_crash_with_one_spend_and_the_same_bits(
    whole: Undisturbed, number: int
) -> None:
    chance = random.Random(number)
    kind = chance.choice(sorted({point.kind for _, point in whole.points}))
    step, point = chance.choice([(step, point) for step, point in whole.points if point.kind == kind])
    fault = chance.choice(point.faults)
    wrong = disturbed(whole, step, point, fault, to_end=number % EACH_TO_ITS_END == 0)
    assert list(wrong) == [], f"{fault} at {point}"
