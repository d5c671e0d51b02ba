"""Where Smart Compose may speak up: thresholds that make arms comparable.

Shape legend: P words.

An arm that offers phrases more freely is picked less often, so trigger rates are compared at equal
rates of acceptance (Xu et al. 2023, section 3: the trigger rate is "important when PRate is fixed").
The baseline's threshold is set by how often it may speak; every other arm's is the lowest at which
its phrases are right as often as the baseline's. Set thresholds on devices that the comparison does
not use.
"""

import math

import numpy as np

from evaluation.comparison.scoring import Scored

_FEWEST = 20


def threshold_at_rate(scored: Scored, rate: float) -> float:
    """Sureness that this share of words reaches (nats); ``inf`` if none would be offered.

    Raises:
      ValueError: a rate outside 0 to 1.
    """
    if not 0 < rate < 1:
        raise ValueError(f"compose_rate: {rate} is no share of words; use something like 0.05")
    wanted = round(rate * len(scored.sure_P))
    sure = np.sort(scored.sure_P[np.isfinite(scored.sure_P)])[::-1]
    if not wanted or not len(sure):
        return math.inf
    return float(sure[min(wanted, len(sure)) - 1])


def right_share(scored: Scored, threshold: float) -> float:
    """Share of phrases at or above a threshold that are what was meant; NaN if there are none."""
    shown_P = scored.sure_P >= threshold
    return float(np.mean(scored.phrase_P[shown_P])) if shown_P.any() else math.nan


def threshold_at_share(scored: Scored, share: float) -> float:
    """The lowest sureness (nats) at which phrases are right at least this often; ``inf`` if it never is.

    Thresholds that fewer than 20 phrases reach are not considered: their share is chance.
    """
    offered = np.flatnonzero(np.isfinite(scored.sure_P))
    order = offered[np.argsort(-scored.sure_P[offered], kind="stable")]
    sure, right = scored.sure_P[order], np.cumsum(scored.phrase_P[order])
    shares = right / np.arange(1, len(order) + 1)
    # Of equally sure phrases all or none are shown.
    last_of_tie = np.append(sure[1:] < sure[:-1], True)[: len(order)]
    good = np.flatnonzero((shares >= share) & last_of_tie & (np.arange(1, len(order) + 1) >= _FEWEST))
    return float(sure[good[-1]]) if len(good) else math.inf
