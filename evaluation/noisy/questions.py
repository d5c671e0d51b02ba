"""Evaluation questions under a budget: ratios of sums, and one bounded vector that each held-out device adds.

Shape legend: D devices, L sums of the questions, M cells of a vector.

A ratio's interval needs its two sums and, for the spread between devices, the sums of their squares and of their
product. One vector holds all of them, so that one bound and one release of noise cover every question. Arms are
compared by sums of differences: two arms have most of their results in common, and noise on both levels would exceed
their difference.

A device counts as at most ``MOST_WORDS`` words: one with more text has the same weight, at its own rates.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

MOST_WORDS = 50.0
# Clip norm of a weighted vector; one of fifty devices on chat exceeds it, and is scaled down as a whole at the same
# rates.
CLIP_NORM = 1.25
WORDS = "words"
# Least denominator of a ratio, in standard deviations of its noise.
LEAST_DENOMINATOR = 5.0
# Standard normal quantile at 1 - 1/1000: a shortfall of noise that occurs once in a thousand times.
_LUCK = 3.0
# Weight of a cell, by the kind of its sum and of its products: about the inverse root of one device's contribution,
# which minimises the effect of noise on each question (docs/evaluation.md).
_EVERY, COMMON, FINE, SOME, RARE = 0.5, 1.0, 4.0, 4.5, 25.0
_PRODUCTS = {
    (_EVERY, _EVERY): 0.25,
    (COMMON, _EVERY): 2.0,
    (COMMON, COMMON): 6.0,
    (FINE, _EVERY): 1.5,
    (FINE, FINE): 25.0,
    (SOME, FINE): 25.0,
    (SOME, SOME): 40.0,
    (RARE, SOME): 200.0,
    (RARE, RARE): 700.0,
}


@dataclass(frozen=True)
class Question:
    """A ratio of two sums over devices.

    Attributes:
      numerator, denominator: names of the sums.
      above, below: kind of each sum, which sets the weight of its cell: ``FINE`` for a difference of two arms or for
        OOV words only, ``SOME`` for OOV words that discovery found, ``RARE`` for correct predictions of these.
    """

    numerator: str
    denominator: str = WORDS
    above: float = COMMON
    below: float = _EVERY


@dataclass(frozen=True)
class Layout:
    """Cells of a vector; they follow from the questions alone.

    Attributes:
      questions: ratios to estimate.
    """

    questions: tuple[Question, ...]

    @cached_property
    def weights(self) -> dict[str, float]:
        """Weight of each sum, by name, in the order of their cells."""
        weights = {WORDS: _EVERY}
        for question in self.questions:
            weights.setdefault(question.numerator, question.above)
            weights.setdefault(question.denominator, question.below)
        return weights

    @cached_property
    def products(self) -> dict[tuple[str, str], float]:
        """Weight of each product of two sums, in the order of their cells."""
        pairs: dict[tuple[str, str], float] = {}
        for question in self.questions:
            top, bottom = question.numerator, question.denominator
            for pair in ((top, top), (top, bottom), (bottom, bottom)):
                first, second = (self.weights[name] for name in pair)
                pairs.setdefault(pair, _PRODUCTS[first, second])
        return pairs

    def __len__(self) -> int:
        return len(self.weights) + len(self.products)

    def read(self, released_M: np.ndarray, deviation: float) -> "Sums":
        """The sums behind a release, by name.

        Args:
          deviation: standard deviation of the noise in each cell.
        """
        weights = [*self.weights.values(), *self.products.values()]
        names: list[str | tuple[str, str]] = [*self.weights, *self.products]
        return Sums(
            {name: float(value) / weight for name, value, weight in zip(names, released_M, weights, strict=True)},
            {name: deviation / weight for name, weight in zip(names, weights, strict=True)},
        )


@dataclass(frozen=True)
class Sums:
    """Noisy sums in units of ``MOST_WORDS`` words, and of products in units of its square.

    Attributes:
      value: by name, for products by both names.
      deviation: of the noise, with the same keys.
    """

    value: Mapping[str | tuple[str, str], float]
    deviation: Mapping[str | tuple[str, str], float]


def fewest_devices(noise_multiplier: float, most_words: float = MOST_WORDS) -> int:
    """Least number of devices whose sum exceeds the noise, if each typed as many words as count.

    The actual number of words is unknown before the release, so a sum that noise exceeds despite enough devices is
    reported as inconclusive (``compare``) and not refused.

    Args:
      most_words: that a device may have typed; words above ``MOST_WORDS`` do not count.
    """
    needed = (LEAST_DENOMINATOR + _LUCK) * deviation_of_words(noise_multiplier)
    return math.ceil(needed * MOST_WORDS / min(most_words, MOST_WORDS))


def words_needed(noise_multiplier: float, devices: int) -> float:
    """Words that each device must have typed on average, counting at most ``MOST_WORDS`` each."""
    return (LEAST_DENOMINATOR + _LUCK) * deviation_of_words(noise_multiplier) * MOST_WORDS / devices


def deviation_of_words(noise_multiplier: float) -> float:
    """Standard deviation of the noise in the sum of all words, in ``MOST_WORDS``."""
    return Layout(()).read(np.zeros(1), noise_multiplier * CLIP_NORM).deviation[WORDS]


def vectors(layout: Layout, parts_D: Mapping[str, np.ndarray]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Each device's weighted vector as cells and values; not clipped yet. Private.

    Args:
      parts_D: contribution of each device to each sum, in words, including the sum ``words``.
    """
    cells, products = np.arange(len(layout)), list(layout.products)
    weights_M = np.array([*layout.weights.values(), *layout.products.values()])
    parts_LD = np.stack([np.asarray(parts_D[name], dtype=np.float64) for name in layout.weights])
    place = {name: number for number, name in enumerate(layout.weights)}
    first, second = (np.array([place[pair[side]] for pair in products], dtype=np.int64) for side in (0, 1))
    words = place[WORDS]
    with np.errstate(all="ignore"):  # non-finite values count as 0, without a warning that would reveal them
        for device in range(parts_LD.shape[1]):
            own_L = parts_LD[:, device] / max(parts_LD[words, device], MOST_WORDS)
            yield cells, np.concatenate([own_L, own_L[first] * own_L[second]]) * weights_M


def differences(names: Sequence[str], baseline: str) -> tuple[Question, ...]:
    """Questions about a candidate minus a baseline, a paired sum for each metric."""
    return tuple(Question(difference(name, baseline), above=FINE) for name in names)


def difference(metric: str, baseline: str) -> str:
    """Name of the sum of a metric's differences from a baseline."""
    return f"{metric} minus {baseline}"
