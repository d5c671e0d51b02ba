import numpy as np
import pytest
from scipy import stats

from federated.participation.secret_sample import SampledCohorts
from pretrain.randomness import noise

RATE, DEVICES, ROUNDS = 0.2, 500, 400


def counts(cohorts: SampledCohorts) -> np.ndarray:
    """Devices by round, bool ``[ROUNDS, DEVICES]``."""
    joined, state = np.zeros((ROUNDS, DEVICES), dtype=bool), cohorts.init()
    for number in range(ROUNDS):
        cohort, state = cohorts.draw(state, number)
        joined[number, cohort] = True
    assert np.array_equal(state.count_D, joined.sum(axis=0))
    return joined


def cohorts(*, poisson: bool, rate: float = RATE, key: int = 1) -> SampledCohorts:
    return SampledCohorts(DEVICES, int(rate * DEVICES), rate, poisson, noise.seeded_key(key), ROUNDS)


@pytest.mark.statistical
def test_poisson_rounds_have_binomial_sizes() -> None:
    sizes = counts(cohorts(poisson=True)).sum(axis=1)
    z = (sizes - DEVICES * RATE) / np.sqrt(DEVICES * RATE * (1 - RATE))
    assert stats.kstest(z + np.random.default_rng(0).uniform(-0.05, 0.05, ROUNDS), "norm").pvalue > 0.01
    assert abs(z.mean()) < 4 / np.sqrt(ROUNDS)
    wrong = (sizes - DEVICES * RATE * 1.05) / np.sqrt(DEVICES * RATE * (1 - RATE))
    assert abs(wrong.mean()) > 4 / np.sqrt(ROUNDS), "a rate 5% off would be noticed"


@pytest.mark.statistical
@pytest.mark.parametrize("poisson", [True, False])
def test_devices_are_drawn_alike_and_rounds_apart(poisson: bool) -> None:
    joined = counts(cohorts(poisson=poisson))
    expected = ROUNDS * RATE
    chi = float(np.sum((joined.sum(axis=0) - expected) ** 2) / (expected * (1 - RATE)))
    assert stats.chi2.sf(chi, DEVICES) > 0.001
    both = np.mean(joined[:-1] & joined[1:])
    assert abs(both - RATE**2) < 5 * np.sqrt(RATE**2 / (ROUNDS * DEVICES))


def test_fixed_rounds_have_their_size() -> None:
    assert set(counts(cohorts(poisson=False)).sum(axis=1)) == {int(RATE * DEVICES)}


def test_a_cohort_is_a_function_of_key_and_round() -> None:
    ours = cohorts(poisson=True)
    first, _ = ours.draw(ours.init(), 3)
    assert np.array_equal(first, ours.draw(ours.init(), 3)[0])
    other = cohorts(poisson=True, key=2)
    assert not np.array_equal(first, other.draw(other.init(), 3)[0]), "the public seed must not decide"
