"""A simulated report goal: the noise of a large cohort at the cost of a small one, and never called private."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from federated import mechanisms, noise
from federated.accounting import guarantees as accounting
from federated.config.mechanism import BltMechanism, IndependentMechanism, TreeMechanism, _Mechanism
from federated.planning import costs as plan_costs
from federated.rounds import server
from federated.rounds.privatize import privatizer
from tests.helpers.small_run import DEVICES, Launch, mechanism, model_at_start, run

GOAL, SIMULATED = 6, 30
BLT = {"kind": "blt", "theta": [0.9, 0.5], "omega": [0.3, 0.2]}


def blt(**fields: object) -> BltMechanism:
    return BltMechanism.model_validate(mechanism().model_dump(exclude={"kind", "restarts"}) | BLT | fields)


def first_noise(config: TreeMechanism | BltMechanism, directory: Path) -> np.ndarray:
    """Change of the weights by one round in which no device's update survives."""
    launch = replace(Launch(), mechanism=config.model_copy(update={"rounds": 1, "max_participations": 1}))
    blown = replace(launch, device=launch.device.model_copy(update={"learning_rate": 1e38}))
    return run(blown, directory)[0] - server.flat_weights(model_at_start())


def off_by(config: TreeMechanism | BltMechanism, directory: Path) -> float:
    """Noise of the mean update against what rounds of ``SIMULATED`` devices would have."""
    promised = config.noise_multiplier * config.clip_norm / SIMULATED * Launch().server.learning_rate
    return float(first_noise(config, directory).std() / promised) - 1


@pytest.mark.statistical
@pytest.mark.parametrize("make", [mechanism, blt])
@pytest.mark.parametrize(
    ("share", "right"),
    [(None, True), (1.0, False), ((GOAL / SIMULATED) ** 2, False), ((GOAL / SIMULATED) ** 0.5, False)],
)
def test_the_mean_has_the_noise_of_the_large_cohort(make, share, right, tmp_path, monkeypatch):
    if share is not None:
        monkeypatch.setattr(_Mechanism, "noise_share", property(lambda self: share))
    # Four standard errors of the standard deviation of the model's 386 weights.
    assert (abs(off_by(make(simulated_report_goal=SIMULATED), tmp_path)) < 4 / (2 * 386) ** 0.5) == right


@pytest.mark.parametrize("make", [mechanism, blt])
def test_every_round_has_the_real_noise_scaled_down(make):
    key = noise.seeded_key(3)

    def released(config):
        privatize = privatizer(config, mechanisms.build(config))
        state, found = privatize.init(50), []
        for _ in range(config.rounds):
            out_P, state = privatize.privatize(
                np.zeros(50, dtype=np.int64), 0.0, privatize.draw(state, key), privatize.begin(state)
            )
            found.append(out_P)
        return np.array(found)

    small, real = released(make(simulated_report_goal=SIMULATED)), released(make())
    np.testing.assert_allclose(small, real * GOAL / SIMULATED, atol=1e-12)
    assert np.abs(real).min() > 1e-9


def test_the_clip_norm_is_estimated_as_by_a_large_cohort():
    adaptive = {"target_quantile": 0.5, "learning_rate": 0.2, "bit_noise_std": 1.5}
    estimates = {}
    for simulated in (None, SIMULATED):
        config = mechanism(adaptive_clipping=adaptive, restarts=[4], simulated_report_goal=simulated)
        privatize = privatizer(config, mechanisms.build(config))
        state = privatize.init(1)
        drawn = privatize.draw(state, noise.seeded_key(3))
        # Half of the devices lie below: only noise moves the estimate.
        estimates[simulated] = privatize.privatize(np.zeros(1, dtype=np.int64), 0.0, drawn, state)[1].estimate
    moved = {name: np.log(value / 0.2) for name, value in estimates.items()}
    assert abs(moved[None]) > 1e-3
    assert moved[SIMULATED] == pytest.approx(moved[None] * GOAL / SIMULATED)


def test_more_than_the_cohort_could_be_simulated_in_one_run(tmp_path):
    config = blt(simulated_report_goal=1000 * DEVICES)
    weights_P, result = run(replace(Launch(), mechanism=config), tmp_path)
    assert result.rounds == 9
    assert np.isfinite(weights_P).all()


def test_no_guarantee_is_stated_but_one_that_says_it_is_none(tmp_path):
    config = mechanism(simulated_report_goal=SIMULATED)
    _, result = run(replace(Launch(), mechanism=config), tmp_path)
    with pytest.raises(ValueError, match=r"simulated_report_goal: 30 .*must not be called private; remove it"):
        accounting.from_records(config, result.observed)
    with pytest.raises(ValueError, match="must not be called private"):
        accounting.guarantee(config, 9, 3, 2, (1e-5,))
    told = accounting.from_records(config, result.observed, hypothetical=True)
    real = accounting.from_records(mechanism(), result.observed, hypothetical=True)
    assert told.rho == real.rho == accounting.from_records(mechanism(), result.observed).rho
    assert told.hypothetical.startswith("NOT PRIVATE")
    assert told.methods[0] == told.hypothetical
    # What it is worth in truth: z falls with the share, rho rises with its square.
    assert f"its own rho is {real.rho * (SIMULATED / GOAL) ** 2:.4g}" in told.hypothetical
    assert (real.hypothetical, real.methods[0]) == ("", accounting.METHODS[0])


def test_planning_at_equal_noise_sees_the_simulated_mean():
    assert plan_costs.noise_to_signal(mechanism(simulated_report_goal=SIMULATED)) == pytest.approx(
        plan_costs.noise_to_signal(mechanism()) * GOAL / SIMULATED
    )


@pytest.mark.parametrize(
    ("make", "fields", "words"),
    [
        (mechanism, {"simulated_report_goal": GOAL}, "6 is not above report_goal 6"),
        (mechanism, {"simulated_report_goal": 0}, "greater than 0"),
        (mechanism, {"simulated_report_goal": 9, "secagg": {"bits": 40, "neighbours": 4, "threshold": 3}}, "secagg"),
        (
            lambda **fields: IndependentMechanism.model_validate(
                mechanism().model_dump(exclude={"kind", "restarts", "min_sep", "max_participations"})
                | {"kind": "independent", "sampling": "fixed", "population": 20}
                | fields
            ),
            {"simulated_report_goal": 9},
            "use kind tree, blt or banded",
        ),
    ],
)
def test_what_cannot_be_simulated_is_refused(make, fields, words):
    with pytest.raises(ValueError, match=words):
        make(**fields)
