"""Gates on gains before anything is measured: the chance that they hold a launch."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from federated.planning import gain
from pipeline.launch.config import LaunchConfig, load_launch
from pipeline.preflight.gains import (
    forecast,
    gain_gates,
    measured_on,
    public_needs,
    uncertain,
    without_privacy,
)
from pipeline.releases.terms import Terms

LAUNCHES = Path(__file__).parents[3] / "dags" / "launches"
TEST = 260


@pytest.fixture(scope="module")
def demo() -> LaunchConfig:
    return load_launch(LAUNCHES / "demo-en-US.yaml")


def terms(config: LaunchConfig, train: int = 920, test: int = TEST, **policy: float) -> Terms:
    config = config.model_copy(update={"policy": config.policy.model_copy(update=policy)})
    return Terms.of_file(config, {"train": train, "validation": 130, "test": test})


def test_a_gate_holds_as_many_launches_as_it_says(demo: LaunchConfig) -> None:
    """Against launches whose gain and whose test devices are drawn, each with its interval."""
    rng, tries = np.random.default_rng(0), 4_000
    start, ngram = gain_gates(terms(demo, min_top1_gain=0.02, min_ngram_gain=0.01), {})
    drawn = gain.PEOPLE_ERROR / math.sqrt(TEST)
    over_start = forecast(demo, 920)
    free_T = gain.FREE[0] + gain.FREE[1] * rng.standard_normal(tries)
    gained_T = over_start.points + over_start.error * rng.standard_normal(tries)
    for gate, true_T in ((start, gained_T), (ngram, gained_T - free_T)):
        low_T = true_T + drawn * rng.standard_normal(tries) - 1.96 * drawn
        error = math.sqrt(gate.held * (1 - gate.held) / tries)
        assert np.mean(low_T < gate.bound) == pytest.approx(gate.held, abs=5 * error + 1e-3)
    assert [gate.bound for gate in (start, ngram)] == [2.0, 1.0]


def test_more_devices_are_held_less(demo: LaunchConfig) -> None:
    few, many = (gain_gates(terms(demo, test=test), {}) for test in (20, 2_000))
    assert all(a.held > b.held for a, b in zip(few, many, strict=True))
    assert all(a.gain == b.gain for a, b in zip(few, many, strict=True))


def test_the_n_gram_s_gate_asks_for_what_costs_nothing_too(demo: LaunchConfig) -> None:
    start, ngram = gain_gates(terms(demo), {})
    assert start.gain.points - ngram.gain.points == pytest.approx(gain.FREE[0])
    assert ngram.gain.error == pytest.approx(math.hypot(start.gain.error, gain.FREE[1]))
    assert ngram.held > start.held


def public(start: float, ngram: float, mixture: float, variety: float = 20.0) -> dict[str, dict[str, float]]:
    return {
        "public_recall": {"start": start, "ngram": ngram, "public_mixture": mixture},
        "public_variety": {"start": variety, "ngram": 24.0, "public_mixture": 22.0},
    }


def test_once_pretrained_a_launch_that_the_n_gram_would_hold_is_warned_of(demo: LaunchConfig) -> None:
    """A draft spent rho 0.5 and was held by an n-gram whose lead had stood in public text before."""
    assert uncertain(terms(demo), public(0.12, 0.12, 0.125)) == ()
    assert gain_gates(terms(demo), public(0.12, 0.10, 0.11)) == gain_gates(terms(demo), {}), "no less than usual"
    weak = public(0.05, 0.11, 0.10)
    start, ngram = gain_gates(terms(demo), weak)
    assert start == gain_gates(terms(demo), {})[0]
    assert start.gain.points - ngram.gain.points == pytest.approx(0.39 * 6.0)
    # The gain and the share of the lead that people keep, drawn apart: 39% of it, and all of it two deviations off.
    rng, tries = np.random.default_rng(1), 40_000
    drawn = gain.PEOPLE_ERROR / math.sqrt(TEST)
    kept_T, gained_T = (
        0.39 + 0.305 * rng.standard_normal(tries),
        start.gain.points + start.gain.error * rng.standard_normal(tries),
    )
    low_T = gained_T - 6.0 * kept_T + drawn * rng.standard_normal(tries) - 1.96 * drawn
    assert np.mean(low_T < 0) == pytest.approx(ngram.held, abs=0.01)
    warning, _ = uncertain(terms(demo), weak)
    assert warning.startswith("policy.min_ngram_gain: 0 holds ")


def test_every_gate_on_quality_says_what_it_needs_of_public_text(demo: LaunchConfig) -> None:
    assert public_needs(demo.policy, {}) == ()
    policy = demo.policy.model_copy(update={"min_top1_gain": 0.01, "min_ngram_gain": 0.005, "min_variety": 0.5})
    utility, ngram, variety = public_needs(policy, public(0.0967, 0.11, 0.1165, variety=2.0))
    assert utility.startswith("utility: more than 1 points over the start, which has 9.7% ")
    assert ngram.startswith("ngram: 0.5 points or more ")
    assert "an n-gram has 11.0% right and both mixed 11.7%, +1.98 points over the start" in ngram
    assert variety.startswith("variety: 12.0 different right words in 300 typed words or more, 0.5 of ")
    assert variety.endswith("the start has 2.0, below it: a launch must teach them")
    assert public_needs(policy, public(0.1, 0.1, 0.1))[2].endswith("the start has 20.0")


def test_a_gate_that_may_well_hold_is_warned_of(demo: LaunchConfig) -> None:
    assert uncertain(terms(demo), {}) == ()
    warning, of_whom = uncertain(terms(demo, min_ngram_gain=0.02), {})
    assert of_whom == f"these forecasts are what {measured_on(demo, 920)}"
    assert warning.startswith("policy.min_ngram_gain: 0.02 holds ")
    assert "% of such launches, by a forecast of +" in warning


@pytest.mark.parametrize(
    ("change", "devices", "unlike"),
    [
        ({}, 921, []),
        ({"locale": "fr-CA"}, 100, []),
        ({"locale": "de-DE"}, 1_320_000, ["de-DE", "1,320,000 devices"]),
        ({"model": {"hidden_dim": 512}}, 40_000, ["512 hidden units"]),
        ({"vocabulary": {"base_size": 16_000}, "locale": "pt-BR"}, 90, ["pt-BR", "90 devices", "16,000 words"]),
    ],
)
def test_a_forecast_says_what_it_does_not_cover(
    demo: LaunchConfig, change: dict[str, object], devices: int, unlike: list[str]
) -> None:
    """A gain in German was told as one that chat in English, French and Spanish had measured."""
    blocks = {
        name: getattr(demo, name).model_copy(update=value) if isinstance(value, dict) else value
        for name, value in change.items()
    }
    said, _, outside = measured_on(demo.model_copy(update=blocks), devices).partition("; nothing was measured with ")
    assert said.endswith(
        "in English, Spanish and French, with 256 hidden units and 4,000 words, on ways of at most 900, and one of "
        "them on longer ways without noise"
    )
    assert outside == (f"this launch's {', '.join(unlike)}" if unlike else "")


def test_training_without_noise_is_measured_or_forecast_and_never_both(demo: LaunchConfig) -> None:
    assert demo.ab_test.non_private_upper_bound
    assert without_privacy(demo) is None
    unmeasured = demo.ab_test.model_copy(update={"non_private_upper_bound": False})
    assert without_privacy(demo.model_copy(update={"ab_test": unmeasured})).points > forecast(demo, 920).points


def test_without_devices_or_a_forecast_nothing_is_said(demo: LaunchConfig) -> None:
    assert gain_gates(Terms.of_file(demo, None), {}) == ()
    assert gain_gates(terms(demo, test=0), {}) == ()
    assert gain_gates(terms(load_launch(LAUNCHES / "demo-en-US-central.yaml")), {}) == ()
    assert str(replace(gain_gates(terms(demo), {})[0], held=0.001)).startswith("policy.min_top1_gain: 0 holds less")
    assert " 0 holds more than 99% of such" in str(replace(gain_gates(terms(demo), {})[0], held=0.9999))
