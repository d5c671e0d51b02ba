"""Evaluation questions under a budget: ratios of sums, and one bounded vector that each held-out device adds.

Shape legend: D devices, L sums of the questions, M cells of a vector.

A ratio's interval needs its two sums and, for the spread between devices, the sums of their squares and of their
product. One vector holds all of them, so that one bound and one release of noise cover every question. Arms are
compared by sums of differences: two arms have most of their results in common, and noise on both levels would exceed
their difference.

A device counts as at most ``MOST_WORDS`` words: one with more text has the same weight, at its own rates. Words typed
again in simulated sessions are counted apart from words scored, by the same rule.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations_with_replacement
from typing import Literal

import numpy as np

MOST_WORDS = 50.0
# Clip norm of a weighted vector; one of fifty devices on chat exceeds it, and is scaled down as a whole at the same
# rates. Cells of typing are about as long as those of recall, so both kinds of metrics share the noise equally.
CLIP_NORM = 1.25
TYPING_CLIP_NORM = CLIP_NORM * math.sqrt(2)
WORDS, TYPED = "words", "typed_words"
# Least denominator of a ratio, in standard deviations of its noise.
LEAST_DENOMINATOR = 5.0
# Standard normal quantile at 1 - 1/1000: a shortfall of noise that occurs once in a thousand times.
_LUCK = 3.0
# Weight of a cell, by the kind of its sum and of its products: about the inverse root of one device's contribution,
# which minimises the effect of noise on each question (docs/evaluation.md).
EVERY, COMMON, FINE, SOME, PAIRED, RARE = 0.5, 1.0, 4.0, 4.5, 8.0, 25.0
_PRODUCTS = {
    (EVERY, EVERY): 0.25,
    (COMMON, EVERY): 2.0,
    (COMMON, COMMON): 6.0,
    (FINE, EVERY): 1.5,
    (FINE, FINE): 25.0,
    (FINE, COMMON): 12.0,
    (COMMON, FINE): 12.0,
    (EVERY, COMMON): 2.0,
    (EVERY, PAIRED): 3.0,
    (COMMON, PAIRED): 25.0,
    (FINE, PAIRED): 50.0,
    (PAIRED, PAIRED): 100.0,
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
        OOV words only, ``SOME`` for OOV words that discovery found, ``RARE`` for correct predictions of these, and
        ``PAIRED`` for a difference of two arms in typing, whose touches are the same.
      unit: the sum that counts the words of both: ``WORDS`` scored, or ``TYPED`` again.
    """

    numerator: str
    denominator: str = WORDS
    above: float = COMMON
    below: float = EVERY
    unit: str = WORDS

    @property
    def kinds(self) -> dict[str, float]:
        """Kind of each sum, by name."""
        return {self.numerator: self.above, self.denominator: self.below}

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Products of sums from which the variance between devices follows."""
        return tuple(combinations_with_replacement(self.kinds, 2))

    def is_drowned(self, sums: "Sums") -> bool:
        """Return whether noise exceeds a denominator."""
        return _is_drowned(sums, self.denominator)

    def at(self, sums: "Sums") -> tuple[float, dict[str, float]]:
        """The ratio, and its derivative by each sum."""
        top, bottom = sums.value[self.numerator], sums.value[self.denominator]
        return top / bottom, {self.numerator: 1 / bottom, self.denominator: -top / bottom**2}


@dataclass(frozen=True)
class Paired(Question):
    """Another arm's ratio, or this arm's change against it, from sums of differences.

    Attributes:
      baseline: the other arm.
      differs: the sums that are its own there; each is this arm's minus a sum of differences of kind ``apart``.
      apart: kind of these sums.
      figure: the other arm's ratio, the gain over it, or the gain relative to it.
    """

    baseline: str = ""
    differs: tuple[str, ...] = ()
    apart: float = PAIRED
    figure: Literal["level", "gain", "relative"] = "gain"

    @property
    def kinds(self) -> dict[str, float]:
        """Kind of each sum, by name."""
        return super().kinds | {difference(name, self.baseline): self.apart for name in self.differs}

    def is_drowned(self, sums: "Sums") -> bool:
        """Return whether noise exceeds a denominator, the other arm's numerator included if the gain is relative."""
        below = (self.numerator, self.denominator) if self.figure == "relative" else (self.denominator,)
        return super().is_drowned(sums) or any(
            _is_drowned(sums, name, difference(name, self.baseline)) for name in below if name in self.differs
        )

    def at(self, sums: "Sums") -> tuple[float, dict[str, float]]:
        """The figure, and its derivative by each sum."""
        less = {name: difference(name, self.baseline) for name in self.differs}
        top, bottom = (self.theirs(name, sums) for name in (self.numerator, self.denominator))
        (ours, by_ours), theirs = super().at(sums), top / bottom
        by_theirs = {self.numerator: 1 / bottom, self.denominator: -theirs / bottom}
        by_theirs |= {less[name]: -by_theirs[name] for name in self.differs}
        if self.figure == "level":
            return theirs, by_theirs
        factor, scale = (ours / theirs, theirs) if self.figure == "relative" else (1.0, 1.0)
        slopes = {name: (by_ours.get(name, 0.0) - factor * slope) / scale for name, slope in by_theirs.items()}
        return (ours - theirs) / scale, slopes

    def theirs(self, name: str, sums: "Sums") -> float:
        """The other arm's sum."""
        return sums.value[name] - (sums.value[difference(name, self.baseline)] if name in self.differs else 0.0)


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
        weights = {WORDS: EVERY}
        for question in self.questions:
            for name, kind in question.kinds.items():
                weights.setdefault(name, kind)
        return weights

    @cached_property
    def units(self) -> dict[str, str]:
        """Sum that counts the words of each sum, by name."""
        return {WORDS: WORDS} | {name: question.unit for question in self.questions for name in question.kinds}

    @property
    def clip_norm(self) -> float:
        """Clip norm of a weighted vector."""
        return clip_norm(typed=TYPED in self.weights)

    @cached_property
    def products(self) -> dict[tuple[str, str], float]:
        """Weight of each product of two sums, in the order of their cells."""
        pairs: dict[tuple[str, str], float] = {}
        for question in self.questions:
            for pair in question.pairs:
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


def _is_drowned(sums: Sums, name: str, less: str | None = None) -> bool:
    """Return whether noise exceeds a sum, or a sum minus another."""
    others = () if less is None else (less,)
    deviation = math.hypot(*(sums.deviation[each] for each in (name, *others)))
    return sums.value[name] - sum(sums.value[each] for each in others) <= LEAST_DENOMINATOR * deviation


def clip_norm(*, typed: bool) -> float:
    """Clip norm of a weighted vector, with or without sums of typing."""
    return TYPING_CLIP_NORM if typed else CLIP_NORM


def fewest_devices(noise_multiplier: float, most_words: float = MOST_WORDS, *, typed: bool = False) -> int:
    """Least number of devices whose sum exceeds the noise, if each typed as many words as count.

    The actual number of words is unknown before the release, so a sum that noise exceeds despite enough devices is
    reported as inconclusive (``compare``) and not refused.

    Args:
      most_words: that a device may have typed; words above ``MOST_WORDS`` do not count.
      typed: the release holds sums of typing too.
    """
    needed = (LEAST_DENOMINATOR + _LUCK) * deviation_of_words(noise_multiplier, typed=typed)
    return math.ceil(needed * MOST_WORDS / min(most_words, MOST_WORDS))


def words_needed(noise_multiplier: float, devices: int, *, typed: bool = False) -> float:
    """Words that each device must have typed on average, counting at most ``MOST_WORDS`` each."""
    return (LEAST_DENOMINATOR + _LUCK) * deviation_of_words(noise_multiplier, typed=typed) * MOST_WORDS / devices


def deviation_of_words(noise_multiplier: float, *, typed: bool = False) -> float:
    """Standard deviation of the noise in the sum of all words, in ``MOST_WORDS``."""
    return Layout(()).read(np.zeros(1), noise_multiplier * clip_norm(typed=typed)).deviation[WORDS]


def vectors(layout: Layout, parts_D: Mapping[str, np.ndarray]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Each device's weighted vector as cells and values; not clipped yet. Private.

    Args:
      parts_D: contribution of each device to each sum, in words, including the sums of ``Layout.units``.
    """
    cells, products = np.arange(len(layout)), list(layout.products)
    weights_M = np.array([*layout.weights.values(), *layout.products.values()])
    parts_LD = np.stack([np.asarray(parts_D[name], dtype=np.float64) for name in layout.weights])
    place = {name: number for number, name in enumerate(layout.weights)}
    first, second = (np.array([place[pair[side]] for pair in products], dtype=np.int64) for side in (0, 1))
    unit_L = np.array([place[layout.units[name]] for name in layout.weights])
    with np.errstate(all="ignore"):  # non-finite values count as 0, without a warning that would reveal them
        for device in range(parts_LD.shape[1]):
            own_L = parts_LD[:, device] / np.maximum(parts_LD[unit_L, device], MOST_WORDS)
            yield cells, np.concatenate([own_L, own_L[first] * own_L[second]]) * weights_M


def difference(metric: str, baseline: str) -> str:
    """Name of the sum of a metric's differences from a baseline."""
    return f"{metric} minus {baseline}"
