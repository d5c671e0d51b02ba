"""The measured coverage of a word list, and its interval."""

import numpy as np
import pytest

from discovery.coverage import coverage


def test_coverage_is_a_share_of_tokens() -> None:
    assert coverage(["haha", "lol", "lol"], [{"haha": 6, "xyzzy": 2}], 0.9) == (0.75, 0.0, 1.0)
    assert coverage(["haha"], [{}], 0.9)[0] == coverage(["haha"], [], 0.9)[0] == 0.0


def test_coverage_interval_holds_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    rates, sizes = rng.beta(2, 3, size=20_000), rng.integers(0, 60, size=20_000)
    covered = rng.binomial(sizes, rates)
    truth = covered.sum() / sizes.sum()
    hits = too_narrow = 0
    for sample_of in rng.integers(0, 20_000, size=(300, 80)):
        devices = [{"haha": int(covered[d]), "zzz": int(sizes[d] - covered[d])} for d in sample_of]
        share, low, high = coverage(["haha"], devices, 0.95)
        hits += low <= truth <= high
        total = sum(sum(counts.values()) for counts in devices)
        assert share == sum(counts["haha"] for counts in devices) / total
        # Tokens of a device are alike: an interval that counts tokens is too narrow.
        too_narrow += abs(share - truth) <= 1.96 * np.sqrt(share * (1 - share) / total)
    assert 0.91 <= hits / 300 <= 0.98
    assert too_narrow / 300 < 0.75
    assert coverage(["haha"], [{}, {}], 0.9) == (0.0, 0.0, 0.0)
    with pytest.raises(ValueError, match="confidence"):
        coverage(["haha"], [{"haha": 1}], 1.0)
