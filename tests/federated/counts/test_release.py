"""The release of counts: cells from public text alone, sensitivity by brute force, the scale of the noise."""

import inspect
from dataclasses import replace

import numpy as np
import pytest

from federated.counts import cells as counted
from federated.counts.cells import Cells
from federated.counts.release import CLIP_NORM, STREAM, released_counts
from federated.local_training.clipping import MAX_DEVICES
from pretrain.randomness.noise import FIXED_POINT, gaussian, seeded_key
from pretrain.text.vocabulary import BOS, EOS, PAD, UNK, TokenStream, join_owners
from tests.helpers.text.counted_devices import VOCABULARY, typed

KEY, SIZE = seeded_key(5), len(VOCABULARY)
Z = 0.8
# So little that a release leaves no digit of a sum out.
QUIET = 2.0**-24


@pytest.fixture(scope="module")
def cells() -> Cells:
    return counted.choose(typed(60, 1), VOCABULARY, contexts=7)


def unnoised(devices: TokenStream, cells: Cells, clip_norm: float = CLIP_NORM, key: bytes = KEY) -> np.ndarray:
    """The sum behind a release, from its noise, in clip norms."""
    noise_U = np.rint(QUIET * gaussian(key, STREAM, 0, len(cells)) * FIXED_POINT) / FIXED_POINT
    return released_counts(devices, cells, QUIET, key, clip_norm) / clip_norm - noise_U


def by_hand(tokens: np.ndarray, cells: Cells, clip_norm: float) -> np.ndarray:
    """One device's clipped vector, cell by cell, in clip norms."""
    vector = np.zeros(len(cells))
    before = BOS
    for token in tokens:
        vector[token] += cells.weight_U[token]
        if before in cells.context_K:
            place = list(cells.context_K).index(before)
            cell = SIZE + place * SIZE + token
            vector[cell] += cells.weight_U[cell]
        before = BOS if token == EOS else token
    return vector / max(np.linalg.norm(vector), clip_norm)


def test_the_sum_is_that_of_clipped_vectors_counted_by_hand(cells: Cells) -> None:
    devices = typed(9, 2)
    expected = sum(by_hand(devices.owner(d), cells, 3.0) for d in range(9))
    np.testing.assert_allclose(unnoised(devices, cells, 3.0), expected, atol=1e-5)


def test_no_device_moves_the_joint_sum_by_more_than_the_clip_norm(cells: Cells) -> None:
    rng = np.random.default_rng(3)
    huge = rng.integers(UNK, SIZE, 200_000)
    huge[rng.random(len(huge)) < 0.2] = EOS
    one_word = np.full(100_000, UNK + 1)
    spread = np.concatenate([[word, EOS] for word in range(UNK, SIZE)])
    nasty = [
        huge,
        one_word,
        spread,
        np.empty(0, dtype=np.int64),
        np.array([EOS] * 500),
        *map(typed(20, 4).owner, range(20)),
    ]
    everyone = unnoised(join_owners(nasty), cells)
    norms = []
    for number in range(len(nasty)):
        without = unnoised(join_owners([*nasty[:number], *nasty[number + 1 :]]), cells)
        norms.append(np.linalg.norm(everyone - without))
    assert max(norms) <= 1
    # The bound is reached, so that it is not some other bound that holds.
    assert sorted(norms)[-3] > 0.999
    assert min(norms) == 0


def test_cells_depend_on_public_text_and_vocabulary_alone(cells: Cells) -> None:
    # The last is how often discovered words are typed: as much a release of discovery as the vocabulary is.
    settings = ["contexts", "typical_words", "pair_weight", "frequency_N", "start_weight"]
    assert list(inspect.signature(counted.choose).parameters) == ["public", "vocabulary", *settings]
    assert len(cells) == SIZE + 7 * SIZE
    count = np.bincount(typed(60, 1).tokens_N, minlength=SIZE)
    assert list(cells.context_K) == [BOS, *(np.argsort(-count[UNK + 1 :], kind="stable")[:6] + UNK + 1)]
    # Every cell has noise, whether or not anybody filled it.
    for devices in (typed(9, 2), typed(3, 8), join_owners([np.empty(0, dtype=np.int64)])):
        assert np.count_nonzero(released_counts(devices, cells, Z, KEY)) == len(cells)


def test_weights_are_those_of_public_shares(cells: Cells) -> None:
    assert cells.share_V[[PAD, BOS]].tolist() == [0, 0]
    assert cells.share_V.sum() == pytest.approx(1)
    np.testing.assert_allclose(cells.next_KV.sum(axis=1), 1)
    assert cells.weight_U[EOS] == pytest.approx(1 / np.sqrt(1 + 1000 * cells.share_V[EOS]))
    start = SIZE + np.arange(SIZE)
    expected = 1 / np.sqrt(1 + 1000 * cells.share_V[EOS] * cells.next_KV[0])
    np.testing.assert_allclose(cells.weight_U[start], 2 * expected)
    even = counted.choose(typed(60, 1), VOCABULARY, contexts=7, start_weight=1.0)
    assert (cells.start_weight, even.start_weight) == (2.0, 1.0)
    np.testing.assert_array_equal(np.flatnonzero(cells.weight_U != even.weight_U), start)


@pytest.mark.parametrize("start_weight", [1.0, 2.0, 3.0])
def test_weights_divided_out_the_sums_are_what_was_typed_and_noise_at_the_start_is_less(start_weight: float) -> None:
    cells = counted.choose(typed(60, 1), VOCABULARY, contexts=7, start_weight=start_weight)
    devices = typed(9, 2)
    # No device is that long: nothing is clipped. Counted by hand, words and pairs after each context.
    plain = np.zeros((1 + len(cells.context_K), SIZE))
    for device in range(9):
        before = BOS
        for token in devices.owner(device):
            plain[0, token] += 1
            for place in np.flatnonzero(cells.context_K == before):
                plain[1 + place, token] += 1
            before = BOS if token == EOS else token
    estimate = 1e3 * unnoised(devices, cells, 1e3) / cells.weight_U
    np.testing.assert_allclose(estimate, plain.ravel(), atol=1e-3)
    silent = join_owners([np.empty(0, dtype=np.int64)])
    weighs = cells.weight_U[SIZE : 2 * SIZE] * np.sqrt(1 + 1000 * cells.share_V[EOS] * cells.next_KV[0])
    np.testing.assert_allclose(weighs, start_weight)
    # The noise of the release knows no weights; divided out, that at the start is so many times less.
    unweighted = replace(cells, weight_U=np.ones(len(cells)))
    np.testing.assert_array_equal(*(released_counts(silent, each, Z, KEY) for each in (cells, unweighted)))


@pytest.mark.statistical
def test_noise_has_its_scale_in_both_blocks_and_no_other() -> None:
    large = counted.choose(typed(60, 1), VOCABULARY, contexts=40)
    silent = join_owners([np.empty(0, dtype=np.int64)])
    draws = np.stack([released_counts(silent, large, Z, seeded_key(seed)) for seed in range(60)]) / CLIP_NORM
    for block in (draws[:, :SIZE], draws[:, SIZE:]):
        # The mean square of n normals has standard deviation sqrt(2 / n); four of them are far below 10%.
        assert np.mean(block**2) == pytest.approx(Z**2, rel=4 * np.sqrt(2 / block.size))
        assert 4 * np.sqrt(2 / block.size) < 0.12
    # No cell repeats another's noise; of a few million multiples that are shown, some are hit twice.
    assert np.abs(np.corrcoef(draws[:, :30].T) - np.eye(30)).max() < 0.6
    assert len(np.unique(draws)) > 0.98 * draws.size


def test_a_retry_is_the_same_release_and_another_key_is_another(cells: Cells) -> None:
    devices = typed(9, 2)
    first = released_counts(devices, cells, Z, KEY)
    np.testing.assert_array_equal(first, released_counts(devices, cells, Z, KEY))
    # The sum is one of integers, so the order of devices leaves no trace.
    np.testing.assert_array_equal(first, released_counts(devices.select(np.arange(9)[::-1]), cells, Z, KEY))
    assert not np.any(first == released_counts(devices, cells, Z, seeded_key(6)))


def test_noise_is_drawn_before_text_is_read(cells: Cells, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> np.ndarray:
        raise ArithmeticError("no noise")

    read = []
    monkeypatch.setattr("pretrain.randomness.noise.gaussian", broken)
    monkeypatch.setattr(Cells, "counts", lambda self, tokens_N: read.append(tokens_N))
    with pytest.raises(ArithmeticError, match="no noise"):
        released_counts(typed(9, 2), cells, Z, KEY)
    assert read == []


def test_what_does_not_fit_is_refused_before_noise(cells: Cells) -> None:
    with pytest.raises(ValueError, match="encode them"):
        released_counts(join_owners([np.array([SIZE])]), cells, Z, KEY)
    many = TokenStream(np.empty(0, dtype=np.int32), np.zeros(MAX_DEVICES // 2 + 2, dtype=np.int64))
    with pytest.raises(ValueError, match="overflow"):
        released_counts(many, cells, Z, KEY)
    with pytest.raises(ValueError, match="no text"):
        counted.choose(join_owners([]), VOCABULARY)
