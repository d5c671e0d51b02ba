"""The whole comparison on a small population: what it says must be what its parts say."""

from pathlib import Path

import numpy as np
import pytest

from evaluation.arms import arm as arms
from evaluation.arms.held_out import held_out
from evaluation.arms.history import WithHistory
from evaluation.arms.ngram import NGram
from evaluation.comparison import compare as comparison
from evaluation.comparison.results import Comparison
from evaluation.config import AbTestConfig
from pretrain.config import ModelConfig
from pretrain.model import build_model
from pretrain.words import WordStore, write_words
from tests.helpers.typed_text import UNKNOWN, WORDS, vocabulary

BASE = 30
CONFIG = AbTestConfig(ngram_order=2, buckets=10, session_words=600, compose_rate=0.1, rare_after=5)


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


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Comparison, comparison.Devices, dict]:
    words = store(tmp_path_factory.mktemp("store"))
    devices = comparison.Devices(words, np.arange(60), np.arange(60, 90))
    known = vocabulary()
    public = NGram.fit(held_out(words, np.arange(90, 120)).stream(known), known, 2)
    untrained = build_model(ModelConfig(embedding_dim=8, hidden_dim=12, tied=False), BASE, 0)
    entrants = {
        "ngram": arms.PublicNGram(public),
        "pretrained": arms.neural(untrained, len(known)),
        "ngram_history": WithHistory(arms.PublicNGram(public), 0.2),
    }
    pairs = [("ngram", "pretrained"), ("ngram_history", "ngram")]
    result = comparison.run(entrants, devices, known, BASE, "en-US", "NWP", CONFIG, "salt", 1, pairs)
    return result, devices, entrants


def test_it_is_complete_and_survives_storage(compared) -> None:
    result, _, entrants = compared
    assert Comparison.model_validate_json(result.model_dump_json()) == result
    metrics = {row.metric for row in result.table.arms}
    assert metrics | set(result.table.undefined) >= {
        *("top1_recall", "top3_recall", "invocab_accuracy", "cross_entropy", "prate", "strip_accuracy"),
        *("click_through_rate", "compose_trigger_rate", "compose_prate", "words_modified", "errors_left"),
        *("words_per_minute", "keystroke_savings"),
    }
    assert {row.arm for row in result.table.arms} == set(entrants) == set(result.distinct_first_words)
    assert {row.part for row in result.slices} == {"all", "rare_words", "new_words", "heavy_users", "light_users"}
    assert all(np.isfinite(row.estimate.value) for row in result.table.arms)


def test_the_better_arm_wins_in_every_slice_and_calibration(compared) -> None:
    result, _, _ = compared
    assert result.table.difference("ngram", "pretrained", "top3_recall").absolute.low > 0
    for part in ("all", "rare_words", "new_words", "light_users"):
        assert result.slice_of(part, "ngram", "top3_recall", "pretrained").low > 0
    # The first arm has never heard of the new words.
    assert result.slice_of("new_words", "pretrained", "top3_recall").value == 0
    savings = next(row for row in result.signs if (row.candidate, row.metric) == ("ngram", "keystroke_savings"))
    assert savings.stable
    assert set(savings.changes) == {"median", "fast", "sloppy"}
    with pytest.raises(KeyError, match="nowhere"):
        result.slice_of("nowhere", "ngram", "top3_recall")
    (first, _) = result.verdicts
    assert (first.candidate, first.baseline) == ("ngram", "pretrained")
    assert first.checks[0].metric == "prate" or first.missing == ("prate",)


def test_slices_add_up_and_compose_is_at_equal_rates(compared) -> None:
    result, _, _ = compared
    whole = result.table.arm("ngram", "top1_recall").estimate.value
    assert result.slice_of("all", "ngram", "top1_recall").value == whole
    base, untrained, history = result.compose
    assert base.trigger_rate == pytest.approx(CONFIG.compose_rate, abs=0.03)
    assert base.right_share > 0.1
    assert history.right_share >= base.right_share
    assert history.trigger_rate > 0
    # What is set on the tuning devices holds on the others.
    assert result.table.arm("ngram", "compose_trigger_rate").estimate.value == pytest.approx(
        base.trigger_rate, abs=0.05
    )
    # An arm that is never right enough keeps quiet.
    assert (untrained.threshold_nats, untrained.trigger_rate) == (None, 0)


@pytest.mark.parametrize(
    ("feature", "primary", "told"),
    [
        ("NWP", "prate", {"prate", "strip_accuracy", "click_through_rate"}),
        ("SC", "compose_trigger_rate", {"compose_prate", "compose_trigger_rate"}),
        ("OTF", "words_modified", {"words_modified", "words_per_minute", "errors_left"}),
    ],
)
def test_one_model_is_judged_by_the_feature_it_is_launched_for(compared, feature, primary, told) -> None:
    result, devices, entrants = compared
    pairs = [("ngram_history", "ngram")]
    again = comparison.run(entrants, devices, vocabulary(), BASE, "en-US", feature, CONFIG, "salt", 1, pairs)
    assert {row.metric for row in again.of_feature(feature)} == told - set(again.table.undefined)
    first = again.verdicts[0].checks[0]
    assert (first.metric, first.role) == (primary, "primary")
    assert [check.metric for check in again.verdicts[0].checks].count(primary) == 1
    assert again.table.difference("ngram_history", "ngram", primary) == result.table.difference(
        "ngram_history", "ngram", primary
    )
    with pytest.raises(ValueError, match="feature: 'GIF' is none of NWP, SC, OTF"):
        again.of_feature("GIF")


def test_a_baseline_that_is_never_right_silences_all(compared) -> None:
    _, devices, entrants = compared
    order = {"pretrained": entrants["pretrained"], "ngram": entrants["ngram"]}
    pairs = [("ngram", "pretrained")]
    result = comparison.run(order, devices, vocabulary(), BASE, "en-US", "SC", CONFIG, "salt", 1, pairs)
    assert [row.threshold_nats for row in result.compose] == [None, None]
    # No phrase, no rate: the primary metric of SC is missing or zero, and that is no pass.
    assert not result.verdicts[0].passes


def test_no_sessions_no_session_metrics_and_what_is_refused(compared) -> None:
    _, devices, entrants = compared
    plain = CONFIG.model_copy(update={"session_words": 0})
    pairs = [("ngram", "pretrained")]

    def run(config: AbTestConfig, locale: str = "en-US", some: comparison.Devices = devices) -> Comparison:
        return comparison.run(entrants, some, vocabulary(), BASE, locale, "NWP", config, "salt", 1, pairs)

    # Without sessions there is no strip, so recall decides, and any script will do.
    result = run(plain, "ru-RU")
    assert result.verdicts[0].checks[0].metric == "top1_recall"
    assert result.verdicts[0].passes
    assert result.signs == result.compose == ()
    with pytest.raises(ValueError, match="no keyboard for 'ru-RU'"):
        run(CONFIG, "ru-RU")
    with pytest.raises(ValueError, match="no word to set thresholds on"):
        run(CONFIG, some=comparison.Devices(devices.words, devices.test, np.arange(0)))


def test_it_is_the_same_on_three_threads(compared) -> None:
    result, devices, entrants = compared
    pairs = [("ngram", "pretrained"), ("ngram_history", "ngram")]
    again = comparison.run(entrants, devices, vocabulary(), BASE, "en-US", "NWP", CONFIG, "salt", 1, pairs, workers=3)
    assert again == result
