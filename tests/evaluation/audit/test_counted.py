"""The audit of a release of counts passes what is as claimed, and speaks against what is not."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from evaluation.audit.counted import counts_audit
from evaluation.audit.released.rows import AuditRow
from federated.counts import cells as counted
from federated.counts.release import CLIP_NORM, STREAM, released_counts, weighted
from pretrain.randomness.noise import gaussian, seeded_key
from pretrain.vocabulary import EOS, UNK, TokenStream, join_owners
from tests.helpers.text.counted_devices import VOCABULARY, typed

Z, KEY, ALPHA = 0.8, seeded_key(11), 0.01
CELLS = counted.choose(typed(60, 1), VOCABULARY, contexts=40)
DEVICES = join_owners([*map(typed(30, 2).owner, range(30)), np.tile([UNK + 1, UNK + 2, EOS], 3000)])
SHAPES = ((len(VOCABULARY),), (len(CELLS.context_K), len(VOCABULARY)))
NOISE = Z * CLIP_NORM * gaussian(KEY, STREAM, 0, len(CELLS))


def audited(released_U: np.ndarray, devices: TokenStream = DEVICES) -> list[AuditRow]:
    return counts_audit(released_U, weighted(devices, CELLS), SHAPES, Z, CLIP_NORM, ALPHA)


def clipped(devices: TokenStream) -> Iterator[np.ndarray]:
    for filled, values in weighted(devices, CELLS):
        vector = np.zeros(len(CELLS))
        vector[filled] = values / max(1.0, np.linalg.norm(values) / CLIP_NORM)
        yield vector


def test_what_was_released_passes_and_states_its_noise() -> None:
    variance, values = audited(released_counts(DEVICES, CELLS, Z, KEY))
    assert (variance.type, values.type) == ("noise_variance", "noise_values")
    assert variance.passed
    assert values.passed
    assert variance.claim == Z
    assert variance.low < Z < variance.high
    # The noise itself is what is left: its standard deviation by hand.
    assert variance.estimate == pytest.approx(NOISE.std() / CLIP_NORM, rel=1e-2)
    assert variance.n == len(CELLS)
    assert variance.least_noise is not None
    assert variance.least_noise > 0.9


def unclipped(released_U: np.ndarray) -> np.ndarray:
    for (filled, values), vector in zip(weighted(DEVICES, CELLS), clipped(DEVICES), strict=True):
        released_U[filled] += values
        released_U -= vector
    return released_U


def words_alone(released_U: np.ndarray) -> np.ndarray:
    released_U[len(VOCABULARY) :] -= NOISE[len(VOCABULARY) :]
    return released_U


def one_row(released_U: np.ndarray) -> np.ndarray:
    """Noise of one context left out."""
    row = slice(2 * len(VOCABULARY), 3 * len(VOCABULARY))
    released_U[row] -= NOISE[row]
    return released_U


def noise_twice(released_U: np.ndarray) -> np.ndarray:
    half = len(CELLS) // 2
    released_U[half : 2 * half] += NOISE[:half] - NOISE[half : 2 * half]
    return released_U


FAULTS: list[Callable[[np.ndarray], np.ndarray]] = [
    unclipped,
    words_alone,
    one_row,
    noise_twice,
    lambda released_U: released_U - 0.15 * NOISE,
    lambda released_U: released_U - NOISE,
]


@pytest.mark.parametrize("fault", FAULTS, ids=["unclipped", "words", "row", "twice", "less", "none"])
def test_a_fault_is_spoken_against(fault: Callable[[np.ndarray], np.ndarray]) -> None:
    rows = audited(fault(released_counts(DEVICES, CELLS, Z, KEY)))
    assert not all(row.passed for row in rows)
    assert any(row.reason for row in rows)


def test_a_device_that_was_left_out_of_the_records_shows() -> None:
    rows = audited(released_counts(DEVICES, CELLS, 0.05, KEY), DEVICES.select(np.arange(30)))
    assert not all(row.passed for row in rows)
