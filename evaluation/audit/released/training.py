"""The audit of training: a few rounds recomputed from their devices' text, and the bits of adaptive clipping.

Recorded projections audit the properties of all rounds (``replay``, ``updates``). No audit can recompute every round of
a long run, so a few are selected at random, by a hash of the published model: nobody knows them during training, and
every holder of the model can name them afterwards.

Shape legend: T rounds, P parameters, K followed weights.
"""

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from evaluation.audit.directions import Directions
from evaluation.audit.keyed_noise import step_of
from evaluation.audit.released.replay import Models, RoundRecords
from evaluation.audit.verdict import Verdict

CHOSEN = 3
# Clipping ends strictly inside the ball, as on devices: rounding must not lift a norm above the clip norm.
_INSIDE = 1.0 - 2.0**-20
# Tolerance of a device's update relative to its norm, for other processors and other devices in its chunk. Measured:
# 4e-7 for other devices in the chunk.
_LOW_BITS = 1e-5
# Tolerances of float64 rounding: an inner product, relative to its vector; a clip norm; noise added in another order.
_PROJECTED, _NORM, _REORDERED = 1e-9, 1e-12, 2.0**-40
# A sum's whole numbers are multiples of this many clip norms.
_UNITS = 2**44


@dataclass(frozen=True)
class Rule:
    """Rule of a round from the launch file: the bound of a device, and the noise on a sum.

    Attributes:
      noise_multiplier: of the released sums, in clip norms.
      layers: sizes of the layers that are clipped first, each to its share; None: only the whole update is clipped.
      most_weight: weight beyond which a sum is scaled down; None: sums are released as they are.
      rounding: standard deviation of the devices' encoding per number, in clip norms.
      clipping: adaptive clipping; None for a fixed clip norm.
    """

    noise_multiplier: float
    layers: tuple[int, ...] | None = None
    most_weight: float | None = None
    rounding: float = 0.0
    clipping: "AdaptiveRule | None" = None


@dataclass(frozen=True)
class AdaptiveRule:
    """Adaptive clipping from the launch file (Andrew et al. 2021).

    Attributes:
      start: clip norm of the first round.
      quantile: target share of updates below the clip norm.
      learning_rate: of the geometric step.
      bit_noise_std: standard deviation of the noise on a sum of bits.
      report_goal: the fixed denominator.
      anew_T: bool, the rounds in which the noise restarts and the clip norm may change.
    """

    start: float
    quantile: float
    learning_rate: float
    bit_noise_std: float
    report_goal: int
    anew_T: np.ndarray


@dataclass(frozen=True)
class KeptRound:
    """One chosen round. Secret.

    Attributes:
      model_P, released_P: kept by the trainer: the model that devices trained, and the released sum.
      updates: for each recorded device, recomputed from its text: its change of the model before clipping, ``[P]``, and
        its weight in [0, 1].
      planted_P: float64, contribution of the audit's canaries, in clip norms.
      noise_P: noise of the key, regenerated, in clip norms.
    """

    number: int
    model_P: np.ndarray
    released_P: np.ndarray
    updates: Iterable[tuple[np.ndarray, float]]
    planted_P: np.ndarray
    noise_P: np.ndarray


@dataclass(frozen=True)
class TrainingRecord:
    """Training's records along the directions, and the models before and after the run."""

    seen: RoundRecords
    models: Models
    directions: Directions


def chosen(weights_P: np.ndarray, kept: Sequence[int], count: int = CHOSEN) -> tuple[int, ...]:
    """Rounds to recompute, ascending: the kept ones that the published model's hash selects.

    Args:
      weights_P: of the published model, float32 in the order of its parameters.
    """
    lot = hashlib.sha256(b"tacit audited rounds" + np.ascontiguousarray(weights_P, dtype="<f4").tobytes()).digest()
    order = sorted(kept, key=lambda number: hashlib.sha256(lot + number.to_bytes(8, "big")).digest())
    return tuple(sorted(order[:count]))


def training_audit(
    rounds: Iterable[KeptRound], recorded: TrainingRecord, rule: Rule, bit_noise_T: np.ndarray
) -> tuple[Verdict, ...]:
    """Verdicts on the released sums of the chosen rounds, on all released bits, and on the clip norms.

    Args:
      rounds: an iterator, as each round holds several vectors of the model's size.
      bit_noise_T: noise of the sums of bits, regenerated from the key; unused without adaptive clipping.
    """
    rounds_reason, bits_reason, digits = "", "", True
    sums: dict[int, _Remade] = {}
    for one in rounds:
        threshold = None if rule.clipping is None else float(recorded.seen.thresholds_T[one.number])
        clip_norm = float(recorded.seen.clips_T[one.number])
        sums[one.number] = _remade(one.updates, len(one.model_P), clip_norm, threshold, rule)
        rounds_reason = rounds_reason or _of_round(one, sums[one.number], recorded, rule)
        digits &= _is_on_lattice(one.released_P, rule.noise_multiplier * _UNITS, clip_norm / _UNITS)
    clips_reason = ""
    if rule.clipping is not None:
        digits &= _is_on_lattice(recorded.seen.bits_T, rule.clipping.bit_noise_std)
        bits_reason = _of_bits(recorded.seen, sums, rule.clipping, bit_noise_T)
        clips_reason = _of_clip_norms(recorded.seen, rule.clipping)
    return (
        Verdict(
            "rounds",
            f"{CHOSEN} rounds that the published model's hash chose released the clipped updates of their devices, "
            "made again from their text, and the noise of the key, and nothing else",
            "of a round's sum, as a vector: half a step of the release's grid and the rounding of an encoding in every "
            f"weight, and {_LOW_BITS:g} clip norms a device",
            not rounds_reason,
            rounds_reason,
        ),
        Verdict(
            "digits",
            "the chosen rounds' released sums, and all released bits, are multiples of a millionth of the noise",
            "any further digit",
            digits,
            "" if digits else "released sums or bits show digits beyond a millionth of the noise",
        ),
        Verdict(
            "clipping_bits",
            "released bits of adaptive clipping are a sum of bits of the round's devices, in the chosen rounds the one "
            "made again, and the noise of the key",
            "half a step of the release's grid, a millionth of the noise",
            not bits_reason,
            bits_reason if rule.clipping is not None else "the clip norm is fixed, so no bits were released",
        ),
        Verdict(
            "clip_norms",
            "clip norms follow from the bits that were released before them",
            "none beyond the rounding of float64",
            not clips_reason,
            clips_reason if rule.clipping is not None else "the clip norm is fixed",
        ),
    )


def combined(directions: Directions, sends_N: np.ndarray, rule: Rule) -> np.ndarray:
    """Sum of the updates of canaries, each clipped to one clip norm, float64 ``[P]`` in clip norms.

    Args:
      sends_N: bool, canaries that send their direction.
    """
    if rule.layers is None:
        return _INSIDE * directions.combined(sends_N.astype(np.float64))
    total_P = np.zeros(directions.num_parameters)
    for number in np.flatnonzero(sends_N).tolist():
        update_P = _by_layer(directions.update(number).astype(np.float64), 1.0, rule.layers)
        total_P += update_P * min(1.0, _INSIDE / float(np.linalg.norm(update_P)))
    return total_P


@dataclass(frozen=True)
class _Remade:
    """A round's recomputed sum. Secret: it has no noise.

    Attributes:
      sum_P: float64, in clip norms.
      bits: least and largest sum of bits; they differ if an update equals the threshold up to low bits.
    """

    sum_P: np.ndarray
    weight: float
    bits: tuple[float, float]
    devices: int


def _remade(
    updates: Iterable[tuple[np.ndarray, float]], size: int, clip_norm: float, threshold: float | None, rule: Rule
) -> _Remade:
    """Clip and add up every device's update by the rule, independently of the trainer."""
    sum_P, weights, least, most, devices = np.zeros(size), 0.0, 0.0, 0.0, 0
    clipped_P = np.empty(size)
    for update_P, weight in updates:
        clipped_P[:] = update_P
        free = math.sqrt(clipped_P @ clipped_P)
        if not math.isfinite(free) or not weight:
            continue
        if rule.layers is not None:
            clipped_P[:] = _by_layer(clipped_P, clip_norm, rule.layers)
        norm = math.sqrt(clipped_P @ clipped_P)
        factor = min(1.0, clip_norm * _INSIDE / norm) if norm else 1.0
        clipped_P *= weight * factor / clip_norm
        sum_P += clipped_P
        weights, devices = weights + weight, devices + 1
        if threshold is not None:
            least += 0.5 if free <= threshold * (1 - _LOW_BITS) else -0.5
            most += 0.5 if free <= threshold * (1 + _LOW_BITS) else -0.5
    return _Remade(sum_P, weights, (least, most), devices)


def _by_layer(update_P: np.ndarray, clip_norm: float, layers: tuple[int, ...]) -> np.ndarray:
    share = clip_norm / math.sqrt(len(layers))
    parts = np.split(update_P, np.cumsum(layers)[:-1])
    return np.concatenate([part * (share / max(float(np.linalg.norm(part)), share)) for part in parts])


def _of_round(one: KeptRound, remade: _Remade, recorded: TrainingRecord, rule: Rule) -> str:
    if not _is_recorded(one, recorded):
        return "what was kept of a chosen round is not the round that was recorded"
    factor = 1.0 if rule.most_weight is None else rule.most_weight / max(rule.most_weight, remade.weight)
    expected_P = factor * remade.sum_P + one.planted_P + one.noise_P
    gap = float(np.linalg.norm(one.released_P / recorded.seen.clips_T[one.number] - expected_P))
    in_each = step_of(rule.noise_multiplier) / 2 + 3 * rule.rounding
    slack = math.sqrt(len(one.released_P)) * in_each + _LOW_BITS * (1 + remade.devices)
    return "" if gap <= slack else "a chosen round released other than its devices' clipped updates and the key's noise"


def _is_on_lattice(released: np.ndarray, deviation: float, unit: float = 1.0) -> bool:
    step = step_of(deviation)
    return bool(np.array_equal(np.rint(released / unit / step) * step * unit, released))


def _is_recorded(one: KeptRound, recorded: TrainingRecord) -> bool:
    """Return whether model and released sum belong to the replayed sequence of models."""
    seen, models, number = recorded.seen, recorded.models, one.number
    before_N = seen.weights_TN[number - 1] if number else models.start_N
    before_K = seen.followed_weights_TK[number - 1] if number else models.start_K
    pairs = ((one.model_P.astype(np.float64), before_N), (one.released_P, seen.released_TN[number]))
    along = all(
        np.abs(recorded.directions.project(vector_P) - stated_N).max() <= _PROJECTED * (1 + np.linalg.norm(vector_P))
        for vector_P, stated_N in pairs
    )
    same_model = np.array_equal(one.model_P[models.places_K], before_K.astype(np.float32))
    same_release = np.array_equal(one.released_P[models.places_K], seen.followed_released_TK[number])
    return bool(along and same_model and same_release)


def _of_bits(seen: RoundRecords, sums: dict[int, _Remade], rule: AdaptiveRule, noise_T: np.ndarray) -> str:
    """Without its noise a sum of bits is a multiple of 1/2, at most half as large as the round has devices.

    Subtracting the key's noise gives such a number only if all of it was added, and nothing else. So this audit needs
    no stored sum without noise.
    """
    slack = step_of(rule.bit_noise_std) / 2 + _REORDERED * rule.bit_noise_std
    rest_T = seen.bits_T - noise_T
    bits_T = np.rint(2 * rest_T) / 2
    if not np.all((np.abs(rest_T - bits_T) <= slack) & (np.abs(bits_T) <= seen.updates_T / 2)):
        return "a round released bits that are no sum of its devices' bits and the key's noise"
    if not all(made.bits[0] - slack <= rest_T[number] <= made.bits[1] + slack for number, made in sums.items()):
        return "a chosen round released other bits than those of its devices"
    return ""


def _of_clip_norms(seen: RoundRecords, rule: AdaptiveRule) -> str:
    in_use = estimate = rule.start
    shares = 0.0
    for number, released in enumerate(seen.bits_T.tolist()):
        in_use = estimate if rule.anew_T[number] else in_use
        for used, stated in ((seen.clips_T[number], in_use), (seen.thresholds_T[number], estimate)):
            if not abs(used - stated) <= _NORM * stated:
                return "a round clipped or counted at another norm than follows from the bits that were released"
        shares += 0.5 + released / rule.report_goal
        exponent = -rule.learning_rate * (shares - (number + 1) * rule.quantile)
        estimate = rule.start * math.exp(min(max(exponent, -50.0), 50.0))
    return ""
