import math

import numpy as np
import pytest
from scipy import stats

from federated.participation.observation import most_drawn, observe
from federated.participation.records import no_records
from federated.participation.secret_sample import SampledCohorts
from pretrain.randomness import noise
from tests.helpers.launches.cohort_run import played

RATE, DEVICES, ROUNDS = 0.2, 500, 400


def counts(rule: SampledCohorts) -> np.ndarray:
    """Devices by round, bool ``[ROUNDS, DEVICES]``."""
    joined = np.zeros((ROUNDS, DEVICES), dtype=bool)
    records = played(rule, ROUNDS)[0]
    joined[records.rounds_N, records.devices_N] = True
    return joined


def cohorts(*, poisson: bool) -> SampledCohorts:
    return SampledCohorts(DEVICES, int(RATE * DEVICES), RATE, poisson, noise.seeded_key(1), ROUNDS)


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


@pytest.mark.parametrize("poisson", [True, False])
def test_what_is_told_of_a_secret_sample_is_the_same_whoever_was_drawn(poisson: bool) -> None:
    """Participation of one device under many keys: nothing that is told depends on the key, and all of it is true."""
    synthetic_D, told, largest = np.arange(300) >= 295, set(), []
    for number in range(40):
        cohorts = SampledCohorts(300, 30, 0.1, poisson, noise.seeded_key(number), rounds=50)
        records, _ = played(cohorts, 50)
        seen = observe(records, 50, cohorts, synthetic_D)
        largest.append(int(records.participations(300)[:295].max()))
        assert seen.max_participations >= largest[-1]
        assert (seen.participation_histogram, seen.separation_histogram, seen.turnout) == ({}, {}, None)
        told.add(repr(seen))
    assert len(set(largest)) > 1, "what happened differs from key to key"
    assert len(told) == 1
    assert max(largest) < most_drawn(cohorts, 50, 0) < 50


def test_a_device_beyond_the_stated_bound_is_accounted_as_it_happened() -> None:
    cohorts = SampledCohorts(300, 30, 0.1, True, noise.seeded_key(1), rounds=50)
    records = no_records()
    for round_number in range(50):
        records = records.add(round_number, np.array([7]))
    assert observe(records, 50, cohorts, np.zeros(300, dtype=bool)).max_participations == 50


def test_the_bound_is_the_binomial_s_tail_over_all_devices() -> None:
    cohorts = SampledCohorts(1000, 30, 0.02, True, noise.seeded_key(1), rounds=200)
    most = most_drawn(cohorts, 200, 0)
    chance = [math.comb(200, k) * 0.02**k * 0.98 ** (200 - k) for k in range(201)]
    assert 1024 * sum(chance[most + 1 :]) <= 1e-9 < 1024 * sum(chance[most:])
