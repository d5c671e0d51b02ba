"""Smart Compose threshold of each deciding arm, set on devices outside the comparison.

An arm that offers more phrases has a lower acceptance rate, so trigger rates are compared at equal precision (Xu et al.
2023, section 3, read the trigger rate at a fixed PRate), and acceptance at equal rates. The first arm
offers phrases at the allowed rate. Every other arm has the lowest threshold at which its phrases are as precise as the
first's; if one of them never reaches this precision, all offer at equal rates, so that they are compared in one way.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from evaluation.arms.arm import NextWord
from evaluation.arms.held_out import HeldOut
from evaluation.comparison import scoring
from evaluation.comparison.results import ComposeSetting
from evaluation.comparison.scoring import Scores
from pretrain import progress
from pretrain.text.vocabulary import Vocabulary

# Phrases below this log-probability (a tenth) are searched only if an arm has too few others.
_FLOOR = math.log(0.1)


@dataclass(frozen=True)
class Tuning:
    """Text for setting thresholds.

    Attributes:
      rate: share of words before which the first arm may offer a phrase.
    """

    text: HeldOut
    vocabulary: Vocabulary
    rate: float


def settings(arms: Mapping[str, NextWord], tuning: Tuning, workers: int = 1) -> tuple[ComposeSetting, ...]:
    """The threshold of each arm, in their order.

    Args:
      arms: the first sets precision and rate.
    """
    advance = progress.along(f"tuning phrases of {len(arms)} arms", float(len(arms) * tuning.text.lengths_S.sum()))
    scored = {arm: _scored(model, tuning, workers, advance) for arm, model in arms.items()}
    (name, first), *others = scored.items()
    loosest = scoring.threshold_at_rate(first, tuning.rate)
    precision, rate = scoring.right_share(first, loosest), _rate(first, loosest)
    # If the first arm's phrases are never right, there is no precision to match.
    precise = {arm: scoring.threshold_at_share(each, precision) if precision > 0 else math.inf for arm, each in others}
    precise[name] = loosest if precision > 0 else math.inf
    by_precision = all(map(math.isfinite, precise.values()))
    made = []
    for arm, each in scored.items():
        threshold = precise[arm] if by_precision else scoring.threshold_at_rate(each, rate) if rate else math.inf
        share = scoring.right_share(each, threshold)
        made.append(
            ComposeSetting(
                arm=arm,
                threshold_nats=threshold if math.isfinite(threshold) else None,
                right_share=share if math.isfinite(share) else None,
                trigger_rate=_rate(each, threshold),
                equal="precision" if by_precision else "rate",
            )
        )
    return tuple(made)


def _scored(arm: NextWord, tuning: Tuning, workers: int, advance: Callable[[float], None]) -> Scores:
    """Scores of an arm's phrases, down to the threshold at which it offers at the allowed rate."""
    id_P = tuning.text.ids(tuning.vocabulary)
    scored = scoring.score(arm, tuning.text, id_P, compose_floor=_FLOOR, workers=workers, advance=advance)
    if np.count_nonzero(np.isfinite(scored.sure_P)) < math.ceil(tuning.rate * len(id_P)):
        scored = scoring.score(arm, tuning.text, id_P, compose_floor=-math.inf, workers=workers)
    return scored


def _rate(scored: Scores, threshold: float) -> float:
    return float(np.mean(scored.sure_P >= threshold))
