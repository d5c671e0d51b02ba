"""The vote over public sentences: sensitivity by enumeration, one release, and weights that follow what is typed."""

from itertools import product

import numpy as np
import pytest

from federated.counts.bounded_sum import MOST_DEVICES
from federated.votes import release
from federated.votes.clusters import Groups, group
from federated.votes.release import CLIP_NORM, STREAM, THRESHOLD, ballots, importance, released_votes
from pretrain.randomness.noise import FIXED_POINT, gaussian, seeded_key
from pretrain.selection import MOST_WEIGHT
from pretrain.vocabulary import EOS, SPECIALS, UNK, TokenStream, join_owners
from tests.helpers.text.counted_devices import VOCABULARY, typed

KEY, Z, FIRST = seeded_key(4), 0.7, len(SPECIALS)
# Three groups, one for each of three words; a fourth word lies between the first two.
CROSS = np.zeros((FIRST + 4, 3))
CROSS[FIRST:] = [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0.8, 0.6, 0]]
THREE = Groups(CROSS, np.zeros(3), np.eye(3))


def tokens(*sentences: tuple[int, ...]) -> np.ndarray:
    """Sentences of numbered words; -1 is unknown."""
    return np.array([token for words in sentences for token in (*(FIRST + w if w >= 0 else UNK for w in words), EOS)])


def unnoised(devices: TokenStream) -> np.ndarray:
    quiet = 2.0**-24  # so little noise that a release leaves no digit of a sum out
    noise_K = np.rint(quiet * gaussian(KEY, STREAM, 0, 3) * FIXED_POINT) / FIXED_POINT
    return released_votes(devices, THREE, quiet, KEY) / CLIP_NORM - noise_K


def test_each_sentence_is_counted_for_the_group_it_is_nearest_to() -> None:
    text = tokens((0,), (1, 1, 0), (2, -1), (3,), (-1,), ())
    assert THREE.nearest(text).tolist() == [0, 1, 2, 0, -1, -1]


def test_no_device_moves_the_sum_by_more_than_one_vote_whatever_it_types() -> None:
    """Every device of up to three sentences of at most two words, and one of a million words."""
    sentences = [(), (-1,), *((word,) for word in range(4)), *product(range(4), repeat=2)]
    others = join_owners([tokens((0,), (1,)), tokens((2,))])
    base = unnoised(join_owners([others.owner(0), others.owner(1), np.empty(0, dtype=np.int64)]))
    lengths = []
    some = [sentences[place] for place in np.random.default_rng(0).permutation(len(sentences))[:4]]
    for size in range(4):
        for typed_by_one in product(some if size > 1 else sentences, repeat=size):
            mine = tokens(*typed_by_one) if size else np.empty(0, dtype=np.int64)
            moved = unnoised(join_owners([others.owner(0), others.owner(1), mine])) - base
            lengths.append(np.linalg.norm(moved))
            times = np.bincount(THREE.nearest(mine)[THREE.nearest(mine) >= 0], minlength=3)
            np.testing.assert_allclose(moved, times / max(np.linalg.norm(times), 1), atol=1e-6)
    huge = np.tile(tokens((0,), (1,), (1,), (2,)), 100_000)
    lengths.append(np.linalg.norm(unnoised(join_owners([others.owner(0), others.owner(1), huge])) - base))
    assert max(lengths) <= 1
    assert max(lengths) > 0.999
    assert min(lengths) == 0


def test_every_group_has_noise_of_its_scale() -> None:
    silent = join_owners([np.empty(0, dtype=np.int64)])
    wide = Groups(CROSS, np.zeros(3), np.eye(3)[np.arange(3000) % 3])
    released_K = released_votes(silent, wide, Z, KEY)
    assert np.count_nonzero(released_K) == 3000
    assert released_K.std() == pytest.approx(Z * CLIP_NORM, rel=0.05)
    np.testing.assert_array_equal(released_K, released_votes(silent, wide, Z, KEY))


def test_what_does_not_fit_is_refused_before_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "released_sum", lambda *given: pytest.fail("noise was drawn"))
    with pytest.raises(ValueError, match=r"devices: token ids must lie below"):
        released_votes(join_owners([np.array([len(CROSS), EOS])]), THREE, Z, KEY)
    nobody = TokenStream(np.empty(0, dtype=np.int64), np.zeros(MOST_DEVICES + 2, dtype=np.int64))
    with pytest.raises(ValueError, match=r"overflow a 64-bit fixed-point sum"):
        released_votes(nobody, THREE, Z, KEY)


def test_text_is_read_after_noise_was_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []

    def drawn(votes: object, *given: object) -> np.ndarray:
        assert read == []
        return np.array([len(list(votes))])  # type: ignore[call-overload]

    monkeypatch.setattr(release, "released_sum", drawn)
    monkeypatch.setattr(Groups, "nearest", lambda groups, owner: read.append(1) or np.array([0]))
    assert released_votes(join_owners([tokens((0,))] * 2), THREE, Z, KEY).tolist() == [2]
    assert read == [1, 1]


def test_weights_are_bounded_ratios_and_votes_in_the_noise_are_none() -> None:
    group_S = np.array([0] * 6 + [1] * 3 + [2, -1])
    weight_S = importance(np.array([10.0, 30.0, THRESHOLD * Z * CLIP_NORM * 0.99]), group_S, Z)
    assert weight_S[0] == pytest.approx(0.25 / 0.6)
    assert weight_S[6] == pytest.approx(0.75 / 0.3)
    assert weight_S[9] == pytest.approx(1 / MOST_WEIGHT)
    assert weight_S[10] == 1
    assert importance(np.array([0.0, 0.0, 1e9]), group_S, Z).max() == MOST_WEIGHT
    # Nobody was heard: text stays as it is.
    assert set(importance(np.array([-5.0, 0.0, 0.1]), group_S, Z)) == {1.0}


def test_groups_follow_the_model_s_vectors_and_votes_find_the_text_of_those_who_type() -> None:
    """Words of two kinds, each kind in sentences of its own: those who type one kind vote for it."""
    random = np.random.default_rng(2)
    embedding = random.standard_normal((len(VOCABULARY), 8)) * 0.2
    embedding[FIRST : FIRST + 20, 0] += 3
    embedding[FIRST + 20 :, 1] += 3
    kinds = random.integers(0, 2, 400)
    public = join_owners([np.array([*(FIRST + 20 * kind + random.integers(0, 20, 5)), EOS]) for kind in kinds])
    groups = group(public, embedding, 4, 7)
    near_S = groups.nearest(public.tokens_N)
    assert not set(near_S[kinds == 0]) & set(near_S[kinds == 1])
    devices = join_owners([np.array([*(FIRST + random.integers(0, 20, 4)), EOS]) for _ in range(60)])
    weight_S = importance(released_votes(devices, groups, Z, KEY), near_S, Z)
    assert weight_S[kinds == 0].mean() > 1.5
    assert set(weight_S[kinds == 1]) == {1 / MOST_WEIGHT}
    again = group(public, embedding, 4, 7)
    np.testing.assert_array_equal(groups.centre_KE, again.centre_KE)
    with pytest.raises(ValueError, match=r"400 sentences for 500 groups"):
        group(public, embedding, 500, 7)


def test_a_device_s_ballot_is_a_direction() -> None:
    for voted, votes in ballots(typed(20, 3), group(typed(60, 1), np.eye(len(VOCABULARY)), 8, 1)):
        assert len(set(voted.tolist())) == len(voted)
        assert np.linalg.norm(votes) == pytest.approx(1)
