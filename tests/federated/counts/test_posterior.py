"""From noisy counts to a model: against a posterior by quadrature, limits of no noise and of nothing but noise."""

import numpy as np
import pytest

from federated.counts import cells as counted
from federated.counts.cells import Cells
from federated.counts.posterior import counted_ngram, posterior_ratios
from federated.counts.release import released_counts
from pretrain.ngrams.counted import CountedNGram
from pretrain.ngrams.ngram import NGram
from pretrain.randomness.noise import seeded_key
from pretrain.text.vocabulary import BOS, EOS, PAD, UNK, TokenStream, join_owners
from tests.helpers.text.counted_devices import VOCABULARY, typed

SIZE = len(VOCABULARY)
BASE = SIZE - 5
PUBLIC = typed(150, 1, habit=0.0)


@pytest.fixture(scope="module")
def cells() -> Cells:
    return counted.choose(PUBLIC, VOCABULARY, contexts=12)


@pytest.fixture(scope="module")
def public() -> NGram:
    return NGram.fit(PUBLIC, VOCABULARY, 3)


def after(model: CountedNGram | NGram, *context: int) -> np.ndarray:
    return model.dense(np.array([([-1, -1, BOS, *context])[-2:]]))[0]


def fitted(devices: TokenStream, cells: Cells, public: NGram, z: float) -> CountedNGram:
    return counted_ngram(released_counts(devices, cells, z, seeded_key(2)), cells, public, BASE, z)


def shares(devices: TokenStream, context: int) -> np.ndarray:
    """Frequencies of the devices' next words after a word."""
    tokens = devices.tokens_N
    return np.bincount(tokens[1:][tokens[:-1] == context], minlength=SIZE) / np.sum(tokens[:-1] == context)


@pytest.mark.slow
def test_probabilities_sum_to_one_and_are_above_zero(cells: Cells, public: NGram) -> None:
    for z in (0.01, 1.0, 1e3):
        model = fitted(typed(300, 3), cells, public, z)
        for context in ((), (5,), (5, 9), (SIZE - 1,), (UNK,)):
            prob_V = after(model, *context)
            assert prob_V.sum() == pytest.approx(1)
            assert np.all(np.delete(prob_V, [PAD, BOS]) > 0)
            assert prob_V[[PAD, BOS]].tolist() == [0, 0]


@pytest.mark.slow
def test_with_little_noise_counted_contexts_go_on_as_devices_do(cells: Cells, public: NGram) -> None:
    devices = typed(900, 3)
    model = fitted(devices, cells, public, 1e-4)
    for context in (UNK + 1, UNK + 2):
        assert context in cells.context_K
        wanted = shares(devices, context)
        before = np.abs(after(public, context) - wanted).sum()
        assert np.abs(after(model, context) - wanted).sum() < 0.4 * before


@pytest.mark.slow
def test_what_a_sentence_s_start_weighs_is_divided_out_again(public: NGram) -> None:
    devices, models = typed(900, 3), []
    for start_weight in (1.0, 3.0):
        cells = counted.choose(PUBLIC, VOCABULARY, contexts=12, start_weight=start_weight)
        released_U = released_counts(devices, cells, 1e-6, seeded_key(2), clip_norm=100.0)
        models.append(counted_ngram(released_U, cells, public, BASE, 1e-6, clip_norm=100.0))
    even, weighed = map(after, models)
    np.testing.assert_allclose(weighed, even, atol=1e-6)
    wanted = shares(devices, EOS)
    assert np.abs(even - wanted).sum() < 0.4 * np.abs(after(public) - wanted).sum()


def test_with_nothing_but_noise_the_public_model_stays(cells: Cells, public: NGram) -> None:
    model = fitted(typed(300, 3), cells, public, 1e4)
    for context in ((), (5,), (5, 9)):
        np.testing.assert_allclose(after(model, *context), after(public, *context), rtol=0.5, atol=2e-3)


@pytest.mark.slow
def test_more_noise_moves_the_model_less(cells: Cells, public: NGram) -> None:
    devices, context = typed(900, 3), UNK + 1
    moved = [
        np.abs(after(fitted(devices, cells, public, z), context) - after(public, context)).sum() for z in (0.1, 3, 300)
    ]
    assert moved[0] > moved[1] > moved[2]


def test_discovered_words_get_the_mass_that_devices_give_them(cells: Cells, public: NGram) -> None:
    new = SIZE - 1
    rng = np.random.default_rng(7)
    devices = typed(600, 3)
    owned = [
        np.where((devices.owner(d) > UNK) & (rng.random(len(devices.owner(d))) < 0.2), new, devices.owner(d))
        for d in range(600)
    ]
    stream = join_owners(owned)
    model = fitted(stream, cells, public, 0.5)
    share = np.mean(stream.tokens_N == new)
    assert after(public, UNK + 1)[new] < 0.1 * share
    assert 0.7 * share < after(model, UNK + 1)[new] < 1.5 * share
    # Behind words that nobody counted too, as far as unigrams say.
    assert after(model, SIZE - 2)[new] > 0.7 * share


def test_what_discovery_says_of_new_words_is_where_counts_begin(public: NGram) -> None:
    frequency_N = np.array([0.03, 0.01, 1e-4, 1e-4, 1e-4])
    plain, told = (counted.choose(PUBLIC, VOCABULARY, contexts=12, frequency_N=each) for each in (None, frequency_N))
    words = 1 - np.mean(PUBLIC.tokens_N == EOS)  # a frequency is among words, a share among words and ends
    np.testing.assert_allclose(told.share_V[BASE:] * plain.share_V[5] / told.share_V[5], frequency_N * words, rtol=1e-3)
    np.testing.assert_array_equal(plain.prior_V, np.ones(SIZE))
    np.testing.assert_array_equal(told.prior_V[:BASE], np.ones(BASE))
    base = slice(EOS, BASE)
    np.testing.assert_allclose(told.share_V[base] / plain.share_V[base], told.share_V[5] / plain.share_V[5])
    np.testing.assert_allclose(told.next_KV.sum(axis=1), 1)
    devices = typed(300, 3)
    # Behind nothing but noise every context gives them about as much, where public text alone gives next to nothing.
    noisy = counted_ngram(released_counts(devices, told, 1e4, seeded_key(2)), told, public, BASE, 1e4)
    weights = np.bincount(PUBLIC.tokens_N, minlength=SIZE) / len(PUBLIC.tokens_N)
    mean_V = sum(weights[word] * after(noisy, word) for word in range(UNK, BASE))
    assert 0.6 < mean_V[BASE] / (frequency_N[0] * words) < 1.5
    assert 0.6 < mean_V[BASE + 1] / (frequency_N[1] * words) < 1.5
    # And behind little noise nothing of it is left.
    sure = counted_ngram(released_counts(devices, told, 1e-4, seeded_key(2)), told, public, BASE, 1e-4)
    assert after(sure, UNK + 1)[BASE] == pytest.approx(shares(devices, UNK + 1)[BASE], abs=5e-3)


def test_ratios_are_posterior_means_of_the_law_that_made_them(public: NGram) -> None:
    # Ratios of 1/e and e in equal shares, behind noise as large as what is expected.
    rng = np.random.default_rng(1)
    large = 5000
    ratio = np.exp(rng.choice([-1.0, 1.0], large))
    expected, std = np.full(large, 4.0), np.full(large, 4.0)
    total = expected * ratio + std * rng.standard_normal(large)
    means = posterior_ratios(total, expected, std, np.zeros(large, dtype=np.int64))
    two = np.exp([-1.0, 1.0])
    weight = np.exp(-0.5 * ((total[:, None] - expected[:, None] * two) / std[:, None]) ** 2)
    best = (weight @ two) / weight.sum(axis=1)
    # The best possible error is that of the true law; the naive ratio's is far above it.
    error = np.mean((means - ratio) ** 2)
    assert error < 1.1 * np.mean((best - ratio) ** 2)
    assert error < 0.6 * np.mean((total / expected - ratio) ** 2)
    assert means.min() > 0


@pytest.mark.parametrize("share", [0.2, 1.0, 4.0])
def test_cells_that_are_mostly_noise_have_the_ratio_of_their_sums(share: float) -> None:
    """A million cells say their mean to 0.05 and nothing of each: EM alone gave 3, where its law begins."""
    rng, many = np.random.default_rng(9), 1_000_000
    expected, std = rng.uniform(0.005, 0.03, many), np.ones(many)
    ratio = share * np.exp(rng.choice([-1.0, 1.0], many)) / np.cosh(1.0)
    total = expected * ratio + rng.standard_normal(many)
    means = posterior_ratios(total, expected, std, np.zeros(many, dtype=np.int64))
    assert np.average(means, weights=expected**2) == pytest.approx(share, abs=0.3)
    assert means.min() > 0


def test_cells_of_which_nothing_is_known_keep_the_public_ratio() -> None:
    rng = np.random.default_rng(9)
    expected, std = np.full(100, 1e-4), np.ones(100)
    means = posterior_ratios(rng.standard_normal(100), expected, std, np.zeros(100, dtype=np.int64))
    np.testing.assert_allclose(means, 1, rtol=0.01)


def test_the_release_with_its_key_is_all_that_decides(cells: Cells, public: NGram) -> None:
    devices = typed(300, 3)
    one, other = (fitted(devices, cells, public, 1.0) for _ in range(2))
    np.testing.assert_array_equal(one.pair_G, other.pair_G)
    np.testing.assert_array_equal(one.factor_V, other.factor_V)
    assert EOS in one.key_G % SIZE
