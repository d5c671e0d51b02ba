"""The verdict: what is certain enough, which trade is best, and the sentence a person reads before any spend."""

import json
from dataclasses import replace
from statistics import NormalDist

import pytest

from federated.config.counts import CountsConfig
from federated.planning.verdict import Outcome, Verdict, as_json, from_json, judge, margin, refusal, run_of
from tests.helpers.launches.small_run import mechanism

MECHANISM = mechanism(noise_multiplier=6.0, rounds=16, report_goal=200, min_sep=4, max_participations=4)


def outcome(gain: float, error: float = 0.001, gradient: float = 1.0, counts: float = 0.0, goal: int = 200) -> Outcome:
    block = None if not counts else CountsConfig(noise_multiplier=(2 * counts) ** -0.5, model="mixture")
    run = run_of(MECHANISM.model_copy(update={"report_goal": goal}), 1.0, block) if gradient else {}
    ships = "counts" if not gradient else "mixture" if counts else "network"
    return Outcome(
        gradient, counts, 16 if gradient else 0, goal, 0.01, ships, gain, error, run, "mechanism:", (gain, error)
    )


def verdict(*outcomes: Outcome, min_gain: float = 0.0, headroom: float = 0.05) -> Verdict:
    blank = Verdict("inconclusive", "", None, outcomes, 0.1, 1.0, 300, min_gain, 300, 9000, (), "d")
    return judge(blank, headroom, 0.002)


COUNTS = outcome(0.012, gradient=0.0, counts=1.0)


def test_a_gain_that_chance_explains_is_no_go_and_names_the_limit() -> None:
    found = verdict(outcome(0.004, 0.002), outcome(-0.01, 0.002), replace(COUNTS, error=0.006))
    assert (found.answer, found.best) == ("no-go", None)
    assert "too small: 300 devices that train gain at most +0.40 points (± 0.40) for rho 1" in found.sentence
    assert "counts would give +1.20 points (± 1.20) for rho 1. Nothing was spent." in found.sentence


def test_a_certain_gain_is_go() -> None:
    found = verdict(outcome(0.02), COUNTS)
    assert (found.answer, found.best) == ("go", 0)
    assert "gain +2.00 points (± 0.20) for rho 1 (gradients rho 1; 16 rounds of 200 devices)" in found.sentence


def test_counts_are_advised_where_they_are_the_better_trade() -> None:
    mixed = replace(COUNTS, ships="mixture", gain=0.025, over_free=(0.02, 0.001))
    found = verdict(outcome(0.02), COUNTS, mixed)
    assert (found.answer, found.best) == ("go", 2)
    assert "+2.50 points (± 0.20) for rho 1 by counts, and counts.model 'start-mixture' ships them" in found.sentence
    # What is not told apart costs less without rounds.
    assert verdict(outcome(0.0205), replace(COUNTS, gain=0.02, report_goal=0)).best == 1
    assert refusal(found, found.outcomes[0]) is None


def test_the_gate_is_the_launch_s_own() -> None:
    assert verdict(outcome(0.01), min_gain=0.006).answer == "go"
    assert verdict(outcome(0.01), min_gain=0.009).answer == "no-go"


def test_what_public_text_gives_for_nothing_must_be_gained_too() -> None:
    blank = Verdict("inconclusive", "", None, (outcome(0.01), outcome(0.004)), 0.1, 1.0, 300, 0.0, 300, 9000, (), "d")
    worth, dear = (judge(replace(blank, free=free), 0.05, 0.002) for free in (0.006, 0.012))
    assert (worth.answer, worth.best) == ("go", 0)
    assert worth.sentence.endswith(
        "The n-gram of its own text, alone or mixed with the start, gains +0.60 points for nothing."
    )
    assert (dear.answer, dear.best) == ("no-go", None)
    assert "more than +1.20 points must be certain" in dear.sentence
    assert "more than +0.60 points" in refusal(worth, worth.outcomes[1])


def test_where_no_training_pays_counts_alone_are_advised_if_they_do() -> None:
    cheaper = replace(COUNTS, counts_rho=0.1, gain=0.0115)
    found = verdict(outcome(-0.05), COUNTS, cheaper)
    assert (found.answer, found.best) == ("go", 2)
    assert "too small to train on: 300 devices that train gain at most -5.00 points" in found.sentence
    assert "counts would give +1.15 points (± 0.20) for rho 0.1, and that pays: counts.model 'counts'" in found.sentence
    assert "Another split pays" in refusal(found, found.outcomes[0])
    assert refusal(found, found.outcomes[2]) is None
    # What public text gives for nothing does not count as theirs, and chance must not explain the rest.
    assert verdict(outcome(-0.05), replace(COUNTS, over_free=(0.002, 0.001))).answer == "no-go"


def test_text_that_teaches_nothing_tells_nothing() -> None:
    found = verdict(outcome(-0.01), headroom=0.002)
    assert found.answer == "inconclusive"
    assert "--start lends such a start" in found.sentence
    assert refusal(found, found.outcomes[0]) is None


def test_of_what_is_not_told_apart_the_least_rho_and_then_the_fewest_devices() -> None:
    most = outcome(0.0200, goal=200)
    fewer = outcome(0.0195, goal=50)
    cheaper = outcome(0.0191, gradient=0.1, counts=0.1, goal=50)
    worse = outcome(0.0185, gradient=0.05, goal=50)
    assert verdict(most, fewer, worse).best == 1
    assert verdict(most, fewer, cheaper, worse).best == 2
    # A small goal that meets the gate is not the plan where a larger one is better.
    assert verdict(most, worse).best == 0


def test_chance_is_shared_by_all_that_could_ship() -> None:
    assert margin([outcome(0.0)]) == pytest.approx(NormalDist().inv_cdf(0.975))
    assert margin([outcome(0.0)] * 10 + [COUNTS]) == pytest.approx(NormalDist().inv_cdf(1 - 0.025 / 11))
    assert verdict(outcome(0.0022)).answer == "go"
    assert verdict(outcome(0.0022), *[outcome(-0.01)] * 9).answer == "no-go"


@pytest.mark.parametrize("gain", [0.0, 0.001, 0.003])
def test_more_certainty_never_turns_go_into_no_go(gain: float) -> None:
    answers = [verdict(outcome(gain, error)).answer for error in (0.004, 0.002, 0.001, 0.0005)]
    assert answers == sorted(answers, reverse=True)


def test_a_run_that_does_not_pay_is_refused_even_where_another_would() -> None:
    found = verdict(outcome(0.02, goal=200), outcome(-0.01, goal=50))
    assert refusal(found, found.outcomes[0]) is None
    assert "Another split pays" in refusal(found, found.outcomes[1])
    hopeless = verdict(outcome(-0.01))
    assert refusal(hopeless, hopeless.outcomes[0]) == hopeless.sentence


def test_a_verdict_is_read_as_it_was_written() -> None:
    found = verdict(outcome(0.02), outcome(0.01, counts=0.5), COUNTS)
    assert from_json(json.loads(json.dumps(as_json(found)))) == found
    assert as_json(found)["outcomes"][1]["label"] == "gradients rho 1 + counts rho 0.5"


def test_a_run_is_known_by_what_it_learns_with() -> None:
    found = verdict(outcome(0.02, goal=200), outcome(0.01, goal=100))
    same = MECHANISM.model_copy(update={"delta": 1e-10, "randomness": "seeded"})
    assert found.of(run_of(same, 1.0, None)) is found.outcomes[0]
    assert found.of(run_of(MECHANISM.model_copy(update={"noise_multiplier": 6.1}), 1.0, None)) is None
    assert found.of(run_of(same, 0.5, None)) is None
    assert verdict(replace(COUNTS, run={}), outcome(0.0)).of({}) is None
