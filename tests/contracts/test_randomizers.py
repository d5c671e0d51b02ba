"""Contract of every local randomiser of discovery, at every size of its messages."""

import itertools
import math

import numpy as np
import pytest

from discovery.device.keystream import Keystream
from discovery.device.randomizer import SubsetSelection, estimate, of_size, randomise, subset_selection

KEY = bytes(range(32))
RANDOMIZERS = {
    f"epsilon0 {epsilon0:g}, {domain} items, {size} sent": of_size(epsilon0, domain, size)
    for epsilon0 in (0.5, 3.0)
    for domain, size in ((2, 1), (5, 1), (5, 2), (6, 5))
} | {"chosen": subset_selection(2.0, 8)}
every_randomizer = pytest.mark.parametrize("randomizer", RANDOMIZERS.values(), ids=RANDOMIZERS)


def law(randomizer: SubsetSelection, value: int) -> dict[tuple[int, ...], float]:
    """Chance of every message, for one item: by enumeration."""
    with_it = math.comb(randomizer.domain - 1, randomizer.size - 1)
    without = math.comb(randomizer.domain - 1, randomizer.size)
    return {
        message: randomizer.inclusion / with_it if value in message else (1 - randomizer.inclusion) / without
        for message in itertools.combinations(range(randomizer.domain), randomizer.size)
    }


def sent(randomizer: SubsetSelection, value: int, device: int, stream: str = "answers") -> np.ndarray:
    return randomise(randomizer, value, Keystream(KEY, stream, device))


@every_randomizer
def test_no_message_tells_more_than_epsilon0(randomizer: SubsetSelection) -> None:
    laws = [law(randomizer, value) for value in range(randomizer.domain)]
    assert [sum(each.values()) for each in laws] == pytest.approx([1.0] * len(laws))
    ratios = [one[message] / other[message] for one, other in itertools.permutations(laws, 2) for message in one]
    assert max(ratios) <= math.exp(randomizer.epsilon0)
    assert max(ratios) == pytest.approx(math.exp(randomizer.epsilon0))


@every_randomizer
def test_a_message_is_a_pure_function_of_key_stream_and_device(randomizer: SubsetSelection) -> None:
    np.testing.assert_array_equal(sent(randomizer, 0, 3), sent(randomizer, 0, 3))
    rows = {
        tuple(map(tuple, [sent(randomizer, 0, device) for device in range(24 * part, 24 * part + 24)]))
        for part in range(4)
    }
    assert len(rows) == 4, "other devices have other bits"
    other = [tuple(sent(randomizer, 0, device, "another question")) for device in range(24)]
    assert other != [tuple(sent(randomizer, 0, device)) for device in range(24)]


@every_randomizer
def test_a_message_is_a_set_in_an_order_that_tells_nothing(randomizer: SubsetSelection) -> None:
    for value, device in itertools.product(range(randomizer.domain), range(8)):
        message = sent(randomizer, value, device)
        assert len(message) == randomizer.size
        assert np.all(np.diff(message) > 0)
        assert 0 <= message[0] <= message[-1] < randomizer.domain


@pytest.mark.slow
@pytest.mark.statistical
@every_randomizer
def test_messages_follow_the_law_and_no_other(randomizer: SubsetSelection) -> None:
    devices, value = 4000, randomizer.domain - 1
    held = np.mean([value in sent(randomizer, value, device) for device in range(devices)])
    spread = math.sqrt(randomizer.inclusion * (1 - randomizer.inclusion) / devices)
    assert abs(held - randomizer.inclusion) < 5 * spread
    wrong = of_size(randomizer.epsilon0 + 1, randomizer.domain, randomizer.size).inclusion
    assert abs(held - wrong) > 5 * spread


@every_randomizer
def test_the_estimate_undoes_the_law_exactly(randomizer: SubsetSelection) -> None:
    votes = np.zeros(randomizer.domain)
    for message, chance in law(randomizer, 0).items():
        votes[list(message)] += chance
    np.testing.assert_allclose(estimate(randomizer, votes, 1), np.eye(randomizer.domain)[0], atol=1e-9)


@every_randomizer
def test_what_is_no_item_is_refused(randomizer: SubsetSelection) -> None:
    with pytest.raises(ValueError, match="is not one of the domain's"):
        sent(randomizer, randomizer.domain, 0)
