"""The scaling rule: as much noise against signal in a rehearsal as in the launch, whatever its size and kind."""

import pytest
from pydantic import TypeAdapter

from federated.config.mechanism import MechanismConfig
from federated.config.planning import SmallTrade
from federated.planning import costs, trade

LIMITS = SmallTrade(most_users=3000, most_rounds=20, most_goal=200)
SHARED = {"clip_norm": 0.3, "delta": 1e-6, "randomness": "secure", "noise_multiplier": 6.0}


def launch(rounds: int, goal: int, min_sep: int, kind: str = "tree", **fields: object) -> MechanismConfig:
    joins = {"min_sep": min_sep, "max_participations": -(-rounds // min_sep)}
    block = {"kind": kind, "rounds": rounds, "report_goal": goal, **SHARED, **fields}
    return TypeAdapter(MechanismConfig).validate_python(block | ({} if kind == "independent" else joins))


LAUNCHES = [
    launch(16, 200, 4),
    launch(16, 200, 4, restarts=(8,)),
    launch(64, 500, 16, restarts=(8, 32)),
    launch(16, 200, 4, "blt", theta=(0.9, 0.4), omega=(0.2, 0.3)),
    launch(2000, 6500, 300, "blt", theta=(0.9, 0.4), omega=(0.2, 0.3)),
    launch(16, 200, 4, "banded", bands=3),
    launch(40, 200, 30, "banded", bands=24),
    launch(16, 200, 1, "independent", sampling="poisson", population=1000),
]
NAMES = [f"{launched.kind}-{launched.rounds}-{launched.report_goal}-{place}" for place, launched in enumerate(LAUNCHES)]


@pytest.mark.slow
@pytest.mark.parametrize("launched", LAUNCHES, ids=NAMES)
@pytest.mark.parametrize("users", [1, 7, 100, 900, 3000])
def test_the_ratio_is_the_launch_s_own(launched: MechanismConfig, users: int) -> None:
    played = trade.scaled(launched, users, LIMITS)
    assert costs.noise_to_signal(played) == pytest.approx(costs.noise_to_signal(launched), rel=1e-9)
    # What the ratio is made of, by hand for the one-coordinate noise of a round's mean.
    assert played.noise_multiplier > 0
    assert played.rounds == min(launched.rounds, 20)
    assert played.report_goal <= min(launched.report_goal, 200)
    assert played.report_goal * played.min_sep <= users
    assert TypeAdapter(MechanismConfig).validate_python(played.model_dump()) == played


def test_a_population_that_can_be_played_is_not_scaled() -> None:
    launched = launch(16, 200, 4)
    played = trade.scaled(launched, 938, LIMITS)
    assert played == launched.model_copy(update={"randomness": "seeded"})
    assert trade.notes(launched, 938, 938, LIMITS) == ()
    assert "extrapolates" in trade.notes(launched, 500, 938, LIMITS)[0]
    assert "extrapolates" in trade.notes(launch(100, 200, 4), 938, 938, LIMITS)[0]


def test_by_hand() -> None:
    # Half the devices in a round of the same tree: half the noise multiplier.
    assert trade.scaled(launch(16, 200, 4), 400, LIMITS).report_goal == 100
    assert trade.scaled(launch(16, 200, 4), 400, LIMITS).noise_multiplier == pytest.approx(3.0)
    # A sum over a tenth of the devices, a tenth of the noise.
    assert trade.scaled_counts(1.3, 300, 3000) == pytest.approx(0.13)
    assert trade.scaled_counts(1.3, 3000, 3000) == 1.3


def test_bits_of_adaptive_clipping_keep_their_share_of_the_noise() -> None:
    adaptive = {"target_quantile": 0.5, "learning_rate": 0.2, "bit_noise_std": 10.0}
    played = trade.scaled(launch(16, 200, 4, restarts=(8,), adaptive_clipping=adaptive), 400, LIMITS)
    assert played.adaptive_clipping.bit_noise_std == pytest.approx(5.0)
    assert trade.scaled(launch(32, 200, 4, restarts=(8,), adaptive_clipping=adaptive), 400, LIMITS).restarts == (8,)


def test_nobody_plays_nothing() -> None:
    with pytest.raises(ValueError, match="users: 0"):
        trade.scaled(launch(16, 200, 4), 0, LIMITS)
