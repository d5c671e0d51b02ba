"""Contract of every mechanism."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from federated.accounting import guarantees as accounting
from federated.mechanisms import build
from federated.mechanisms.banded import Banded
from pretrain.randomness import noise
from tests.helpers.audits.mechanism_kinds import KINDS, PARSER
from tests.helpers.audits.strategies import streamed

KEY = noise.seeded_key(21)
ROUNDS, SIZE = 12, 5
_WIDER = {"noise_multiplier": 1.7, "rounds": ROUNDS}
# Blocks that differ in what is no part of the mechanism make one.
MECHANISMS = {
    name: made
    for made, name in {
        build(PARSER.validate_python(block | _WIDER)): name for name, block in reversed(KINDS.items())
    }.items()
}
every_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS)


@every_mechanism
def test_noise_is_a_pure_function_of_key_and_round(mechanism: object) -> None:
    """A state must not change when it is used, nor the next rounds when a caller scales what it was given."""
    whole, states = streamed(mechanism, ROUNDS, SIZE, KEY), [mechanism.init(SIZE)]
    for number in range(ROUNDS):
        row, after = mechanism.noise(states[number], number, KEY)
        assert row.dtype == np.float64
        np.testing.assert_array_equal(row, whole[number])
        if row.flags.writeable:
            row *= 100.0
        states.append(after)
    for number in reversed(range(ROUNDS)):
        np.testing.assert_array_equal(mechanism.noise(states[number], number, KEY)[0], whole[number])
    assert not np.array_equal(whole, streamed(mechanism, ROUNDS, SIZE, noise.seeded_key(22)))


@every_mechanism
def test_every_round_brings_noise_of_its_own(mechanism: object) -> None:
    rows = streamed(mechanism, ROUNDS, SIZE, KEY)
    assert len({value for row in rows for value in row}) == ROUNDS * SIZE
    assert np.linalg.matrix_rank(rows) == SIZE


@every_mechanism
def test_rounds_come_in_order(mechanism: object) -> None:
    state = mechanism.init(SIZE)
    with pytest.raises(ValueError, match="continues with round 0"):
        mechanism.noise(state, 3, KEY)


@every_mechanism
def test_killed_and_resumed_at_any_round_is_bitwise_the_same(mechanism: object) -> None:
    whole = streamed(mechanism, ROUNDS, SIZE, KEY)
    for cut in range(ROUNDS):
        state = mechanism.init(SIZE)
        for number in range(cut):
            _, state = mechanism.noise(state, number, KEY)
        arrays = {name: np.array(array, copy=True) for name, array in mechanism.save(state).items()}
        row, _ = mechanism.noise(mechanism.load(arrays), cut, KEY)
        assert np.array_equal(row, whole[cut])


@every_mechanism
def test_sensitivity_grows_with_participations_and_shrinks_with_separation(mechanism: object) -> None:
    more = [mechanism.sensitivity_squared(ROUNDS, 3, most) for most in (1, 2, 3, 4)]
    assert all(a < b for a, b in itertools.pairwise(more))
    apart = [mechanism.sensitivity_squared(ROUNDS, min_sep, 2) for min_sep in (3, 5, 8)]
    assert all(a >= b for a, b in itertools.pairwise(apart))
    with pytest.raises(ValueError, match="at most 4"):
        mechanism.sensitivity_squared(ROUNDS, 3, 5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "mechanism",
    [
        pytest.param(made, marks=() if name == "tree" else pytest.mark.slow, id=name)
        for name, made in MECHANISMS.items()
    ],
)
def test_both_accountants_tell_the_same_story(mechanism: object) -> None:
    squared = mechanism.sensitivity_squared(ROUNDS, 3, 4)
    reached = accounting.guarantee_of(mechanism, ROUNDS, 3, 4, (1e-6,))
    assert reached.rho == pytest.approx(squared / (2 * 1.7**2))
    assert reached.epsilon_pld[1e-6] == pytest.approx(reached.epsilon[1e-6], abs=1e-3)
    assert reached.epsilon_pld == accounting.epsilon_by_losses([1.7 / math.sqrt(squared)], reached.epsilon)
    once = accounting.guarantee_of(mechanism, ROUNDS, 3, 4, (1e-6,), twice=False)
    assert (once.epsilon, once.epsilon_pld, len(once.methods)) == (reached.epsilon, {}, 2)


@pytest.mark.statistical
@every_mechanism
def test_first_round_has_its_scale_and_no_other(mechanism: object) -> None:
    size = 60_000
    first = streamed(mechanism, 1, size, KEY)[0]
    if isinstance(mechanism, Banded):  # Its columns have norm 1, and so its first coefficient less.
        first = first * mechanism.matrix()[0, 0]
    for factor, right in ((1.0, True), (2 / 3, False), (3 / 2, False)):
        deviation = abs((first * factor / 1.7).var() - 1)
        assert bool(deviation < 5 * np.sqrt(2 / size)) is right


@pytest.mark.parametrize("multiplier", [0.0, -1.0, float("nan"), float("inf")])
@every_mechanism
def test_a_multiplier_without_noise_is_refused(mechanism: object, multiplier: float) -> None:
    with pytest.raises(ValueError, match=f"noise_multiplier: got {multiplier}, expected a finite number above 0"):
        replace(mechanism, noise_multiplier=multiplier)


@pytest.mark.parametrize("restarts", [(0, 5), (-1,), (5, 5), (8, 3)])
@pytest.mark.parametrize("name", ["tree", "blt"])
def test_restarts_that_cannot_be_are_refused(name: str, restarts: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"restarts: got .* rising, the first at least 1"):
        replace(MECHANISMS[name], restarts=restarts)


@every_mechanism
def test_noise_of_a_weighted_sum_is_that_of_the_noise_that_is_made(mechanism: object) -> None:
    """A million draws tell the standard deviation to a fourth of a percent."""
    weights_T = np.array([2.0, -1.0, 0.5, 3.0, 0.0, 1.0, -2.0, 1.0, 1.5, 0.1, -0.7, 4.0])
    summed_P = weights_T @ streamed(mechanism, ROUNDS, 1 << 18, KEY)
    made = summed_P.std() / mechanism.noise_multiplier
    assert mechanism.noise_std(weights_T) == pytest.approx(made, rel=0.01)


@every_mechanism
@pytest.mark.parametrize("rounds", [1, 2, 7, 11, 12])
def test_noise_of_prefixes_is_their_root_mean_square_error(mechanism: object, rounds: int) -> None:
    prefixes = [mechanism.noise_std((np.arange(rounds) <= last).astype(float)) for last in range(rounds)]
    assert math.sqrt(np.mean(np.square(prefixes))) == pytest.approx(mechanism.rms_error(rounds), rel=1e-9)
