"""Every arm speaks as precisely as the first or as often, by a search over all thresholds that there are."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from evaluation.arms import arm as arms
from evaluation.comparison import phrases, scoring
from evaluation.comparison.scoring import Scores
from pretrain.config import ModelConfig
from pretrain.model.keyboard_lm import build_model
from pretrain.ngrams.ngram import NGram
from tests.helpers.text.typed_text import stream, text, vocabulary

RATE = 0.1
NETWORK = ModelConfig(embedding_dim=8, hidden_dim=12, tied=False)


@pytest.fixture(scope="module")
def tuning(tmp_path_factory: pytest.TempPathFactory) -> phrases.Tuning:
    folder: Path = tmp_path_factory.mktemp("tuning")
    return phrases.Tuning(text(folder, devices=40), vocabulary(), RATE)


@pytest.fixture(scope="module")
def entrants(tuning: phrases.Tuning) -> dict[str, arms.NextWord]:
    """Two n-grams that have seen the very text, and a network that has seen none."""
    seen = stream(tuning.text, vocabulary())
    return {
        "trigram": arms.PublicNGram(NGram.fit(seen, vocabulary(), 3)),
        "longer": arms.PublicNGram(NGram.fit(seen, vocabulary(), 4)),
        "untrained": arms.neural(build_model(NETWORK, len(vocabulary()), 0)),
    }


def every(arm: arms.NextWord, tuning: phrases.Tuning) -> list[tuple[float, float, float, int]]:
    """Each threshold with how often the arm speaks then, how often it is right, and phrases; the loosest first."""
    id_P = tuning.text.ids(tuning.vocabulary)
    scored = scoring.score(arm, tuning.text, id_P, compose_floor=-math.inf)
    looser = np.unique(scored.sure_P[np.isfinite(scored.sure_P)])
    shown = [(value, scored.sure_P >= value) for value in looser]
    return [(value, shown_P.mean(), scored.phrase_P[shown_P].mean(), shown_P.sum()) for value, shown_P in shown]


def nearest(arm: arms.NextWord, tuning: phrases.Tuning, rate: float) -> tuple[float, float]:
    value, speaks, _, _ = min(every(arm, tuning), key=lambda row: (abs(row[1] - rate), row[1]))
    return value, speaks


def test_arms_that_can_be_as_precise_as_the_first_are(
    entrants: dict[str, arms.NextWord], tuning: phrases.Tuning
) -> None:
    order = {name: entrants[name] for name in ("trigram", "longer")}
    first, other = phrases.settings(order, tuning)
    assert (first.equal, other.equal) == ("precision", "precision")
    assert (first.threshold_nats, first.trigger_rate) == pytest.approx(nearest(entrants["trigram"], tuning, RATE))
    assert first.right_share
    loosest = next(row for row in every(entrants["longer"], tuning) if row[2] >= first.right_share and row[3] >= 20)
    assert (other.threshold_nats, other.trigger_rate, other.right_share) == pytest.approx(loosest[:3])


def test_where_an_arm_is_never_so_precise_all_speak_equally_often(
    entrants: dict[str, arms.NextWord], tuning: phrases.Tuning
) -> None:
    rows = {row.arm: row for row in phrases.settings(entrants, tuning)}
    first = rows["trigram"]
    assert first.right_share
    assert all(share < first.right_share for _, _, share, many in every(entrants["untrained"], tuning) if many >= 20)
    assert {name: row.equal for name, row in rows.items()} == dict.fromkeys(("trigram", "longer", "untrained"), "rate")
    for name, row in rows.items():
        expected = nearest(entrants[name], tuning, first.trigger_rate)
        assert (row.threshold_nats, row.trigger_rate) == pytest.approx(expected), "also below a tenth of a chance"
        assert row.trigger_rate == pytest.approx(first.trigger_rate, abs=0.04)


def test_a_first_arm_that_is_never_right_leaves_no_precision_to_be_equal_at(
    entrants: dict[str, arms.NextWord], tuning: phrases.Tuning, monkeypatch: pytest.MonkeyPatch
) -> None:
    score = scoring.score

    def never(arm: arms.NextWord, *given: object, **options: object) -> Scores:
        scored = score(arm, *given, **options)
        return replace(scored, phrase_P=scored.phrase_P & (arm is not entrants["untrained"]))

    monkeypatch.setattr(scoring, "score", never)
    order = {name: entrants[name] for name in ("untrained", "trigram", "longer")}
    rows = phrases.settings(order, tuning)
    assert {row.equal for row in rows} == {"rate"}
    assert rows[0].right_share == 0
    assert all(row.threshold_nats is not None and row.trigger_rate > 0.05 for row in rows)


def test_equally_sure_phrases_are_offered_together_as_near_as_can_be() -> None:
    rng = np.random.default_rng(1)
    for _ in range(200):
        sure_P = rng.choice([-3.0, -2.0, -1.5, -1.0, -np.inf], size=rng.integers(1, 30))
        rate = rng.uniform(0.01, 0.99)
        many = len(sure_P)
        scored = Scores(*[np.zeros(many)] * 5, sure_P, np.zeros(many, dtype=bool), 1)
        wanted, values = round(rate * many), sorted(set(sure_P[np.isfinite(sure_P)]), reverse=True)
        expected = min(values, key=lambda value: abs(np.sum(sure_P >= value) - wanted), default=math.inf)
        assert scoring.threshold_at_rate(scored, rate) == (expected if wanted else math.inf)
