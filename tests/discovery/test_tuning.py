"""The simulated server's view against honest messages, and its refusal of anything private."""

import numpy as np
import pytest

from discovery import tuning
from discovery.device.keystream import Keystream
from discovery.device.randomizer import of_size, randomise, subset_selection
from discovery.device.typed import TypedWords
from discovery.tuning import PublicHistogram, votes_for_tuning_only

COUNTS = np.array([50, 20, 10, 5, 5, 5, 3, 2])
RANDOMIZER = of_size(1.0, 8, 3)
PUBLIC = PublicHistogram("made up for this test, CC0", COUNTS)


def simulated(exact: str, runs: int = 4000) -> np.ndarray:
    return np.stack([votes_for_tuning_only(PUBLIC, RANDOMIZER, seed, exact) for seed in range(runs)])


def honest(runs: int = 600) -> np.ndarray:
    bits, rows = Keystream(bytes(32), "honest"), []
    for _ in range(runs):
        sent = [randomise(RANDOMIZER, item, bits) for item, count in enumerate(COUNTS) for _ in range(count)]
        rows.append(np.bincount(np.concatenate(sent), minlength=8))
    return np.stack(rows)


def differs(left: np.ndarray, right: np.ndarray) -> float:
    """Greatest difference of means and of covariances, in standard errors of either."""
    deviation = left.std(axis=0)
    runs = 1 / (1 / len(left) + 1 / len(right))
    means = np.abs(left.mean(axis=0) - right.mean(axis=0)) / deviation * np.sqrt(runs)
    errors = np.outer(deviation, deviation) * np.sqrt((1 + np.eye(left.shape[1])) / runs)
    spreads = np.abs(np.cov(left.T) - np.cov(right.T)) / errors
    return float(max(means.max(), spreads.max()))


@pytest.mark.statistical
def test_joint_votes_are_those_of_honest_messages():
    joint, sent = simulated("joint"), honest()
    assert np.all(joint.sum(axis=1) == 300)
    assert np.all(sent.sum(axis=1) == 300)
    np.testing.assert_allclose(joint.mean(axis=0), [48, 39.6, 36.8, 35.4, 35.4, 35.4, 34.84, 34.56], atol=0.5)
    assert np.corrcoef(joint.T)[0, 1] == pytest.approx(-0.15, abs=0.05)
    assert differs(joint, sent) < 4.5
    # The same comparison notices votes of another epsilon, and their sum those that ignore each other.
    other = np.stack([votes_for_tuning_only(PUBLIC, of_size(1.3, 8, 3), seed, "joint") for seed in range(1000)])
    assert differs(other, sent) > 6
    assert simulated("marginal", 100).sum(axis=1).std() > 5


@pytest.mark.statistical
def test_marginal_votes_have_the_right_law_item_by_item():
    marginal, sent = simulated("marginal"), honest()
    errors = (marginal.mean(axis=0) - sent.mean(axis=0)) / (sent.std(axis=0) / np.sqrt(len(sent)))
    assert np.all(np.abs(errors) < 4.5)
    assert np.all(np.abs(marginal.std(axis=0) / sent.std(axis=0) - 1) < 0.15)
    assert len(set(marginal.sum(axis=1).tolist())) > 1


@pytest.mark.parametrize(("domain", "size"), [(2, 1), (5, 1), (5, 4), (40, 7)])
def test_joint_votes_add_up_in_every_shape(domain, size):
    counts = np.arange(domain) % 3 * 10 + 1
    for seed in range(5):
        votes = votes_for_tuning_only(PublicHistogram("x", counts), of_size(2.0, domain, size), seed, "joint")
        assert votes.sum() == counts.sum() * size
        assert np.all(votes >= 0)
        assert np.all(votes <= counts.sum())


def test_a_large_domain_takes_a_moment_and_the_same_prefixes_lead():
    rng = np.random.default_rng(0)
    counts = rng.permutation((1e6 / np.arange(1, 5001)).astype(np.int64))
    randomizer = subset_selection(6.0, 5000)
    runs = [
        set(np.argsort(-votes_for_tuning_only(PublicHistogram("Zipf", counts), randomizer, 1, exact))[:100].tolist())
        for exact in ("marginal", "joint")
    ]
    assert len(runs[0] & runs[1]) > 85


@pytest.mark.parametrize(
    ("histogram", "named"),
    [
        (COUNTS, "only a PublicHistogram"),
        (TypedWords.gather([["secret"]]), "only a PublicHistogram"),
        (PublicHistogram("x", COUNTS[:-1]), "7 items"),
    ],
    ids=["counts", "devices", "other domain"],
)
def test_private_data_are_refused(histogram, named):
    with pytest.raises(ValueError, match=named):
        tuning.votes_for_tuning_only(histogram, RANDOMIZER, 0, "marginal")


@pytest.mark.parametrize(
    ("source", "counts", "named"),
    [
        (" ", COUNTS, "source"),
        ("x", TypedWords.gather([["secret"]]), "devices cannot"),
        ("x", COUNTS * 0.5, "whole numbers"),
        ("x", -COUNTS, "at least 0"),
        ("x", COUNTS * 0, "between 1"),
    ],
)
def test_what_is_no_public_histogram_is_refused(source, counts, named):
    with pytest.raises(ValueError, match=named):
        PublicHistogram(source, counts)
