"""The noise itself, all of it: as much as claimed everywhere, normal, and independent from round to round.

Shape legend: T rounds, K weights looked at, R rows of the model's tensors.

Multiplied by the whitener (``evaluation.audit.whitening``) and divided by the noise multiplier, noise that is as
claimed is independent and standard normal. So every sum of its squares has a known law: over all of it, a round, a
tensor, a row, a row in a round, a weight over all rounds.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from evaluation.audit.matched_filter import least_noise, whiteness
from evaluation.audit.released.rows import AuditRow

# Numbers that are held at once; of a longer run every row of the model keeps a share of its weights.
MOST_NUMBERS = 1 << 25
_BINS = 32
_TESTS = 6
# Two normal numbers in float64 are nearer than that with a probability below it.
_FLOAT64 = 2.0**-50


@dataclass(frozen=True)
class Places:
    """The weights that are looked at, in the order of the flat model.

    Attributes:
      numbers_K: ascending.
      starts_R: where in ``numbers_K`` each row of a matrix, or a whole vector, begins.
      tensor_R: which tensor a row belongs to.
    """

    numbers_K: np.ndarray
    starts_R: np.ndarray
    tensor_R: np.ndarray


def places(shapes: Sequence[Sequence[int]], rounds: int) -> Places:
    """All weights, or of each row every so many-th, so that ``MOST_NUMBERS`` hold them for all rounds.

    Args:
      shapes: of the model's tensors.
    """
    total = sum(int(np.prod(shape)) for shape in shapes)
    stride, start = max(1, -(-total * rounds // MOST_NUMBERS)), 0
    numbers, tensors = [], []
    for tensor, shape in enumerate(shapes):
        width = int(shape[-1])
        for _ in range(int(np.prod(shape[:-1]))):
            numbers.append(np.arange(start, start + width, stride))
            tensors.append(tensor)
            start += width
    lengths = [len(row) for row in numbers]
    return Places(np.concatenate(numbers), np.cumsum([0, *lengths[:-1]]), np.array(tensors))


def noise_values(
    noise_TK: np.ndarray,
    looked_at: Places,
    whitener_TT: np.ndarray,
    noise_multiplier: float,
    alpha: float,
) -> list[AuditRow]:
    """Two rows: how much noise there is, everywhere, and whether it is normal and independent.

    Guarantee: if the noise is as claimed, both pass with probability at least ``1 - alpha``: six tests, ``alpha / 6``
    each, those of many parts with Bonferroni's correction.

    Args:
      noise_TK: of each round at the places, in clip norms.
    """
    white_TK, level = whitener_TT @ noise_TK / noise_multiplier, alpha / _TESTS
    squares_TK = white_TK**2
    total, numbers = float(squares_TK.sum()), squares_TK.size
    whole = _two_sided(np.array([total]), np.array([numbers]))
    parts_p, worst = _parts(squares_TK, looked_at)
    weights_p = _of_weights(squares_TK)
    reasons = []
    if whole < level:
        reasons.append(f"{noise_multiplier * np.sqrt(total / numbers):.4g} clip norms, claimed {noise_multiplier:.4g}")
    if parts_p < level:
        reasons.append(f"not so much in {worst}")
    if weights_p < level:
        reasons.append("not so much in some weights, over all rounds")
    scale = noise_multiplier / np.sqrt(numbers / total) if total else 0.0
    low, high = (
        noise_multiplier * float(np.sqrt(total / stats.chi2.ppf(tail, numbers))) for tail in (1 - level / 2, level / 2)
    )
    smallest = min(1.0, _TESTS * min(whole, parts_p, weights_p))
    variance = AuditRow(
        type="noise_variance",
        quantity=f"noise in clip norms, of {len(looked_at.starts_R)} rows of weights, drawn again",
        estimate=scale,
        low=low,
        high=high,
        claim=noise_multiplier,
        confidence=1 - level,
        p_value=smallest,
        n=numbers,
        passed=not reasons,
        reason="; ".join(reasons),
        least_noise=least_noise(numbers, level),
    )
    return [variance, _law(white_TK, level)]


def _law(white_TK: np.ndarray, level: float) -> AuditRow:
    """The row about normality, noise used twice within a round, and rounds that are alike."""
    normal = min(1.0, 2 * min(_fits(stats.norm.cdf(white_TK).reshape(-1)), _largest(white_TK)))
    repeated = min(1.0, len(white_TK) * min(_repeats(row_K) for row_K in white_TK))
    alike = 1.0
    if min(white_TK.shape) > 2 and np.all(np.any(white_TK, axis=1)):
        alike = whiteness(white_TK).p_value
    reasons = [
        text
        for p_value, text in (
            (normal, "not normal"),
            (repeated, "the same number stands at several weights"),
            (alike, "noise of different rounds is alike"),
        )
        if p_value < level
    ]
    smallest = min(1.0, _TESTS * min(normal, repeated, alike))
    return AuditRow(
        type="noise_values",
        quantity="chance of such noise, if it is normal and independent",
        estimate=smallest,
        low=smallest,
        high=smallest,
        claim=None,
        confidence=1 - level,
        p_value=smallest,
        n=white_TK.size,
        passed=not reasons,
        reason="; ".join(reasons),
    )


def _two_sided(squares: np.ndarray, degrees: np.ndarray) -> float:
    """Smallest two-sided p-value of some sums of so many squares, for all of them together."""
    tails = np.minimum(stats.chi2.cdf(squares, degrees), stats.chi2.sf(squares, degrees))
    return min(1.0, 2 * squares.size * float(tails.min()))


def _parts(squares_TK: np.ndarray, looked_at: Places) -> tuple[float, str]:
    """The most surprising of rounds, tensors, rows, and tensors and rows in a round; and which it is."""
    in_rows_TR = np.add.reduceat(squares_TK, looked_at.starts_R, axis=1)
    lengths_R = np.diff([*looked_at.starts_R, squares_TK.shape[1]])
    first = np.flatnonzero(np.diff(looked_at.tensor_R, prepend=-1))
    in_tensors_TM, lengths_M = np.add.reduceat(in_rows_TR, first, axis=1), np.add.reduceat(lengths_R, first)
    rounds = len(squares_TK)
    kinds = {
        "a round": (squares_TK.sum(axis=1), np.full(rounds, squares_TK.shape[1])),
        "a tensor": (in_tensors_TM.sum(axis=0), rounds * lengths_M),
        "a row": (in_rows_TR.sum(axis=0), rounds * lengths_R),
        "a tensor in a round": (in_tensors_TM, np.broadcast_to(lengths_M, in_tensors_TM.shape)),
        "a row in a round": (in_rows_TR, np.broadcast_to(lengths_R, in_rows_TR.shape)),
    }
    tests = {name: _two_sided(squares, degrees) for name, (squares, degrees) in kinds.items()}
    worst = min(tests, key=lambda name: tests[name])
    return min(1.0, len(tests) * tests[worst]), worst


def _of_weights(squares_TK: np.ndarray) -> float:
    """Each weight over all rounds: the extremes, and whether all together have the law they should."""
    sums_K, rounds = squares_TK.sum(axis=0), np.full(squares_TK.shape[1], len(squares_TK))
    return min(1.0, 2 * min(_two_sided(sums_K, rounds), _fits(stats.chi2.cdf(sums_K, len(squares_TK)))))


def _fits(uniform: np.ndarray) -> float:
    """P-value of Pearson's test that numbers are uniform in [0, 1]."""
    counts = np.bincount(np.minimum((uniform * _BINS).astype(np.int64), _BINS - 1), minlength=_BINS)
    expected = len(uniform) / _BINS
    return float(stats.chi2.sf(np.sum((counts - expected) ** 2) / expected, _BINS - 1))


def _largest(white_TK: np.ndarray) -> float:
    """P-value of the largest number, two-sided: tails that are cut, and tails that are heavy."""
    largest = float(np.abs(white_TK).max())
    if not largest:
        return 0.0
    tail = np.log1p(-2 * stats.norm.sf(largest)) * white_TK.size
    below = float(np.exp(tail))
    return min(1.0, 2 * min(below, -float(np.expm1(tail))))


def _repeats(row_K: np.ndarray) -> float:
    """P-value of numbers that stand at several weights of one round, whatever their sign: next to never by chance."""
    repeated = len(row_K) - len(np.unique(np.floor(np.abs(row_K) / _FLOAT64)))
    # Two normal numbers lie in one interval with a probability below its width, by 1 / sqrt(pi).
    return float(stats.poisson.sf(repeated - 1, len(row_K) ** 2 / 2 * _FLOAT64)) if repeated else 1.0
