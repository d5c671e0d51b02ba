"""Direction canaries in the real round loop: audited, resumed to the bit, and gone without a trace when absent."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from evaluation.audit import whitening
from evaluation.audit.directions import Directions
from evaluation.audit.matched_filter import Claim, MatchedFilter, matched_filter
from federated import mechanisms
from federated.accounting.guarantees import guarantee_of
from federated.config.mechanism import MechanismConfig
from federated.local_training.clipping import Clip
from federated.local_training.sums import Aggregate
from federated.participation.cohorts import ParticipationState
from federated.rounds import direction_canaries, witness
from federated.rounds.direction_canaries import ProbeState
from federated.rounds.witness import RoundSums
from federated.train import FineTuneResult
from pretrain.config import ModelConfig
from pretrain.model.keyboard_lm import KeyboardLM, build_model
from pretrain.randomness.noise import FIXED_POINT
from tests.helpers.launches.small_run import SYNTHETIC, WORDS, Killed, Launch, killed_after, mechanism, run

MECHANISM = mechanism(noise_multiplier=2.0, rounds=12, restarts=[8])


def model_at_start() -> KeyboardLM:
    return build_model(ModelConfig(embedding_dim=16, hidden_dim=32, tied=True), WORDS, seed=2)


def probe(seed: int = 0) -> Directions:
    return Directions(tuple(part.numel() for part in model_at_start().parameters()), 200, seed)


def trained(
    directory: Path, directions: Directions | None, config: MechanismConfig = MECHANISM, on_round=None
) -> tuple[np.ndarray, FineTuneResult]:
    return run(Launch(mechanism=config), directory, on_round, probe=directions, model=model_at_start())


def audited(state: ProbeState, directions: Directions, config: MechanismConfig = MECHANISM) -> MatchedFilter:
    made = mechanisms.build(config)
    promised = guarantee_of(made, config.rounds, config.min_sep, config.max_participations, (config.delta,))
    claim = Claim(whitening.of_tree(config.rounds, config.restarts), made.noise_multiplier, promised.mu)
    return matched_filter(state.projections_TN, state.joined_TN, directions.included_N, claim)


def test_what_other_devices_sent_is_taken_off() -> None:
    model, rng = model_at_start(), np.random.default_rng(2)
    directions = Directions(tuple(part.numel() for part in model.parameters()), 8, seed=1)
    size = directions.num_parameters
    noise_P, others_P = rng.standard_normal(size), rng.integers(-(2**44), 2**44, size=size)
    timer = ParticipationState(np.empty(0), np.empty(0))
    before = ProbeState(timer, np.zeros((0, 8)), np.zeros((0, 8), dtype=bool), witness.init(8, size))
    released_P = 0.3 * (noise_P + others_P / FIXED_POINT)
    done = RoundSums(
        Aggregate(torch.from_numpy(others_P), 0.0, 8.0), others_P, 0 * others_P, released_P, 0.0, whole=True
    )
    after = direction_canaries.observe(directions, before, done, Clip(0.3), model)
    np.testing.assert_allclose(after.projections_TN, directions.project(noise_P)[None], rtol=1e-9, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("clipping", ["flat", "per-layer"])
def test_the_real_loop_passes_its_audit(tmp_path: Path, clipping: str) -> None:
    config = MECHANISM.model_copy(update={"clipping": clipping})
    _, result = trained(tmp_path, probe(), config)
    found = audited(result.probe, probe(), config)
    assert found.failures == ()
    assert found.noise.value == pytest.approx(2.0, rel=0.1)
    assert found.signal.value == pytest.approx(1.0, abs=0.3)
    # Canaries join as early and as often as the timer lets them, and stay out of the records of devices.
    assert result.probe.joined_TN[[0, 3]].all()
    assert result.probe.joined_TN.sum() == 2 * 200
    assert result.observed.max_participations <= 2
    assert len(result.synthetic_participations) == SYNTHETIC


@pytest.mark.slow
def test_a_loop_with_less_noise_than_claimed_fails(tmp_path: Path) -> None:
    _, result = trained(tmp_path, probe(), MECHANISM.model_copy(update={"noise_multiplier": 1.0}))
    assert audited(result.probe, probe()).failures


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_trace(tmp_path: Path) -> None:
    whole_P, whole = trained(tmp_path / "whole", probe())
    with pytest.raises(Killed):
        trained(tmp_path / "killed", probe(), on_round=killed_after(7))
    again_P, again = trained(tmp_path / "killed", probe())
    np.testing.assert_array_equal(again_P, whole_P)
    np.testing.assert_array_equal(again.probe.projections_TN, whole.probe.projections_TN)
    np.testing.assert_array_equal(again.probe.joined_TN, whole.probe.joined_TN)
    # Canaries are part of a run: others cannot take it over.
    with pytest.raises(ValueError, match="other settings"):
        trained(tmp_path / "killed", replace(probe(), seed=1))


def test_without_a_probe_nothing_changes(tmp_path: Path) -> None:
    with_P, _ = trained(tmp_path / "with", probe())
    without_P, result = trained(tmp_path / "without", None)
    assert result.probe is None
    assert not np.array_equal(with_P, without_P)
