"""Each gate of an experiment holds it back alone, and without evidence."""

from dataclasses import replace
from datetime import date

import pytest

from evaluation.comparison.intervals import Difference, Estimate
from pipeline.experiments.compare import MISMATCH, Live, SampleRatio
from pipeline.experiments.gate import GATES, gates
from pipeline.launch.config import ExperimentConfig
from pipeline.publication.gates.words import words_of

CONFIG = ExperimentConfig(share=0.5, days=3, min_gain=-0.01)
DAYS = {"control": (), "treatment": ()}


def change(metric: str, low: float, high: float, *, relative: bool = True) -> Difference:
    estimate = Estimate((low + high) / 2, low, high, (high - low) / 4, 50)
    return Difference("treatment", "control", metric, estimate, estimate if relative else None)


def live(*changed: Difference, treated: int = 30, chance: float = 0.5) -> Live:
    usual = {
        "prate": change("prate", 0.0, 0.04),
        "words_modified": change("words_modified", -0.01, 0.01),
        "words_per_minute": change("words_per_minute", -0.01, 0.01),
        "compose_trigger_rate": change("compose_trigger_rate", 0.0, 0.02),
        "compose_prate": change("compose_prate", -0.01, 0.02),
    }
    return Live(SampleRatio(treated, 60, 0.5, chance), (), tuple((usual | {c.metric: c for c in changed}).values()), ())


def failed(seen: Live, features: tuple[str, ...] = ("NWP",), missing: dict = DAYS, config=CONFIG, **replaced: str):
    return [gate.id for gate in gates(seen, missing, config, features, replaced) if not gate.passed]


def test_every_gate_has_words():
    told = {gate.id: gate.asks for gate in gates(live(), DAYS, CONFIG, ("NWP",), {})}
    assert told == {name: words.asks for name, words in GATES.items()}
    assert all(words.asks.endswith(".") and words.fix for words in GATES.values())
    assert words_of("live_gain_OTF", GATES).field == "experiment.min_gain"


def test_all_pass():
    assert failed(live()) == []
    # One of two metrics looks as bad by chance in one experiment of twenty.
    assert failed(live(change("words_modified", 0.011, 0.09))) == []
    assert failed(live(), ("NWP", "SC", "OTF")) == ["live_gain_OTF"], "fewer words modified is not shown by so much"


@pytest.mark.parametrize(
    ("seen", "more", "expected"),
    [
        (live(), {"missing": {"control": (), "treatment": (date(2026, 11, 3),)}}, "live_days"),
        (live(treated=19), {}, "live_buckets"),
        (live(treated=41), {}, "live_buckets"),
        (live(chance=MISMATCH * 0.99), {}, "live_split"),
        (live(), {"keyboard-en-US-NWP": "another"}, "live_control"),
        (live(change("prate", -0.01, 0.2)), {}, "live_gain"),
        (live(change("words_per_minute", -0.09, -0.02)), {}, "live_guardrails"),
        (live(change("words_modified", 0.02, 0.09)), {}, "live_guardrails"),
    ],
)
def test_each_gate_holds_it_back_alone(seen: Live, more: dict, expected: str):
    assert failed(seen, **more) == [expected]


@pytest.mark.parametrize(
    ("metric", "expected"),
    [("prate", "live_gain"), ("words_modified", "live_guardrails"), ("words_per_minute", "live_guardrails")],
)
def test_without_evidence_nobody_gets_it(metric: str, expected: str):
    seen = live()
    without = replace(seen, differences=tuple(row for row in seen.differences if row.metric != metric))
    assert failed(without) == [expected]
    assert failed(live(change(metric, 0.0, 0.1, relative=False))) == [expected]


def test_superiority_asks_for_the_whole_interval_above_zero():
    better = CONFIG.model_copy(update={"min_gain": 0.0})
    assert failed(live(change("prate", 0.0, 0.1)), config=better) == ["live_gain"]
    assert failed(live(change("prate", 0.001, 0.1)), config=better) == []


def test_fewer_modified_words_are_a_gain():
    assert failed(live(change("words_modified", -0.05, 0.009)), ("OTF",)) == []
    assert failed(live(change("words_modified", -0.009, 0.05)), ("OTF",)) == ["live_gain"]


def test_each_feature_has_its_own_and_one_that_fails_is_enough():
    seen = live(change("compose_prate", -0.2, -0.1))
    assert failed(seen, ("NWP", "SC")) == ["live_guardrails_SC"]
    assert failed(seen, ("NWP",)) == [], "nobody asked for phrases"
