"""Votes added by secure aggregation are the plain sum, and no addend is seen."""

import numpy as np
import pytest

from federated.secagg import votes as secure
from federated.secagg.server import Server
from federated.secagg.votes import secure_votes
from pretrain.randomness.noise import seeded_key

ITEMS, MOST = 37, 10


def some_votes(devices: int) -> list[np.ndarray]:
    return list(np.random.default_rng(devices).integers(0, MOST + 1, size=(devices, ITEMS)))


@pytest.mark.slow
@pytest.mark.parametrize("devices", [3, 4, 11, 60])
def test_the_sum_is_the_plain_one(devices: int) -> None:
    votes = some_votes(devices)
    total_d = secure_votes(iter(votes), devices, ITEMS, MOST, seeded_key(1), 5)
    assert total_d.dtype == np.int64
    assert total_d.tolist() == np.sum(votes, axis=0).tolist()


def test_the_most_that_all_can_give_does_not_wrap_around() -> None:
    votes = [np.full(ITEMS, MOST)] * 26  # 260 is more than a byte holds
    assert set(secure_votes(votes, 26, ITEMS, MOST, seeded_key(1), 5).tolist()) == {260}


def test_large_groups_are_added_in_cohorts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secure, "COHORT", 8)
    votes = some_votes(29)
    assert secure_votes(votes, 29, ITEMS, MOST, seeded_key(1), 5).tolist() == np.sum(votes, axis=0).tolist()


@pytest.mark.slow
def test_what_a_device_sends_says_nothing_of_its_votes(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[np.ndarray] = []

    def add(self: Server, index: int, masked_N: np.ndarray) -> None:
        seen.append(masked_N.copy())
        whole(self, index, masked_N)

    whole = Server.add
    monkeypatch.setattr(Server, "add", add)
    nothing = [np.zeros(ITEMS, dtype=np.int64)] * 12
    for key in range(12):
        assert not secure_votes(nothing, 12, ITEMS, MOST, seeded_key(key), 5).any()
    # Uniform on a byte, though every vote is 0: 5,328 numbers.
    count = np.bincount(np.concatenate(seen), minlength=256)
    expected = count.sum() / 256
    assert ((count - expected) ** 2 / expected).sum() < 340  # chi-square, 255 degrees, 0.03%


def test_too_few_devices_are_refused() -> None:
    for devices in (1, 2):
        with pytest.raises(ValueError, match=f"secagg: {devices} devices in a round are too few"):
            secure_votes(some_votes(devices), devices, ITEMS, MOST, seeded_key(1), 5)


def test_more_votes_than_agreed_are_refused() -> None:
    with pytest.raises(ArithmeticError, match="more than 10 votes"):
        secure_votes([np.full(ITEMS, 11)] * 5, 5, ITEMS, MOST, seeded_key(1), 5)
