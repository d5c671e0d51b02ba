"""Canaries and synthetic devices: the paper's grid, uniform words, exact device contents."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError
from scipy import stats

from evaluation.audit import canaries
from evaluation.config import AuditConfig
from pretrain.text.vocabulary import EOS, SPECIALS, TokenStream, Vocabulary, join_owners

PAPER = AuditConfig(users=(1, 4, 16), examples=(1, 14, 200), repeats=3)
WORDS = Vocabulary(SPECIALS + tuple(f"w{number}" for number in range(96)))


def filler(seed: int = 0) -> TokenStream:
    # Six words a sentence, so that a filler sentence is never five words like a canary.
    rng = np.random.default_rng(seed)
    return join_owners([np.concatenate([np.append(rng.integers(3, 100, size=6), EOS) for _ in range(30)])] * 3)


def sentences(tokens: np.ndarray) -> list[tuple[int, ...]]:
    return [tuple(part.tolist()) for part in np.split(tokens, np.flatnonzero(tokens == EOS) + 1)[:-1]]


def test_the_papers_grid_has_27_canaries_on_189_devices() -> None:
    made = canaries.make(PAPER, WORDS, filler(), seed=1)
    assert len(made.canaries) == 27
    assert len(made.devices) == 189 == sum(canary.n_u for canary in made.canaries)
    assert Counter((canary.n_u, canary.n_e) for canary in made.canaries) == {
        (n_u, n_e): 3 for n_u in (1, 4, 16) for n_e in (1, 14, 200)
    }
    assert len({canary.ids for canary in made.canaries}) == 27


def test_two_populations_have_a_grid_each_and_share_no_canary() -> None:
    config = PAPER.model_copy(update={"populations": ("compliant", "stress")})
    made = canaries.make(config, WORDS, filler(), seed=1)
    assert len(made.canaries) == 54
    assert len({canary.ids for canary in made.canaries}) == 54
    assert made.stress_D.tolist() == [False] * 189 + [True] * 189
    # The compliant grid is the one that there is without the other.
    assert made.canaries[:27] == canaries.make(PAPER, WORDS, filler(), seed=1).canaries
    assert {canary.population for canary in made.canaries[27:]} == {"stress"}
    with pytest.raises(ValidationError, match="names one twice"):
        AuditConfig(users=(1,), examples=(1,), repeats=1, populations=("stress", "stress"))


def test_each_population_is_in_the_launch_or_on_the_twin() -> None:
    both = {"users": [1, 4], "examples": [1], "repeats": 1, "populations": ["compliant", "stress"]}
    unsaid = AuditConfig.model_validate(both)
    assert (unsaid.launched, unsaid.on_twin) == (("compliant", "stress"), ())
    for in_launch, on_twin in ((["compliant"], ("stress",)), ([], ("compliant", "stress"))):
        config = AuditConfig.model_validate(both | {"in_launch": in_launch})
        assert (config.launched, config.on_twin) == (tuple(in_launch), on_twin)
    for wrong in (["stress", "stress"], ["stress"]):
        with pytest.raises(ValidationError, match="in_launch"):
            AuditConfig.model_validate(both | {"populations": ["compliant"], "in_launch": wrong})


def test_a_part_of_the_canaries_keeps_its_devices() -> None:
    config = AuditConfig(users=(1, 4), examples=(1, 14), repeats=1, populations=("compliant", "stress"))
    made = canaries.make(config, WORDS, filler(), seed=1)
    for chosen, expected in (
        (made.of(["stress"]), [canary.population == "stress" for canary in made.canaries]),
        (made.on_fewest(), [canary.n_u == 1 for canary in made.canaries]),
        (made.of([]), [False] * len(made.canaries)),
    ):
        numbers = np.flatnonzero(expected)
        assert chosen.canaries == tuple(made.canaries[number] for number in numbers)
        owners = [owner for owner in range(len(made.devices)) if made.canary_of_device_D[owner] in numbers]
        assert len(chosen.devices) == len(chosen.canary_of_device_D) == len(owners)
        for place, owner in enumerate(owners):
            np.testing.assert_array_equal(chosen.devices.owner(place), made.devices.owner(owner))
            number = made.canary_of_device_D[owner]
            assert chosen.canaries[chosen.canary_of_device_D[place]] == made.canaries[number]


def test_each_device_has_exactly_its_copies_and_public_sentences() -> None:
    text = filler()
    public = set(sentences(text.tokens_N))
    made = canaries.make(PAPER, WORDS, text, seed=1)
    first_place = []
    for device, number in enumerate(made.canary_of_device_D):
        canary = made.canaries[number]
        assert canary.words == tuple(WORDS.words[word] for word in canary.ids)
        own = sentences(made.devices.owner(device))
        copy = (*canary.ids, EOS)
        assert len(own) == 200
        assert own.count(copy) == canary.n_e
        assert set(own) <= public | {copy}
        if canary.n_e == 1:
            first_place.append(own.index(copy))
    # Shuffled: the one copy may stand anywhere.
    assert min(first_place) < 50 < 150 < max(first_place)


def test_words_are_uniform_over_the_vocabulary_without_specials() -> None:
    config = AuditConfig(users=(1,), examples=(1,), repeats=1).model_copy(update={"repeats": 4000})
    made = canaries.make(config, WORDS, filler(), seed=2)
    counts = np.bincount(np.array([canary.ids for canary in made.canaries]).ravel(), minlength=100)
    assert counts[:4].sum() == 0
    assert stats.chisquare(counts[4:]).pvalue > 0.001
    # The same check notices words drawn by frequency.
    zipf = np.random.default_rng(0).choice(96, size=20_000, p=(1 / np.arange(10, 106)) / np.sum(1 / np.arange(10, 106)))
    assert stats.chisquare(np.bincount(zipf, minlength=96)).pvalue < 1e-9


def test_a_function_of_the_seed_and_canaries_do_not_depend_on_the_filler() -> None:
    one, same = canaries.make(PAPER, WORDS, filler(), seed=1), canaries.make(PAPER, WORDS, filler(), seed=1)
    assert one.canaries == same.canaries
    np.testing.assert_array_equal(one.devices.tokens_N, same.devices.tokens_N)
    assert canaries.make(PAPER, WORDS, filler(5), seed=1).canaries == one.canaries
    assert canaries.make(PAPER, WORDS, filler(), seed=2).canaries != one.canaries


def test_json_round_trip(tmp_path: Path) -> None:
    made = canaries.make(PAPER.model_copy(update={"populations": ("compliant", "stress")}), WORDS, filler(), seed=1)
    canaries.save(made, tmp_path / "canaries.json")
    read = canaries.load(tmp_path / "canaries.json")
    assert read.canaries == made.canaries
    assert read.vocabulary_digest == WORDS.digest
    np.testing.assert_array_equal(read.devices.tokens_N, made.devices.tokens_N)
    np.testing.assert_array_equal(read.devices.offsets_D1, made.devices.offsets_D1)
    np.testing.assert_array_equal(read.canary_of_device_D, made.canary_of_device_D)
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(ValueError, match="make the canaries again"):
        canaries.load(tmp_path / "other.json")


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="need public text"):
        canaries.make(PAPER, WORDS, join_owners([]), seed=1)
    full = AuditConfig(users=(1,), examples=(5,), repeats=1)
    assert len(sentences(canaries.make(full, WORDS, join_owners([]), seed=1).devices.tokens_N)) == 5
    with pytest.raises(ValueError, match="no word besides the specials"):
        canaries.make(full, Vocabulary(SPECIALS), filler(), seed=1)
