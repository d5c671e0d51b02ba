"""Arms in step: the numbers of the definition, the cache by hand, slices and head words."""

from pathlib import Path

import numpy as np
import pytest
import torch

from evaluation.arms import arm as arms
from evaluation.arms.held_out import HeldOut, Ratio
from evaluation.arms.history import WithHistory
from evaluation.comparison import scoring, slices
from evaluation.config import VARIETY_WORDS
from pretrain.config import ModelConfig
from pretrain.model.keyboard_lm import KeyboardLM, build_model
from pretrain.ngrams.ngram import NGram
from pretrain.text import vocabulary as vocabularies
from pretrain.text.vocabulary import BOS, UNK, Vocabulary
from tests.helpers.text.next_words import of_model, of_ngram, one_by_one
from tests.helpers.text.typed_text import stream, text, vocabulary


@pytest.fixture
def words(tmp_path: Path) -> HeldOut:
    return text(tmp_path, devices=40)


def model(size: int) -> KeyboardLM:
    return build_model(ModelConfig(embedding_dim=8, hidden_dim=12, tied=False), size, 1)


def same(one: dict[str, Ratio], other: dict[str, Ratio]) -> None:
    assert one.keys() == other.keys()
    for name, ratio in one.items():
        for part, wanted in zip(ratio, other[name], strict=True):
            np.testing.assert_allclose(part, wanted, rtol=1e-10 if name == "cross_entropy" else 0, err_msg=name)
    assert one["top3_recall"][0].sum() > one["top1_recall"][0].sum() > 0


@pytest.mark.slow
def test_a_model_in_step_scores_as_the_definition_says(words: HeldOut) -> None:
    known = vocabulary()
    scored = scoring.score(arms.neural(model(len(known))), words, words.ids(known), batch_sentences=7, workers=2)
    same(scored.ratios(), one_by_one(of_model(model(len(known))), words, words.ids(known)).ratios())


@pytest.mark.slow
@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_an_ngram_in_step_scores_as_the_definition_says(words: HeldOut, order: int) -> None:
    known = vocabulary()
    fitted = NGram.fit(stream(words, known).select(np.arange(0, 40, 2)), known, order)
    scored = scoring.score(arms.PublicNGram(fitted), words, words.ids(known))
    same(scored.ratios(), one_by_one(of_ngram(fitted), words, words.ids(known)).ratios())


def test_a_word_outside_the_vocabulary_is_a_miss_even_if_the_model_loves_unk(words: HeldOut) -> None:
    known, loving = vocabulary(), model(len(vocabulary()))
    with torch.no_grad():
        loving.output_bias[UNK] = 50.0
        loving.output_bias[7] = 20.0
    before = {name: value.clone() for name, value in loving.state_dict().items()}
    counted = scoring.score(arms.neural(loving), words, words.ids(known)).ratios()
    ids = words.ids(known)
    (top1_D, words_D), (known_top1_D, known_words_D) = counted["top1_recall"], counted["invocab_accuracy"]
    assert (words_D.sum(), known_words_D.sum()) == (len(ids), np.sum(ids != UNK))
    assert top1_D.sum() == known_top1_D.sum() == np.sum(ids == 7)
    assert words_D[1] == 0, "a silent device"
    # The model that is measured stays as it was.
    assert all(torch.equal(value, before[name]) for name, value in loving.state_dict().items())


def test_ties_go_to_the_lower_id_and_a_broken_model_is_an_error(words: HeldOut) -> None:
    known, flat = vocabulary(), model(len(vocabulary()))
    with torch.no_grad():
        flat.output.zero_()
        flat.output_bias.zero_()
    ids = words.ids(known)
    scored = scoring.score(arms.neural(flat), words, ids)
    np.testing.assert_array_equal(scored.rank_P[ids != UNK], ids[ids != UNK] - 4)
    with torch.no_grad():
        flat.output_bias[5] = float("nan")
    with pytest.raises(ArithmeticError, match="not finite"):
        scoring.score(arms.neural(flat), words, ids)


def test_an_arm_that_knows_fewer_words_misses_the_others(words: HeldOut) -> None:
    known = vocabulary()
    arm = arms.neural(model(20), len(known))
    scored = scoring.score(arm, words, words.ids(known))
    beyond = scored.id_P >= 20
    assert beyond.any()
    assert np.all(scored.rank_P[beyond] >= len(known))
    assert np.all(np.isinf(scored.loss_P[beyond]))
    assert np.all(scored.first_P < 20)
    log_probs, state = arm.start([np.empty(0)])
    assert np.logaddexp.reduce(log_probs[0]) == pytest.approx(0, abs=1e-12)
    # A word it does not know is <unk> as a context.
    np.testing.assert_array_equal(arm.step(np.array([25]), state)[0], arm.step(np.array([UNK]), state)[0])
    with pytest.raises(ValueError, match="outside the arm's vocabulary of 20"):
        scoring.score(arms.neural(model(20)), words, words.ids(known))


def cache_by_hand(base: np.ndarray, history: list[int], previous: int, weight: float) -> np.ndarray:
    """The mixture from its description, token by token."""
    uni, bi = np.zeros(len(base)), np.zeros(len(base))
    recent = history[-2000:]
    for place, token in enumerate(recent):
        recency = 0.5 ** ((len(recent) - 1 - place) / 500)
        if token >= 4:
            uni[token] += recency
            if place and recent[place - 1] == previous:
                bi[token] += recency
    if not uni.sum():
        return base
    own = bi.sum() / (bi.sum() + 2)
    cache = (1 - own) * uni / uni.sum() + (own * bi / bi.sum() if bi.sum() else 0)
    trust = weight * uni.sum() / (uni.sum() + 100)
    return (1 - trust) * base + trust * cache


def test_the_cache_by_hand_and_distributions_sum_to_one() -> None:
    rng = np.random.default_rng(0)
    histories = [[], [5], [UNK, UNK], rng.integers(3, 30, 40).tolist(), rng.integers(3, 30, 2600).tolist()]
    arm = arms.neural(model(34))
    mixed = WithHistory(arm, 0.3)
    base, inner = arm.start([np.empty(0)] * 5)
    log_probs, state = mixed.start([np.array(history, dtype=np.int64) for history in histories])
    for previous in (BOS, 9, 12):
        if previous != BOS:
            base, inner = arm.step(np.full(5, previous), inner)
            log_probs, state = mixed.step(np.full(5, previous), state)
        for row, history in enumerate(histories):
            expected = cache_by_hand(np.exp(base[row]), history, previous, 0.3)
            np.testing.assert_allclose(np.exp(log_probs[row]), expected, rtol=1e-10, err_msg=f"{previous} {row}")
            assert expected.sum() == pytest.approx(1, abs=1e-12)
    some = mixed.rows(state, np.array([4, 3]))
    np.testing.assert_array_equal(mixed.step(np.array([7, 7]), some)[0][0], mixed.step(np.full(5, 7), state)[0][4])
    with pytest.raises(ValueError, match=r"weight: 1\.0 is not a share"):
        WithHistory(arm, 1.0)


def test_history_is_only_what_came_before(words: HeldOut) -> None:
    """The last sentence of a device changes nothing for the others, and the first one has no history."""
    known = vocabulary()
    ids = words.ids(known)
    arm = WithHistory(arms.neural(model(len(known))), 0.5)
    scored = scoring.score(arm, words, ids)
    plain = scoring.score(arm.arm, words, ids)
    first = words.number_S[words.sentence_P] == 0
    np.testing.assert_allclose(scored.loss_P[first], plain.loss_P[first], rtol=1e-12)
    assert np.abs(scored.loss_P[~first] - plain.loss_P[~first]).max() > 0.01
    last = np.array([s for s in range(len(words.device_S)) if s + 1 not in np.flatnonzero(words.number_S > 0)])
    in_last = np.isin(words.sentence_P, last)
    changed = np.where(in_last, 10, ids)
    again = scoring.score(arm, words, changed)
    np.testing.assert_array_equal(again.loss_P[~in_last], scored.loss_P[~in_last])


def test_slices_cut_words_and_devices() -> None:
    ids = np.array([4, 5, 2000, 40_000, UNK, 4, 4, 4, 4, 4])
    device = np.array([0, 0, 0, 0, 1, 2, 2, 2, 2, 2])
    masks = slices.masks(ids, device, 4, base_size=30_000, launch_size=50_000)
    assert masks["rare_words"].tolist() == [False, False, True] + [False] * 7
    assert masks["new_words"].tolist() == [False] * 3 + [True] + [False] * 6
    assert masks["unknown_words"].tolist() == [False] * 4 + [True] + [False] * 5
    assert masks["heavy_users"].tolist() == (device == 2).tolist()
    assert masks["light_users"].tolist() == (device != 2).tolist()
    assert "new_words" not in slices.masks(ids, device, 4, base_size=50_000, launch_size=50_000)


def test_head_words_tell_a_model_that_only_knows_the_frequent_ones() -> None:
    ids = np.array([4, 5, 6, 300, 2000, UNK])
    scored = scoring.Scores(
        device_P=np.zeros(6, int),
        id_P=ids,
        rank_P=np.array([0, 5, 0, 0, 9, scoring.MISS]),
        loss_P=np.ones(6),
        first_P=np.array([4, 4, 6, 300, 4, 4]),
        sure_P=np.full(6, -np.inf),
        phrase_P=np.zeros(6, bool),
        devices=1,
    )
    rows = {row.words: row for row in slices.head_words("arm", scored)}
    assert (rows[10].typed, rows[10].predicted, rows[10].right) == (3 / 5, 5 / 6, 2 / 3)
    assert (rows[1000].typed, rows[1000].predicted, rows[1000].right) == (4 / 5, 1, 1)


def scores(meant: np.ndarray, first: np.ndarray) -> scoring.Scores:
    """Scores of an arm that puts these words first."""
    words = len(meant)
    return scoring.Scores(
        device_P=np.zeros(words, int),
        id_P=meant,
        rank_P=np.where(meant == first, 0, 7),
        loss_P=np.ones(words),
        first_P=first,
        sure_P=np.full(words, -np.inf),
        phrase_P=np.zeros(words, bool),
        devices=1,
    )


def test_variety_is_that_of_random_samples_of_the_same_number_of_words() -> None:
    rng = np.random.default_rng(4)
    meant = 4 + rng.geometric(0.02, size=3000)
    first = np.where(rng.random(3000) < 0.2, meant, 4 + rng.integers(0, 900, 3000))
    drawn = [rng.choice(3000, VARIETY_WORDS, replace=False) for _ in range(2000)]
    counts = [len(np.unique(meant[some][meant[some] == first[some]])) for some in drawn]
    assert slices.variety(scores(meant, first)) == pytest.approx(np.mean(counts), abs=5 * np.std(counts) / 2000**0.5)
    # Ten times the text, of the same kind.
    tenfold = scores(np.tile(meant, 10), np.tile(first, 10))
    assert slices.variety(tenfold) == pytest.approx(slices.variety(scores(meant, first)), rel=0.05)


def test_variety_counts_no_wrong_words_and_all_right_ones_of_a_short_text() -> None:
    meant = np.array([4, 5, 6, 300, 4, UNK])
    assert slices.variety(scores(meant, np.array([4, 9, 6, 301, 4, UNK]))) == 2
    assert slices.variety(scores(np.repeat(meant, 100), np.full(600, 4))) == pytest.approx(1)
    assert slices.variety(scores(meant, np.full(6, 7))) == slices.variety(scores(meant[:0], meant[:0])) == 0


@pytest.mark.slow
def test_fewer_words_count_as_in_a_vocabulary_of_its_own(words: HeldOut) -> None:
    known = vocabulary()
    small = Vocabulary(known.words[:20])
    scored = scoring.score(arms.neural(model(20), len(known)), words, words.ids(known))
    same(scored.ratios(), one_by_one(of_model(model(20)), words, words.ids(small)).ratios())


@pytest.mark.slow
def test_an_arm_of_another_vocabulary_in_ours(words: HeldOut) -> None:
    ours = vocabulary()
    theirs = Vocabulary((*ours.words[:4], "elsewhere", *reversed(ours.words[6:])))
    own = arms.neural(model(len(theirs)))
    arm = arms.translated(own, theirs, ours)
    scored = scoring.score(arm, words, words.ids(ours))
    there = scoring.score(own, words, words.ids(theirs))
    known = words.ids(theirs) != UNK
    np.testing.assert_allclose(scored.loss_P[known], there.loss_P[known], rtol=1e-12)
    lacking = ~known & (words.ids(ours) != UNK)
    assert lacking.any()
    assert np.all(np.isinf(scored.loss_P[lacking]))
    # Only the word that we lack can move a rank, and only by one place.
    assert set((there.rank_P - scored.rank_P)[known]) <= {0, 1}
    with_theirs = vocabularies.extend(ours, theirs.words, 10)
    fair = scoring.score(arms.translated(own, theirs, with_theirs), words, words.ids(with_theirs))
    np.testing.assert_array_equal(fair.rank_P[known], there.rank_P[known])
    mixed = WithHistory(arm, 0.3)
    assert np.isfinite(scoring.score(mixed, words, words.ids(ours)).loss_P[known]).all()
    with pytest.raises(ValueError, match="spoken: 34 words, the arm speaks 33"):
        arms.translated(own, ours, ours)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_gpu_scores_as_a_cpu_does(words: HeldOut) -> None:
    known = vocabulary()
    here, there = (arms.neural(model(len(known)), device=device) for device in ("cpu", "cuda"))
    assert there.model.embedding.is_cuda
    same(*(scoring.score(arm, words, words.ids(known), workers=2).ratios() for arm in (here, there)))
