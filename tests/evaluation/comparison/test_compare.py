"""The whole comparison on a small population: what it says must be what its parts say."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pydantic import TypeAdapter

from evaluation.arms.arm import NextWord, PublicNGram, neural
from evaluation.arms.held_out import held_out
from evaluation.arms.history import WithHistory
from evaluation.comparison.compare import Devices, Entrants, Rules, run
from evaluation.comparison.intervals import Estimate
from evaluation.comparison.results import Comparison
from evaluation.features import FEATURES
from pretrain.config import ModelConfig
from pretrain.model.keyboard_lm import build_model
from pretrain.ngrams.ngram import NGram
from pretrain.text.words import WordStore, write_words
from tests.helpers.text.typed_text import UNKNOWN, WORDS, stream, vocabulary

BASE = 30
RULES = Rules(("NWP",), "en-US", "salt", 1, buckets=10, session_words=600, compose_rate=0.1, rare_after=5)
PAIRS = (("ngram", "pretrained"), ("ngram_history", "ngram"))


def store(directory: Path) -> WordStore:
    """Devices with habits: the next word is often the next of the list."""
    rng = np.random.default_rng(0)
    pool = WORDS + UNKNOWN
    owners = []
    for _ in range(120):
        sentences = []
        for _ in range(rng.integers(3, 9)):
            word, sentence = int(rng.integers(len(pool))), []
            for _ in range(rng.integers(2, 8)):
                word = (word + 1) % len(pool) if rng.random() < 0.7 else int(rng.integers(len(pool)))
                sentence.append(pool[word])
            sentences.append(sentence)
        owners.append(sentences)
    return write_words(directory, owners)


Compared = tuple[Comparison, Entrants, Devices]


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Compared:
    words = store(tmp_path_factory.mktemp("store"))
    devices = Devices(words, np.arange(60), np.arange(60, 90))
    public = PublicNGram(NGram.fit(stream(held_out(words, np.arange(90, 120)), vocabulary()), vocabulary(), 2))
    untrained = build_model(ModelConfig(embedding_dim=8, hidden_dim=12, tied=False), BASE, 0)
    arms = {
        "ngram": public,
        "pretrained": neural(untrained, len(vocabulary())),
        "ngram_history": WithHistory(public, 0.2),
    }
    entrants = of(arms, PAIRS)
    return run(entrants, devices, RULES), entrants, devices


@pytest.fixture(scope="module")
def with_phrases(compared: Compared) -> Comparison:
    """The same, of a launch for Smart Compose too."""
    _, entrants, devices = compared
    return run(entrants, devices, replace(RULES, features=("NWP", "SC")))


def of(arms: Mapping[str, NextWord], pairs: tuple[tuple[str, str], ...]) -> Entrants:
    return Entrants(arms, pairs, vocabulary(), BASE, len(vocabulary()))


@pytest.mark.slow
def test_it_is_complete_and_survives_storage(compared: Compared, with_phrases: Comparison) -> None:
    _, entrants, _ = compared
    result = with_phrases
    assert TypeAdapter(Comparison).validate_json(result.to_json()) == result
    metrics = {row.metric for row in result.table.arms}
    assert metrics | set(result.table.undefined) >= {
        *("top1_recall", "top3_recall", "invocab_accuracy", "cross_entropy", "prate", "strip_accuracy"),
        *("click_through_rate", "compose_trigger_rate", "compose_prate", "words_modified", "errors_left"),
        *("words_per_minute", "keystroke_savings"),
    }
    assert {row.arm for row in result.table.arms} == set(entrants.arms) == set(result.variety)
    assert {row.part for row in result.slices} == {"all", "rare_words", "new_words", "heavy_users", "light_users"}
    assert all(np.isfinite(row.estimate.value) for row in result.table.arms)


def slice_of(result: Comparison, part: str, arm: str, metric: str, baseline: str | None = None) -> Estimate:
    wanted = (part, arm, metric, baseline)
    (row,) = (row for row in result.slices if (row.part, row.arm, row.metric, row.baseline) == wanted)
    return row.estimate


@pytest.mark.slow
def test_the_better_arm_wins_in_every_slice_and_calibration(compared: Compared) -> None:
    result, _, _ = compared
    assert result.table.difference("ngram", "pretrained", "top3_recall").absolute.low > 0
    for part in ("all", "rare_words", "new_words", "light_users"):
        assert slice_of(result, part, "ngram", "top3_recall", "pretrained").low > 0
    # The first arm has never heard of the new words.
    assert slice_of(result, "new_words", "pretrained", "top3_recall").value == 0
    savings = next(row for row in result.signs if (row.candidate, row.metric) == ("ngram", "keystroke_savings"))
    assert savings.stable
    assert set(savings.changes) == {"median", "fast", "sloppy"}
    (first, _) = result.verdicts
    assert (first.candidate, first.baseline) == ("ngram", "pretrained")
    assert first.checks[0].metric == "prate" or first.missing == ("prate",)


@pytest.mark.slow
def test_slices_add_up_and_compose_is_at_equal_rates(compared: Compared, with_phrases: Comparison) -> None:
    _, entrants, _ = compared
    result = with_phrases
    whole = result.table.arm("ngram", "top1_recall").estimate.value
    assert slice_of(result, "all", "ngram", "top1_recall").value == whole
    base, untrained = result.compose
    # The untrained arm decides, and is never right as often as the first.
    assert {row.equal for row in result.compose} == {"rate"}
    assert base.trigger_rate == pytest.approx(RULES.compose_rate, abs=0.03)
    assert base.right_share > 0.1
    assert untrained.trigger_rate > 0
    for arm in entrants.deciding:
        assert result.table.arm(arm, "compose_trigger_rate").estimate.value > 0, "every arm that decides has a figure"
    # What is set on the tuning devices holds on the others.
    assert result.table.arm("ngram", "compose_trigger_rate").estimate.value == pytest.approx(
        base.trigger_rate, abs=0.05
    )


@pytest.mark.slow
def test_phrases_are_offered_only_for_a_launch_of_smart_compose(compared: Compared, with_phrases: Comparison) -> None:
    result, _, _ = compared
    assert result.compose == ()
    metrics = {row.metric for row in with_phrases.table.arms} - {row.metric for row in result.table.arms}
    assert metrics == {"compose_trigger_rate", "compose_prate"}
    assert result.table.arm("ngram", "prate") == with_phrases.table.arm("ngram", "prate"), "sessions without phrases"


@pytest.mark.slow
def test_one_model_is_judged_by_each_feature_it_is_launched_for(compared: Compared) -> None:
    _, entrants, devices = compared
    entrants = replace(entrants, also_decisive=PAIRS[1:])
    result = run(entrants, devices, replace(RULES, features=("NWP", "SC", "OTF")))
    differing = {row.metric for row in result.table.differences if (row.candidate, row.baseline) == PAIRS[1]}
    judged = {row.feature: row for row in result.verdicts if (row.candidate, row.baseline) == PAIRS[1]}
    # Phrases are offered equally often here, so that it is what is taken of them that differs.
    assert {name: row.primary for name, row in judged.items()} == {
        "NWP": "prate",
        "SC": "compose_prate",
        "OTF": "words_modified",
    }
    for name, row in judged.items():
        assert differing >= set(FEATURES[name].metrics) - set(result.table.undefined)
        assert row.primary in row.missing or (row.checks[0].metric, row.checks[0].role) == (row.primary, "primary")
    # A pair that is about some features has no verdict for the others.
    alone = run(replace(entrants, only={"ngram": ("OTF",)}), devices, replace(RULES, features=("NWP", "OTF")))
    assert [(row.feature, row.baseline) for row in alone.verdicts] == [
        ("NWP", "pretrained"),
        ("OTF", "pretrained"),
        ("OTF", "ngram"),
    ]


@pytest.mark.slow
def test_only_the_arms_that_decide_are_typed(compared: Compared) -> None:
    """Rows of typing are of the same words for both; the others keep their recall, which then decides their pairs."""
    result, entrants, _ = compared
    typed = {row.arm for row in result.table.arms if row.metric == "words_modified"}
    assert typed == set(entrants.deciding) == {"ngram", "pretrained"}
    (words,) = {row.denominator for row in result.table.arms if row.metric == "words_modified"}
    assert words == result.judged_words >= RULES.session_words
    decided, other = result.verdicts
    assert (decided.primary, other.primary) == ("prate", "top1_recall")
    assert {check.metric for check in other.checks} == {"top1_recall", "top3_recall"}
    champion = replace(entrants, also_decisive=PAIRS[1:])
    assert champion.deciding == ["ngram", "pretrained", "ngram_history"]


def test_equally_precise_arms_are_judged_by_how_often_they_speak(compared: Compared) -> None:
    _, entrants, devices = compared
    order = {name: entrants.arms[name] for name in ("ngram", "ngram_history")}
    result = run(of(order, PAIRS[1:]), devices, replace(RULES, features=("SC",), session_words=200))
    assert {row.equal for row in result.compose} == {"precision"}
    assert result.verdicts[0].primary == "compose_trigger_rate"
    base, history = result.compose
    assert history.right_share >= base.right_share > 0


def test_no_sessions_no_session_metrics_and_what_is_refused(compared: Compared) -> None:
    _, entrants, devices = compared
    # Without sessions there is no strip, so recall decides, and any script will do.
    result = run(entrants, devices, replace(RULES, session_words=0, locale="ru-RU"))
    assert result.verdicts[0].checks[0].metric == "top1_recall"
    assert result.verdicts[0].passes
    assert result.signs == result.compose == ()
    with pytest.raises(ValueError, match="no keyboard for 'ru-RU'"):
        run(entrants, devices, replace(RULES, session_words=20, locale="ru-RU"))
    with pytest.raises(ValueError, match="no word to set thresholds on"):
        run(entrants, replace(devices, tuning=np.arange(0)), replace(RULES, features=("SC",)))


def test_it_is_the_same_on_three_threads(compared: Compared) -> None:
    result, entrants, devices = compared
    assert run(entrants, devices, RULES, workers=3) == result
