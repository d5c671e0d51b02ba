"""Adaptive clipping: the noise split, the estimate, and where the clip norm may move."""

import itertools
import math

import numpy as np
import pytest

from federated import mechanisms
from federated.accounting import guarantees as accounting
from federated.config.mechanism import BltMechanism, IndependentMechanism, TreeMechanism
from federated.rounds.privatize import PrivacyState, Privatizer, privatizer, update_multiplier
from federated.rounds.rule import RoundRule
from pretrain.randomness import noise
from pretrain.randomness.noise import FIXED_POINT
from tests.helpers.audits.mechanism_kinds import BLT

KEY = noise.seeded_key(4)
ROUNDS, GOAL = 12, 40
BASE = {"noise_multiplier": 0.5, "clip_norm": 0.2, "rounds": ROUNDS, "report_goal": GOAL}
BASE |= {"delta": 1e-6, "randomness": "seeded"}
SPACED = {"min_sep": 3, "max_participations": 4}
ADAPTIVE = {"target_quantile": 0.5, "learning_rate": 0.2, "bit_noise_std": 2.0}


def tree(**fields: object) -> TreeMechanism:
    return TreeMechanism.model_validate(BASE | SPACED | {"kind": "tree", "restarts": [4, 9]} | fields)


def make(config: object) -> Privatizer:
    return RoundRule(config, seed=0).privatizer


def every_round(
    config: object, norms: list[float], key: bytes = KEY, size: int = 1
) -> list[tuple[np.ndarray, PrivacyState]]:
    """Released sums and states of devices whose updates have these norms, each the same round after round."""
    privatize = make(config)
    state, found = privatize.init(size), []
    for _ in range(config.rounds):
        state = privatize.begin(state)
        below = sum(0.5 if norm <= state.estimate else -0.5 for norm in norms)
        sum_P = np.zeros(size, dtype=np.int64)
        released_P, state = privatize.privatize(sum_P, below, privatize.draw(state, key), state)
        found.append((released_P, state))
    return found


@pytest.mark.parametrize(
    ("noise_multiplier", "bit_noise_std", "expected"),
    [(7, 325, 7.000406), (7, 25, 7.069625), (0.54, 25, 0.540031)],  # Xu et al. 2023, theorem 1 at sigma_b = m / 20
)
def test_the_split_of_theorem_1(noise_multiplier: float, bit_noise_std: float, expected: float) -> None:
    config = tree(noise_multiplier=noise_multiplier, adaptive_clipping=ADAPTIVE | {"bit_noise_std": bit_noise_std})
    found = update_multiplier(noise_multiplier, config.adaptive_clipping)
    assert found == pytest.approx(expected, abs=1e-6)


@pytest.mark.slow
def test_updates_and_bits_together_cost_what_the_mechanism_alone_does() -> None:
    made = make(tree(adaptive_clipping=ADAPTIVE))
    squared = made.mechanism.sensitivity_squared(ROUNDS, 3, 4)
    # A device moves the bits' sum by 1/2: the bits' multiplier is per 1/2.
    both = squared / (2 * made.updates.noise_multiplier**2) + squared / (2 * made.bits.noise_multiplier**2)
    assert both == pytest.approx(accounting.guarantee_of(made.mechanism, ROUNDS, 3, 4, (1e-6,)).rho, rel=1e-12)
    assert made.bits.noise_multiplier * 0.5 == pytest.approx(ADAPTIVE["bit_noise_std"])
    broken = squared / (2 * made.mechanism.noise_multiplier**2) + squared / (2 * made.bits.noise_multiplier**2)
    assert broken > both * 1.001, "bits without a split would not be paid for"


def test_no_noise_is_left_for_the_updates() -> None:
    with pytest.raises(ValueError, match=r"bit_noise_std: 0.2.*raise it above 0.25"):
        tree(adaptive_clipping=ADAPTIVE | {"bit_noise_std": 0.2})
    with pytest.raises(ValueError, match="no restarts"):
        tree(restarts=[], adaptive_clipping=ADAPTIVE)


@pytest.mark.parametrize("config", [tree, lambda **more: BltMechanism.model_validate(tree(**more).model_dump() | BLT)])
def test_the_clip_norm_moves_only_where_the_noise_begins_anew(config: object) -> None:
    found = every_round(config(adaptive_clipping=ADAPTIVE), norms=[5.0] * GOAL)
    norms = [state.clip_norm for _, state in found]
    estimates = [state.estimate for _, state in found]
    changes = [number for number, (a, b) in enumerate(itertools.pairwise(norms), start=1) if a != b]
    assert changes == [4, 9]
    assert (norms[4], norms[9]) == (estimates[3], estimates[8])
    assert all(a < b for a, b in itertools.pairwise(estimates)), "all updates lie above: the estimate rises each round"


def test_independent_noise_lets_it_move_every_round() -> None:
    fields = {"kind": "independent", "sampling": "poisson", "population": 400, "adaptive_clipping": ADAPTIVE}
    found = every_round(IndependentMechanism.model_validate(BASE | fields), norms=[5.0] * GOAL)
    norms, estimates = [s.clip_norm for _, s in found], [s.estimate for _, s in found]
    assert norms[1:] == estimates[:-1]


def test_the_estimate_by_hand() -> None:
    config = tree(adaptive_clipping=ADAPTIVE | {"bit_noise_std": 1e6}, noise_multiplier=1e-9)
    quiet = tree(adaptive_clipping=ADAPTIVE | {"bit_noise_std": 1e-6}, noise_multiplier=1e-9)
    norms = [0.05] * 30 + [9.0] * 10
    for number, (_, state) in enumerate(every_round(quiet, norms), start=1):
        # Until it falls below 0.05 three quarters of the updates lie below: C_0 exp(-eta t (3/4 - 1/2)).
        assert state.estimate == pytest.approx(0.2 * math.exp(-0.2 * number * 0.25), rel=1e-6)
    assert every_round(config, norms)[-1][1].estimate != pytest.approx(0.2 * math.exp(-0.2 * ROUNDS * 0.25), rel=1e-3)


def test_the_estimate_finds_the_quantile() -> None:
    norms = np.random.default_rng(2).lognormal(mean=0.7, sigma=0.5, size=400).tolist()
    adaptive = ADAPTIVE | {"target_quantile": 0.8, "bit_noise_std": 20.0, "learning_rate": 1.0}
    config = tree(rounds=60, report_goal=400, restarts=[10, 30], max_participations=20, adaptive_clipping=adaptive)
    last = every_round(config, norms)[-1][1]
    assert np.mean(np.array(norms) <= last.estimate) == pytest.approx(0.8, abs=0.08)


@pytest.mark.statistical
@pytest.mark.parametrize(("factor", "right"), [(1.0, True), (2 / 3, False), (3 / 2, False)])
def test_noise_has_the_scale_of_its_segment(factor: float, right: bool) -> None:
    size = 40_000
    found = every_round(tree(adaptive_clipping=ADAPTIVE), [5.0] * GOAL, size=size)
    split = update_multiplier(0.5, tree(adaptive_clipping=ADAPTIVE).adaptive_clipping)
    for number in (0, 4, 9):  # a first leaf carries one node's noise alone
        released_P, state = found[number]
        deviation = abs((factor * released_P / (split * state.clip_norm)).var() - 1)
        assert bool(deviation < 5 * math.sqrt(2 / size)) is right


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize(("factor", "right"), [(1.0, True), (2 / 3, False), (3 / 2, False)])
def test_bits_carry_the_noise_that_theorem_1_pays_for(factor: float, right: bool) -> None:
    made = make(tree(adaptive_clipping=ADAPTIVE))
    draws = np.array([made.draw(made.init(1), noise.seeded_key(seed)).bit_noise for seed in range(4000)])
    deviation = abs((factor * draws / ADAPTIVE["bit_noise_std"]).var() - 1)
    assert bool(deviation < 5 * math.sqrt(2 / len(draws))) is right


def test_bits_and_updates_share_no_noise() -> None:
    made = make(tree(adaptive_clipping=ADAPTIVE))
    drawn = made.draw(made.init(1), KEY)
    assert drawn.bit_noise / 0.5 / made.bits.noise_multiplier != pytest.approx(
        float(drawn.noise_P[0]) / made.updates.noise_multiplier
    )


def test_a_clipped_denominator_gets_twice_the_noise() -> None:
    fields = {"kind": "independent", "sampling": "poisson", "population": 400}
    sums = {}
    for estimator in ("fixed", "clipped"):
        config = IndependentMechanism.model_validate(BASE | fields | {"estimator": estimator})
        made = make(config)
        state = made.init(3)
        sums[estimator], _ = made.privatize(np.zeros(3, dtype=np.int64), 0.0, made.draw(state, KEY), state)
    np.testing.assert_allclose(sums["clipped"], 2 * sums["fixed"], atol=4 * 0.2 / FIXED_POINT)


def test_another_mechanism_than_the_launch_file_s_is_refused() -> None:
    with pytest.raises(ValueError, match=r"noise_multiplier 0.4.*says 0.5"):
        privatizer(tree(), mechanisms.Tree(0.4))
